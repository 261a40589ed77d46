//! One call of the handler, as XLA describes it.

use super::abi::{
    self, Api, Buffer, Buffers, CallFrame, ErrorCreate, FutureArguments, FutureError, MetadataExtension,
    Scalar, Span, StreamArguments, Version, XlaError, XlaFuture,
};
use halocline::device::RawStream;
use std::ffi::{CString, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;

/// What XLA wants of the handler.
pub(super) enum Request<'a> {
    /// To say for which version of the interface it was written. XLA asks when the handler is registered.
    Version(&'a mut Version),
    Execute(Call<'a>),
    /// Another stage of an execution, in which the handler has nothing to do.
    Nothing,
}

impl<'a> Request<'a> {
    /// # Safety
    ///
    /// `frame` is what XLA passes to a handler.
    pub(super) unsafe fn of(frame: &'a CallFrame) -> Self {
        if let Some(asked) = metadata(frame) {
            // SAFETY: XLA keeps the extension and its metadata valid for the call, and no one else uses them.
            return Self::Version(unsafe { &mut (*(*asked).metadata).version });
        }
        match frame.stage == abi::EXECUTE {
            true => Self::Execute(Call { frame, api: XlaApi(frame.api) }),
            false => Self::Nothing,
        }
    }
}

/// The extension by which XLA asks for the version.
fn metadata(frame: &CallFrame) -> Option<*mut MetadataExtension> {
    let mut next = frame.extensions;
    while !next.is_null() {
        // SAFETY: the list of extensions is valid during the call.
        let (kind, following) = unsafe { ((*next).kind, (*next).next) };
        if kind == abi::METADATA {
            return Some(next.cast());
        }
        next = following;
    }
    None
}

/// Memory of an argument or of a result. Valid until the handler returns, or until its future is complete.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
}

/// An execution, which XLA waits for.
pub(super) struct Call<'a> {
    frame: &'a CallFrame,
    pub(super) api: XlaApi,
}

impl Call<'_> {
    /// Refuses structs that are smaller than those of this interface.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        let (frame, api) = (self.frame.struct_size, self.api.functions().struct_size);
        match frame >= offset_of!(CallFrame, future) && api >= size_of::<Api>() {
            true => Ok(()),
            false => Err(format!(
                "XLA calls a handler with structs of {frame} and {api} bytes, which are too small"
            )),
        }
    }

    pub(super) fn arguments(&self) -> Result<Vec<Memory>, String> {
        memories(&self.frame.arguments)
    }

    pub(super) fn results(&self) -> Result<Vec<Memory>, String> {
        memories(&self.frame.results)
    }

    /// The stream of a call on a GPU.
    pub(super) fn stream(&self) -> Result<RawStream, String> {
        let mut arguments = StreamArguments {
            struct_size: size_of::<StreamArguments>(),
            extensions: null_mut(),
            context: self.frame.context,
            stream: null_mut(),
        };
        // SAFETY: the arguments are valid during the call, and the context is that of this call.
        let error = unsafe { (self.api.functions().stream_get)(&raw mut arguments) };
        match error.is_null() {
            true => Ok(RawStream(arguments.stream.addr())),
            false => Err("XLA names no stream for a call on a GPU".to_owned()),
        }
    }

    /// A number among the attributes.
    pub(super) fn number(&self, name: &str) -> Result<i64, String> {
        let scalar: *const Scalar = self.attribute(name, abi::SCALAR)?.cast();
        // SAFETY: an attribute of this kind points to a scalar, valid during the call, whose value has the type that it says.
        unsafe {
            match (*scalar).element {
                abi::S64 => Ok((*scalar).value.cast::<i64>().read_unaligned()),
                element => Err(format!("attribute {name} has element type {element}, not s64")),
            }
        }
    }

    fn attribute(&self, name: &str, kind: c_int) -> Result<*const c_void, String> {
        let attributes = &self.frame.attributes;
        for at in 0..usize::try_from(attributes.size).unwrap_or(0) {
            // SAFETY: the three lists have `size` entries, valid during the call.
            let (found, of_kind, value) = unsafe {
                (shown(&**attributes.names.add(at)), *attributes.types.add(at), *attributes.values.add(at))
            };
            if found == name && of_kind == kind {
                return Ok(value);
            }
        }
        Err(format!("the call has no attribute {name} of kind {kind}"))
    }
}

