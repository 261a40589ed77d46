//! Types of elements and scalars, and the exact conversion of a given number to a C argument.

use halocline_plan::ElementType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of an array's elements or of a scalar.
///
/// ```
/// use halocline_program::ScalarType;
///
/// assert_eq!(ScalarType::Float32.size(), 4);
/// // The strides in bytes of an array of 2 x 3 elements.
/// assert_eq!(*ScalarType::Float32.c_order(&[2, 3]), [12, 4]);
/// assert_eq!(ScalarType::Int8.integer_range(), Some((-128, 127)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum ScalarType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    /// As a scalar it is passed as its 16 bits in an integer register, as `uint16_t` and DaCe's `dace::half` are.
    Float16,
    Float32,
    Float64,
    /// Of arrays only.
    Complex64,
    /// Of arrays only.
    Complex128,
}

impl ScalarType {
    /// Bytes of a value, a power of two.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// The strides in bytes of an array of such elements in C order. An extent of 0 counts as 1; a stride is at most `isize::MAX`.
    pub fn c_order(self, extents: &[isize]) -> Box<[isize]> {
        let mut strides: Box<[isize]> = extents.into();
        let mut next = self.size() as isize;
        for stride in strides.iter_mut().rev() {
            next = next.saturating_mul(std::mem::replace(stride, next).max(1));
        }
        strides
    }

    /// The least and the greatest value of an integer type; of others `None`.
    pub const fn integer_range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::Int8 => (i8::MIN as i128, i8::MAX as i128),
            Self::Int16 => (i16::MIN as i128, i16::MAX as i128),
            Self::Int32 => (i32::MIN as i128, i32::MAX as i128),
            Self::Int64 => (i64::MIN as i128, i64::MAX as i128),
            Self::UInt8 => (0, u8::MAX as i128),
            Self::UInt16 => (0, u16::MAX as i128),
            Self::UInt32 => (0, u32::MAX as i128),
            Self::UInt64 => (0, u64::MAX as i128),
            _ => return None,
        })
    }

    /// Whether a scalar of this type is passed in a floating-point register.
    pub(crate) const fn is_floating_argument(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    /// The value in a word of a frame, for messages.
    pub(crate) fn shown(self, word: u64) -> Scalar {
        match self {
            Self::Bool => Scalar::Bool(word != 0),
            Self::Float16 => Scalar::Half(word as u16),
            Self::Float32 => Scalar::Float(f32::from_bits(word as u32).into()),
            Self::Float64 => Scalar::Float(f64::from_bits(word)),
            Self::UInt8 | Self::UInt16 | Self::UInt32 | Self::UInt64 => Scalar::UInt(word),
            _ => Scalar::Int(word as i64),
        }
    }

    pub(crate) const fn is_complex(self) -> bool {
        matches!(self, Self::Complex64 | Self::Complex128)
    }
}

/// The error is a type that programs do not take.
impl TryFrom<ElementType> for ScalarType {
    type Error = ElementType;

    fn try_from(element: ElementType) -> Result<Self, ElementType> {
        Ok(match element {
            ElementType::Bool => Self::Bool,
            ElementType::I8 => Self::Int8,
            ElementType::U8 => Self::UInt8,
            ElementType::I16 => Self::Int16,
            ElementType::U16 => Self::UInt16,
            ElementType::F16 => Self::Float16,
            ElementType::I32 => Self::Int32,
            ElementType::U32 => Self::UInt32,
            ElementType::F32 => Self::Float32,
            ElementType::I64 => Self::Int64,
            ElementType::U64 => Self::UInt64,
            ElementType::F64 => Self::Float64,
            ElementType::C64 => Self::Complex64,
            ElementType::C128 => Self::Complex128,
            other => return Err(other),
        })
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
        })
    }
}

/// A number as it is given to a call. It need not have the type of the C argument: the call converts it if that changes no
/// integer.
///
/// ```
/// use halocline_program::Scalar;
///
/// assert_eq!(Scalar::from(3), Scalar::Int(3));
/// assert_eq!(Scalar::from(3u8), Scalar::UInt(3));
/// assert_eq!(Scalar::from(0.5f32), Scalar::Float(0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// `true` or `false`; 1 or 0 as a number.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// The bits of a float16.
    Half(u16),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::UInt(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Half(bits) => write!(f, "{}", f64_of_half(*bits)),
        }
    }
}

