//! The states of a program: what DaCe's `init` returns, one for each call at a time and each set of values of its symbols.

use crate::error::ProgramError;
use crate::library::Library;
use crate::plan::{InitParameter, Plan};
use crate::stub;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The functions that make and end states.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    init: *const c_void,
    init_symbol: String,
    exit: *const c_void,
    pub(crate) last_error: Option<*const c_void>,
}

// SAFETY: addresses of functions of a library that stays open.
unsafe impl Send for Lifecycle {}
// SAFETY: they are only read.
unsafe impl Sync for Lifecycle {}

impl Lifecycle {
    pub(crate) fn of(library: &Library, program: &str) -> Result<Self, ProgramError> {
        let init_symbol = format!("__dace_init_{program}");
        Ok(Self {
            init: library.need(&init_symbol, program)?,
            init_symbol,
            exit: library.need(&format!("__dace_exit_{program}"), program)?,
            last_error: library.find("__dace_gpu_last_error"),
        })
    }
}

/// The states of one program.
#[derive(Debug)]
pub(crate) struct States {
    lifecycle: Lifecycle,
    first: OnceLock<Box<Group>>,
    /// Held to make a group or a state.
    making: Mutex<()>,
    made: AtomicUsize,
}

/// The states that were made with the same symbols. Groups and states are only added until the program is dropped, so that a call finds
/// its state without a lock.
#[derive(Debug)]
struct Group {
    key: Box<[u64]>,
    first: State,
    next: OnceLock<Box<Group>>,
}

/// A state, used by one call at a time.
#[derive(Debug)]
struct State {
    handle: *mut c_void,
    is_busy: AtomicBool,
    next: OnceLock<Box<State>>,
}

// SAFETY: a state is a pointer that only the functions of its library use, one call at a time: `is_busy`.
unsafe impl Send for State {}
// SAFETY: `is_busy` lets one thread at a time use the handle.
unsafe impl Sync for State {}

/// A state that no other call uses until this is dropped.
pub(crate) struct InUse<'a>(&'a State);

impl InUse<'_> {
    pub(crate) fn handle(&self) -> *mut c_void {
        self.0.handle
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

impl State {
    /// The state itself, unless a call uses it. (An [`InUse`] that is made and not returned would release the state of the other call.)
    #[inline]
    fn take(&self) -> Option<InUse<'_>> {
        (!self.is_busy.swap(true, Ordering::Acquire)).then(|| InUse(self))
    }
}

impl States {
    pub(crate) fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, first: OnceLock::new(), making: Mutex::new(()), made: AtomicUsize::new(0) }
    }

    pub(crate) fn last_error(&self) -> Option<*const c_void> {
        self.lifecycle.last_error
    }

    /// How many states there are.
    pub(crate) fn count(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// A free state for the symbols in these words; makes one if there is none.
    #[inline]
    pub(crate) fn acquire(&self, plan: &Plan, words: &[u64]) -> Result<InUse<'_>, ProgramError> {
        let is_of =
            |group: &Group| plan.init.iter().zip(&group.key).all(|(init, key)| words[init.slot] == *key);
        let mut next = &self.first;
        while let Some(group) = next.get() {
            if is_of(group) {
                return match group.first.take() {
                    Some(state) => Ok(state),
                    None => self.acquire_another(plan, group),
                };
            }
            next = &group.next;
        }
        self.acquire_first(plan, words)
    }

    /// A free state of a group whose first is in use.
    #[cold]
    fn acquire_another<'a>(&'a self, plan: &Plan, group: &'a Group) -> Result<InUse<'a>, ProgramError> {
        let mut place = &group.first.next;
        loop {
            while let Some(state) = place.get() {
                if let Some(state) = state.take() {
                    return Ok(state);
                }
                place = &state.next;
            }
            let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            if place.get().is_none() {
                let handle = self.make(plan, &group.key)?;
                return Ok(InUse(place.get_or_init(|| Box::new(State::in_use(handle)))));
            }
        }
    }

    /// A free state for symbols that are new, unless another thread has just made their group.
    #[cold]
    fn acquire_first(&self, plan: &Plan, words: &[u64]) -> Result<InUse<'_>, ProgramError> {
        let key: Box<[u64]> = plan.init.iter().map(|init| words[init.slot]).collect();
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = &self.first;
        while let Some(group) = place.get() {
            if group.key == key {
                drop(making);
                return group.first.take().map_or_else(|| self.acquire_another(plan, group), Ok);
            }
            place = &group.next;
        }
        let handle = self.make(plan, &key)?;
        let made = || Box::new(Group { key, first: State::in_use(handle), next: OnceLock::new() });
        Ok(InUse(&place.get_or_init(made).first))
    }

    /// Calls `init`. The caller holds `making`.
    fn make(&self, plan: &Plan, key: &[u64]) -> Result<*mut c_void, ProgramError> {
        let last = plan.init.iter().map(|init| init.word + 1).max().unwrap_or(0);
        let stack_words = last.saturating_sub(stub::REGISTERS).next_multiple_of(8);
        let mut frame = vec![0; stub::REGISTERS + stack_words];
        for (init, word) in plan.init.iter().zip(key) {
            frame[init.word] = *word;
        }
        // SAFETY: the frame was placed for the parameters of `init`, which the loader of the program vouches for.
        let state = unsafe { stub::jump(frame.as_ptr(), stack_words, self.lifecycle.init) };
        if state == 0 {
            let shown =
                |(init, word): (&InitParameter, &u64)| format!("{}={}", init.name, init.scalar.shown(*word));
            return Err(ProgramError::Init {
                program: plan.program.clone(),
                symbol: self.lifecycle.init_symbol.as_str().into(),
                values: plan.init.iter().zip(key).map(shown).collect::<Vec<_>>().join(", ").into(),
            });
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(std::ptr::with_exposed_provenance_mut(state as usize))
    }
}

impl State {
    fn in_use(handle: *mut c_void) -> Self {
        Self { handle, is_busy: AtomicBool::new(true), next: OnceLock::new() }
    }
}

impl Drop for States {
    /// Ends all states.
    fn drop(&mut self) {
        // SAFETY: the symbol is DaCe's `exit`, which has this type.
        let exit: unsafe extern "C" fn(*mut c_void) -> c_int =
            unsafe { std::mem::transmute(self.lifecycle.exit) };
        let end = |handle: *mut c_void| {
            // SAFETY: `init` returned the handle, no call uses it, and it is ended once.
            let status = unsafe { exit(handle) };
            if status != 0 {
                tracing::warn!(status, init = self.lifecycle.init_symbol, "a program's exit failed");
            }
        };
        // Step by step: dropping a long list at once would recurse.
        let mut group = self.first.take();
        while let Some(mut this) = group {
            end(this.first.handle);
            let mut state = this.first.next.take();
            while let Some(mut this) = state {
                end(this.handle);
                state = this.next.take();
            }
            group = this.next.take();
        }
    }
}
