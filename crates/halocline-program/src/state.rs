//! The states of a program: what DaCe's `init` returns, one for each call at a time and each set of values of its symbols. States of calls
//! on streams belong to a GPU, and to one stream until it has passed their last call.

use crate::call_stream::{CallStream, LastStream, Setters};
use crate::error::ProgramError;
use crate::in_flight;
use crate::library::Library;
use crate::plan::{InitParameter, Plan};
use crate::signature::Signature;
use crate::stub;
use halocline_device::Device;
use std::cell::UnsafeCell;
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
    /// Functions that set the streams of a state.
    pub(crate) setters: Setters,
}

// SAFETY: addresses of functions of a library that stays open.
unsafe impl Send for Lifecycle {}
// SAFETY: they are only read.
unsafe impl Sync for Lifecycle {}

impl Lifecycle {
    pub(crate) fn of(library: &Library, signature: &Signature) -> Result<Self, ProgramError> {
        let program = &*signature.program;
        let init_symbol = format!("__dace_init_{program}");
        Ok(Self {
            init: library.need(&init_symbol, program)?,
            init_symbol,
            exit: library.need(&format!("__dace_exit_{program}"), program)?,
            last_error: library.find("__dace_gpu_last_error"),
            setters: Setters::of(library, signature)?,
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

/// The states that were made with the same symbols for the same GPU. Groups and states are only added until the program is dropped, so
/// that a call finds its state without a lock.
#[derive(Debug)]
struct Group {
    key: Box<[u64]>,
    /// The GPU of its states; none for calls without a stream.
    device: Option<Device>,
    first: State,
    next: OnceLock<Box<Group>>,
}

/// A state, used by one call at a time.
#[derive(Debug)]
struct State {
    handle: *mut c_void,
    is_busy: AtomicBool,
    /// The handle of the stream that used it last, plus one: so that calls of other streams leave it alone.
    stream: AtomicUsize,
    last: UnsafeCell<LastStream>,
    next: OnceLock<Box<State>>,
}

// SAFETY: a state is a pointer that only the functions of its library use, one call at a time: `is_busy`.
unsafe impl Send for State {}
// SAFETY: `is_busy` lets one thread at a time use the handle and `last`.
unsafe impl Sync for State {}

/// A state that no other call uses until this is dropped.
pub(crate) struct InUse<'a>(&'a State);

impl InUse<'_> {
    pub(crate) fn handle(&self) -> *mut c_void {
        self.0.handle
    }

    /// The stream that used it last.
    pub(crate) fn last(&mut self) -> &mut LastStream {
        // SAFETY: `take` gave this state to this value alone until its drop, and the borrow of `self` is exclusive.
        unsafe { &mut *self.0.last.get() }
    }

    /// Says that a stream uses it.
    pub(crate) fn belongs_to(&mut self, stream: &CallStream<'_>) {
        self.0.stream.store(stream.raw().0.wrapping_add(1), Ordering::Relaxed);
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

    /// The state itself, unless a call uses it or its last stream does not let it go.
    fn take_if(&self, is_free: impl FnOnce(&LastStream) -> bool) -> Option<InUse<'_>> {
        let mut state = self.take()?;
        is_free(state.last()).then_some(state)
    }

    fn in_use(handle: *mut c_void, last: LastStream) -> Self {
        let (is_busy, stream) = (AtomicBool::new(true), AtomicUsize::new(0));
        Self { handle, is_busy, stream, last: UnsafeCell::new(last), next: OnceLock::new() }
    }
}

impl Group {
    #[inline]
    fn is_of(&self, plan: &Plan, words: &[u64], device: Option<&Device>) -> bool {
        self.device.as_ref() == device
            && plan.init.iter().zip(&self.key).all(|(init, key)| words[init.slot] == *key)
    }

    fn states(&self) -> impl Iterator<Item = &State> {
        std::iter::successors(Some(&self.first), |state| state.next.get().map(|next| &**next))
    }
}

impl States {
    pub(crate) fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, first: OnceLock::new(), making: Mutex::new(()), made: AtomicUsize::new(0) }
    }

    pub(crate) fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// How many states there are.
    pub(crate) fn count(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// The group of the symbols in these words.
    #[inline]
    fn group(&self, plan: &Plan, words: &[u64], device: Option<&Device>) -> Option<&Group> {
        let mut next = &self.first;
        while let Some(group) = next.get() {
            if group.is_of(plan, words, device) {
                return Some(group);
            }
            next = &group.next;
        }
        None
    }

    /// A free state for the symbols in these words, for a call without a stream; makes one if there is none.
    #[inline]
    pub(crate) fn acquire(&self, plan: &Plan, words: &[u64]) -> Result<InUse<'_>, ProgramError> {
        match self.group(plan, words, None).and_then(|group| group.first.take()) {
            Some(state) => Ok(state),
            None => self.acquire_another(plan, words),
        }
    }

