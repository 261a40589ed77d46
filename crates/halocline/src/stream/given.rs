//! Fields that are given to an exchange, in the unbound form. Their bytes travel through slots that receivers announce.
//!
//! | what | where | written by |
//! | --- | --- | --- |
//! | a slot for each link that receives | memory of this rank's device, which the peer reaches | the sender's table |
//! | an announcement: the address of the slot, what the receiver expects, a word for each field | behind `ready`, at the sender | the receiver, before it sets `ready` |
//!
//! The table of a sender compares what it sends with what is announced. If they differ, it copies nothing and tells the host, which fails
//! the object. So a sender never writes beyond a slot, and a slot can move from one exchange to the next: a receiver that expects more than
//! its slot holds makes a larger one, and no rank waits for another because of it, but for the progress thread of a process that has to
//! map it.

use super::{FlagSet, Lane, Scheduled, Script};
use crate::error::{Cause, Difference, Error};
use crate::field::Memory;
use crate::lifecycle::Engine;
use crate::link::{Direction, Record};
use crate::lock::lock;
use crate::reduce::Reduction;
use crate::set::Set;
use halocline_comm::mappings::{Kept, Kind, Pinned};
use halocline_device::{Address, Memory as DeviceMemory};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// The work of an exchange of fields with certain layouts.
pub(crate) struct Layouts {
    pub(crate) script: Script,
    /// What this side sends over each link that sends, as [`describe`] has it.
    pub(crate) sent: Vec<Sent>,
    #[expect(dead_code, reason = "held for the addresses in the tables")]
    pub(crate) held: Option<(Arc<DeviceMemory>, Vec<Arc<Slot>>)>,
}

/// What this side sends over a link.
pub(crate) struct Sent {
    pub(crate) link: usize,
    /// Where the receiver announces what it expects.
    pub(crate) announced: Address,
    pub(crate) described: Vec<u64>,
    /// The number of each field, counted within its pattern.
    pub(crate) numbers: Vec<u32>,
}

/// Memory for the messages of a link.
pub(crate) struct Slot {
    pub(crate) memory: Arc<DeviceMemory>,
    /// Its address at the sender.
    pub(crate) at_sender: Address,
    /// Held so that the sender keeps it mapped.
    pub(crate) pinned: Option<Pinned>,
}

/// Fields that are given to an exchange.
pub(crate) struct Given {
    pub(crate) layouts: Arc<Layouts>,
    /// Address of element (0, 0, …) of each field.
    pub(crate) bases: Vec<Address>,
    /// Their distinct memories, each with the first field in it.
    pub(crate) memories: Vec<(Arc<Memory>, usize)>,
}

/// What the exchanges of an object in the unbound form share.
pub(crate) struct Unbound {
    /// By link: the slots of those that receive.
    pub(crate) slots: Mutex<Vec<Option<Arc<Slot>>>>,
    /// The fields of exchanges in flight, each with its epoch.
    in_flight: Mutex<VecDeque<(u64, Arc<Given>)>>,
    /// The fields of exchanges that graphs hold.
    captured: Mutex<Vec<Weak<Given>>>,
    #[expect(dead_code, reason = "held so that slots at peers stay mapped")]
    kept: Vec<Kept>,
}

