//! The binding plan of a signature: compiled once, immutable, used by every call.
//!
//! A call works on a list of 64-bit words. The first are the frame of the C function ([`crate::stub`]), so that a value is
//! written where the function takes it. Behind it are the symbols that only checks or `init` need.

mod bind;
mod compile;
mod failure;

use crate::expression::Expression;
use crate::signature::{Access, DeviceKind};
use crate::{Given, ScalarType};
pub(crate) use bind::Bound;

/// The compiled signature.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) program: Box<str>,
    pub(crate) arguments: Box<[ArgumentPlan]>,
    /// Checks that need the values of symbols.
    checks: Box<[Check]>,
    /// Optional scalars: arguments whose slots follow from the arrays.
    optional: Box<[usize]>,
    /// Parameters that are named twice.
    copies: Box<[Copied]>,
    /// The parameters of `init`.
    pub(crate) init: Box<[InitParameter]>,
    /// The word of the parameter that takes the stream.
    pub(crate) stream: Option<usize>,
    /// Words of the frame.
    pub(crate) frame_words: usize,
    /// Words of a call: the frame, then further slots.
    pub(crate) words: usize,
}

/// A word of the frame that repeats the value of a slot.
#[derive(Debug)]
struct Copied {
    slot: usize,
    word: usize,
}

/// One argument by its position, and its checks and conversions.
#[derive(Debug)]
pub(crate) struct ArgumentPlan {
    pub(crate) name: Box<str>,
    pub(crate) slot: usize,
    pub(crate) kind: ArgumentKind,
}

#[derive(Debug)]
pub(crate) enum ArgumentKind {
    Array(ArrayPlan),
    /// `has_dependents`: checks or `init` need the value.
    Scalar {
        scalar: ScalarType,
        is_optional: bool,
        has_dependents: bool,
    },
}

#[derive(Debug)]
pub(crate) struct ArrayPlan {
    pub(crate) element: ScalarType,
    pub(crate) device: DeviceKind,
    pub(crate) access: Access,
    pub(crate) dimensions: usize,
    /// Names of the dimensions, for messages; empty without one.
    pub(crate) names: Box<[Box<str>]>,
    /// The rules for each extent, bound and stride.
    rules: Box<[Rule]>,
}

#[derive(Debug, Clone)]
struct Rule {
    dimension: usize,
    part: Part,
    action: Action,
}

/// A number that belongs to a dimension of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Extent,
    Start,
    Stop,
    /// In elements.
    Stride,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Extent => "extent",
            Self::Start => "first index",
            Self::Stop => "end index",
            Self::Stride => "element stride",
        }
    }
}

#[derive(Debug, Clone)]
enum Action {
    /// Gives a symbol its value, which its type can hold if it is in this range.
    Define { slot: usize, low: i64, high: i64, symbol: Box<str> },
    /// It is this.
    Constant(i64),
}

/// A check with symbols.
#[derive(Debug)]
struct Check {
    argument: usize,
    relation: Relation,
}

#[derive(Debug)]
enum Relation {
    /// A part of this dimension is equal to the expression.
    Equal(usize, Part, Expression),
    /// The array has these indices, unless a range of `over` is empty.
    Covers { sides: Box<[Side]>, over: Box<[Span]> },
}

/// The indices of one dimension.
#[derive(Debug)]
struct Side {
    dimension: usize,
    span: Span,
}

/// Integers from the first to the end, without it.
#[derive(Debug)]
struct Span {
    first: Expression,
    end: Expression,
}

#[derive(Debug)]
pub(crate) struct InitParameter {
    pub(crate) name: Box<str>,
    pub(crate) slot: usize,
    pub(crate) scalar: ScalarType,
    /// Its word in the frame of `init`.
    pub(crate) word: usize,
}

impl Plan {
    /// The position of an argument.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.arguments.iter().position(|argument| *argument.name == *name)
    }

    /// Words of the stack of the C function.
    pub(crate) fn stack_words(&self) -> usize {
        self.frame_words - crate::stub::REGISTERS
    }

    /// Whether other words of the frame repeat a slot.
    pub(crate) fn is_repeated(&self, slot: usize) -> bool {
        self.copies.iter().any(|copied| copied.slot == slot)
    }

    /// Whether arguments may be left out from this one on.
    fn may_end_at(&self, given: &[Given<'_>]) -> bool {
        let rest = self.arguments.get(given.len()..).unwrap_or_default();
        rest.iter().all(|argument| matches!(argument.kind, ArgumentKind::Scalar { is_optional: true, .. }))
    }
}

/// The words of a call, as values.
pub(crate) struct Slots<'a>(&'a mut [u64]);

impl<'a> Slots<'a> {
    pub(crate) fn new(words: &'a mut [u64]) -> Self {
        Self(words)
    }

    #[inline]
    pub(crate) fn integer(&self, slot: usize) -> i64 {
        self.0[slot] as i64
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: usize, word: u64) {
        self.0[slot] = word;
    }
}
