//! The lanes of an object: their flags, and the copy tables and operations of each for an exchange.
//!
//! | link | `ready` | `arrived` |
//! | --- | --- | --- |
//! | push | one for each set: set before any wait, awaited before the table that pushes | set by that table |
//! | pull | the same, set by the sender, awaited before a table pulls | set by that table, awaited by the sender |
//! | mailbox, host or device | set by the table that unpacks, awaited two epochs later | one for each set and slot: set by the table that packs |
//! | LL | the same | set by the table that packs, awaited by streams; an exchange in one launch waits for the LL words of the slot, which each set has its own |
//! | message | see `stream/staging.rs` | |
//! | NCCL | none: NCCL's messages wait for each other, and the stream orders them with packing and unpacking | |
//!
//! If each set has its own flags, ranks that exchange different sets wait for ever and copy nothing that the peer has not granted;
//! `stream/watch.rs` detects that.
//!
//! The first lane receives everything: it sets `ready`, waits for `arrived`, unpacks. If all links are direct, LL or device mailboxes,
//! and no two ranks share a device, one launch of a table does all of it, waits included. Otherwise streams wait, never tables: a
//! kernel that spins takes multiprocessors from the work beside it, and may keep the work that it waits for from running.

use super::aware::Slots;
use super::connect::{Connected, End};
use super::error::BindError;
use super::flag_layout::FlagLayout;
use super::nccl::Messages;
use super::script::Making;
use super::sides::{Incoming, Outgoing, receive, send, stage};
use crate::error::Error;
use crate::link::{Direction, Link, LinkPath};
use crate::options::BindOptions;
use crate::set::Set;
use crate::stream::{BySet, Cut, Lane, OfDevice, Pool, Script, Seat, Stage, status};
use halocline_comm::{Communicator, Endpoint, Segment};
use halocline_device::{Address, Device, Memory, RawStream, Stream, ValueOp};
use halocline_plan::copy::CopyOp;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The lanes of this rank, before those of its peers are known.
pub(super) struct Opened {
    pub(super) devices: Vec<Device>,
    pub(super) lanes: Vec<Open>,
    /// The layout of their flags.
    pub(super) layout: FlagLayout,
    /// This rank's mailboxes in host memory, by the addresses that devices use.
    registered: Option<Arc<Memory>>,
}

pub(super) struct Open {
    pub(super) device: Device,
    shared: Arc<OfDevice>,
    pub(super) words: Arc<Memory>,
    /// The memory of the flags, which peers that set them hold.
    pub(super) segment: Arc<Segment>,
}

/// The result of [`join`].
pub(super) struct Joined {
    pub(super) lanes: Vec<Lane>,
    pub(super) stages: Vec<Stage>,
    pub(super) seats: Vec<Seat>,
    pub(super) producers: Vec<Arc<Stream>>,
    /// Mailboxes that the devices reach.
    pub(super) registered: Vec<Arc<Memory>>,
    /// Why an exchange is more than one launch, if it is.
    pub(super) apart: Option<&'static str>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) incoming: Vec<Incoming>,
}

pub(super) fn address(base: *mut u8) -> Address {
    base.addr() as Address
}

/// The most links of an object whose tables wait: each takes thread blocks of its own.
pub(super) const MOST_WAITS: usize = 64;

impl Open {
    /// A stream that never waits.
    pub(super) fn rescue(&self) -> &Stream {
        &self.shared.rescue
    }
}

impl Opened {
    /// All memory that peers reach and hold.
    pub(super) fn segments(&self) -> impl Iterator<Item = Arc<Segment>> + '_ {
        self.lanes.iter().map(|lane| Arc::clone(&lane.segment)).chain(self.registered.iter().map(held))
    }
}

pub(super) fn held(memory: &Arc<Memory>) -> Arc<Segment> {
    let base = std::ptr::without_provenance_mut(memory.at(0) as usize);
    let base = NonNull::new(base).unwrap_or(NonNull::dangling());
    // SAFETY: it is device memory, or registered host memory, and `memory` keeps it valid. Only devices
    // follow this address.
    unsafe { Segment::foreign(base, memory.place().bytes, Arc::clone(memory) as _) }
}

