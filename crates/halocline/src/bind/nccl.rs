//! Messages of NCCL between the devices of an object: the communicator, which the objects of a rank share, and a buffer for each link.

use super::connect::Connected;
use super::error::BindError;
use super::lanes::Opened;
use super::remote::DeviceRegistry;
use super::sides::capacity;
use crate::agree::agree;
use crate::error::Error;
use crate::link::{Direction, LinkPath};
use crate::lock::lock;
use crate::options::{BindOptions, LinkChoice};
use crate::set::Set;
use crate::stream::{self, Seat, Waits};
use halocline_comm::{CommError, Communicator, Endpoint, PeerState, Tag};
use halocline_device::{
    Address, Device, DeviceCommunicator, DeviceError, Memory, Message, Priority, UniqueId,
};
use halocline_plan::copy::CopyOp;
use std::sync::{Arc, Mutex};

/// The communicators of a rank.
#[derive(Default)]
struct Known(Mutex<Vec<Entry>>);

struct Entry {
    /// The begin of its identifier.
    id: u64,
    /// This rank's number in it, and the number of ranks.
    number: (u32, u32),
    communicator: Arc<DeviceCommunicator>,
}

impl Known {
    /// Those that a device may use again with this number. Forgets aborted ones.
    fn fitting(&self, device: &Device, number: (u32, u32)) -> Vec<u64> {
        let mut entries = lock(&self.0);
        entries.retain(|entry| !entry.communicator.is_aborted());
        let fits = |entry: &&Entry| entry.number == number && entry.communicator.device() == device;
        entries.iter().filter(fits).map(|entry| entry.id).collect()
    }

    fn get(&self, id: u64) -> Option<Arc<DeviceCommunicator>> {
        lock(&self.0).iter().find(|entry| entry.id == id).map(|entry| Arc::clone(&entry.communicator))
    }
}

/// The ranks with fields on devices, which NCCL connects.
pub(super) struct Group {
    /// In the order of their numbers in the communicator.
    members: Vec<usize>,
    /// `None` on a rank without devices.
    communicator: Option<Arc<DeviceCommunicator>>,
}

impl Group {
    /// Finds the communicator of the ranks with devices, or makes one, if the options ask for NCCL. Collective.
    pub(super) fn join(
        comm: &Communicator,
        registry: &DeviceRegistry,
        devices: &[Device],
        options: &BindOptions,
    ) -> Result<Option<Self>, Error> {
        if options.link != LinkChoice::Nccl {
            return Ok(None);
        }
        let device = agree(comm, check(comm, registry, devices, options))?;
        let members = registry.ranks_with_devices();
        if members.len() < 2 {
            return Ok(None);
        }
        let number = members.iter().position(|&rank| rank == comm.rank()).unwrap_or(0) as u32;
        let number = (number, members.len() as u32);
        let known = comm.extension::<Known>();
        let fitting = device.map_or_else(Vec::new, |device| known.fitting(device, number));
        let all = comm.all_gather(&fitting)?;
        let has_all = |id: &&u64| members.iter().all(|&rank| all[rank].contains(id));
        if let Some(id) = all[members[0]].iter().filter(has_all).min() {
            return Ok(Some(Self { communicator: device.and_then(|_| known.get(*id)), members }));
        }
        let id = make_id(comm, members[0], device)?;
        let joined =
            device.map(|device| DeviceCommunicator::join(device, &id, number.0, number.1).map(Arc::new));
        let communicator = agree(comm, joined.transpose())?;
        let is_ready = || communicator.as_ref().map_or(Ok(true), |communicator| communicator.is_ready());
        wait(comm, &members, is_ready)
            .inspect_err(|_| communicator.iter().for_each(|communicator| communicator.abort()))?;
        if let Some(communicator) = &communicator {
            let (id, communicator) = (begin_of(&id), Arc::clone(communicator));
            lock(&known.0).push(Entry { id, number, communicator });
        }
        Ok(Some(Self { members, communicator }))
    }
}

