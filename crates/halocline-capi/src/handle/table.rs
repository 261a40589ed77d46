//! The table of objects that C holds handles of.
//!
//! A handle has the index of a slot, the kind of the object and the generation of the slot. A slot gets a new generation
//! when its object is freed, so that a handle of a freed object never names another object.
//!
//! A call pins the slots of its arguments while it runs: one atomic exchange to pin, one to unpin, no lock. `remove` makes
//! a handle invalid at once; the object is dropped by `remove`, or by the last call that still has it pinned.

use super::sync::{AtomicU64, Mutex, Ordering, UnsafeCell, fence};
use std::sync::OnceLock;

/// Chunk k has 2^(6 + k) slots. Chunks are never freed: a slot may be read with any handle at any time.
const CHUNKS: usize = 19;
const FIRST: usize = 64;
/// The most handles at one time: those whose index has [`INDEX_BITS`].
const MOST: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 24;
const KIND_BITS: u32 = 8;

/// The phase of a slot, in the low bits of its state; then come the pins, then the generation.
const EMPTY: u64 = 0;
const LIVE: u64 = 1;
/// Removed, but pinned by calls.
const DYING: u64 = 2;
const PHASE: u64 = 3;
const PIN: u64 = 4;
const GENERATION: u32 = 32;
/// All pins of a slot. There are fewer than 2^30: each is held by a thread for an argument of its call.
const PINS: u64 = (1 << GENERATION) - PIN;

/// On cache lines of its own: threads that use different handles do not share a line.
#[repr(align(128))]
struct Slot<T> {
    state: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

/// Objects by handle.
pub(crate) struct Table<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

/// The slots without an object.
struct Vacant {
    freed: Vec<u32>,
    /// Slots from this index on were never used.
    unused: usize,
}

// SAFETY: a slot's value is written by the one thread that has reserved the EMPTY slot or that saw its last pin end, and is
// read by threads that have it pinned, which excludes those. So threads share `T` by reference and send it.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// Why a handle names no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is 0.
    Null,
    /// Its object was freed.
    Freed,
    /// No call has returned it.
    Unknown,
    /// It is of this other kind.
    Kind(u8),
}

/// A handle taken apart.
#[derive(Clone, Copy)]
struct Parts {
    index: usize,
    kind: u8,
    generation: u64,
}

impl Parts {
    fn of(handle: u64) -> Self {
        Self {
            index: (handle & (MOST as u64 - 1)) as usize,
            kind: (handle >> INDEX_BITS) as u8,
            generation: handle >> GENERATION,
        }
    }

    fn handle(self) -> u64 {
        self.generation << GENERATION | u64::from(self.kind) << INDEX_BITS | self.index as u64
    }
}

impl<T> Table<T> {
    const VACANT: Vacant = Vacant { freed: Vec::new(), unused: 0 };

    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        const { assert!(INDEX_BITS + KIND_BITS == GENERATION) };
        Self { chunks: [const { OnceLock::new() }; CHUNKS], vacant: Mutex::new(Self::VACANT) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], vacant: Mutex::new(Self::VACANT) }
    }

    /// Stores an object and returns its handle, which is not 0. `None` if the table is full.
    pub(crate) fn insert(&self, kind: u8, value: T) -> Option<u64> {
        let index = self.reserve()?;
        let slot = self.slot(index)?;
        let generation = slot.state.load(Ordering::Relaxed) >> GENERATION;
        // SAFETY: the slot is EMPTY, so no thread pins it, and `reserve` gives it to this thread alone: nothing else accesses the value.
        slot.value.with_mut(|place| unsafe { *place = Some(value) });
        slot.state.store(generation << GENERATION | LIVE, Ordering::Release);
        Some(Parts { index, kind, generation }.handle())
    }

    /// The object of a handle, which stays valid while it is pinned.
    #[inline(always)]
    pub(crate) fn pin(&self, handle: u64) -> Option<Pin<'_, T>> {
        let Parts { index, generation, .. } = Parts::of(handle);
        let slot = self.slot(index)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        while is_live(state, generation) {
            let pinned = state + PIN;
            match slot.state.compare_exchange_weak(state, pinned, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Pin { table: self, slot, index }),
                Err(changed) => state = changed,
            }
        }
        None
    }

    /// Makes the handle invalid. Drops its object, unless a call has it pinned: then that call drops it. False if the
    /// handle is invalid already.
    pub(crate) fn remove(&self, handle: u64) -> bool {
        let Parts { index, generation, .. } = Parts::of(handle);
        let Some(slot) = self.slot(index) else { return false };
        let mut state = slot.state.load(Ordering::Relaxed);
        while is_live(state, generation) {
            let dying = state & !PHASE | DYING;
            match slot.state.compare_exchange_weak(state, dying, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if state & PINS == 0 {
                        self.vacate(slot, index);
                    }
                    return true;
                }
                Err(changed) => state = changed,
            }
        }
        false
    }

    /// The kind that a handle was made with.
    pub(crate) fn kind(handle: u64) -> u8 {
        Parts::of(handle).kind
    }

    /// Why a handle names no object of a kind. For messages: another thread may free the object meanwhile.
    pub(crate) fn diagnose(&self, handle: u64, wanted: u8) -> Refused {
        let Parts { index, kind, generation } = Parts::of(handle);
        let state = self.slot(index).map(|slot| slot.state.load(Ordering::Relaxed));
        match state {
            _ if handle == 0 => Refused::Null,
            // No handle has kind 0 or generation 0.
            _ if kind == 0 || generation == 0 => Refused::Unknown,
            None => Refused::Unknown,
            Some(state) if generation > state >> GENERATION => Refused::Unknown,
            Some(state) if is_live(state, generation) && kind != wanted => Refused::Kind(kind),
            Some(state) if is_live(state, generation) => Refused::Unknown,
            // The generation that the next object of the slot will have.
            Some(state) if generation == state >> GENERATION && state & PHASE == EMPTY => Refused::Unknown,
            Some(_) => Refused::Freed,
        }
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let place = index + FIRST;
        let chunk = (place.ilog2() - FIRST.ilog2()) as usize;
        self.chunks[chunk].get()?.get(place - (FIRST << chunk))
    }

    /// The index of an EMPTY slot for the caller alone.
    fn reserve(&self) -> Option<usize> {
        let mut vacant = match self.vacant.lock() {
            Ok(vacant) => vacant,
            // No code that may panic runs under the lock, except for an allocation.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(index) = vacant.freed.pop() {
            return Some(index as usize);
        }
        let index = vacant.unused;
        if index >= MOST {
            return None;
        }
        let chunk = ((index + FIRST).ilog2() - FIRST.ilog2()) as usize;
        self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| Slot::vacant()).collect());
        vacant.unused += 1;
        Some(index)
    }

    /// Drops the object of a DYING slot without pins, and gives the slot its next generation.
    #[cold]
    fn vacate(&self, slot: &Slot<T>, index: usize) {
        // Pairs with the Release of the threads that have ended their pins: their uses of the value come before its drop.
        fence(Ordering::Acquire);
        // SAFETY: the slot is DYING, so no thread pins it any more, and it has no pin. The thread that made it so, by `remove`
        // or by the last unpin, is this one, and calls this once.
        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
        let generation = (slot.state.load(Ordering::Relaxed) >> GENERATION) + 1;
        // A slot whose generations are used up stays DYING, and is never used again.
        if generation < 1 << (u64::BITS - GENERATION) {
            slot.state.store(generation << GENERATION | EMPTY, Ordering::Release);
            match self.vacant.lock() {
                Ok(mut vacant) => vacant.freed.push(index as u32),
                Err(poisoned) => poisoned.into_inner().freed.push(index as u32),
            }
        }
        // The drop may run for long and may call the program; no lock is held.
        drop(value);
    }
}