/// # Safety
///
/// The span points to `len` bytes.
unsafe fn shown(span: &Span) -> String {
    match span.len {
        0 => String::new(),
        // SAFETY: by the condition of this function.
        len => String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(span.start, len) }).into_owned(),
    }
}

/// The memory of all buffers but tokens, which have none.
fn memories(list: &Buffers) -> Result<Vec<Memory>, String> {
    let count = usize::try_from(list.size).unwrap_or(0);
    // SAFETY: the list has `size` entries, valid during the call; all are buffers, the only kind that there is.
    let buffers = (0..count).map(|at| unsafe { &**list.buffers.add(at) });
    buffers.filter(|buffer| buffer.element != abi::TOKEN).map(memory).collect()
}

fn memory(buffer: &Buffer) -> Result<Memory, String> {
    let axes = usize::try_from(buffer.rank).unwrap_or(0);
    // SAFETY: the list has `rank` extents, valid during the call.
    let extents = (0..axes).map(|axis| unsafe { *buffer.extents.add(axis) });
    let count = extents.map(|extent| usize::try_from(extent).unwrap_or(0)).product::<usize>();
    match abi::element_bytes(buffer.element) {
        Some(bytes) => Ok(Memory { start: buffer.data, bytes: count * bytes }),
        None => Err(format!("a buffer has element type {} of XLA, which is not supported", buffer.element)),
    }
}

/// XLA's functions.
#[derive(Clone, Copy)]
pub(super) struct XlaApi(*const Api);

impl XlaApi {
    fn functions(&self) -> &Api {
        // SAFETY: XLA's functions are valid as long as XLA is loaded, and jaxlib is never unloaded.
        unsafe { &*self.0 }
    }

    /// Makes an error. XLA destroys it.
    pub(super) fn error(&self, text: &str) -> *mut XlaError {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let mut arguments = ErrorCreate {
            struct_size: size_of::<ErrorCreate>(),
            extensions: null_mut(),
            message: text.as_ptr(),
            code: abi::INTERNAL,
        };
        // SAFETY: the arguments are valid during the call, which copies the text.
        unsafe { (self.functions().error_create)(&raw mut arguments) }
    }

    pub(super) fn future(&self) -> Result<Future, String> {
        let mut arguments = FutureArguments {
            struct_size: offset_of!(FutureArguments, future),
            extensions: null_mut(),
            future: null_mut(),
        };
        // SAFETY: the arguments are valid during the call.
        let error = unsafe { (self.functions().future_create)(&raw mut arguments) };
        match error.is_null() && !arguments.future.is_null() {
            true => Ok(Future { api: *self, future: arguments.future }),
            false => Err("XLA made no future for an exchange".to_owned()),
        }
    }
}

/// The end of a call whose handler has returned.
pub(super) struct Future {
    api: XlaApi,
    pub(super) future: *mut XlaFuture,
}

// SAFETY: any thread may complete a future, and call XLA's functions.
unsafe impl Send for Future {}

impl Future {
    /// Completes the call. From then on XLA owns the memory of its buffers.
    pub(super) fn complete(self, outcome: Result<(), String>) {
        let functions = self.api.functions();
        let error = match outcome {
            Ok(()) => {
                let mut arguments = FutureArguments {
                    struct_size: size_of::<FutureArguments>(),
                    extensions: null_mut(),
                    future: self.future,
                };
                // SAFETY: XLA waits for this future, which is completed once: `self` is consumed.
                unsafe { (functions.future_set_available)(&raw mut arguments) }
            }
            Err(text) => {
                let mut arguments = FutureError {
                    struct_size: size_of::<FutureError>(),
                    extensions: null_mut(),
                    future: self.future,
                    error: self.api.error(&text),
                };
                // SAFETY: XLA waits for this future, which is completed once: `self` is consumed. The error passes to XLA, which
                // destroys it.
                unsafe { (functions.future_set_error)(&raw mut arguments) }
            }
        };
        debug_assert!(error.is_null(), "XLA refuses to complete its own future");
    }
}
