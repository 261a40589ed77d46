//! Traces: a timeline of all ranks.

use crate::call::call;
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::object::Handle;
use crate::pointer::{OutPtr, text};
use crate::status::{Refusal, Status};
use halocline::Communicator;
use halocline_trace::{Trace, TraceError};
use std::collections::BTreeSet;
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
struct Running {
    trace: Option<Trace>,
    _rank: RecordedRank,
}

impl Running {
    /// Starts the record of this rank. Collective.
    fn begin(rank: RecordedRank, comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        halocline_trace::want();
        let mut running = Self { trace: None, _rank: rank };
        running.trace = Some(Trace::begin(comm, path)?);
        Ok(running)
    }

    /// Writes the file. Collective.
    fn finish(mut self, comm: &Communicator) -> Result<(), TraceError> {
        self.trace.take().map_or(Ok(()), |trace| trace.finish(comm)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        halocline_trace::unwant();
        if let Some(trace) = self.trace.take() {
            trace.abandon();
        }
    }
}

/// The ranks of this process that have a trace. Events are recorded by rank, so that a second trace would take those of the first.
static RECORDED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A rank that has a trace, until this is dropped.
struct RecordedRank(usize);

impl RecordedRank {
    fn claim(rank: usize) -> Result<Self, Refusal> {
        if RECORDED.lock().unwrap_or_else(PoisonError::into_inner).insert(rank) {
            return Ok(Self(rank));
        }
        Err(Refusal::new(
            Status::BUSY,
            format!("rank {rank} records another trace; end or free that one first"),
        ))
    }
}

impl Drop for RecordedRank {
    fn drop(&mut self) {
        RECORDED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
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
    trace: OutPtr<'_, Handle<Recording>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let comm = &comm.comm;
        // SAFETY: the caller passes null or a string with a closing zero.
        let parse = || Ok((unsafe { text(path, "path") }?, RecordedRank::claim(comm.rank())?));
        collective_for(comm, "trace_begin", (trace, "trace"), parse, |_, (path, rank)| {
            listen();
            let running = Running::begin(rank, comm, Path::new(path)).map_err(failed)?;
            Handle::new(Recording { comm: comm.clone(), running: Mutex::new(Some(running)) })
        })
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
