//! The streams of a device, and the steps of their work.

mod steps;

use super::based::{Based, BasedWork};
use super::clock::{Actor, Clock};
use super::combined::Combined;
use super::kernel::Kernel;
use super::memory::Spot;
use super::messages::Call as Messages;
use super::state::State;
use crate::driver::{Address, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// One stream.
pub(super) struct Stream {
    pub(super) device: u32,
    /// Hardware queue: streams with the same number block each other.
    hardware: u32,
    pub(super) actor: Actor,
    /// Not destroyed yet.
    pub(super) alive: bool,
    /// The graph into which its work is captured.
    pub(super) captured: Option<usize>,
    queue: VecDeque<Queued>,
    /// One actor for each concurrent part of a copy table.
    parts: Vec<Actor>,
}

/// An event and its current record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) device: u32,
    pub(super) alive: bool,
    pub(super) record: Option<usize>,
}

/// One record of an event: the clock of its stream, once it is done.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) done: Option<Clock>,
    /// The graph that holds it.
    pub(super) capture: Option<usize>,
}

/// The works of a copy table: one for all epochs, or those for even and odd epochs; and what they were made from, if launches give
/// bases.
#[derive(Debug)]
pub(super) struct Works(
    pub(super) Vec<Table>,
    #[expect(dead_code, reason = "held as long as the launch")] pub(super) Option<Arc<Based>>,
);

/// An uploaded copy table.
#[derive(Debug, Clone)]
pub(super) enum Uploaded {
    Fixed(Arc<Works>),
    /// Each launch gives bases, and has works of its own.
    Based(Arc<Based>),
}

impl Uploaded {
    /// The device of its launches.
    pub(super) fn device(&self) -> u32 {
        match self {
            Self::Fixed(works) => works.of(0).device,
            Self::Based(based) => based.device,
        }
    }

    /// The most parts of a launch that may wait.
    pub(super) fn waiting_parts(&self) -> u32 {
        let of = |table: &Table| table.parts.iter().filter(|part| part.may_wait()).count();
        let most = match self {
            Self::Fixed(works) => works.0.iter().map(of).max(),
            Self::Based(based) => based.works.iter().map(BasedWork::waiting_parts).max(),
        };
        most.unwrap_or(0) as u32
    }

    /// Whether a launch of it is unfinished.
    pub(super) fn is_in_use(&self) -> bool {
        match self {
            Self::Fixed(works) => Arc::strong_count(works) > 1,
            Self::Based(based) => Arc::strong_count(based) > 1,
        }
    }
}

impl Works {
    /// The work of an epoch.
    pub(super) fn of(&self, epoch: u64) -> &Table {
        &self.0[(epoch % self.0.len() as u64) as usize]
    }
}

/// A copy table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) device: u32,
    pub(super) guard: Option<Spot>,
    pub(super) parts: Vec<Part>,
}

/// A part of a copy table.
#[derive(Debug)]
pub(super) struct Part {
    /// Flags, and how many epochs they may lag.
    pub(super) waits: Vec<(Spot, u64)>,
    pub(super) blocks: Vec<Block>,
    pub(super) combined: Vec<Combined>,
    pub(super) raises: Vec<Spot>,
    pub(super) early: bool,
    /// Blocks have 4 bytes if one side is a slot, whose words are at their offsets there.
    pub(super) slot: Slot,
    pub(super) announced: Option<Announcement>,
}

/// Where the receiver announces the base of the message and what it expects, and what this side sends.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) address: Address,
    pub(super) words: [Spot; 2],
    pub(super) sent: u64,
    pub(super) differs: Spot,
}

impl Part {
    /// Whether it waits for flags, or for words of a slot.
    pub(super) fn may_wait(&self) -> bool {
        !self.waits.is_empty() || self.slot == Slot::Awaited
    }

    /// Whether it neither copies nor combines.
    pub(super) fn is_bare(&self) -> bool {
        self.units() == 0
    }

    /// What it copies and combines, in blocks and elements.
    pub(super) fn units(&self) -> usize {
        self.blocks.len() + self.combined.len()
    }
}

/// Contiguous bytes to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) target: Spot,
    pub(super) source: Spot,
    pub(super) bytes: usize,
    /// For numbers that change their sign.
    pub(super) signs: Option<Signs>,
}

/// Where the sign bits of a block are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signs {
    /// Bytes from one to the next.
    pub(super) distance: usize,
    /// Bytes of the first number that lie before the block.
    pub(super) before: usize,
}

impl Signs {
    /// Changes all signs of a block.
    pub(super) fn change(self, bytes: &mut [u8]) {
        let is_last = |at: usize| (at + self.before + 1).is_multiple_of(self.distance);
        bytes.iter_mut().enumerate().filter(|(at, _)| is_last(*at)).for_each(|(_, byte)| *byte ^= 0x80);
    }
}

/// An issued operation, and the clock of the issuing thread.
struct Queued {
    op: Op,
    /// Sequence number over all operations, in order of the calls.
    given: u64,
    seen: Clock,
    /// Its operation number, once it has started.
    begun: Option<usize>,
}

