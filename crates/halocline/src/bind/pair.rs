//! Makes the links between two ranks, seen from one of them: the path of each link, and the addresses of its flags and mailbox.

use super::Preference;
use super::error::BindError;
use super::offer::LinkEndpoint;
use super::peer_view::{PeerView, TransferPair};
use super::remote::Exports;
use crate::error::Error;
use crate::explain::LinkInfo;
use crate::link::{
    Counters, Direction, HEADERS, Link, LinkMemory, LinkPath, Mailbox, SLOTS, Signals, UnboundSlots,
};
use crate::set::Part;
use halocline_comm::{Communicator, Counter, Endpoint, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use std::ptr::NonNull;
use std::sync::Arc;

/// The path of a link, and why it is no better one.
struct Chosen {
    path: LinkPath,
    why: Option<String>,
    /// The sender reaches the receiver's fields, too.
    reaches_receiver: bool,
}

/// Why one rank does not reach memory of the other, for each kind of memory.
struct Obstacles {
    no_shared_memory: Option<String>,
    receivers_field: Option<String>,
    senders_field: Option<String>,
    device_flags: Option<String>,
    /// The receiver has a mailbox in device memory for the link.
    has_device_mailbox: bool,
}

impl Obstacles {
    /// Why a link cannot take this path; `None` if it can.
    fn to(&self, path: LinkPath) -> Option<String> {
        let no_device_mailbox = || {
            (!self.has_device_mailbox).then(|| "the receiver has no mailbox on its device for it".to_owned())
        };
        let (no_shared_memory, device_flags) =
            (|| self.no_shared_memory.clone(), || self.device_flags.clone());
        match path {
            LinkPath::Push => {
                no_shared_memory().or_else(|| self.receivers_field.clone()).or_else(device_flags)
            }
            LinkPath::Pull => no_shared_memory().or_else(|| self.senders_field.clone()).or_else(device_flags),
            LinkPath::Ll => no_shared_memory().or_else(device_flags),
            LinkPath::DeviceMailbox => no_shared_memory().or_else(device_flags).or_else(no_device_mailbox),
            LinkPath::Mailbox { .. } => no_shared_memory(),
            // The bind has made a communicator of NCCL before.
            LinkPath::Message | LinkPath::Nccl => None,
        }
    }
}

/// A link, and its part of each set.
pub(super) struct LinkOfSets {
    pub(super) link: Link,
    pub(super) parts: Vec<Part>,
}

/// This rank and a peer.
pub(super) struct Pair<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) peer: usize,
    /// The flags and mailboxes of this rank, and of the peer.
    pub(super) endpoints: (LinkEndpoint, LinkEndpoint),
    /// The segments of both ranks, if each reaches the other's.
    pub(super) segments: Option<(Arc<Segment>, Arc<Segment>)>,
    /// The operation of messages.
    pub(super) operation: u64,
    /// The sets that the links carry.
    pub(super) sets: Vec<PeerView<'a>>,
    /// Device memory that the peer has mapped.
    pub(super) exports: &'a Exports,
    /// For device fields: why one side does not reach the other's device flags, if so.
    pub(super) on_devices: Option<Option<&'a str>>,
}

impl<'a> Pair<'a> {
    /// The links between the two. `prefer` says which path a link takes if it can.
    pub(super) fn links(
        &self,
        prefer: impl Fn(&Self, Direction) -> Preference,
    ) -> Result<Vec<LinkOfSets>, Error> {
        self.sets.iter().try_for_each(PeerView::check_bytes)?;
        let mut links = Vec::new();
        for direction in [Direction::Receive, Direction::Send] {
            let transfer_pairs: Vec<Vec<TransferPair<'a>>> =
                self.sets.iter().map(|set| set.transfer_pairs(direction)).collect::<Result<_, _>>()?;
            if transfer_pairs.iter().any(|transfer_pairs| !transfer_pairs.is_empty()) {
                links.push(self.link(direction, &transfer_pairs, prefer(self, direction))?);
            }
        }
        if self.on_devices.is_none() {
            make_mutual(links.iter_mut().map(|made| &mut made.link).collect());
        }
        Ok(links)
    }

    /// The links between the two in these directions, without fields.
    pub(super) fn unbound_links(
        &self,
        directions: impl Iterator<Item = Direction>,
    ) -> Result<Vec<Link>, Error> {
        let links = directions.map(|direction| self.unbound(direction));
        let mut links: Vec<Link> = links.collect::<Result<_, _>>()?;
        make_mutual(links.iter_mut().collect());
        Ok(links)
    }

