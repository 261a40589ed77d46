//! Where the slots of mailboxes and of words with flags lie.

use super::device::{End, LANES, Made, span};
use super::lanes::capacity;
use crate::link::{Direction, SLOTS, Way};
use crate::stream::LINE;
use halocline_device::Address;

/// Where slots lie.
#[derive(Clone, Copy)]
pub(super) struct Places {
    first: Address,
    /// From one set's to the next one's, where each has its own; and between those of even epochs and of odd ones.
    of_set: usize,
    of_parity: usize,
}

impl Places {
    /// Of a mailbox, so many bytes from one to the other.
    pub(super) fn of_all_sets(first: Address, of_parity: usize) -> Self {
        Self { first, of_set: 0, of_parity }
    }

    /// Of words with flags, for messages of so many bytes.
    pub(super) fn of_flags(first: Address, capacity: usize) -> Self {
        let of_parity = (2 * capacity).next_multiple_of(LINE);
        Self { first, of_set: SLOTS as usize * of_parity, of_parity }
    }

    pub(super) fn at(self, set: usize, parity: usize) -> Address {
        self.first + (set * self.of_set + parity * self.of_parity) as Address
    }

    /// Bytes of those of so many sets.
    pub(super) fn bytes(self, room: usize) -> usize {
        room * self.of_set
    }
}

/// Bytes of the slots of words with flags for what a peer sends.
pub(super) fn flags_bytes(end: &End, made: &Made) -> usize {
    match end.link(made, Direction::Receive).filter(|&link| made.links[link].way == Way::Flags) {
        Some(link) => Places::of_flags(0, capacity(made, link)).bytes(made.room()),
        None => 0,
    }
}

/// Bytes in front of the slots of words with flags.
pub(super) fn slots_begin(made: &Made) -> usize {
    let peers = made.ends.len();
    LINE + 2 * peers * span(made.room()) + 2 * peers * LANES * LINE
}
