//! Copy operations of a set. The transfers of two opposite faces become one operation, and equal run tables are shared.

use super::local::{Local, Place};
use crate::link::Direction;
use halocline_plan::Transfer;
use halocline_plan::copy::{CellLayout, CopyOp, End, copy_op, copy_op_of_two};
use std::collections::HashMap;
use std::sync::Arc;

/// Copies between domains of this rank; both ends are fields, by their indices.
pub(crate) fn within(local: &Local) -> Vec<CopyOp> {
    let mut ops: Vec<CopyOp> = within_legs(local).into_iter().map(|(_, op)| op).collect();
    share_runs(ops.iter_mut());
    ops
}

/// The same, each with its (first) transfer.
pub(super) fn within_legs(local: &Local) -> Vec<(&Transfer, CopyOp)> {
    let mut ops = Vec::new();
    for (pattern, &count) in local.patterns.iter().zip(&local.counts) {
        for number in 0..count {
            let transfers = &pattern.plan().local;
            let field = |domain| local.at(Place { pattern: pattern.id(), number, domain });
            let of_two = |first: &Transfer, second: &Transfer| {
                let same = (first.from, first.to) == (second.from, second.to);
                let ((at, from), (to_at, to)) = (field(first.from)?, field(first.to)?);
                let ends = ((End::Field(at), &from.cells), (End::Field(to_at), &to.cells));
                same.then(|| copy_op_of_two((first, second), ends.0, ends.1)).flatten()
            };
            let pairs = pair_up(transfers.len(), |a, b| of_two(&transfers[a], &transfers[b]).is_some());
            for (first, second) in pairs {
                let transfer = &transfers[first];
                let (Some(from), Some(to)) = (field(transfer.from), field(transfer.to)) else { continue };
                let ends = ((End::Field(from.0), &from.1.cells), (End::Field(to.0), &to.1.cells));
                let op = second
                    .and_then(|second| of_two(transfer, &transfers[second]))
                    .unwrap_or_else(|| copy_op(transfer, ends.0, ends.1));
                if op.bytes() > 0 {
                    ops.push((transfer, op));
                }
            }
        }
    }
    ops
}

/// One transfer of one field over a link, with the layouts at both ends.
pub(super) struct Leg<'a> {
    /// The index of this rank's field, and its place.
    pub(super) index: usize,
    pub(super) place: Place,
    pub(super) ours: &'a CellLayout,
    pub(super) theirs: &'a CellLayout,
    /// The peer's layout is not known; `theirs` stands in for the sender's layout, at both ends.
    pub(super) stands_in: bool,
    pub(super) transfer: &'a Transfer,
}

impl<'a> Leg<'a> {
    /// Sender's and receiver's layout.
    fn layouts(&self, direction: Direction) -> (&'a CellLayout, &'a CellLayout) {
        match direction {
            Direction::Send => (self.ours, self.theirs),
            Direction::Receive => (self.theirs, self.ours),
        }
    }

    fn bytes(&self) -> usize {
        self.transfer.source.count() * self.ours.bytes_per_cell()
    }
}

/// The operations of all legs that have bytes, each with the index of its (first) leg. `remote` returns the index
/// of the peer's field; for `None` the bytes lie in a message, in the order of the legs.
pub(super) fn over_link<'a>(
    direction: Direction,
    legs: &[Leg<'a>],
    mut remote: impl FnMut(usize) -> Option<usize>,
) -> Vec<(usize, CopyOp)> {
    let of_two = |first: &Leg<'a>, second: &Leg<'a>, ends: (End, End)| {
        let (sender, receiver) = first.layouts(direction);
        let fields = |leg: &Leg<'a>| (leg.place, leg.transfer.from, leg.transfer.to);
        let op = || copy_op_of_two((first.transfer, second.transfer), (ends.0, sender), (ends.1, receiver));
        (fields(first) == fields(second)).then(op).flatten()
    };
    let mut ops = Vec::new();
    let mut begin = 0;
    // Both sides pair by the same rule from the same facts, so that they agree on the message.
    let anywhere = (End::Field(0), End::Field(0));
    let suits = |first: usize, second: usize| match legs[first].stands_in {
        // The length of blocks depends on each side's layout, except for single elements.
        true => {
            let agreed = |leg: &Leg<'a>| Leg { ours: leg.theirs, ..*leg };
            of_two(&agreed(&legs[first]), &agreed(&legs[second]), anywhere)
                .is_some_and(|op| op.block == op.element.size())
        }
        false => of_two(&legs[first], &legs[second], anywhere).is_some(),
    };
    for (first, second) in pair_up(legs.len(), suits) {
        let leg = &legs[first];
        if leg.bytes() == 0 {
            continue;
        }
        let local = End::Field(leg.index);
        let remote = remote(first).map_or(End::Message(0, begin), End::Field);
        begin += leg.bytes() * if second.is_some() { 2 } else { 1 };
        let ends = if direction == Direction::Send { (local, remote) } else { (remote, local) };
        let (sender, receiver) = leg.layouts(direction);
        let op = second
            .and_then(|second| of_two(leg, &legs[second], ends))
            .unwrap_or_else(|| copy_op(leg.transfer, (ends.0, sender), (ends.1, receiver)));
        ops.push((first, op));
    }
    share_runs(ops.iter_mut().map(|(_, op)| op));
    ops
}

/// Pairs each index in 0..count with the first later one that suits it and has no partner.
fn pair_up(count: usize, suits: impl Fn(usize, usize) -> bool) -> Vec<(usize, Option<usize>)> {
    let mut taken = vec![false; count];
    let mut pairs = Vec::with_capacity(count);
    for first in 0..count {
        if taken[first] {
            continue;
        }
        let second = (first + 1..count).find(|&second| !taken[second] && suits(first, second));
        if let Some(second) = second {
            taken[second] = true;
        }
        pairs.push((first, second));
    }
    pairs
}

/// Makes operations over the same cells share one table of runs.
pub(crate) fn share_runs<'a>(ops: impl Iterator<Item = &'a mut CopyOp>) {
    let mut tables = HashMap::new();
    for cells in ops.filter_map(|op| op.cells.as_mut()) {
        let shared = tables.entry(Arc::clone(&cells.runs)).or_insert_with(|| Arc::clone(&cells.runs));
        cells.runs = Arc::clone(shared);
    }
}