macro_rules! from {
    ($($variant:ident($wide:ty): $($narrow:ty)*;)*) => {$($(
        impl From<$narrow> for Scalar {
            fn from(value: $narrow) -> Self {
                Self::$variant(<$wide>::from(value))
            }
        }
    )*)*};
}
from! {
    Bool(bool): bool;
    Int(i64): i8 i16 i32 i64;
    UInt(u64): u8 u16 u32 u64;
    Float(f64): f32 f64;
}

/// Why a number cannot be passed as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It has a fraction, or is no finite number, and an integer is needed.
    NotIntegral,
    /// The type has no such value.
    OutOfRange,
    /// A number for a `bool` that is neither 0 nor 1.
    NotBool,
}

impl Scalar {
    /// The register or stack word of the C argument: integers extended to 64 bits by their sign, floats in the low bits.
    #[inline]
    pub(crate) fn encode(self, to: ScalarType) -> Result<u64, Unfit> {
        match (to, self) {
            (ScalarType::Float64, Self::Float(value)) => Ok(value.to_bits()),
            (ScalarType::Float16, Self::Half(bits)) => Ok(u64::from(bits)),
            (ScalarType::Float64, _) => self.as_float().map(f64::to_bits),
            (ScalarType::Float32, Self::Int(_) | Self::UInt(_)) => {
                let float = self.as_float()?;
                if f64::from(float as f32) == float { encode_f32(float) } else { Err(Unfit::OutOfRange) }
            }
            (ScalarType::Float16, Self::Int(_) | Self::UInt(_)) => {
                let float = self.as_float()?;
                let bits = half_of(float)?;
                if f64_of_half(bits as u16) == float { Ok(bits) } else { Err(Unfit::OutOfRange) }
            }
            (ScalarType::Float32, _) => self.as_float().and_then(encode_f32),
            (ScalarType::Float16, _) => self.as_float().and_then(half_of),
            (ScalarType::Bool, _) => match self.as_integer() {
                Ok(value @ 0..=1) => Ok(value as u64),
                _ => Err(Unfit::NotBool),
            },
            _ => self.encode_integer(to),
        }
    }

    fn encode_integer(self, to: ScalarType) -> Result<u64, Unfit> {
        let value = self.as_integer()?;
        match to.integer_range() {
            Some((low, high)) if (low..=high).contains(&value) => Ok(value as u64),
            _ => Err(Unfit::OutOfRange),
        }
    }

    fn as_integer(self) -> Result<i128, Unfit> {
        let float = match self {
            Self::Bool(value) => return Ok(i128::from(value)),
            Self::Int(value) => return Ok(i128::from(value)),
            Self::UInt(value) => return Ok(i128::from(value)),
            Self::Float(value) => value,
            Self::Half(bits) => f64_of_half(bits),
        };
        // Larger ones saturate, and are out of the range of every type.
        if float.is_finite() && float.fract() == 0.0 { Ok(float as i128) } else { Err(Unfit::NotIntegral) }
    }

    /// Integers that a float64 cannot represent are out of range.
    fn as_float(self) -> Result<f64, Unfit> {
        match self {
            Self::Float(value) => Ok(value),
            Self::Half(bits) => Ok(f64_of_half(bits)),
            _ => {
                let integer = self.as_integer()?;
                let float = integer as f64;
                if float as i128 == integer { Ok(float) } else { Err(Unfit::OutOfRange) }
            }
        }
    }

    /// The value of this type that lies at an address.
    ///
    /// # Safety
    /// The memory is of the host, readable, and holds a value of the type.
    pub(crate) unsafe fn read(address: *const u8, of: ScalarType) -> Option<Self> {
        macro_rules! value {
            ($t:ty) => {
                // SAFETY: the caller promises a readable value of this type.
                unsafe { address.cast::<$t>().read_unaligned() }
            };
        }
        Some(match of {
            ScalarType::Bool => Self::Bool(value!(u8) != 0),
            ScalarType::Int8 => value!(i8).into(),
            ScalarType::Int16 => value!(i16).into(),
            ScalarType::Int32 => value!(i32).into(),
            ScalarType::Int64 => value!(i64).into(),
            ScalarType::UInt8 => value!(u8).into(),
            ScalarType::UInt16 => value!(u16).into(),
            ScalarType::UInt32 => value!(u32).into(),
            ScalarType::UInt64 => value!(u64).into(),
            ScalarType::Float16 => Self::Half(value!(u16)),
            ScalarType::Float32 => value!(f32).into(),
            ScalarType::Float64 => value!(f64).into(),
            ScalarType::Complex64 | ScalarType::Complex128 => return None,
        })
    }
}

