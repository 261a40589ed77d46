//! Exceptions for errors of neighbour exchanges, sparse all-to-alls, and the memory of their packets.

use crate::error;
use crate::memory_resource::raised;
use halocline::comm::CommError;
use halocline::neighbors::{NeighborError, Side};
use halocline::sparse::{Role, SparseError};
use halocline::{MemoryError, PacketError};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// The class of failures of a whole operation.
const FAILED: &str = "PacketExchangeError";

fn side(side: &Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

pub(crate) fn of_neighbor(error: NeighborError) -> PyErr {
    use NeighborError as E;
    let (class, name) = match &error {
        E::Packet(packet) => return of_packet(packet),
        E::Comm(comm) => return of_comm(comm),
        E::NoNeighbor { side: to, .. } | E::Finished { side: to, .. } | E::Metadata { side: to, .. } => {
            ("HaloValueError", Some(side(to)))
        }
        E::Busy { .. } | E::Ending { .. } => ("InFlightError", Some("id")),
        E::InFlight { .. } | E::Taken { .. } => ("InFlightError", None),
        E::Deadline { .. } => ("CommunicatorTimeoutError", None),
        E::RefusedElsewhere { .. } => ("RefusedElsewhereError", None),
        _ => (FAILED, None),
    };
    let is_departure = matches!(error, E::Dropped { .. } | E::Aborted { .. } | E::SessionDropped { .. });
    error::of_text(class, name, error.to_string(), is_departure)
}

fn name_of(role: &Role, one: bool) -> &'static str {
    match (role, one) {
        (Role::Source, true) => "source",
        (Role::Source, false) => "sources",
        (Role::Destination, true) => "destination",
        (Role::Destination, false) => "destinations",
    }
}

pub(crate) fn of_sparse(error: SparseError) -> PyErr {
    use SparseError as E;
    let (class, name) = match &error {
        E::Packet(packet) => return of_packet(packet),
        E::Comm(comm) => return of_comm(comm),
        E::Itself { role, .. } | E::Duplicate { role, .. } | E::NoSuchPeer { role, .. } => {
            ("HaloValueError", Some(name_of(role, false)))
        }
        E::NotNamed { role, .. } => ("HaloValueError", Some(name_of(role, true))),
        E::Finished { .. } => ("HaloValueError", Some("destination")),
        E::NotFinished => ("HaloValueError", None),
        E::NotComplete { .. } => ("InFlightError", None),
        E::Deadline { .. } => ("CommunicatorTimeoutError", None),
        E::RefusedElsewhere { .. } => ("RefusedElsewhereError", None),
        _ => (FAILED, None),
    };
    let is_departure = matches!(error, E::Aborted { .. });
    error::of_text(class, name, error.to_string(), is_departure)
}

fn of_comm(error: &CommError) -> PyErr {
    error::of(error.clone())
}

fn of_packet(packet: &PacketError) -> PyErr {
    match packet {
        PacketError::Comm(comm) => of_comm(comm),
        PacketError::Device(device) => error::of(device.clone()),
        PacketError::Metadata { .. } => {
            error::of_text("HaloValueError", Some("metadata"), packet.to_string(), false)
        }
        PacketError::Memory { error: memory, .. } => of_memory(memory, packet.to_string()),
        _ => error::of_text(FAILED, None, packet.to_string(), false),
    }
}

/// The exception of an allocator of the program is the cause; one that is no `Exception`, as `KeyboardInterrupt`, is raised itself.
fn of_memory(memory: &MemoryError, text: String) -> PyErr {
    if let MemoryError::Comm(comm @ CommError::Interrupted { .. }) = memory {
        return of_comm(comm);
    }
    let failed = match memory {
        MemoryError::Faulty { .. } => error::of_text(FAILED, None, text, false),
        _ => error::of_text("MemoryShortageError", None, text, false),
    };
    if !matches!(memory, MemoryError::Foreign { .. } | MemoryError::Faulty { .. }) {
        return failed;
    }
    Python::attach(|py| match raised() {
        Some(raised) if !raised.is_instance_of::<PyException>(py) => raised,
        cause => {
            failed.set_cause(py, cause);
            failed
        }
    })
}
