//! Drives the distributed directory of [`halocline_plan::directory`] over a communicator.

use crate::Error;
use crate::agree::agree;
use halocline_comm::{Communicator, Reduce};
use halocline_plan::directory::{Directory, Messages};
use halocline_plan::{PatternError, PatternPlan, UnstructuredDomain, UnstructuredError};

/// This rank's part of the pattern of all ranks' `domains`. Collective.
///
/// An error in the domains of one rank, or between two, is an error on every rank: the error itself on ranks that detect
/// it, [`Error::Elsewhere`] on the others. Messages go to homes and owners only; no rank needs memory for every other
/// rank.
pub(crate) fn unstructured(
    comm: &Communicator,
    domains: &[UnstructuredDomain],
) -> Result<PatternPlan, Error> {
    let started = Directory::new(comm.rank(), comm.size(), domains).map_err(failed);
    resolve(comm, started, failed)
}

/// As [`unstructured`], from a started directory; `failed` converts its errors.
pub(crate) fn resolve(
    comm: &Communicator,
    started: Result<Directory, Error>,
    failed: impl Fn(UnstructuredError) -> Error,
) -> Result<PatternPlan, Error> {
    let started = agree(comm, started)?;
    let mut bounds = started.bounds();
    let reduced = comm.all_reduce(&bounds, Reduce::Min)?;
    bounds.iter_mut().zip(reduced).for_each(|(bound, reduced)| *bound = reduced);

    let mut counts = started.counts();
    let sums = comm.all_reduce(&counts, Reduce::Sum)?;
    counts.iter_mut().zip(sums).for_each(|(count, sum)| *count = sum);

    // A rank that fails still takes part in the exchange that the others are in, with nothing to send.
    let (registered, lookups) = started.register(bounds, counts);
    let (replied, replies) = split(registered.reply(&comm.sparse_exchange(lookups)?));
    let received = comm.sparse_exchange(replies)?;
    let requested = replied.and_then(|replied| replied.request(&received));
    let (requested, requests) = agree(comm, requested.map_err(&failed))?;

    let (answered, answers) = split(requested.answer(&comm.sparse_exchange(requests)?));
    let received = comm.sparse_exchange(answers)?;
    agree(comm, answered.and_then(|answered| answered.finish(&received)).map_err(failed))
}

fn split<T>(step: Result<(T, Messages), UnstructuredError>) -> (Result<T, UnstructuredError>, Messages) {
    match step {
        Ok((state, sends)) => (Ok(state), sends),
        Err(error) => (Err(error), Messages::new()),
    }
}

fn failed(error: UnstructuredError) -> Error {
    PatternError::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::Transfer;

    /// Runs the directory with ranks as threads.
    fn resolve(ranks: Vec<Vec<UnstructuredDomain>>) -> Vec<Result<PatternPlan, Error>> {
        let ranks: Vec<_> = Communicator::threads(ranks.len())
            .into_iter()
            .zip(ranks)
            .map(|(comm, domains)| std::thread::spawn(move || unstructured(&comm, &domains)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    }

    /// A ring of `domains`, two cells each; `ranks` ranks take them in turn, the last takes none.
    fn ring(domains: u64, ranks: usize) -> Vec<Vec<UnstructuredDomain>> {
        let mut ring = vec![Vec::new(); ranks];
        let cells = 2 * domains;
        for id in 0..domains {
            let halo = vec![(2 * id + cells - 1) % cells, (2 * id + 2) % cells];
            let domain = UnstructuredDomain::new(id, vec![2 * id, 2 * id + 1], halo);
            ring[id as usize % (ranks - 1)].push(domain);
        }
        ring
    }

    #[test]
    fn both_ranks_of_each_pair_get_the_same_transfers() {
        for ranks in [2, 3, 4, 6] {
            let patterns: Vec<PatternPlan> =
                resolve(ring(12, ranks)).into_iter().collect::<Result<_, _>>().expect("a pattern");
            let mut received = 0;
            for (rank, pattern) in patterns.iter().enumerate() {
                let count = |transfers: &[Transfer]| -> usize {
                    transfers.iter().map(|transfer| transfer.target.count()).sum()
                };
                received += count(&pattern.local);
                for peer in &pattern.peers {
                    let other = patterns[peer.rank].peers.iter().find(|other| other.rank == rank);
                    let other = other.expect("a peer knows its peer");
                    assert_eq!((&peer.sends, &peer.receives), (&other.receives, &other.sends));
                    received += count(&peer.receives);
                }
            }
            assert_eq!(received, 24, "each of 12 domains has two halo cells");
        }
    }

    #[test]
    fn a_single_rank_resolves_by_itself() {
        let [left, right] = [(0, [1, 2], 3), (1, [3, 4], 2)]
            .map(|(id, owned, halo)| UnstructuredDomain::new(id, owned.to_vec(), vec![halo]));
        let pattern = unstructured(&Communicator::single(), &[left, right]).expect("a pattern");
        assert_eq!((pattern.peers.len(), pattern.local.len()), (0, 2));
    }

    #[test]
    fn every_rank_returns_an_error_when_one_finds_one() {
        // What rank 3 brings along: owned by nobody, owned by rank 1 as well, owned twice here.
        let bad: [(&[u64], &[u64], &[usize]); 3] =
            [(&[], &[500], &[3]), (&[3], &[], &[1, 3]), (&[700, 700], &[], &[3])];
        for (owned, halo, own) in bad {
            let mut ranks = ring(6, 4);
            ranks[3].push(UnstructuredDomain::new(99, owned.to_vec(), halo.to_vec()));
            for (rank, outcome) in resolve(ranks).into_iter().enumerate() {
                match outcome.expect_err("an error on every rank") {
                    Error::Elsewhere { rank: other, message } => {
                        assert!(!own.contains(&rank) && other == own[0] && !message.is_empty());
                    }
                    error => assert!(own.contains(&rank), "rank {rank}: {error}"),
                }
            }
        }
    }
}
