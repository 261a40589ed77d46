//! The SM budget of a device: how many thread blocks wait in launches that can run at the same time, over all objects of a process.
//!
//! Launches of one stream run one after the other, so a stream needs as many blocks as its largest launch. If the streams together
//! need more than the limit, a launch first waits for the last launches of other streams, on the device. So two launches that do not
//! fit side by side never run at the same time, and the blocks that peers wait for always find a free multiprocessor.
//!
//! A launch waits for launches that this rank issued earlier, and for nothing else. Ranks issue the exchanges that share a device in
//! the same order, and none waits for a later exchange before it issues an earlier one. So the earliest unfinished exchange can run on
//! every rank: there is no deadlock.
//!
//! The launches of a graph are not counted: the host does not know when they run. They follow one another, and take less than the
//! multiprocessors that the limit leaves, of which each holds two blocks.

use crate::lock::{lock, lock_yielding};
use halocline_comm::Host;
use halocline_device::{Device, DeviceError, Event, Stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The budget of one device.
pub(crate) struct SmBudget {
    limit: u32,
    streams: Mutex<Reservations<Event>>,
}

/// The budgets of this process, by [`Device::id`]. The objects hold them.
static BUDGETS: Mutex<BTreeMap<(usize, u32), Weak<SmBudget>>> = Mutex::new(BTreeMap::new());

impl SmBudget {
    /// The budget of a device, which all its users in this process share.
    pub(crate) fn of(device: &Device) -> Arc<Self> {
        let mut budgets = lock(&BUDGETS);
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let known = budgets.get(&device.id()).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let made = Arc::new(Self { limit: device.waiting_block_limit(), streams: Mutex::default() });
            budgets.insert(device.id(), Arc::downgrade(&made));
            made
        })
    }

    /// Reserves blocks for the next launch on a stream, whose [`Stream::id`] is `id`. May order the stream after launches of other
    /// streams. No other thread reserves blocks until the result is dropped: another launch may have to wait for this one.
    pub(crate) fn reserve(
        &self,
        host: &dyn Host,
        (stream, id): (&Stream, Option<u64>),
        (blocks, chains): (u32, bool),
    ) -> Result<Reserved<'_>, DeviceError> {
        let mut streams = lock_yielding(&self.streams, host);
        let wait = |last: &Event| if chains { stream.wait(last) } else { Ok(()) };
        let blocks = streams.free_budget(self.limit, (id, blocks), Event::query, wait)?;
        Ok(Reserved { streams, id, blocks })
    }
}

/// Blocks that are reserved for a launch that is about to be issued.
pub(crate) struct Reserved<'a> {
    streams: MutexGuard<'a, Reservations<Event>>,
    id: Option<u64>,
    blocks: u32,
}

impl Reserved<'_> {
    /// The launch is issued; `last` is recorded after it.
    pub(crate) fn launched(mut self, last: &Event) {
        let (id, blocks) = (self.id, self.blocks);
        self.streams.add(Reservation { stream: id, blocks, last: last.clone() });
    }
}

/// The reservations of the streams with launches in flight, that of the latest launch last.
struct Reservations<E>(Vec<Reservation<E>>);

/// The blocks that launches of a stream need until `last`, which is recorded after the latest one. They include the blocks of the
/// launches of other streams that it waits for.
struct Reservation<E> {
    /// Two launches without an identifier count as launches of different streams.
    stream: Option<u64>,
    blocks: u32,
    last: E,
}

impl<E> Default for Reservations<E> {
    fn default() -> Self {
        Self(Vec::with_capacity(SPARE))
    }
}

/// Streams with launches in flight until the list of reservations grows.
const SPARE: usize = 64;

