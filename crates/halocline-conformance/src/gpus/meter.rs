//! Measures exchanges of a fixture's fields on GPUs: first checks every cell, then times them.

use super::{Gpu, Gpus};
use crate::device_fixtures::{DeviceFixture, Rig};
use crate::{Outcome, Trouble};
use halocline::device::Priority;
use halocline::{Communicator, HaloExchange, Pending, Reduce, Stream};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Steps whose every cell is compared.
const STEPS: u64 = 4;
/// Blocks of a figure: its value is their median.
pub(super) const BLOCKS: usize = 11;
/// About how long a block takes, us, and how many exchanges it has.
const BLOCK: f64 = 3000.0;
const COUNTS: [f64; 2] = [20.0, 400.0];
/// Exchanges that the host is ahead of the GPU, at most; 64 may be in flight.
const AHEAD: usize = 56;
/// Rounds of the host's time, each behind a kernel of so many ns.
const ROUNDS: usize = 31;
const BEHIND: u64 = 1_000_000;

/// What is timed: each call enqueues one or several.
pub struct Method<'a> {
    kind: Kind<'a>,
    /// How many.
    at_once: usize,
    /// What else a stream is given, between the two calls of a scheduled exchange.
    beside: Option<Give<'a>>,
}

type Give<'a> = Box<dyn Fn(&Stream) -> Outcome + 'a>;

enum Kind<'a> {
    /// Scheduled exchanges of objects in turn, and those that the host has not seen the end of.
    Exchange(Vec<HaloExchange>, RefCell<Flights>),
    Other(Give<'a>),
}

/// The exchanges that the host has not seen the end of, and how many there were.
#[derive(Default)]
struct Flights {
    ahead: VecDeque<Pending>,
    given: usize,
}

impl<'a> Method<'a> {
    /// A scheduled exchange and its wait.
    pub fn exchange(halo: HaloExchange) -> Self {
        Self::in_turn(vec![halo])
    }

    /// The same, each time of the next object.
    pub fn in_turn(halos: Vec<HaloExchange>) -> Self {
        Self { kind: Kind::Exchange(halos, RefCell::default()), at_once: 1, beside: None }
    }

    /// Anything else.
    pub fn other(give: impl Fn(&Stream) -> Outcome + 'a) -> Self {
        Self::several(1, give)
    }

    /// So many of anything else by one call; times are those of one.
    pub fn several(at_once: usize, give: impl Fn(&Stream) -> Outcome + 'a) -> Self {
        Self { kind: Kind::Other(Box::new(give)), at_once, beside: None }
    }

    /// The same with work beside the exchange.
    pub fn beside(mut self, work: impl Fn(&Stream) -> Outcome + 'a) -> Self {
        self.beside = Some(Box::new(work));
        self
    }

    fn give(&self, stream: &Stream) -> Outcome {
        let (halos, Flights { ahead, given }) = match &self.kind {
            Kind::Exchange(halos, flights) => (halos, &mut *flights.borrow_mut()),
            Kind::Other(give) => return give(stream),
        };
        // Half of them at once, so that it is one look for many.
        if ahead.len() == AHEAD
            && let Some(latest) = ahead.drain(..AHEAD / 2).next_back()
        {
            latest.wait()?;
        }
        let pending = halos[*given % halos.len()].schedule_exchange(&[stream])?;
        *given += 1;
        self.beside.as_ref().map_or(Ok(()), |beside| beside(stream))?;
        pending.schedule_wait(stream)?;
        ahead.push_back(pending);
        Ok(())
    }

    /// What one takes of a call's time, us.
    fn one(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.at_once as f64
    }

    /// Waits until the stream is idle.
    fn finish(&self, stream: &Stream) -> Outcome {
        stream.synchronise()?;
        if let Kind::Exchange(_, flights) = &self.kind {
            flights.borrow_mut().ahead.drain(..).try_for_each(|pending| pending.wait())?;
        }
        Ok(())
    }
}

