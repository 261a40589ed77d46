//! Fetches from fields in memory of devices.
//!
//! A device packs the halo into pinned memory, and unpacks it from there. Owned cells are combined on their device by launches that follow
//! one another: the n-th one combines each owned cell with its n-th contribution in the order of domains. Before it the cell's value is
//! kept, and after it the contribution gets that value.

use super::{Fetch, Messages, Peer, Peers};
use crate::bind::{self, Via};
use crate::error::Error;
use crate::reduce::{Contribution, Reverse};
use crate::set::Set;
use crate::stream::Scheduled;
use halocline_device::{
    Address, Combining, CopyTable, Device, DeviceError, Memory, Priority, Stream, TablePart, TableSpec,
};
use halocline_plan::ReduceOp;
use halocline_plan::copy::{CopyOp, Gather, Listed};
use std::sync::Arc;

/// The alignment of elements that are kept.
const ALIGN: usize = 16;

/// Its fields are guarded as long as it exists.
pub(super) struct OfDevices<'a> {
    peers: Peers,
    /// Before the memory that their tables use.
    lanes: Vec<Lane>,
    /// Messages to and from owners, and those of contributors, in pinned memory.
    of_owners: Vec<Memory>,
    of_contributors: Vec<Memory>,
    _guards: Guards<'a>,
}

/// The work of one device.
struct Lane {
    packs: Option<CopyTable>,
    combines: Vec<CopyTable>,
    unpacks: Option<CopyTable>,
    stream: Stream,
    /// The values that owned cells had before a launch.
    _kept: Memory,
}

/// Keeps exchanges, and copies of other threads, away from the fields of a set.
struct Guards<'a>(&'a Set);

impl<'a> OfDevices<'a> {
    /// Waits for the producer streams, checks everything, takes the fields and makes the tables.
    pub(super) fn new(scheduled: &'a Arc<Scheduled>, number: usize, op: ReduceOp) -> Result<Self, Error> {
        let set: &'a Arc<Set> = &scheduled.sets[number];
        let reverse = bind::reverse(set, &scheduled.links, Via::Messages)?;
        reverse.check(op)?;
        set.local.check_reduction(op)?;
        scheduled.producers.iter().try_for_each(|stream| stream.synchronise())?;
        scheduled.check_idle(set)?;
        let guards = Guards::take(set)?;
        let peers = Peers::new(set, &scheduled.links);
        let devices: Vec<Device> = scheduled.lanes.iter().map(|lane| lane.device.clone()).collect();
        let pinned = |peers: &[Peer]| {
            let pinned =
                |peer: &Peer| devices.first().map(|device| device.allocate_pinned(peer.bytes.max(1)));
            peers.iter().filter_map(pinned).collect::<Result<Vec<_>, _>>()
        };
        let (of_owners, of_contributors) = (pinned(&peers.owners)?, pinned(&peers.contributors)?);
        let messages = of_owners.iter().chain(&of_contributors).map(|memory| memory.at(0));
        let bases = set.bases.iter().map(|base| base.addr() as Address);
        let making = Making {
            set,
            op,
            reverse: &reverse,
            buffers: bases.chain(messages).collect(),
            of_contributors: scheduled
                .links
                .iter()
                .map(|link| {
                    let at = peers.contributors.iter().position(|peer| peer.part == link.part);
                    at.map_or(0, |at| set.bases.len() + peers.owners.len() + at)
                })
                .collect(),
            peers: &peers,
            devices: &devices,
        };
        let lanes = (0..devices.len()).map(|lane| making.lane(lane)).collect::<Result<_, _>>()?;
        Ok(Self { peers, lanes, of_owners, of_contributors, _guards: guards })
    }

    /// Launches tables of all lanes, and waits for them.
    fn launch(&self, tables: impl Fn(&Lane) -> &[CopyTable]) -> Result<(), Error> {
        let launch = |lane: &Lane| {
            // SAFETY: the tables use fields, whose memory the object holds and `Guards` keeps exchanges and copies away from, and memory of
            // `self`, which this thread alone knows. All of it, and the tables, stay until the stream is through: this function waits for
            // that, or the device has failed and does nothing more.
            tables(lane).iter().try_for_each(|table| unsafe { lane.stream.launch(table, 0) })
        };
        let launched: Vec<_> = self.lanes.iter().map(launch).collect();
        let ended: Vec<_> = self.lanes.iter().map(|lane| lane.stream.synchronise()).collect();
        launched.into_iter().chain(ended).collect::<Result<(), DeviceError>>().map_err(Error::from)
    }
}

impl Fetch for OfDevices<'_> {
    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn pack(&self) -> Result<Vec<Vec<u8>>, Error> {
        self.launch(|lane| lane.packs.as_slice())?;
        let message = |(owner, memory): (&Peer, &Memory)| {
            // SAFETY: `launch` has waited for the devices, which alone write it.
            unsafe { memory.bytes(0..owner.bytes) }.to_vec()
        };
        Ok(self.peers.owners.iter().zip(&self.of_owners).map(message).collect())
    }

    fn combine(&self, messages: &mut Messages) -> Result<(), Error> {
        let there = || self.peers.contributors.iter().zip(&self.of_contributors);
        for (peer, memory) in there() {
            // SAFETY: no launch that uses it has begun.
            unsafe { memory.bytes_mut(0..peer.bytes) }.copy_from_slice(&messages[&peer.rank]);
        }
        self.launch(|lane| &lane.combines)?;
        for (peer, memory) in there() {
            // SAFETY: `launch` has waited for the devices, which alone write it.
            let fetched = unsafe { memory.bytes(0..peer.bytes) }.to_vec();
            messages.insert(peer.rank, fetched);
        }
        Ok(())
    }

    fn unpack(&self, messages: &Messages) -> Result<(), Error> {
        for (owner, memory) in self.peers.owners.iter().zip(&self.of_owners) {
            // SAFETY: `launch` has waited for all work that uses it.
            unsafe { memory.bytes_mut(0..owner.bytes) }.copy_from_slice(&messages[&owner.rank]);
        }
        self.launch(|lane| lane.unpacks.as_slice())
    }
}