impl<E> Reservations<E> {
    /// Frees budget for a launch that needs `blocks` on a stream. If they exceed the limit, first forgets launches that are over, then
    /// lets the stream wait for those that were issued longest ago. Returns the blocks to reserve.
    fn free_budget<X>(
        &mut self,
        limit: u32,
        (stream, blocks): (Option<u64>, u32),
        is_over: impl Fn(&E) -> Result<bool, X>,
        wait: impl Fn(&E) -> Result<(), X>,
    ) -> Result<u32, X> {
        if self.exceeds(limit, stream, blocks) || self.0.len() == self.0.capacity() {
            let mut failed = None;
            self.0.retain(|one| match is_over(&one.last) {
                Ok(is_over) => !is_over,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            });
            failed.map_or(Ok(()), Err)?;
        }
        let is_same = |one: &Reservation<E>| stream.is_some() && one.stream == stream;
        let mut earlier = self.0.iter().find(|&one| is_same(one)).map_or(0, |one| one.blocks);
        while self.exceeds(limit, stream, blocks) {
            let Some(oldest) = self.0.iter().position(|one| !is_same(one)) else { break };
            wait(&self.0[oldest].last)?;
            // It may run beside an earlier launch of this stream.
            earlier += self.0.remove(oldest).blocks;
        }
        Ok(earlier.max(blocks))
    }

    /// Whether `blocks` of a stream exceed the limit beside the other streams.
    fn exceeds(&self, limit: u32, stream: Option<u64>, blocks: u32) -> bool {
        let others = self.0.iter().filter(|one| stream.is_none() || one.stream != stream);
        let others: u64 = others.map(|one| u64::from(one.blocks)).sum();
        others + u64::from(blocks) > u64::from(limit)
    }

