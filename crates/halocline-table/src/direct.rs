//! Rows that travel straight to the ranks that need them. The summaries of all ranks tell each rank which ones these are.

use crate::demand::{Demand, Side};
use crate::summary::{Ends, Summary};
use crate::window::Offsets;

/// The ranks that may have rows which a rank needs from a side, the nearest first.
pub(crate) fn sources(all: &[Summary], rank: usize, side: Side, offsets: Offsets) -> Vec<usize> {
    let mut sources = Vec::new();
    let ends = all.get(rank).and_then(|summary| summary.ends.as_ref());
    let mut demand = ends.and_then(|ends| Demand::of(ends, side, offsets, true));
    let mut at = rank;
    while let (Some(wanted), Some(next)) = (&demand, side.next(at, all.len())) {
        at = next;
        if let Some(ends) = &all[at].ends {
            let met = wanted.meet(side, ends);
            if met.supplies {
                sources.push(at);
            }
            demand = met.rest;
        }
    }
    sources
}

/// A rank that needs rows of this one, and which.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) rank: usize,
    pub(crate) side: Side,
    pub(crate) demand: Demand,
}

/// The ranks that need rows of this one: those that name it among their [`sources`].
pub(crate) fn targets(all: &[Summary], rank: usize, offsets: Offsets) -> Vec<Target> {
    let mut targets = Vec::new();
    for side in Side::BOTH {
        let mut at = rank;
        while let Some(next) = side.opposite().next(at, all.len()) {
            at = next;
            let Some(ends) = &all[at].ends else { continue };
            if let Some(demand) = demand_on(all, ends, at, rank, side, offsets, true) {
                targets.push(Target { rank: at, side, demand });
            } else if demand_on(all, ends, at, rank, side, offsets, false).is_none() {
                // Windows of ranks further away reach less far.
                break;
            }
        }
    }
    targets
}

/// What rank `of` wants of rank `on`, after what the ranks between contribute.
fn demand_on(
    all: &[Summary],
    ends: &Ends,
    of: usize,
    on: usize,
    side: Side,
    offsets: Offsets,
    is_exact: bool,
) -> Option<Demand> {
    let mut demand = Demand::of(ends, side, offsets, is_exact)?;
    let mut at = of;
    loop {
        at = side.next(at, all.len())?;
        let Some(ends) = &all[at].ends else { continue };
        let met = demand.meet(side, ends);
        if at == on {
            return met.supplies.then_some(demand);
        }
        demand = met.rest?;
    }
}

/// Whether the rows that each rank needs lie on its neighbours alone, and adjoin its own rows. Then relays send as many rows between
/// the same ranks as direct sends do, plus the demands.
pub(crate) fn reaches_neighbours_only(all: &[Summary], offsets: Offsets) -> bool {
    offsets.has_own_row()
        && (0..all.len()).all(|rank| {
            Side::BOTH
                .into_iter()
                .all(|side| sources(all, rank, side, offsets).iter().all(|from| from.abs_diff(rank) == 1))
        })
}
