//! The operations that combine halo cells with the owned cells that they copy.

use crate::ElementType;
use std::fmt;

/// How a reduce combines a halo cell with the owned cell that it copies: `owned = op(owned, halo)`.
///
/// | operation | element types |
/// | --- | --- |
/// | sum, product | integers, bool, float32, float64, complex |
/// | minimum, maximum | integers, bool, float32, float64 |
/// | and, or, xor | integers, bool |
/// | replace | all |
///
/// - Integers wrap: they are added and multiplied modulo two to the power of their bits. A bool is one bit, so its sum is xor and
///   its product is and.
/// - The minimum and maximum with a NaN is NaN. Of two equal values the owned one stays, also of -0 and +0.
/// - Of an integer, and, or and xor combine the bits.
///
/// ```
/// use halocline_plan::{ElementType, ReduceOp};
///
/// assert!(ReduceOp::Sum.supports(ElementType::F64));
/// assert!(!ReduceOp::Xor.supports(ElementType::F64));
/// assert_eq!(ReduceOp::from_name("max"), Some(ReduceOp::Max));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Bits that are set in both.
    And,
    /// Bits that are set in either.
    Or,
    /// Bits that are set in exactly one.
    Xor,
    /// The halo cell's value. Of several halo cells, the last in the order of their domains' numbers.
    Replace,
}

impl ReduceOp {
    /// All operations.
    pub const ALL: [Self; 8] =
        [Self::Sum, Self::Product, Self::Min, Self::Max, Self::And, Self::Or, Self::Xor, Self::Replace];

    /// A stable number for messages between ranks, from 1.
    pub const fn code(self) -> u64 {
        self as u64 + 1
    }

    /// The operation of a [`ReduceOp::code`], `None` for an invalid number.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == code)
    }

    /// Its name: `sum`, `product`, `min`, `max`, `and`, `or`, `xor` or `replace`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
            Self::Replace => "replace",
        }
    }

    /// The operation of a [`ReduceOp::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether it combines elements of this type.
    pub const fn supports(self, element: ElementType) -> bool {
        use ElementType as E;
        match (self, element) {
            (Self::Replace, _) => true,
            (_, E::F16 | E::Bf16 | E::Opaque(_)) => false,
            (Self::Sum | Self::Product, _) => true,
            (Self::Min | Self::Max, E::C64 | E::C128) => false,
            (Self::Min | Self::Max, _) => true,
            (Self::And | Self::Or | Self::Xor, E::F32 | E::F64 | E::C64 | E::C128) => false,
            (Self::And | Self::Or | Self::Xor, _) => true,
        }
    }

    /// The names of the operations that an element type supports, as text.
    pub fn names_for(element: ElementType) -> String {
        let names = Self::ALL.iter().filter(|op| op.supports(element)).map(|op| op.name());
        names.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_lead_back_to_their_operations() {
        for op in ReduceOp::ALL {
            assert_eq!(
                (ReduceOp::from_code(op.code()), ReduceOp::from_name(op.name())),
                (Some(op), Some(op))
            );
        }
        assert_eq!(
            (ReduceOp::from_code(0), ReduceOp::from_code(9), ReduceOp::from_name("add")),
            (None, None, None)
        );
    }
}
