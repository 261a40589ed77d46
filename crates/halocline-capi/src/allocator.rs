//! Allocators of the program, such as a pool of its own: they give the memory of received payloads.

use crate::call::{call_for, callback};
use crate::keep_alive::{KeepAlive, Release};
use crate::memory_resource::Resource;
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr};
use crate::pointer::OutPtr;
use crate::status::{Refusal, Status};
use halocline::device::{Address, MemorySpace, cuda};
use halocline::{
    Buffer, Device, MemoryAccount, MemoryError, MemoryKind, MemoryResource, MemoryStatistics, Stream,
};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

type Allocate = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Deallocate = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);

/// `halocline_allocator`.
#[repr(C)]
pub(crate) struct AllocatorOptions {
    pub(crate) size: usize,
    pub(crate) allocate: Option<Allocate>,
    pub(crate) deallocate: Option<Deallocate>,
    pub(crate) release: Release,
    pub(crate) context: *mut c_void,
    pub(crate) stream: Handle<Arc<Stream>>,
    pub(crate) space: i32,
    pub(crate) device: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers, a raw pointer and functions that may be null. The header asks for
// functions of those types or null.
unsafe impl Options for AllocatorOptions {
    const FIRST_SIZE: usize = 56;
    const NAME: &'static str = "halocline_allocator";
}

/// The functions of the program; the last holder tells it that they are no longer needed.
struct Functions {
    allocate: Allocate,
    deallocate: Deallocate,
    context: *mut c_void,
    /// The GPU whose memory they give; none for memory of the host.
    gpu: Option<Device>,
    keep: KeepAlive,
}

impl Functions {
    /// Calls one of them. The GPU is current meanwhile.
    fn call<R>(&self, function: impl FnOnce() -> R) -> R {
        match &self.gpu {
            Some(gpu) => gpu.within_beside_captures(|| callback(function)),
            None => callback(function),
        }
    }
}

// SAFETY: the header says that any threads may call the functions, several at once; nothing else uses the pointer.
unsafe impl Send for Functions {}
// SAFETY: the header says that several threads may call the functions at once; nothing else uses the pointer.
unsafe impl Sync for Functions {}

/// A block that the program has allocated, until the program has it back.
struct Block {
    functions: Arc<Functions>,
    memory: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: any thread may give the block back; it gives no access to its bytes.
unsafe impl Send for Block {}
// SAFETY: a shared reference gives no access to anything.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        let Functions { deallocate, context, .. } = *self.functions;
        // SAFETY: the header asks for a function that takes back, once and in any thread, what `allocate` has returned.
        self.functions.call(|| unsafe { deallocate(context, self.memory.as_ptr(), self.bytes) });
    }
}

/// Memory of a program's allocator.
struct Allocator {
    functions: Arc<Functions>,
    /// The stream in whose order it gives memory of the GPU.
    stream: Option<Arc<Stream>>,
    account: Arc<MemoryAccount>,
}

impl Allocator {
    /// # Safety
    /// The functions are what the header asks for, until `release` is called.
    unsafe fn new(given: &AllocatorOptions, gpu: Option<Device>) -> Result<Self, Refusal> {
        let missing =
            |name| Refusal::argument(format!("{name} of the allocator is NULL; set it to a function"));
        let stream = match given.stream.number() {
            0 => None,
            _ => Some(Arc::clone(&*given.stream.pin()?)),
        };
        if gpu.is_none() && stream.is_some() {
            return Err(Refusal::argument(
                "the allocator gives memory of the host, which is in the order of no stream; leave out the stream, or set space to \
                 HALOCLINE_CUDA",
            ));
        }
        let kind = if gpu.is_some() { MemoryKind::Device } else { MemoryKind::Host };
        let functions = Functions {
            allocate: given.allocate.ok_or_else(|| missing("allocate"))?,
            deallocate: given.deallocate.ok_or_else(|| missing("deallocate"))?,
            context: given.context,
            gpu,
            // SAFETY: the caller promises a function that any thread may call once with the context.
            keep: unsafe { KeepAlive::new(given.release, given.context) },
        };
        Ok(Self { functions: Arc::new(functions), stream, account: MemoryAccount::new(kind) })
    }

