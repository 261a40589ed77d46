//! Pointers of C: checked for null and alignment before they are used.

use crate::status::Refusal;
use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr::NonNull;

/// The pointer, unless it is null or misaligned.
#[inline(always)]
pub(crate) fn checked<T>(pointer: *mut T, name: &'static str) -> Result<NonNull<T>, Refusal> {
    match NonNull::new(pointer) {
        Some(valid) if valid.is_aligned() => Ok(valid),
        Some(_) => Err(misaligned(pointer.addr(), align_of::<T>(), name)),
        None => Err(null(name)),
    }
}

#[cold]
#[inline(never)]
fn misaligned(address: usize, alignment: usize, name: &str) -> Refusal {
    Refusal::argument(format!(
        "{name} is at {address:#x}, which is no multiple of {alignment}; pass the address of a variable of its type"
    ))
}

#[cold]
#[inline(never)]
pub(crate) fn null(name: &str) -> Refusal {
    Refusal::argument(format!("{name} is NULL; pass the address of a variable"))
}

/// Where a call stores a result.
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `pointer` is null, or may be written with a `T` until the call ends.
    #[inline]
    pub(crate) unsafe fn new(pointer: *mut T, name: &'static str) -> Result<Self, Refusal> {
        checked(pointer, name).map(Self)
    }

    /// As [`Out::new`]; null is no error.
    ///
    /// # Safety
    /// `pointer` is null, or may be written with a `T` until the call ends.
    #[inline]
    pub(crate) unsafe fn optional(pointer: *mut T, name: &'static str) -> Result<Option<Self>, Refusal> {
        if pointer.is_null() { Ok(None) } else { checked(pointer, name).map(|valid| Some(Self(valid))) }
    }

    #[inline]
    pub(crate) fn set(self, value: T) {
        // SAFETY: `new` has refused null and misaligned pointers, and its caller promises that a `T` may be written there
        // until the call ends. What C had there has no drop.
        unsafe { self.0.write(value) };
    }
}

/// An array of C. Null is accepted for 0 elements.
///
/// # Safety
/// `first` is null, or `count` elements from it may be read until the call ends, and any bytes are a `T`.
pub(crate) unsafe fn array<'a, T>(
    first: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Refusal> {
    if count == 0 {
        return Ok(&[]);
    }
    let first = checked(first.cast_mut(), name)?;
    fits::<T>(count, name)?;
    // SAFETY: the caller promises that the elements may be read until the call ends; the pointer is neither null nor
    // misaligned, and the length does not overflow.
    Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
}

/// As [`array`], or `None` for null.
///
/// # Safety
/// `first` is null, or `count` elements from it may be read until the call ends, and any bytes are a `T`.
pub(crate) unsafe fn optional_array<'a, T>(
    first: *const T,
    count: usize,
    name: &'static str,
) -> Result<Option<&'a [T]>, Refusal> {
    // SAFETY: the caller keeps the contract of `array`, which is the same.
    if first.is_null() { Ok(None) } else { unsafe { array(first, count, name) }.map(Some) }
}

/// An array of C that a call writes. Null is accepted for 0 elements.
///
/// # Safety
/// `first` is null, or `count` elements from it may be written until the call ends, by nothing else.
pub(crate) unsafe fn array_mut<'a, T>(
    first: *mut T,
    count: usize,
    name: &'static str,
) -> Result<&'a mut [MaybeUninit<T>], Refusal> {
    if count == 0 {
        return Ok(&mut []);
    }
    let first = checked(first, name)?;
    fits::<T>(count, name)?;
    // SAFETY: the caller promises that the elements may be written until the call ends, by nothing else; the pointer is neither
    // null nor misaligned, and the length does not overflow. `MaybeUninit` accepts any bytes.
    Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr().cast(), count) })
}

fn fits<T>(count: usize, name: &'static str) -> Result<(), Refusal> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => {
            Err(Refusal::argument(format!("{name} has {count} elements, more than the address space holds")))
        }
    }
}

/// Stores `values` in an array of C with room for `room`, and their number. An array that is too short is an error, unless it
/// is null: then only the number is stored.
///
/// # Safety
/// `first` is null or `room` elements from it may be written; `count` may be written.
pub(crate) unsafe fn store<T: Copy>(
    values: &[T],
    (first, room): (*mut T, usize),
    count: *mut usize,
    name: &'static str,
) -> Result<(), Refusal> {
    // SAFETY: the caller promises that `count` may be written.
    unsafe { Out::new(count, "the count") }?.set(values.len());
    if first.is_null() {
        return Ok(());
    }
    if room < values.len() {
        return Err(Refusal::argument(format!(
            "{name} has room for {room} elements, {} are needed; pass NULL to learn the number",
            values.len()
        )));
    }
    // SAFETY: the caller promises that `room` elements may be written.
    let places = unsafe { array_mut(first, values.len(), name) }?;
    places.iter_mut().zip(values).for_each(|(place, value)| {
        place.write(*value);
    });
    Ok(())
}

/// As [`store`], for a text: with its closing zero.
///
/// # Safety
/// `first` is null or `room` bytes from it may be written; `count` may be written.
pub(crate) unsafe fn store_text(
    text: &str,
    (first, room): (*mut c_char, usize),
    length: *mut usize,
) -> Result<(), Refusal> {
    let characters: Vec<c_char> =
        text.bytes().filter(|&byte| byte != 0).chain([0]).map(u8::cast_signed).collect();
    // SAFETY: the caller keeps the contract of `store`, which is the same.
    unsafe { store(&characters, (first, room), length, "the text") }
}

/// A text of C.
///
/// # Safety
/// `text` is null, or a string with a closing zero that may be read until the call ends.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller promises a string with a closing zero, readable until the call ends.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Refusal::argument(format!("{name} is not UTF-8")))
}
