//! Traces: a timeline of all ranks.

use crate::call::call;
use crate::collective::collective;
use crate::comm::Comm;
use crate::object::Handle;
use crate::pointer::{Out, text};
use crate::status::{Refusal, Status};
use halocline::Communicator;
use halocline_trace::{Trace, TraceError};
use std::ffi::c_char;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A trace of C.
pub(crate) struct Recording {
    comm: Communicator,
    /// Empty once the trace is written.
    running: Mutex<Option<Running>>,
}

/// A trace that is being recorded. A trace that is dropped is not written.
struct Running(Option<Trace>);

impl Running {
    /// Starts the record of this rank. Collective.
    fn begin(comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        halocline_trace::want();
        let mut running = Self(None);
        running.0 = Some(Trace::begin(comm, path)?);
        Ok(running)
    }

    /// Writes the file. Collective.
    fn finish(mut self, comm: &Communicator) -> Result<(), TraceError> {
        self.0.take().map_or(Ok(()), |trace| trace.finish(comm)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        halocline_trace::unwant();
        if let Some(trace) = self.0.take() {
            trace.abandon();
        }
    }
}

/// Records the library's spans while a trace is wanted. A process that links Rust code may have a subscriber of its own: then its
/// traces have no spans.
fn listen() {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        let _ = tracing_subscriber::registry().with(halocline_trace::layer()).try_init();
    });
}

fn failed(error: TraceError) -> Refusal {
    match error {
        TraceError::Comm(error) => error.into(),
        TraceError::File { path, source } => Refusal::argument(format!(
            "cannot write the trace to {}: {source}; pass a path that rank 0 can write",
            path.display()
        )),
        elsewhere @ TraceError::Elsewhere(_) => Refusal::new(Status::ELSEWHERE, elsewhere.to_string()),
    }
}

/// Starts a trace.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_trace_begin(
    comm: Handle<Comm>,
    path: *const c_char,
    trace: *mut Handle<Recording>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(trace, "trace") }?;
            // SAFETY: the caller passes null or a string with a closing zero.
            Ok((out, unsafe { text(path, "path") }?))
        })();
        let (out, path) = collective(&comm.comm, "trace_begin", parsed, |_, parsed| Ok(parsed))?;
        listen();
        let running = Running::begin(&comm.comm, Path::new(path)).map_err(failed)?;
        out.set(Handle::new(Recording { comm: comm.comm.clone(), running: Mutex::new(Some(running)) })?);
        Ok(())
    })
}

/// Ends a trace and writes the file.
#[unsafe(no_mangle)]
extern "C" fn halocline_trace_end(trace: Handle<Recording>) -> Status {
    call(|| {
        let trace = trace.pin()?;
        let running = trace.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let running = running.ok_or_else(|| Refusal::argument("the trace was ended; begin another one"))?;
        running.finish(&trace.comm).map_err(failed)
    })
}