    /// A block of the program.
    fn block(&self, bytes: usize) -> Result<Block, MemoryError> {
        let Functions { allocate, context, .. } = *self.functions;
        // SAFETY: the header asks for a function that any thread may call.
        let memory = self.functions.call(|| unsafe { allocate(context, bytes) });
        let memory = NonNull::new(memory)
            .ok_or_else(|| MemoryError::Foreign { asked: bytes, why: "it returned NULL".to_owned() })?;
        Ok(Block { functions: Arc::clone(&self.functions), memory, bytes })
    }

    /// Memory of a GPU.
    fn on_gpu(&self, gpu: &Device, block: Block) -> Result<Buffer, MemoryError> {
        let address = block.memory.as_ptr().expose_provenance() as Address;
        let space = gpu.place_of(address)?.space;
        if space != MemorySpace::Device(gpu.ordinal()) {
            let why = format!("it returned {space} instead of memory of device {}", gpu.ordinal());
            return Err(MemoryError::Faulty { asked: block.bytes, why });
        }
        // SAFETY: the header asks for memory of the GPU that nothing else uses until it is given back.
        let buffer = unsafe { Buffer::foreign_device(address, block.bytes, gpu, block) };
        match &self.stream {
            None => Ok(buffer),
            Some(stream) => Ok(buffer.ready_after(stream)?),
        }
    }
}

impl MemoryResource for Allocator {
    fn kind(&self) -> MemoryKind {
        self.account.statistics().kind
    }

    fn device(&self) -> Option<&Device> {
        self.functions.gpu.as_ref()
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        if bytes == 0 {
            return Ok(Buffer::empty_of(self));
        }
        self.account.count(bytes, || {
            let block = self.block(bytes)?;
            match &self.functions.gpu {
                Some(gpu) => self.on_gpu(gpu, block),
                // SAFETY: the header asks for memory of the host that nothing else uses until it is given back. Memory from
                // another language counts as initialised.
                None => Ok(unsafe { Buffer::foreign_mut(block.memory.cast(), bytes, block) }),
            }
        })
    }

