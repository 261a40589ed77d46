//! The unbound form for fields of devices: links whose receivers announce slots, and the work of exchanges of fields with certain layouts.

use super::error::BindError;
use super::lanes::{address, held};
use super::local::Local;
use super::ops;
use super::remote::By;
use super::script::{Draft, Kit};
use super::sides::{Incoming, Outgoing};
use super::unbound::{operations, records};
use crate::agree::agree;
use crate::error::Error;
use crate::exchange::HaloExchange;
use crate::field::Field;
use crate::link::LinkPath;
use crate::lock::lock;
use crate::options::{BindOptions, LinkChoice};
use crate::pattern::Pattern;
use crate::stream::{
    Cue, Cut, DIFFERS, LINE, Lane, Layouts, Scheduled, Script, Sent, Slot, Step, Unbound, WORDS, begun,
    describe,
};
use crate::{DeviceArray, Layout};
use halocline_comm::{Communicator, Endpoint};
use halocline_device::{Address, Announced, Base, CopyTable, Device, Memory, Signal, TableSpec, ValueOp};
use halocline_plan::ElementType;
use halocline_plan::copy::CopyOp;
use std::iter::once;
use std::sync::Arc;

/// The fewest bytes of a slot.
const LEAST: usize = 4096;

/// From so many bytes on, the thread blocks that pack for a peer also unpack what it sends, after that: so each of the two has all blocks.
/// Below, blocks of its own unpack, which wait from the begin on. Measured on two H200.
const LARGE: usize = 1 << 20;

/// Binds links for fields of a device that are given to each exchange. Collective.
///
/// What is bound are fields without bytes: they bring flags, signals and the life of an object.
pub(crate) fn bind(
    comm: &Communicator,
    patterns: &[&Pattern],
    device: &Device,
    options: &BindOptions,
) -> Result<HaloExchange, Error> {
    let options = options.clone().link(LinkChoice::Auto).unbound();
    let prepare = || -> Result<Vec<(&Pattern, Field)>, Error> {
        // Loads the kernels, which may wait for the device, before any exchange.
        let bases = [Base { residue: 0, bytes: 0..0 }];
        device.upload(&TableSpec { bases: &bases, ..TableSpec::default() })?;
        let mut fields = Vec::new();
        for pattern in patterns {
            for (domain, shape) in &pattern.plan().domains {
                let extents: Vec<usize> = shape.extents().into_iter().chain([0]).collect();
                // Of elements that have a sign: the transfers of vectors may change it.
                let layout = Layout::c_order(ElementType::F32, &extents)?;
                let empty = DeviceArray::<f32>::with_layout(device, layout)?;
                fields.push((*pattern, empty.on_domain(*domain)));
            }
        }
        Ok(fields)
    };
    let fields = agree(comm, prepare())?;
    let fields: Vec<(&Pattern, &Field)> = fields.iter().map(|(pattern, field)| (*pattern, field)).collect();
    HaloExchange::bind_with(comm, &fields, &options)
}

/// Makes the work of exchanges of fields with these layouts. Local, but a slot that becomes larger waits until the process of its sender
/// has mapped it.
pub(crate) fn layouts(scheduled: &Scheduled, unbound: &Unbound, local: &Local) -> Result<Layouts, Error> {
    let [lane] = &scheduled.lanes[..] else {
        // This rank has no domain.
        return Ok(Layouts { script: Script::default(), sent: Vec::new(), held: None });
    };
    let mut making = Making {
        scheduled,
        kit: &scheduled.kit,
        lane,
        fields: local.fields.len(),
        bases: local.given_bases(),
        sources: Vec::new(),
        targets: Vec::new(),
    };
    let bases: Vec<Address> = making.bases.iter().enumerate().map(|(at, base)| base.address(at)).collect();
    (making.sources, making.targets) = (bases.clone(), bases);
    making.make(unbound, local)
}

/// A message over a link.
struct Message {
    link: usize,
    described: Vec<u64>,
    numbers: Vec<u32>,
    bytes: usize,
    ops: Vec<CopyOp>,
}

