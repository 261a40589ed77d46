//! Rust types that can be elements of an array.

use halocline_plan::ElementType;

/// A type whose values can be exchanged.
///
/// # Safety
/// Every pattern of [`ElementType::size`] bytes that some rank writes as `Self` must be a valid `Self`
/// on every other rank, all-zero bytes must be valid, and there must be no padding, no pointer and no
/// drop.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type of `Self`.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($rust:ty => $element:ident),* $(,)?) => {$(
        // SAFETY: a plain number (or a bool, which is only ever written as one); zero is valid.
        unsafe impl Element for $rust {
            const TYPE: ElementType = ElementType::$element;
        }
    )*};
}

elements! {
    bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, f32 => F32,
    i64 => I64, u64 => U64, f64 => F64, [f32; 2] => C64, [f64; 2] => C128,
}