/// The device of this rank, if it has one and NCCL can connect it.
fn check<'a>(
    comm: &Communicator,
    registry: &DeviceRegistry,
    devices: &'a [Device],
    options: &BindOptions,
) -> Result<Option<&'a Device>, Error> {
    if options.is_unbound {
        return Err(BindError::DirectWithoutFields { choice: options.link }.into());
    }
    if devices.len() > 1 {
        return Err(BindError::NcclDevices { devices: devices.len() }.into());
    }
    if let Some(peer) = registry.sharer(comm) {
        return Err(BindError::NcclShared { rank: comm.rank(), peer }.into());
    }
    let device = devices.first();
    device.map(Device::messages).transpose()?;
    Ok(device)
}

/// The identifier of a new communicator, which rank `root` makes. Collective.
fn make_id(comm: &Communicator, root: usize, device: Option<&Device>) -> Result<UniqueId, Error> {
    let make = |device: &Device| device.messages()?.unique_id();
    let made = device.filter(|_| comm.rank() == root).map(make).transpose();
    let made = agree(comm, made)?.map_or_else(Vec::new, |id| id.0.to_vec());
    let bytes = comm.broadcast(root, made)?;
    Ok(UniqueId(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))))
}

fn begin_of(id: &UniqueId) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| id.0[at]))
}

/// Waits until work of NCCL, which waits for all members, is over on all ranks. A rank where it fails tells the others, which cannot see
/// that. Collective.
fn wait(
    comm: &Communicator,
    members: &[usize],
    is_over: impl Fn() -> Result<bool, DeviceError>,
) -> Result<(), Error> {
    let tag = Tag { operation: comm.begin(), round: 0 };
    const WHAT: &str = "the connections of NCCL";
    let (host, waiting) = (comm.link().host(), comm.rank());
    let begun = host.now();
    let others = || members.iter().copied().filter(|&rank| rank != waiting);
    let over = loop {
        match is_over() {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(error) => break Err(Error::Device(error)),
        }
        comm.link().poll();
        if comm.link().inbox().take(tag, None).is_some() {
            // The other rank has the reason.
            break Ok(());
        }
        if let Some(rank) = others().find(|&rank| comm.link().state(rank) != PeerState::Present) {
            break Err(CommError::Died { rank, waiting, what: WHAT.to_owned() }.into());
        }
        if let Some(deadline) = comm.deadline()
            && host.now().saturating_sub(begun) > deadline
        {
            break Err(CommError::Deadline { waiting, after: deadline, what: WHAT.to_owned() }.into());
        }
        host.yield_now();
    };
    if over.is_err() {
        // A rank that cannot be told has gone, which the others see.
        others().for_each(|rank| drop(comm.send(rank, tag, Vec::new())));
    }
    let agreed = agree(comm, over);
    comm.link().inbox().forget(tag.operation);
    agreed
}

/// A link's buffer in device memory.
struct Buffer {
    link: usize,
    /// The peer's number in the communicator.
    peer: u32,
    direction: Direction,
    memory: Arc<Memory>,
}

/// The messages of an object that NCCL carries.
#[derive(Default)]
pub(super) struct Messages {
    communicator: Option<Arc<DeviceCommunicator>>,
    buffers: Vec<Buffer>,
}

impl Messages {
    /// The buffers of the links, and NCCL's connections between their ranks, which the first messages make. Collective.
    pub(super) fn new(
        comm: &Communicator,
        group: Option<Group>,
        opened: &Opened,
        made: &Connected,
    ) -> Result<Self, Error> {
        let Some(Group { members, communicator }) = group else { return Ok(Self::default()) };
        let is_carried = |link: &usize| made.links[*link].path == LinkPath::Nccl && capacity(made, *link) > 0;
        let links = made.ends.iter().flat_map(|end| end.links.iter().copied()).filter(is_carried);
        let buffer = |link: usize| {
            let (peer, direction) = (made.links[link].peer, made.links[link].direction);
            let peer = members.iter().position(|&rank| rank == peer);
            let none = CommError::NoSuchRank { rank: made.links[link].peer, size: members.len() };
            let peer = peer.ok_or(none)? as u32;
            let memory = Arc::new(opened.devices[0].allocate(capacity(made, link))?);
            Ok(Buffer { link, peer, direction, memory })
        };
        let buffers = agree(comm, links.map(buffer).collect::<Result<_, Error>>())?;
        let messages = Self { communicator, buffers };
        messages.connect(comm, &members, opened)?;
        Ok(messages)
    }

