//! The work of one lane for an exchange of each set: operations on flags, and copy tables.

use super::flag_layout::{Tie, Word};
use super::lanes::{Opened, address, lane_for, lane_of};
use super::nccl::Messages;
use super::remote::DeviceRegistry;
use super::sides::{Incoming, Outgoing, split};
use crate::check::Spots;
use crate::error::Error;
use crate::link::{Direction, Link, LinkPath, SLOTS};
use crate::set::Set;
use crate::stream::{Cue, Cut, DONE, FlagSet, LINE, Looks, Script, Stage, Step, begun};
use halocline_device::{
    Address, Announced, Combining, CopyTable, Device, Memory, Signal, Slot, TablePart, TableSpec,
};
use halocline_plan::ReduceOp;
use halocline_plan::copy::{CopyOp, Gather};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One part of a copy table in the making.
#[derive(Clone, Default)]
pub(super) struct Draft {
    pub(super) waits: Vec<Signal>,
    pub(super) ops: Vec<CopyOp>,
    pub(super) raises: Vec<Address>,
    pub(super) early: bool,
    pub(super) beside: bool,
    pub(super) slot: Slot,
    pub(super) announced: Option<Announced>,
    pub(super) follows: bool,
    pub(super) combines: Option<Combined>,
}

/// What a part combines.
#[derive(Clone)]
pub(super) struct Combined {
    pub(super) op: ReduceOp,
    pub(super) gathers: Arc<[Gather]>,
}

impl Draft {
    /// A part that copies and neither sets nor awaits a flag.
    fn is_plain(&self) -> bool {
        self.waits.is_empty() && self.raises.is_empty() && self.slot == Slot::None
    }

    /// A part that does nothing.
    pub(super) fn is_idle(&self) -> bool {
        let combines = self.combines.as_ref().is_some_and(|combined| !combined.gathers.is_empty());
        self.waits.is_empty() && self.raises.is_empty() && self.ops.is_empty() && !combines
    }

    pub(super) fn part(&self) -> TablePart<'_> {
        let Self { waits, ops, raises, early, beside, slot, announced, follows, combines } = self;
        let (early, beside, slot, announced) = (*early, *beside, *slot, *announced);
        let combines = combines.as_ref().map(|Combined { op, gathers }| Combining { op: *op, gathers });
        TablePart { waits, ops, raises, early, beside, slot, announced, follows: *follows, combines }
    }
}

/// An operation whose targets begin at this index.
fn onto(op: &CopyOp, first: usize) -> CopyOp {
    let mut op = op.clone();
    op.target += first;
    op
}

/// The work of a copy table in epochs of one parity.
pub(super) struct Work {
    pub(super) drafts: Vec<Draft>,
    pub(super) sources: Vec<Address>,
    pub(super) targets: Vec<Address>,
}

/// What the tables and operations of all lanes are made from. It is kept for further sets.
pub(crate) struct Kit {
    pub(super) opened: Opened,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) incoming: Vec<Incoming>,
    pub(super) messages: Messages,
    pub(super) cut: Option<Cut>,
    pub(super) registry: DeviceRegistry,
}

impl Kit {
    /// The devices of the lanes.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.opened.devices
    }
}

/// One lane's tables and operations, in the making.
#[derive(Clone)]
pub(super) struct Making<'a> {
    pub(super) opened: &'a Opened,
    pub(super) links: &'a [Link],
    pub(super) number: usize,
    pub(super) outgoing: Vec<&'a Outgoing>,
    pub(super) incoming: Vec<&'a Incoming>,
    pub(super) stages: &'a [Stage],
    pub(super) messages: &'a Messages,
    pub(super) status: &'a Memory,
    pub(super) cut: Option<Cut>,
    /// Tables set and wait for all flags, so that an exchange is one launch.
    pub(super) in_one: bool,
    /// All work is on a user's stream.
    pub(super) inline: bool,
    /// In checked mode.
    pub(super) checked: bool,
}

