//! The stream of a call, and what a state remembers of the stream that used it last: how a call enters after a stream's earlier work, and
//! how the stream's later work comes after the call.

use crate::error::ProgramError;
use crate::library::Library;
use crate::plan::Plan;
use crate::signature::{Signature, Streams};
use halocline_device::{Device, DeviceError, Event, EventPool, Priority, RawStream, Stream};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread::ThreadId;

/// The most internal streams of a program.
const MOST_STREAMS: usize = 256;

/// DaCe's functions that give a state its streams.
#[derive(Debug)]
pub(crate) struct Setters {
    /// The streams of the program; `None` if it runs on the host.
    pub(crate) streams: Option<Streams>,
    all: Option<*const c_void>,
    one: Option<*const c_void>,
}

impl Setters {
    pub(crate) fn of(library: &Library, signature: &Signature) -> Result<Self, ProgramError> {
        const ALL: &str = "__dace_gpu_set_all_streams";
        const ONE: &str = "__dace_gpu_set_stream";
        let (all, one) = (library.find(ALL), library.find(ONE));
        match signature.streams {
            Some(Streams::Caller) => drop(library.need(ALL, &signature.program)?),
            Some(Streams::Internal) => drop(library.need(ONE, &signature.program)?),
            Some(Streams::Default) | None => {}
        }
        // Whether the program uses the streams that it is given is not known: on the default stream it does not matter.
        Ok(Self { streams: signature.streams.or(all.map(|_| Streams::Default)), all, one })
    }

    /// Gives a state one stream for everything; nothing if the library has no such function.
    pub(crate) fn give_all(&self, state: *mut c_void, stream: RawStream) {
        let Some(function) = self.all else { return };
        // SAFETY: the symbol is DaCe's `__dace_gpu_set_all_streams`, which has this type.
        let set: unsafe extern "C" fn(*mut c_void, usize) = unsafe { std::mem::transmute(function) };
        // SAFETY: `init` returned the state, and the caller alone uses it.
        unsafe { set(state, stream.0) };
    }

    /// Gives a state its stream of a number; false if it has fewer.
    fn give(&self, state: *mut c_void, number: c_int, stream: RawStream) -> bool {
        let Some(function) = self.one else { return false };
        // SAFETY: the symbol is DaCe's `__dace_gpu_set_stream`, which has this type.
        let set: unsafe extern "C" fn(*mut c_void, c_int, usize) -> bool =
            unsafe { std::mem::transmute(function) };
        // SAFETY: `init` returned the state, and the caller alone uses it.
        unsafe { set(state, number, stream.0) }
    }
}

/// The identity of a stream among others with its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamId {
    /// No other stream ever has it.
    Known(u64),
    /// The driver has none, or the handle is relative to this thread.
    OfThread(ThreadId),
    /// It must not be asked for during a capture.
    Captured,
}

/// The stream of one call.
pub(crate) struct CallStream<'a> {
    stream: &'a Stream,
    id: StreamId,
}

impl<'a> CallStream<'a> {
    pub(crate) fn of(stream: &'a Stream) -> Result<Self, DeviceError> {
        let id = match stream.capture()?.is_some() {
            true => StreamId::Captured,
            false => {
                stream.id().map_or_else(|| StreamId::OfThread(std::thread::current().id()), StreamId::Known)
            }
        };
        Ok(Self { stream, id })
    }

    pub(crate) fn device(&self) -> &'a Device {
        self.stream.device()
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.stream.raw()
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.id == StreamId::Captured
    }

    /// An event after everything that the stream was given; none under capture, where it would belong to the graph.
    pub(crate) fn passed(&self, events: &EventPool) -> Result<Option<Arc<Event>>, DeviceError> {
        if self.is_captured() {
            return Ok(None);
        }
        let event = events.take()?;
        self.stream.record(&event)?;
        Ok(Some(Arc::new(event)))
    }
}

/// Orders all later work of one stream after all earlier work of another.
fn order(earlier: &Stream, later: &Stream, events: &EventPool) -> Result<(), DeviceError> {
    let event = events.take()?;
    earlier.record(&event)?;
    later.wait(&event)
}

/// The default stream of a call that is on another one.
fn other_default(call: &CallStream<'_>) -> Result<Option<Stream>, DeviceError> {
    if call.raw().0 == 0 {
        return Ok(None);
    }
    // SAFETY: 0 is the default stream, which always exists.
    unsafe { call.device().borrow_stream(RawStream(0)) }.map(Some)
}

