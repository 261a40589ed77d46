//! Sparse all-to-all: packets from each rank to a few ranks.

use crate::argument::{Argument, Get, List, accept, shown_in_message};
use crate::call::{in_library, without_callbacks};
use crate::callbacks::run_callbacks;
use crate::comm::PyCommunicator;
use crate::error;
use crate::memory_resource::{Memory, Resource, refuse_in_allocator};
use crate::packet::{PyPacket, packet_of};
use crate::packet_error::of_sparse;
use crate::process_local::Closable;
use crate::task::{self, Failed, Waiting, coroutine};
use halocline::sparse::{SparseAlltoall, SparseError, Traffic};
use halocline::{Communicator, Packet};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyMapping, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[doc = doc!("SparseAlltoall")]
#[pyclass(frozen, module = "halocline", name = "SparseAlltoall", weakref)]
pub(crate) struct PySparseAlltoall {
    exchange: Arc<Closable<SparseAlltoall>>,
    memory: Resource,
    sources: Vec<usize>,
    destinations: Vec<usize>,
    /// Callbacks that were added before `finish`; none afterwards. The library, which refers to this object for a callback, gets them
    /// then: an operation that is dropped before ends.
    early: Mutex<Option<Vec<Py<PyAny>>>>,
}

/// The ranks of an operation. Without sources they are discovered.
struct Peers {
    sources: Option<Vec<usize>>,
    destinations: Vec<usize>,
}

/// Tells the other ranks why this rank refuses its arguments.
fn refuse(py: Python<'_>, comm: &Communicator, discovers: bool, refusal: &PyErr) {
    let why = refusal.value(py).to_string();
    py.detach(|| match discovers {
        true => SparseAlltoall::refuse_discovery(comm, &why),
        false => SparseAlltoall::refuse(comm, &why),
    });
}

fn begin(
    py: Python<'_>,
    comm: &Py<PyCommunicator>,
    peers: Peers,
    memory: Resource,
) -> PyResult<PySparseAlltoall> {
    let of = comm.get().get()?;
    let Peers { sources, destinations } = peers;
    let resource = Arc::clone(&memory.resource);
    let begun = py.detach(move || match sources {
        None => SparseAlltoall::discover(&of, &destinations, resource),
        Some(sources) => SparseAlltoall::new(&of, &sources, &destinations, resource),
    });
    let exchange = begun.map_err(of_sparse)?;
    let (sources, destinations) = (exchange.sources().to_vec(), exchange.destinations().to_vec());
    let exchange = comm.get().member().hold(exchange);
    Ok(PySparseAlltoall { exchange, memory, sources, destinations, early: Mutex::new(Some(Vec::new())) })
}

/// The packets of one entry of `sends`.
fn packets(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<Packet>> {
    let one = |given: &Bound<'_, PyAny>, name: &str| {
        packet_of(given, name)?.ok_or_else(|| {
            error::type_error(format!("{name}: a packet or an object with bytes is wanted, not None"))
        })
    };
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let several = given.try_iter()?.enumerate();
        return several.map(|(at, given)| one(&given?, &format!("{name}[{at}]"))).collect();
    }
    one(given, name).map(|packet| vec![packet])
}

/// The packets for each destination.
fn sends_of(sends: &Bound<'_, PyAny>) -> PyResult<Vec<(usize, Vec<Packet>)>> {
    let Ok(mapping) = sends.cast::<PyMapping>() else {
        return Err(error::type_error(format!(
            "sends: a mapping from destinations to packets is wanted, not {}",
            shown_in_message(sends)
        )));
    };
    let entries = mapping.items()?;
    let of = |entry: Bound<'_, PyAny>| {
        let (rank, given) = (entry.get_item(0)?, entry.get_item(1)?);
        let rank = Argument::<usize>::from(&rank).get("sends")?;
        Ok((rank, packets(&given, &format!("sends[{rank}]"))?))
    };
    entries.iter().map(of).collect()
}

/// `Communicator.sparse_alltoall`.
pub(crate) fn alltoall<'py>(
    py: Python<'py>,
    comm: &Py<PyCommunicator>,
    sends: &Bound<'py, PyAny>,
    sources: Option<Argument<List<usize>>>,
    memory: Option<Argument<Memory>>,
) -> PyResult<Bound<'py, PyDict>> {
    refuse_in_allocator("make collective calls")?;
    let (of, discovers) = (comm.get().get()?, sources.is_none());
    let arguments = || {
        let sources = sources.get("sources")?.map(|List(ranks)| ranks);
        let memory = Resource::of(py, &of, memory.get("memory")?)?;
        let sends = sends_of(sends)?;
        let destinations = sends.iter().map(|(rank, _)| *rank).collect();
        Ok((sends, Peers { sources, destinations }, memory))
    };
    let (sends, peers, memory) =
        arguments().inspect_err(|refusal: &PyErr| refuse(py, &of, discovers, refusal))?;
    let begun = begin(py, comm, peers, memory)?;
    begun.call(py, |exchange| {
        for (destination, packets) in sends {
            for packet in packets {
                exchange.insert(destination, packet)?;
            }
        }
        exchange.finish_and_wait()
    })?;
    let by_source = PyDict::new(py);
    for &source in &begun.sources {
        by_source.set_item(source, begun.take(py, source)?)?;
    }
    Ok(by_source)
}

fn received(py: Python<'_>, packets: Vec<Packet>) -> PyResult<Vec<Py<PyPacket>>> {
    packets.into_iter().map(|packet| PyPacket::received(py, packet)).collect()
}