/// Work of a stream.
#[derive(Clone)]
pub(super) enum Op {
    Record(usize),
    Await(usize),
    Write {
        word: Spot,
        value: u64,
    },
    Wait {
        word: Spot,
        at_least: u64,
    },
    Copy {
        block: Block,
        done: usize,
    },
    /// If there is a counter, the epoch is known once the launch has begun.
    Launch {
        works: Arc<Works>,
        epoch: u64,
        counter: Option<Counter>,
        parts: Vec<Running>,
    },
    Kernel(Option<Kernel>),
    /// A grouped call of messages.
    Messages(Messages),
}

/// The counter of a launch.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    pub(super) at: Spot,
    /// Whether this launch counts its epoch, and no later one.
    pub(super) counts: bool,
}

/// A running part of a copy table.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) actor: Actor,
    stage: Stage,
    /// Its copy operation once started, else the launch.
    pub(super) op: usize,
    /// Blocks that are not copied yet, for parts that write or read slots.
    pub(super) left: Vec<usize>,
    /// The announced base.
    pub(super) message: Option<Spot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Checks the guard, if the part copies: before its waits, not after.
    Starting,
    /// Whether the guard was clear.
    Waiting {
        well: bool,
    },
    /// Number of blocks copied.
    Copying(usize),
    /// Words of a slot are written or read one by one; [`Running::left`] are still to come.
    Words,
    /// Number of flags raised.
    Raising(usize),
    Done,
}

impl Op {
    fn what(&self) -> &'static str {
        match self {
            Op::Record(_) => "event record",
            Op::Await(_) => "wait for an event",
            Op::Write { .. } => "write of a flag",
            Op::Wait { .. } => "wait for a flag",
            Op::Copy { .. } => "copy",
            Op::Launch { .. } => "copy table",
            Op::Kernel(kernel) => kernel.as_ref().map_or("kernel", |kernel| kernel.name),
            Op::Messages(_) => "messages",
        }
    }

    /// Whether it accesses the given memory.
    fn uses(&self, is_it: &dyn Fn(&Spot) -> bool) -> bool {
        match self {
            Op::Record(_) | Op::Await(_) => false,
            Op::Write { word, .. } | Op::Wait { word, .. } => is_it(word),
            Op::Copy { block, .. } => is_it(&block.source) || is_it(&block.target),
            Op::Launch { works, counter, .. } => {
                counter.as_ref().is_some_and(|counter| is_it(&counter.at))
                    || works.0.iter().any(|table| table.uses(is_it))
            }
            Op::Kernel(kernel) => {
                let kernel = kernel.as_ref();
                kernel.is_some_and(|kernel| kernel.spots.iter().any(|(spot, ..)| is_it(spot)))
            }
            Op::Messages(call) => call.messages.iter().any(|message| is_it(&message.spot)),
        }
    }
}

impl Table {
    fn uses(&self, is_it: &dyn Fn(&Spot) -> bool) -> bool {
        self.guard.as_ref().is_some_and(is_it)
            || self.parts.iter().any(|part| {
                part.waits.iter().map(|(word, _)| word).chain(&part.raises).any(is_it)
                    || part.blocks.iter().any(|b| is_it(&b.source) || is_it(&b.target))
                    || part
                        .combined
                        .iter()
                        .any(|one| is_it(&one.target) || one.sources.iter().any(|source| is_it(&source.spot)))
            })
    }
}

impl Stream {
    pub(super) fn new(device: u32, hardware: u32, actor: Actor) -> Self {
        let (queue, parts) = Default::default();
        Self { device, hardware, actor, alive: true, captured: None, queue, parts }
    }

    /// Whether an actor is a part of its copy tables.
    pub(super) fn has_part(&self, actor: Actor) -> bool {
        self.parts.contains(&actor)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn push(&mut self, op: Op, seen: Clock, given: u64) {
        self.queue.push_back(Queued { op, given, seen, begun: None });
    }

    /// Sequence number of the first operation that has not started.
    fn next(&self) -> Option<u64> {
        self.queue.iter().find(|queued| queued.begun.is_none()).map(|queued| queued.given)
    }
}

/// Whether a flag has reached a value; the comparison is cyclic, as in CUDA.
fn reached(value: u64, at_least: u64) -> bool {
    value.wrapping_sub(at_least) as i64 >= 0
}

impl State {
    /// Whether the first operation of a stream can advance.
    pub(super) fn can_step(&self, stream: usize) -> bool {
        let Some(head) = self.streams[stream].queue.front() else { return false };
        if self.devices[self.streams[stream].device as usize].lost.is_some() {
            return false;
        }
        if head.begun.is_none() && self.held_behind(stream).is_some() {
            return false;
        }
        match &head.op {
            Op::Await(record) => self.records[*record].done.is_some(),
            Op::Wait { word, at_least } => self.is_reached(*word, *at_least),
            Op::Launch { works, epoch, parts, .. } if head.begun.is_some() => {
                (0..parts.len()).any(|at| self.can_advance(works.of(*epoch), *epoch, at, &parts[at]))
            }
            Op::Messages(call) if head.begun.is_none() => self.may_begin(call),
            Op::Messages(call) => !self.ready_messages(call).is_empty(),
            _ => true,
        }
    }

