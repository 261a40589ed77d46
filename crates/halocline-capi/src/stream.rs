//! Streams of GPUs.

use crate::call::call_for;
use crate::object::Handle;
use crate::pointer::Out;
use crate::status::{Refusal, Status};
use halocline::Stream;
use halocline::device::{RawStream, cuda};
use std::ffi::c_void;
use std::sync::Arc;

/// A CUDA stream of the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_stream_cuda(
    device: i32,
    cuda_stream: *mut c_void,
    stream: Out<'_, Handle<Arc<Stream>>>,
) -> Status {
    call_for(stream, "stream", || {
        let ordinal = u32::try_from(device).map_err(|_| {
            Refusal::argument(format!("device is {device}; give the number of a GPU, from 0"))
        })?;
        let device = cuda::device(ordinal)?;
        // SAFETY: the header asks for 0 or a stream that is destroyed after this handle and all uses of it.
        let borrowed = unsafe { device.borrow_stream(RawStream(cuda_stream.addr())) }?;
        Handle::new(Arc::new(borrowed))
    })
}