/// Statistics of one direction.
pub(crate) fn traffic<'py>(py: Python<'py>, of: Traffic) -> PyResult<Bound<'py, PyDict>> {
    [
        ("packets", of.packets),
        ("metadata", of.metadata),
        ("host", of.host),
        ("pinned", of.pinned),
        ("device", of.device),
    ]
    .into_py_dict(py)
}

impl PySparseAlltoall {
    fn early(&self) -> MutexGuard<'_, Option<Vec<Py<PyAny>>>> {
        // No code of Python runs while it is held.
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_when_done(this: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, exchange) = (this.py(), this.get());
        task::add_done_callback(function, this, exchange.waiting()?, |done| {
            exchange.call(py, |exchange| {
                exchange.on_completion(|_| done());
                Ok(())
            })
        })
    }

    /// The packets of a source. No callback can raise once they are taken.
    fn take(&self, py: Python<'_>, source: usize) -> PyResult<Vec<Py<PyPacket>>> {
        let exchange = self.exchange.get()?;
        let take = move || exchange.extract(source);
        without_callbacks(py, &self.memory, &self.exchange.left(), take, |came| {
            received(py, came.map_err(of_sparse)?)
        })
    }

    fn waiting(&self) -> PyResult<Waiting> {
        let completion = self.exchange.get()?.completion();
        let operation = Box::pin(async move { completion.await.map_err(Failed::Sparse) });
        Ok(Waiting::of_packets(operation, self.memory.clone(), self.exchange.left()))
    }

    /// Makes a call that may wait.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&SparseAlltoall) -> Result<T, SparseError> + Send,
    ) -> PyResult<T> {
        let exchange = self.exchange.get()?;
        // The last reference may go here, if the communicator is closed meanwhile; dropping it may block.
        let call = move || call(&exchange);
        in_library(py, &self.memory, &self.exchange.left(), call, |outcome| outcome.map_err(of_sparse))
    }
}

#[pymethods]
impl PySparseAlltoall {
    #[new]
    #[pyo3(signature = (comm, destinations, *, sources = None, memory = None))]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        destinations: Argument<List<usize>>,
        sources: Option<Argument<List<usize>>>,
        memory: Option<Argument<Memory>>,
    ) -> PyResult<Self> {
        accept!(comm);
        refuse_in_allocator("make collective calls")?;
        let (of, discovers) = (comm.get().get()?, sources.is_none());
        let arguments = || {
            let List(destinations) = destinations.get("destinations")?;
            let sources = sources.get("sources")?.map(|List(ranks)| ranks);
            Ok((Peers { sources, destinations }, Resource::of(py, &of, memory.get("memory")?)?))
        };
        let (peers, memory) =
            arguments().inspect_err(|refusal: &PyErr| refuse(py, &of, discovers, refusal))?;
        begin(py, &comm, peers, memory)
    }

    #[doc = doc!("SparseAlltoall.insert")]
    fn insert(
        &self,
        py: Python<'_>,
        destination: Argument<usize>,
        packet: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        accept!(destination);
        let Some(packet) = packet_of(packet, "packet")? else {
            return Err(error::type_error("packet: a packet or an object with bytes is wanted, not None"));
        };
        self.call(py, |exchange| exchange.insert(destination, packet))
    }

    #[doc = doc!("SparseAlltoall.finish")]
    fn finish(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, exchange) = (this.py(), this.get());
        exchange.call(py, |exchange| {
            exchange.finish();
            Ok(())
        })?;
        let early = exchange.early().take();
        early.into_iter().flatten().try_for_each(|function| Self::call_when_done(this, function.bind(py)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(early) = self.early.try_lock() else { return Ok(()) };
        early.iter().flatten().try_for_each(|function| visit.call(function))
    }

    fn __clear__(&self) {
        let early = self.early().as_mut().map(std::mem::take);
        drop(early);
    }

    #[doc = doc!("SparseAlltoall.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, SparseAlltoall::wait)
    }

    #[doc = doc!("SparseAlltoall.is_ready")]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, SparseAlltoall::is_complete)
    }

    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(py, "finished", (Py::new(py, self.waiting()?)?,))?.call_method0("__await__")
    }

    #[doc = doc!("SparseAlltoall.add_done_callback")]
    fn add_done_callback(this: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        task::check_callback(function)?;
        if let Some(early) = this.get().early().as_mut() {
            early.push(function.clone().unbind());
            return Ok(());
        }
        Self::call_when_done(this, function)
    }

    #[doc = doc!("SparseAlltoall.extract")]
    fn extract(&self, py: Python<'_>, source: Argument<usize>) -> PyResult<Vec<Py<PyPacket>>> {
        accept!(source);
        run_callbacks(py)?;
        self.take(py, source)
    }

    #[doc = doc!("SparseAlltoall.sources")]
    #[getter]
    fn sources(&self) -> Vec<usize> {
        self.sources.clone()
    }

    #[doc = doc!("SparseAlltoall.destinations")]
    #[getter]
    fn destinations(&self) -> Vec<usize> {
        self.destinations.clone()
    }

    #[doc = doc!("SparseAlltoall.statistics")]
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.call(py, |exchange| Ok(exchange.statistics()))?;
        [("sent", traffic(py, of.sent)?), ("received", traffic(py, of.received)?)].into_py_dict(py)
    }

    fn __repr__(&self) -> String {
        format!("SparseAlltoall(sources={:?}, destinations={:?})", self.sources, self.destinations)
    }
}