    #[cold]
    fn acquire_another(&self, plan: &Plan, words: &[u64]) -> Result<InUse<'_>, ProgramError> {
        let free = || self.group(plan, words, None)?.states().find_map(State::take);
        if let Some(state) = free() {
            return Ok(state);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made one.
        if let Some(state) = free() {
            return Ok(state);
        }
        let key = key_of(plan, words);
        let handle = self.make(plan, &key)?;
        Ok(self.add(key, None, State::in_use(handle, LastStream::default())))
    }

    /// A state for a call on a stream: the one that the stream used last, or one whose stream has passed its last call; makes one if
    /// there is none.
    pub(crate) fn acquire_on(
        &self,
        plan: &Plan,
        words: &[u64],
        stream: &CallStream<'_>,
    ) -> Result<InUse<'_>, ProgramError> {
        let device = stream.device();
        let mark = stream.raw().0.wrapping_add(1);
        let is_of_stream = |state: &&State| state.stream.load(Ordering::Relaxed) == mark;
        if let Some(group) = self.group(plan, words, Some(device)) {
            let mut own = group.states().filter(is_of_stream);
            let found = own.find_map(|state| state.take_if(|last| last.is_of(stream)));
            let found =
                found.or_else(|| group.states().find_map(|state| state.take_if(LastStream::has_passed)));
            if let Some(state) = found {
                return Ok(state);
            }
        }
        if stream.is_captured() {
            return Err(ProgramError::Capture {
                program: plan.program.clone(),
                why: "it has no state for this stream yet, and making one would end the capture; prepare the call for the stream, or \
                      call the program once, before the capture begins",
            });
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key_of(plan, words);
        let (handle, is_right) =
            device.within_beside_captures(|| (self.make(plan, &key), device.is_current()));
        let handle = handle?;
        let mut last = LastStream::default();
        let made = match is_right {
            true => last.make_streams(plan, &self.lifecycle.setters, handle, device),
            false => Err(ProgramError::OtherGpu { program: plan.program.clone(), gpu: device.ordinal() }),
        };
        if let Err(error) = made {
            self.made.fetch_sub(1, Ordering::Relaxed);
            self.end(handle, Some(device), last);
            return Err(error);
        }
        Ok(self.add(key, Some(device.clone()), State::in_use(handle, last)))
    }

    /// Adds a state to its group. The caller holds `making`.
    fn add(&self, key: Box<[u64]>, device: Option<Device>, state: State) -> InUse<'_> {
        let mut place = &self.first;
        while let Some(group) = place.get() {
            if group.key == key && group.device == device {
                let mut place = &group.first.next;
                while let Some(state) = place.get() {
                    place = &state.next;
                }
                return InUse(place.get_or_init(|| Box::new(state)));
            }
            place = &group.next;
        }
        InUse(
            &place.get_or_init(|| Box::new(Group { key, device, first: state, next: OnceLock::new() })).first,
        )
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

    /// Ends a state: at once, or once its stream has passed its last call.
    fn end(&self, handle: *mut c_void, device: Option<&Device>, last: LastStream) {
        let exit = Exit { function: self.lifecycle.exit, handle, init: self.lifecycle.init_symbol.clone() };
        match device {
            None => exit.run(),
            Some(device) => in_flight::end_state(device, last.passed(), move || {
                exit.run();
                // Until here the program may use its streams.
                drop(last);
            }),
        }
    }
}

/// The symbols of `init`.
fn key_of(plan: &Plan, words: &[u64]) -> Box<[u64]> {
    plan.init.iter().map(|init| words[init.slot]).collect()
}

/// The end of a state that no call uses.
struct Exit {
    function: *const c_void,
    handle: *mut c_void,
    init: String,
}

// SAFETY: the address of a function of a library that stays open, and a state that nothing else uses.
unsafe impl Send for Exit {}

impl Exit {
    fn run(self) {
        // SAFETY: the symbol is DaCe's `exit`, which has this type.
        let exit: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(self.function) };
        // SAFETY: `init` returned the handle, no call uses it, and this value, which ends it, is used once.
        let status = unsafe { exit(self.handle) };
        if status != 0 {
            tracing::warn!(status, init = self.init, "a program's exit failed");
        }
    }
}

impl Drop for States {
    /// Ends all states.
    fn drop(&mut self) {
        // Step by step: dropping a long list at once would recurse.
        let mut group = self.first.take();
        while let Some(mut this) = group {
            let device = this.device.take();
            let mut state = Some(&mut this.first);
            while let Some(this) = state {
                self.end(this.handle, device.as_ref(), std::mem::take(this.last.get_mut()));
                state = this.next.get_mut().map(|next| &mut **next);
            }
            let mut state = this.first.next.take();
            while let Some(mut this) = state {
                state = this.next.take();
            }
            group = this.next.take();
        }
    }
}
