//! The copies of reduces: those of an exchange with both ends swapped.
//!
//! Where an operation alternates between two transfers of the same two domains, so do their contributions. Which transfers are
//! joined follows from these and from the layouts alone, whether they stay within a rank or not.

use super::local::Local;
use super::ops::{share_runs, within_legs};
use super::peer_view::PeerView;
use crate::error::{Error, ReduceError};
use crate::link::{Direction, Link};
use crate::reduce::{CombineOrder, Contribution, Reverse};
use crate::set::Set;
use halocline_plan::copy::CopyOp;
use halocline_plan::{ElementType, Transfer};

/// How halo cells reach their owner in a reduce.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The links of the object: the owner combines where it can reach them.
    Links,
    /// Messages, whatever the links are.
    Messages,
}

/// The copies of a set's reduces over the links of its object.
pub(crate) fn reverse(set: &Set, links: &[Link], via: Via) -> Result<Reverse, Error> {
    let local = &set.local;
    if let Some(fields) = local.shared_owned {
        return Err(ReduceError::Overlap { fields }.into());
    }
    let mut elements: Vec<(usize, ElementType)> =
        local.fields.iter().enumerate().map(|(index, field)| (index, field.cells.element)).collect();
    let mut packs: Vec<Vec<CopyOp>> = links.iter().map(|_| Vec::new()).collect();
    let mut peer_bases: Vec<Vec<*mut u8>> = links.iter().map(|_| Vec::new()).collect();
    let mut contributions = within(local);
    for (index, link) in links.iter().enumerate() {
        let peer_view = PeerView { peer: link.peer, local, theirs: &set.offered[&link.peer] };
        let is_in_place = link.is_read_in_place && via == Via::Links;
        let in_place = is_in_place.then_some(&mut peer_bases[link.part]);
        for leg in peer_view.reverse(link.direction, in_place)? {
            elements.push((leg.field, leg.element));
            match link.direction {
                Direction::Receive if is_in_place => {}
                Direction::Receive => packs[link.part].push(leg.op),
                Direction::Send => {
                    contributions.push((leg.order, Contribution { link: Some(index), op: leg.op }))
                }
            }
        }
    }
    elements.sort_by_key(|(field, element)| (*field, element.code()));
    elements.dedup();
    share_runs(packs.iter_mut().flatten().chain(contributions.iter_mut().map(|(_, one)| &mut one.op)));
    Ok(Reverse::new(packs, peer_bases, contributions, elements))
}

/// Contributions of this rank's own halo cells.
fn within(local: &Local) -> Vec<(CombineOrder, Contribution)> {
    let contribution = |(transfer, op): (&Transfer, CopyOp)| {
        (CombineOrder::new(op.source, transfer), Contribution { link: None, op: op.reversed() })
    };
    within_legs(local).into_iter().map(contribution).collect()
}
