//! Pointers of C: checked for null and alignment before they are used.

use crate::status::Refusal;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
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

/// A pointer parameter of an exported function, for a result. Rust code makes none, except in tests. C promises that it is null, or
/// that a `T` may be written there until the call ends; for an array, as many as the [`Capacity`] of the call says; for an option struct, as
/// many bytes as its size says, which may be read.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutPtr<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A parameter of an exported function: how many elements may be written at the [`OutPtr`] of each array. Rust code makes none.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Capacity(usize);

/// Where a call stores a result: an address that was checked, or nowhere.
pub(crate) struct CheckedOut<'a, T>(Option<NonNull<T>>, PhantomData<&'a mut T>);

impl<'a, T> OutPtr<'a, T> {
    #[cfg(test)]
    pub(crate) fn of(variable: &'a mut T) -> Self {
        Self(variable, PhantomData)
    }

    /// The place, unless the pointer is null or misaligned.
    #[inline(always)]
    pub(crate) fn checked(self, name: &'static str) -> Result<CheckedOut<'a, T>, Refusal> {
        checked(self.0, name).map(|valid| CheckedOut(Some(valid), PhantomData))
    }

    /// As [`OutPtr::checked`]; null is no error, and nothing is stored.
    #[inline]
    pub(crate) fn optional(self, name: &'static str) -> Result<CheckedOut<'a, T>, Refusal> {
        if self.0.is_null() { Ok(CheckedOut(None, PhantomData)) } else { self.checked(name) }
    }

    /// The address, which may be null or misaligned.
    pub(crate) fn address(self) -> *mut T {
        self.0
    }

    /// Whether [`store`] stores that many elements of an array here.
    pub(crate) fn takes(self, room: Capacity, count: usize) -> bool {
        !self.0.is_null() && count <= room.0
    }
}

impl<T> CheckedOut<'_, T> {
    #[inline]
    pub(crate) fn set(self, value: T) {
        if let Some(place) = self.0 {
            // SAFETY: `OutPtr::checked` has refused null and misaligned pointers, and C promises that a `T` may be written there
            // until the call ends, which the lifetime does not outlive. What C had there has no drop.
            unsafe { place.write(value) };
        }
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

/// Writes values to an array of C, as many as it has places.
pub(crate) fn fill<T>(places: &mut [MaybeUninit<T>], values: impl IntoIterator<Item = T>) {
    places.iter_mut().zip(values).for_each(|(place, value)| {
        place.write(value);
    });
}

/// Stores `values` in an array of C with room for `room`, and their number. An array that is too short is an error, unless it
/// is null: then only the number is stored.
pub(crate) fn store<T: Copy>(
    values: &[T],
    (first, room): (OutPtr<'_, T>, Capacity),
    count: OutPtr<'_, usize>,
    name: &'static str,
) -> Result<(), Refusal> {
    count.checked("the count")?.set(values.len());
    if first.0.is_null() {
        return Ok(());
    }
    if room.0 < values.len() {
        return Err(Refusal::argument(format!(
            "{name} has room for {} elements, {} are needed; pass NULL to learn the number",
            room.0,
            values.len()
        )));
    }
    // SAFETY: C promises that `room` elements may be written there until the call ends, and there are no more values.
    fill(unsafe { array_mut(first.0, values.len(), name) }?, values.iter().copied());
    Ok(())
}

/// As [`store`], for a text: with its closing zero.
pub(crate) fn store_text(
    text: &str,
    place: (OutPtr<'_, c_char>, Capacity),
    length: OutPtr<'_, usize>,
) -> Result<(), Refusal> {
    let characters: Vec<c_char> =
        text.bytes().filter(|&byte| byte != 0).chain([0]).map(u8::cast_signed).collect();
    store(&characters, place, length, "the text")
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
