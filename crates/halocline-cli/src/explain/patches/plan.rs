//! The plan of one rank of a grid of patches, as data.

use super::super::plan::Direction;
use super::Case;
use crate::error::CommandError;
use halocline::plan::copy::{CellLayout, End, copy_op};
use halocline::plan::{AxisMap, Cells, PatternPlan, Transfer};
use std::collections::BTreeMap;

/// One region of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) direction: Direction,
    /// The domain of this rank, and the other one.
    pub(super) domain: u64,
    pub(super) other: u64,
    /// Of the domain of this rank; 0 for scalars.
    pub(super) component: u64,
    /// The first value on this rank that is sent or filled, counted from the first one that the domain holds.
    pub(super) low: Vec<i64>,
    pub(super) extent: Vec<usize>,
    /// How the axes of the source map to those of the target.
    pub(super) map: AxisMap,
    pub(super) is_negated: bool,
    pub(super) cells: usize,
    /// Bytes of all fields.
    pub(super) bytes: u128,
    /// Number of contiguous blocks of memory in one field.
    pub(super) blocks: usize,
}

/// The regions of a rank.
pub(super) fn regions(case: &Case<'_>, pattern: &PatternPlan) -> Result<Vec<Region>, CommandError> {
    let mut layouts = BTreeMap::new();
    for (number, shape) in &pattern.domains {
        layouts.insert(*number, CellLayout::new(&case.layout_of(shape)?, shape)?);
    }
    let region = |transfer: &Transfer, direction: Direction| region(case, &layouts, transfer, direction);
    let mut regions = Vec::new();
    for peer in &pattern.peers {
        regions.extend(peer.sends.iter().filter_map(|transfer| region(transfer, Direction::To(peer.rank))));
        regions
            .extend(peer.receives.iter().filter_map(|transfer| region(transfer, Direction::From(peer.rank))));
    }
    regions.extend(pattern.local.iter().filter_map(|transfer| region(transfer, Direction::Within)));
    Ok(regions)
}

fn region(
    case: &Case<'_>,
    layouts: &BTreeMap<u64, CellLayout>,
    transfer: &Transfer,
    direction: Direction,
) -> Option<Region> {
    let is_sent = matches!(direction, Direction::To(_));
    let (mine, number, other) = match is_sent {
        true => (&transfer.source, transfer.from, transfer.to),
        false => (&transfer.target, transfer.to, transfer.from),
    };
    let (Cells::Box(mine), Some(layout)) = (mine, layouts.get(&number)) else { return None };
    // The layout of another rank is not looked at: a message has the order of this one.
    let (source, target) = match direction {
        Direction::To(_) => ((End::Field(0), layout), (End::Message(0, 0), layout)),
        Direction::From(_) => ((End::Message(0, 0), layout), (End::Field(0), layout)),
        Direction::Within => ((End::Field(0), layouts.get(&transfer.from)?), (End::Field(0), layout)),
    };
    let (cells, components) = (transfer.target.count(), case.quantity.components() as u64);
    Some(Region {
        direction,
        domain: number / components,
        other: other / components,
        component: number % components,
        low: mine.low.clone(),
        extent: mine.extent.clone(),
        map: transfer.map,
        is_negated: transfer.is_negated,
        cells,
        bytes: (cells * case.bytes()) as u128,
        blocks: copy_op(transfer, source, target).blocks(),
    })
}

impl Region {
    /// What happens to the values on their way, in words; empty for a copy.
    pub(super) fn change(&self) -> String {
        let turn = match (self.map.swapped, self.map.flipped) {
            (false, [false, false]) => "",
            (false, [true, true]) => "half turn",
            (false, [true, false]) => "rows reversed",
            (false, [false, true]) => "columns reversed",
            (true, [true, false] | [false, true]) => "quarter turn",
            (true, _) => "transposed",
        };
        match (self.is_negated, turn) {
            (false, turn) => turn.to_owned(),
            (true, "") => "negated".to_owned(),
            (true, turn) => format!("{turn}, negated"),
        }
    }
}
