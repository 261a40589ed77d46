//! The work of one lane for a reduce of a set: operations on flags, and copy tables.

use super::flag_layout::{Tie, Word};
use super::further::making;
use super::lanes::{address, lane_of};
use super::script::{Combined, Draft, Making, Work};
use super::sides::{Incoming, Outwards};
use crate::error::Error;
use crate::link::{LinkPath, SLOTS};
use crate::reduce::{Contribution, Reduction, Reverse};
use crate::set::Set;
use crate::stream::{Cue, Cut, FlagSet, IN_FLIGHT, Scheduled, Script, Stage, Step, begun};
use halocline_device::{Address, CopyTable, Signal};
use halocline_plan::ReduceOp;
use halocline_plan::copy::Gather;

/// Makes the work of a lane.
pub(crate) fn reduce_script(
    scheduled: &Scheduled,
    number: usize,
    (set, reduction): (&Set, Reduction),
) -> Result<Script, Error> {
    let making = making(scheduled, number);
    let flags = FlagSet { set: set.number, op: Some(reduction.op) };
    let reverse_work = Reducing {
        making: &making,
        set,
        reverse: set.reversed(making.links)?,
        reduction,
        flags,
        number: flags.number(scheduled.sets.max_sets()),
    };
    match making.in_one && making.device().waiting_block_limit() > 0 {
        true => reverse_work.by_waits_of_launches(),
        false => reverse_work.by_waits_of_streams(),
    }
}

/// One lane's work for a reduce, in the making.
struct Reducing<'a> {
    making: &'a Making<'a>,
    set: &'a Set,
    reverse: &'a Reverse,
    reduction: Reduction,
    flags: FlagSet,
    number: usize,
}

