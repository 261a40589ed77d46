//! Makes the links and sets of an object from the offers of both sides, for either engine.

use super::Preference;
use super::flag_layout::max_sets;
use super::local::Local;
use super::offer::{self, LinkEndpoint, OfDevices, Offer};
use super::pair::Pair;
use super::peer_view::PeerView;
use super::remote::Exports;
use super::remote_lanes::RemoteLanes;
use crate::agree::agree;
use crate::error::Error;
use crate::link::{Direction, Link};
use crate::set::{Part, Set};
use crate::stream::LINE;
use halocline_comm::{Communicator, Counter, Endpoint, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// This rank's side of its links, for each peer in ascending order, and the bytes of the segment that holds it.
pub(super) struct Endpoints {
    pub(super) of_peers: Vec<(usize, LinkEndpoint)>,
    pub(super) bytes: usize,
}

/// The memory that a peer writes if its link takes a mailbox.
pub(super) struct Buffer {
    /// Bytes of one message.
    pub(super) capacity: usize,
    /// Bytes of all its slots and flags.
    pub(super) bytes: usize,
}

impl Endpoints {
    /// Flags for every peer, then its buffer.
    pub(super) fn lay_out(peers: &BTreeSet<usize>, buffer: impl Fn(usize) -> Buffer) -> Self {
        let line = size_of::<Counter>();
        let mut mailbox = (2 * line * peers.len()).next_multiple_of(MESSAGE_ALIGN.max(LINE));
        let of_peers = peers.iter().enumerate().map(|(at, &peer)| {
            let Buffer { capacity, bytes } = buffer(peer);
            let (send_counter, receive_counter) = (2 * at * line, (2 * at + 1) * line);
            let none = LinkEndpoint::default();
            let endpoint = LinkEndpoint { send_counter, receive_counter, mailbox, capacity, ..none };
            mailbox += bytes;
            (peer, endpoint)
        });
        Self { of_peers: of_peers.collect(), bytes: mailbox }
    }

    /// The segment, if this rank shares memory with a peer. Not collective.
    pub(super) fn allocate(&self, comm: &Communicator) -> Result<Option<Arc<Segment>>, Error> {
        let is_shared = self.of_peers.iter().any(|(peer, _)| comm.link().bell(*peer).is_some());
        Ok(is_shared.then(|| comm.allocate(self.bytes)).transpose()?)
    }
}

/// What the links and sets of an object are made from.
pub(super) struct Handshake<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) sets: Vec<Local>,
    pub(super) endpoints: Endpoints,
    /// This rank's segment of flags and mailboxes.
    pub(super) own: Option<Arc<Segment>>,
    /// The operation of messages over the links.
    pub(super) operation: u64,
    /// For device fields.
    pub(super) of_devices: Option<OfDevices<'a>>,
}

/// The links and sets of an object, while its engine is made.
pub(super) struct Connected {
    pub(super) links: Vec<Link>,
    pub(super) sets: Vec<Arc<Set>>,
    pub(super) ends: Vec<End>,
    /// For device fields, once the peers have sent them.
    pub(super) remote: Vec<RemoteLanes>,
}

impl Connected {
    /// The number of sets of device fields for which there are flags.
    pub(super) fn max_sets(&self) -> usize {
        max_sets(self.sets.len())
    }
}

/// This rank and a peer.
pub(super) struct End {
    pub(super) peer: usize,
    /// The index of the peer.
    pub(super) number: usize,
    /// This rank's side, and the peer's.
    pub(super) endpoints: (LinkEndpoint, LinkEndpoint),
    /// The segments of both, if each reaches the other's.
    pub(super) segments: Option<(Arc<Segment>, Arc<Segment>)>,
    /// Its links, by their indices.
    pub(super) links: Vec<usize>,
}

impl End {
    /// Whether devices of one side reach device memory of the other.
    pub(super) fn reaches_devices(&self, made: &Connected) -> bool {
        self.links.iter().any(|&link| made.links[link].path.reaches_devices())
    }

