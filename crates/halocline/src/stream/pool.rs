//! What all objects of a rank share on a device: internal streams and events.

use crate::error::Error;
use halocline_device::{Device, EventPool, Priority, Stream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Internal streams of a rank on a device, besides the one that writes poison.
const STREAMS: usize = 4;

/// One for each rank.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    /// Objects bound so far: the same on all ranks that bind together.
    objects: usize,
    devices: Vec<(u32, Arc<OfDevice>)>,
}

/// The same for one device.
pub(crate) struct OfDevice {
    pub(crate) streams: Vec<Arc<Stream>>,
    /// Writes poison, past the streams that wait.
    pub(crate) rescue: Arc<Stream>,
    pub(crate) events: EventPool,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new object. Objects share streams by it, on all ranks the same ones: who shares a stream is
    /// in one order everywhere.
    pub(crate) fn next(&self) -> usize {
        let mut shared = self.lock();
        shared.objects += 1;
        shared.objects - 1
    }

    pub(crate) fn of(&self, device: &Device) -> Result<Arc<OfDevice>, Error> {
        let known = |shared: &Shared| {
            let found = shared.devices.iter().find(|(ordinal, _)| *ordinal == device.ordinal());
            found.map(|(_, found)| Arc::clone(found))
        };
        // Not made under the lock: calls of a device may wait.
        if let Some(found) = known(&self.lock()) {
            return Ok(found);
        }
        let stream = || device.stream(Priority::Highest).map(Arc::new);
        let streams = (0..STREAMS).map(|_| stream()).collect::<Result<_, _>>()?;
        let made = Arc::new(OfDevice { streams, rescue: stream()?, events: device.events() });
        let mut shared = self.lock();
        Ok(known(&shared).unwrap_or_else(|| {
            shared.devices.push((device.ordinal(), Arc::clone(&made)));
            made
        }))
    }
}

impl OfDevice {
    /// The stream of an object.
    pub(crate) fn stream(&self, object: usize) -> &Arc<Stream> {
        &self.streams[object % STREAMS]
    }
}
