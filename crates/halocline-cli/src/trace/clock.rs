//! How the clocks of the ranks differ.
//!
//! The monotonic clock counts from the boot of a machine, and is one for all its processes. Ranks of other
//! machines send rank 0 a few messages to and fro: of those, the quickest bounds best what its clock showed
//! meanwhile (Cristian 1989).

use halocline::{CommError, Communicator};
use halocline_comm::Endpoint;
use halocline_comm::{Host, System, Tag};

/// Messages to and fro for one offset.
const ROUNDS: u64 = 32;

/// How far this rank's clock is behind that of rank 0, at some moment of its own. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    at: u64,
    behind: i64,
    /// The truth is at most so far away.
    within: u64,
    /// The moment of rank 0's clock at which the timeline begins.
    origin: u64,
}

/// As a [`Reading`], from one to another, between which clocks drift evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    first: Reading,
    last: Reading,
}

impl Reading {
    /// Of another clock beside this rank's, whose moments are then on the timeline: the quickest of a few, each of this rank's clock,
    /// the other one, and this rank's again.
    pub(super) fn of_another<E>(read: impl Fn() -> Result<(u64, u64, u64), E>) -> Result<Self, E> {
        let once = || {
            let (before, at, after) = read()?;
            let within = after.saturating_sub(before) / 2;
            Ok(Self { at, behind: (before + within).wrapping_sub(at) as i64, within, origin: 0 })
        };
        (1..ROUNDS).try_fold(once()?, |best, _| once().map(|reading| best.quicker(reading)))
    }

    /// The one that is known better.
    fn quicker(self, other: Self) -> Self {
        if self.within <= other.within { self } else { other }
    }

    /// From this reading to a later one.
    pub(super) fn until(self, last: Self) -> Clock {
        Clock { first: self, last }
    }
}

impl Clock {
    /// A moment of this rank's clock on the timeline: nanoseconds since its beginning.
    pub(super) fn on_timeline(&self, moment: u64) -> i64 {
        let (first, last) = (self.first, self.last);
        let (span, since) = (last.at.saturating_sub(first.at).max(1), moment as i128 - first.at as i128);
        let drift = i128::from(last.behind - first.behind) * since / i128::from(span);
        (moment as i128 + i128::from(first.behind) + drift - first.origin as i128) as i64
    }

    /// How far the clock is behind at first, and how sure that is.
    pub(super) fn behind(&self) -> (i64, u64) {
        (self.first.behind, self.first.within.max(self.last.within))
    }
}

/// Compares this rank's clock with that of rank 0. Collective.
pub(super) fn measure(comm: &Communicator) -> Result<Reading, CommError> {
    measure_by(comm, &boot(), || System.now().as_nanos() as u64)
}

/// `boot`: equal for ranks that have one clock.
fn measure_by(comm: &Communicator, boot: &str, now: impl Fn() -> u64) -> Result<Reading, CommError> {
    let operation = comm.begin();
    let origin = comm.broadcast(0, now())?;
    let boots = comm.all_gather(boot.as_bytes())?;
    let same = |rank: usize| !boot.is_empty() && boots.first() == boots.get(rank);
    if comm.rank() == 0 {
        for rank in (1..comm.size()).filter(|&rank| !same(rank)) {
            for round in 0..ROUNDS {
                let tag = Tag { operation, round };
                comm.receive(Some(rank), tag, "a reading of a clock")?;
                comm.send(rank, tag, now().to_le_bytes().to_vec())?;
            }
        }
        return Ok(Reading { at: now(), behind: 0, within: 0, origin });
    }
    if same(comm.rank()) {
        return Ok(Reading { at: now(), behind: 0, within: 0, origin });
    }
    let mut best: Option<Reading> = None;
    for round in 0..ROUNDS {
        let tag = Tag { operation, round };
        let before = now();
        comm.send(0, tag, Vec::new())?;
        let there = comm.receive(Some(0), tag, "a reading of rank 0's clock")?.payload;
        let after = now();
        let there = word(&there).ok_or_else(|| malformed("a reading of its clock"))?;
        let at = before + (after - before) / 2;
        let reading = Reading { at, behind: there as i64 - at as i64, within: (after - before) / 2, origin };
        best = Some(best.map_or(reading, |best| best.quicker(reading)));
    }
    best.ok_or_else(|| malformed("no reading of its clock"))
}

fn malformed(what: &str) -> CommError {
    CommError::Malformed { from: 0, what: what.to_owned() }
}

fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// What names this boot of this machine, with the clock of this process; empty if that is not known.
fn boot() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let clock = || std::fs::read_link("/proc/self/ns/time").ok();
    match (read("/proc/sys/kernel/random/boot_id"), clock()) {
        (Some(boot), Some(clock)) => format!("{} {}", boot.trim(), clock.display()),
        // A kernel without namespaces of time.
        (Some(boot), None) => boot.trim().to_owned(),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank on another machine, whose clock shows another time and goes another pace.
    #[test]
    fn the_clock_of_another_machine_is_put_right() {
        const BEHIND: u64 = 3_600_000_000_000;
        let ranks = Communicator::threads(3).into_iter().map(|comm| {
            std::thread::spawn(move || {
                let rank = comm.rank();
                // The machine may have started less than an hour ago.
                let late = || System.now().as_nanos() as u64 + BEHIND;
                let now = move || late() - if rank == 1 { BEHIND } else { 0 };
                let boot = if rank == 1 { "b" } else { "a" };
                let first = measure_by(&comm, boot, now).unwrap();
                let second = measure_by(&comm, boot, now).unwrap();
                let clock = first.until(second);
                let moment = late();
                let mine = moment - if rank == 1 { BEHIND } else { 0 };
                let error = clock.on_timeline(mine) - (moment - first.origin) as i64;
                (error.unsigned_abs(), clock.behind())
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let ends: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        for rank in [0, 2] {
            assert_eq!(ends[rank], (0, (0, 0)), "rank {rank} has the clock of rank 0");
        }
        let (error, (behind, within)) = ends[1];
        assert!(behind.abs_diff(BEHIND as i64) <= within, "{behind} +- {within}");
        assert!(within > 0 && error <= 10_000_000, "{error} ns away");
    }

    #[test]
    fn a_clock_that_drifts_is_put_right_between_two_readings() {
        let reading = |at, behind| Reading { at, behind, within: 1, origin: 500 };
        let clock = reading(1000, 100).until(reading(2000, 200));
        assert_eq!(clock.on_timeline(1000), 600);
        assert_eq!(clock.on_timeline(1500), 1150);
        assert_eq!(clock.on_timeline(2000), 1700);
    }
}
