//! Structs of XLA's foreign function interface: `xla/ffi/api/c_api.h`, which jaxlib installs (`jax.ffi.include_dir()`). Only what the handler
//! reads and writes. Versions 0.1 to 0.4 lay it out alike.

use std::ffi::{c_char, c_int, c_void};

/// The supported versions of the interface: one major number, and minor numbers.
pub(super) const MAJOR: c_int = 0;
pub(super) const MINORS: std::ops::RangeInclusive<c_int> = 1..=4;

/// `XLA_FFI_Extension_Metadata`: XLA asks for the version that a handler was written for.
pub(super) const METADATA: c_int = 1;
/// `XLA_FFI_ExecutionStage_EXECUTE`.
pub(super) const EXECUTE: c_int = 3;
/// `XLA_FFI_AttrType_SCALAR`.
pub(super) const SCALAR: c_int = 3;
/// `XLA_FFI_DataType_S64` and `_TOKEN`.
pub(super) const S64: c_int = 5;
pub(super) const TOKEN: c_int = 17;
/// `XLA_FFI_Error_Code_INTERNAL`.
pub(super) const INTERNAL: c_int = 13;

/// `XLA_FFI_Error` and `XLA_FFI_Future`, whose contents are XLA's.
#[repr(C)]
pub(super) struct XlaError(c_void);
#[repr(C)]
pub(super) struct XlaFuture(c_void);

#[repr(C)]
pub(super) struct Extension {
    pub(super) struct_size: usize,
    pub(super) kind: c_int,
    pub(super) next: *mut Extension,
}

#[repr(C)]
pub(super) struct Version {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

#[repr(C)]
pub(super) struct MetadataExtension {
    pub(super) base: Extension,
    pub(super) metadata: *mut Metadata,
}

#[repr(C)]
pub(super) struct Metadata {
    pub(super) struct_size: usize,
    pub(super) version: Version,
    pub(super) traits: u32,
}

#[repr(C)]
pub(super) struct ErrorCreate {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) message: *const c_char,
    pub(super) code: c_int,
}

/// The arguments of `XLA_FFI_Future_Create` and `XLA_FFI_Future_SetAvailable`.
#[repr(C)]
pub(super) struct FutureArguments {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) future: *mut XlaFuture,
}

#[repr(C)]
pub(super) struct FutureError {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) future: *mut XlaFuture,
    pub(super) error: *mut XlaError,
}

/// The arguments of `XLA_FFI_Stream_Get`.
#[repr(C)]
pub(super) struct StreamArguments {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) context: *mut c_void,
    pub(super) stream: *mut c_void,
}

/// The functions of XLA. The handler calls five of them.
#[repr(C)]
pub(super) struct Api {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) version: Version,
    pub(super) internal: *const c_void,
    pub(super) error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut XlaError,
    pub(super) of_errors: [*const c_void; 3],
    pub(super) stream_get: unsafe extern "C" fn(*mut StreamArguments) -> *mut XlaError,
    pub(super) others: [*const c_void; 8],
    pub(super) future_create: unsafe extern "C" fn(*mut FutureArguments) -> *mut XlaError,
    pub(super) future_set_available: unsafe extern "C" fn(*mut FutureArguments) -> *mut XlaError,
    pub(super) future_set_error: unsafe extern "C" fn(*mut FutureError) -> *mut XlaError,
}

/// `XLA_FFI_Args` and `XLA_FFI_Rets`.
#[repr(C)]
pub(super) struct Buffers {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) size: i64,
    pub(super) types: *const c_int,
    pub(super) buffers: *const *const Buffer,
}

#[repr(C)]
pub(super) struct Buffer {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) element: c_int,
    pub(super) data: *mut u8,
    pub(super) rank: i64,
    pub(super) extents: *const i64,
}

#[repr(C)]
pub(super) struct Attributes {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) size: i64,
    pub(super) types: *const c_int,
    pub(super) names: *const *const Span,
    pub(super) values: *const *const c_void,
}

#[repr(C)]
pub(super) struct Span {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct Scalar {
    pub(super) element: c_int,
    pub(super) value: *const c_void,
}

#[repr(C)]
pub(super) struct CallFrame {
    pub(super) struct_size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) api: *const Api,
    pub(super) context: *mut c_void,
    pub(super) stage: c_int,
    pub(super) arguments: Buffers,
    pub(super) results: Buffers,
    pub(super) attributes: Attributes,
    /// Set by a handler that returns before its work is done.
    pub(super) future: *mut XlaFuture,
}

/// Bytes of an element type; none for a type that has less than a byte, or is unknown.
pub(super) fn element_bytes(element: c_int) -> Option<usize> {
    Some(match element {
        // PRED, S8, U8 and the floats of 8 bits.
        1 | 2 | 6 | 19 | 20 | 23..=25 | 28 | 29 | 33 => 1,
        // S16, U16, F16, BF16.
        3 | 7 | 10 | 16 => 2,
        // S32, U32, F32.
        4 | 8 | 11 => 4,
        // S64, U64, F64, C64.
        5 | 9 | 12 | 15 => 8,
        // C128.
        18 => 16,
        _ => return None,
    })
}
