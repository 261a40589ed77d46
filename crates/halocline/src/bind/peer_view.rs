//! The fields of one set on two ranks, seen from one of them: the transfers between them and their copy operations.

use super::error::BindError;
use super::local::{Bindable, Local, Place};
use super::offer::{Offered, RemoteField};
use super::ops::{Leg, over_link};
use crate::error::Error;
use crate::link::{Direction, LinkPath};
use crate::reduce::CombineOrder;
use crate::set::Part;
use halocline_comm::Segment;
use halocline_plan::copy::CopyOp;
use halocline_plan::{ElementType, Transfer};
use std::ops::Range;

/// One set of this rank and of a peer.
#[derive(Clone, Copy)]
pub(super) struct PeerView<'a> {
    pub(super) peer: usize,
    pub(super) local: &'a Local,
    pub(super) theirs: &'a Offered,
}

/// One transfer of one field, with both ends.
pub(super) struct TransferPair<'a> {
    /// The number of this rank's field.
    index: usize,
    pub(super) ours: &'a Bindable,
    pub(super) theirs: &'a RemoteField,
    transfer: &'a Transfer,
}

/// One transfer of one field in a reduce.
pub(super) struct ReverseLeg {
    /// The number of this rank's field.
    pub(super) field: usize,
    /// The element type of the peer's field.
    pub(super) element: ElementType,
    pub(super) order: CombineOrder,
    pub(super) op: CopyOp,
}

impl TransferPair<'_> {
    fn leg(&self) -> Leg<'_> {
        Leg {
            index: self.index,
            place: self.ours.place,
            ours: &self.ours.cells,
            theirs: &self.theirs.cells,
            stands_in: false,
            transfer: self.transfer,
        }
    }

    /// The index of the peer's field in a list of addresses of element (0, 0, …), to which it is added if it lacks.
    fn base_among(&self, bases: &mut Vec<*mut u8>) -> usize {
        // A direct path is taken only if the memory can be reached.
        let Ok((segment, offset)) = &self.theirs.memory else { return 0 };
        let base = segment.base().as_ptr().wrapping_add(*offset);
        bases.iter().position(|known| *known == base).unwrap_or_else(|| {
            bases.push(base);
            bases.len() - 1
        })
    }
}

impl<'a> PeerView<'a> {
    /// Checks that both sides expect the same number of bytes.
    pub(super) fn check_bytes(&self) -> Result<(), Error> {
        let Self { peer, local, theirs } = *self;
        let ours = (local.bytes(peer, Direction::Send), local.bytes(peer, Direction::Receive));
        if ours == (theirs.receives, theirs.sends) {
            return Ok(());
        }
        // The fields differ: find the first that does.
        self.transfer_pairs(Direction::Send)?;
        self.transfer_pairs(Direction::Receive)?;
        let ((sends, receives), (peer_sends, peer_receives)) = (ours, (theirs.sends, theirs.receives));
        Err(BindError::Bytes { peer, sends, receives, peer_sends, peer_receives }.into())
    }

    /// All transfers of one direction, in the order in which their bytes travel.
    pub(super) fn transfer_pairs(&self, direction: Direction) -> Result<Vec<TransferPair<'a>>, Error> {
        let mut transfer_pairs = Vec::new();
        for (index, ours, transfer) in self.local.exchanged(self.peer, direction) {
            let domain = if direction == Direction::Send { transfer.to } else { transfer.from };
            let Place { pattern, number, domain: our_domain } = ours.place;
            let place = Place { pattern, number, domain };
            let pattern = self.local.index_of(pattern);
            let named = |domain| self.local.patterns[pattern].domain_name(domain);
            let theirs = self.theirs.fields.get(&place).ok_or_else(|| BindError::NoField {
                peer: self.peer,
                pattern,
                field: number,
                domain: named(domain),
            })?;
            ours.cells.check_peer(&theirs.cells).map_err(|error| Error::Peer {
                pattern,
                field: number,
                domain: named(our_domain),
                peer: self.peer,
                peer_domain: named(domain),
                error: Box::new(error),
            })?;
            transfer_pairs.push(TransferPair { index, ours, theirs, transfer });
        }
        Ok(transfer_pairs)
    }

    /// What travels over the link of one direction, and this side's copies, on a path that is possible.
    pub(super) fn part(
        &self,
        direction: Direction,
        path: LinkPath,
        transfer_pairs: &[TransferPair<'a>],
    ) -> Result<Part, Error> {
        let mut part = Part { bytes: self.local.bytes(self.peer, direction), ..Part::default() };
        if matches!(
            (direction, path),
            (Direction::Send, LinkPath::Pull) | (Direction::Receive, LinkPath::Push)
        ) {
            return Ok(part);
        }
        let direct = path.is_direct();
        let legs: Vec<Leg<'_>> = transfer_pairs.iter().map(TransferPair::leg).collect();
        for (at, op) in
            over_link(direction, &legs, |at| direct.then(|| transfer_pairs[at].base_among(&mut part.remote)))
        {
            self.check_reach(direction, &transfer_pairs[at], &op, direct)?;
            part.ops.push(op);
        }
        Ok(part)
    }

    /// The copies of a reduce over the link of one direction of an exchange: on its sender from a message to owned cells, on its
    /// receiver from halo cells to a message. The message is that of an exchange. In place, the peer's cells stand for the message:
    /// adds the addresses of the peer's fields.
    pub(super) fn reverse(
        &self,
        direction: Direction,
        mut in_place: Option<&mut Vec<*mut u8>>,
    ) -> Result<Vec<ReverseLeg>, Error> {
        let pairs = self.transfer_pairs(direction)?;
        let views: Vec<Leg<'_>> = pairs.iter().map(TransferPair::leg).collect();
        let is_in_place = in_place.is_some();
        let remote = |at: usize| in_place.as_deref_mut().map(|bases| pairs[at].base_among(bases));
        let mut legs = Vec::new();
        for (at, op) in over_link(direction, &views, remote) {
            let pair = &pairs[at];
            self.check_reach(direction, pair, &op, is_in_place)?;
            let (field, order) = (pair.index, CombineOrder::new(pair.index, pair.transfer));
            legs.push(ReverseLeg { field, element: pair.theirs.cells.element, order, op: op.reversed() });
        }
        Ok(legs)
    }

    /// Checks that an operation stays within the memory of its fields.
    fn check_reach(
        &self,
        direction: Direction,
        transfer_pair: &TransferPair<'_>,
        op: &CopyOp,
        direct: bool,
    ) -> Result<(), Error> {
        let (reads, writes) = op.reach();
        let (local, remote) = if direction == Direction::Send { (reads, writes) } else { (writes, reads) };
        let here = holds(self.local.segment_of(transfer_pair.ours), transfer_pair.ours.offset, &local);
        let there = match &transfer_pair.theirs.memory {
            Ok((segment, offset)) if direct => holds(segment, *offset, &remote),
            _ => true,
        };
        if here && there {
            return Ok(());
        }
        let Place { number: field, .. } = transfer_pair.ours.place;
        let domain = self.local.name_of(transfer_pair.ours.place);
        Err(BindError::FieldMemory { field, domain, peer: self.peer }.into())
    }
}

fn holds(segment: &Segment, offset: usize, reach: &Range<isize>) -> bool {
    let at = |byte: isize| offset as i128 + byte as i128;
    reach.is_empty() || (at(reach.start) >= 0 && at(reach.end) <= segment.len() as i128)
}
