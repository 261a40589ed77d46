//! Rows that travel straight to the ranks that need them. The summaries of all ranks tell each rank which ones these are.

use crate::demand::{Demand, Side};
use crate::summary::Summary;
use crate::window::Offsets;

/// The ranks that may have rows which a rank needs from a side, the nearest first.
pub(crate) fn sources(all: &[Summary], rank: usize, side: Side, offsets: Offsets) -> Vec<usize> {
    let mut sources = Vec::new();
    let ends = all.get(rank).and_then(|summary| summary.ends.as_ref());
    let mut demand = ends.and_then(|ends| Demand::of(ends, side, offsets));
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
            let Some(demand) = Demand::of(ends, side, offsets) else { continue };
            let reach = demand.clone().up_to_own_rows(side);
            if let Some(demand) = rest_for(all, demand, at, rank, side) {
                targets.push(Target { rank: at, side, demand });
            } else if rest_for(all, reach, at, rank, side).is_none() {
                // Windows of ranks further away reach less far.
                break;
            }
        }
    }
    targets
}

/// The rest of a demand of rank `of` on rank `on`, after the contributions of the ranks between.
fn rest_for(all: &[Summary], mut demand: Demand, of: usize, on: usize, side: Side) -> Option<Demand> {
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
