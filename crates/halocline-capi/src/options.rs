//! Option structs of C, which begin with their size: programs and libraries of different versions understand each other.

use crate::pointer::checked;
use crate::status::Refusal;
use halocline::Device;
use halocline::device::cuda;
use std::marker::PhantomData;
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

/// A parameter of an exported function: the address of an option struct. C makes one; of Rust code only [`OptionsPtr::after`] does.
///
/// Contract: it is null, or a `size_t` may be read there, and then as many bytes as it says, until the call ends. The pointers in the
/// struct are null or valid for the access that the comments of the header describe: until the call ends, arrays may be read, with as
/// many elements as the field of their number says, and so may strings, which have a closing zero.
#[repr(transparent)]
pub(crate) struct OptionsPtr<'a, T>(*const T, PhantomData<&'a T>);

/// A parameter of an exported function: the address of a struct that the call stores, and whose size C has set. Only C makes one.
///
/// Contract: it is null, or a `size_t` may be read there, and then as many bytes as it says may be read and written, until the call ends.
#[repr(transparent)]
pub(crate) struct OutStruct<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T: Options> OptionsPtr<'_, T> {
    /// The options.
    pub(crate) fn required(&self) -> Result<T, Refusal> {
        // SAFETY: by the contract of `OptionsPtr` it is null, or a `size_t` may be read there, and then as many bytes as it says, until
        // the call ends; this function alone uses the slice.
        let bytes = unsafe { bytes(self.0) }?;
        let mut value = T::defaults();
        let count = bytes.len().min(size_of::<T>());
        // SAFETY: both have that many bytes, do not overlap, and any bytes are a value of an option struct.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), count) };
        Ok(value)
    }

    /// The size that the struct says it has.
    pub(crate) fn declared_size(&self) -> Result<usize, Refusal> {
        let first = checked(self.0.cast_mut(), T::NAME)?.cast::<usize>();
        // SAFETY: by the contract of `OptionsPtr` a `size_t` may be read there; `checked` has found the pointer neither null nor
        // misaligned.
        Ok(unsafe { first.read() })
    }

    /// As [`OptionsPtr::required`]; null stands for the defaults.
    pub(crate) fn optional(&self) -> Result<T, Refusal> {
        if self.is_null() { Ok(T::defaults()) } else { self.required() }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The struct that many bytes after this one, in an array of C.
    ///
    /// # Safety
    /// The address of that struct keeps the contract of [`OptionsPtr`].
    pub(crate) unsafe fn after(&self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes), PhantomData)
    }
}

/// The bytes of the option struct at an address, as many as the program has.
///
/// # Safety
/// `pointer` is null, or a `size_t` may be read there, and then as many bytes as it says, as long as the result lives.
unsafe fn bytes<'a, T: Options>(pointer: *const T) -> Result<&'a [u8], Refusal> {
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
    Ok(bytes)
}

/// No struct has as many bytes; a number that was never set is refused before it is read.
const MOST: usize = 4096;

/// Converts the number of an enum to the value at that position.
pub(crate) fn choice<T, const N: usize>(
    number: i32,
    values: [T; N],
    name: &str,
    remedy: &str,
) -> Result<T, Refusal> {
    let chosen = usize::try_from(number).ok().and_then(|at| values.into_iter().nth(at));
    chosen.ok_or_else(|| Refusal::argument(format!("{name} is {number}; {remedy}")))
}

/// HALOCLINE_DEFAULT, HALOCLINE_ON or HALOCLINE_OFF.
pub(crate) fn switch(value: i32, name: &str) -> Result<Option<bool>, Refusal> {
    let remedy = "set it to HALOCLINE_DEFAULT, HALOCLINE_ON or HALOCLINE_OFF";
    choice(value, [None, Some(true), Some(false)], name, remedy)
}

/// An `int32_t` that is 0 or 1.
pub(crate) fn flag(value: i32, name: &str) -> Result<bool, Refusal> {
    choice(value, [false, true], name, "set it to 0 or 1")
}

/// Opens the GPU with an ordinal, which counts from 0 the GPUs that `CUDA_VISIBLE_DEVICES` leaves.
pub(crate) fn cuda_device(ordinal: i32) -> Result<Device, Refusal> {
    let number = u32::try_from(ordinal);
    let number = number
        .map_err(|_| Refusal::argument(format!("device is {ordinal}; give the number of a GPU, from 0")))?;
    Ok(cuda::device(number)?)
}

/// The ordinal of the GPU that has the memory; `None` for host memory. `owner` goes into the error text, behind the name of the field:
/// " of the packet", " of the memory" or empty.
pub(crate) fn gpu_of_memory(space: i32, device: i32, owner: &str) -> Result<Option<u32>, Refusal> {
    match (space, u32::try_from(device)) {
        (0, _) => Ok(None),
        (1, Ok(ordinal)) => Ok(Some(ordinal)),
        (1, Err(_)) => Err(Refusal::argument(format!("device{owner} is {device}; give 0 or more"))),
        _ => Err(Refusal::argument(format!(
            "space{owner} is {space}; set it to HALOCLINE_HOST or HALOCLINE_CUDA"
        ))),
    }
}

/// Stores the struct that a closure returns and its size, as many bytes as the program has of it. Its size is checked first.
pub(crate) fn store<T: Options>(
    out: OutStruct<'_, T>,
    body: impl FnOnce() -> Result<T, Refusal>,
) -> Result<(), Refusal> {
    let place = out.0;
    // SAFETY: by the contract of `OutStruct` it is null, or a `size_t` may be read there, and then as many bytes as it says, until the
    // call ends.
    let size = unsafe { bytes(place) }?.len();
    let mut value = body()?;
    // SAFETY: `value` is `repr(C)` and begins with a `size_t`. By the contract of `OutStruct` `size` bytes may be written at `place`
    // until the call ends; they do not overlap `value`, a variable of this function, which has at least as many bytes as are copied.
    unsafe {
        (&raw mut value).cast::<usize>().write(size);
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>(),
            place.cast(),
            size.min(size_of::<T>()),
        );
    }
    Ok(())
}