impl Making<'_> {
    pub(super) fn is_cut(&self, cut: Cut) -> bool {
        self.cut == Some(cut)
    }

    /// The device of the lane.
    pub(super) fn device(&self) -> &Device {
        &self.opened.devices[self.number]
    }

    /// `ready` of direct links, which are set at once.
    fn raised(&self, set: usize) -> impl Iterator<Item = Address> + '_ {
        let is_at_once = |into: &Incoming| into.path.is_direct() || self.is_raised_early(into);
        let direct = self.incoming.iter().filter(move |into| is_at_once(into));
        direct.flat_map(move |into| into.words.iter().map(move |(ready, _)| ready.of(set, 0)))
    }

    /// Whether a test reports a slot as free before it is.
    fn is_raised_early(&self, into: &Incoming) -> bool {
        into.path.has_slots_on_devices() && self.is_cut(Cut::Unpacked)
    }

    /// The lane's work for a set.
    pub(super) fn scripts(&self, sets: &[Arc<Set>]) -> Result<Vec<Script>, Error> {
        sets.iter().map(|set| self.script(set)).collect()
    }

    /// The lane's work for a set: one launch if that can be, unless its blocks that wait exceed the limit of the device.
    fn script(&self, set: &Set) -> Result<Script, Error> {
        let script = self.make(set)?;
        let limit = self.opened.devices[self.number].waiting_block_limit();
        let script = match script.waiting_blocks {
            Some(blocks) if blocks > limit || limit == 0 => {
                Making { in_one: false, ..self.clone() }.make(set)?
            }
            _ => script,
        };
        Ok(Script { looks: self.checked.then(|| self.looks(set)).transpose()?, ..script })
    }

    /// What the lane does for checked mode.
    fn looks(&self, set: &Set) -> Result<Looks, Error> {
        let lane = &self.opened.lanes[self.number];
        let spots = Spots::new(set, self.links, &self.opened.devices);
        let of_lane = (self.number, &lane.device);
        let tables = spots.upload(set, of_lane, (lane.words.at(0), !self.inline))?;
        Ok(Looks { tables, filled: self.tie(Tie::Filled), looked: self.tie(Tie::Looked) })
    }

    fn make(&self, set: &Set) -> Result<Script, Error> {
        let packs = self.outgoing.iter().any(|out| !out.path.is_direct());
        let unpacks = self.in_one && self.incoming.iter().any(|into| into.slots.is_some());
        let (given, over) = (self.tie(Tie::Given), self.tie(Tie::Over));
        let ready = self.raised(set.number).filter(|_| !self.is_cut(Cut::GrantFirst));
        let raised: Vec<Address> = [self.status.at(begun(set.number))].into_iter().chain(ready).collect();
        let mut script = Script { given, over, raised: raised.len(), ..Script::default() };
        let waits = self.outgoing.iter().map(|out| match out.stage {
            Some(stage) => Cue::WaitHost(self.stages[stage].sent(), out.lag),
            None => out.ready.wait(set.number, out.lag),
        });
        if self.in_one {
            script.raised = 0;
        } else {
            script.before = raised.iter().copied().map(Cue::Write).chain(waits).collect();
            let waits_for_host = |cue: &Cue| matches!(cue, Cue::WaitHost(..));
            script.is_raised_by_table =
                raised.len() == 1 && script.before[raised.len()..].iter().all(waits_for_host);
        }
        let first = if self.in_one || script.is_raised_by_table { &raised[..] } else { &[] };
        let parities = 0..if packs || unpacks { SLOTS as usize } else { 1 };
        script.out = self.upload(&parities.map(|parity| self.out(set, parity, first)).collect::<Vec<_>>())?;
        if self.in_one {
            script.waiting_blocks = Some(script.out.as_ref().map_or(0, CopyTable::waiting_blocks));
            return Ok(script);
        }
        script.is_raised_by_table &= script.out.is_some();
        script.messages = self.messages.of_set(set);
        let chunks = self.incoming.iter().map(|into| self.unpacks(set, into).len());
        let count = chunks.max().unwrap_or(0).max(1);
        for number in 0..count {
            // No wait follows it, and no check.
            let is_last = number + 1 == count && script.over.is_empty() && !self.checked;
            let works: [_; SLOTS as usize] =
                std::array::from_fn(|parity| self.into(set, number, parity, is_last));
            let [(even, says_done), (odd, _)] = works;
            script.is_ended_by_table = says_done;
            script.steps.push(Step { cues: self.arrivals(set, number), into: self.upload(&[even, odd])? });
        }
        Ok(script)
    }

    /// The flags that order the lanes of this rank at a point of an exchange: each lane sets a flag of all others.
    pub(super) fn tie(&self, at: Tie) -> Vec<Cue> {
        let others = || (0..self.opened.lanes.len()).filter(|&other| other != self.number);
        let word = |lane: usize, other: usize| {
            self.opened.lanes[lane].words.at(self.opened.layout.of_lane(lane, other) + at as usize * LINE)
        };
        let raised = others().map(|other| Cue::Write(word(other, self.number)));
        raised.chain(others().map(|other| Word::One(word(self.number, other)).wait(0, 0))).collect()
    }

    /// The steps in which a link is unpacked: chunks by their numbers, each with its operations. A step is a wait and a launch, so there are
    /// two at most: two thirds of the chunks while the others are on their way, then the others. For two chunks the second step costs
    /// more than it saves.
    fn unpacks(&self, set: &Set, into: &Incoming) -> Vec<Vec<(usize, Vec<CopyOp>)>> {
        let part = &set.parts[into.link];
        let chunks: Vec<(usize, Vec<CopyOp>)> = match into.path {
            LinkPath::Message => {
                let chunks = split(part, self.links[into.link].chunk);
                chunks.into_iter().map(|(_, ops)| ops).enumerate().collect()
            }
            _ => vec![(0, part.ops.clone())],
        };
        let count = chunks.len();
        let second = if count > 2 { 2 * count / 3 } else { count };
        let mut steps: Vec<Vec<_>> = Vec::new();
        for (number, ops) in chunks {
            if [0, second].contains(&number) {
                steps.push(Vec::new());
            }
            steps.last_mut().expect("0 begins one").push((number, ops));
        }
        steps
    }

    /// The flags that a receiving step waits for.
    fn arrivals(&self, set: &Set, number: usize) -> Vec<Cue> {
        let mut cues = Vec::new();
        for into in &self.incoming {
            let step = self.unpacks(set, into).into_iter().nth(number).unwrap_or_default();
            let staged = into.stage.map(|stage| {
                step.into_iter().map(move |(chunk, _)| Cue::WaitHost(self.stages[stage].raised(chunk), 0))
            });
            let staged = staged.into_iter().flatten();
            let direct = into.words.iter().filter(|_| number == 0);
            let direct = direct.map(|(_, arrived)| arrived.wait(set.number, 0));
            cues.extend(direct.chain(staged).filter(|_| !self.is_cut(Cut::Arrived)));
        }
        if number == 0 && self.is_cut(Cut::GrantFirst) {
            cues.extend(self.raised(set.number).map(Cue::Write));
        }
        cues
    }

    /// This lane's share of a link's direct operations.
    fn of_lane<'b>(&'b self, set: &'b Set, out: &'b Outgoing) -> impl Iterator<Item = &'b CopyOp> {
        let link = &self.links[out.link];
        let mine = |op: &&CopyOp| lane_for(set, link, op, &self.opened.devices) == self.number;
        set.parts[out.link].ops.iter().filter(mine)
    }

    /// The work that pushes, pulls, packs, and copies within the rank; in one launch, it does everything. It sets some flags first, unless
    /// that would be all.
    fn out(&self, set: &Set, parity: usize, first: &[Address]) -> Work {
        let bases: Vec<Address> = set.bases.iter().copied().map(address).collect();
        let begin = first.iter().map(|&word| Draft { raises: vec![word], ..Draft::default() });
        let mut work = Work { drafts: begin.collect(), sources: bases.clone(), targets: bases };
        for out in &self.outgoing {
            match out.stage {
                Some(stage) => self.add_chunks(&mut work, (set, parity), out, &self.stages[stage]),
                None => self.add_outgoing(&mut work, (set, parity), out),
            }
        }
        for (buffer, ops) in self.messages.of(set, Direction::Send) {
            let ops = ops.iter().map(|op| onto(op, work.targets.len())).collect();
            work.targets.push(buffer);
            work.drafts.push(Draft { ops, ..Draft::default() });
        }
        let mine = |op: &&CopyOp| lane_of(set, op.source, &self.opened.devices) == self.number;
        let within: Vec<CopyOp> = set.within.iter().filter(mine).cloned().collect();
        if !within.is_empty() {
            work.drafts.push(Draft { ops: within, ..Draft::default() });
        }
        for into in self.incoming.iter().filter(|_| self.in_one) {
            self.add_incoming(&mut work, (set, parity), into);
        }
        if !self.in_one && work.drafts.len() == first.len() {
            work.drafts.clear();
        }
        // On a user's stream no other work runs beside it.
        work.drafts.iter_mut().for_each(|draft| draft.beside = !self.inline);
        work
    }

    /// Adds the parts that pack the chunks of a message.
    fn add_chunks(&self, work: &mut Work, (set, parity): (&Set, usize), out: &Outgoing, stage: &Stage) {
        let chunks = split(&set.parts[out.link], self.links[out.link].chunk);
        for (number, (_, ops)) in chunks.into_iter().enumerate() {
            let ops = ops.iter().map(|op| onto(op, work.targets.len())).collect();
            work.targets.push(stage.slot(parity, number));
            let raises = vec![stage.raised(number)];
            work.drafts.push(Draft { ops, raises, ..Draft::default() });
        }
    }

    /// Adds the part that pushes, pulls, or packs into the peer's slot.
    fn add_outgoing(&self, work: &mut Work, (set, parity): (&Set, usize), out: &Outgoing) {
        let mut draft = Draft::default();
        let remote = set.parts[out.link].remote.iter().copied().map(address);
        if out.path == LinkPath::Pull {
            let begin = work.sources.len();
            work.sources.extend(remote);
            draft.ops.extend(self.of_lane(set, out).cloned());
            draft.ops.iter_mut().for_each(|op| op.source += begin);
        } else {
            let begin = work.targets.len();
            match out.slots {
                Some(slots) => work.targets.push(slots.at(set.number, parity)),
                None => work.targets.extend(remote),
            }
            draft.ops.extend(self.of_lane(set, out).map(|op| onto(op, begin)));
        }
        draft.raises = vec![out.arrived.of(set.number, parity)];
        if out.path == LinkPath::Ll {
            draft.slot = Slot::Written;
        }
        if self.in_one {
            // The owned cells are ready; the wait is for the peer's halo.
            draft.waits = vec![Signal { address: out.ready.of(set.number, parity), lag: out.lag }];
            draft.early = true;
        }
        work.drafts.push(draft);
    }

    /// Adds the parts that wait for a peer's cells, and unpack them if they come in a slot.
    fn add_incoming(&self, work: &mut Work, (set, parity): (&Set, usize), into: &Incoming) {
        let arrived = into.words.iter().map(|(_, arrived)| arrived.of(set.number, parity));
        let waits = arrived.map(|address| Signal { address, lag: 0 });
        if let Some(slots) = into.slots {
            let ops = set.parts[into.link].ops.clone();
            let mut draft = self.unpack(set, into, (work.sources.len(), ops));
            // LL words show themselves that they have arrived.
            let says_itself = into.path == LinkPath::Ll && !draft.ops.is_empty();
            if !says_itself && !self.is_cut(Cut::Arrived) {
                draft.waits.extend(waits);
            }
            work.drafts.push(draft);
            work.sources.push(slots.at(set.number, parity));
        } else if !self.is_cut(Cut::Arrived) {
            work.drafts.extend(waits.map(|wait| Draft { waits: vec![wait], ..Draft::default() }));
        }
    }

    /// The part that unpacks a slot, the source of this index.
    fn unpack(&self, set: &Set, into: &Incoming, (source, mut ops): (usize, Vec<CopyOp>)) -> Draft {
        ops.iter_mut().for_each(|op| op.source = source);
        let words = into.words.iter().filter(|_| !self.is_raised_early(into));
        let raises = words.map(|(ready, _)| ready.of(set.number, 0)).collect();
        let slot = if into.path == LinkPath::Ll { Slot::Awaited } else { Slot::None };
        Draft { ops, raises, slot, ..Draft::default() }
    }

    /// The work that unpacks after a step's wait. If the step is the last, and one part does all of it and sets no flag (so that no flag is
    /// still on its way to a peer), that part reports that the lane is done, which saves a write of the stream; returns whether it does.
    fn into(&self, set: &Set, number: usize, parity: usize, is_last: bool) -> (Work, bool) {
        let targets: Vec<Address> = set.bases.iter().copied().map(address).collect();
        let (mut sources, mut drafts) = (Vec::new(), Vec::<Draft>::new());
        for into in &self.incoming {
            let slot = |chunk| match (into.slots, into.stage) {
                (Some(slots), _) => Some(slots.at(set.number, parity)),
                (None, Some(stage)) => Some(self.stages[stage].slot(parity, chunk)),
                (None, None) => None,
            };
            for (chunk, ops) in self.unpacks(set, into).into_iter().nth(number).unwrap_or_default() {
                let Some(slot) = slot(chunk) else { continue };
                let mut draft = self.unpack(set, into, (sources.len(), ops));
                sources.push(slot);
                // Operations that set no flag need no part of their own.
                match drafts.last_mut().filter(|last| last.is_plain() && draft.is_plain()) {
                    Some(last) => last.ops.append(&mut draft.ops),
                    None => drafts.push(draft),
                }
            }
        }
        for (buffer, ops) in self.messages.of(set, Direction::Receive).filter(|_| number == 0) {
            let mut unpacked = ops.to_vec();
            unpacked.iter_mut().for_each(|op| op.source = sources.len());
            match drafts.last_mut().filter(|last| last.is_plain()) {
                Some(last) => last.ops.append(&mut unpacked),
                None => drafts.push(Draft { ops: unpacked, ..Draft::default() }),
            }
            sources.push(buffer);
        }
        let mut says_done = false;
        if let ([all], true) = (&mut drafts[..], is_last)
            && all.is_plain()
            && all.ops.iter().any(|op| op.bytes() > 0)
        {
            all.raises.push(self.status.at(DONE));
            says_done = true;
        }
        (Work { drafts, sources, targets }, says_done)
    }

    /// The table of one work, or of those for even and odd epochs; `None` if there is nothing to do.
    pub(super) fn upload(&self, works: &[Work]) -> Result<Option<CopyTable>, Error> {
        if works[0].drafts.is_empty() {
            return Ok(None);
        }
        let parts: Vec<Vec<TablePart<'_>>> =
            works.iter().map(|work| work.drafts.iter().map(Draft::part).collect()).collect();
        let lane = &self.opened.lanes[self.number];
        let mut specs = Vec::new();
        for (parts, Work { sources, targets, .. }) in parts.iter().zip(works) {
            specs.push(TableSpec {
                parts,
                sources,
                targets,
                guard: Some(lane.words.at(0)),
                ..TableSpec::default()
            });
        }
        Ok(Some(lane.device.upload_works(&specs)?))
    }

    /// The guard, and all flags that this lane waits for: for each set those that no earlier set has and that are not in `known`.
    pub(super) fn poisoned(&self, sets: &[Arc<Set>], known: &[Address]) -> Vec<Vec<Address>> {
        let mut seen: BTreeSet<Address> = known.iter().copied().collect();
        let new = |set: &Arc<Set>| self.awaited(set).into_iter().filter(|word| seen.insert(*word)).collect();
        sets.iter().map(new).collect()
    }

    fn awaited(&self, set: &Set) -> Vec<Address> {
        let of_set = |word: Word| [word.of(set.number, 0), word.of(set.number, 1)];
        let ready = self.outgoing.iter().flat_map(|out| of_set(out.ready));
        let arrived = self.incoming.iter().flat_map(|into| &into.words);
        let arrived = arrived.flat_map(|(_, arrived)| of_set(*arrived));
        let staged = self.incoming.iter().filter_map(|into| Some((into, into.stage?)));
        let staged = staged.flat_map(|(into, stage)| {
            let chunks = self.unpacks(set, into).iter().map(Vec::len).sum();
            self.stages[stage].awaited(FlagSet { set: set.number, op: None }, chunks)
        });
        let guard = self.opened.lanes[self.number].words.at(0);
        let ties = [Tie::Given, Tie::Over, Tie::Filled, Tie::Looked];
        let ties = ties.into_iter().flat_map(|tie| self.tie(tie)).filter_map(|cue| match cue {
            Cue::Wait([word, _], _) => Some(word),
            Cue::Write(_) | Cue::Set(..) | Cue::WaitHost(..) => None,
        });
        [guard].into_iter().chain(ready).chain(arrived).chain(staged).chain(ties).collect()
    }
}
