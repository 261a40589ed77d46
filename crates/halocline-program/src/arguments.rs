//! The arguments of a call: arrays, numbers, or none.

use crate::ScalarType;
use crate::scalar::Scalar;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// In memory of the host.
    Host,
    /// In memory of the GPU of this ordinal.
    Gpu(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("memory of the host"),
            Self::Gpu(ordinal) => write!(f, "memory of GPU {ordinal}"),
        }
    }
}

/// Memory, element type, extents and strides of an array that is given to a call. It borrows the memory and describes it.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    pub(crate) address: *mut c_void,
    pub(crate) element: ScalarType,
    pub(crate) extents: &'a [isize],
    pub(crate) strides: &'a [isize],
    pub(crate) origin: &'a [isize],
    pub(crate) device: Device,
    pub(crate) is_writable: bool,
    pub(crate) memory: PhantomData<&'a mut [u8]>,
}

/// The parts of an [`ArrayView`] over raw memory.
#[derive(Clone, Copy, Debug)]
pub struct RawArray<'a> {
    /// The address of the element whose indices are all the first.
    pub address: *mut c_void,
    /// The type of the elements.
    pub element: ScalarType,
    /// The number of indices in each dimension.
    pub extents: &'a [isize],
    /// The distance of neighbours in each dimension, in bytes; may be negative.
    pub strides: &'a [isize],
    /// Where the memory is.
    pub device: Device,
    /// Whether a program may write it.
    pub is_writable: bool,
}

/// A Rust type with the memory layout of a [`ScalarType`].
///
/// # Safety
/// Every bit pattern that a program may write for `TYPE` is a valid value.
pub unsafe trait Element: Copy {
    /// The type of the elements.
    const TYPE: ScalarType;
}

macro_rules! element {
    ($($t:ty => $variant:ident),*) => {$(
        // SAFETY: an integer or floating-point type of this size has no invalid value.
        unsafe impl Element for $t {
            const TYPE: ScalarType = ScalarType::$variant;
        }
    )*};
}
element!(
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    f32 => Float32, f64 => Float64
);

impl<'a> ArrayView<'a> {
    /// A view of raw memory.
    ///
    /// # Safety
    /// For `'a` the memory of all elements is valid for reads, and for writes if it is writable, and nothing else accesses it
    /// during a call other than through views of the same call.
    pub unsafe fn from_raw(raw: RawArray<'a>) -> Self {
        let RawArray { address, element, extents, strides, device, is_writable } = raw;
        Self { address, element, extents, strides, origin: &[], device, is_writable, memory: PhantomData }
    }

    /// An array in row-major order: `None` if extents and strides (in bytes) do not describe exactly this memory. Without
    /// strides it has one dimension at most.
    pub fn contiguous<T: Element>(
        memory: &'a mut [T],
        extents: &'a [isize],
        strides: &'a [isize],
    ) -> Option<Self> {
        let size = size_of::<T>() as isize;
        let strides = match (strides, extents) {
            ([], [_]) => const { &[size_of::<T>() as isize] },
            (strides, _) => strides,
        };
        let mut expected = size;
        for (&extent, &stride) in extents.iter().zip(strides).rev() {
            if stride != expected || extent < 0 {
                return None;
            }
            expected = expected.checked_mul(extent)?;
        }
        let is_right = extents.len() == strides.len() && expected == size_of_val(memory) as isize;
        is_right.then_some(Self {
            address: memory.as_mut_ptr().cast(),
            element: T::TYPE,
            extents,
            strides,
            origin: &[],
            device: Device::Host,
            is_writable: true,
            memory: PhantomData,
        })
    }

    /// The indices of the first element; without it they are all 0.
    #[must_use]
    pub fn with_origin(mut self, origin: &'a [isize]) -> Self {
        self.origin = origin;
        self
    }

    pub(crate) fn start(&self, dimension: usize) -> i64 {
        self.origin.get(dimension).map_or(0, |&start| start as i64)
    }
}

/// The value of one argument.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// An array; without dimensions also for a scalar.
    Array(ArrayView<'a>),
    /// A number.
    Scalar(Scalar),
    /// Nothing, for an optional argument.
    Absent,
}

impl<'a> From<ArrayView<'a>> for Given<'a> {
    fn from(array: ArrayView<'a>) -> Self {
        Self::Array(array)
    }
}

impl<T: Into<Scalar>> From<T> for Given<'_> {
    fn from(scalar: T) -> Self {
        Self::Scalar(scalar.into())
    }
}
