//! The steps of stream operations.

use super::{Announcement, Counter, Op, Part, Running, Stage, Table};
use crate::driver::{Counted, POISON, Slot};
use crate::sim::clock::Actor;
use crate::sim::kernel::{Kernel, KernelMemory};
use crate::sim::memory::Spot;
use crate::sim::report::Report;
use crate::sim::shadow::Touch;
use crate::sim::state::State;

impl State {
    /// Advances the first operation of a runnable stream.
    pub(in crate::sim) fn step(&mut self, stream: usize) {
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

    /// Executes the first step of an operation; true if it was the last.
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
                self.write_flag(actor, number, *word, *value);
                true
            }
            Op::Wait { word, .. } => {
                self.read_flag(actor, number, *word);
                true
            }
            Op::Copy { block, .. } => {
                let there = self.touch(actor, number, block.source, block.bytes, Touch::Read);
                let there = self.touch(actor, number, block.target, block.bytes, Touch::Write) && there;
                !there || block.bytes == 0
            }
            Op::Launch { works, epoch, counter, parts } => {
                if let Some(counter) = *counter {
                    *epoch = self.begin_count(actor, number, counter);
                }
                *parts = self.begin_parts((stream, actor), number, works.of(*epoch));
                if parts.is_empty() {
                    self.end_count(actor, number, *counter, *epoch);
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
            Op::Messages(call) => self.begin_messages(actor, number, call),
        }
    }

    /// Begins the parts of a launched table, which all follow what the stream has done so far.
    fn begin_parts(&mut self, (stream, actor): (usize, Actor), number: usize, table: &Table) -> Vec<Running> {
        let mut begun = Vec::with_capacity(table.parts.len());
        for (at, part) in table.parts.iter().enumerate() {
            let actor_of_part = self.part_actor(stream, at);
            self.join_actor(actor_of_part, actor);
            self.tick(actor_of_part);
            for block in part.blocks.iter().filter(|_| part.early) {
                self.touch(actor_of_part, number, block.source, block.bytes, Touch::Read);
            }
            let (stage, left) = (Stage::Starting, Vec::new());
            begun.push(Running { actor: actor_of_part, stage, op: number, left, message: None });
        }
        begun
    }