    /// Exchanges the buffers of ranks that are not connected yet, on a stream of its own: others may have to write poison meanwhile.
    /// Between connected ranks, messages of an earlier object may be under way, which these would be mistaken for.
    fn connect(&self, comm: &Communicator, members: &[usize], opened: &Opened) -> Result<(), Error> {
        let all = self.buffers.iter().map(|buffer| buffer.message(buffer.memory.place().bytes));
        let is_new = |message: &Message| {
            self.communicator.as_ref().is_some_and(|communicator| !communicator.is_connected(message))
        };
        let grouped = self.grouped(all.filter(is_new).collect());
        let stream = opened.devices.first().map(|device| device.stream(Priority::Normal)).transpose();
        let Some((stream::Messages { communicator, list }, stream)) = grouped.zip(agree(comm, stream)?)
        else {
            return wait(comm, members, || Ok(true));
        };
        // SAFETY: the communicator is ready. Each message has a buffer of its own, which nothing else uses, and so has the stream. All
        // live until the wait is over, and for ever if it fails.
        let given = unsafe { communicator.connect(&stream, &list) };
        let connected = wait(comm, members, || {
            given.clone()?;
            Ok(communicator.is_ready()? && stream.query()?)
        });
        connected.inspect(|()| communicator.set_connected(&list)).inspect_err(|_| {
            communicator.abort();
            // A call of NCCL may still wait for a rank that has gone, and use them later.
            std::mem::forget((stream, self.memories().collect::<Vec<_>>()));
        })
    }

    fn grouped(&self, list: Vec<Message>) -> Option<stream::Messages> {
        let communicator = Arc::clone(self.communicator.as_ref()?);
        (!list.is_empty()).then_some(stream::Messages { communicator, list })
    }

    pub(super) fn communicator(&self) -> Option<Arc<DeviceCommunicator>> {
        self.communicator.clone().filter(|_| !self.buffers.is_empty())
    }

    pub(super) fn memories(&self) -> impl Iterator<Item = Arc<Memory>> + '_ {
        self.buffers.iter().map(|buffer| Arc::clone(&buffer.memory))
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = Seat> + '_ {
        self.buffers.iter().map(|buffer| Seat { link: buffer.link, waits: Waits::Nccl })
    }

    /// The messages of a set.
    pub(super) fn of_set(&self, set: &Set) -> Option<stream::Messages> {
        let bytes = |buffer: &Buffer| set.parts[buffer.link].bytes;
        let list = self.buffers.iter().filter(|buffer| bytes(buffer) > 0);
        self.grouped(list.map(|buffer| buffer.message(bytes(buffer))).collect())
    }

    /// The buffers of one direction that carry bytes of a set, with the operations that pack or unpack them.
    pub(super) fn of<'a>(
        &'a self,
        set: &'a Set,
        direction: Direction,
    ) -> impl Iterator<Item = (Address, &'a [CopyOp])> + 'a {
        let buffers = self.buffers.iter().filter(move |buffer| buffer.direction == direction);
        let with_ops = buffers.map(|buffer| (buffer.memory.at(0), &set.parts[buffer.link].ops[..]));
        with_ops.filter(|(_, ops)| !ops.is_empty())
    }
}

impl Buffer {
    fn message(&self, bytes: usize) -> Message {
        let sends = self.direction == Direction::Send;
        Message { peer: self.peer, sends, address: self.memory.at(0), bytes }
    }
}
