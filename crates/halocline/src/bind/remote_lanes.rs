//! Exchanges with each peer which device does what on the links, and the addresses of the device flags.

use super::connect::{Connected, End};
use super::error::BindError;
use super::flag_layout::{LANES, WORD};
use super::lanes;
use super::remote::{ExportHandle, Exports};
use crate::error::Error;
use crate::link::Direction;
use halocline_comm::mappings::Kind;
use halocline_comm::{Communicator, Endpoint, Segment, Tag};
use halocline_device::Address;
use halocline_plan::wire::{Reader, WireError, Writer};
use std::sync::Arc;

/// The devices of a peer, and the addresses of their flags and slots for the links with this rank.
pub(super) struct RemoteLanes {
    pub(super) lanes: Vec<RemoteLane>,
    /// The flags `arrived` for which its first lane waits, one for each lane of this rank: of links that push, then of links that pull.
    pub(super) arrived: Address,
    /// The LL slots, the mailbox and the slot of reduces for messages of this rank, on its first lane. 0: there is no slot of reduces.
    pub(super) ll: Address,
    pub(super) mailbox: Address,
    pub(super) reduce: Address,
    /// How that memory is mapped here, if it is.
    pub(super) mapped: Option<Kind>,
    /// Their memory, held.
    pub(super) words: Vec<Arc<Segment>>,
}

pub(super) struct RemoteLane {
    /// [`Device::id`], in the peer's process.
    pub(super) device: (usize, u32),
    /// In another process, whose flags this one has mapped.
    pub(super) is_mapped: bool,
    /// Whether it sends to this rank, or pulls from it.
    pub(super) sends: bool,
    pub(super) pulls: bool,
    /// The flags `ready`, of each set, for which it waits before it pushes; then those before it pulls.
    pub(super) ready: Address,
}

/// Sends a peer the list of lanes and the addresses of their flags.
pub(super) fn send(
    comm: &Communicator,
    operation: u64,
    end: &End,
    made: &Connected,
    opened: &lanes::Opened,
    exports: &Exports,
) -> Result<(), Error> {
    let mut w = Writer::new();
    w.size(opened.lanes.len());
    for (number, lane) in opened.lanes.iter().enumerate() {
        let (machine, ordinal) = lane.device.id();
        w.size(machine);
        w.u64(ordinal.into());
        let moves = |direction| lanes::moves(made, end, (number, direction), &opened.devices);
        w.u64(u64::from(moves(Direction::Send)) | u64::from(moves(Direction::Receive)) << 1);
        w.u64(lane.words.at(opened.layout.ready(end.number, false)));
        match exports.of(end.peer, &lane.segment) {
            Some(Ok(handle)) if end.reaches_devices(made) => {
                w.u64(1);
                w.u64(lane.words.at(0));
                handle.write(&mut w);
            }
            // The peer reaches them at these addresses, or does not need them.
            _ => w.u64(0),
        }
    }
    let layout = &opened.layout;
    let peer = end.number;
    let reduce = layout.of_peers[peer].reduce.map(|_| layout.reduce(peer));
    let offsets = [layout.arrived(peer, false), layout.ll(peer), layout.mailbox(peer)];
    for offset in offsets.into_iter().map(Some).chain([reduce]) {
        w.u64(opened.lanes.first().zip(offset).map_or(0, |(lane, offset)| lane.words.at(offset)));
    }
    let segments: Vec<_> =
        opened.segments().filter(|segment| comm.link().reach(end.peer, segment).is_ok()).collect();
    Ok(comm.link().post(end.peer, Tag { operation, round: 0 }, w.finish(), &segments)?)
}

pub(super) fn receive(comm: &Communicator, operation: u64, peer: usize) -> Result<RemoteLanes, Error> {
    let message = comm.receive(Some(peer), Tag { operation, round: 0 }, "the lanes of a bind")?;
    const WHAT: &str = "list of device flags";
    let malformed = |error| BindError::Malformed { peer, what: WHAT, error };
    let (mut remote, mapped) = read_lanes(&message.payload).map_err(malformed)?;
    if let Some(error) = message.missing {
        let (number, announced) = (message.segments.len() + 1, remote.lanes.len());
        return Err(
            BindError::MissingMemory { peer, what: WHAT, number, announced, error: error.into() }.into()
        );
    }
    remote.words = message.segments;
    for MappedWords { lane, base, handle } in mapped {
        let (words, kind) = handle.import(comm, peer).map_err(BindError::from)?;
        let here =
            |address: Address| address.wrapping_sub(base).wrapping_add(words.base().addr().get() as Address);
        if lane == 0 {
            let addresses = [&mut remote.arrived, &mut remote.ll, &mut remote.mailbox];
            let slot = Some(&mut remote.reduce).filter(|slot| **slot != 0);
            addresses.into_iter().chain(slot).for_each(|at| *at = here(*at));
            remote.mapped = kind;
        }
        remote.lanes[lane].ready = here(remote.lanes[lane].ready);
        remote.lanes[lane].is_mapped = true;
        remote.words.push(words);
    }
    Ok(remote)
}

/// The flags of a lane that are mapped here.
struct MappedWords {
    lane: usize,
    /// Their address at the peer.
    base: Address,
    handle: ExportHandle,
}

fn read_lanes(payload: &[u8]) -> Result<(RemoteLanes, Vec<MappedWords>), WireError> {
    let mut r = Reader::new(payload);
    let count = r.count(40)?;
    if count > LANES {
        return Err(WireError::Content("it has more devices than there can be"));
    }
    let (mut lanes, mut mapped) = (Vec::new(), Vec::new());
    for lane in 0..count {
        let machine = r.size()?;
        let device = (machine, u32::try_from(r.u64()?).map_err(|_| WireError::Content("no such device"))?);
        let moves = r.u64()?;
        let (sends, pulls) = (moves & 1 != 0, moves & 2 != 0);
        lanes.push(RemoteLane { device, is_mapped: false, sends, pulls, ready: r.u64()? });
        if r.u64()? != 0 {
            mapped.push(MappedWords { lane, base: r.u64()?, handle: ExportHandle::read(&mut r)? });
        }
    }
    let (arrived, ll, mailbox, reduce) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    r.finish()?;
    let (kind, words) = (None, Vec::new());
    Ok((RemoteLanes { lanes, arrived, ll, mailbox, reduce, mapped: kind, words }, mapped))
}

impl RemoteLanes {
    /// The flags lie in the memory that was sent with them.
    pub(super) fn holds(&self, address: Address, bytes: usize) -> bool {
        let bytes = bytes as Address;
        self.words.iter().any(|segment| {
            let base = segment.base().addr().get() as Address;
            let len = segment.len() as Address;
            address >= base
                && (address - base).checked_add(bytes).is_some_and(|end| end <= len)
                && address.is_multiple_of(WORD as Address)
        })
    }
}
