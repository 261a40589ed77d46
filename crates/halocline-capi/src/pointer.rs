//! Pointers of C: checked for null and alignment before they are used.

use crate::status::{Refusal, Status};
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

#[cold]
#[inline(never)]
fn null_array(name: &str, count: usize) -> Refusal {
    Refusal::argument(format!(
        "{name} is NULL, and has {count} elements by its count; pass the address of the first one, or a count of 0"
    ))
}

/// A parameter of an exported function: the address of one result. C makes one; of Rust code only tests do, of a variable.
///
/// Contract: it is null, or a `T` may be written there until the call ends.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutPtr<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A parameter of an exported function: the address of an array for results. Only C makes one.
///
/// Contract: it is null, or as many elements as the [`Capacity`] of the call says may be written there, by the call alone, until it ends.
#[repr(transparent)]
pub(crate) struct OutArray<'a, T>(*mut T, PhantomData<&'a mut T>);

/// The parameter `capacity` of an exported function: the number of elements that fit into each of its [`OutArray`]s. Only C makes
/// one, and a function has one at most.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Capacity(usize);

/// Where a call stores a result: an address that was checked, or nowhere.
pub(crate) struct CheckedOut<'a, T>(Option<NonNull<T>>, PhantomData<&'a mut T>);

/// Where a call stores an array of results: a checked address, behind which `count` elements fit.
pub(crate) struct CheckedArray<'a, T> {
    first: NonNull<T>,
    count: usize,
    lifetime: PhantomData<&'a mut T>,
}

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
}

impl<T> CheckedOut<'_, T> {
    /// Whether the caller has given a place.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn set(self, value: T) {
        if let Some(place) = self.0 {
            // SAFETY: `OutPtr::checked` has refused null and misaligned pointers. By the contract of `OutPtr` a `T` may be written
            // there until the call ends, which the lifetime does not outlive. What C had there has no drop.
            unsafe { place.write(value) };
        }
    }
}

impl<T: Copy> CheckedArray<'_, T> {
    /// Writes the values, but no more of them than the array was checked for.
    pub(crate) fn set(self, values: &[T]) {
        let count = values.len().min(self.count);
        // SAFETY: `checked_array` has made `first` an aligned pointer that is not null, and found the capacity no less than `self.count`.
        // By the contract of `OutArray` these elements may be written, by the call alone, until it ends, which the lifetime does not
        // outlive; so they do not overlap `values`, which has no fewer than `count` elements.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.first.as_ptr(), count) };
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
    if first.is_null() {
        return Err(null_array(name, count));
    }
    let first = checked(first.cast_mut(), name)?;
    fits::<T>(count, name)?;
    // SAFETY: the caller promises that the elements may be read until the call ends; the pointer is neither null nor
    // misaligned, and the length does not overflow.
    Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
}

/// A copy of an array of C, which may be large: a lack of memory is an error.
pub(crate) fn copied<T: Copy>(array: &[T], name: &str) -> Result<Vec<T>, Refusal> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(array.len()).map_err(|_| {
        let text =
            format!("out of memory: cannot copy {name}, which has {} elements; pass fewer", array.len());
        Refusal::new(Status::MEMORY, text)
    })?;
    copy.extend_from_slice(array);
    Ok(copy)
}

/// Refuses a list of so many elements that there is no memory for it.
pub(crate) fn check_room<T>(count: usize, name: &str) -> Result<(), Refusal> {
    Vec::<T>::new().try_reserve_exact(count).map_err(|_| {
        Refusal::new(Status::MEMORY, format!("out of memory: {name} has {count} elements; use fewer ranks"))
    })
}

