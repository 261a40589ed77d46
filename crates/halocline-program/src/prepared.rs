//! A call whose arguments are checked once.

use crate::Program;
use crate::error::ProgramError;
use crate::given::{ArrayView, Given};
use crate::plan::ArgumentKind;
use crate::scalar::Scalar;

/// A call that is ready: it borrows the arrays, and calls the program as often as is wanted. Each thread prepares, or clones, its own.
///
///     # use halocline_program::{Given, Prepared, Program, ProgramError};
///     fn steps(program: &Program, given: &[Given<'_>], times: &[f64]) -> Result<(), ProgramError> {
///         let mut call = program.prepare(given)?;
///         let time = program.position("time")?;
///         for now in times {
///             call.set(time, *now)?;
///             call.call()?;
///         }
///         Ok(())
///     }
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    program: &'a Program,
    words: Box<[u64]>,
    given: Box<[Owned<'a>]>,
}

/// What was given, with extents and strides of its own.
#[derive(Clone, Debug)]
enum Owned<'a> {
    Array { view: ArrayView<'a>, extents: Box<[isize]>, strides: Box<[isize]>, origin: Box<[isize]> },
    Other(Option<Scalar>),
}

impl<'a> Owned<'a> {
    fn of(given: &Given<'a>) -> Self {
        match given {
            Given::Array(view) => Self::Array {
                view: ArrayView { extents: &[], strides: &[], origin: &[], ..*view },
                extents: view.extents.into(),
                strides: view.strides.into(),
                origin: view.origin.into(),
            },
            Given::Scalar(value) => Self::Other(Some(*value)),
            Given::Absent => Self::Other(None),
        }
    }

    fn as_given(&self) -> Given<'_> {
        match self {
            Self::Array { view, extents, strides, origin } => {
                Given::Array(ArrayView { extents, strides, origin, ..*view })
            }
            Self::Other(Some(value)) => Given::Scalar(*value),
            Self::Other(None) => Given::Absent,
        }
    }
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(program: &'a Program, given: &[Given<'a>]) -> Result<Self, ProgramError> {
        let mut words = vec![0; program.plan.words].into_boxed_slice();
        program.plan.bind(given, &mut words)?;
        Ok(Self { program, words, given: given.iter().map(Owned::of).collect() })
    }

    /// Calls the program.
    #[inline]
    pub fn call(&mut self) -> Result<(), ProgramError> {
        self.program.run(&mut self.words)
    }

    /// Changes a scalar for the calls that follow. If it is refused, the calls keep the value before.
    pub fn set(&mut self, position: usize, value: impl Into<Scalar>) -> Result<(), ProgramError> {
        self.set_scalar(position, value.into())
    }

    fn set_scalar(&mut self, position: usize, value: Scalar) -> Result<(), ProgramError> {
        let plan = &self.program.plan;
        let Some(argument) = plan.arguments.get(position) else {
            return Err(ProgramError::Unknown {
                program: self.program.name().into(),
                argument: position.to_string().into(),
                arguments: plan.list(),
            });
        };
        let ArgumentKind::Scalar { scalar, is_optional, has_dependents } = argument.kind else {
            return Err(ProgramError::PreparedArray {
                program: self.program.name().into(),
                argument: argument.name.clone(),
            });
        };
        if is_optional || has_dependents || plan.is_repeated(argument.slot) {
            return self.bind_again(position, value);
        }
        self.words[argument.slot] = plan.encoded(argument, value, scalar)?;
        self.given[position] = Owned::Other(Some(value));
        Ok(())
    }

    /// Checks everything with another value at one position.
    fn bind_again(&mut self, position: usize, value: Scalar) -> Result<(), ProgramError> {
        let mut given: Vec<Given<'_>> = self.given.iter().map(Owned::as_given).collect();
        if given.len() <= position {
            given.resize(position + 1, Given::Absent);
        }
        given[position] = Given::Scalar(value);
        let mut words = vec![0; self.words.len()].into_boxed_slice();
        self.program.plan.bind(&given, &mut words)?;
        drop(given);
        self.words = words;
        let mut owned = std::mem::take(&mut self.given).into_vec();
        owned.resize(owned.len().max(position + 1), Owned::Other(None));
        owned[position] = Owned::Other(Some(value));
        self.given = owned.into();
        Ok(())
    }
}
