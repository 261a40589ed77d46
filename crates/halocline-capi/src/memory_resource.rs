//! Where the payloads of received packets lie.

use crate::call::{call, call_for};
use crate::comm::Comm;
use crate::object::Handle;
use crate::options::{self, Options, OutStruct};
use crate::pointer::OutPtr;
use crate::status::{Refusal, Status};
use halocline::{Communicator, DeviceMemory, HostMemory, Limited, MemoryResource, PinnedMemory};
use std::sync::Arc;
use std::time::Duration;

/// An allocator of received payloads.
pub(crate) type Resource = Arc<dyn MemoryResource>;

/// The resource of a handle; memory of the host for the null handle.
pub(crate) fn resource(handle: Handle<Resource>, comm: &Communicator) -> Result<Resource, Refusal> {
    match handle.number() {
        0 => Ok(Arc::new(HostMemory::of(comm))),
        _ => Ok(Arc::clone(&*handle.pin()?)),
    }
}

/// Memory of the host that as many ranks as possible access directly.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_host(comm: Handle<Comm>, made: OutPtr<'_, Handle<Resource>>) -> Status {
    call_for(made, "resource", || Handle::new(Arc::new(HostMemory::of(&comm.pin()?.comm))))
}

/// Memory of the host that a GPU accesses directly.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_pinned(
    comm: Handle<Comm>,
    device: i32,
    made: OutPtr<'_, Handle<Resource>>,
) -> Status {
    call_for(made, "resource", || {
        Handle::new(Arc::new(PinnedMemory::of(&comm.pin()?.comm, &options::cuda_device(device)?)))
    })
}

/// Memory of a GPU.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_cuda(device: i32, made: OutPtr<'_, Handle<Resource>>) -> Status {
    call_for(made, "resource", || Handle::new(Arc::new(DeviceMemory::new(&options::cuda_device(device)?))))
}

/// A limit on another resource.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_limited(
    inner: Handle<Resource>,
    bytes: usize,
    patience: f64,
    spill: Handle<Resource>,
    made: OutPtr<'_, Handle<Resource>>,
) -> Status {
    call_for(made, "resource", || {
        let inner = Arc::clone(&*inner.pin()?);
        if isize::try_from(bytes).is_err() {
            return Err(Refusal::argument(format!(
                "bytes is {bytes}, more than the address space has; give the most bytes that packets may use at once"
            )));
        }
        let limited = Limited::new(inner, bytes);
        let patience = Duration::try_from_secs_f64(patience).map_err(|_| {
            Refusal::argument(format!("patience is {patience:?} s; give seconds from 0 to below 1e19"))
        })?;
        let limited = limited.with_patience(patience);
        Handle::new(Arc::new(match spill.number() {
            0 => limited,
            _ => limited.spilling(Arc::clone(&*spill.pin()?)),
        }))
    })
}

/// Frees the idle memory of a resource.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_trim(of: Handle<Resource>) -> Status {
    call(|| {
        of.pin()?.trim();
        Ok(())
    })
}

/// `halocline_resource_statistics`.
#[repr(C)]
pub(crate) struct Statistics {
    pub(crate) size: usize,
    pub(crate) in_use: usize,
    pub(crate) peak: usize,
    pub(crate) allocations: u64,
    pub(crate) spilled: u64,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for Statistics {
    const FIRST_SIZE: usize = 40;
    const NAME: &'static str = "halocline_resource_statistics";
}

/// Statistics of the allocations of a resource.
#[unsafe(no_mangle)]
extern "C" fn halocline_resource_describe(
    of: Handle<Resource>,
    statistics: OutStruct<'_, Statistics>,
) -> Status {
    let describe = || {
        let found = of.pin()?.statistics();
        Ok(Statistics {
            in_use: found.in_use,
            peak: found.peak,
            allocations: found.allocations,
            spilled: found.spilled,
            ..Statistics::defaults()
        })
    };
    call(|| options::store(statistics, describe))
}