    /// Joins the clock of a record, if it is done.
    pub(in crate::sim) fn join_record(&mut self, actor: Actor, record: usize) {
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

    /// Executes a later step of an operation; true if it was the last.
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
            Op::Launch { works, epoch, counter, parts } => {
                let table = works.of(*epoch);
                let can = |at: &usize| self.can_advance(table, *epoch, *at, &parts[*at]);
                let ready: Vec<usize> = (0..parts.len()).filter(can).collect();
                let at = ready[self.choices.number(ready.len())];
                self.extend(parts[at].op);
                self.advance(table, *epoch, at, &mut parts[at]);
                let over = parts.iter().all(|part| part.stage == Stage::Done);
                if over {
                    parts.iter().for_each(|part| self.join_actor(actor, part.actor));
                    self.end_count(actor, number, *counter, *epoch);
                }
                over
            }
            Op::Kernel(kernel) => {
                self.run_kernel(number, kernel);
                true
            }
            Op::Messages(call) => self.carry_messages(actor, call),
            // The other operations have one step.
            _ => true,
        }
    }

    /// The epoch of a launch that begins, by its counter.
    fn begin_count(&mut self, actor: Actor, number: usize, Counter { at, .. }: Counter) -> u64 {
        if self.counters.contains(&at) {
            let what = "two launches with one counter run at the same time".to_owned();
            self.report(Report::Refused { call: "launch", what });
        }
        self.counters.push(at);
        Counted(self.read_flag(actor, number, at).unwrap_or(0)).epochs() + 1
    }

    /// A launch is over: counts its epoch, if it has a counter and no later launch does.
    fn end_count(&mut self, actor: Actor, number: usize, counter: Option<Counter>, epoch: u64) {
        if let Some(Counter { at, counts }) = counter {
            if counts {
                self.write_flag(actor, number, at, Counted::after(epoch).0);
            }
            self.counters.retain(|other| *other != at);
        }
    }

    /// Selects how many of the remaining units one step processes.
    pub(in crate::sim) fn piece(&mut self, left: usize) -> usize {
        match self.choices.number(3) {
            0 => left,
            1 => left.div_ceil(2),
            _ => left.min(8),
        }
    }

    fn advance(&mut self, table: &Table, epoch: u64, at: usize, running: &mut Running) {
        let (part, actor) = (&table.parts[at], running.actor);
        let waiting_blocks = u32::from(part.may_wait());
        running.stage = match running.stage {
            Stage::Starting => {
                self.devices[table.device as usize].waiting_blocks += waiting_blocks;
                Stage::Waiting { well: part.is_bare() || self.is_well(actor, running.op, table) }
            }
            Stage::Waiting { well } => {
                running.op = self.begin_op(actor, "copies");
                let may =
                    self.end_waits(table, (part, epoch), well, running) && self.touch_blocks(part, running);
                match (may, part.slot) {
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
                self.copy_blocks(part, done, count, running);
                Stage::Copying(done + count)
            }
            Stage::Copying(done) if done < part.units() => {
                let count = self.piece(part.units() - done);
                let first = done - part.blocks.len();
                part.combined[first..first + count].iter().for_each(|one| self.combine(one));
                Stage::Copying(done + count)
            }
            Stage::Copying(_) if part.raises.is_empty() => Stage::Done,
            Stage::Copying(_) => Stage::Raising(0),
            Stage::Raising(done) => {
                let op = self.begin_op(actor, "raise of a flag");
                self.write_flag(actor, op, part.raises[done], epoch);
                if done + 1 == part.raises.len() { Stage::Done } else { Stage::Raising(done + 1) }
            }
            Stage::Done => Stage::Done,
        };
        if running.stage == Stage::Done {
            self.devices[table.device as usize].waiting_blocks -= waiting_blocks;
        }
    }

    /// Reads the flags that a part waits for, which have arrived, and the announcement. Returns whether the part may copy; `well`: whether
    /// the guard was clear before.
    fn end_waits(
        &mut self,
        table: &Table,
        (part, epoch): (&Part, u64),
        mut well: bool,
        running: &mut Running,
    ) -> bool {
        let (actor, op) = (running.actor, running.op);
        for (word, lag) in &part.waits {
            let value = self.read_flag(actor, op, *word).unwrap_or(0);
            let beyond = value.wrapping_sub(epoch.saturating_sub(*lag)) as i64;
            // The guard has ended the wait, or poison.
            well &= beyond >= 0 && (beyond < POISON || table.guard.is_none());
        }
        if let Some(announced) = part.announced.as_ref().filter(|_| well) {
            running.message = self.expected(actor, op, announced);
            well = running.message.is_some();
        }
        // A part without copies checks the guard now.
        well & (!part.is_bare() || part.raises.is_empty() || self.is_well(actor, op, table))
    }

    /// Begins to read and to write the blocks of a part; false if memory of one is gone.
    fn touch_blocks(&mut self, part: &Part, running: &Running) -> bool {
        let (actor, op) = (running.actor, running.op);
        let mut there = part.combined.iter().all(|one| self.touch_combined(actor, op, one));
        for block in &part.blocks {
            // A word of a slot is written only when its source is ready.
            if part.slot != Slot::Awaited {
                there &= self.touch(actor, op, block.source, block.bytes, Touch::Read);
            }
            if part.slot == Slot::None {
                let target = block.target.from(running.message);
                there &= self.touch(actor, op, target, block.bytes, Touch::Write);
            }
        }
        there
    }

    /// Copies `count` blocks of a part, those after the first `done`, unless their memory is gone.
    fn copy_blocks(&mut self, part: &Part, done: usize, count: usize, running: &Running) {
        for block in &part.blocks[done..done + count] {
            let alive = |spot: Spot| self.memories.is_there(spot);
            let target = block.target.from(running.message);
            if alive(block.source) && alive(target) {
                self.memories.copy(target, block.source, block.bytes);
                if let Some(signs) = block.signs {
                    signs.change(self.memories.slice_mut(target, block.bytes));
                }
            }
        }
    }

    /// The base of the message that a receiver announces; `None` if it expects another message than this side sends.
    fn expected(&mut self, actor: Actor, op: usize, announced: &Announcement) -> Option<Spot> {
        let Announcement { address, words, sent, differs } = *announced;
        if self.read_flag(actor, op, words[1])? != sent {
            self.write_flag(actor, op, differs, address);
            return None;
        }
        let base = self.read_flag(actor, op, words[0])?;
        match self.memories.find(base, 1) {
            Ok(spot) => Some(spot),
            Err(error) => {
                self.report(Report::Refused { call: "copy table", what: error.to_string() });
                None
            }
        }
    }

    /// Whether the guard of a table is clear.
    pub(in crate::sim) fn is_well(&mut self, actor: Actor, op: usize, table: &Table) -> bool {
        table.guard.is_none_or(|guard| self.read_flag(actor, op, guard) == Some(0))
    }

    /// Writes a flag and publishes the actor's clock.
    pub(in crate::sim) fn write_flag(&mut self, actor: Actor, op: usize, flag: Spot, value: u64) {
        if self.touch(actor, op, flag, 8, Touch::AtomicWrite) {
            self.memories.store(flag, value);
            self.note_flag(op, flag, value, true);
            let seen = self.seen(actor).clone();
            self.memories.region_mut(flag.region).set_word(flag.offset, &seen);
            self.tick(actor);
            self.note(|_| format!("  the flag becomes {value}"), value);
        }
    }

    /// Reads a flag and joins the clock of its last writer. `None` if the memory was freed.
    pub(in crate::sim) fn read_flag(&mut self, actor: Actor, op: usize, flag: Spot) -> Option<u64> {
        if !self.touch(actor, op, flag, 8, Touch::AtomicRead) {
            return None;
        }
        if let Some(seen) = self.memories.region(flag.region).word(flag.offset).cloned() {
            self.join(actor, &seen);
        }
        let value = self.memories.load(flag);
        self.note_flag(op, flag, value, false);
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
            self.report(Report::KernelPanicked { by, message: crate::sim::message(&*panic) });
        }
    }
}
