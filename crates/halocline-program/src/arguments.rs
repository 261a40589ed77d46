//! The arguments of a call: arrays, numbers, or none.

use crate::ScalarType;
use crate::scalar::Scalar;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

/// Where memory is.
///
/// ```
/// use halocline_program::{Device, RawArray, ScalarType};
///
/// let mut values = [0.0f64; 6];
/// let array = RawArray {
///     address: values.as_mut_ptr().cast(),
///     element: ScalarType::Float64,
///     extents: &[2, 3],
///     strides: &[24, 8],
///     device: Device::Host,
///     is_writable: true,
/// };
/// assert_eq!(array.device.to_string(), "memory of the host");
/// ```
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
///
/// ```
/// use halocline_program::ArrayView;
///
/// let mut values = vec![0.0f64; 20 * 30];
/// // Extents in elements, strides in bytes.
/// let t = ArrayView::contiguous(&mut values, &[20, 30], &[240, 8]).ok_or("not the size of the array")?;
/// // The index of the first element is (-1, 0): one row of halo cells.
/// let t = t.with_origin(&[-1, 0]);
/// // Extents and strides have to fit the slice.
/// assert!(ArrayView::contiguous(&mut [0.0f64; 5], &[20, 30], &[240, 8]).is_none());
/// # Ok::<(), &str>(())
/// ```
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
///
/// ```
/// use halocline_program::{ArrayView, Device, RawArray, ScalarType};
///
/// let mut values = [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0];
/// // Every second element.
/// let raw = RawArray {
///     address: values.as_mut_ptr().cast(),
///     element: ScalarType::Float64,
///     extents: &[3],
///     strides: &[16],
///     device: Device::Host,
///     is_writable: true,
/// };
/// // SAFETY: the 3 elements are in `values`, which nothing else accesses while the view exists.
/// let view = unsafe { ArrayView::from_raw(raw) };
/// ```
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

impl RawArray<'_> {
    /// Whether the end of its last element is not farther from its first one than memory can be. Check it where extents and strides come
    /// from outside of the program.
    ///
    /// ```
    /// use halocline_program::{Device, RawArray, ScalarType};
    ///
    /// let raw = |extents, strides| RawArray {
    ///     address: std::ptr::null_mut(),
    ///     element: ScalarType::Float64,
    ///     extents,
    ///     strides,
    ///     device: Device::Host,
    ///     is_writable: true,
    /// };
    /// assert!(raw(&[4, 3], &[24, -8]).fits_memory());
    /// assert!(!raw(&[isize::MAX, 3], &[24, 8]).fits_memory());
    /// ```
    pub fn fits_memory(&self) -> bool {
        let steps = self.extents.iter().zip(self.strides);
        let mut bytes =
            steps.map(|(extent, stride)| extent.saturating_sub(1).max(0).checked_mul(stride.checked_abs()?));
        bytes.try_fold(self.element.size() as isize, |sum, bytes| sum.checked_add(bytes?)).is_some()
    }
}

/// A Rust type with the memory layout of a [`ScalarType`].
///
/// # Safety
/// Every bit pattern that a program may write for `TYPE` is a valid value.
///
/// ```
/// use halocline_program::{ArrayView, Element, ScalarType};
///
/// #[derive(Clone, Copy)]
/// #[repr(transparent)]
/// struct Kelvin(f64);
///
/// // SAFETY: `Kelvin` has the layout of `f64`, which has no invalid value.
/// unsafe impl Element for Kelvin {
///     const TYPE: ScalarType = ScalarType::Float64;
/// }
///
/// let mut t = [Kelvin(273.15); 4];
/// assert!(ArrayView::contiguous(&mut t, &[4], &[]).is_some());
/// ```
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
///
/// ```
/// use halocline_program::{ArrayView, Given, Scalar};
///
/// let mut t = [0.0f64; 4];
/// let t = ArrayView::contiguous(&mut t, &[4], &[]).ok_or("not the size of the array")?;
/// // The arguments of a call: an array, a number, and an optional argument that is left out.
/// let given: [Given<'_>; 3] = [t.into(), 0.1.into(), Given::Absent];
/// assert!(matches!(given, [Given::Array(_), Given::Scalar(Scalar::Float(0.1)), Given::Absent]));
/// # Ok::<(), &str>(())
/// ```
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