    fn link(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<LinkOfSets, Error> {
        let (peer, operation) = (self.peer, self.operation);
        let Chosen { path, why, reaches_receiver } = self
            .path(direction, transfer_pairs, preference)
            .map_err(|reason| BindError::Path { peer, path: preference.path, reason })?;
        let part = |(set, transfer_pairs): (&PeerView<'a>, &Vec<TransferPair<'a>>)| {
            set.part(direction, path, transfer_pairs)
        };
        let parts = self.sets.iter().zip(transfer_pairs).map(part).collect::<Result<_, _>>()?;
        // Between devices the host's flags count no epochs, and mailboxes lie elsewhere.
        let of_host = self.on_devices.is_none();
        let by_messages = self.segments.is_none() || of_host && path == LinkPath::Message;
        let signals = match by_messages {
            true => Signals::Messages { operation },
            false => self.signals(direction)?,
        };
        let mut link = Link::new(LinkInfo { peer, direction, path }, operation, signals);
        link.is_read_in_place = of_host && path.is_direct() && reaches_receiver;
        // A direct link whose halo is not read in place needs it for reduces.
        if of_host && !by_messages {
            link.mailbox = Some(self.mailbox(direction)?);
        }
        link.why = why;
        link.theirs = self.segments.as_ref().map(|(_, theirs)| Arc::clone(theirs));
        Ok(LinkOfSets { link, parts })
    }

    /// The path of the link, which each side chooses by the same rule from the same facts; with the reason if it is not the
    /// preferred one.
    fn path(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<Chosen, String> {
        let obstacles = self.obstacles(direction, transfer_pairs);
        let reaches_receiver = obstacles.to(LinkPath::Push).is_none();
        let Some(why) = obstacles.to(preference.path) else {
            return Ok(Chosen { path: preference.path, why: None, reaches_receiver });
        };
        if preference.forced {
            return Err(why);
        }
        let streaming = matches!(preference.path, LinkPath::Mailbox { streaming: true });
        let others = match self.on_devices {
            // Devices pull only if the options ask for it.
            Some(_) => [LinkPath::Push, LinkPath::DeviceMailbox],
            None => [LinkPath::Push, LinkPath::Pull],
        };
        let mut others = others.into_iter().chain([LinkPath::Mailbox { streaming }, LinkPath::Message]);
        let next = others.find(|&path| obstacles.to(path).is_none());
        Ok(Chosen { path: next.unwrap_or(LinkPath::Message), why: Some(why), reaches_receiver })
    }

    /// What both sides know of the memory that a link would access.
    fn obstacles(&self, direction: Direction, transfer_pairs: &[Vec<TransferPair<'a>>]) -> Obstacles {
        let all = || {
            let of_sets = self.sets.iter().zip(transfer_pairs);
            of_sets.flat_map(|(set, pairs)| pairs.iter().map(move |pair| (set, pair)))
        };
        let ours = || {
            let unreached = |(set, pair): (&PeerView<'a>, &TransferPair<'a>)| {
                self.exports.reach(self.comm, self.peer, set.local.segment_of(pair.ours)).err()
            };
            all().find_map(unreached)
        };
        let theirs = || all().find_map(|(_, pair)| pair.theirs.memory.as_ref().err().cloned());
        // The memory that the peer must reach: the receiver's for a push, the sender's for a pull.
        let (receivers_field, senders_field) = match direction {
            Direction::Send => (theirs(), ours()),
            Direction::Receive => (ours(), theirs()),
        };
        let no_shared_memory = self.segments.is_none().then(|| match ours() {
            Some(why) => format!("the two ranks share no memory: {why}"),
            None => "the two ranks share no memory".to_owned(),
        });
        let receiver = if direction == Direction::Receive { self.endpoints.0 } else { self.endpoints.1 };
        Obstacles {
            no_shared_memory,
            receivers_field: receivers_field.map(|why| format!("the receiver's field: {why}")),
            senders_field: senders_field.map(|why| format!("the sender's field: {why}")),
            device_flags: self.on_devices.flatten().map(|why| format!("words of a device: {why}")),
            has_device_mailbox: receiver.on_device,
        }
    }

    fn unbound(&self, direction: Direction) -> Result<Link, Error> {
        let (peer, operation) = (self.peer, self.operation);
        let Some((_, theirs)) = &self.segments else {
            let path = LinkPath::Message;
            let mut link =
                Link::new(LinkInfo { peer, direction, path }, operation, Signals::Messages { operation });
            link.why =
                (self.comm.link().bell(peer).is_none()).then(|| "the two ranks share no memory".to_owned());
            return Ok(link.with_unbound_slots(UnboundSlots::new(operation, None)));
        };
        let Receiver { segment, endpoint } = self.receiver(direction)?;
        let capacity = endpoint.capacity;
        let headers = unbound_bytes(capacity)
            .filter(|_| capacity.is_multiple_of(MESSAGE_ALIGN))
            .and_then(|bytes| within(segment, endpoint.mailbox, bytes, MESSAGE_ALIGN))
            .ok_or(BindError::OutsideMemory { peer, what: "slots" })?;
        let slots = headers.map_addr(|headers| headers.saturating_add(HEADERS));
        let memory = LinkMemory { headers: headers.cast(), slots, capacity, segment: Arc::clone(segment) };
        let path = LinkPath::Mailbox { streaming: false };
        let mut link = Link::new(LinkInfo { peer, direction, path }, operation, self.signals(direction)?);
        link.theirs = Some(Arc::clone(theirs));
        Ok(link.with_unbound_slots(UnboundSlots::new(operation, Some(memory))))
    }

    /// The segments of this rank and the peer.
    fn segments(&self) -> Result<(&Arc<Segment>, &Arc<Segment>), Error> {
        let segments = self.segments.as_ref().map(|(own, theirs)| (own, theirs));
        segments.ok_or_else(|| BindError::NoSharedMemory { peer: self.peer }.into())
    }

    /// The receiving side of a link.
    fn receiver(&self, direction: Direction) -> Result<Receiver<'_>, Error> {
        let (own, theirs) = self.segments()?;
        Ok(match direction {
            Direction::Send => Receiver { segment: theirs, endpoint: self.endpoints.1 },
            Direction::Receive => Receiver { segment: own, endpoint: self.endpoints.0 },
        })
    }

    fn outside(&self) -> Error {
        BindError::OutsideMemory { peer: self.peer, what: "flags or a mailbox" }.into()
    }

    /// The mailbox at the receiver.
    fn mailbox(&self, direction: Direction) -> Result<Mailbox, Error> {
        let Receiver { segment, endpoint: LinkEndpoint { capacity, mailbox, .. } } =
            self.receiver(direction)?;
        let most = self.sets.iter().map(|set| set.local.bytes(self.peer, direction)).max().unwrap_or(0);
        capacity
            .checked_next_multiple_of(MESSAGE_ALIGN)
            .and_then(|slot| slot.checked_mul(SLOTS as usize))
            .and_then(|bytes| within(segment, mailbox, bytes, MESSAGE_ALIGN))
            .filter(|_| capacity >= most)
            .map(|base| Mailbox { base, capacity })
            .ok_or_else(|| self.outside())
    }

    /// The flags of both ends.
    fn signals(&self, direction: Direction) -> Result<Signals, Error> {
        let (own, theirs) = self.segments()?;
        let bell = self.comm.link().bell(self.peer);
        let bell = bell.ok_or(BindError::NoSharedMemory { peer: self.peer })?;
        let (ours, other) = self.endpoints;
        let (mine, opposite) = match direction {
            Direction::Send => (ours.send_counter, other.receive_counter),
            Direction::Receive => (ours.receive_counter, other.send_counter),
        };
        let counter = |segment, offset| {
            let counter = within(segment, offset, size_of::<Counter>(), align_of::<Counter>());
            counter.map(NonNull::cast).ok_or_else(|| self.outside())
        };
        let (mine, opposite) = (counter(own, mine)?, counter(theirs, opposite)?);
        // SAFETY: `within` has found the flags in their segments, aligned. `Link::theirs` holds the one segment,
        // `Bound::own` or `Scheduled::segments` the other, and the communicator of the bound object holds the
        // transport, which owns the bell.
        Ok(Signals::Counters(unsafe { Counters::new(mine, opposite, bell) }))
    }
}

/// The side of a link that receives: the segment of its mailbox, and where the mailbox lies.
struct Receiver<'a> {
    segment: &'a Arc<Segment>,
    endpoint: LinkEndpoint,
}

/// Two links, one in each direction, need no acknowledgements.
fn make_mutual(links: Vec<&mut Link>) {
    if links.len() == 2 {
        links.into_iter().for_each(Link::make_mutual);
    }
}

/// Bytes of headers and slots.
pub(super) fn unbound_bytes(capacity: usize) -> Option<usize> {
    capacity.checked_mul(SLOTS as usize)?.checked_add(HEADERS)
}

/// An aligned range of a segment.
fn within(segment: &Segment, offset: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let end = offset.checked_add(bytes).filter(|&end| end <= segment.len());
    let aligned = end.filter(|_| offset.is_multiple_of(align));
    aligned.map(|_| segment.base().map_addr(|base| base.saturating_add(offset)))
}
