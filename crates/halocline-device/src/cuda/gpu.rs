//! An open GPU: its attributes, and the meaning of results.

use super::api::{Api, api, code};
use super::context::{Current, Primary, refused};
use super::lists::ListKernels;
use super::module::{Function, Module};
use crate::deferred_free;
use crate::driver::{Address, Connection, Driver, MemorySpace, Priority, RawEvent, RawStream};
use crate::error::DeviceError;
use crate::remote::DeviceId;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`.
const NATIVE_ATOMICS: c_int = 3;

/// A GPU, by its primary context, which the CUDA runtime and the libraries above it use; their streams and
/// memory can be used here. Foreign state is never destroyed or changed, not even the current context of a
/// thread.
pub struct CudaDriver {
    pub(super) api: &'static Api,
    pub(super) ordinal: u32,
    pub(super) device: c_int,
    pub(super) multiprocessors: u32,
    pub(super) waiting_blocks: u32,
    pub(super) highest_priority: c_int,
    pub(super) failure: OnceLock<DeviceError>,
    /// Devices to which this one has peer access, kept retained.
    peers: Mutex<Vec<Arc<Primary>>>,
    /// The kernels of copy tables once loaded; a failure is retried.
    kernels: Mutex<Option<(CopyKernels, Module)>>,
    /// The same for tables with bases.
    based: Mutex<Option<Loaded>>,
    /// Those that combine, by the types of elements that they know ([`type_bit`](super::table::gather::type_bit)).
    combining: Mutex<Vec<(u32, Loaded)>>,
    /// Those of index lists once loaded.
    pub(super) lists: Mutex<Option<ListKernels>>,
    pub(super) primary: Arc<Primary>,
}

/// The kernels of copy tables.
#[derive(Clone, Copy)]
pub(super) struct CopyKernels {
    /// For an epoch that the launch gives, and for one that a counter gives.
    pub(super) plain: [Function; 2],
    /// The same with the LL protocol.
    pub(super) ll: [Function; 2],
}

/// Kernels for an epoch that the launch gives and for one that a counter gives, with their module.
type Loaded = ([Function; 2], Module);

/// Pairs of devices with peer access enabled.
pub(super) static ENABLED: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());

/// The device of each event of the library; used after a call has refused an event.
static EVENTS: Mutex<Option<HashMap<usize, u32>>> = Mutex::new(None);

pub(super) fn events() -> MutexGuard<'static, Option<HashMap<usize, u32>>> {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attributes of devices.
const MULTIPROCESSOR_COUNT: c_int = 16;
const KERNEL_TIME_LIMIT: c_int = 17;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const RDMA_WRITES_ORDERING: c_int = 118;

/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`.
const ORDERED_FOR_OWNER: c_int = 100;

impl CudaDriver {
    /// [`Driver::connection`].
    pub(super) fn connection_to(&self, other: &DeviceId) -> Option<Connection> {
        if self.uuid() == Some(*other) {
            return Some(Connection::SameDevice);
        }
        let mut count = 0;
        ((self.api.device_count)(&mut count) == code::SUCCESS).then_some(())?;
        let peer = (0..count.max(0) as u32).find(|&peer| self.id_of(peer).is_ok_and(|id| id == *other))?;
        let (mut device, mut atomics) = (0, 0);
        let result = match (self.api.device)(&mut device, peer as c_int) {
            code::SUCCESS => (self.api.peer_attribute)(&mut atomics, NATIVE_ATOMICS, self.device, device),
            failed => failed,
        };
        (result == code::SUCCESS).then_some(if atomics == 0 { Connection::Pcie } else { Connection::NvLink })
    }

    /// The open GPU, which all of the process share, or opens it. That blocks for a second or so, while CUDA makes the context.
    pub fn open(ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        static OPEN: Mutex<BTreeMap<u32, Weak<CudaDriver>>> = Mutex::new(BTreeMap::new());
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let opened = Arc::new(Self::new(ordinal)?);
        all.insert(ordinal, Arc::downgrade(&opened));
        Ok(opened)
    }

    fn new(ordinal: u32) -> Result<Self, DeviceError> {
        let api = api()?;
        let primary = Primary::retain(api, ordinal)?;
        let device = primary.device;
        let mut this = Self {
            api,
            ordinal,
            device,
            multiprocessors: 0,
            waiting_blocks: 0,
            highest_priority: 0,
            failure: OnceLock::new(),
            peers: Mutex::default(),
            kernels: Mutex::default(),
            based: Mutex::default(),
            combining: Mutex::default(),
            lists: Mutex::default(),
            primary,
        };
        this.multiprocessors = this.attribute(MULTIPROCESSOR_COUNT)?.max(1) as u32;
        // A fifth stays free, for kernels that need a whole multiprocessor.
        let is_limited = this.attribute(KERNEL_TIME_LIMIT)? != 0;
        this.waiting_blocks = if is_limited { 0 } else { this.multiprocessors * 4 / 5 };
        let (mut least, mut greatest) = (0, 0);
        let current = this.enter()?;
        this.check("cuCtxGetStreamPriorityRange", (api.priorities)(&mut least, &mut greatest))?;
        drop(current);
        this.highest_priority = greatest;
        Ok(this)
    }