/// What an exchange copies.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    /// The fields of a bound set: of this one, and of that with its number on devices.
    Set(&'a Arc<Set>),
    /// The same in reverse.
    Reduce(&'a Arc<Set>, Reduction),
    /// These.
    Given(&'a Arc<Given>),
}

impl<'a> Work<'a> {
    /// The number of its set.
    pub(super) fn set(self) -> usize {
        match self {
            Self::Set(set) | Self::Reduce(set, _) => set.number,
            Self::Given(_) => 0,
        }
    }

    /// The flags that it uses.
    pub(super) fn flags(self) -> FlagSet {
        let op = match self {
            Self::Reduce(_, reduction) => Some(reduction.op),
            Self::Set(_) | Self::Given(_) => None,
        };
        FlagSet { set: self.set(), op }
    }

    /// What a lane does.
    #[inline]
    pub(super) fn script(self, lane: &'a Lane) -> &'a Script {
        match self {
            Self::Set(set) => &lane.scripts[set.number],
            Self::Reduce(set, reduction) => lane.reduces.script(set.number, reduction),
            Self::Given(given) => &given.layouts.script,
        }
    }

    /// The bases of its tables.
    #[inline]
    pub(super) fn bases(self) -> &'a [Address] {
        match self {
            Self::Set(_) | Self::Reduce(..) => &[],
            Self::Given(given) => &given.bases,
        }
    }
}

/// Words of an announcement, which lies behind the flag `ready` on its line.
pub(crate) const WORDS: usize = super::LINE / 8 - 1;

/// Fields that an announcement names.
const NAMED: usize = WORDS - 2;

/// The description of a message: what must be the same at both ends. A digest of all of it, then a word for each of the first fields.
pub(crate) fn describe(records: &[Record], bytes: usize) -> Vec<u64> {
    let all = records.iter().flat_map(|record| record.words());
    let digest = all.fold(mix(bytes as u64), |digest, word| mix(digest ^ word));
    let summaries = records.iter().map(Record::summary);
    std::iter::once(digest).chain(summaries.take(NAMED)).collect()
}

/// Spreads the bits of a word.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 29
}

impl Sent {
    /// How it differs from the words that a receiver has announced.
    fn differs(&self, expected: impl Fn(usize) -> u64) -> Difference {
        for (at, &number) in self.numbers.iter().enumerate().take(NAMED) {
            let difference = Record::differs_by_summary(self.described[1 + at], expected(1 + at), number);
            if let Some(difference) = difference {
                return difference;
            }
        }
        Difference::Fields
    }
}

impl Given {
    /// Checks that memory of the user is still where it was when its fields were made.
    pub(super) fn check_memories(&self) -> Result<(), Error> {
        for (memory, field) in &self.memories {
            let Some(home) = memory.device.as_ref().filter(|home| home.foreign) else { continue };
            let first = memory.segment.base().addr().get() as Address;
            if !memory.segment.is_empty() && home.device.identity(first) != Ok(home.place.id) {
                // A failed device knows nothing about memory.
                let lost = home.device.failure().map(Error::from);
                return Err(lost.unwrap_or(Error::MemoryMoved { field: *field }));
            }
        }
        Ok(())
    }
}

impl Unbound {
    pub(crate) fn new(kept: Vec<Kept>) -> Self {
        Self { slots: Mutex::default(), in_flight: Mutex::default(), captured: Mutex::default(), kept }
    }

    /// The bytes of each slot, and how the sender has mapped it.
    pub(crate) fn capacities(&self) -> Vec<Option<(usize, Option<Kind>)>> {
        let of_slot = |slot: &Arc<Slot>| (slot.memory.place().bytes, slot.pinned.as_ref().map(Pinned::kind));
        lock(&self.slots).iter().map(|slot| slot.as_ref().map(of_slot)).collect()
    }

    /// The slots there are now, by their addresses.
    pub(crate) fn slots(&self) -> Vec<Option<Address>> {
        let address = |slot: &Option<Arc<Slot>>| slot.as_ref().map(|slot| slot.memory.at(0));
        lock(&self.slots).iter().map(address).collect()
    }
}

impl Scheduled {
    /// The memories of what an exchange copies, each with the first field in it.
    pub(super) fn memories<'a>(&'a self, work: Work<'a>) -> &'a [(Arc<Memory>, usize)] {
        match work {
            Work::Set(set) | Work::Reduce(set, _) => &self.sets[set.number].local.memories,
            Work::Given(given) => &given.memories,
        }
    }

    /// Holds given fields until an exchange is over.
    pub(super) fn hold(&self, epoch: u64, work: Work<'_>) {
        if let (Work::Given(given), Some(unbound)) = (work, &self.unbound) {
            lock(&unbound.in_flight).push_back((epoch, Arc::clone(given)));
        }
    }

    /// Releases the given fields of exchanges up to this one.
    pub(super) fn release_given(&self, completed: u64) {
        let Some(unbound) = &self.unbound else { return };
        let mut in_flight = lock(&unbound.in_flight);
        let over: Vec<_> = {
            let count = in_flight.iter().take_while(|(epoch, _)| *epoch <= completed).count();
            in_flight.drain(..count).collect()
        };
        // With the last holder a table or a user's array may be dropped.
        drop(in_flight);
        drop(over);
    }

    /// Whether an exchange uses a memory.
    pub(super) fn is_used(&self, epoch: u64, memory: &Arc<Memory>) -> bool {
        let is_it = |given: &Given| given.memories.iter().any(|(own, _)| Arc::ptr_eq(own, memory));
        match &self.unbound {
            None => self.sets[self.operation_of(epoch).set].local.is_in(memory),
            Some(unbound) => lock(&unbound.in_flight).iter().any(|(at, given)| *at == epoch && is_it(given)),
        }
    }

    /// Whether peers may reach slots of this rank.
    pub(super) fn has_slots(&self) -> bool {
        self.unbound.as_ref().is_some_and(|unbound| lock(&unbound.slots).iter().any(Option::is_some))
    }

    /// Checks that the guards of given fields allow an exchange.
    pub(super) fn check_guards(&self, work: Work<'_>) -> Result<(), Error> {
        match work {
            Work::Set(set) | Work::Reduce(set, _) => self.sets[set.number].local.check_guards(),
            Work::Given(given) => match given.memories.iter().find(|(memory, _)| memory.state.is_guarded()) {
                Some(&(_, field)) => Err(Error::Borrowed { field }),
                None => Ok(()),
            },
        }
    }

    /// Fields that a graph holds.
    pub(super) fn remember_captured(&self, given: &Arc<Given>) {
        if let Some(unbound) = &self.unbound {
            let mut captured = lock(&unbound.captured);
            captured.retain(|given| given.strong_count() > 0);
            captured.push(Arc::downgrade(given));
        }
    }

    /// Whether a table has found that a receiver expects other fields than this rank sends.
    pub(super) fn differs(&self) -> bool {
        self.unbound.is_some() && self.lanes.iter().any(|lane| lane.differing().is_some())
    }

    /// Fails the object if [`Scheduled::differs`]; returns whether it does.
    pub(super) fn look_at_announcements(&self) -> bool {
        let Some(unbound) = &self.unbound else { return false };
        let Some((lane, announced)) = self.lanes.iter().find_map(|lane| Some((lane, lane.differing()?)))
        else {
            return false;
        };
        let mut given: Vec<Arc<Given>> =
            lock(&unbound.in_flight).iter().map(|(_, given)| Arc::clone(given)).collect();
        given.extend(lock(&unbound.captured).iter().filter_map(Weak::upgrade));
        let mut sent = given.iter().flat_map(|given| &given.layouts.sent);
        let sent = sent.find(|sent| sent.announced == announced);
        let word = |at: usize| lane.peek(announced + 8 * (1 + at) as Address).unwrap_or(0);
        let difference = sent.map_or(Difference::Fields, |sent| sent.differs(word));
        let link = sent.and_then(|sent| self.links.get(sent.link));
        let link = link.or_else(|| self.links.iter().find(|link| link.direction == Direction::Send));
        if let Some(link) = link {
            link.fail(self.life(), Cause::Fields(difference), self.comm.rank());
        }
        true
    }
}
