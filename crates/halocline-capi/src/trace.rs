//! Traces: a timeline of all ranks.

#[cfg(test)]
mod device_tests;

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::object::Handle;
use crate::options::choice;
use crate::pending::PendingExchange;
use crate::pointer::{OutPtr, path_text};
use crate::status::{Refusal, Status};
use halocline::{Communicator, Error, Stream};
use halocline_trace::device::{DeviceTrace, Moment, Stamps, TraceOver};
use halocline_trace::{Trace, TraceError};
use std::collections::BTreeSet;
use std::ffi::c_char;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A trace of C.
pub(crate) struct Recording {
    comm: Communicator,
    /// Empty once the trace is written.
    running: Mutex<Option<Running>>,
}

impl Recording {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a stream with the stamps that `make` makes for it.
    fn record(
        &self,
        stream: &Arc<Stream>,
        make: impl FnOnce(&Stream) -> Result<Stamps, Error>,
    ) -> Result<Handle<Arc<DeviceTrace>>, Refusal> {
        let mut running = self.running();
        let running = running.as_mut().ok_or_else(over)?;
        let device = Arc::new(DeviceTrace::new(make(stream)?, Arc::clone(stream), self.comm.rank()));
        running.devices.push(Arc::clone(&device));
        Handle::new(device)
    }
}

fn over() -> Refusal {
    Refusal::argument("the trace was ended; begin another one")
}

/// A trace that is being recorded. A trace that is dropped is not written.
struct Running {
    trace: Option<Trace>,
    devices: Vec<Arc<DeviceTrace>>,
    _rank: RecordedRank,
}

impl Running {
    /// Starts the record of this rank. Collective.
    fn begin(rank: RecordedRank, comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        halocline_trace::want();
        let mut running = Self { trace: None, devices: Vec::new(), _rank: rank };
        running.trace = Some(Trace::begin(comm, path)?);
        Ok(running)
    }

    /// Writes the file. Collective, also if the stamps of a stream cannot be read.
    fn finish(mut self, comm: &Communicator) -> Result<(), Refusal> {
        let devices = self.devices.drain(..);
        let stamped = devices.map(|device| device.finish()).fold(Ok(()), Result::and);
        self.trace.take().map_or(Ok(()), |trace| trace.finish(comm)?).map_err(failed)?;
        Ok(stamped?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        halocline_trace::unwant();
        self.devices.iter().for_each(|device| device.abandon());
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
        let parse = || Ok((unsafe { path_text(path, "path") }?, RecordedRank::claim(comm.rank())?));
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
        let running = trace.running().take().ok_or_else(over)?;
        running.finish(&trace.comm)
    })
}

/// Records a stream of a GPU.
#[unsafe(no_mangle)]
extern "C" fn halocline_trace_on_stream(
    trace: Handle<Recording>,
    stream: Handle<Arc<Stream>>,
    rounds: usize,
    device_trace: OutPtr<'_, Handle<Arc<DeviceTrace>>>,
) -> Status {
    call_for(device_trace, "device_trace", || {
        let (trace, stream) = (trace.pin()?, stream.pin()?);
        trace.record(&stream, |stream| Stamps::on_gpu(stream, rounds))
    })
}

/// Marks a moment of the round.
#[unsafe(no_mangle)]
extern "C" fn halocline_device_trace_stamp(device_trace: Handle<Arc<DeviceTrace>>, moment: i32) -> Status {
    call(|| {
        let moments = [Moment::Begun, Moment::Interior, Moment::Waited, Moment::Done];
        let moment = choice(moment, moments, "moment", "pass one of HALOCLINE_MOMENT_*")?;
        Ok(device_trace.pin()?.stamp(moment).map_err(|TraceOver| over())??)
    })
}

/// Records the end of the round's exchange.
#[unsafe(no_mangle)]
extern "C" fn halocline_device_trace_observe(
    device_trace: Handle<Arc<DeviceTrace>>,
    pending: PendingExchange,
) -> Status {
    call(|| {
        let pending = pending.find()?;
        Ok(device_trace.pin()?.observe(&pending).map_err(|TraceOver| over())??)
    })
}