/// What the tables of all lanes are made from.
struct Making<'a> {
    set: &'a Set,
    op: ReduceOp,
    reverse: &'a Reverse,
    peers: &'a Peers,
    devices: &'a [Device],
    /// The fields, then the messages of owners, then those of contributors.
    buffers: Vec<Address>,
    /// For each link that sends, the index of its contributor's message.
    of_contributors: Vec<usize>,
}

impl Making<'_> {
    fn lane(&self, number: usize) -> Result<Lane, Error> {
        let device = &self.devices[number];
        let is_mine = |field: usize| bind::lane_of(self.set, field, self.devices) == number;
        let packs: Vec<CopyOp> = self.packs().filter(|op| is_mine(op.source)).collect();
        let unpacks: Vec<CopyOp> = packs.iter().map(CopyOp::reversed).collect();
        let combined: Vec<CopyOp> = self.combined().filter(|op| is_mine(op.target)).collect();
        let (launches, bytes) = one_after_the_other(&Gather::all(&combined), self.op, self.buffers.len());
        let kept = device.allocate(bytes.max(1))?;
        let buffers: Vec<Address> = self.buffers.iter().copied().chain([kept.at(0)]).collect();
        let table = |op: ReduceOp, gathers: &[Gather]| {
            let part = TablePart { combines: Some(Combining { op, gathers }), ..TablePart::default() };
            let spec =
                TableSpec { parts: &[part], sources: &buffers, targets: &buffers, ..TableSpec::default() };
            (!gathers.is_empty()).then(|| device.upload(&spec)).transpose()
        };
        let mut combines = Vec::new();
        for (op, gathers) in &launches {
            combines.extend(table(*op, gathers)?);
        }
        Ok(Lane {
            packs: table(ReduceOp::Replace, &Gather::all(&packs))?,
            combines,
            unpacks: table(ReduceOp::Replace, &Gather::all(&unpacks))?,
            stream: device.stream(Priority::Normal)?,
            _kept: kept,
        })
    }

    /// From the halo to the messages of its owners.
    fn packs(&self) -> impl Iterator<Item = CopyOp> {
        let first = self.set.bases.len();
        let of_owner = move |(at, owner): (usize, &Peer)| {
            let packs = self.reverse.packs(owner.part).iter();
            packs.map(move |op| {
                let mut op = op.clone();
                op.target = first + at;
                op
            })
        };
        self.peers.owners.iter().enumerate().flat_map(of_owner)
    }

    /// From the messages of contributors, and from halo cells of this rank, to owned cells, in the order of domains.
    fn combined(&self) -> impl Iterator<Item = CopyOp> {
        self.reverse.contributions.iter().map(|Contribution { link, op }| {
            let mut op = op.clone();
            op.source = link.map_or(op.source, |link| self.of_contributors[link]);
            op
        })
    }
}

/// The launches that combine elements with their contributions one after the other, and the bytes that they keep in buffer `kept`.
fn one_after_the_other(
    gathers: &[Gather],
    op: ReduceOp,
    kept: usize,
) -> (Vec<(ReduceOp, Vec<Gather>)>, usize) {
    let most = gathers.iter().map(|gather| gather.sources.len()).max().unwrap_or(0);
    let (mut launches, mut bytes) = (Vec::new(), 0);
    for nth in 0..most {
        let (mut keeps, mut combines, mut fetches) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0_usize;
        for gather in gathers {
            let Some(contribution) = gather.sources.get(nth) else { continue };
            let (size, count) = (gather.element.size(), gather.target.numbers.len());
            let offset = end.next_multiple_of(ALIGN);
            end = offset + gather.elements() * size;
            let place = Listed {
                buffer: kept,
                offset: offset as isize,
                numbers: (0..count as u32).collect(),
                stride: size as isize,
                step: (count * size) as isize,
                is_negated: false,
                is_cleared: false,
            };
            let of_two = |target: Listed, source: Listed| {
                let mut of_two = gather.clone();
                (of_two.target, of_two.sources) = (target, vec![source]);
                of_two
            };
            keeps.push(of_two(place.clone(), gather.target.clone()));
            combines.push(of_two(gather.target.clone(), contribution.clone()));
            let back = Listed { is_negated: contribution.is_negated, ..place };
            fetches.push(of_two(Listed { is_negated: false, ..contribution.clone() }, back));
        }
        bytes = bytes.max(end);
        launches.extend([(ReduceOp::Replace, keeps), (op, combines), (ReduceOp::Replace, fetches)]);
    }
    (launches, bytes)
}

impl<'a> Guards<'a> {
    fn take(set: &'a Set) -> Result<Self, Error> {
        set.local.guard()?;
        let guards = Self(set);
        // After the guards: a begin finds those, or is found here.
        for (memory, field) in &set.local.memories {
            let users = memory.device.as_ref().map_or_else(Vec::new, |home| home.users());
            if users.iter().any(|user| user.is_in_flight_with(memory)) {
                return Err(Error::Shared { field: *field });
            }
        }
        Ok(guards)
    }
}

impl Drop for Guards<'_> {
    fn drop(&mut self) {
        self.0.local.unguard();
    }
}