    /// A stream with an earlier pending operation in the same hardware queue.
    fn held_behind(&self, stream: usize) -> Option<usize> {
        self.options.queues?;
        let own = &self.streams[stream];
        let given = own.next()?;
        let is_before = |other: &Stream| {
            (other.device, other.hardware) == (own.device, own.hardware)
                && other.next().is_some_and(|next| next < given)
        };
        self.streams.iter().position(is_before)
    }

    /// Whether a flag is reached. True for freed memory, so that the access gets reported.
    fn is_reached(&self, word: Spot, at_least: u64) -> bool {
        !self.memories.is_there(word) || reached(self.memories.load(word), at_least)
    }

    fn can_advance(&self, table: &Table, epoch: u64, part: usize, running: &Running) -> bool {
        match running.stage {
            Stage::Starting => !table.parts[part].may_wait() || self.has_waiting_block(table.device),
            Stage::Waiting { .. } => {
                let waits = &table.parts[part].waits;
                waits.iter().all(|(word, lag)| self.is_reached(*word, epoch.saturating_sub(*lag)))
                    || self.is_ended(table)
            }
            Stage::Words if table.parts[part].slot == Slot::Awaited => {
                let blocks = &table.parts[part].blocks;
                let is_there = |&at: &usize| self.has_flag(blocks[at].source, epoch);
                running.left.is_empty() || running.left.iter().any(is_there) || self.is_ended(table)
            }
            Stage::Copying(_) | Stage::Words | Stage::Raising(_) => true,
            Stage::Done => false,
        }
    }

    /// Whether the guard of a table ends its waits.
    fn is_ended(&self, table: &Table) -> bool {
        table.guard.is_some_and(|guard| !self.memories.is_there(guard) || self.memories.load(guard) != 0)
    }

    /// Whether another part may wait on a device.
    fn has_waiting_block(&self, device: u32) -> bool {
        let waiting = self.devices[device as usize].waiting_blocks;
        self.options.waiting_blocks.is_none_or(|limit| waiting < limit)
    }

    /// Describes the current operation of a stream, or its wait.
    pub(super) fn what_holds(&self, stream: usize) -> Option<String> {
        let head = self.streams[stream].queue.front()?;
        if let Some(other) = self.held_behind(stream).filter(|_| head.begun.is_none()) {
            return Some(format!("is held in its queue behind {}", self.name_of(other)));
        }
        let word = |word: &Spot| {
            let region = self.memories.region(word.region);
            let value = if self.memories.is_there(*word) { self.memories.load(*word) } else { 0 };
            format!("the word at {} of memory {}, which is {value}", word.offset, region.place.id)
        };
        Some(match &head.op {
            Op::Wait { word: at, at_least } => format!("waits for {at_least} in {}", word(at)),
            Op::Launch { works, epoch, parts, .. } => {
                let table = works.of(*epoch);
                let waits = table.parts.iter().flat_map(|part| &part.waits);
                let open = waits.map(|(at, lag)| (at, epoch.saturating_sub(*lag)));
                let open = open.filter(|(at, value)| !self.is_reached(**at, *value));
                let mut open: Vec<String> =
                    open.map(|(at, value)| format!("{value} in {}", word(at))).collect();
                let is_held = parts.iter().any(|running| running.stage == Stage::Starting);
                if is_held && !self.has_waiting_block(table.device) {
                    open.push("a thread block".to_owned());
                }
                for (part, running) in table.parts.iter().zip(parts) {
                    let words = running.left.iter().map(|&at| part.blocks[at].source);
                    let words = words.filter(|_| part.slot == Slot::Awaited);
                    if let Some(first) = words.clone().find(|&at| !self.has_flag(at, *epoch)) {
                        open.push(format!("the flag {} in {}", *epoch as u32, word(&first)));
                    }
                }
                format!("is at a copy table that waits for {}", open.join(" and for "))
            }
            Op::Messages(call) => format!("is at messages that wait for {}", call.open()),
            op => format!("is at: {}", op.what()),
        })
    }

    /// The first unfinished operation that uses the given memory.
    pub(super) fn user_of(&mut self, is_it: &dyn Fn(&Spot) -> bool) -> Option<usize> {
        let working = (0..self.streams.len()).filter(|&stream| !self.lost(stream));
        let found = working.map(|stream| &self.streams[stream]).find_map(|stream| {
            let queued = stream.queue.iter().find(|queued| queued.op.uses(is_it))?;
            Some((stream.actor, queued.op.what(), queued.begun))
        });
        let (actor, what, begun) = found?;
        Some(begun.unwrap_or_else(|| self.begin_op(actor, what)))
    }
}
