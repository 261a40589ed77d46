//! Exchange of packets between neighbours on a line of ranks.

mod round;
mod session;
mod session_round;

pub(crate) use round::PyNeighborRound;
pub(crate) use session::PyNeighborSession;
pub(crate) use session_round::PySessionRound;

use crate::argument::{Argument, Get, accept, shown_in_message};
use crate::call::{in_library, without_callbacks};
use crate::callbacks::run_callbacks;
use crate::comm::PyCommunicator;
use crate::error;
use crate::memory_resource::{Memory, Resource, refuse_in_allocator};
use crate::packet::{PyPacket, packet_of};
use crate::packet_error::of_neighbor;
use crate::process_local::{Closable, Member};
use crate::sparse::traffic;
use halocline::Packet;
use halocline::neighbors::{NeighborError, NeighborExchange, Sides, Topology, Turn};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::Arc;
use std::time::Duration;

#[doc = doc!("NeighborExchange")]
#[pyclass(frozen, module = "halocline", name = "NeighborExchange")]
pub(crate) struct PyNeighborExchange {
    exchange: Arc<Closable<NeighborExchange>>,
    member: Arc<Member>,
    memory: Resource,
    neighbors: Sides<Option<usize>>,
    is_ring: bool,
}

/// The arguments of `Communicator.neighbor_exchange`.
pub(crate) struct Wanted {
    pub(crate) periodic: Argument<bool>,
    pub(crate) memory: Option<Argument<Memory>>,
    pub(crate) deadline: Option<Argument<Duration>>,
}

/// `Communicator.neighbor_exchange`. A rank that refuses its arguments tells the others why.
pub(crate) fn begin(py: Python<'_>, comm: &PyCommunicator, wanted: Wanted) -> PyResult<PyNeighborExchange> {
    refuse_in_allocator("make collective calls")?;
    let of = comm.get()?;
    let arguments = || {
        let topology = if wanted.periodic.get("periodic")? { Topology::Ring } else { Topology::Line };
        let deadline = wanted.deadline.get("deadline")?;
        let memory = Resource::of(py, &of, wanted.memory.get("memory")?)?;
        let within = if deadline.is_some() { of.with_deadline(deadline) } else { (*of).clone() };
        Ok((topology, within, memory))
    };
    match arguments() {
        Ok((topology, within, memory)) => {
            let resource = Arc::clone(&memory.resource);
            let exchange = py.detach(|| NeighborExchange::new(&within, topology, resource));
            let exchange = exchange.map_err(of_neighbor)?;
            let neighbors = exchange.neighbors();
            let (exchange, member) = (comm.member().hold(exchange), Arc::clone(comm.member()));
            let is_ring = topology == Topology::Ring;
            Ok(PyNeighborExchange { exchange, member, memory, neighbors, is_ring })
        }
        Err(refusal) => {
            let why = PyErr::value(&refusal, py).to_string();
            py.detach(|| NeighborExchange::refuse(&of, &why));
            Err(refusal)
        }
    }
}

/// The packets received from both sides, as a tuple.
fn tuple<'py>(py: Python<'py>, sides: Sides<Option<Py<PyAny>>>) -> PyResult<Bound<'py, PyTuple>> {
    (sides.left, sides.right).into_pyobject(py)
}

/// A packet for Python.
fn received(py: Python<'_>, packet: Option<Packet>) -> PyResult<Option<Py<PyAny>>> {
    packet.map(|packet| Ok(PyPacket::received(py, packet)?.into_any())).transpose()
}

/// The packets that a call of one round sends.
fn packets(
    left: Option<&Bound<'_, PyAny>>,
    right: Option<&Bound<'_, PyAny>>,
) -> PyResult<Sides<Option<Packet>>> {
    let of = |given: Option<&Bound<'_, PyAny>>, name| given.map_or(Ok(None), |given| packet_of(given, name));
    Ok(Sides { left: of(left, "left")?, right: of(right, "right")? })
}

