//! The layout of flags and slots that peers reach in a lane's device memory. It is fixed, and sent to the peers, before paths are
//! chosen.
//!
//! | from the begin on | on |
//! | --- | --- |
//! | a guard, then the counter of epochs, each on a line of its own | each lane |
//! | for each peer `ready` of each set and of each reduce of it, of links that push, then of those that pull | each lane |
//! | for each peer `arrived` of each of its lanes, of links that push, then of those that pull | the first lane |
//! | for each peer the LL slots | the first lane |
//! | for each peer the mailbox: `arrived` of each of its lanes, set and slot, then the slots of exchanges | the first lane |
//! | for each peer the slot into which it packs its halo in reduces | the first lane |
//! | what each lane of this rank raises | each lane |

use crate::link::{MOST_SETS, SLOTS};
use crate::stream::{Cue, FlagSet, LINE};
use halocline_device::Address;
use halocline_device::host::MESSAGE_ALIGN;
use std::ops::Range;

/// Devices on which a rank can have fields of one object.
pub(super) const LANES: usize = 8;

pub(super) const WORD: usize = size_of::<u64>();

/// Sets that an object of `sets` bound sets can have: as many again can be made, and at least as many as flags of one side share a
/// cache line.
pub(super) fn max_sets(sets: usize) -> usize {
    (2 * sets).next_multiple_of(LINE / WORD).min(MOST_SETS)
}

/// Bytes in front of the slots of a mailbox in memory of the host: for each lane of the other side a word `ready`, then for each of them
/// a word `arrived` of each set and slot, and of each reduce of a set.
pub(super) fn head(max_sets: usize) -> usize {
    LANES * LINE + arrived(FlagSet::count(max_sets))
}

/// Bytes of the words `ready` of a link: of each set, and of each reduce of a set.
pub(super) fn ready(max_sets: usize) -> usize {
    span(FlagSet::count(max_sets))
}

/// Bytes of this many flags that one side sets.
pub(super) fn span(words: usize) -> usize {
    (WORD * words).next_multiple_of(LINE)
}

/// The slots of a peer, after the flags.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PeerSlots {
    /// Bytes of messages that may arrive in the LL protocol.
    pub(super) ll: Option<usize>,
    /// Bytes of messages that may arrive through a mailbox there.
    pub(super) mailbox: Option<usize>,
    /// Bytes of the peer's halo that may arrive in a reduce.
    pub(super) reduce: Option<usize>,
}

/// A point of an exchange at which the lanes of a rank wait for each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tie {
    /// The producers are done.
    Given,
    /// The exchange is done.
    Over,
    /// In checked mode: the halo holds the fill pattern.
    Filled,
    /// In checked mode: the cells were copied for the checks.
    Looked,
}

impl Tie {
    const COUNT: usize = 4;
}

/// The layout of the flags and slots of a lane.
#[derive(Debug, Clone, Default)]
pub(super) struct FlagLayout {
    /// Of each peer, in their order.
    pub(super) of_peers: Vec<PeerSlots>,
    /// The most sets of the object.
    pub(super) max_sets: usize,
    /// Of this rank.
    pub(super) lanes: usize,
}

impl PeerSlots {
    fn ll(&self, max_sets: usize) -> usize {
        self.ll.map_or(0, |capacity| ll(capacity, max_sets))
    }

    fn mailbox(&self, max_sets: usize) -> usize {
        self.mailbox.map_or(0, |capacity| mailbox(capacity, max_sets))
    }

    fn reduce(&self) -> usize {
        self.reduce.map_or(0, slot)
    }
}

/// Bytes of a mailbox in memory of a device.
pub(super) fn mailbox(capacity: usize, max_sets: usize) -> usize {
    arrived(max_sets) + SLOTS as usize * slot(capacity)
}

/// Bytes of the slots of a mailbox in memory of the host: those of exchanges, then those of reduces. A rank that exchanges may write a
/// slot while its peer reduces, before either knows.
pub(super) fn host_slots(capacity: usize) -> usize {
    2 * SLOTS as usize * slot(capacity)
}

/// Bytes of LL slots.
pub(super) fn ll(capacity: usize, max_sets: usize) -> usize {
    Places::of_ll(0, capacity).bytes(max_sets)
}

/// Bytes of its words, in front of the slots.
pub(super) fn arrived(max_sets: usize) -> usize {
    LANES * span(SLOTS as usize * max_sets)
}

/// Bytes from one slot to the next.
pub(super) fn slot(capacity: usize) -> usize {
    capacity.next_multiple_of(MESSAGE_ALIGN.max(LINE))
}

impl FlagLayout {
    /// The flags, one for each set and each reduce of a set, for which a lane waits before it pushes to a peer, or pulls from it.
    pub(super) fn ready(&self, peer: usize, pulls: bool) -> usize {
        2 * LINE + (2 * peer + usize::from(pulls)) * ready(self.max_sets)
    }