impl Reducing<'_> {
    /// Two launches that wait for flags, in one block each: no block waits that has work to do, and each launch may use the whole device.
    fn by_waits_of_launches(&self) -> Result<Script, Error> {
        // All slots and flags in memory of devices serve even and odd epochs.
        let parity = 0;
        let [mut own, mut with_peers] = self.works(parity);
        own.drafts.extend(self.raised().map(|word| Draft { raises: vec![word], ..Draft::default() }));
        let awaited = |word: Word, lag: u64| {
            let waits = vec![Signal { address: word.of(self.number, parity), lag }];
            Draft { waits, ..Draft::default() }
        };
        own.drafts.extend(self.outgoing().map(|out| awaited(out.ready, self.lag())));
        with_peers.drafts.extend(self.arrived().map(|arrived| awaited(arrived, 0)));
        let (out, into) = (self.upload(vec![own])?, self.upload(vec![with_peers])?);
        let blocks = [&out, &into].into_iter().flatten().map(CopyTable::waiting_blocks).max();
        let (waiting_blocks, poisoned) = (Some(blocks.unwrap_or(0)), self.poisoned());
        let steps = vec![Step { cues: Vec::new(), into }];
        Ok(Script { out, steps, waiting_blocks, poisoned, ..Script::default() })
    }

    /// Two launches, before and after which the stream waits for flags.
    fn by_waits_of_streams(&self) -> Result<Script, Error> {
        let (given, over) = (self.making.tie(Tie::Given), self.making.tie(Tie::Over));
        let raised = self.raised().count();
        let sent = self.packed_stages().map(|(_, stage)| Cue::WaitHost(stage.sent(), self.lag_of_slots()));
        let before: Vec<Cue> = self.raised().map(Cue::Write).chain(sent).collect();
        let [[own, with_peers], [own_odd, with_peers_odd]] = [0, 1].map(|parity| self.works(parity));
        let (out, into) = (self.upload(vec![own, own_odd])?, self.upload(vec![with_peers, with_peers_odd])?);
        let waits = self.outgoing().map(|out| out.ready.wait(self.number, self.lag()));
        let staged = self.combined_stages().map(|stage| Cue::WaitHost(stage.raised(0), self.lag()));
        let combines = Step { cues: waits.chain(staged).collect(), into };
        let cues = self.arrived().map(|arrived| arrived.wait(self.number, 0)).collect();
        let combined = Step { cues, into: None };
        let (steps, poisoned) = (vec![combines, combined], self.poisoned());
        Ok(Script { given, before, raised, out, steps, over, poisoned, ..Script::default() })
    }

    /// What this rank does by itself, and what it does once the peers' halo is there.
    fn works(&self, parity: usize) -> [Work; 2] {
        let (mut own, mut with_peers) = (self.empty(), self.empty());
        self.add_packs(&mut own, parity);
        self.add_combination((&mut own, &mut with_peers), parity);
        [own, with_peers]
    }

    /// Uploads a work, or those of even and of odd epochs.
    fn upload(&self, works: Vec<Work>) -> Result<Option<CopyTable>, Error> {
        let works: Vec<Work> = works.into_iter().map(|work| self.finish(work)).collect();
        self.making.upload(&works)
    }

    /// A work without parts, on this rank's fields.
    fn empty(&self) -> Work {
        let bases: Vec<Address> = self.set.bases.iter().copied().map(address).collect();
        Work { drafts: Vec::new(), sources: bases.clone(), targets: bases }
    }

    fn finish(&self, mut work: Work) -> Work {
        work.drafts.retain(|draft| !draft.is_idle());
        work.drafts.iter_mut().for_each(|draft| draft.beside = !self.making.inline);
        work
    }

    /// The flags that are set at first: that the reduce has begun; that slots which peers write in exchanges are free, since those wait for
    /// all epochs.
    fn raised(&self) -> impl Iterator<Item = Address> {
        let begun = self.making.status.at(begun(self.number));
        std::iter::once(begun).chain(self.making.incoming.iter().flat_map(|into| self.raised_of(into)))
    }

    fn raised_of(&self, into: &Incoming) -> Vec<Address> {
        match into.path {
            LinkPath::Ll | LinkPath::DeviceMailbox => {
                into.words.iter().map(|(free, _)| free.of(self.set.number, 0)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The links whose halo this lane combines.
    fn outgoing(&self) -> impl Iterator<Item = Outwards> {
        self.making.outgoing.iter().filter_map(|out| out.reverse)
    }

    /// For each peer that combines this rank's halo: the flag to set and the flag to wait for.
    fn incoming(&self) -> impl Iterator<Item = (Word, Word)> {
        let reverse = self.making.incoming.iter().filter_map(|into| into.reverse.as_ref());
        reverse.flat_map(|reverse| reverse.words.iter().copied())
    }

    /// The flags that say that peers have combined this rank's halo.
    fn arrived(&self) -> impl Iterator<Item = Word> {
        self.incoming().map(|(_, arrived)| arrived).filter(|_| !self.making.is_cut(Cut::Cleared))
    }

    /// The messages that this lane packs: their links, and this side's slots.
    fn packed_stages(&self) -> impl Iterator<Item = (usize, &Stage)> {
        let staged = self
            .making
            .incoming
            .iter()
            .filter_map(|into| Some((into.link, &self.making.stages[into.stage?])));
        staged.filter(|(_, stage)| self.has_message(stage))
    }

    /// The slots of the messages that are combined here. Each lane reads them.
    fn combined_stages(&self) -> impl Iterator<Item = &Stage> {
        let received = self.making.stages.iter().filter(|stage| !stage.sends_in(self.flags));
        received.filter(|stage| self.has_message(stage))
    }

    fn has_message(&self, stage: &Stage) -> bool {
        self.set.parts[self.making.links[stage.link].part].bytes > 0
    }

    /// How many epochs the slots of messages may lag.
    fn lag_of_slots(&self) -> u64 {
        SLOTS + u64::from(self.making.is_cut(Cut::Staging))
    }

    /// How many epochs the grants of peers may lag.
    fn lag(&self) -> u64 {
        if self.making.is_cut(Cut::Complete) { IN_FLIGHT } else { 0 }
    }

    /// Adds the parts that pack this rank's halo into slots, clear it unless the reduce keeps it, and tell the peers, or the host that
    /// sends it.
    fn add_packs(&self, work: &mut Work, parity: usize) {
        for into in &self.making.incoming {
            let Some(reverse) = &into.reverse else { continue };
            let raises = reverse.words.iter().map(|(ready, _)| ready.of(self.number, parity)).collect();
            self.add_pack(work, into.link, (reverse.slots.at(self.number, parity), raises));
        }
        for (link, stage) in self.packed_stages() {
            self.add_pack(work, link, (stage.slot(parity, 0), vec![stage.raised(0)]));
        }
    }

    /// Adds the part that packs the halo of a link into a slot, and then sets flags.
    fn add_pack(&self, work: &mut Work, link: usize, (slot, raises): (Address, Vec<Address>)) {
        let mut ops = self.reverse.packs(self.making.links[link].part).to_vec();
        ops.iter_mut().for_each(|op| op.target = work.targets.len());
        work.targets.push(slot);
        let gathers = Gather::all(&ops).into_iter().map(|gather| gather.clearing(|_| self.clears()));
        let combines = Some(Combined { op: ReduceOp::Replace, gathers: gathers.collect() });
        work.drafts.push(Draft { combines, raises, ..Draft::default() });
    }

    /// Whether the reduce clears this rank's halo.
    fn clears(&self) -> bool {
        !self.reduction.keeps_halo
    }

    /// Adds the parts that combine all contributions to cells of this lane: to one work those that are all this rank's own, to the other
    /// those with contributions of peers, and the flags that tell these. They clear the halo cells of this rank that they have read, unless
    /// the reduce keeps them.
    fn add_combination(&self, (at_once, with_peers): (&mut Work, &mut Work), parity: usize) {
        let own = with_peers.sources.len();
        let source_of_link = self.add_sources(with_peers, parity);
        let devices = &self.making.opened.devices;
        let mine = |one: &&Contribution| lane_of(self.set, one.op.target, devices) == self.making.number;
        let ops = self.reverse.contributions.iter().filter(mine).map(|Contribution { link, op }| {
            let mut op = op.clone();
            op.source += link.and_then(|link| source_of_link[link]).unwrap_or(0);
            op
        });
        let is_own = |source: usize| source < own;
        let is_cleared = |source: usize| self.clears() && is_own(source);
        let gathers =
            Gather::all(&ops.collect::<Vec<_>>()).into_iter().map(|gather| gather.clearing(is_cleared));
        let (own, of_peers): (Vec<_>, Vec<_>) = gathers.partition(|gather| gather.is_from(is_own));
        let combines =
            |gathers: Vec<Gather>| Some(Combined { op: self.reduction.op, gathers: gathers.into() });
        let raises = self.outgoing().map(|out| out.arrived.of(self.number, parity)).collect();
        at_once.drafts.push(Draft { combines: combines(own), ..Draft::default() });
        with_peers.drafts.push(Draft { raises, combines: combines(of_peers), ..Draft::default() });
    }

    /// Adds the slots with the peers' halo to the sources, and returns their index for each link.
    fn add_sources(&self, work: &mut Work, parity: usize) -> Vec<Option<usize>> {
        let mut source_of_link = vec![None; self.making.links.len()];
        let of_devices = self.making.outgoing.iter().filter_map(|out| Some((out.link, out.reverse?)));
        let of_devices = of_devices.map(|(link, reverse)| (link, reverse.slots.at(self.number, parity)));
        let staged = self.combined_stages().map(|stage| (stage.link, stage.slot(parity, 0)));
        for (link, slot) in of_devices.chain(staged) {
            source_of_link[link] = Some(work.sources.len());
            work.sources.push(slot);
        }
        source_of_link
    }

    /// The flags that the lane waits for in this reduce.
    fn poisoned(&self) -> Vec<Address> {
        let ready = self.outgoing().map(|out| out.ready);
        let words = ready.chain(self.incoming().map(|(_, arrived)| arrived));
        let words = words.flat_map(|word| [word.of(self.number, 0), word.of(self.number, 1)]);
        let stages = self.packed_stages().map(|(_, stage)| stage).chain(self.combined_stages());
        words.chain(stages.flat_map(|stage| stage.awaited(self.flags, 1))).collect()
    }
}
