//! Values that the small collective calls carry: numbers, arrays and vectors of them.

use crate::collective::Reduce;
use std::cmp::Ordering;

/// A number that [`Communicator::all_reduce`](crate::Communicator::all_reduce) combines: an integer, `f32`, `f64`, or an array
/// of them, which is combined element by element. A complex number is the array `[real, imaginary]`.
///
/// The compiler refuses arrays without elements as numbers: a message of them has no bytes, so that the receiver cannot count
/// them.
///
/// ```compile_fail,E0080
/// # use halocline_comm::{Communicator, Reduce};
/// Communicator::single().all_reduce(vec![[0.0; 0]; 3], Reduce::Sum);
/// ```
pub trait Number: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Bytes in a message.
    #[doc(hidden)]
    const BYTES: usize;

    /// The name of the type, for errors.
    #[doc(hidden)]
    fn name() -> String;

    /// Writes values to a message; `bytes` is as long as they need.
    #[doc(hidden)]
    fn encode(values: &[Self], bytes: &mut [u8]);

    /// Reads values from a message; bytes after the last whole value are ignored.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Vec<Self>;

    /// Combines two values.
    #[doc(hidden)]
    fn combine(self, other: Self, op: Reduce) -> Self;
}

/// The argument of a rank in a small collective call: one [`Number`], an array, a slice or a `Vec` of them.
pub trait Values {
    /// The numbers.
    type Number: Number;

    /// The result of the call.
    type Owned;

    /// How many numbers the type has; `None` if that depends on the value.
    #[doc(hidden)]
    const COUNT: Option<usize>;

    /// The numbers, in order.
    #[doc(hidden)]
    fn numbers(&self) -> &[Self::Number];

    /// The result, unless the type has another number of them.
    #[doc(hidden)]
    fn owned(numbers: Vec<Self::Number>) -> Option<Self::Owned>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty as $wire:ty, $add:path;)*) => {$(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const BYTES: usize = size_of::<$wire>();

            fn name() -> String {
                stringify!($number).to_owned()
            }

            fn encode(values: &[Self], bytes: &mut [u8]) {
                for (place, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                    *place = (*value as $wire).to_le_bytes();
                }
            }

            fn decode(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks().0.iter().map(|bytes| <$wire>::from_le_bytes(*bytes) as Self).collect()
            }

            fn combine(self, other: Self, op: Reduce) -> Self {
                match (op, self.partial_cmp(&other)) {
                    // Without an order one of them is a NaN, and so is their sum.
                    (Reduce::Sum, _) | (_, None) => $add(self, other),
                    (Reduce::Min, Some(Ordering::Greater)) | (Reduce::Max, Some(Ordering::Less)) => other,
                    (Reduce::Min | Reduce::Max, Some(_)) => self,
                }
            }
        }

        impl Values for $number {
            type Number = Self;
            type Owned = Self;
            const COUNT: Option<usize> = Some(1);

            fn numbers(&self) -> &[Self] {
                std::slice::from_ref(self)
            }

            fn owned(numbers: Vec<Self>) -> Option<Self> {
                <[Self; 1]>::try_from(numbers).ok().map(|[number]| number)
            }
        }
    )*};
}

numbers! {
    u8 as u8, u8::wrapping_add;
    u16 as u16, u16::wrapping_add;
    u32 as u32, u32::wrapping_add;
    u64 as u64, u64::wrapping_add;
    u128 as u128, u128::wrapping_add;
    usize as u64, usize::wrapping_add;
    i8 as i8, i8::wrapping_add;
    i16 as i16, i16::wrapping_add;
    i32 as i32, i32::wrapping_add;
    i64 as i64, i64::wrapping_add;
    i128 as i128, i128::wrapping_add;
    isize as i64, isize::wrapping_add;
    f32 as f32, std::ops::Add::add;
    f64 as f64, std::ops::Add::add;
}

impl<T: Number, const N: usize> sealed::Sealed for [T; N] {}

impl<T: Number, const N: usize> Number for [T; N] {
    const BYTES: usize = {
        assert!(N > 0, "an array without elements is no number; pass arrays of at least one element");
        N * T::BYTES
    };

    fn name() -> String {
        format!("[{}; {N}]", T::name())
    }

    fn encode(values: &[Self], bytes: &mut [u8]) {
        T::encode(values.as_flattened(), bytes);
    }

    fn decode(bytes: &[u8]) -> Vec<Self> {
        T::decode(bytes).as_chunks().0.to_vec()
    }

    fn combine(self, other: Self, op: Reduce) -> Self {
        std::array::from_fn(|at| self[at].combine(other[at], op))
    }
}

macro_rules! values {
    ($([$($parameter:tt)*] $values:ty => $owned:ty, $count:expr;)*) => {$(
        impl<T: Number, $($parameter)*> Values for $values {
            type Number = T;
            type Owned = $owned;
            const COUNT: Option<usize> = $count;

            fn numbers(&self) -> &[T] {
                &self[..]
            }

            fn owned(numbers: Vec<T>) -> Option<$owned> {
                numbers.try_into().ok()
            }
        }
    )*};
}

values! {
    [const N: usize] [T; N] => [T; N], Some(N);
    [const N: usize] &[T; N] => [T; N], Some(N);
    [] &[T] => Vec<T>, None;
    [] Vec<T> => Vec<T>, None;
    [] &Vec<T> => Vec<T>, None;
}

/// The bytes of numbers in a message.
pub(crate) fn encode<T: Number>(numbers: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * T::BYTES];
    T::encode(numbers, &mut bytes);
    bytes
}

/// The numbers of a message, unless its length is no multiple of theirs.
pub(crate) fn decode<V: Values>(bytes: &[u8]) -> Option<V::Owned> {
    let is_whole = bytes.len().is_multiple_of(V::Number::BYTES);
    is_whole.then(|| V::owned(V::Number::decode(bytes))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returns<V: Values>(values: V) -> Option<V::Owned> {
        decode::<V>(&encode(values.numbers()))
    }

    #[test]
    fn values_survive_a_message() {
        assert_eq!(returns(-1.5f64), Some(-1.5));
        assert_eq!(returns(usize::MAX), Some(usize::MAX));
        assert_eq!(returns([1.0f32, 2.0]), Some([1.0, 2.0]));
        assert_eq!(returns(vec![[1.0f64, 2.0], [3.0, 4.0]]), Some(vec![[1.0, 2.0], [3.0, 4.0]]));
        assert_eq!(returns(&[i128::MIN][..]), Some(vec![i128::MIN]));
        assert_eq!(returns(Vec::<u16>::new()), Some(Vec::new()));
        assert_eq!(returns([0.0f32; 0]), Some([]));
    }

    #[test]
    fn bytes_that_are_no_whole_values_are_refused() {
        assert_eq!(decode::<Vec<u32>>(&[0; 6]), None);
        assert_eq!(decode::<[u32; 2]>(&[0; 4]), None);
        assert_eq!(decode::<f64>(&[0; 16]), None);
    }

    #[test]
    fn integers_wrap_and_a_nan_stays() {
        assert_eq!(u8::MAX.combine(2, Reduce::Sum), 1);
        assert_eq!(3i32.combine(-4, Reduce::Min), -4);
        assert_eq!([1.0, 9.0].combine([2.0, 3.0], Reduce::Max), [2.0, 9.0]);
        for op in [Reduce::Min, Reduce::Max, Reduce::Sum] {
            assert!(f64::NAN.combine(1.0, op).is_nan() && 1.0.combine(f64::NAN, op).is_nan(), "{op:?}");
        }
    }
}