    /// Compute capability as one number: 90 for 9.0.
    pub fn capability(&self) -> Result<u32, DeviceError> {
        Ok((10 * self.attribute(CAPABILITY_MAJOR)? + self.attribute(CAPABILITY_MINOR)?) as u32)
    }

    /// [`Driver::sees_writes_of_networks`]. Hopper and later always order the writes (as in NCCL); older GPUs report it.
    pub(super) fn orders_writes_of_networks(&self) -> bool {
        self.attribute(RDMA_WRITES_ORDERING).is_ok_and(|order| order >= ORDERED_FOR_OWNER)
            || self.capability().is_ok_and(|capability| capability >= 90)
    }

    /// The newest CUDA that the driver supports: major, minor.
    pub fn version(&self) -> Result<(i32, i32), DeviceError> {
        let mut version = 0;
        self.check("cuDriverGetVersion", (self.api.driver_version)(&mut version))?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Number of its multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(super) fn primary(&self) -> &Arc<Primary> {
        &self.primary
    }

    pub(super) fn attribute(&self, attribute: c_int) -> Result<c_int, DeviceError> {
        let mut value = 0;
        let result = (self.api.device_attribute)(&mut value, attribute, self.device);
        self.check("cuDeviceGetAttribute", result)?;
        Ok(value)
    }

    /// Begins a call: fails if the device has failed; the context is current while the result exists.
    pub(super) fn enter(&self) -> Result<Current, DeviceError> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => self.primary.make_current().map_err(|result| self.error("cuCtxPushCurrent", result)),
        }
    }

    /// As [`CudaDriver::enter`], unaffected by captures of other threads
    /// ([`Primary::make_current_beside_captures`]). For all calls except those that issue work to a stream
    /// or look something up.
    pub(super) fn enter_beside_captures(&self) -> Result<Current, DeviceError> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => {
                let current = self.primary.make_current_beside_captures();
                current.map_err(|result| self.error("cuCtxPushCurrent", result))
            }
        }
    }

    /// Converts a result. A fault marks the device as failed.
    pub(super) fn check(&self, call: &'static str, result: c_int) -> Result<(), DeviceError> {
        if result == code::SUCCESS { Ok(()) } else { Err(self.error(call, result)) }
    }

    /// Converts a result other than success.
    pub(super) fn error(&self, call: &'static str, result: c_int) -> DeviceError {
        match code::is_fatal(result) {
            true => self.fail(call, result),
            false => refused(self.api, self.ordinal, call, result),
        }
    }

    fn fail(&self, call: &'static str, result: c_int) -> DeviceError {
        let what = format!("{call}: {}", self.api.text(result));
        self.failure.get_or_init(|| DeviceError::Lost { device: self.ordinal, what }).clone()
    }

    pub(super) fn check_allocation(
        &self,
        call: &'static str,
        result: c_int,
        space: MemorySpace,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        match result {
            code::OUT_OF_MEMORY => Err(DeviceError::OutOfMemory { space, bytes }),
            other => self.check(call, other),
        }
    }

    /// Makes a call without a result: a failure becomes the device's failure, unless it has failed already
    /// or the process is exiting.
    pub(super) fn last(&self, call: &'static str, make: impl FnOnce() -> c_int) {
        let result = match self.primary.make_current_beside_captures() {
            Ok(_current) => make(),
            Err(_) => return,
        };
        if result != code::SUCCESS && result != code::DEINITIALIZED {
            self.fail(call, result);
        }
    }

    /// Converts the result of a call with an event, which may belong to another device.
    pub(super) fn check_event(
        &self,
        call: &'static str,
        result: c_int,
        event: RawEvent,
    ) -> Result<(), DeviceError> {
        if matches!(result, code::INVALID_HANDLE | code::INVALID_VALUE) {
            let known = events().as_ref().and_then(|events| events.get(&event.0).copied());
            return match known {
                None => Err(DeviceError::NoEvent { event: event.0 }),
                Some(actual) if actual != self.ordinal => {
                    let (handle, device) = (event.0, self.ordinal);
                    Err(DeviceError::OtherDevice { what: "event", handle, actual, device })
                }
                Some(_) => self.check(call, result),
            };
        }
        self.check(call, result)
    }

    /// Writes device memory and waits until it is written. (`cuMemcpyHtoD` stages pageable memory and may
    /// return earlier, so non-blocking streams could run before the bytes arrive.)
    ///
    /// # Safety
    /// At `base` is device memory of at least the length of `bytes`, and nothing else uses it meanwhile.
    pub(super) unsafe fn fill(&self, base: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        let source = bytes.as_ptr().expose_provenance() as Address;
        let stream = self.create_stream(Priority::Highest)?;
        // SAFETY: the caller promises that there are `bytes.len()` bytes at `base` that nothing else uses. `bytes`
        // lives until the stream has copied them, for which `synchronise` waits. The stream was created above, and its
        // handle is nowhere else.
        unsafe {
            let copied = (self.api.copy)(base, source, bytes.len(), stream.0);
            let done = self.check("cuMemcpyAsync", copied).and_then(|()| self.synchronise(stream));
            self.destroy_stream(stream);
            done
        }
    }

    pub(super) fn peers(&self) -> MutexGuard<'_, Vec<Arc<Primary>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_peer(&self, ordinal: u32) -> bool {
        self.peers().iter().any(|peer| peer.ordinal == ordinal)
    }

    /// Whether this device has peer access to another, also if another part of the process enabled it.
    pub(super) fn reaches(&self, peer: u32) -> bool {
        let enabled =
            || ENABLED.lock().unwrap_or_else(PoisonError::into_inner).contains(&(self.ordinal, peer));
        peer == self.ordinal || self.has_peer(peer) || enabled() && self.enable_peer(peer).is_ok()
    }

    /// The kernels of copy tables.
    pub(super) fn kernels(&self) -> Result<CopyKernels, DeviceError> {
        let mut loaded = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((kernels, _)) = *loaded {
            return Ok(kernels);
        }
        let module = self.compile_copies(&[])?;
        let kernels = CopyKernels {
            plain: [module.function("halocline_copy")?, module.function("halocline_copy_counted")?],
            ll: [module.function("halocline_copy_ll")?, module.function("halocline_copy_ll_counted")?],
        };
        *loaded = Some((kernels, module));
        Ok(kernels)
    }

    /// The kernels of tables with bases.
    pub(super) fn based_kernels(&self) -> Result<[Function; 2], DeviceError> {
        let mut loaded = self.based.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((kernels, _)) = *loaded {
            return Ok(kernels);
        }
        let names = ["halocline_copy_based", "halocline_copy_based_counted"];
        let (kernels, module) = self.load_copies("-DHALOCLINE_BASED", names)?;
        *loaded = Some((kernels, module));
        Ok(kernels)
    }

    /// The kernels of tables that combine elements of such types. For all types at once they would take half a minute to compile.
    pub(super) fn combining_kernels(&self, types: u32) -> Result<[Function; 2], DeviceError> {
        let mut loaded = self.combining.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, (kernels, _))) = loaded.iter().find(|(known, _)| known & types == types) {
            return Ok(*kernels);
        }
        let option = format!("-DHALOCLINE_COMBINES={types:#x}");
        let (kernels, module) =
            self.load_copies(&option, ["halocline_combine", "halocline_combine_counted"])?;
        loaded.push((types, (kernels, module)));
        Ok(kernels)
    }

    /// Kernels of a part of the source that is compiled on its own, since most programs do not need it.
    fn load_copies(&self, option: &str, [given, counted]: [&str; 2]) -> Result<Loaded, DeviceError> {
        let module = self.compile_copies(&[option])?;
        Ok(([module.function(given)?, module.function(counted)?], module))
    }

    fn compile_copies(&self, options: &[&str]) -> Result<Module, DeviceError> {
        self.compile("cuda/copy", super::COPY_KERNELS, options)
    }

    pub(super) fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<Module, DeviceError> {
        let compiler = super::Compiler::load_for(self.version()?)?;
        let compiled = compiler.compile(name, source, options, self.capability()?)?;
        Module::load(self, &compiled)
    }

    /// Names the device of a foreign context.
    pub(super) fn stranger(&self, stream: RawStream, context: usize) -> DeviceError {
        let (mut device, mut other) = (0, 0);
        // SAFETY: `check_stream` has just got `context` from CUDA for a stream whose life its caller promises, so that
        // the context lives, too. It is popped below.
        let pushed = unsafe { (self.api.push)(context) };
        if pushed != code::SUCCESS {
            return DeviceError::NoStream { stream: stream.0 };
        }
        let found = ((self.api.current_device)(&mut device), (self.api.pop)(&mut other));
        match (found, u32::try_from(device)) {
            ((code::SUCCESS, _), Ok(actual)) if actual != self.ordinal => {
                let (handle, device) = (stream.0, self.ordinal);
                DeviceError::OtherDevice { what: "stream", handle, actual, device }
            }
            ((code::SUCCESS, _), Ok(device)) => DeviceError::OtherContext { stream: stream.0, device },
            _ => DeviceError::NoStream { stream: stream.0 },
        }
    }
}

/// Drops a value of [`Driver::keep_with_graph`], but not on CUDA's thread, which must not call CUDA.
pub(super) extern "C" fn drop_kept(kept: *mut c_void) {
    // SAFETY: `keep_with_graph` has made it from such a box, and CUDA gives it here once.
    deferred_free::drop_elsewhere(*unsafe { Box::from_raw(kept.cast::<Arc<dyn Any + Send + Sync>>()) });
}