    /// The index of the link of one direction.
    pub(super) fn link(&self, made: &Connected, direction: Direction) -> Option<usize> {
        self.links.iter().copied().find(|&link| made.links[link].direction == direction)
    }
}

impl Handshake<'_> {
    /// Sends this rank's offer to each peer, and takes theirs. An outer error is the same on all ranks.
    pub(super) fn swap_offers(&self, operation: u64) -> Result<Result<Vec<Offer>, Error>, Error> {
        let Self { comm, sets, endpoints, own, of_devices, .. } = self;
        let sent = endpoints.of_peers.iter().try_for_each(|(peer, endpoint)| {
            let own = own.as_ref().filter(|_| comm.link().bell(*peer).is_some());
            offer::send(comm, (*peer, operation), sets, *endpoint, own, *of_devices)
        });
        // No rank waits for an offer that could not be sent.
        agree(comm, sent).inspect_err(|_| comm.link().inbox().forget(operation))?;
        // All offers are taken, even if one is wrong: none is left in the inbox.
        let receive = |(peer, _): &(usize, LinkEndpoint)| {
            offer::receive(comm, (*peer, operation), of_devices.is_some())
        };
        let received: Vec<_> = endpoints.of_peers.iter().map(receive).collect();
        Ok(received.into_iter().collect())
    }

    /// Makes the links. `theirs`: the offer of each peer. `prefer` says which path a link takes if it can.
    pub(super) fn connect(
        self,
        theirs: Vec<Offer>,
        prefer: impl Fn(&Pair<'_>, Direction) -> Preference,
    ) -> Result<Connected, Error> {
        let Self { comm, sets, endpoints, own, operation, of_devices } = self;
        // For each set, the fields of each peer.
        let mut offered: Vec<BTreeMap<usize, _>> = sets.iter().map(|_| BTreeMap::new()).collect();
        let (mut ends, mut obstacles) = (Vec::new(), Vec::new());
        for ((peer, endpoint), offer) in endpoints.of_peers.into_iter().zip(theirs) {
            if offer.sets.len() != sets.len() {
                return Err(offer::of_other_sets(peer));
            }
            offered.iter_mut().zip(offer.sets).for_each(|(peers, set)| drop(peers.insert(peer, set)));
            obstacles.push(of_devices.map(|of_devices| of_devices.obstacle(comm, peer).or(offer.words)));
            let (number, endpoints) = (ends.len(), (endpoint, offer.endpoint));
            let segments = own.clone().zip(offer.own);
            ends.push(End { peer, number, endpoints, segments, links: Vec::new() });
        }
        let none = Exports::default();
        let exports = of_devices.map_or(&none, |of_devices| of_devices.exports);
        let mut links = Vec::new();
        let mut parts: Vec<Vec<Part>> = sets.iter().map(|_| Vec::new()).collect();
        for (end, obstacle) in ends.iter_mut().zip(&obstacles) {
            let peer = end.peer;
            let views = sets.iter().zip(&offered);
            let views = views.map(|(local, peers)| PeerView { peer, local, theirs: &peers[&peer] });
            let pair = Pair {
                comm,
                peer,
                endpoints: end.endpoints,
                segments: end.segments.clone(),
                operation,
                sets: views.collect(),
                exports,
                on_devices: obstacle.as_ref().map(Option::as_deref),
            };
            for mut made in pair.links(&prefer)? {
                made.link.part = links.len();
                end.links.push(links.len());
                links.push(made.link);
                parts.iter_mut().zip(made.parts).for_each(|(parts, part)| parts.push(part));
            }
        }
        let sets = sets.into_iter().zip(offered).zip(parts).enumerate();
        let sets = sets.map(|(number, ((local, offered), parts))| {
            Arc::new(Set::new(number, local, Arc::new(offered), parts))
        });
        Ok(Connected { links, sets: sets.collect(), ends, remote: Vec::new() })
    }
}