/// A message that this rank receives, with its slot.
type Receive<'a> = (&'a Incoming, Message, Arc<Slot>);

/// The copies of an exchange.
#[derive(Clone)]
struct Copies {
    packs: Vec<Draft>,
    within: Option<Draft>,
    unpacks: Vec<Draft>,
}

struct Making<'a> {
    scheduled: &'a Scheduled,
    kit: &'a Kit,
    lane: &'a Lane,
    fields: usize,
    bases: Vec<Base>,
    /// The buffers of the tables: the fields, then those that messages and announcements need.
    sources: Vec<Address>,
    targets: Vec<Address>,
}

impl Making<'_> {
    fn is_cut(&self, cut: Cut) -> bool {
        self.kit.cut == Some(cut)
    }

    fn make(&mut self, unbound: &Unbound, local: &Local) -> Result<Layouts, Error> {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for out in &self.kit.outgoing {
            sends.push((out, message(self.scheduled, local, out.link)?));
        }
        for into in &self.kit.incoming {
            let message = message(self.scheduled, local, into.link)?;
            let slot = self.slot(unbound, into.link, message.bytes)?;
            receives.push((into, message, slot));
        }
        let announcements: Vec<[u64; WORDS]> =
            receives.iter().map(|(_, message, slot)| announcement(message, slot)).collect();
        let record = self.record(&announcements)?;
        let copies = Copies {
            packs: self.packs(&sends, &record),
            within: self.within(local),
            unpacks: self.unpacks(&receives),
        };
        let in_one = self.in_one_launch(&copies, &receives, &record)?;
        let script = in_one.map_or_else(|| self.by_waits_of_streams(copies, &sends, &receives), Ok)?;
        let sent = sends.into_iter().map(|(out, message)| {
            let Message { link, described, numbers, .. } = message;
            Sent { link, announced: announced(out), described, numbers }
        });
        let slots = receives.into_iter().map(|(.., slot)| slot).collect();
        Ok(Layouts { script, sent: sent.collect(), held: Some((record, slots)) })
    }

    /// The work as a single launch, if waits may happen in kernels and its blocks can wait at the same time.
    fn in_one_launch(
        &mut self,
        copies: &Copies,
        receives: &[Receive],
        record: &Memory,
    ) -> Result<Option<Script>, Error> {
        if !self.lane.is_by_event() {
            return Ok(None);
        }
        let raised = once(Draft { raises: vec![self.lane.status.at(begun(0))], ..Draft::default() });
        let grants = self.grants(receives, record);
        let Copies { packs, within, unpacks } = copies.clone();
        let out = self.upload(raised.chain(grants).chain(within).chain(in_turn(packs, unpacks)).collect())?;
        let blocks = out.as_ref().map_or(0, CopyTable::waiting_blocks);
        let fits = blocks <= self.lane.device.waiting_block_limit();
        Ok(fits.then(|| Script { out, waiting_blocks: Some(blocks), ..Script::default() }))
    }

    /// The work as launches between which the stream waits.
    fn by_waits_of_streams(
        &self,
        copies: Copies,
        sends: &[(&Outgoing, Message)],
        receives: &[Receive],
    ) -> Result<Script, Error> {
        let mut before = vec![Cue::Write(self.lane.status.at(begun(0)))];
        for (into, message, slot) in receives {
            let (ready, words) = (granted(into), announcement(message, slot));
            let set = |(at, &value): (usize, &u64)| Cue::Set(ready + 8 * (1 + at) as Address, value);
            before.extend(words.iter().enumerate().map(set).chain([Cue::Write(ready)]));
        }
        let raised = before.len();
        before.extend(sends.iter().map(|(out, _)| out.ready.wait(0, out.lag)));
        let without_waits = |draft: Draft| Draft { waits: Vec::new(), early: false, ..draft };
        let Copies { packs, within, unpacks } = copies;
        let out = self.upload(packs.into_iter().map(without_waits).chain(within).collect())?;
        let waits = receives.iter().map(|(into, ..)| into.words[0].1.wait(0, 0));
        let cues = waits.filter(|_| !self.is_cut(Cut::Arrived)).collect();
        let unpacks = unpacks.into_iter().map(without_waits).filter(|draft| !draft.ops.is_empty());
        let into = self.upload(unpacks.collect())?;
        Ok(Script { raised, before, out, steps: vec![Step { cues, into }], ..Script::default() })
    }

    /// The slot of a link that receives so many bytes: the present one, or a larger one.
    fn slot(&self, unbound: &Unbound, link: usize, bytes: usize) -> Result<Arc<Slot>, Error> {
        let comm = &self.scheduled.comm;
        let peer = self.scheduled.links[link].peer;
        {
            let mut slots = lock(&unbound.slots);
            slots.resize_with(self.scheduled.links.len(), || None);
            if let Some(slot) = slots[link].as_ref().filter(|slot| slot.memory.place().bytes >= bytes) {
                return Ok(Arc::clone(slot));
            }
        }
        // Not under the lock: another process has to map it.
        let memory = Arc::new(self.lane.device.allocate(bytes.max(LEAST).next_power_of_two())?);
        let segment = held(&memory);
        let path = LinkPath::DeviceMailbox;
        let slot = match comm.link().reach(peer, &segment) {
            Ok(()) => Slot { at_sender: memory.at(0), memory, pinned: None },
            Err(reason) => {
                let requested = self.kit.registry.request((peer, By::FirstDevice), &segment);
                let requested = requested.unwrap_or(Err(reason));
                let requested = requested.map_err(|reason| BindError::Path { peer, path, reason })?;
                let pinned = requested.wait().map_err(BindError::from)?;
                Slot { at_sender: pinned.address(), memory, pinned: Some(pinned) }
            }
        };
        let slot = Arc::new(slot);
        lock(&unbound.slots)[link] = Some(Arc::clone(&slot));
        Ok(slot)
    }

    /// Announcements in memory of the device, a line each; without any, still a word.
    fn record(&self, announcements: &[[u64; WORDS]]) -> Result<Arc<Memory>, Error> {
        let record = self.lane.device.allocate(LINE * announcements.len().max(1))?;
        let write = |(line, words): (usize, &[u64; WORDS])| {
            let address = record.at(LINE * line);
            let word = move |(at, &value): (usize, &u64)| ValueOp::Write {
                address: address + 8 * at as Address,
                value,
            };
            words.iter().enumerate().map(word).collect::<Vec<_>>()
        };
        let ops: Vec<ValueOp> = announcements.iter().enumerate().flat_map(write).collect();
        let rescue = &self.lane.shared.rescue;
        if !ops.is_empty() {
            // SAFETY: the memory was allocated just now, and nobody else knows it before the stream is synchronised.
            unsafe { rescue.values(&ops) }?;
            rescue.synchronise()?;
        }
        Ok(Arc::new(record))
    }

    /// The parts that announce slots, then grant them.
    fn grants(&mut self, receives: &[Receive], record: &Memory) -> Vec<Draft> {
        let grant = |(line, (into, ..)): (usize, &Receive)| {
            let ready = granted(into);
            self.sources.push(record.at(LINE * line));
            self.targets.push(ready + 8);
            let op = CopyOp::of_bytes(self.sources.len() - 1, self.targets.len() - 1, 8 * WORDS);
            Draft { ops: vec![op], raises: vec![ready], ..Draft::default() }
        };
        receives.iter().enumerate().map(grant).collect()
    }

    /// The parts that pack messages.
    fn packs(&mut self, sends: &[(&Outgoing, Message)], record: &Memory) -> Vec<Draft> {
        self.targets.push(Base::ANNOUNCED);
        self.sources.push(record.at(0));
        let (target, word) = (self.targets.len() - 1, self.sources.len() - 1);
        let pack = |(out, message): &(&Outgoing, Message)| {
            let mut ops = message.ops.clone();
            ops.iter_mut().for_each(|op| op.target = target);
            if message.bytes == 0 {
                // So that the kernel compares what the receiver expects.
                ops = vec![CopyOp::of_bytes(word, target, 8)];
            }
            Draft {
                waits: vec![Signal { address: out.ready.of(0, 0), lag: out.lag }],
                ops,
                raises: vec![out.arrived.of(0, 0)],
                early: true,
                announced: Some(Announced {
                    address: announced(out),
                    sent: message.described[0],
                    differs: self.lane.status.at(DIFFERS),
                }),
                ..Draft::default()
            }
        };
        sends.iter().map(pack).collect()
    }

    /// The part that copies within the rank.
    fn within(&self, local: &Local) -> Option<Draft> {
        let ops = ops::within(local);
        (!ops.is_empty()).then(|| Draft { ops, ..Draft::default() })
    }

    /// The parts that unpack messages.
    fn unpacks(&mut self, receives: &[Receive]) -> Vec<Draft> {
        let is_cut = self.is_cut(Cut::Arrived);
        let unpack = |(into, message, slot): &Receive| {
            self.sources.push(slot.memory.at(0));
            let mut ops = message.ops.clone();
            ops.iter_mut().for_each(|op| op.source = self.sources.len() - 1);
            let arrived = Signal { address: into.words[0].1.of(0, 0), lag: 0 };
            Draft { ops, waits: if is_cut { Vec::new() } else { vec![arrived] }, ..Draft::default() }
        };
        receives.iter().map(unpack).collect()
    }

    fn upload(&self, mut drafts: Vec<Draft>) -> Result<Option<CopyTable>, Error> {
        if drafts.is_empty() {
            return Ok(None);
        }
        drafts.iter_mut().for_each(|draft| draft.beside = !self.scheduled.inline);
        let parts: Vec<_> = drafts.iter().map(Draft::part).collect();
        let (sources, targets, bases) = (&self.sources[..], &self.targets[..], &self.bases[..self.fields]);
        let guard = Some(self.lane.words.at(0));
        Ok(Some(self.lane.device.upload(&TableSpec { parts: &parts, sources, targets, guard, bases })?))
    }
}

