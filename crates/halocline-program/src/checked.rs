//! Calls whose arguments were checked before, made again without checking them: for the Python interface alone.

use crate::Program;
use crate::arguments::Given;
use crate::error::ProgramError;
use crate::plan::{ArgumentKind, Plan};
use crate::scalar::Scalar;
use std::mem::MaybeUninit;

/// The arguments of a call, checked and placed. It holds no array, so that its user says when they are still there.
#[derive(Debug, Clone)]
pub struct CheckedCall {
    words: Box<[u64]>,
}

/// The words of one call, in which scalars may change.
pub struct Words<'a> {
    plan: &'a Plan,
    words: &'a mut [u64],
}

/// Words of a call that need no memory of the heap.
const INLINE: usize = 256;

impl Words<'_> {
    /// Changes a scalar for which [`Program::is_independent`] holds.
    #[inline]
    pub fn set(&mut self, position: usize, value: Scalar) -> Result<(), ProgramError> {
        let argument = &self.plan.arguments[position];
        if let ArgumentKind::Scalar { scalar, .. } = argument.kind {
            self.words[argument.slot] = self.plan.encoded(argument, value, scalar)?;
        }
        Ok(())
    }
}

impl Program {
    /// Checks the arguments of a call.
    #[doc(hidden)]
    pub fn check(&self, given: &[Given<'_>]) -> Result<CheckedCall, ProgramError> {
        let mut words = vec![0; self.plan.words].into_boxed_slice();
        self.plan.bind(given, &mut None, &mut words)?;
        Ok(CheckedCall { words })
    }

    /// Whether an argument is a scalar on which nothing else depends: no bound, no symbol, no state.
    #[doc(hidden)]
    pub fn is_independent(&self, position: usize) -> bool {
        let argument = self.plan.arguments.get(position);
        argument.is_some_and(|argument| {
            let is_independent = |kind: &ArgumentKind| {
                matches!(kind, ArgumentKind::Scalar { is_optional: false, has_dependents: false, .. })
            };
            is_independent(&argument.kind) && !self.plan.is_repeated(argument.slot)
        })
    }

    /// The C value of a number for a scalar argument, `None` for another argument. Fails if the type of the argument cannot hold the number.
    #[doc(hidden)]
    pub fn encoded(&self, position: usize, value: Scalar) -> Result<Option<u64>, ProgramError> {
        let Some(argument) = self.plan.arguments.get(position) else { return Ok(None) };
        match argument.kind {
            ArgumentKind::Scalar { scalar, .. } => self.plan.encoded(argument, value, scalar).map(Some),
            _ => Ok(None),
        }
    }

    /// Calls the program with arguments that were checked. `change` may set scalars; `around` gets the closure that calls the program, to
    /// release a lock during the call alone.
    ///
    /// # Safety
    /// The call was checked by this program, and its arrays have the memory, extents and strides that they had then.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn call_checked<R>(
        &self,
        call: &CheckedCall,
        change: impl FnOnce(&mut Words<'_>) -> Result<(), ProgramError>,
        around: impl FnOnce(&mut (dyn FnMut() -> Result<(), ProgramError> + Send)) -> R,
    ) -> Result<R, ProgramError> {
        let mut inline = [const { MaybeUninit::<u64>::uninit() }; INLINE];
        let mut heap;
        let words: &mut [u64] = match inline.get_mut(..call.words.len()) {
            Some(inline) => {
                for (to, from) in inline.iter_mut().zip(&call.words) {
                    to.write(*from);
                }
                // SAFETY: the loop wrote all words of this slice, which has as many as the call.
                unsafe { std::slice::from_raw_parts_mut(inline.as_mut_ptr().cast(), call.words.len()) }
            }
            None => {
                heap = call.words.clone();
                &mut heap
            }
        };
        change(&mut Words { plan: &self.plan, words })?;
        Ok(around(&mut || self.run(words)))
    }
}
