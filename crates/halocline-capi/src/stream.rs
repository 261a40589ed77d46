//! Streams of GPUs.

use crate::call::call_for;
use crate::object::Handle;
use crate::options::cuda_device;
use crate::pointer::OutPtr;
use crate::status::Status;
use halocline::Stream;
use halocline::device::RawStream;
use std::ffi::c_void;
use std::sync::Arc;

/// A CUDA stream of the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_stream_cuda(
    device: i32,
    cuda_stream: *mut c_void,
    stream: OutPtr<'_, Handle<Arc<Stream>>>,
) -> Status {
    call_for(stream, "stream", || {
        let device = cuda_device(device)?;
        // SAFETY: the header asks for 0 or a stream that is destroyed after this handle and all uses of it.
        let borrowed = unsafe { device.borrow_stream(RawStream(cuda_stream.addr())) }?;
        Handle::new(Arc::new(borrowed))
    })
}
