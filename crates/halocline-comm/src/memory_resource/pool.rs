//! A pool of memory blocks by size class: fresh memory costs page faults, driver calls and new mappings at the peers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle blocks, at most so many bytes.
#[derive(Debug)]
pub(super) struct Pool<T> {
    most: usize,
    idle: Mutex<Idle<T>>,
}

#[derive(Debug)]
struct Idle<T> {
    blocks: BTreeMap<usize, Vec<T>>,
    bytes: usize,
}

/// The size of the block for so many bytes: four sizes for each power of two, so that at most a fifth is unused.
pub(super) fn class(bytes: usize, least: usize) -> Option<usize> {
    let bytes = bytes.max(least);
    let step = (bytes.checked_next_power_of_two()? / 8).max(1);
    bytes.checked_next_multiple_of(step)
}

impl<T> Pool<T> {
    /// A pool that keeps at most so many idle bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, idle: Mutex::new(Idle { blocks: BTreeMap::new(), bytes: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Idle<T>> {
        // No panic can happen while it is held: the pool is always whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle block of a size class.
    pub(super) fn take(&self, class: usize) -> Option<T> {
        let mut idle = self.lock();
        let blocks = idle.blocks.get_mut(&class)?;
        let block = blocks.pop()?;
        if blocks.is_empty() {
            idle.blocks.remove(&class);
        }
        idle.bytes -= class;
        Some(block)
    }

    /// Puts a block into the pool; gives back the blocks that the pool cannot keep, to be dropped outside of any lock.
    pub(super) fn put(&self, class: usize, block: T) -> Vec<T> {
        let mut idle = self.lock();
        idle.blocks.entry(class).or_default().push(block);
        idle.bytes += class;
        let mut excess = Vec::new();
        while idle.bytes > self.most {
            // The smallest blocks are the cheapest to allocate again.
            let Some(mut smallest) = idle.blocks.first_entry() else { break };
            let size = *smallest.key();
            excess.extend(smallest.get_mut().pop());
            if smallest.get().is_empty() {
                smallest.remove();
            }
            idle.bytes -= size;
        }
        excess
    }

    /// Takes all idle blocks.
    pub(super) fn drain(&self) -> Vec<T> {
        let mut idle = self.lock();
        idle.bytes = 0;
        std::mem::take(&mut idle.blocks).into_values().flatten().collect()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }
}
