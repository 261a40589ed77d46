//! Calls in the order of a GPU's stream.

use crate::arguments::Given;
use crate::call_stream::{CallStream, enter_default, leave_default};
use crate::error::ProgramError;
use crate::in_flight;
use crate::plan::Bound;
use crate::program::Program;
use crate::signature::Streams;
use crate::state::States;
use halocline_device::{Device, DeviceError, Event, EventPool, Stream};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The owner of the memory of arrays.
///
/// ```
/// use halocline_device::{Priority, sim};
/// use halocline_program::{Keepalive, OnStream};
/// use std::sync::Arc;
///
/// // A simulated device; `halocline_device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default())?;
/// let stream = world.world().device(0)?.stream(Priority::Normal)?;
/// let owner: Keepalive = Arc::new(vec![0.0f64; 8]);
/// let on = OnStream::of(&stream).keeping(Arc::clone(&owner));
/// assert_eq!(Arc::strong_count(&owner), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Keepalive = Arc<dyn Any + Send + Sync>;

/// The stream of a call, and what is kept until the stream has passed the call.
///
/// ```
/// use halocline_device::{Priority, sim};
/// use halocline_program::{ArrayView, OnStream, Program};
/// use std::sync::Arc;
///
/// # let folder = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/libraries.rs"));
/// # let library = folder.path().join("libscale_on.so");
/// // A simulated device; `halocline_device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default())?;
/// let stream = world.world().device(0)?.stream(Priority::Normal)?;
/// // SAFETY: the library was built with the manifest beside it.
/// let program = unsafe { Program::load(&library) }?;
/// let mut a = [1.0, 2.0];
/// let view = ArrayView::contiguous(&mut a, &[2], &[]).ok_or("not the size of the array")?;
/// let owner = Arc::new("an object that the call needs");
/// // SAFETY: nothing else accesses the array before the stream has passed the call.
/// unsafe { program.call_on(OnStream::of(&stream).keeping(owner), &[view.into(), 0.5.into()]) }?;
/// stream.synchronise()?;
/// assert_eq!(a, [0.5, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct OnStream<'a> {
    stream: &'a Stream,
    keepalive: Option<Keepalive>,
}

impl fmt::Debug for OnStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = if self.keepalive.is_some() { ", keeping" } else { "" };
        write!(f, "OnStream({:#x}{keeps})", self.stream.raw().0)
    }
}

impl<'a> From<&'a Stream> for OnStream<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self { stream, keepalive: None }
    }
}

impl<'a> OnStream<'a> {
    pub(crate) fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// A call on this stream.
    pub fn of(stream: &'a Stream) -> Self {
        stream.into()
    }

    /// Keeps `keepalive` until the stream has passed the call; if the stream is captured, until the program is dropped. A later call of
    /// any program on a stream of the device drops it.
    #[must_use]
    pub fn keeping(mut self, keepalive: Keepalive) -> Self {
        self.keepalive = Some(keepalive);
        self
    }
}

/// State of a program for calls on streams.
#[derive(Default)]
pub(crate) struct StreamResources {
    /// Events of each device.
    pools: Mutex<Vec<(Device, EventPool)>>,
    /// Objects kept as long as the program: for captured calls, and for calls that failed to order their streams.
    held: Mutex<Vec<Keepalive>>,
}

impl fmt::Debug for StreamResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamResources")
    }
}

impl StreamResources {
    fn events(&self, device: &Device) -> EventPool {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = pools.iter().find(|(of, _)| of == device) {
            return pool.clone();
        }
        let pool = device.events();
        pools.push((device.clone(), pool.clone()));
        pool
    }
}

impl Program {
    /// The streams of the program's work; `None` if it runs on the host.
    pub fn streams(&self) -> Option<Streams> {
        self.streams
    }

    /// Whether the program waits for the GPU, so that a call blocks the host, as its manifest says.
    pub fn synchronises(&self) -> bool {
        self.signature().synchronises
    }

    /// Checks the arguments and calls the program in the order of a stream: after everything that the stream was given before, and before
    /// everything that it is given later. The host does not wait, unless the program does ([`Program::synchronises`]). All GPU arrays
    /// are of the stream's GPU.
    ///
    /// The first call on a GPU makes a state, which may wait for the device; [`crate::Prepared::make_state_on`] does so ahead. Each stream
    /// has a state of its own until it has passed the last call with it.
    ///
    /// A call under capture becomes part of the graph. Its state serves graphs of this stream alone from then on: launch them in the
    /// order of one stream, and keep the program as long as they exist.
    ///
    /// # Safety
    /// Until the stream has passed the call, the memory of all arrays stays valid ([`OnStream::keeping`] can see to it), and nothing else
    /// accesses it but work that the stream orders.
    pub unsafe fn call_on<'s>(
        &self,
        stream: impl Into<OnStream<'s>>,
        given: &[Given<'_>],
    ) -> Result<(), ProgramError> {
        // SAFETY: the caller keeps the same promise.
        unsafe { self.call_on_within(stream, given, |call| call()) }?
    }