    /// The first of the flags that a peer's lanes set once they have pushed, or pulled.
    pub(super) fn arrived(&self, peer: usize, pulls: bool) -> usize {
        self.ready(self.of_peers.len(), false) + (2 * peer + usize::from(pulls)) * LANES * LINE
    }

    pub(super) fn ll(&self, peer: usize) -> usize {
        let before = self.of_peers[..peer].iter().map(|slots| slots.ll(self.max_sets));
        self.arrived(self.of_peers.len(), false) + before.sum::<usize>()
    }

    pub(super) fn mailbox(&self, peer: usize) -> usize {
        let before = self.of_peers[..peer].iter().map(|slots| slots.mailbox(self.max_sets));
        self.ll(self.of_peers.len()) + before.sum::<usize>()
    }

    /// The slot of a peer for reduces.
    pub(super) fn reduce(&self, peer: usize) -> usize {
        let before = self.of_peers[..peer].iter().map(PeerSlots::reduce);
        self.mailbox(self.of_peers.len()) + before.sum::<usize>()
    }

    /// The first of the flags that another lane of this rank sets, a line for each [`Tie`].
    pub(super) fn of_lane(&self, number: usize, other: usize) -> usize {
        let peers = self.of_peers.len();
        let end = if number == 0 { self.reduce(peers) } else { self.ready(peers, false) };
        end + Tie::COUNT * other * LINE
    }

    /// All bytes of a lane.
    pub(super) fn bytes(&self, number: usize) -> usize {
        self.of_lane(number, self.lanes)
    }

    /// The bytes that are 0 before the first exchange: all but the slots of mailboxes and of reduces.
    pub(super) fn cleared(&self, number: usize) -> impl Iterator<Item = Range<usize>> {
        let peers = self.of_peers.len();
        let first = 0..if number == 0 { self.ll(peers) } else { self.of_lane(number, 0) };
        let with_mailbox =
            (0..peers).filter(move |&peer| number == 0 && self.of_peers[peer].mailbox.is_some());
        let mailboxes = with_mailbox.map(|peer| self.mailbox(peer)).map(|at| at..at + arrived(self.max_sets));
        let last = self.of_lane(number, 0)..self.bytes(number);
        std::iter::once(first).chain(mailboxes).chain([last]).filter(|range| !range.is_empty())
    }

    /// The flags for which streams and tables wait in exchanges of this many sets, without those of mailboxes.
    pub(super) fn awaited(&self, number: usize, sets: usize) -> impl Iterator<Item = usize> {
        let peers = self.of_peers.len();
        let of_peers = self.ready(0, false)..self.ready(peers, false);
        let ready = of_peers
            .step_by(ready(self.max_sets))
            .flat_map(move |first| (0..sets).map(move |set| first + set * WORD));
        let arrived = self.arrived(0, false)..if number == 0 { self.ll(0) } else { self.arrived(0, false) };
        let lanes = self.of_lane(number, 0)..self.bytes(number);
        ready.chain(arrived.chain(lanes).step_by(LINE))
    }
}

/// The layout of slots.
#[derive(Clone, Copy)]
pub(super) struct Places {
    first: Address,
    /// The distance between the slots of two sets, if each has its own, and between those of even and odd epochs.
    of_set: usize,
    of_parity: usize,
}

impl Places {
    /// One slot for all sets and epochs.
    pub(super) fn of_one(first: Address) -> Self {
        Self { first, of_set: 0, of_parity: 0 }
    }

    /// Of a mailbox, for messages of so many bytes.
    pub(super) fn of_all_sets(first: Address, capacity: usize) -> Self {
        Self { first, of_set: 0, of_parity: slot(capacity) }
    }

    /// Of the LL protocol.
    pub(super) fn of_ll(first: Address, capacity: usize) -> Self {
        let of_parity = (2 * capacity).next_multiple_of(LINE);
        Self { first, of_set: SLOTS as usize * of_parity, of_parity }
    }

    pub(super) fn at(self, set: usize, parity: usize) -> Address {
        self.first + (set * self.of_set + parity * self.of_parity) as Address
    }

    /// Bytes of those of so many sets.
    pub(super) fn bytes(self, max_sets: usize) -> usize {
        max_sets * self.of_set
    }
}

/// A flag that one side sets and the other waits for.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// The same for all sets.
    One(Address),
    /// The first of as many as there are sets.
    Each(Address),
    /// The first of as many as there are sets and slots. (The next raise of one finds its slot unpacked: what one epoch of a set has raised is
    /// not taken for an earlier epoch.)
    Slots(Address),
}

impl Word {
    /// Of a set, in epochs of a parity.
    pub(crate) fn of(self, set: usize, parity: usize) -> Address {
        match self {
            Self::One(address) => address,
            Self::Each(first) => first + (WORD * set) as Address,
            Self::Slots(first) => first + (WORD * (SLOTS as usize * set + parity)) as Address,
        }
    }

    /// A wait for it, in exchanges of a set.
    pub(super) fn wait(self, set: usize, lag: u64) -> Cue {
        Cue::Wait([self.of(set, 0), self.of(set, 1)], lag)
    }
}
