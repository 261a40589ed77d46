//! Errors that all ranks share: what one rank finds wrong, every rank returns.

use crate::Error;
use halocline_comm::{CommError, Communicator, Endpoint, Reduce};

/// Makes all ranks fail if one fails. Collective, blocks.
///
/// Returns `Ok` on all ranks or an error on all: a rank returns its own error, the others [`Error::Elsewhere`] with the message
/// of the lowest rank that failed. All collective calls of this crate end like this. Call it after a local step that
/// can fail and before a collective call, or the other ranks wait there:
///
/// ```
/// # use halocline::{Communicator, Error, Mesh, Partition, Pattern, Shared, agree};
/// # let comm = Communicator::init()?;
/// # let mesh = Mesh::new(4, 3, vec![0, 1, 2, 2, 1, 3])?;
/// # let partition = Partition::given(vec![0, 0], comm.size())?;
/// // A depth can be beyond the mesh for some parts only.
/// let halos = agree(&comm, mesh.halos(&partition, comm.rank(), 1, Shared::Vertex))?;
/// let triangles = Pattern::unstructured(&comm, &[halos.elements().clone()])?;
/// let edges = Pattern::unstructured(&comm, &[halos.edges()?.domain().clone()])?;
/// # Ok::<(), Error>(())
/// ```
pub fn agree<T, E: Into<Error>>(comm: &Communicator, result: Result<T, E>) -> Result<T, Error> {
    Ok(agree_on(comm, result.map(|value| (value, Vec::new())), 0)?.0)
}

/// As [`agree`]. If no rank has failed, also returns the least of each of `count` numbers that the ranks bring with their values.
pub(crate) fn agree_on<T, E: Into<Error>>(
    comm: &Communicator,
    result: Result<(T, Vec<u64>), E>,
    count: usize,
) -> Result<(T, Vec<u64>), Error> {
    let comm = &comm.or_within("agree");
    match result.map_err(E::into) {
        Ok((value, numbers)) => match lowest_failure(comm, None, numbers)? {
            Ok(least) => Ok((value, least)),
            Err((rank, message)) => Err(Error::Elsewhere { rank, message }),
        },
        Err(error) => {
            // This error says more than a failure to report it, which the other ranks observe, too.
            let _ = lowest_failure(comm, Some(error.to_string()), vec![0; count]);
            Err(error)
        }
    }
}

/// The least numbers of all ranks; an inner error is the lowest rank with a message, and its message.
fn lowest_failure(
    comm: &Communicator,
    mine: Option<String>,
    mut numbers: Vec<u64>,
) -> Result<Result<Vec<u64>, (usize, String)>, CommError> {
    const NONE: u64 = u64::MAX;
    numbers.push(if mine.is_some() { comm.rank() as u64 } else { NONE });
    let mut least = comm.all_reduce(&numbers, Reduce::Min)?;
    let lowest = least.pop().unwrap_or(NONE);
    if lowest == NONE {
        return Ok(Ok(least));
    }
    let rank = lowest as usize;
    let message = comm.broadcast(rank, mine.unwrap_or_default().into_bytes())?;
    Ok(Err((rank, String::from_utf8_lossy(&message).into_owned())))
}

/// Compares numbers with those of rank 0, which an inner error returns. Collective.
pub(crate) fn same_as_rank_0(comm: &Communicator, numbers: &[u64]) -> Result<Result<(), Vec<u64>>, Error> {
    let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let first = comm.broadcast(0, mine.clone())?;
    let numbers = || first.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    Ok(if first == mine { Ok(()) } else { Err(numbers()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::{PartitionError, PatternError};

    /// What each of four ranks returns when those in `failing` fail.
    fn outcomes(failing: &'static [usize]) -> Vec<String> {
        let ranks = Communicator::threads(4).into_iter().map(|comm| {
            std::thread::spawn(move || {
                let bad = PartitionError::MoreRanksThanCells { ranks: 4, cells: comm.rank() };
                let step = match failing.contains(&comm.rank()) {
                    true => Err(Error::from(PatternError::from(bad))),
                    false => Ok(comm.rank()),
                };
                match agree(&comm, step) {
                    Ok(rank) => format!("ok {rank}"),
                    Err(Error::Elsewhere { rank, message }) => format!("rank {rank}: {message}"),
                    Err(own) => format!("own: {own}"),
                }
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    }

    #[test]
    fn where_no_rank_fails_all_go_on() {
        assert_eq!(outcomes(&[]), ["ok 0", "ok 1", "ok 2", "ok 3"]);
    }

    #[test]
    fn all_ranks_fail_with_their_own_error_or_that_of_the_lowest_rank() {
        let message = |rank| {
            let bad = PartitionError::MoreRanksThanCells { ranks: 4, cells: rank };
            Error::from(PatternError::from(bad)).to_string()
        };
        let (own, elsewhere) = (|rank| format!("own: {}", message(rank)), format!("rank 1: {}", message(1)));
        assert_eq!(outcomes(&[1, 3]), [elsewhere.clone(), own(1), elsewhere, own(3)]);
    }
}