    fn add(&mut self, new: Reservation<E>) {
        self.0.retain(|one| new.stream.is_none() || one.stream != new.stream);
        self.0.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::convert::Infallible;

    /// A launch, by its number; those in `over` are over. Returns what it waits for.
    fn launch(
        reservations: &mut Reservations<u32>,
        (stream, blocks): (Option<u64>, u32),
        (number, over): (u32, &[u32]),
    ) -> Vec<u32> {
        let waits = RefCell::new(Vec::new());
        let wait = |&last: &u32| {
            waits.borrow_mut().push(last);
            Ok::<(), Infallible>(())
        };
        let Ok(blocks) = reservations.free_budget(10, (stream, blocks), |last| Ok(over.contains(last)), wait);
        reservations.add(Reservation { stream, blocks, last: number });
        waits.into_inner()
    }

    fn reserved(reservations: &Reservations<u32>) -> Vec<(Option<u64>, u32)> {
        reservations.0.iter().map(|one| (one.stream, one.blocks)).collect()
    }

    #[test]
    fn launches_of_one_stream_never_wait_for_each_other() {
        let mut all = Reservations::default();
        for number in 0..100 {
            assert!(launch(&mut all, (Some(7), 10), (number, &[])).is_empty());
        }
        assert_eq!(reserved(&all), [(Some(7), 10)]);
    }

    #[test]
    fn launches_that_fit_side_by_side_wait_for_nothing() {
        let mut all = Reservations::default();
        for (number, stream) in [1, 2, 1, 2].into_iter().enumerate() {
            assert!(launch(&mut all, (Some(stream), 5), (number as u32, &[])).is_empty());
        }
        assert_eq!(reserved(&all), [(Some(1), 5), (Some(2), 5)]);
    }

    #[test]
    fn a_launch_beyond_the_limit_waits_for_the_streams_that_launched_longest_ago() {
        let mut all = Reservations::default();
        launch(&mut all, (Some(1), 3), (0, &[]));
        launch(&mut all, (Some(2), 3), (1, &[]));
        launch(&mut all, (Some(3), 3), (2, &[]));
        launch(&mut all, (Some(1), 3), (3, &[]));
        assert_eq!(launch(&mut all, (Some(4), 4), (4, &[])), [1]);
        assert_eq!(reserved(&all), [(Some(3), 3), (Some(1), 3), (Some(4), 4)]);
        assert_eq!(launch(&mut all, (Some(2), 10), (5, &[])), [2, 3, 4]);
    }

    #[test]
    fn launches_that_are_over_free_budget_without_a_wait() {
        let mut all = Reservations::default();
        launch(&mut all, (Some(1), 6), (0, &[]));
        assert!(launch(&mut all, (Some(2), 6), (1, &[0])).is_empty());
        assert_eq!(launch(&mut all, (Some(3), 6), (2, &[0])), [1]);
    }

    /// The launch that is waited for still runs: a third stream must not use its blocks.
    #[test]
    fn a_stream_that_waits_reserves_the_blocks_of_the_launch_that_it_waits_for() {
        let mut all = Reservations::default();
        launch(&mut all, (Some(1), 8), (0, &[]));
        assert_eq!(launch(&mut all, (Some(2), 5), (1, &[])), [0]);
        assert_eq!(reserved(&all), [(Some(2), 8)]);
        assert_eq!(launch(&mut all, (Some(3), 5), (2, &[])), [1]);
    }

    #[test]
    fn a_stream_that_waits_reserves_those_blocks_beside_its_own_earlier_ones() {
        let mut all = Reservations::default();
        launch(&mut all, (Some(1), 3), (0, &[]));
        launch(&mut all, (Some(2), 3), (1, &[]));
        launch(&mut all, (Some(3), 4), (2, &[]));
        assert_eq!(launch(&mut all, (Some(3), 5), (3, &[])), [0]);
        assert_eq!(reserved(&all), [(Some(2), 3), (Some(3), 7)]);
    }

    #[test]
    fn launches_of_unknown_streams_count_as_concurrent() {
        let mut all = Reservations::default();
        assert!(launch(&mut all, (None, 6), (0, &[])).is_empty());
        assert_eq!(launch(&mut all, (None, 6), (1, &[])), [0]);
        assert_eq!(reserved(&all), [(None, 6)]);
    }

    #[test]
    fn launches_that_are_over_are_forgotten_before_the_list_grows() {
        let mut all = Reservations::default();
        let capacity = all.0.capacity();
        for number in 0..4 * capacity as u32 {
            let Ok(blocks) = all.free_budget(
                u32::MAX,
                (Some(u64::from(number)), 1),
                |_| Ok::<_, Infallible>(true),
                |_| Ok(()),
            );
            all.add(Reservation { stream: Some(u64::from(number)), blocks, last: number });
        }
        assert_eq!(all.0.capacity(), capacity);
    }

    /// Whatever the order of launches and ends, the blocks of all launches that can run fit the limit.
    #[test]
    fn launches_that_can_run_at_the_same_time_fit_the_limit() {
        for seed in 0..200u64 {
            let mut random = seed;
            let mut below = |n: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % n
            };
            let mut all = Reservations::default();
            // Of each launch: its stream, its blocks, the launches before it, and whether it is over.
            let mut launches: Vec<(u64, u32, Vec<u32>, bool)> = Vec::new();
            for number in 0..40 {
                let (stream, blocks) = (below(4), 1 + below(10) as u32);
                let over: Vec<u32> = (0..number).filter(|&at| launches[at as usize].3).collect();
                let mut before = launch(&mut all, (Some(stream), blocks), (number, &over));
                before.extend((0..number).filter(|&at| launches[at as usize].0 == stream));
                launches.push((stream, blocks, before, false));
                let can_run = |at: usize| {
                    !launches[at].3 && launches[at].2.iter().all(|&before| launches[before as usize].3)
                };
                let running: Vec<usize> = (0..launches.len()).filter(|&at| can_run(at)).collect();
                let sum: u32 = running.iter().map(|&at| launches[at].1).sum();
                assert!(sum <= 10, "seed {seed}: {sum} blocks run at once");
                for at in running {
                    launches[at].3 |= below(3) == 0;
                }
            }
        }
    }
}