/// The packet that a round of a session sends to one side.
fn turn(given: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Turn> {
    let Some(given) = given else { return Ok(Turn::Nothing) };
    match given.cast::<PyString>() {
        Ok(word) if word.to_cow().is_ok_and(|word| word == "last") => Ok(Turn::Last),
        Ok(word) => Err(error::value_error(format!(
            "{name}: a packet, an object with bytes, None or 'last' is wanted, not {}",
            shown_in_message(word)
        ))),
        Err(_) => Ok(packet_of(given, name)?.map_or(Turn::Nothing, Turn::Packet)),
    }
}

impl PyNeighborExchange {
    /// Makes a call that may wait.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&NeighborExchange) -> Result<T, NeighborError> + Send,
    ) -> PyResult<T> {
        let exchange = self.exchange.get()?;
        // The last reference may go here, if the communicator is closed meanwhile; dropping it may block.
        let call = move || call(&exchange);
        in_library(py, &self.memory, &self.exchange.left(), call, |outcome| outcome.map_err(of_neighbor))
    }

    /// Makes a call that begins what its handle alone can end. A callback that raises does so before.
    fn begin<T: Send>(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&NeighborExchange) -> Result<T, NeighborError> + Send,
    ) -> PyResult<T> {
        run_callbacks(py)?;
        let exchange = self.exchange.get()?;
        let begin = move || begin(&exchange);
        let begun = |begun: Result<T, NeighborError>| begun.map_err(of_neighbor);
        without_callbacks(py, &self.memory, &self.exchange.left(), begin, begun)
    }
}

#[pymethods]
impl PyNeighborExchange {
    #[doc = doc!("NeighborExchange.exchange")]
    #[pyo3(signature = (left = None, right = None, id = Argument::of(0u32)), text_signature = "($self, left=None, right=None, id=0)")]
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        left: Option<&Bound<'py, PyAny>>,
        right: Option<&Bound<'py, PyAny>>,
        id: Argument<u32>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        accept!(id);
        let packets = packets(left, right)?;
        let came = self.call(py, |exchange| exchange.exchange(id, packets))?;
        let came = Sides { left: received(py, came.left)?, right: received(py, came.right)? };
        tuple(py, came)
    }

    #[doc = doc!("NeighborExchange.start")]
    #[pyo3(signature = (left = None, right = None, id = Argument::of(0u32)), text_signature = "($self, left=None, right=None, id=0)")]
    fn start(
        &self,
        py: Python<'_>,
        left: Option<&Bound<'_, PyAny>>,
        right: Option<&Bound<'_, PyAny>>,
        id: Argument<u32>,
    ) -> PyResult<PyNeighborRound> {
        accept!(id);
        let packets = packets(left, right)?;
        let round = self.begin(py, |exchange| exchange.start(id, packets))?;
        Ok(PyNeighborRound::new(round, self.memory.clone(), self.exchange.left()))
    }

    #[doc = doc!("NeighborExchange.session")]
    #[pyo3(signature = (id = Argument::of(0u32)), text_signature = "($self, id=0)")]
    fn session(&self, py: Python<'_>, id: Argument<u32>) -> PyResult<PyNeighborSession> {
        accept!(id);
        let session = self.begin(py, |exchange| exchange.session(id))?;
        Ok(PyNeighborSession::new(session, &self.member, self.memory.clone(), id))
    }

    #[doc = doc!("NeighborExchange.neighbors")]
    #[getter]
    fn neighbors(&self) -> (Option<usize>, Option<usize>) {
        (self.neighbors.left, self.neighbors.right)
    }

    #[doc = doc!("NeighborExchange.statistics")]
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.call(py, |exchange| Ok(exchange.statistics()))?;
        let counts = PyDict::new(py);
        counts.set_item("rounds", of.rounds)?;
        counts.set_item("sent", traffic(py, of.sent)?)?;
        counts.set_item("received", traffic(py, of.received)?)?;
        Ok(counts)
    }

    fn __repr__(&self) -> String {
        let shown = |rank: Option<usize>| rank.map_or("None".to_owned(), |rank| rank.to_string());
        let (left, right) = (shown(self.neighbors.left), shown(self.neighbors.right));
        let periodic = if self.is_ring { ", periodic" } else { "" };
        format!("NeighborExchange(left={left}, right={right}{periodic})")
    }
}