/// Streams, events and flags of this rank's devices, for `sets` sets of an object.
pub(super) fn open(
    comm: &Communicator,
    devices: &[Device],
    (layout, sets): (FlagLayout, usize),
    options: &BindOptions,
) -> Result<Opened, Error> {
    let pool = comm.extension::<Pool>();
    let mut lanes = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let shared = pool.of(device)?;
        let words = Arc::new(device.allocate(layout.bytes(number))?);
        for Range { start, end } in layout.cleared(number) {
            // SAFETY: the flags were allocated just now, and no other thread or rank knows them before the stream is synchronised,
            // below.
            unsafe { shared.rescue.clear(words.at(start), end - start) }?;
        }
        if options.cut() == Some(Cut::Stale) {
            let stale = |offset| ValueOp::Write { address: words.at(offset), value: 5 };
            let stale: Vec<ValueOp> = layout.awaited(number, sets).map(stale).collect();
            // SAFETY: the flags were allocated just now, and no other thread or rank knows them before the stream is synchronised,
            // below.
            unsafe { shared.rescue.values(&stale) }?;
        }
        shared.rescue.synchronise()?;
        let segment = held(&words);
        lanes.push(Open { device: device.clone(), shared, words, segment });
    }
    Ok(Opened { devices: devices.to_vec(), lanes, layout, registered: None })
}

/// Gives the devices access to this rank's mailboxes in host memory, if links use any.
pub(super) fn register_own(opened: &mut Opened, made: &Connected) -> Result<(), Error> {
    let has_mailbox = made.links.iter().any(|link| matches!(link.path, LinkPath::Mailbox { .. }));
    let own = made.ends.iter().find_map(|end| end.segments.as_ref()).map(|(own, _)| own);
    if let (Some(device), Some(own), true) = (opened.devices.first(), own, has_mailbox) {
        opened.registered = Some(Arc::new(register(device, own)?));
    }
    Ok(())
}

fn register(device: &Device, segment: &Arc<Segment>) -> Result<Memory, Error> {
    let base = segment.base().as_ptr().expose_provenance() as Address;
    // SAFETY: the `Arc` of the segment, which is the owner, keeps its bytes valid.
    Ok(unsafe { device.register(base, segment.len(), Arc::clone(segment) as _) }?)
}

/// The lane that reads the source of an operation: that of its device.
pub(crate) fn lane_of(set: &Set, field: usize, devices: &[Device]) -> usize {
    let memory = &set.local.memories[set.local.fields[field].memory].0;
    let home = memory.device.as_ref().map(|home| &home.device);
    devices.iter().position(|device| Some(device) == home).unwrap_or(0)
}

/// The lane that does an operation of a link: that of the device whose field it reads, or writes if it pulls.
pub(super) fn lane_for(set: &Set, link: &Link, op: &CopyOp, devices: &[Device]) -> usize {
    lane_of(set, if link.path == LinkPath::Pull { op.target } else { op.source }, devices)
}

/// Whether a lane sends to a peer, or pulls from it.
pub(super) fn moves(
    made: &Connected,
    end: &End,
    (lane, direction): (usize, Direction),
    devices: &[Device],
) -> bool {
    let Some(at) = end.link(made, direction) else { return false };
    let link = &made.links[at];
    if (direction == Direction::Receive) != (link.path == LinkPath::Pull) {
        return false;
    }
    if matches!(link.path, LinkPath::Message | LinkPath::Nccl) {
        return lane == 0;
    }
    let of_set = |set: &'_ Arc<Set>| -> Vec<usize> {
        set.parts[at].ops.iter().map(|op| lane_for(set, link, op, devices)).collect()
    };
    let lanes = || made.sets.iter().flat_map(of_set);
    // If there is nothing to copy, the first lane still sets the flag.
    lanes().any(|of| of == lane) || (lane == 0 && lanes().next().is_none())
}