/// Rounds to the nearest float32. A finite number that becomes infinite is out of range.
fn encode_f32(value: f64) -> Result<u64, Unfit> {
    let rounded = value as f32;
    if rounded.is_infinite() && value.is_finite() {
        return Err(Unfit::OutOfRange);
    }
    Ok(u64::from(rounded.to_bits()))
}

/// Rounds to the nearest float16, ties to even. A finite number that becomes infinite is out of range.
fn half_of(value: f64) -> Result<u64, Unfit> {
    let sign = u64::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    if value.is_nan() {
        return Ok(sign | 0x7e00);
    }
    if value.is_infinite() {
        return Ok(sign | 0x7c00);
    }
    // The distance of neighbouring float16 values at this magnitude: 2^-24 below 2^-14.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
    let units = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() as u64;
    // The units carry into the exponent when they round up to 2048.
    let bits = if exponent == -14 { units } else { ((exponent + 14) as u64) * 1024 + units };
    if bits >= 0x7c00 { Err(Unfit::OutOfRange) } else { Ok(sign | bits) }
}

fn f64_of_half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float16_survives_the_way_over_float64() {
        for bits in 0..=u16::MAX {
            let value = f64_of_half(bits);
            let back = half_of(value).unwrap() as u16;
            assert!(
                back == bits || value.is_nan() && back & 0x7fff == 0x7e00,
                "{bits:#x}: {value}, {back:#x}"
            );
        }
    }

    #[test]
    fn halves_round_to_even_and_refuse_what_is_too_large() {
        // Neighbours of 1: 2^-10 apart.
        assert_eq!(half_of(1.0 + 2f64.powi(-11)), Ok(0x3c00));
        assert_eq!(half_of(1.0 + 3.0 * 2f64.powi(-11)), Ok(0x3c02));
        assert_eq!(half_of(2047.9), Ok(0x6800));
        assert_eq!(half_of(65519.9), Ok(0x7bff));
        assert_eq!(half_of(65520.0), Err(Unfit::OutOfRange));
        assert_eq!(half_of(2f64.powi(-25)), Ok(0));
        assert_eq!(half_of(-1.6 * 2f64.powi(-25)), Ok(0x8001));
    }

    #[test]
    fn numbers_convert_only_if_no_integer_changes() {
        let encode = |value: Scalar, to| value.encode(to);
        assert_eq!(encode(3.7.into(), ScalarType::Int32), Err(Unfit::NotIntegral));
        assert_eq!(encode(f64::NAN.into(), ScalarType::Int64), Err(Unfit::NotIntegral));
        assert_eq!(encode(3.0.into(), ScalarType::Int32), Ok(3));
        assert_eq!(encode((-1).into(), ScalarType::Int8), Ok(u64::MAX));
        assert_eq!(encode(128.into(), ScalarType::Int8), Err(Unfit::OutOfRange));
        assert_eq!(encode((-1).into(), ScalarType::UInt64), Err(Unfit::OutOfRange));
        assert_eq!(encode(u64::MAX.into(), ScalarType::UInt64), Ok(u64::MAX));
        assert_eq!(encode(1e300.into(), ScalarType::UInt64), Err(Unfit::OutOfRange));
        assert_eq!(encode(1e300.into(), ScalarType::Float32), Err(Unfit::OutOfRange));
        assert_eq!(encode(f64::INFINITY.into(), ScalarType::Float32), Ok(u64::from(f32::INFINITY.to_bits())));
        assert_eq!(encode(i64::MAX.into(), ScalarType::Float64), Err(Unfit::OutOfRange));
        assert_eq!(encode(2.into(), ScalarType::Bool), Err(Unfit::NotBool));
        assert_eq!(encode(true.into(), ScalarType::Int32), Ok(1));
    }
}
