//! Makes the links between two ranks, seen from one of them: the path of each link, and the addresses of its flags and mailbox.

use super::Preference;
use super::error::BindError;
use super::offer::LinkEndpoint;
use super::peer_view::{PeerView, TransferPair};
use super::remote::Exports;
use crate::error::Error;
use crate::link::{
    Counters, Direction, LABELS, Link, LinkMemory, LinkPath, Mailbox, Parcels, SLOTS, Signals,
};
use crate::set::Part;
use halocline_comm::Endpoint;
use halocline_comm::{Communicator, Counter, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use std::ptr::NonNull;
use std::sync::Arc;

/// A path, why it is no better one, and the part of each set.
type Chosen = (LinkPath, Option<String>, Vec<Part>);

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
    /// The links between the two, with the part of each set.
    pub(super) fn links(&self, preference: Preference) -> Result<Vec<(Link, Vec<Part>)>, Error> {
        self.sets.iter().try_for_each(PeerView::check_bytes)?;
        let mut links = Vec::new();
        for direction in [Direction::Receive, Direction::Send] {
            let transfer_pairs: Vec<Vec<TransferPair<'a>>> =
                self.sets.iter().map(|set| set.transfer_pairs(direction)).collect::<Result<_, _>>()?;
            if transfer_pairs.iter().any(|transfer_pairs| !transfer_pairs.is_empty()) {
                links.push(self.link(direction, &transfer_pairs, preference)?);
            }
        }
        make_mutual(links.iter_mut().map(|(link, _)| link).collect());
        Ok(links)
    }

    /// The links between the two in these directions, without fields.
    pub(super) fn unbound_links(&self, directions: &[Direction]) -> Result<Vec<Link>, Error> {
        let links = directions.iter().map(|&direction| self.unbound(direction));
        let mut links: Vec<Link> = links.collect::<Result<_, _>>()?;
        make_mutual(links.iter_mut().collect());
        Ok(links)
    }

    /// The same, for device fields: the link's host flags do not count epochs, and its mailbox lies elsewhere.
    pub(super) fn scheduled(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<(Link, Vec<Part>), Error> {
        let (path, why, parts) = self.parts(direction, transfer_pairs, preference)?;
        let signals = match self.segments {
            Some(_) => self.signals(direction, false)?.1,
            None => Signals::Messages { operation: self.operation },
        };
        let theirs = self.segments.as_ref().map(|(_, theirs)| Arc::clone(theirs));
        Ok((Link::new((self.peer, direction, path), self.operation, why, None, signals, theirs), parts))
    }

    /// The path of a link, why it is no better one, and the part of each set.
    fn parts(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<Chosen, Error> {
        let peer = self.peer;
        let (path, why) = self
            .path(direction, transfer_pairs, preference)
            .map_err(|reason| BindError::Path { peer, path: preference.path, reason })?;
        let part = |(set, transfer_pairs): (&PeerView<'a>, &Vec<TransferPair<'a>>)| {
            set.part(direction, path, transfer_pairs)
        };
        let parts = self.sets.iter().zip(transfer_pairs).map(part).collect::<Result<_, _>>()?;
        Ok((path, why, parts))
    }

    fn link(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<(Link, Vec<Part>), Error> {
        let peer = self.peer;
        let (path, why, parts) = self.parts(direction, transfer_pairs, preference)?;
        let (mailbox, signals) = match path {
            LinkPath::Message => (None, Signals::Messages { operation: self.operation }),
            _ => self.signals(direction, matches!(path, LinkPath::Mailbox { .. }))?,
        };
        let theirs = self.segments.as_ref().map(|(_, theirs)| Arc::clone(theirs));
        Ok((Link::new((peer, direction, path), self.operation, why, mailbox, signals, theirs), parts))
    }

    /// The path of the link, which each side chooses by the same rule from the same facts; with the reason if it is not the
    /// preferred one.
    fn path(
        &self,
        direction: Direction,
        transfer_pairs: &[Vec<TransferPair<'a>>],
        preference: Preference,
    ) -> Result<(LinkPath, Option<String>), String> {
        let all = || {
            self.sets
                .iter()
                .zip(transfer_pairs)
                .flat_map(|(set, transfer_pairs)| transfer_pairs.iter().map(move |j| (set, j)))
        };
        let ours = || {
            let unreached = |(set, transfer_pair): (&PeerView<'a>, &TransferPair<'a>)| {
                self.exports.reach(self.comm, self.peer, set.local.segment_of(transfer_pair.ours)).err()
            };
            all().find_map(unreached)
        };
        let theirs =
            || all().find_map(|(_, transfer_pair)| transfer_pair.theirs.memory.as_ref().err().cloned());
        // The memory that the peer must reach: the receiver's for a push, the sender's for a pull.
        let (push, pull) = match direction {
            Direction::Send => (theirs(), ours()),
            Direction::Receive => (ours(), theirs()),
        };
        let apart = self.segments.is_none().then(|| match ours() {
            Some(why) => format!("the two ranks share no memory: {why}"),
            None => "the two ranks share no memory".to_owned(),
        });
        let words = || self.on_devices.flatten().map(|why| format!("words of a device: {why}"));
        let receiver = if direction == Direction::Receive { self.endpoints.0 } else { self.endpoints.1 };
        let obstacle = |path: LinkPath| match path {
            LinkPath::Push => {
                let why = || push.as_ref().map(|why| format!("the receiver's field: {why}"));
                apart.clone().or_else(why).or_else(words)
            }
            LinkPath::Pull => {
                let why = || pull.as_ref().map(|why| format!("the sender's field: {why}"));
                apart.clone().or_else(why).or_else(words)
            }
            LinkPath::Ll => apart.clone().or_else(words),
            LinkPath::DeviceMailbox => apart.clone().or_else(words).or_else(|| {
                (!receiver.on_device).then(|| "the receiver has no mailbox on its device for it".to_owned())
            }),
            LinkPath::Mailbox { .. } => apart.clone(),
            LinkPath::Message => None,
        };
        let Some(why) = obstacle(preference.path) else { return Ok((preference.path, None)) };
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
        let next = others.find(|&path| obstacle(path).is_none());
        Ok((next.unwrap_or(LinkPath::Message), Some(why)))
    }

    fn unbound(&self, direction: Direction) -> Result<Link, Error> {
        let operation = self.operation;
        let Some((own, theirs)) = &self.segments else {
            let why = (self.comm.link().bell(self.peer).is_none())
                .then(|| "the two ranks share no memory".to_owned());
            let ends = (self.peer, direction, LinkPath::Message);
            let signals = Signals::Messages { operation };
            let link = Link::new(ends, operation, why, None, signals, None);
            return Ok(link.with_parcels(Parcels::new(operation, None)));
        };
        let (_, signals) = self.signals(direction, false)?;
        let (segment, receiver) = match direction {
            Direction::Send => (theirs, self.endpoints.1),
            Direction::Receive => (own, self.endpoints.0),
        };
        let capacity = receiver.capacity;
        let labels = parcels_bytes(capacity)
            .filter(|_| capacity.is_multiple_of(MESSAGE_ALIGN))
            .and_then(|bytes| within(segment, receiver.mailbox, bytes, MESSAGE_ALIGN))
            .ok_or(BindError::OutsideMemory { peer: self.peer, what: "slots" })?;
        let slots = labels.map_addr(|labels| labels.saturating_add(LABELS));
        let memory = LinkMemory { labels: labels.cast(), slots, capacity, segment: Arc::clone(segment) };
        let ends = (self.peer, direction, LinkPath::Mailbox { streaming: false });
        let link = Link::new(ends, operation, None, None, signals, Some(Arc::clone(theirs)));
        Ok(link.with_parcels(Parcels::new(operation, Some(memory))))
    }

    /// The flags of both ends, and the mailbox at the receiver.
    fn signals(&self, direction: Direction, mailbox: bool) -> Result<(Option<Mailbox>, Signals), Error> {
        let peer = self.peer;
        let (Some((own, theirs)), Some(bell)) = (&self.segments, self.comm.link().bell(peer)) else {
            return Err(BindError::NoSharedMemory { peer }.into());
        };
        let (ours, other) = self.endpoints;
        let ((mine, opposite), (segment, receiver)) = match direction {
            Direction::Send => ((ours.send_counter, other.receive_counter), (theirs, other)),
            Direction::Receive => ((ours.receive_counter, other.send_counter), (own, ours)),
        };
        let broken = || Error::from(BindError::OutsideMemory { peer, what: "flags or a mailbox" });
        let counter = |segment, offset| {
            within(segment, offset, size_of::<Counter>(), align_of::<Counter>()).map(NonNull::cast)
        };
        let mailbox = match mailbox {
            true => {
                let capacity = receiver.capacity;
                let bytes = capacity.checked_next_multiple_of(MESSAGE_ALIGN);
                let bytes = bytes.and_then(|slot| slot.checked_mul(SLOTS as usize)).ok_or_else(broken)?;
                let base = within(segment, receiver.mailbox, bytes, MESSAGE_ALIGN).ok_or_else(broken)?;
                Some(Mailbox { base, capacity })
            }
            false => None,
        };
        let most = self.sets.iter().map(|set| set.local.bytes(peer, direction)).max().unwrap_or(0);
        if mailbox.is_some_and(|mailbox| mailbox.capacity < most) {
            return Err(broken());
        }
        let mine = counter(own, mine).ok_or_else(broken)?;
        let theirs = counter(theirs, opposite).ok_or_else(broken)?;
        // SAFETY: `within` has found the flags in their segments, aligned. `Link::theirs` holds the one segment,
        // `Bound::own` or `Scheduled::segments` the other, and the communicator of the bound object holds the
        // transport, which owns the bell.
        let counters = unsafe { Counters::new(mine, theirs, bell) };
        Ok((mailbox, Signals::Counters(counters)))
    }
}

/// Two links, one in each direction, need no acknowledgements.
fn make_mutual(links: Vec<&mut Link>) {
    if links.len() == 2 {
        links.into_iter().for_each(Link::make_mutual);
    }
}

/// Bytes of labels and slots.
pub(super) fn parcels_bytes(capacity: usize) -> Option<usize> {
    capacity.checked_mul(SLOTS as usize)?.checked_add(LABELS)
}

/// An aligned range of a segment.
fn within(segment: &Segment, offset: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let end = offset.checked_add(bytes).filter(|&end| end <= segment.len());
    let aligned = end.filter(|_| offset.is_multiple_of(align));
    aligned.map(|_| segment.base().map_addr(|base| base.saturating_add(offset)))
}
