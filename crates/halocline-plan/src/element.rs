//! The type of one element of an array, beside its size.

use std::fmt;
use std::sync::Arc;

/// The type of one element. Exchange copies bytes and needs only the size. The type lets peers compare
/// their fields, and lets reductions add elements.
///
/// ```
/// use halocline_plan::ElementType;
///
/// assert_eq!(ElementType::C128.size(), 16);
/// assert_eq!(ElementType::F32.to_string(), "float32");
/// // A record of 12 bytes.
/// assert_eq!(ElementType::Opaque(12).size(), 12);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// One byte: 0 is false, everything else is true.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE 754 single precision.
    F32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 double precision.
    F64,
    /// Two [`ElementType::F32`].
    C64,
    /// Two [`ElementType::F64`].
    C128,
    /// Any other type of that many bytes, 1 to [`ElementType::MOST`]. Without a name ([`NamedElement`]) it is compatible with every type of that size.
    Opaque(u16),
}

impl ElementType {
    /// Maximum size of an element in bytes.
    pub const MOST: usize = 256;

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
            Self::Opaque(size) => size as usize,
        }
    }

    /// Bytes from one sign bit to the next, for floating-point numbers and the parts of complex ones; `None` for other
    /// types. In a negative number it is the highest bit of so many bytes.
    pub const fn sign_distance(self) -> Option<usize> {
        match self {
            Self::F16 | Self::Bf16 => Some(2),
            Self::F32 | Self::C64 => Some(4),
            Self::F64 | Self::C128 => Some(8),
            _ => None,
        }
    }

    /// A stable number for messages between ranks; [`ElementType::from_code`] is its inverse.
    pub const fn code(self) -> u16 {
        match self {
            Self::Bool => 1,
            Self::I8 => 2,
            Self::U8 => 3,
            Self::I16 => 4,
            Self::U16 => 5,
            Self::F16 => 6,
            Self::Bf16 => 7,
            Self::I32 => 8,
            Self::U32 => 9,
            Self::F32 => 10,
            Self::I64 => 11,
            Self::U64 => 12,
            Self::F64 => 13,
            Self::C64 => 14,
            Self::C128 => 15,
            Self::Opaque(size) => 0x100 + size,
        }
    }

    /// The type of an [`ElementType::code`], `None` for an invalid number.
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::Bool,
            2 => Self::I8,
            3 => Self::U8,
            4 => Self::I16,
            5 => Self::U16,
            6 => Self::F16,
            7 => Self::Bf16,
            8 => Self::I32,
            9 => Self::U32,
            10 => Self::F32,
            11 => Self::I64,
            12 => Self::U64,
            13 => Self::F64,
            14 => Self::C64,
            15 => Self::C128,
            0x101..=0x200 => Self::Opaque(code - 0x100),
            _ => return None,
        })
    }
}

impl ElementType {
    /// Copies handle elements of at most 16 bytes. A larger element is a row of equal units whose size
    /// divides it. Returns the type of a unit and the number of units.
    pub(crate) fn units(self) -> (Self, usize) {
        let size = self.size();
        if size <= 16 {
            return (self, 1);
        }
        let unit = 1 << size.trailing_zeros().min(4);
        (Self::Opaque(unit as u16), size / unit)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opaque(size) => write!(f, "{size} opaque bytes"),
            other => f.write_str(match other {
                Self::Bool => "bool",
                Self::I8 => "int8",
                Self::U8 => "uint8",
                Self::I16 => "int16",
                Self::U16 => "uint16",
                Self::F16 => "float16",
                Self::Bf16 => "bfloat16",
                Self::I32 => "int32",
                Self::U32 => "uint32",
                Self::F32 => "float32",
                Self::I64 => "int64",
                Self::U64 => "uint64",
                Self::F64 => "float64",
                Self::C64 => "complex64",
                _ => "complex128",
            }),
        }
    }
}

/// An element type and an optional name of its meaning (`datetime64[ms]`, the members of a record). Peers
/// compare both.
///
/// ```
/// use halocline_plan::{ElementType, NamedElement};
///
/// let named = |name: &str| NamedElement { element: ElementType::I64, name: Some(name.into()) };
/// let [milliseconds, days] = [named("datetime64[ms]"), named("datetime64[D]")];
/// let unnamed = NamedElement { element: ElementType::I64, name: None };
/// assert!(!milliseconds.fits(&days));
/// assert!(milliseconds.fits(&unnamed));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedElement {
    /// The type.
    pub element: ElementType,
    /// The name of its meaning, if given.
    pub name: Option<Arc<str>>,
}

impl NamedElement {
    /// Whether elements of one can be copied to elements of the other: equal types and, if both have names,
    /// equal names. An opaque type without a name is compatible with every type of its size.
    pub fn fits(&self, other: &Self) -> bool {
        fits((self.element, self.name.as_ref()), (other.element, other.name.as_ref()))
    }

    /// A 48-bit hash of the name, the same on all ranks; 0 without a name.
    pub fn digest(&self) -> u64 {
        let Some(name) = &self.name else { return 0 };
        // FNV-1a, folded.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        ((hash ^ hash >> 48) & 0xffff_ffff_ffff).max(1)
    }
}

/// As [`NamedElement::fits`], for names or their digests.
pub fn fits<N: PartialEq>(one: (ElementType, Option<N>), other: (ElementType, Option<N>)) -> bool {
    let is_any = |(element, name): &(ElementType, Option<N>)| {
        matches!(element, ElementType::Opaque(_)) && name.is_none()
    };
    match (&one.1, &other.1) {
        (Some(ours), Some(theirs)) => one.0 == other.0 && ours == theirs,
        _ => one.0 == other.0 || (one.0.size() == other.0.size() && (is_any(&one) || is_any(&other))),
    }
}

impl fmt::Display for NamedElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => self.element.fmt(f),
        }
    }
}
