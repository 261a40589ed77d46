//! Calls of programs in the order of a stream.

use super::arguments::{Arguments, Seen};
use super::program_error::of_program;
use crate::argument::{Argument, Get};
use crate::process_local::{KeepAlive, drop_deferred};
use crate::stream::{Handle, borrow};
use halocline::Stream;
use halocline_program::{Keepalive, OnStream, Program, ProgramError};
use pyo3::prelude::*;
use std::sync::Arc;

/// The stream of a call, and the arrays that are kept until the stream has passed it.
pub(super) struct CallStream {
    stream: Stream,
    kept: Keepalive,
}

/// Objects that are kept, and only dropped.
struct Kept(#[expect(dead_code, reason = "dropped when the stream has passed")] Vec<KeepAlive>);

impl CallStream {
    /// The stream of a call with these arguments; `None` if the program runs on the host. Without a stream it is the default stream of the
    /// arrays' GPU.
    pub(super) fn of<'a, 'py>(
        py: Python<'py>,
        program: &Program,
        stream: Option<Argument<Handle>>,
        objects: impl Iterator<Item = Borrowed<'a, 'py, PyAny>>,
        arguments: &Arguments<'_>,
    ) -> PyResult<Option<Self>>
    where
        'py: 'a,
    {
        let handle = stream.get("stream")?.map_or(0, |handle| handle.0);
        if program.streams().is_none() {
            return match handle {
                0 => Ok(None),
                _ => Err(of_program(ProgramError::NoStreams { program: program.name().into() })),
            };
        }
        let gpu = arguments.seen.iter().find_map(|seen| seen.gpu());
        // Arguments that are all wrong are refused by the call itself.
        let Some(gpu) = gpu.or((handle != 0).then_some(0)) else { return Ok(None) };
        let stream = borrow(handle, gpu)?;
        Ok(Some(Self { stream, kept: Arc::new(Kept(kept(py, objects, &arguments.seen))) }))
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream, keeping the arrays of a call.
    pub(super) fn on(&self) -> OnStream<'_> {
        OnStream::of(&self.stream).keeping(self.kept.clone())
    }
}

/// Keeps all objects of a call and the owners of their memory.
fn kept<'a, 'py: 'a>(
    py: Python<'py>,
    objects: impl Iterator<Item = Borrowed<'a, 'py, PyAny>>,
    seen: &[Arc<Seen>],
) -> Vec<KeepAlive> {
    let owners = seen.iter().filter_map(|seen| seen.owner());
    let mut kept: Vec<KeepAlive> = objects.map(|object| KeepAlive::plain(&object)).collect();
    kept.extend(owners.map(|owner| KeepAlive::plain(owner.bind(py))));
    kept
}

/// Calls a program on a stream, or without one.
pub(super) fn call_on(
    py: Python<'_>,
    program: &Program,
    on: Option<&CallStream>,
    arguments: &Arguments<'_>,
) -> PyResult<()> {
    let given = &arguments.given;
    let called = match on {
        None => program.call_within(given, |call| py.detach(call)),
        // SAFETY: the call keeps the arrays; the documentation obliges the program to order other work on them by the stream.
        Some(on) => unsafe { program.call_on_within(on.on(), given, |call| py.detach(call)) },
    };
    drop_deferred(py);
    called.and_then(|called| called).map_err(of_program)
}
