//! Internal streams and events, which all objects of a rank share on a device.
//!
//! Streams share the hardware queues ([`Device::queues`]), and a stream that waits blocks later work in its queue. Ranks that are
//! threads of one process wait for each other's streams: so each rank that shares a device has one stream, and a bind fails if there
//! are too few queues.

use super::Captured;
use super::sm_budget::SmBudget;
use crate::error::Error;
use crate::lock::{lock, lock_yielding};
use halocline_comm::{Communicator, Endpoint};
use halocline_device::{Device, DeviceError, EventPool, Priority, Stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The most internal streams of a rank on a device, besides the one that writes poison.
const STREAMS: usize = 4;

/// Events that a rank creates for a device at its first bind. Each exchange in flight uses one, and so does each stream that it begins
/// after. With more in use, a begin creates one: CUDA then waits for copies of other threads to pageable memory, and such a copy may
/// wait for the exchange of this rank.
const EVENTS: usize = 16;

/// The least that a rank needs: its internal stream, the stream that writes poison, one of the user's.
const LEAST: usize = 3;

/// A rank's streams and events. One for each rank.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Shared>, Mutex<()>);

#[derive(Default)]
struct Shared {
    devices: BTreeMap<(usize, u32), OnceLock<Arc<OfDevice>>>,
}

/// How many ranks of this process use each device.
static RANKS: Mutex<BTreeMap<(usize, u32), usize>> = Mutex::new(BTreeMap::new());

/// The same for one device.
pub(crate) struct OfDevice {
    /// The internal streams, each with its [`Stream::id`].
    streams: Vec<(Stream, Option<u64>)>,
    /// Writes poison, past the streams that wait.
    pub(crate) rescue: Arc<Stream>,
    pub(crate) events: EventPool,
    /// Events that captures record: an event of a capture must not be asked whether it is over.
    pub(crate) captured_events: EventPool,
    /// The stream that forks from the users' streams in captures of exchanges that overlap with other work.
    fork: OnceLock<Stream>,
    /// The exchange that was captured last, of all objects.
    pub(crate) last_captured: Mutex<Option<Captured>>,
    device: Device,
    pub(crate) budget: Arc<SmBudget>,
}

impl Pool {
    /// While the guard is held, no other thread gives an exchange to several lanes.
    pub(crate) fn enter(&self, comm: &Communicator) -> MutexGuard<'_, ()> {
        lock_yielding(&self.1, comm.link().host())
    }

    /// This rank uses these devices from now on. Before any rank that binds with it asks for streams.
    pub(crate) fn join(&self, devices: &[Device]) {
        let mut shared = lock(&self.0);
        for device in devices {
            shared.devices.entry(device.id()).or_insert_with(|| {
                *lock(&RANKS).entry(device.id()).or_default() += 1;
                OnceLock::new()
            });
        }
    }

    /// Whether no other rank of this process uses any of these devices.
    pub(crate) fn is_alone(&self, devices: &[Device]) -> bool {
        let ranks = lock(&RANKS);
        devices.iter().all(|device| ranks.get(&device.id()).is_none_or(|&ranks| ranks == 1))
    }

    pub(crate) fn of(&self, device: &Device) -> Result<Arc<OfDevice>, Error> {
        let id = device.id();
        let known = |shared: &Shared| shared.devices.get(&id).and_then(OnceLock::get).cloned();
        // Not made under the lock: device calls may wait.
        if let Some(found) = known(&lock(&self.0)) {
            return Ok(found);
        }
        let (queues, ranks) = (device.queues(), lock(&RANKS).get(&id).copied().unwrap_or(1));
        let count =
            share(queues, ranks).ok_or(Error::TooFewQueues { device: device.ordinal(), queues, ranks })?;
        let stream = |_| device.stream(Priority::Highest).map(|stream| (stream.id(), stream));
        let streams = (0..count).map(stream).map(|made| made.map(|(id, stream)| (stream, id)));
        let events = device.events();
        events.reserve(EVENTS)?;
        let made = Arc::new(OfDevice {
            streams: streams.collect::<Result<_, _>>()?,
            rescue: Arc::new(device.stream(Priority::Highest)?),
            events,
            captured_events: device.events(),
            fork: OnceLock::new(),
            last_captured: Mutex::default(),
            device: device.clone(),
            budget: SmBudget::of(device),
        });
        let mut shared = lock(&self.0);
        let place = shared.devices.entry(id).or_default();
        Ok(Arc::clone(place.get_or_init(|| made)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for id in lock(&self.0).devices.keys() {
            if let Some(ranks) = lock(&RANKS).get_mut(id) {
                *ranks -= 1;
            }
        }
    }
}

/// How many internal streams a rank may have: half of the queues, but only one if ranks share the device.
fn share(queues: u32, ranks: usize) -> Option<usize> {
    let queues = queues as usize;
    match ranks {
        0 | 1 => Some((queues / 2).saturating_sub(1).clamp(1, STREAMS)),
        _ => (LEAST * ranks <= queues).then_some(1),
    }
}

impl OfDevice {
    /// The internal stream beside a user's: exchanges that follow one another there do so here. Few streams of the user's share one.
    pub(crate) fn beside(&self, stream: &Stream) -> &Stream {
        // Of a handle alone: one that is used again for another stream may select any.
        let mixed = (stream.raw().0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.streams[mixed as usize % self.streams.len()].0
    }

    /// An internal stream for an exchange without a stream of the user's.
    pub(crate) fn any(&self) -> &Stream {
        &self.streams[0].0
    }

    /// The stream that forks from the users' in captures.
    pub(crate) fn fork(&self) -> Result<&Stream, DeviceError> {
        if self.fork.get().is_none() {
            // Another thread may make one meanwhile.
            drop(self.fork.set(self.device.stream(Priority::Highest)?));
        }
        Ok(self.fork.get().expect("it was made just now"))
    }

    /// The [`Stream::id`] of a stream.
    pub(crate) fn id_of(&self, stream: &Stream) -> Option<u64> {
        let own = self.streams.iter().find(|(own, _)| std::ptr::eq(own, stream));
        own.map_or_else(|| stream.id(), |(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_device::sim::{Options, explore};

    #[test]
    fn the_first_exchanges_create_no_event() {
        explore(0..1, &Options::default(), |world| {
            let device = world.device(0).expect("a device");
            let events = &Pool::default().of(&device).expect("streams").events;
            assert_eq!((events.made(), events.idle()), (EVENTS, EVENTS));
            let taken: Vec<_> = (0..EVENTS).map(|_| events.take().expect("an event")).collect();
            assert_eq!((events.made(), taken.len()), (EVENTS, EVENTS));
        });
    }

    #[test]
    fn ranks_that_share_a_device_have_no_more_streams_than_its_queues() {
        assert_eq!([1, 4, 8, 32, u32::MAX].map(|queues| share(queues, 1)), [1, 1, 3, 4, 4].map(Some));
        for ranks in 2..=12 {
            assert_eq!(share(u32::MAX, ranks), Some(1));
            assert_eq!(share((LEAST * ranks) as u32, ranks), Some(1));
            assert_eq!(share((LEAST * ranks) as u32 - 1, ranks), None);
        }
    }
}