fn is_live(state: u64, generation: u64) -> bool {
    state >> GENERATION == generation && state & PHASE == LIVE
}

impl<T> Slot<T> {
    fn vacant() -> Self {
        // Generations begin at 1, so that no handle is 0.
        Self { state: AtomicU64::new(1 << GENERATION | EMPTY), value: UnsafeCell::new(None) }
    }
}

/// Keeps an object from being dropped while a call uses it.
pub(crate) struct Pin<'a, T> {
    table: &'a Table<T>,
    slot: &'a Slot<T>,
    index: usize,
}

impl<T> Pin<'_, T> {
    /// The object.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: the value was written before the slot became LIVE, which the Acquire of `pin` has seen, and is taken only
        // once the slot has no pin; this one lives as long as the reference.
        self.slot.value.with(|place| unsafe { (*place).as_ref() })
    }
}

impl<T> Drop for Pin<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = self.slot.state.fetch_sub(PIN, Ordering::Release) - PIN;
        if state & (PINS | PHASE) == DYING {
            self.table.vacate(self.slot, self.index);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_handle_of_a_freed_object_never_names_the_next_one_in_its_slot() {
        let table = Table::new();
        let first = table.insert(1, "first").unwrap();
        assert!(table.remove(first));
        let second = table.insert(1, "second").unwrap();
        assert_eq!(Parts::of(first).index, Parts::of(second).index, "the slot is used again");
        assert!(table.pin(first).is_none() && !table.remove(first));
        assert_eq!(table.diagnose(first, 1), Refused::Freed);
        assert_eq!(table.pin(second).unwrap().get(), Some(&"second"));
    }

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        let table = Table::new();
        let known = table.insert(1, ()).unwrap();
        for (handle, why) in [
            (0, Refused::Null),
            (u64::MAX, Refused::Unknown),
            (1, Refused::Unknown),
            (known & 0xffff_ffff, Refused::Unknown),
            (known + 1, Refused::Unknown),
            (known + (1 << GENERATION), Refused::Unknown),
            (known | 0xff_ffff, Refused::Unknown),
        ] {
            assert!(table.pin(handle).is_none(), "{handle:#x}");
            assert_eq!(table.diagnose(handle, 1), why, "{handle:#x}");
        }
        assert_eq!(table.diagnose(known, 2), Refused::Kind(1));
        assert_eq!(table.diagnose(known & !(0xff << INDEX_BITS), 1), Refused::Unknown);
    }

    #[test]
    fn an_object_is_dropped_when_its_last_pin_ends() {
        let (table, object) = (Table::new(), Arc::new(()));
        let handle = table.insert(1, Arc::clone(&object)).unwrap();
        let pins = [table.pin(handle).unwrap(), table.pin(handle).unwrap()];
        assert!(table.remove(handle) && table.pin(handle).is_none());
        for pin in pins {
            assert_eq!(Arc::strong_count(&object), 2);
            drop(pin);
        }
        assert_eq!(Arc::strong_count(&object), 1);
    }

    #[test]
    fn handles_stay_distinct_over_several_chunks() {
        let table = Table::new();
        let handles: Vec<u64> = (0..1000).map(|value| table.insert(1, value).unwrap()).collect();
        for (value, &handle) in handles.iter().enumerate() {
            assert_eq!(table.pin(handle).unwrap().get(), Some(&value));
        }
    }
}