    fn watch(&self, waker: &Waker) {
        self.account.watch(waker);
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}

/// Memory of an allocator of the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_resource_allocator(
    allocator: OptionsPtr<'_, AllocatorOptions>,
    made: OutPtr<'_, Handle<Resource>>,
) -> Status {
    call_for(made, "resource", || {
        let given = allocator.required()?;
        let gpu = options::gpu_of_memory(given.space, given.device, " of the allocator")?;
        let gpu = gpu.map(cuda::device).transpose()?;
        // SAFETY: the header asks for these functions.
        let allocator = Arc::new(unsafe { Allocator::new(&given, gpu) }?);
        let functions = Arc::clone(&allocator.functions);
        let handle = Handle::new(allocator as Resource)?;
        functions.keep.arm();
        Ok(handle)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::device::{Priority, ValueOp, sim};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    /// A program whose pool has one block.
    struct Program {
        memory: Address,
        blocks_out: AtomicUsize,
        released: AtomicUsize,
    }

    unsafe extern "C" fn allocate(program: *mut c_void, _bytes: usize) -> *mut c_void {
        // SAFETY: the tests pass a program that outlives the allocator.
        let program = unsafe { &*program.cast::<Program>() };
        match program.blocks_out.fetch_add(1, Relaxed) {
            0 => std::ptr::with_exposed_provenance_mut(program.memory as usize),
            _ => {
                program.blocks_out.fetch_sub(1, Relaxed);
                std::ptr::null_mut()
            }
        }
    }

    unsafe extern "C" fn deallocate(program: *mut c_void, memory: *mut c_void, bytes: usize) {
        // SAFETY: the tests pass a program that outlives the allocator.
        let program = unsafe { &*program.cast::<Program>() };
        assert_eq!((memory.addr() as Address, bytes), (program.memory, 64));
        program.blocks_out.fetch_sub(1, Relaxed);
    }

    unsafe extern "C" fn release(program: *mut c_void) {
        // SAFETY: the tests pass a program that outlives the allocator.
        unsafe { &*program.cast::<Program>() }.released.fetch_add(1, Relaxed);
    }

    fn of(program: &Program, gpu: Option<Device>, stream: Handle<Arc<Stream>>) -> Result<Allocator, Refusal> {
        let given = AllocatorOptions {
            allocate: Some(allocate),
            deallocate: Some(deallocate),
            release: Some(release),
            context: std::ptr::from_ref(program).cast_mut().cast(),
            stream,
            ..AllocatorOptions::defaults()
        };
        // SAFETY: the functions above do what the header asks for.
        unsafe { Allocator::new(&given, gpu) }
    }

    fn program(memory: Address) -> Program {
        Program { memory, blocks_out: AtomicUsize::new(0), released: AtomicUsize::new(0) }
    }

    #[test]
    fn memory_of_a_gpu_is_used_after_its_stream_and_given_back() {
        let world = sim::World::live(0, &sim::Options::default()).unwrap();
        let device = world.world().device(0).unwrap();
        let stream = Arc::new(device.stream(Priority::Normal).unwrap());
        let (flag, memory) = (device.allocate_pinned(8).unwrap(), device.allocate(64).unwrap());
        let program = program(memory.at(0));
        let resource = of(&program, Some(device), Handle::new(Arc::clone(&stream)).unwrap()).unwrap();
        resource.functions.keep.arm();
        // SAFETY: the word is pinned memory that lives until the stream has passed it.
        unsafe { stream.values(&[ValueOp::Wait { address: flag.at(0), at_least: 1 }]) }.unwrap();
        let buffer = resource.allocate(64).unwrap();
        assert!(!buffer.is_ready().unwrap(), "the stream has not passed the flag");
        let error = resource.allocate(64).unwrap_err();
        assert!(error.to_string().contains("cannot allocate 64 bytes: it returned NULL"), "{error}");
        let statistics = resource.statistics();
        assert_eq!((statistics.kind, statistics.in_use, statistics.allocations), (MemoryKind::Device, 64, 1));
        // SAFETY: only this store and the stream use the word.
        unsafe { flag.store(0, 1) };
        stream.synchronise().unwrap();
        assert!(buffer.is_ready().unwrap());
        drop(resource);
        assert_eq!((program.blocks_out.load(Relaxed), program.released.load(Relaxed)), (1, 0));
        drop(buffer);
        assert_eq!((program.blocks_out.load(Relaxed), program.released.load(Relaxed)), (0, 1));
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn what_waits_for_memory_is_woken_when_a_packet_gives_it_back() {
        let mut memory = [0u64; 8];
        let program = program(memory.as_mut_ptr().expose_provenance() as Address);
        let resource = of(&program, None, AllocatorOptions::defaults().stream).unwrap();
        let (buffer, woken) = (resource.allocate(64).unwrap(), Arc::<Woken>::default());
        resource.allocate(64).expect_err("the pool has one block");
        resource.watch(&Arc::clone(&woken).into());
        assert_eq!(woken.0.load(Relaxed), 0);
        drop(buffer);
        assert_eq!(woken.0.load(Relaxed), 1);
        assert_eq!(resource.allocate(64).unwrap().len(), 64);
    }

    #[test]
    fn memory_that_lies_elsewhere_is_an_error_and_given_back() {
        let world = sim::World::live(0, &sim::Options::default()).unwrap();
        let device = world.world().device(0).unwrap();
        let pinned = device.allocate_pinned(64).unwrap();
        let program = program(pinned.at(0));
        let resource = of(&program, Some(device), AllocatorOptions::defaults().stream).unwrap();
        let error = resource.allocate(64).unwrap_err();
        assert!(
            error.to_string().contains("it returned host memory instead of memory of device 0"),
            "{error}"
        );
        assert_eq!((program.blocks_out.load(Relaxed), resource.statistics().in_use), (0, 0));
    }

    #[test]
    fn memory_of_the_host_is_in_the_order_of_no_stream() {
        let world = sim::World::live(0, &sim::Options::default()).unwrap();
        let stream = Arc::new(world.world().device(0).unwrap().stream(Priority::Normal).unwrap());
        let program = program(64);
        let Err(refusal) = of(&program, None, Handle::new(stream).unwrap()) else {
            panic!("it was accepted")
        };
        assert!(format!("{refusal:?}").contains("in the order of no stream"), "{refusal:?}");
        assert_eq!(program.released.load(Relaxed), 0, "the program keeps what a call refuses");
    }
}
