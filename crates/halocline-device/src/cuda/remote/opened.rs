//! Addresses of opened memory of other processes. A device can access it although its GPU is not visible to
//! this process, or grants no other access.

use crate::driver::Address;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Opened ranges of all devices.
static OPENED: Mutex<Ranges> = Mutex::new(Ranges(BTreeMap::new()));

/// Number of changes, so that readers (every exchange whose streams wait for flags there) take no lock.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The ranges that this thread last read, and the number of changes at that time.
    static SEEN: RefCell<(u64, Ranges)> = const { RefCell::new((0, Ranges(BTreeMap::new()))) };
}

fn change(what: impl FnOnce(&mut Ranges)) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    what(&mut opened);
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Records that a device has opened bytes at an address once more.
pub(super) fn note(device: u32, base: Address, bytes: u64) {
    change(|ranges| ranges.add(device, base, bytes));
}

/// Records that a device has closed them once.
pub(super) fn forget(device: u32, base: Address) {
    change(|ranges| ranges.remove(device, base));
}

/// Whether a device has bytes open. A concurrent change of another thread may or may not be visible.
pub(in crate::cuda) fn holds(device: u32, address: Address, bytes: usize) -> bool {
    let look = |seen: &RefCell<(u64, Ranges)>| {
        let (changes, ranges) = &mut *seen.borrow_mut();
        if CHANGES.load(Ordering::Acquire) != *changes {
            let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so no thread changes it meanwhile.
            *changes = CHANGES.load(Ordering::Relaxed);
            ranges.clone_from(&opened);
        }
        ranges.hold(device, address, bytes as u64)
    };
    // A thread that is exiting has no thread-local copy.
    SEEN.try_with(look).unwrap_or_else(|_| {
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).hold(device, address, bytes as u64)
    })
}

/// By device and first byte: the end and the number of opens. The driver returns the same address while it
/// is open.
#[derive(Clone, Default)]
struct Ranges(BTreeMap<(u32, Address), (Address, usize)>);

impl Ranges {
    fn add(&mut self, device: u32, base: Address, bytes: u64) {
        let (end, count) = self.0.entry((device, base)).or_default();
        (*end, *count) = ((*end).max(base.saturating_add(bytes)), *count + 1);
    }

    fn remove(&mut self, device: u32, base: Address) {
        if let Some((_, count)) = self.0.get_mut(&(device, base)) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&(device, base));
            }
        }
    }

    fn hold(&self, device: u32, address: Address, bytes: u64) -> bool {
        let before = self.0.range((device, 0)..=(device, address)).next_back();
        let end = address.checked_add(bytes);
        before.zip(end).is_some_and(|((_, (last, _)), end)| address < *last && end <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_see_what_others_have_opened_and_closed() {
        // An address unused elsewhere; no device has this ordinal.
        let (device, base) = (4_000_000_000, 0x7000_0000_0000);
        assert!(!holds(device, base, 8));
        for _ in 0..100 {
            std::thread::scope(|scope| scope.spawn(|| note(device, base, 64)).join().unwrap());
            assert!(holds(device, base + 56, 8));
            std::thread::scope(|scope| scope.spawn(|| assert!(holds(device, base, 64))).join().unwrap());
            std::thread::scope(|scope| scope.spawn(|| forget(device, base)).join().unwrap());
            assert!(!holds(device, base, 8));
        }
    }

    #[test]
    fn a_device_reaches_exactly_its_open_mappings() {
        let mut ranges = Ranges::default();
        ranges.add(1, 0x1000, 0x100);
        ranges.add(1, 0x1100, 0x80);
        let reached = [(0x1000, 0x100), (0x1000, 8), (0x10f8, 8), (0x1100, 0x80), (0x1180 - 8, 8)];
        assert!(reached.iter().all(|&(address, bytes)| ranges.hold(1, address, bytes)));
        // Before it, after it, across its end, across two adjacent ones, of another device.
        let not = [(0xff8, 8), (0x1180, 8), (0x1180, 0), (0x117c, 8), (0x1000, 0x180), (u64::MAX, 8)];
        assert!(not.iter().all(|&(address, bytes)| !ranges.hold(1, address, bytes)));
        assert!([0, 2].iter().all(|&device| !ranges.hold(device, 0x1000, 8)));
        // Memory opened twice must be closed twice.
        ranges.add(1, 0x1000, 0x100);
        ranges.remove(1, 0x1000);
        assert!(ranges.hold(1, 0x1000, 8));
        ranges.remove(1, 0x1000);
        assert!(!ranges.hold(1, 0x1000, 8) && ranges.hold(1, 0x1100, 8));
        // Closing memory that was never open is no error here: the driver reports it.
        ranges.remove(1, 0x1000);
        ranges.remove(1, 0x1100);
        assert!(ranges.0.is_empty());
    }
}
