//! The versions of the interface and of the library.

use std::ffi::{CStr, c_char};

/// `HALOCLINE_ABI_VERSION`. From the first release on it grows when a symbol or a field is added, and the symbols' version changes when one
/// changes or goes.
const ABI_VERSION: u32 = 1;

/// The version of the interface that the library has.
#[unsafe(no_mangle)]
extern "C" fn halocline_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library: "0.1.0".
#[unsafe(no_mangle)]
extern "C" fn halocline_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