/// Before a program of the default stream runs.
pub(crate) fn enter_default(call: &CallStream<'_>, events: &EventPool) -> Result<(), DeviceError> {
    match other_default(call)? {
        Some(default) => order(call.stream, &default, events),
        None => Ok(()),
    }
}

/// After a program of the default stream.
pub(crate) fn leave_default(call: &CallStream<'_>, events: &EventPool) -> Result<(), DeviceError> {
    match other_default(call)? {
        Some(default) => order(&default, call.stream, events),
        None => Ok(()),
    }
}

/// The user of a state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum User {
    #[default]
    Nothing,
    Stream {
        raw: RawStream,
        id: StreamId,
    },
    /// Graphs that were captured from this stream: they may run at any time.
    Graphs(RawStream),
    /// A call that failed to order its streams.
    Unknown,
}

/// The last call of a state on a stream.
#[derive(Debug, Default)]
pub(crate) struct LastStream {
    user: User,
    /// After the last call.
    passed: Option<Arc<Event>>,
    /// Streams of the state, for [`Streams::Internal`].
    internal: Vec<Stream>,
}

impl LastStream {
    /// Whether the call's stream used the state last, so that its order is enough.
    pub(crate) fn is_of(&self, call: &CallStream<'_>) -> bool {
        match self.user {
            User::Stream { raw, .. } if call.is_captured() => raw == call.raw(),
            User::Stream { raw, id } => raw == call.raw() && id == call.id,
            User::Graphs(raw) => call.is_captured() && raw == call.raw(),
            User::Nothing | User::Unknown => false,
        }
    }

    /// Whether its last call is over, so that any stream may use the state.
    pub(crate) fn has_passed(&self) -> bool {
        match self.user {
            User::Nothing => true,
            User::Stream { .. } => self.passed.as_ref().is_some_and(|passed| passed.query() == Ok(true)),
            User::Graphs(_) | User::Unknown => false,
        }
    }

    /// Lets no other stream use a state that has not been used.
    pub(crate) fn reserve(&mut self, call: &CallStream<'_>) {
        if self.user == User::Nothing && !call.is_captured() {
            self.user = User::Stream { raw: call.raw(), id: call.id };
        }
    }

    /// Makes the internal streams of a new state.
    pub(crate) fn make_streams(
        &mut self,
        plan: &Plan,
        setters: &Setters,
        state: *mut c_void,
        device: &Device,
    ) -> Result<(), ProgramError> {
        if setters.streams != Some(Streams::Internal) {
            return Ok(());
        }
        let refused = |error| ProgramError::Stream { program: plan.program.clone(), error };
        loop {
            let stream = device.stream(Priority::Normal).map_err(refused)?;
            if !setters.give(state, self.internal.len() as c_int, stream.raw()) {
                return Ok(());
            }
            if self.internal.len() == MOST_STREAMS {
                return Err(ProgramError::TooManyStreams {
                    program: plan.program.clone(),
                    most: MOST_STREAMS,
                });
            }
            self.internal.push(stream);
        }
    }

    /// Has the program's streams begin after the call's stream.
    pub(crate) fn enter(
        &mut self,
        call: &CallStream<'_>,
        setters: &Setters,
        state: *mut c_void,
        events: &EventPool,
    ) -> Result<(), DeviceError> {
        self.user = User::Unknown;
        match setters.streams {
            Some(Streams::Caller) | None => {
                setters.give_all(state, call.raw());
                Ok(())
            }
            Some(Streams::Default) => {
                setters.give_all(state, RawStream(0));
                enter_default(call, events)
            }
            Some(Streams::Internal) => {
                let event = events.take()?;
                call.stream.record(&event)?;
                self.internal.iter().try_for_each(|internal| internal.wait(&event))
            }
        }
    }

    /// Has the call's stream go on after the program's streams. Returns an event after all that, unless the stream is captured.
    pub(crate) fn leave(
        &mut self,
        call: &CallStream<'_>,
        setters: &Setters,
        events: &EventPool,
    ) -> Result<Option<Arc<Event>>, DeviceError> {
        match setters.streams {
            Some(Streams::Caller) | None => {}
            Some(Streams::Default) => leave_default(call, events)?,
            Some(Streams::Internal) => {
                self.internal.iter().try_for_each(|internal| order(internal, call.stream, events))?;
            }
        }
        let passed = call.passed(events)?;
        if call.is_captured() {
            self.user = User::Graphs(call.raw());
        } else {
            self.user = User::Stream { raw: call.raw(), id: call.id };
            self.passed.clone_from(&passed);
        }
        Ok(passed)
    }

    /// The event after the last call, if there was one.
    pub(crate) fn passed(&self) -> Option<Arc<Event>> {
        self.passed.clone()
    }
}