/// This rank's sides of the links, and the stages of messages.
#[derive(Default)]
struct Sides {
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    stages: Vec<Stage>,
}

impl Sides {
    fn new(opened: &Opened, made: &Connected, slots: &Slots, options: &BindOptions) -> Result<Self, Error> {
        let mut sides = Self::default();
        let Self { outgoing, incoming, stages } = &mut sides;
        for (end, remote) in made.ends.iter().zip(&made.remote) {
            for direction in [Direction::Send, Direction::Receive] {
                let link = end.link(made, direction);
                let Some(link) = link.filter(|&link| made.links[link].path != LinkPath::Nccl) else {
                    continue;
                };
                for lane in 0..opened.lanes.len() {
                    if moves(made, end, (lane, direction), &opened.devices) {
                        stages.extend(stage(opened, made, slots, (end.peer, link))?);
                        let staged = (stages.last(), stages.len());
                        outgoing.push(send(opened, made, (end, remote), (link, lane), staged, options)?);
                    }
                }
                // The peer copies, or this rank unpacks.
                if (direction == Direction::Send) == (made.links[link].path == LinkPath::Pull)
                    && !opened.lanes.is_empty()
                {
                    stages.extend(stage(opened, made, slots, (end.peer, link))?);
                    incoming.push(receive(opened, made, (end, remote), (link, stages.len()), options)?);
                }
            }
        }
        Ok(sides)
    }

    fn seats(&self) -> Vec<Seat> {
        let of_senders = self.outgoing.iter().map(Outgoing::seat);
        of_senders.chain(self.incoming.iter().flat_map(Incoming::seats)).collect()
    }
}

/// Tables and operations of all lanes. `is_alone`: no other rank uses this rank's devices.
pub(super) fn join(
    opened: &Opened,
    (made, messages): (&Connected, &Messages),
    slots: &Slots,
    (options, is_alone): (&BindOptions, bool),
) -> Result<Joined, Error> {
    let registered = reach_all(opened, made)?;
    let sides = Sides::new(opened, made, slots, options)?;
    let mut apart = apart(opened, made, options, is_alone);
    let in_one = apart.is_none();
    let mut lanes = Vec::new();
    for (number, open) in opened.lanes.iter().enumerate() {
        let (lane, all_in_one) = lane(opened, (made, messages), &sides, (number, in_one), options)?;
        if in_one && !all_in_one {
            apart = Some(match open.device.waiting_block_limit() {
                0 => "kernels of this device have a time limit, or it has one multiprocessor",
                _ => "its waiting blocks need more multiprocessors than the device has",
            });
        }
        lanes.push(lane);
    }
    let (mut seats, producers) = (sides.seats(), producers(opened, options)?);
    seats.extend(messages.seats());
    let Sides { outgoing, incoming, stages } = sides;
    Ok(Joined { producers, lanes, stages, seats, registered, apart, outgoing, incoming })
}

/// Tables and operations of one lane, and whether an exchange of each set is one launch. `in_one`: try that.
fn lane(
    opened: &Opened,
    (made, messages): (&Connected, &Messages),
    Sides { outgoing, incoming, stages }: &Sides,
    (number, in_one): (usize, bool),
    options: &BindOptions,
) -> Result<(Lane, bool), Error> {
    let (open, max_sets) = (&opened.lanes[number], made.max_sets());
    let status = open.device.allocate_pinned(status(max_sets))?;
    let making = Making {
        opened,
        links: &made.links,
        number,
        outgoing: outgoing.iter().filter(|out| out.lane == number).collect(),
        incoming: incoming.iter().filter(|_| number == 0).collect(),
        stages,
        messages,
        status: &status,
        cut: options.cut(),
        in_one,
        inline: options.inline,
        checked: options.checks_devices(),
    };
    let scripts = making.scripts(&made.sets)?;
    let waits_within = |script: &Script| script.waiting_blocks.is_some();
    let (all_in_one, by_event) = (scripts.iter().all(waits_within), scripts.iter().any(waits_within));
    let poisoned = BySet::new(max_sets, making.poisoned(&made.sets, &[]));
    let scripts = BySet::new(max_sets, scripts);
    let of = (open.device.clone(), Arc::clone(&open.shared));
    let lane = Lane::new(of, Arc::clone(&open.words), status, scripts, (poisoned, by_event));
    Ok((lane, all_in_one))
}