/// A rank, its GPU, and the stream that it measures on.
pub struct Meter<'a> {
    /// The ranks.
    pub comm: &'a Communicator,
    /// This rank's GPU.
    pub gpu: &'a Gpu,
    /// A stream of it.
    pub stream: Stream,
    rig: &'a Gpus,
}

impl<'a> Meter<'a> {
    /// For a rank with its GPU.
    pub fn new(comm: &'a Communicator) -> Result<Self, Trouble> {
        let rig = Gpus::get()?;
        let gpu = rig.of_rank(comm.rank());
        Ok(Self { comm, gpu, stream: gpu.device().stream(Priority::Normal)?, rig })
    }

    /// How many GPUs this process sees.
    pub fn gpus(&self) -> usize {
        self.rig.devices().len()
    }

    /// Exchanges new data of all fields a few times, and compares every cell with what its owner wrote. `number`: which method of the
    /// same fixture it is, so that what others have moved is found. Collective.
    pub fn check(&self, fixture: &DeviceFixture, method: &Method<'_>, number: u64) -> Outcome {
        let pieces = || fixture.pieces.iter().flatten();
        for step in STEPS * number..STEPS * (number + 1) {
            self.rig.delay(&self.stream)?;
            pieces().try_for_each(|piece| self.rig.produce_at_once(piece, &self.stream, step))?;
            self.rig.delay(&self.stream)?;
            method.give(&self.stream)?;
            pieces().try_for_each(|piece| self.rig.consume_at_once(piece, &self.stream, step))?;
        }
        method.finish(&self.stream)?;
        self.rig.check()?;
        Ok(self.comm.barrier()?)
    }

    /// The time of one of many in a row, us: the median over blocks of the slowest rank's. Collective.
    pub fn steady(&self, method: &Method<'_>) -> Result<f64, Trouble> {
        let block = |count: usize| -> Result<f64, Trouble> {
            self.comm.barrier()?;
            let begin = Instant::now();
            (0..count).try_for_each(|_| method.give(&self.stream))?;
            self.stream.synchronise()?;
            let elapsed = begin.elapsed();
            method.finish(&self.stream)?;
            Ok(method.one(elapsed) / count as f64)
        };
        let calls = |count: f64| (count as usize).div_ceil(method.at_once);
        block(calls(5.0))?;
        let first = self.slowest(&[block(calls(20.0))?])?[0];
        let count = calls((BLOCK / first.max(0.1)).clamp(COUNTS[0], COUNTS[1]));
        let times = (0..BLOCKS).map(|_| block(count)).collect::<Result<Vec<_>, _>>()?;
        Ok(median(self.slowest(&times)?))
    }

    /// What the host takes for one, us, behind a kernel that keeps the GPU busy: the first, and the mean of two more; medians over
    /// rounds of the slowest rank's. Collective.
    pub fn host(&self, method: &Method<'_>) -> Result<[f64; 2], Trouble> {
        let (mut firsts, mut others) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            method.finish(&self.stream)?;
            self.comm.barrier()?;
            self.gpu.delay(&self.stream, BEHIND)?;
            let begin = Instant::now();
            method.give(&self.stream)?;
            let first = begin.elapsed();
            method.give(&self.stream)?;
            method.give(&self.stream)?;
            firsts.push(method.one(first));
            others.push(method.one(begin.elapsed() - first) / 2.0);
        }
        method.finish(&self.stream)?;
        Ok([median(self.slowest(&firsts)?), median(self.slowest(&others)?)])
    }

    /// Of each time that of the slowest rank. Collective.
    fn slowest(&self, times: &[f64]) -> Result<Vec<f64>, Trouble> {
        let nanoseconds: Vec<u64> = times.iter().map(|us| (us * 1e3) as u64).collect();
        let slowest = self.comm.all_reduce(&nanoseconds, Reduce::Max)?;
        Ok(slowest.into_iter().map(|ns| ns as f64 / 1e3).collect())
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
