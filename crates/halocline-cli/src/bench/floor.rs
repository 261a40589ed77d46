//! The lower bounds of the machine: the round trip of a cache line, and a barrier made of counters in shared memory.

use crate::error::CommandError;
use halocline::{Communicator, Reduce};
use halocline_comm::{Counter, Endpoint, Seen, Segment, Tag};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// Round trips of one ping-pong, and ping-pongs of a measurement, which reports the fastest.
const ROUND_TRIPS: u64 = 300;
const TRIES: usize = 5;
/// Counters on cache lines that all ranks share.
pub(super) struct Floor<'a> {
    comm: &'a Communicator,
    /// One counter for each rank's barrier, then two for the ping-pong; `None` if ranks share no memory.
    lines: Option<Arc<Segment>>,
    /// Ranks outnumber cores: a rank that waits yields its core.
    oversubscribed: bool,
    barriers: Cell<u64>,
    pings: Cell<u64>,
}

impl<'a> Floor<'a> {
    /// Collective.
    pub(super) fn new(comm: &'a Communicator) -> Result<Self, CommandError> {
        let link = comm.link();
        let own = (comm.rank() == 0).then(|| comm.allocate((comm.size() + 2) * size_of::<Counter>()));
        let own = own.transpose()?;
        let reaches = |peer: usize| own.as_ref().is_none_or(|own| link.reach(peer, own).is_ok());
        let shared = (0..comm.size()).all(|peer| link.bell(peer).is_some() && reaches(peer));
        let shared = comm.all_reduce(&[u8::from(shared)], Reduce::Min)? == [1];
        let tag = Tag { operation: comm.begin(), round: 0 };
        let lines = match own {
            _ if !shared => None,
            Some(own) => {
                for peer in 1..comm.size() {
                    link.post(peer, tag, Vec::new(), std::slice::from_ref(&own))?;
                }
                Some(own)
            }
            None => comm.receive(Some(0), tag, "the lines of a barrier")?.segments.into_iter().next(),
        };
        let oversubscribed = link.is_oversubscribed();
        Ok(Self { comm, lines, oversubscribed, barriers: Cell::new(0), pings: Cell::new(0) })
    }

    pub(super) fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Returns at nearly the same moment on all ranks. Collective.
    pub(super) fn barrier(&self) -> Result<(), CommandError> {
        let Some(lines) = &self.lines else { return Ok(self.comm.barrier()?) };
        let epoch = self.barriers.get() + 1;
        self.barriers.set(epoch);
        counter(lines, self.comm.rank()).raise(epoch);
        (0..self.comm.size()).try_for_each(|rank| self.await_line(counter(lines, rank), epoch))
    }

    /// If ranks share cores, waits for all of them, because the work of one rank delays the others.
    pub(super) fn join(&self) -> Result<(), CommandError> {
        if self.oversubscribed { self.barrier() } else { Ok(()) }
    }

    /// The round trip of a cache line between ranks 0 and 1, ns; `None` on other ranks. Collective.
    pub(super) fn round_trip(&self) -> Result<Option<f64>, CommandError> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        self.barrier()?;
        let Some(lines) = self.lines.as_ref().filter(|_| size > 1 && !self.oversubscribed) else {
            return Ok(None);
        };
        let mut best = f64::INFINITY;
        if rank < 2 {
            let (ping, pong) = (counter(lines, size), counter(lines, size + 1));
            for _ in 0..TRIES {
                let start = Instant::now();
                for _ in 0..ROUND_TRIPS {
                    let at = self.pings.get() + 1;
                    self.pings.set(at);
                    if rank == 0 {
                        ping.raise(at);
                        self.await_line(pong, at)?;
                    } else {
                        self.await_line(ping, at)?;
                        pong.raise(at);
                    }
                }
                best = best.min(start.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64);
            }
        }
        self.barrier()?;
        Ok((rank < 2).then_some(best))
    }

    fn await_line(&self, line: &Counter, epoch: u64) -> Result<(), CommandError> {
        let mut looks = 0u32;
        while line.look(epoch) != Seen::Reached {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 12) && self.comm.link().departures() != 0 {
                return Err(CommandError::RankLeft);
            }
            if self.oversubscribed {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

fn counter(lines: &Segment, at: usize) -> &Counter {
    // SAFETY: `Floor::new` allocates size + 2 counters, aligned to a page and zeroed; zero bytes are a valid counter. All accesses to
    // them are atomic.
    unsafe { lines.base().cast::<Counter>().add(at).as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_leaves_ends_the_barrier_of_the_others() {
        let [first, second] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(move || drop(Floor::new(&second).unwrap()));
            let barrier = Floor::new(&first).unwrap().barrier();
            assert!(matches!(barrier, Err(CommandError::RankLeft)), "{barrier:?}");
        });
    }
}
