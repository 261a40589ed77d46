//! Fields: memory with a layout.

use crate::call::{call, call_for};
use crate::comm::Comm;
use crate::keep_alive::{KeepAlive, Release};
use crate::layout::{LayoutOptions, layout};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr};
use crate::pointer::{Capacity, OutArray, OutPtr, array, array_mut, store};
use crate::status::{Refusal, Status};
use halocline::device::cuda;
use halocline::{Field, Layout, Stream};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// `halocline_memory`.
#[repr(C)]
pub(crate) struct MemoryOptions {
    pub(crate) size: usize,
    pub(crate) base: *mut c_void,
    pub(crate) release: Release,
    pub(crate) context: *mut c_void,
    pub(crate) space: i32,
    pub(crate) device: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers, raw pointers and a function that may be null. The header asks
// for a function of that type or null.
unsafe impl Options for MemoryOptions {
    const FIRST_SIZE: usize = 40;
    const NAME: &'static str = "halocline_memory";
}

/// A field in memory of the program.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_create(
    memory: OptionsPtr<'_, MemoryOptions>,
    shape: OptionsPtr<'_, LayoutOptions>,
    field: OutPtr<'_, Handle<Field>>,
) -> Status {
    call_for(field, "field", || {
        let (memory, layout) = (memory.required()?, layout(&shape)?);
        // SAFETY: the header asks for a function that any thread may call once with the context, after this call has succeeded.
        let keep = Arc::new(unsafe { KeepAlive::new(memory.release, memory.context) });
        // SAFETY: the header asks for memory that stays valid until the function is called, or, without one, as long as
        // the library may use it, and has the rules of access.
        let handle = Handle::new(unsafe { in_memory(&memory, layout, Arc::clone(&keep) as Arc<_>) }?)?;
        keep.arm();
        Ok(handle)
    })
}

/// # Safety
/// The memory that the layout spans stays valid while `keep` is held, and is accessed by the rules of [`Field::from_raw`] and
/// [`Field::from_device`].
unsafe fn in_memory(
    memory: &MemoryOptions,
    layout: Layout,
    keep: Arc<dyn Any + Send + Sync>,
) -> Result<Field, Refusal> {
    if let Some(ordinal) = options::gpu_of_memory(memory.space, memory.device, " of the memory")? {
        let device = cuda::device(ordinal)?;
        // SAFETY: the caller keeps the contract, which is that of `from_device`.
        return Ok(unsafe { Field::from_device(&device, memory.base.addr() as u64, layout, keep) }?);
    }
    let base = match NonNull::new(memory.base.cast::<u8>()) {
        Some(base) => base,
        None if layout.is_empty() => NonNull::dangling(),
        None => return Err(crate::pointer::null("base of the memory")),
    };
    let span = layout.span();
    let (low, high) =
        (base.addr().get().checked_add_signed(span.start), base.addr().get().checked_add_signed(span.end));
    if low.is_none_or(|low| low == 0) || high.is_none() {
        return Err(Refusal::argument(format!(
            "a layout of {} bytes around {:#x} leaves the address space; base is the address of element (0, 0, ...)",
            span.len(),
            base.addr()
        )));
    }
    // SAFETY: the caller keeps the contract, which is that of `from_raw`.
    Ok(unsafe { Field::from_raw(base, layout, keep) })
}

/// A field in new memory that as many peers as possible can access.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_allocate(
    comm: Handle<Comm>,
    shape: OptionsPtr<'_, LayoutOptions>,
    field: OutPtr<'_, Handle<Field>>,
) -> Status {
    call_for(field, "field", || {
        let layout = layout(&shape)?;
        Handle::new(Field::allocate(&comm.pin()?.comm, layout)?)
    })
}

/// A field in new memory of a GPU.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_allocate_cuda(
    device: i32,
    shape: OptionsPtr<'_, LayoutOptions>,
    field: OutPtr<'_, Handle<Field>>,
) -> Status {
    call_for(field, "field", || {
        let layout = layout(&shape)?;
        Handle::new(Field::allocate_on(&options::cuda_device(device)?, layout)?)
    })
}

/// Another field in the memory of a field.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_view(
    field: Handle<Field>,
    base: *mut c_void,
    shape: OptionsPtr<'_, LayoutOptions>,
    view: OutPtr<'_, Handle<Field>>,
) -> Status {
    call_for(view, "view", || {
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| crate::pointer::null("base of the view"))?;
        let layout = layout(&shape)?;
        Handle::new(field.pin()?.view(base, layout)?)
    })
}

/// The same field, of a domain.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_on_domain(
    field: Handle<Field>,
    number: u64,
    assigned: OutPtr<'_, Handle<Field>>,
) -> Status {
    call_for(assigned, "assigned", || Handle::new(field.pin()?.on_domain(number)))
}

/// The address of element (0, 0, ...).
#[unsafe(no_mangle)]
extern "C" fn halocline_field_base(field: Handle<Field>, base: OutPtr<'_, *mut c_void>) -> Status {
    call_for(base, "base", || Ok(field.pin()?.base().as_ptr().cast()))
}

/// Copies bytes of the host into memory of a GPU.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_field_write(
    field: Handle<Field>,
    stream: Handle<Arc<Stream>>,
    source: *const c_void,
    bytes: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or an array of that many bytes, which nothing writes until the call ends.
        let source = unsafe { array(source.cast::<u8>(), bytes, "source") }?;
        let stream = stream.pin()?;
        Ok(field.pin()?.write_bytes(&stream, source)?)
    })
}

/// Copies memory of a GPU to the host.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_field_read(
    field: Handle<Field>,
    stream: Handle<Arc<Stream>>,
    target: *mut c_void,
    bytes: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or an array of that many bytes, which nothing else accesses until the call ends.
        let target = unsafe { array_mut(target.cast::<u8>(), bytes, "target") }?;
        let stream = stream.pin()?;
        Ok(field.pin()?.read_into(&stream, target)?)
    })
}

/// The layout of a field.
#[unsafe(no_mangle)]
extern "C" fn halocline_field_describe(
    field: Handle<Field>,
    extents: OutArray<'_, usize>,
    strides: OutArray<'_, isize>,
    capacity: Capacity,
    dimensions: OutPtr<'_, usize>,
    element: OutPtr<'_, i32>,
) -> Status {
    call(|| {
        let field = field.pin()?;
        let layout = field.layout();
        let out = element.optional("element")?;
        store(layout.extents(), (extents, capacity), dimensions, "extents")?;
        store(layout.strides(), (strides, capacity), dimensions, "strides")?;
        out.set(i32::from(layout.element().code()));
        Ok(())
    })
}
