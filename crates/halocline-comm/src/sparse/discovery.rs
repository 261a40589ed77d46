//! Finds the sources of each rank from the destinations of all.
//!
//! A rank tells its destinations so with an empty message. A rank whose arguments are refused tells its refusal to all ranks
//! instead: the exchange of messages ends once all ranks have taken part, so that each rank hears of it before it goes on.

use super::SparseError;
use crate::communicator::Communicator;
use crate::packet::{Failure, HeaderError};
use halocline_plan::wire::{Reader, Writer};

/// The ranks that have this one among their destinations, in ascending order. Collective; if a rank passes an error, all ranks
/// get one.
pub(super) fn sources(
    comm: &Communicator,
    destinations: Result<Vec<usize>, SparseError>,
) -> Result<Vec<usize>, SparseError> {
    let sends = match &destinations {
        Ok(destinations) => destinations.iter().map(|rank| (*rank, Vec::new())).collect(),
        Err(refusal) => {
            let mut message = Writer::new();
            refusal.failure(comm.rank()).write(&mut message);
            let message = message.finish();
            let others = (0..comm.size()).filter(|rank| *rank != comm.rank());
            others.map(|rank| (rank, message.clone())).collect()
        }
    };
    let within = comm.within(comm.within.unwrap_or("SparseAlltoall::discover"));
    let came = within.sparse_exchange(sends);
    destinations?;
    let came = came?;
    match came.iter().find(|(_, message)| !message.is_empty()) {
        None => Ok(came.into_iter().map(|(source, _)| source).collect()),
        Some((from, message)) => Err(refused(*from, message)),
    }
}

/// The refusal of another rank.
fn refused(from: usize, message: &[u8]) -> SparseError {
    let mut reader = Reader::new(message);
    let read = Failure::read(&mut reader).and_then(|failure| reader.finish().map(|()| failure));
    match read {
        Ok(failure) if failure.rank == from => failure.into(),
        Ok(Failure { rank, .. }) => {
            let error = HeaderError::Field { field: "rank", value: rank as u64 };
            SparseError::Malformed { from, error }
        }
        Err(error) => SparseError::Malformed { from, error: error.into() },
    }
}
