//! Option structs of C, which begin with their size: programs and libraries of different versions understand each other.

use crate::pointer::checked;
use crate::status::Refusal;
use std::mem::size_of;

/// An option struct.
///
/// # Safety
/// `repr(C)`, begins with a `size_t` that is its size, any bytes are a value of it (so zeros are one, too), and its later versions only
/// append fields.
pub(crate) unsafe trait Options: Sized {
    /// Its size in the first version of the interface.
    const FIRST_SIZE: usize;
    /// Its name in the header.
    const NAME: &'static str;

    /// The values of fields that the program does not have, or of all: 0, null, or no function.
    fn defaults() -> Self {
        // SAFETY: any bytes are a value of an option struct, so zeros are one.
        let mut value: Self = unsafe { std::mem::zeroed() };
        // SAFETY: `value` is `repr(C)` and begins with a `size_t`, so its address is that of a `usize` that may be written.
        unsafe { (&raw mut value).cast::<usize>().write(size_of::<Self>()) };
        value
    }
}

/// The options at an address.
///
/// # Safety
/// `pointer` is null, or a `size_t` may be read there, and then as many bytes as it says.
pub(crate) unsafe fn required<T: Options>(pointer: *const T) -> Result<T, Refusal> {
    let first = checked(pointer.cast_mut(), T::NAME)?.cast::<usize>();
    // SAFETY: the caller promises that a `size_t` may be read here; `checked` has found the pointer neither null nor misaligned.
    let size = unsafe { first.read() };
    let own = size_of::<T>();
    if size < T::FIRST_SIZE || size > MOST {
        return Err(Refusal::argument(format!(
            "`size` of the {} is {size}; set it to sizeof({}), which is {own} in this version, or initialise the struct \
             with its _INIT macro",
            T::NAME,
            T::NAME
        )));
    }
    // SAFETY: the caller promises that `size` bytes may be read.
    let bytes = unsafe { std::slice::from_raw_parts(first.cast::<u8>().as_ptr(), size) };
    if let Some(unknown) = bytes.iter().skip(own).position(|&byte| byte != 0) {
        return Err(Refusal::argument(format!(
            "the {} sets byte {}, which this version of the library does not know: it has {own} bytes; use a newer library",
            T::NAME,
            own + unknown
        )));
    }
    let mut value = T::defaults();
    // SAFETY: both have that many bytes, do not overlap, and any bytes are a value of an option struct.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), size.min(own)) };
    Ok(value)
}

/// As [`required`]; null stands for the defaults.
///
/// # Safety
/// `pointer` is null, or a `size_t` may be read there, and then as many bytes as it says.
pub(crate) unsafe fn optional<T: Options>(pointer: *const T) -> Result<T, Refusal> {
    // SAFETY: the caller keeps the contract of `required`, which is the same.
    if pointer.is_null() { Ok(T::defaults()) } else { unsafe { required(pointer) } }
}

/// No struct has as many bytes; a number that was never set is refused before it is read.
const MOST: usize = 4096;

/// `halocline_switch`.
pub(crate) fn switch(value: i32, name: &str) -> Result<Option<bool>, Refusal> {
    match value {
        0 => Ok(None),
        1 => Ok(Some(true)),
        2 => Ok(Some(false)),
        other => Err(Refusal::argument(format!(
            "{name} is {other}; set it to HALOCLINE_DEFAULT, HALOCLINE_ON or HALOCLINE_OFF"
        ))),
    }
}

/// An `int32_t` that is 0 or 1.
pub(crate) fn flag(value: i32, name: &str) -> Result<bool, Refusal> {
    match value {
        0 | 1 => Ok(value == 1),
        other => Err(Refusal::argument(format!("{name} is {other}; set it to 0 or 1"))),
    }
}

/// Stores a struct that a call fills, as many bytes as the program has of it.
///
/// # Safety
/// `size` bytes may be written at `pointer`.
pub(crate) unsafe fn write<T: Options>(pointer: *mut T, value: T, size: usize) {
    // SAFETY: the caller promises that `size` bytes may be written, and `value` has at least as many as are copied.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>(),
            pointer.cast::<u8>(),
            size.min(size_of::<T>()),
        )
    };
}
