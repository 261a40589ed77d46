//! Identity and lifetime of memory.

use super::{Outcome, Rig};
use halocline_device::{DeviceError, Priority};
use std::time::{Duration, Instant};

pub fn identities(rig: &dyn Rig) -> Outcome {
    let [device, other] = rig.devices();
    for pinned in [false, true] {
        let allocate = || if pinned { device.allocate_pinned(4096) } else { device.allocate(4096) };
        let mut ids: Vec<u64> =
            (0..4).map(|_| allocate().map(|memory| memory.place().id)).collect::<Result<_, _>>()?;
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4, "pinned: {pinned}");
    }
    for memory in [device.allocate(100)?, device.allocate_pinned(100)?, other.allocate(100)?] {
        let place = device.place_of(memory.at(99))?;
        assert_eq!((place, place.bytes), (memory.place(), 100));
    }
    let gone = device.allocate(1 << 20)?.at(0);
    await_gone(rig, gone);
    Ok(())
}

/// Freeing of dropped memory may be deferred.
fn await_gone(rig: &dyn Rig, address: u64) {
    let start = Instant::now();
    loop {
        match rig.devices()[0].place_of(address) {
            Err(DeviceError::NotReachable { .. }) => return,
            found => assert!(found.is_ok() && start.elapsed() < Duration::from_secs(20), "{found:?}"),
        }
        rig.pause();
    }
}

pub fn registered(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let mut buffer = vec![0u64; 4096];
    let base = buffer.as_mut_ptr().expose_provenance() as u64;
    {
        // SAFETY: the memory lives longer than what is returned.
        let memory = unsafe { device.register(base, 8 * 4096, std::sync::Arc::new(())) }?;
        assert_eq!((memory.at(0), memory.place().bytes), (base, 8 * 4096));
        let near = device.allocate(8 * 4096)?;
        rig.fill(&stream, &near, 3)?;
        // SAFETY: the stream is synchronised before the memory goes.
        unsafe { stream.copy(memory.at(0), near.at(0), 8 * 4096) }?;
        rig.check(&stream, &memory, 3)?;
        stream.synchronise()?;
    }
    await_gone(rig, base);
    assert_eq!((buffer[0], buffer[4095]), (3, 4098));
    Ok(())
}
