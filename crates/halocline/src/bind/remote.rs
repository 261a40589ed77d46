//! Device memory for ranks of other processes of the node. The owner has the ranks that access it map it, pins the mappings, and
//! sends a token and an offset, from which the importer gets an address ([`halocline_comm::mappings`]).

use super::error::BindError;
use crate::agree::agree;
use crate::error::Error;
use crate::field::Memory;
use halocline_comm::mappings::{DeviceId, Kept, Kind, MappingError, Mappings, Pinned, Requested, Target};
use halocline_comm::{Communicator, Endpoint, Segment};
use halocline_device::{Address, Connection, Device, DeviceError};
use halocline_plan::wire::{Reader, WireError, Writer};
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::Arc;

/// The devices of all ranks that can map memory of others, by names that are valid in all processes.
pub(super) struct DeviceRegistry {
    of_ranks: Vec<Vec<DeviceId>>,
    mappings: Option<Mappings>,
    /// The devices of all ranks, by [`Device::id`]: names that are valid within a process.
    here: Vec<Vec<(u64, u32)>>,
    /// Those of this rank.
    own: Vec<Device>,
}

/// Bytes of a device in [`DeviceRegistry::here`].
const NAME: usize = 12;

impl DeviceRegistry {
    /// Collective. From now on this rank maps the exports of others.
    pub(super) fn gather(comm: &Communicator, devices: &[Device]) -> Result<Self, Error> {
        let providers = devices.iter().map(|device| device.driver().provider());
        // If one device's memory cannot be exported, none is: a link has one path for all fields.
        let providers: Result<Option<Vec<_>>, Error> =
            providers.map(|provider| provider.map_err(Error::from)).collect();
        let providers = agree(comm, providers)?.unwrap_or_default();
        let mappings = (!providers.is_empty()).then(|| Mappings::of(comm));
        let own: Vec<u8> = providers.iter().flat_map(|provider| provider.device().0).collect();
        if let Some(mappings) = &mappings {
            providers.iter().for_each(|provider| mappings.attach(Arc::clone(provider)));
        }
        let ids = |of_rank: &Vec<u8>| of_rank.as_chunks().0.iter().copied().map(DeviceId).collect();
        let of_ranks = comm.all_gather(&own)?.iter().map(ids).collect();
        let name = |device: &Device| {
            let (machine, ordinal) = device.id();
            [&(machine as u64).to_le_bytes()[..], &ordinal.to_le_bytes()].concat()
        };
        let named: Vec<u8> = devices.iter().flat_map(name).collect();
        let device = |name: &[u8; NAME]| {
            let (machine, ordinal) = name.split_at(8);
            let machine = machine.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            (machine, ordinal.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        };
        let names = |of_rank: &Vec<u8>| of_rank.as_chunks().0.iter().map(device).collect();
        let here = comm.all_gather(&named)?.iter().map(names).collect();
        Ok(Self { of_ranks, mappings, here, own: devices.to_vec() })
    }

    /// The devices of a peer in this process that work together with one here.
    fn others(&self, peer: usize, device: &Device) -> impl Iterator<Item = u32> {
        let (machine, own) = device.id();
        let others = self.here[peer].iter();
        others
            .filter(move |(of, ordinal)| *of == machine as u64 && *ordinal != own)
            .map(|(_, ordinal)| *ordinal)
    }

    /// Why this rank and a peer in this process cannot have a direct link. On a direct link both write: one side cells, the other side
    /// grants, and the first devices set flags for all.
    fn severed(&self, peer: usize) -> Option<String> {
        let check = |device: &Device| {
            self.others(peer, device).find_map(|other| device.driver().check_peer(other).err())
        };
        self.own.iter().find_map(check).map(|error| error.to_string())
    }

    /// Why a peer in this process does not reach this device memory, although it reaches the library's own allocations.
    fn hidden(&self, peer: usize, memory: &Memory) -> Option<String> {
        let device = &memory.device.as_ref()?.device;
        let own = device.ordinal();
        let (first, bytes) = (start(&memory.segment), memory.segment.len());
        let is_hidden = |other: &u32| bytes > 0 && !device.driver().is_reachable_by(first, bytes, *other);
        let hidden = self.others(peer, device).find(is_hidden)?;
        Some(DeviceError::NotShared { device: hidden, peer: own, address: first }.to_string())
    }

    /// Whether the device here reaches all devices of these ranks over NVLink.
    pub(super) fn is_near(&self, mut peers: impl Iterator<Item = usize>) -> bool {
        let over = |device: &Device, other| device.driver().connection(other);
        peers.all(|peer| {
            let mut pairs = self
                .own
                .iter()
                .flat_map(|device| self.of_ranks[peer].iter().map(move |other| (device, other)));
            !self.of_ranks[peer].is_empty()
                && pairs.all(|(device, other)| over(device, other) == Some(Connection::NvLink))
        })
    }

    /// Whether a rank of another process can map memory here and sends from a single device.
    pub(super) fn maps_for_one_device(&self, rank: usize) -> bool {
        self.mappings.is_some() && self.of_ranks[rank].len() == 1
    }

    /// Whether no rank of another process, as far as its devices are known, uses those of a rank.
    pub(super) fn is_alone(&self, rank: usize) -> bool {
        let others = self.of_ranks.iter().enumerate().filter(|&(other, _)| other != rank);
        others.flat_map(|(_, devices)| devices).all(|device| !self.of_ranks[rank].contains(device))
    }

    /// The ranks with devices, ascending.
    pub(super) fn ranks_with_devices(&self) -> Vec<usize> {
        (0..self.here.len()).filter(|&rank| !self.here[rank].is_empty()).collect()
    }

    /// Another rank that uses a device of this rank, as far as that is known.
    pub(super) fn sharer(&self, comm: &Communicator) -> Option<usize> {
        fn meet<T: PartialEq>(all: &[Vec<T>], one: usize, other: usize) -> bool {
            all[other].iter().any(|device| all[one].contains(device))
        }
        let (rank, here) = (comm.rank(), comm.transport() == "thread");
        let uses =
            |&other: &usize| meet(&self.of_ranks, rank, other) || here && meet(&self.here, rank, other);
        (0..comm.size()).filter(|&other| other != rank).find(uses)
    }

    /// Keeps memory of peers open here if they die: work that is launched before that shows writes to it, also a graph's.
    pub(super) fn keep(&self, peers: impl Iterator<Item = usize>) -> Result<Vec<Kept>, Error> {
        let Some(mappings) = &self.mappings else { return Ok(Vec::new()) };
        let kept = peers.map(|peer| mappings.keep(peer));
        Ok(kept.collect::<Result<_, _>>().map_err(BindError::from)?)
    }

    /// Asks a peer to map memory; `None` if it need not, or cannot.
    pub(super) fn request(
        &self,
        (peer, by): (usize, By),
        segment: &Segment,
    ) -> Option<Result<Requested, String>> {
        let mappings = self.mappings.as_ref()?;
        let device = match (&self.of_ranks[peer][..], by) {
            ([], _) => return Some(Err(format!("rank {peer} has no device that can map memory of others"))),
            ([device], _) | ([device, ..], By::FirstDevice) => *device,
            // Each device would have its own address for it.
            _ => return Some(Err(format!("rank {peer} would write to it from several devices"))),
        };
        let requested = mappings.request(Target { rank: peer, device }, start(segment), segment.len() as u64);
        Some(requested.map_err(|error| error.to_string()))
    }
}

/// Which devices of a peer access memory that it maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// All devices with fields: they send from there.
    AllDevices,
    /// The first device, which receives everything.
    FirstDevice,
}