/// Why exchanges cannot be one launch, as far as that is known before there are tables. A kernel that spins takes multiprocessors from the
/// work beside it: few, as long as all objects together leave enough. The work that it waits for must not have to run on its device.
fn apart(opened: &Opened, made: &Connected, options: &BindOptions, is_alone: bool) -> Option<&'static str> {
    if options.streams_wait() {
        Some("`stream_waits`, or HALOCLINE_STREAM_WAITS, asks for that")
    } else if opened.lanes.len() != 1 {
        Some("the fields of this rank lie on several devices")
    } else if made.links.iter().any(|link| link.path == LinkPath::Pull) {
        Some("links are pulled, as asked for")
    } else if made.links.iter().any(|link| !link.path.reaches_devices()) {
        Some("not all links are direct")
    } else if made.links.len() > MOST_WAITS {
        Some("it has more than 64 links")
    } else if !is_alone {
        Some("another rank uses the device, too")
    } else {
        matches!(options.cut(), Some(Cut::HaloRead | Cut::GrantFirst)).then_some("a test leaves an order out")
    }
}

/// Gives every device access to the flags, fields and mailboxes that it reads or writes.
fn reach_all(opened: &Opened, made: &Connected) -> Result<Vec<Arc<Memory>>, Error> {
    let mut registered: Vec<Arc<Memory>> = opened.registered.iter().cloned().collect();
    for lane in &opened.lanes {
        let (machine, ordinal) = lane.device.id();
        opened
            .devices
            .iter()
            .filter(|own| **own != lane.device)
            .try_for_each(|own| lane.device.enable_peer(own))?;
        let is_direct = |end: &End| end.links.iter().any(|&link| made.links[link].path.reaches_devices());
        let remote = made.ends.iter().zip(&made.remote).filter(|(end, _)| is_direct(end));
        for (end, remote) in remote {
            let here = remote.lanes.iter().filter(|remote| !remote.is_mapped).map(|remote| remote.device);
            let others = here.filter(|&remote| remote != (machine, ordinal));
            for (remote_machine, peer) in others {
                if remote_machine != machine {
                    return Err(BindError::OtherMachine { peer: end.peer, device: ordinal }.into());
                }
                lane.device.driver().enable_peer(peer)?;
            }
        }
    }
    let Some(device) = opened.devices.first() else { return Ok(registered) };
    for end in &made.ends {
        let is_mailbox = |&link: &usize| matches!(made.links[link].path, LinkPath::Mailbox { .. });
        let Some((_, theirs)) = end.segments.as_ref().filter(|_| end.links.iter().any(is_mailbox)) else {
            continue;
        };
        // A rank in this process has registered its own memory.
        if device.place_of(theirs.base().as_ptr().expose_provenance() as Address).is_err() {
            registered.push(Arc::new(register(device, theirs)?));
        }
    }
    Ok(registered)
}

/// The producer streams of an exchange that names none.
fn producers(opened: &Opened, options: &BindOptions) -> Result<Vec<Arc<Stream>>, Error> {
    if options.streams.is_empty() {
        // SAFETY: 0 is the default stream of the device, which lives as long as the device.
        let default = |device: &Device| unsafe { device.borrow_stream(RawStream(0)) }.map(Arc::new);
        return Ok(opened.devices.iter().map(default).collect::<Result<_, _>>()?);
    }
    for (at, stream) in options.streams.iter().enumerate() {
        if !opened.devices.contains(stream.device()) {
            let device = stream.device().ordinal();
            let devices = opened.devices.iter().map(Device::ordinal).collect();
            return Err(Error::StreamDevice { stream: at, device, devices });
        }
    }
    Ok(options.streams.clone())
}
