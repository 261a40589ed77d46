//! The offsets between the clocks of the ranks.
//!
//! All processes of a machine share its monotonic clock, which counts from boot. Ranks of other machines exchange a few messages with
//! rank 0. The fastest round trip gives the best bound of the offset (Cristian 1989).

use halocline::{CommError, Communicator};
use halocline_comm::{Endpoint, Host, System, Tag};

/// Number of round trips for one offset.
const ROUNDS: u64 = 32;

/// The offset from this rank's clock to that of rank 0 at a moment of this rank's clock, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    at: u64,
    behind: i64,
    /// Maximum error of the offset.
    within: u64,
    /// The moment of rank 0's clock at which the timeline starts.
    origin: u64,
}

/// The offset between two readings. The clocks drift at a constant rate between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    first: Reading,
    last: Reading,
}

impl Reading {
    /// The offset of another clock whose moments are on the timeline. `read` reads this rank's clock, the other clock, and this rank's
    /// clock again; the fastest of a few readings counts.
    pub(super) fn of_another<E>(read: impl Fn() -> Result<(u64, u64, u64), E>) -> Result<Self, E> {
        let once = || {
            let (before, at, after) = read()?;
            let within = after.saturating_sub(before) / 2;
            Ok(Self { at, behind: (before + within).wrapping_sub(at) as i64, within, origin: 0 })
        };
        (1..ROUNDS).try_fold(once()?, |best, _| once().map(|reading| best.quicker(reading)))
    }

    /// The reading with the smaller error.
    fn quicker(self, other: Self) -> Self {
        if self.within <= other.within { self } else { other }
    }

    /// From this reading to a later one.
    pub(super) fn until(self, last: Self) -> Clock {
        Clock { first: self, last }
    }
}

impl Clock {
    /// A moment of this rank's clock on the timeline: nanoseconds since its start.
    pub(super) fn on_timeline(&self, moment: u64) -> i64 {
        let (first, last) = (self.first, self.last);
        let (span, since) = (last.at.saturating_sub(first.at).max(1), moment as i128 - first.at as i128);
        let drift = i128::from(last.behind - first.behind) * since / i128::from(span);
        (moment as i128 + i128::from(first.behind) + drift - first.origin as i128) as i64
    }

    /// The first offset and its error.
    pub(super) fn behind(&self) -> (i64, u64) {
        (self.first.behind, self.first.within.max(self.last.within))
    }
}

/// Compares this rank's clock with that of rank 0. Collective.
pub(super) fn measure(comm: &Communicator) -> Result<Reading, CommError> {
    measure_by(comm, &boot(), || System.now().as_nanos() as u64)
}

/// `boot` is equal for ranks that share a clock.
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

/// Identifies this boot of this machine and the clock of this process; empty if unknown.
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

    /// A rank on another machine, whose clock has another time and another rate.
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