/// How many elements lists of C have in all, by where each begins. Places that are none are refused before the lists are read.
pub(crate) fn entries(offsets: &[usize]) -> Result<usize, Refusal> {
    let fall = offsets.windows(2).position(|pair| pair[1] < pair[0]);
    match (offsets.first(), fall) {
        (Some(&first), _) if first != 0 => Err(Refusal::argument(format!(
            "offsets begin with {first}; give 0, where the first list begins, and then where each list ends"
        ))),
        (_, Some(at)) => Err(Refusal::argument(format!(
            "offsets fall from {} to {} at list {at}; give 0, where the first list begins, and then where each list ends",
            offsets[at],
            offsets[at + 1]
        ))),
        _ => Ok(offsets.last().copied().unwrap_or(0)),
    }
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
    if first.is_null() {
        return Err(null_array(name, count));
    }
    let first = checked(first, name)?;
    fits::<T>(count, name)?;
    // SAFETY: the caller promises that the elements may be written until the call ends, by nothing else; the pointer is neither
    // null nor misaligned, and the length does not overflow. `MaybeUninit` accepts any bytes.
    Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr().cast(), count) })
}

fn fits<T>(count: usize, name: &'static str) -> Result<(), Refusal> {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= ADDRESS_SPACE => Ok(()),
        _ => {
            Err(Refusal::argument(format!("{name} has {count} elements, more than the address space holds")))
        }
    }
}

/// The most bytes that a process of any 64-bit machine can address: numbers above are mistakes, and no memory is asked for them.
pub(crate) const ADDRESS_SPACE: usize = 1 << 56;

/// Writes values to an array of C, as many as it has places.
pub(crate) fn fill<T>(places: &mut [MaybeUninit<T>], values: impl IntoIterator<Item = T>) {
    places.iter_mut().zip(values).for_each(|(place, value)| {
        place.write(value);
    });
}

/// Stores the number of elements of a result, and checks the array of C for them. `None` for a null array: C wants only the number.
/// An array that is too short is an error.
pub(crate) fn checked_array<'a, T>(
    needed: usize,
    (array, capacity): (OutArray<'a, T>, Capacity),
    count: OutPtr<'_, usize>,
    name: &'static str,
) -> Result<Option<CheckedArray<'a, T>>, Refusal> {
    count.checked("the count")?.set(needed);
    if array.0.is_null() {
        return Ok(None);
    }
    if capacity.0 < needed {
        return Err(Refusal::argument(format!(
            "{name} has a capacity of {} elements, {needed} are needed; pass NULL to learn the number",
            capacity.0
        )));
    }
    let first = if needed == 0 { NonNull::dangling() } else { checked(array.0, name)? };
    Ok(Some(CheckedArray { first, count: needed, lifetime: PhantomData }))
}

/// Stores `values` in an array of C, and their number. An array that is too short is an error, unless it is null: then only the
/// number is stored.
pub(crate) fn store<T: Copy>(
    values: &[T],
    array: (OutArray<'_, T>, Capacity),
    count: OutPtr<'_, usize>,
    name: &'static str,
) -> Result<(), Refusal> {
    if let Some(array) = checked_array(values.len(), array, count, name)? {
        array.set(values);
    }
    Ok(())
}

/// Stores a text in an array of C, with its closing zero, and the number of characters, as [`store`] does.
pub(crate) fn store_text(
    text: &str,
    array: (OutArray<'_, c_char>, Capacity),
    length: OutPtr<'_, usize>,
) -> Result<(), Refusal> {
    let characters: Vec<c_char> =
        text.bytes().filter(|&byte| byte != 0).chain([0]).map(|byte| c_char::from_ne_bytes([byte])).collect();
    store(&characters, array, length, "the text")
}

/// A text of C.
///
/// # Safety
/// `text` is null, or a string with a closing zero that may be read until the call ends.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(Refusal::argument(format!("{name} is NULL; pass a text that ends with a zero")));
    }
    // SAFETY: the caller promises a string with a closing zero, readable until the call ends.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Refusal::argument(format!("{name} is not UTF-8")))
}

/// A path of C.
///
/// # Safety
/// `path` is null, or a string with a closing zero that may be read until the call ends.
pub(crate) unsafe fn path_text<'a>(path: *const c_char, name: &str) -> Result<&'a str, Refusal> {
    // SAFETY: the caller keeps the contract of `text`, which is the same.
    match unsafe { text(path, name) }? {
        "" => Err(Refusal::argument(format!("{name} is empty; pass the path of a file"))),
        path => Ok(path),
    }
}