    /// Checks the arguments, then passes a closure that calls the program on the stream to `around`: to release a lock during the call
    /// alone.
    ///
    /// # Safety
    /// The arrays stay valid, and nothing else accesses them, until the stream has passed the call: as [`Program::call_on`] demands.
    pub unsafe fn call_on_within<'s, R>(
        &self,
        stream: impl Into<OnStream<'s>>,
        given: &[Given<'_>],
        around: impl FnOnce(&mut (dyn FnMut() -> Result<(), ProgramError> + Send)) -> R,
    ) -> Result<R, ProgramError> {
        let on = stream.into();
        let gpu = Some(on.stream.device().ordinal());
        self.plan.with_words(given, gpu, |Bound { words }| Ok(around(&mut || self.run_on(&on, words))))
    }

    /// Calls the program on a stream with bound words.
    pub(crate) fn run_on(&self, on: &OnStream<'_>, words: &mut [u64]) -> Result<(), ProgramError> {
        let call = self.begin_on(on)?;
        let events = self.resources.events(call.device());
        if !call.is_captured() {
            in_flight::release(call.device());
        }
        let done = match &self.states {
            Some(states) => self.run_state_on(states, &call, &events, words),
            None => self.run_function_on(&call, &events, words),
        };
        let kept =
            on.keepalive.clone().map_or(Ok(()), |keepalive| self.keep(&call, &events, &done, keepalive));
        let (result, _) = done?;
        kept.and(result)
    }

    /// Checks that the program can be called on a stream.
    fn begin_on<'s>(&self, on: &OnStream<'s>) -> Result<CallStream<'s>, ProgramError> {
        let program = || self.name().into();
        if self.streams.is_none() {
            return Err(ProgramError::NoStreams { program: program() });
        }
        let call = CallStream::of(on.stream).map_err(|error| self.refused(error))?;
        let why = match self.streams {
            _ if !call.is_captured() => return Ok(call),
            _ if self.synchronises() => "it waits for the GPU, says its manifest; call it without a capture",
            Some(Streams::Default) => {
                "it uses the default stream, which cannot be captured; call it without a capture"
            }
            _ => return Ok(call),
        };
        Err(ProgramError::Capture { program: program(), why })
    }

    fn refused(&self, error: DeviceError) -> ProgramError {
        ProgramError::Stream { program: self.name().into(), error }
    }

    fn run_state_on(
        &self,
        states: &States,
        call: &CallStream<'_>,
        events: &EventPool,
        words: &mut [u64],
    ) -> Result<Done, ProgramError> {
        let mut state = states.acquire_on(&self.plan, words, call)?;
        let (handle, lifecycle) = (state.handle(), states.lifecycle());
        state.belongs_to(call);
        words[0] = handle.expose_provenance() as u64;
        let last = state.last();
        last.enter(call, &lifecycle.setters, handle, events).map_err(|error| self.refused(error))?;
        let result = call.device().within(|| {
            self.jump(words)?;
            lifecycle.last_error.map_or(Ok(()), |last_error| self.check_last_error(last_error, handle))
        });
        let passed = last.leave(call, &lifecycle.setters, events).map_err(|error| self.refused(error))?;
        Ok((result, passed))
    }

    /// Calls a C function, which has no state.
    fn run_function_on(
        &self,
        call: &CallStream<'_>,
        events: &EventPool,
        words: &mut [u64],
    ) -> Result<Done, ProgramError> {
        let is_default = self.streams == Some(Streams::Default);
        if is_default {
            enter_default(call, events).map_err(|error| self.refused(error))?;
        }
        if let Some(word) = self.plan.stream {
            words[word] = call.raw().0 as u64;
        }
        let result = call.device().within(|| self.jump(words));
        if is_default {
            leave_default(call, events).map_err(|error| self.refused(error))?;
        }
        Ok((result, None))
    }

    /// Keeps what a call uses until its stream has passed it.
    fn keep(
        &self,
        call: &CallStream<'_>,
        events: &EventPool,
        done: &Result<Done, ProgramError>,
        keepalive: Keepalive,
    ) -> Result<(), ProgramError> {
        let passed = match done {
            Ok((_, Some(passed))) => Ok(Some(passed.clone())),
            Ok((_, None)) => call.passed(events),
            // Unless the streams refused something, nothing was launched.
            Err(ProgramError::Stream { .. }) => Ok(None),
            Err(_) => return Ok(()),
        };
        if let Ok(Some(passed)) = passed {
            in_flight::after(call.device(), passed, move || drop(keepalive));
            return Ok(());
        }
        self.resources.held.lock().unwrap_or_else(PoisonError::into_inner).push(keepalive);
        passed.map(drop).map_err(|error| self.refused(error))
    }

    /// Makes the state of a stream.
    pub(crate) fn make_state_on(&self, stream: &Stream, words: &[u64]) -> Result<(), ProgramError> {
        let call = self.begin_on(&stream.into())?;
        match &self.states {
            Some(states) => {
                let mut state = states.acquire_on(&self.plan, words, &call)?;
                state.belongs_to(&call);
                state.last().reserve(&call);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The result of the program, and an event after the call where there is one.
type Done = (Result<(), ProgramError>, Option<Arc<Event>>);
