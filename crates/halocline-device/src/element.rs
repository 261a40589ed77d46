//! Rust types that can be elements of an array.

use halocline_plan::ElementType;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A type that can be the element of an array. Bytes reach an array without validation: from other ranks,
/// from messages that a program unpacks, through fields of other element types in the same memory.
/// Therefore every byte pattern must be a valid value.
///
/// `bool` and `char` have invalid bit patterns: use [`Bool`] and `u32`. Plain structs of up to 256 bytes implement this trait
/// through `#[derive(halocline::Element)]`, which checks the conditions at compile time.
///
/// ```
/// use halocline_device::Element;
/// use halocline_plan::ElementType;
///
/// fn bytes_of<T: Element>(cells: usize) -> usize {
///     cells * T::TYPE.size()
/// }
///
/// assert_eq!(f64::TYPE, ElementType::F64);
/// // A complex number.
/// assert_eq!(bytes_of::<[f32; 2]>(100), 800);
/// ```
///
/// # Safety
/// - Every pattern of `size_of::<Self>()` initialised bytes is a valid `Self`.
/// - `Self` has no padding: all its bytes are initialised.
/// - `Self` has no destructor, no pointer and no interior mutability.
/// - `size_of::<Self>() == Self::TYPE.size()`, and the alignment of `Self` is at most 64.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type of `Self`.
    const TYPE: ElementType;

    /// The meaning of the bytes if the type does not state it: the name and fields of a struct. Fields of
    /// elements with different names cannot exchange. An empty name is compatible with every name.
    const RECORD: &'static str = "";
}

macro_rules! elements {
    ($($rust:ty => $element:ident),* $(,)?) => {$(
        const _: () = assert!(size_of::<$rust>() == ElementType::$element.size());
        // SAFETY: integers, floating-point numbers, arrays of two of them, and `Bool`, which is a `u8`, are valid for every byte
        // pattern and have no padding, pointer, destructor or interior mutability; the line above compares the sizes.
        unsafe impl Element for $rust {
            const TYPE: ElementType = ElementType::$element;
        }
    )*};
}

elements! {
    Bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, f32 => F32,
    i64 => I64, u64 => U64, f64 => F64, [f32; 2] => C64, [f64; 2] => C128,
}

/// A boolean in an array: one byte, where 0 is false and any other value is true, as in NumPy and C. Two
/// true values are equal, regardless of their bytes.
///
/// ```
/// use halocline_device::Bool;
///
/// let is_land = [Bool::from(true), Bool::from(false), Bool::default()];
/// assert_eq!(is_land.iter().filter(|cell| cell.get()).count(), 1);
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// The value.
    #[inline]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    #[inline]
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl From<Bool> for bool {
    #[inline]
    fn from(value: Bool) -> Self {
        value.get()
    }
}

impl PartialEq for Bool {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

impl Hash for Bool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
