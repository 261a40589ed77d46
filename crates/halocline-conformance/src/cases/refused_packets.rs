//! Operations of packets whose arguments one rank refuses: the others get its reason.

use super::line::Line;
use crate::payloads::Payloads;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::Packet;
use halocline::neighbors::{NeighborError, NeighborExchange, Sides, Topology, Turn};
use halocline_comm::sparse::{SparseAlltoall, SparseError};

pub(crate) const CASES: &[Case] = &[
    Case { name: "refused_packets::a_neighbor_exchange", run: neighbors },
    Case { name: "refused_packets::a_sparse_alltoall_of_known_sources", run: known },
    Case { name: "refused_packets::a_discovery_of_sources", run: discovery },
    Case { name: "refused_packets::a_session_while_a_dropped_one_ends", run: reopened },
];

const WHY: &str = "memory: no such thing";

fn neighbors(comm: &Stage<'_>) -> Outcome {
    let size = comm.size();
    for (topology, refuses) in [(Topology::Line, 0), (Topology::Ring, size - 1), (Topology::Line, size / 2)] {
        if comm.rank() == refuses {
            NeighborExchange::refuse(comm, WHY);
        } else {
            let line = Line::new(comm, topology)?;
            let first = line.exchange(0, line.packets(0, 100_000)?).err();
            let error = first.or_else(|| line.failure(0));
            let is_known = matches!(&error, Some(NeighborError::RefusedElsewhere { rank, why }) if *rank == refuses && why == WHY);
            ensure!(is_known, "{error:?}");
        }
        // Later exchanges work, and all have begun equally many.
        Line::new(comm, topology)?.round(0, 0, 100)?;
    }
    comm.barrier()?;
    Ok(())
}

fn known(comm: &Stage<'_>) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    if size > 1 {
        let memory = Payloads::of(comm)?;
        // Rank 1 sends to rank 0, which refuses; the others have nothing to do with it.
        if rank == 0 {
            SparseAlltoall::refuse(comm, WHY);
        } else {
            let destinations: &[usize] = if rank == 1 { &[0] } else { &[] };
            let exchange = SparseAlltoall::new(comm, &[], destinations, memory.resource())?;
            if rank == 1 {
                // Fails if the refusal is here already.
                let payload = memory.make(&[1; 100_000])?;
                let _ = exchange.insert(0, Packet::new(Vec::new(), Some(payload)));
            }
            let error = exchange.finish_and_wait().err();
            let is_known =
                matches!(&error, Some(SparseError::RefusedElsewhere { rank: 0, why }) if why == WHY);
            ensure!(if rank == 1 { is_known } else { error.is_none() }, "{error:?}");
        }
    }
    comm.barrier()?;
    Ok(())
}

fn discovery(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let (rank, size) = (comm.rank(), comm.size());
    let next: &[usize] = if size > 1 { &[(rank + 1) % size] } else { &[] };
    for refuses in [0, size - 1] {
        if rank == refuses {
            SparseAlltoall::refuse_discovery(comm, WHY);
        } else {
            let error = SparseAlltoall::discover(comm, next, memory.resource()).err();
            let is_known = matches!(&error, Some(SparseError::RefusedElsewhere { rank, why }) if *rank == refuses && why == WHY);
            ensure!(is_known, "{error:?}");
        }
        let exchange = SparseAlltoall::discover(comm, next, memory.resource())?;
        exchange.finish_and_wait()?;
    }
    comm.barrier()?;
    Ok(())
}

fn reopened(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
    let nothing = || Sides { left: Turn::Nothing, right: Turn::Nothing };
    if comm.rank() == 0 && comm.size() > 1 {
        let mut session = line.session(3)?;
        session.start(nothing())?;
        drop(session);
        // Its neighbour has not opened its own.
        for error in [line.session(3).err(), line.exchange(3, Sides::default()).err()] {
            ensure!(matches!(error, Some(NeighborError::Ending { id: 3 })), "{error:?}");
        }
        comm.barrier()?;
    } else {
        comm.barrier()?;
        if comm.size() > 1 {
            let mut session = line.session(3)?;
            let error = (0..).find_map(|_| session.round(nothing()).err());
            ensure!(matches!(error, Some(NeighborError::SessionDropped { .. })), "{error:?}");
        }
    }
    line.round(4, 0, 100)?;
    comm.barrier()?;
    Ok(())
}
