//! The queues of a device, and how their work goes on step by step.

use super::clock::{Actor, Clock};
use super::kernel::{Kernel, KernelMemory};
use super::memory::Spot;
use super::report::Report;
use super::shadow::Touch;
use super::state::State;
use crate::driver::{POISON, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// One queue.
pub(super) struct Stream {
    pub(super) device: u32,
    /// Of the hardware: streams of one such number hold each other up.
    hardware: u32,
    pub(super) actor: Actor,
    /// Its holder has not destroyed it.
    pub(super) alive: bool,
    /// A test says that its work becomes part of a graph.
    pub(super) captured: bool,
    queue: VecDeque<Queued>,
    /// One actor for each part of a copy table that runs beside others.
    parts: Vec<Actor>,
}

/// An event: what it means now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) device: u32,
    pub(super) alive: bool,
    pub(super) record: Option<usize>,
}

/// One record of an event, and what its stream had seen then, once it is done.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) done: Option<Clock>,
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
    /// Words, and how far they may lie behind.
    pub(super) waits: Vec<(Spot, u64)>,
    pub(super) blocks: Vec<Block>,
    pub(super) raises: Vec<Spot>,
    pub(super) early: bool,
    /// Blocks are of 4 bytes where one side is a slot, whose words lie at their places there.
    pub(super) slot: Slot,
}

/// Contiguous bytes to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) target: Spot,
    pub(super) source: Spot,
    pub(super) bytes: usize,
}

/// What a stream was given, and what the thread that gave it had seen.
struct Queued {
    op: Op,
    /// Of all operations, in the order of the calls.
    given: u64,
    seen: Clock,
    /// Its number, once it has begun.
    begun: Option<usize>,
}

/// Work of a stream.
pub(super) enum Op {
    Record(usize),
    Await(usize),
    Write { word: Spot, value: u64 },
    Wait { word: Spot, at_least: u64 },
    Copy { block: Block, done: usize },
    Launch { table: Arc<Table>, epoch: u64, parts: Vec<Running> },
    Kernel(Option<Kernel>),
}

/// A part of a copy table that runs.
pub(super) struct Running {
    pub(super) actor: Actor,
    stage: Stage,
    /// Its copying, once it has begun; else the launch.
    pub(super) op: usize,
    /// Blocks that are not copied, of parts that write slots or read them.
    pub(super) left: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Looks at the guard, if it copies: before it waits, not after.
    Starting,
    /// Whether the guard said that all is well.
    Waiting {
        well: bool,
    },
    /// So many blocks are copied.
    Copying(usize),
    /// Words of a slot are written or read, each by itself; [`Running::left`] are not yet.
    Words,
    /// So many words are raised.
    Raising(usize),
    Done,
}

impl Op {
    fn what(&self) -> &'static str {
        match self {
            Op::Record(_) => "event record",
            Op::Await(_) => "wait for an event",
            Op::Write { .. } => "write of a word",
            Op::Wait { .. } => "wait for a word",
            Op::Copy { .. } => "copy",
            Op::Launch { .. } => "copy table",
            Op::Kernel(kernel) => kernel.as_ref().map_or("kernel", |kernel| kernel.name),
        }
    }

    /// Whether it accesses some memory.
    fn uses(&self, is_it: &dyn Fn(&Spot) -> bool) -> bool {
        match self {
            Op::Record(_) | Op::Await(_) => false,
            Op::Write { word, .. } | Op::Wait { word, .. } => is_it(word),
            Op::Copy { block, .. } => is_it(&block.source) || is_it(&block.target),
            Op::Launch { table, .. } => table.uses(is_it),
            Op::Kernel(kernel) => {
                let kernel = kernel.as_ref();
                kernel.is_some_and(|kernel| kernel.spots.iter().any(|(spot, ..)| is_it(spot)))
            }
        }
    }
}

impl Table {
    fn uses(&self, is_it: &dyn Fn(&Spot) -> bool) -> bool {
        self.guard.as_ref().is_some_and(is_it)
            || self.parts.iter().any(|part| {
                part.waits.iter().map(|(word, _)| word).chain(&part.raises).any(is_it)
                    || part.blocks.iter().any(|b| is_it(&b.source) || is_it(&b.target))
            })
    }
}

