//! Exchanges that compiled functions of JAX call, through a handler of XLA's foreign function interface: for `halocline/jax.py`.
//!
//! A compiled function names the exchange by a number. The handler copies the arguments into the buffers that are bound, begins,
//! and looks for the end for a short time. Then a thread of the exchange waits in its place, and completes a future. So no thread
//! of the pool that XLA computes with waits for other ranks. With ranks that are threads of one process, such waits could occupy the
//! whole pool while a rank that the others wait for needs it.
//!
//! Of arrays in GPU memory the handler gives all of a call to the stream that XLA computes on, and returns ([`halocline::CopiedExchange`]).

mod abi;
mod exchange;
mod frame;

use crate::error;
use abi::{CallFrame, XlaError};
pub(crate) use exchange::PyXlaExchange;
use exchange::XlaExchange;
use frame::{Call, Request};
use pyo3::prelude::*;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The version of XLA's interface that the handler was registered for.
static VERSION: OnceLock<(c_int, c_int)> = OnceLock::new();

/// The address of the handler, to be registered with an XLA whose header says this version.
#[pyfunction(name = "_xla_handler")]
pub(crate) fn xla_handler(major: c_int, minor: c_int) -> PyResult<usize> {
    if major != abi::MAJOR || !abi::MINORS.contains(&minor) {
        let (known, first, last) = (abi::MAJOR, abi::MINORS.start(), abi::MINORS.end());
        return Err(error::type_error(format!(
            "jaxlib has version {major}.{minor} of XLA's foreign function interface; halocline.jax supports {known}.{first} to \
             {known}.{last}: install another JAX"
        )));
    }
    VERSION.get_or_init(|| (major, minor));
    Ok(handle as *const () as usize)
}

/// The handler. Returns null, or an error, which XLA destroys.
unsafe extern "C" fn handle(frame: *mut CallFrame) -> *mut XlaError {
    // SAFETY: XLA calls the handler with a frame of its own, which nothing else uses during the call.
    let request = unsafe { Request::of(&*frame) };
    let call = match request {
        Request::Version(version) => {
            // XLA compares it with its own, and refuses others.
            (version.major, version.minor) =
                VERSION.get().copied().unwrap_or((abi::MAJOR, *abi::MINORS.end()));
            return null_mut();
        }
        Request::Nothing => return null_mut(),
        Request::Execute(call) => call,
    };
    // A panic must not unwind into XLA.
    let outcome = catch_unwind(AssertUnwindSafe(|| execute(&call)));
    match outcome
        .unwrap_or_else(|_| Err("halocline panicked; its message is on the standard error".to_owned()))
    {
        Ok(None) => null_mut(),
        Ok(Some(future)) => {
            // SAFETY: the frame is XLA's, which nothing else uses during the call. `future` is its last member, which all supported
            // versions have.
            unsafe { (*frame).future = future };
            null_mut()
        }
        Err(text) => call.api.error(&text),
    }
}

/// Executes a call, or returns the future of its end.
fn execute(call: &Call<'_>) -> Result<Option<*mut abi::XlaFuture>, String> {
    call.check_sizes()?;
    let exchange = XlaExchange::find(call.number("exchange")?)?;
    exchange.execute(call)
}
