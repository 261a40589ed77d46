//! A loaded program: a library's function, its plan and its states.

use crate::arguments::Given;
use crate::error::ProgramError;
use crate::library::Library;
use crate::on_stream::StreamResources;
use crate::plan::{ArgumentKind, Bound, Plan};
use crate::prepared::Prepared;
use crate::signature::{Interface, Returns, Signature, Streams};
use crate::state::{Lifecycle, States};
use crate::stub;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

/// A compiled program that can be called. Several of one library have states of their own and share nothing else.
///
/// Threads may call at the same time: each call has its own frame, and a state that no other call uses.
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
/// // `n` follows from the extent of the array.
/// program.call(&[view.into(), 0.5.into()])?;
/// assert_eq!(a, [0.5, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Program {
    signature: Signature,
    pub(crate) plan: Plan,
    function: *const c_void,
    pub(crate) states: Option<States>,
    pub(crate) streams: Option<Streams>,
    pub(crate) resources: StreamResources,
    library: Arc<Library>,
}

// SAFETY: the address is of a function of a library that stays open; the states are `Send` and `Sync`.
unsafe impl Send for Program {}
// SAFETY: no field changes after the construction; the states, which change, are `Sync`.
unsafe impl Sync for Program {}

impl Program {
    /// Loads a library and the manifest beside it (`libheat.so.json` for `libheat.so`). A state without symbols is made at once, unless the
    /// program uses streams of a GPU.
    ///
    /// # Safety
    /// The library does what its manifest says: its function takes these parameters and accesses no memory of the arrays outside of
    /// the extents and bounds that the manifest demands. Its functions may run in several threads, each with a state of its own.
    pub unsafe fn load(library: impl AsRef<Path>) -> Result<Self, ProgramError> {
        let signature = Signature::beside(library.as_ref())?;
        // SAFETY: the caller vouches for the library.
        unsafe { Self::with_signature(library, signature) }
    }

    /// Loads a library with a signature.
    ///
    /// # Safety
    /// The library does what the signature says: its function takes these parameters and accesses no memory of the arrays outside of the
    /// extents and bounds that the signature demands. Its functions may run in several threads, each with a state of its own.
    pub unsafe fn with_signature(
        library: impl AsRef<Path>,
        signature: Signature,
    ) -> Result<Self, ProgramError> {
        let plan = Plan::compile(&signature)?;
        // SAFETY: the caller vouches for the library.
        let library = unsafe { Library::open(library.as_ref()) }?;
        signature.build_id.as_deref().map_or(Ok(()), |expected| library.check_build(expected))?;
        let name = &signature.program;
        let (function, states) = match signature.interface {
            Interface::C => (library.need(signature.symbol.as_ref().unwrap_or(name), name)?, None),
            Interface::DaCe => {
                let function = library.need(&format!("__program_{name}"), name)?;
                (function, Some(States::new(Lifecycle::of(&library, &signature)?)))
            }
        };
        let streams = match &states {
            Some(states) => states.lifecycle().setters.streams,
            None => signature.streams.or(signature.stream.as_ref().map(|_| Streams::Caller)),
        };
        let resources = StreamResources::default();
        let program = Self { signature, plan, function, states, streams, resources, library };
        // A state of a GPU is made once it is known which.
        if let (Some(states), true, None) = (&program.states, program.plan.init.is_empty(), streams) {
            drop(states.acquire(&program.plan, &[])?);
        }
        Ok(program)
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.signature.program
    }

    /// The signature that it was loaded with.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The path of the library, without links.
    pub fn library(&self) -> &Path {
        &self.library.path
    }

    /// The build id of the library, which the linker made: 40 hexadecimal digits for most. A manifest with it fits this build alone.
    pub fn build_id(&self) -> Option<&str> {
        self.library.build_id.as_deref()
    }

    /// How many states were made: one for each set of values of the symbols of `init`, and for each call at the same time.
    pub fn states(&self) -> usize {
        self.states.as_ref().map_or(0, States::count)
    }

    /// The position of an argument in the list of a call.
    pub fn position(&self, argument: &str) -> Result<usize, ProgramError> {
        self.plan.position(argument).ok_or_else(|| ProgramError::Unknown {
            program: self.name().into(),
            argument: argument.into(),
            arguments: self.plan.list(),
        })
    }

    /// Whether an argument is an array.
    pub fn is_array(&self, position: usize) -> bool {
        let argument = self.plan.arguments.get(position);
        argument.is_some_and(|argument| matches!(argument.kind, ArgumentKind::Array(_)))
    }

    /// Checks the arguments and calls the program. It returns when the program does. A program of a GPU's streams is refused: it would
    /// go on after that ([`Program::call_on`]).
    pub fn call(&self, given: &[Given<'_>]) -> Result<(), ProgramError> {
        self.plan.with_words(given, None, |Bound { words }| self.run(words))
    }

    /// Checks the arguments, then passes a closure that calls the program to `around`: to release a lock during the call alone.
    pub fn call_within<R>(
        &self,
        given: &[Given<'_>],
        around: impl FnOnce(&mut (dyn FnMut() -> Result<(), ProgramError> + Send)) -> R,
    ) -> Result<R, ProgramError> {
        self.plan.with_words(given, None, |Bound { words }| Ok(around(&mut || self.run(words))))
    }

    /// Checks the arguments once, for many calls.
    pub fn prepare<'a>(&'a self, given: &[Given<'a>]) -> Result<Prepared<'a>, ProgramError> {
        Prepared::new(self, given)
    }

    /// Calls the program with bound words.
    #[inline]
    pub(crate) fn run(&self, words: &mut [u64]) -> Result<(), ProgramError> {
        if self.streams.is_some() {
            return Err(ProgramError::NeedsStream { program: self.name().into() });
        }
        let Some(states) = &self.states else { return self.jump(words) };
        let state = states.acquire(&self.plan, words)?;
        words[0] = state.handle().expose_provenance() as u64;
        self.jump(words)?;
        match states.lifecycle().last_error {
            Some(last_error) => self.check_last_error(last_error, state.handle()),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn jump(&self, words: &[u64]) -> Result<(), ProgramError> {
        // SAFETY: the plan placed the words for the function's parameters and checked them; the caller that loaded the program
        // vouches for the rest. The words of the frame come first.
        let result = unsafe { stub::jump(words.as_ptr(), self.plan.stack_words(), self.function) };
        match (self.signature.returns, result as c_int) {
            (Returns::Nothing, _) | (_, 0) => Ok(()),
            (Returns::Status, status) => Err(ProgramError::Status { program: self.name().into(), status }),
        }
    }

    pub(crate) fn check_last_error(
        &self,
        function: *const c_void,
        state: *mut c_void,
    ) -> Result<(), ProgramError> {
        // SAFETY: the symbol is DaCe's `__dace_gpu_last_error`, which has this type.
        let function: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(function) };
        // SAFETY: the state is in use by this call alone.
        match unsafe { function(state) } {
            0 => Ok(()),
            code => Err(ProgramError::LastError { program: self.name().into(), code }),
        }
    }
}