impl Stream {
    pub(super) fn new(device: u32, hardware: u32, actor: Actor) -> Self {
        let (queue, parts) = Default::default();
        Self { device, hardware, actor, alive: true, captured: false, queue, parts }
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

    /// When the first operation was given that has not begun.
    fn next(&self) -> Option<u64> {
        self.queue.iter().find(|queued| queued.begun.is_none()).map(|queued| queued.given)
    }
}

/// Whether a word has reached a value: cyclic, as CUDA compares.
fn reached(value: u64, at_least: u64) -> bool {
    value.wrapping_sub(at_least) as i64 >= 0
}

impl State {
    /// Whether the first operation of a stream can go on.
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
            Op::Launch { table, epoch, parts } if head.begun.is_some() => {
                (0..parts.len()).any(|at| self.can_advance(table, *epoch, at, &parts[at]))
            }
            _ => true,
        }
    }

    /// A stream whose next operation was given before, to the same queue of the hardware.
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

    /// An operation that waits in memory that was freed goes on, to report it.
    fn is_reached(&self, word: Spot, at_least: u64) -> bool {
        !self.memories.is_there(word) || reached(self.memories.load(word), at_least)
    }

    fn can_advance(&self, table: &Table, epoch: u64, part: usize, running: &Running) -> bool {
        match running.stage {
            Stage::Starting => true,
            Stage::Waiting { .. } => {
                let waits = &table.parts[part].waits;
                waits.iter().all(|(word, lag)| self.is_reached(*word, epoch.saturating_sub(*lag)))
            }
            Stage::Words if table.parts[part].slot == Slot::Awaited => {
                let blocks = &table.parts[part].blocks;
                let is_there = |&at: &usize| self.has_flag(blocks[at].source, epoch);
                let is_ended = |guard: Spot| !self.memories.is_there(guard) || self.memories.load(guard) != 0;
                running.left.is_empty()
                    || running.left.iter().any(is_there)
                    || table.guard.is_some_and(is_ended)
            }
            Stage::Copying(_) | Stage::Words | Stage::Raising(_) => true,
            Stage::Done => false,
        }
    }

    /// What a stream is at, if it has work.
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
            Op::Launch { table, epoch, parts } => {
                let waits = table.parts.iter().flat_map(|part| &part.waits);
                let open = waits.map(|(at, lag)| (at, epoch.saturating_sub(*lag)));
                let open = open.filter(|(at, value)| !self.is_reached(**at, *value));
                let mut open: Vec<String> =
                    open.map(|(at, value)| format!("{value} in {}", word(at))).collect();
                for (part, running) in table.parts.iter().zip(parts) {
                    let words = running.left.iter().map(|&at| part.blocks[at].source);
                    let words = words.filter(|_| part.slot == Slot::Awaited);
                    if let Some(first) = words.clone().find(|&at| !self.has_flag(at, *epoch)) {
                        open.push(format!("the flag {} in {}", *epoch as u32, word(&first)));
                    }
                }
                format!("is at a copy table that waits for {}", open.join(" and for "))
            }
            op => format!("is at: {}", op.what()),
        })
    }

    /// Whose unfinished work uses some memory: the first such operation.
    pub(super) fn user_of(&mut self, is_it: &dyn Fn(&Spot) -> bool) -> Option<usize> {
        let working = (0..self.streams.len()).filter(|&stream| !self.lost(stream));
        let found = working.map(|stream| &self.streams[stream]).find_map(|stream| {
            let queued = stream.queue.iter().find(|queued| queued.op.uses(is_it))?;
            Some((stream.actor, queued.op.what(), queued.begun))
        });
        let (actor, what, begun) = found?;
        Some(begun.unwrap_or_else(|| self.begin_op(actor, what)))
    }

    /// Lets the first operation of a stream, which can go on, do so.
    pub(super) fn step(&mut self, stream: usize) {
        let Some(mut head) = self.streams[stream].queue.pop_front() else { return };
        let actor = self.streams[stream].actor;
        let done = match head.begun {
            Some(number) => {
                self.extend(number);
                self.carry_on(actor, number, &mut head.op)
            }
            None => {
                self.join(actor, &head.seen);
                self.tick(actor);
                let number = self.begin_op(actor, head.op.what());
                head.begun = Some(number);
                self.begin(stream, actor, number, &mut head.op)
            }
        };
        if !done {
            self.streams[stream].queue.push_front(head);
        }
    }

    /// The first step of an operation; true if it was the last.
    fn begin(&mut self, stream: usize, actor: Actor, number: usize, op: &mut Op) -> bool {
        match op {
            Op::Record(record) => {
                self.records[*record].done = Some(self.seen(actor).clone());
                self.record(|recording| recording.records.push((*record, number)));
                true
            }
            Op::Await(record) => {
                self.join_record(actor, *record);
                self.record(|recording| recording.awaited(*record, number));
                true
            }
            Op::Write { word, value } => {
                self.write_word(actor, number, *word, *value);
                true
            }
            Op::Wait { word, .. } => {
                self.read_word(actor, number, *word);
                true
            }
            Op::Copy { block, .. } => {
                let there = self.touch(actor, number, block.source, block.bytes, Touch::Read);
                let there = self.touch(actor, number, block.target, block.bytes, Touch::Write) && there;
                !there || block.bytes == 0
            }
            Op::Launch { table, parts, .. } => {
                for at in 0..table.parts.len() {
                    let part = self.part_actor(stream, at);
                    self.join_actor(part, actor);
                    self.tick(part);
                    let blocks = table.parts[at].blocks.iter().filter(|_| table.parts[at].early);
                    for block in blocks {
                        self.touch(part, number, block.source, block.bytes, Touch::Read);
                    }
                    parts.push(Running { actor: part, stage: Stage::Starting, op: number, left: Vec::new() });
                }
                parts.is_empty()
            }
            Op::Kernel(kernel) => {
                let spots = kernel.as_ref().map(|kernel| kernel.spots.clone()).unwrap_or_default();
                for (spot, bytes, writes) in spots {
                    let touch = if writes { Touch::Write } else { Touch::Read };
                    if !self.touch(actor, number, spot, bytes, touch) {
                        return true;
                    }
                }
                if self.choices.number(2) == 1 {
                    self.run_kernel(number, kernel);
                }
                false
            }
        }
    }

    /// Sees what a record means, if it is done.
    pub(super) fn join_record(&mut self, actor: Actor, record: usize) {
        if let Some(seen) = self.records[record].done.take() {
            self.join(actor, &seen);
            self.records[record].done = Some(seen);
        }
    }

    fn part_actor(&mut self, stream: usize, part: usize) -> Actor {
        if let Some(&actor) = self.streams[stream].parts.get(part) {
            return actor;
        }
        let actor = self.add_actor(format!("part {part} of a copy table on {}", self.name_of(stream)));
        self.streams[stream].parts.push(actor);
        actor
    }

    /// A later step of an operation; true if it was the last.
    fn carry_on(&mut self, actor: Actor, number: usize, op: &mut Op) -> bool {
        match op {
            Op::Copy { block, done } => {
                let alive = |spot: Spot| self.memories.is_there(spot);
                if !alive(block.source) || !alive(block.target) {
                    return true;
                }
                let bytes = self.piece(block.bytes - *done);
                let at = |spot: Spot| Spot { offset: spot.offset + *done, ..spot };
                self.memories.copy(at(block.target), at(block.source), bytes);
                *done += bytes;
                *done == block.bytes
            }
            Op::Launch { table, epoch, parts } => {
                let can = |at: &usize| self.can_advance(table, *epoch, *at, &parts[*at]);
                let ready: Vec<usize> = (0..parts.len()).filter(can).collect();
                let at = ready[self.choices.number(ready.len())];
                self.extend(parts[at].op);
                self.advance(table, *epoch, at, &mut parts[at]);
                let over = parts.iter().all(|part| part.stage == Stage::Done);
                if over {
                    parts.iter().for_each(|part| self.join_actor(actor, part.actor));
                }
                over
            }
            Op::Kernel(kernel) => {
                self.run_kernel(number, kernel);
                true
            }
            // The others are over with their first step.
            _ => true,
        }
    }

    /// How much of what is left goes in one step.
    pub(super) fn piece(&mut self, left: usize) -> usize {
        match self.choices.number(3) {
            0 => left,
            1 => left.div_ceil(2),
            _ => left.min(8),
        }
    }

    fn advance(&mut self, table: &Table, epoch: u64, at: usize, running: &mut Running) {
        let (part, actor) = (&table.parts[at], running.actor);
        running.stage = match running.stage {
            Stage::Starting => {
                Stage::Waiting { well: part.blocks.is_empty() || self.is_well(actor, running.op, table) }
            }
            Stage::Waiting { mut well } => {
                let op = self.begin_op(actor, "copies");
                running.op = op;
                for (word, lag) in &part.waits {
                    let value = self.read_word(actor, op, *word).unwrap_or(0);
                    let is_poison = value.wrapping_sub(epoch.saturating_sub(*lag)) as i64 >= POISON;
                    well &= !is_poison || table.guard.is_none();
                }
                // What copies nothing looks at the guard now.
                well &= !part.blocks.is_empty() || part.raises.is_empty() || self.is_well(actor, op, table);
                let mut there = true;
                for block in part.blocks.iter().filter(|_| well) {
                    // What lies on one side of a slot is written once its word has come.
                    if part.slot != Slot::Awaited {
                        there &= self.touch(actor, op, block.source, block.bytes, Touch::Read);
                    }
                    if part.slot == Slot::None {
                        there &= self.touch(actor, op, block.target, block.bytes, Touch::Write);
                    }
                }
                match (well && there, part.slot) {
                    (false, _) => Stage::Done,
                    (true, Slot::None) => Stage::Copying(0),
                    (true, _) => {
                        running.left = (0..part.blocks.len()).collect();
                        Stage::Words
                    }
                }
            }
            Stage::Words if running.left.is_empty() => Stage::Copying(part.blocks.len()),
            Stage::Words => match self.copy_words(table, part, epoch, running) {
                true => Stage::Words,
                false => Stage::Done,
            },
            Stage::Copying(done) if done < part.blocks.len() => {
                let count = self.piece(part.blocks.len() - done);
                for block in &part.blocks[done..done + count] {
                    let alive = |spot: Spot| self.memories.is_there(spot);
                    if alive(block.source) && alive(block.target) {
                        self.memories.copy(block.target, block.source, block.bytes);
                    }
                }
                Stage::Copying(done + count)
            }
            Stage::Copying(_) if part.raises.is_empty() => Stage::Done,
            Stage::Copying(_) => Stage::Raising(0),
            Stage::Raising(done) => {
                let op = self.begin_op(actor, "raise of a word");
                self.write_word(actor, op, part.raises[done], epoch);
                if done + 1 == part.raises.len() { Stage::Done } else { Stage::Raising(done + 1) }
            }
            Stage::Done => Stage::Done,
        };
    }

    /// Whether the guard of a table, if it has one, says so.
    pub(super) fn is_well(&mut self, actor: Actor, op: usize, table: &Table) -> bool {
        table.guard.is_none_or(|guard| self.read_word(actor, op, guard) == Some(0))
    }

    /// Publishes all that an actor has seen.
    pub(super) fn write_word(&mut self, actor: Actor, op: usize, word: Spot, value: u64) {
        if self.touch(actor, op, word, 8, Touch::AtomicWrite) {
            self.memories.store(word, value);
            self.note_word(op, word, value, true);
            let seen = self.seen(actor).clone();
            self.memories.region_mut(word.region).set_word(word.offset, &seen);
            self.tick(actor);
            self.note(|_| format!("  the word becomes {value}"), value);
        }
    }

    /// Sees all that the last writer of a word had seen. None if the memory was freed.
    pub(super) fn read_word(&mut self, actor: Actor, op: usize, word: Spot) -> Option<u64> {
        if !self.touch(actor, op, word, 8, Touch::AtomicRead) {
            return None;
        }
        if let Some(seen) = self.memories.region(word.region).word(word.offset).cloned() {
            self.join(actor, &seen);
        }
        let value = self.memories.load(word);
        self.note_word(op, word, value, false);
        Some(value)
    }

    fn run_kernel(&mut self, number: usize, kernel: &mut Option<Kernel>) {
        let Some(kernel) = kernel.take() else { return };
        if kernel.spots.iter().any(|(spot, ..)| !self.memories.is_there(*spot)) {
            return;
        }
        let by = self.operation(number);
        let mut memory = KernelMemory { state: self, declared: &kernel.spots, by: by.clone() };
        let body = kernel.body;
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut memory))) {
            self.report(Report::KernelPanicked { by, message: super::message(&*panic) });
        }
    }
}