fn start(segment: &Segment) -> Address {
    segment.base().addr().get() as Address
}

/// What an importer needs of memory: the token of the mapping, and the range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExportHandle {
    token: u64,
    offset: u64,
    bytes: u64,
}

impl ExportHandle {
    pub(super) fn write(self, w: &mut Writer) {
        [self.token, self.offset, self.bytes].into_iter().for_each(|number| w.u64(number));
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { token: r.u64()?, offset: r.u64()?, bytes: r.u64()? })
    }

    /// The memory of rank `owner`, at its address here, and how it is mapped.
    pub(super) fn import(
        self,
        comm: &Communicator,
        owner: usize,
    ) -> Result<(Arc<Segment>, Option<Kind>), MappingError> {
        let mapping = Mappings::of(comm).resolve(owner, self.token, self.offset, self.bytes)?;
        let kind = mapping.kind();
        if kind == Some(Kind::Memfd) {
            return Err(MappingError::NoMapping { token: self.token, rank: owner });
        }
        let base = std::ptr::without_provenance_mut(mapping.address() as usize);
        let base = NonNull::new(base).unwrap_or(NonNull::dangling());
        // SAFETY: `mapping` keeps the memory, that of a device, mapped and valid. Only devices follow this address.
        Ok((unsafe { Segment::foreign(base, self.bytes as usize, Arc::new(mapping)) }, kind))
    }
}

