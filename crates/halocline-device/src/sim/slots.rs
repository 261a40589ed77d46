//! Parts of copy tables that write or read LL slots, whose words carry their epoch.

use super::memory::Spot;
use super::shadow::Touch;
use super::state::State;
use super::stream::{Block, Part, Running, Table};
use crate::driver::Slot;

impl State {
    /// Whether a word of a slot carries an epoch. True for freed memory, so that the access gets reported.
    pub(super) fn has_flag(&self, word: Spot, epoch: u64) -> bool {
        !self.memories.is_there(word) || (self.memories.load(word) >> 32) as u32 == epoch as u32
    }

    /// Copies some words of a slot, in any order; each is atomic and orders only itself. False if the part
    /// ends, because the guard is set or the memory was freed.
    pub(super) fn copy_words(
        &mut self,
        table: &Table,
        part: &Part,
        epoch: u64,
        running: &mut Running,
    ) -> bool {
        let (actor, op, is_read) = (running.actor, running.op, part.slot == Slot::Awaited);
        let is_there = |&at: &usize| !is_read || self.has_flag(part.blocks[at].source, epoch);
        let (mut ready, mut left): (Vec<usize>, Vec<usize>) =
            std::mem::take(&mut running.left).into_iter().partition(is_there);
        // It polls the guard at any time, but always before it would wait forever.
        if is_read
            && !left.is_empty()
            && (ready.is_empty() || self.choices.number(4) == 1)
            && !self.is_well(actor, op, table)
        {
            return false;
        }
        for _ in 0..self.piece(ready.len()) {
            let chosen = self.choices.number(ready.len());
            let Block { target, source, signs, .. } = part.blocks[ready.swap_remove(chosen)];
            let (slot, other, touch) = match is_read {
                true => (source, target, Touch::AtomicRead),
                false => (target, source, Touch::AtomicWrite),
            };
            if !self.touch(actor, op, slot, 8, touch) || !self.memories.is_there(other) {
                return false;
            }
            if is_read {
                self.touch(actor, op, target, 4, Touch::Write);
                let word = self.memories.load(slot) as u32;
                let near = self.memories.slice_mut(target, 4);
                near.copy_from_slice(&word.to_le_bytes());
                if let Some(signs) = signs {
                    signs.change(near);
                }
            } else {
                let mut data = [0; 4];
                data.copy_from_slice(self.memories.slice(source, 4));
                let flag = epoch as u32;
                self.memories.store(slot, u64::from(flag) << 32 | u64::from(u32::from_le_bytes(data)));
            }
        }
        left.append(&mut ready);
        running.left = left;
        true
    }
}