/// Packs, each before an unpack. Large ones have the same thread blocks.
fn in_turn(packs: Vec<Draft>, unpacks: Vec<Draft>) -> impl Iterator<Item = Draft> {
    let bytes = |draft: &Draft| draft.ops.iter().map(CopyOp::bytes).sum::<usize>();
    let mut unpacks = unpacks.into_iter();
    let mut all = Vec::new();
    for pack in packs {
        let is_large = bytes(&pack) >= LARGE;
        all.push(pack);
        all.extend(unpacks.next().map(|unpack| {
            let follows = is_large && bytes(&unpack) >= LARGE;
            Draft { follows, ..unpack }
        }));
    }
    all.into_iter().chain(unpacks)
}

/// The flag at the sender by which this rank grants its slot.
fn granted(into: &Incoming) -> Address {
    into.words[0].0.of(0, 0)
}

/// Where the receiver announces its slot: behind its grant.
fn announced(out: &Outgoing) -> Address {
    out.ready.of(0, 0) + 8
}

/// The words of an announcement.
fn announcement(message: &Message, slot: &Slot) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = slot.at_sender;
    words[1..][..message.described.len()].copy_from_slice(&message.described);
    words
}

/// The message of a link: both ends make the same description of it.
fn message(scheduled: &Scheduled, local: &Local, link: usize) -> Result<Message, Error> {
    let (peer, direction) = (scheduled.links[link].peer, scheduled.links[link].direction);
    let records = records(local, peer, direction, true)?;
    let bytes = local.bytes(peer, direction);
    let numbers = records.iter().map(|record| record.number as u32).collect();
    // The order is that of a layout here: it is valid.
    let ops = operations(local, peer, direction, &records).unwrap_or_default();
    Ok(Message { link, described: describe(&records, bytes), numbers, bytes, ops })
}

impl Local {
    /// The fields as the bases of a table.
    pub(crate) fn given_bases(&self) -> Vec<Base> {
        let base = |(field, base): (&super::Bindable, *mut u8)| {
            let span = field.layout.span();
            Base { residue: address(base) % Base::LINE, bytes: span.start as i64..span.end as i64 }
        };
        self.fields.iter().zip(self.bases()).map(base).collect()
    }
}