/// Memory of this rank that others have mapped for an object.
#[derive(Default)]
pub(super) struct Exports {
    handles: HashMap<(usize, u64), Result<ExportHandle, String>>,
    /// How peers have mapped it.
    kinds: HashMap<(usize, u64), Kind>,
    pub(super) pinned: Vec<Pinned>,
}

impl Exports {
    /// Makes peers map memories that they cannot reach otherwise. Blocks until they have. Memory that cannot be mapped is no error; a
    /// wait that ends without an answer is.
    pub(super) fn add<'a>(
        &mut self,
        comm: &Communicator,
        (registry, by): (&DeviceRegistry, By),
        wanted: impl Iterator<Item = (usize, &'a Arc<Segment>)>,
    ) -> Result<(), Error> {
        // In a fixed order, so that simulated runs can be replayed.
        let mut requests = BTreeMap::new();
        for (peer, segment) in wanted {
            let link = comm.link();
            if link.bell(peer).is_none() || link.reach(peer, segment).is_ok() {
                continue;
            }
            let at = (peer, segment.id());
            if !requests.contains_key(&at)
                && !self.handles.contains_key(&at)
                && let Some(requested) = registry.request((peer, by), segment)
            {
                requests.insert(at, requested);
            }
        }
        for (at, requested) in requests {
            let pinned = match requested.map(Requested::wait) {
                Ok(Err(MappingError::Comm(error))) => return Err(error.into()),
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            let handle = pinned.map(|pinned| {
                let handle =
                    ExportHandle { token: pinned.token(), offset: pinned.offset(), bytes: pinned.bytes() };
                self.kinds.insert(at, pinned.kind());
                self.pinned.push(pinned);
                handle
            });
            self.handles.insert(at, handle);
        }
        Ok(())
    }

    /// Finds the fields that peers in this process cannot reach, and why.
    pub(super) fn look<'a>(
        &mut self,
        comm: &Communicator,
        registry: &DeviceRegistry,
        wanted: impl Iterator<Item = (usize, &'a Arc<Memory>)>,
    ) {
        for (peer, memory) in wanted {
            if comm.link().reach(peer, &memory.segment).is_ok()
                && let Some(why) = registry.severed(peer).or_else(|| registry.hidden(peer, memory))
            {
                self.handles.insert((peer, memory.segment.id()), Err(why));
            }
        }
    }

    /// The same for the flags of the devices here.
    pub(super) fn look_at_words<'a>(
        &mut self,
        comm: &Communicator,
        registry: &DeviceRegistry,
        words: impl Iterator<Item = (usize, &'a Arc<Segment>)>,
    ) {
        for (peer, segment) in words.filter(|(peer, segment)| comm.link().reach(*peer, segment).is_ok()) {
            if let Some(why) = registry.severed(peer) {
                self.handles.insert((peer, segment.id()), Err(why));
            }
        }
    }

    /// A peer's export handle for a memory, if the peer has mapped it, or why it has not.
    pub(super) fn of(&self, peer: usize, segment: &Segment) -> Option<&Result<ExportHandle, String>> {
        self.handles.get(&(peer, segment.id()))
    }

    /// How a peer has mapped a memory, if it has.
    pub(super) fn kind(&self, peer: usize, segment: &Segment) -> Option<Kind> {
        self.kinds.get(&(peer, segment.id())).copied()
    }

    /// Whether a peer reaches a memory, or why it does not.
    pub(super) fn reach(&self, comm: &Communicator, peer: usize, segment: &Segment) -> Result<(), String> {
        match self.of(peer, segment) {
            Some(handle) => handle.clone().map(drop),
            None => comm.link().reach(peer, segment),
        }
    }
}
