//! A call whose arguments are checked once.

use crate::Program;
use crate::arguments::{ArrayView, Given};
use crate::error::ProgramError;
use crate::on_stream::OnStream;
use crate::plan::ArgumentKind;
use crate::scalar::Scalar;
use halocline_device::Stream;

/// A call that is ready: it borrows the arrays, and calls the program as often as is wanted. Each thread prepares, or clones, its own.
///
/// ```
/// use halocline_program::{ArrayView, Program};
///
/// # let folder = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/libraries.rs"));
/// # let library = folder.path().join("libscale.so");
/// // In C: void scale(double *a, int n, double factor)
/// // SAFETY: the library was built with the manifest beside it.
/// let program = unsafe { Program::load(&library) }?;
/// let mut a = [1.0, 2.0];
/// let view = ArrayView::contiguous(&mut a, &[2], &[]).ok_or("not the size of the array")?;
/// let mut call = program.prepare(&[view.into(), 1.0.into()])?;
/// let factor = program.position("factor")?;
/// for value in [3.0, 0.5] {
///     call.set(factor, value)?;
///     call.call()?;
/// }
/// assert_eq!(a, [1.5, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    program: &'a Program,
    words: Box<[u64]>,
    /// The GPU of its arrays.
    gpu: Option<u32>,
    given: Box<[Owned<'a>]>,
}

/// An argument with its own copy of extents and strides.
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
        let mut gpu = None;
        program.plan.bind(given, &mut gpu, &mut words)?;
        Ok(Self { program, words, gpu, given: given.iter().map(Owned::of).collect() })
    }

    /// Calls the program, as [`Program::call`] does.
    #[inline]
    pub fn call(&mut self) -> Result<(), ProgramError> {
        self.program.run(&mut self.words)
    }

    /// Calls the program in the order of a stream, as [`Program::call_on`] does.
    ///
    /// # Safety
    /// The arrays stay valid, and nothing else accesses them, until the stream has passed the call: as [`Program::call_on`] demands.
    pub unsafe fn call_on<'s>(&mut self, stream: impl Into<OnStream<'s>>) -> Result<(), ProgramError> {
        let on = stream.into();
        self.check_gpu(on.stream())?;
        self.program.run_on(&on, &mut self.words)
    }

    /// Makes the state for calls on a stream, if the program needs one that it does not have: so that the first call does not wait for the
    /// device, and can be captured.
    pub fn make_state_on(&mut self, stream: &Stream) -> Result<(), ProgramError> {
        self.check_gpu(stream)?;
        self.program.make_state_on(stream, &self.words)
    }

    /// Refuses a stream of another GPU than the arrays'.
    fn check_gpu(&mut self, stream: &Stream) -> Result<(), ProgramError> {
        let gpu = stream.device().ordinal();
        match self.gpu {
            // Finds the array that is elsewhere.
            Some(other) if other != gpu => self.bind_with(|_| (), Some(gpu)),
            _ => Ok(()),
        }
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
        let change = |given: &mut Vec<Given<'_>>| {
            if given.len() <= position {
                given.resize(position + 1, Given::Absent);
            }
            given[position] = Given::Scalar(value);
        };
        self.bind_with(change, self.gpu)?;
        let mut owned = std::mem::take(&mut self.given).into_vec();
        owned.resize(owned.len().max(position + 1), Owned::Other(None));
        owned[position] = Owned::Other(Some(value));
        self.given = owned.into();
        Ok(())
    }

    /// Checks everything after a change, for a GPU if there is one.
    fn bind_with(
        &mut self,
        change: impl FnOnce(&mut Vec<Given<'_>>),
        mut gpu: Option<u32>,
    ) -> Result<(), ProgramError> {
        let mut given: Vec<Given<'_>> = self.given.iter().map(Owned::as_given).collect();
        change(&mut given);
        let mut words = vec![0; self.words.len()].into_boxed_slice();
        self.program.plan.bind(&given, &mut gpu, &mut words)?;
        drop(given);
        self.words = words;
        Ok(())
    }
}
