//! The plan of one rank of a grid of patches, as data.

use super::super::plan::{Direction, Part, of_transfers};
use super::Case;
use crate::error::CommandError;
use halocline::plan::copy::{CellLayout, End, copy_op};
use halocline::plan::{AxisMap, Cells, PatternPlan, Transfer};
use std::collections::BTreeMap;

/// One region of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) part: Part,
    /// The domain of this rank, and the other one.
    pub(super) domain: u64,
    pub(super) other: u64,
    /// Of the domain of this rank; 0 for scalars.
    pub(super) component: u64,
    /// How the axes of the source map to those of the target.
    pub(super) map: AxisMap,
    pub(super) is_negated: bool,
}

/// The regions of a rank.
pub(super) fn regions(case: &Case<'_>, pattern: &PatternPlan) -> Result<Vec<Region>, CommandError> {
    let mut layouts = BTreeMap::new();
    for (number, shape) in &pattern.domains {
        layouts.insert(*number, CellLayout::new(&case.layout_of(shape)?, shape)?);
    }
    Ok(of_transfers(pattern, |transfer, direction| region(case, &layouts, transfer, direction)))
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
    let part = Part {
        direction,
        low: mine.low.clone(),
        extent: mine.extent.clone(),
        cells,
        bytes: (cells * case.bytes()) as u128,
        blocks: copy_op(transfer, source, target).blocks(),
    };
    Some(Region {
        part,
        domain: number / components,
        other: other / components,
        component: number % components,
        map: transfer.map,
        is_negated: transfer.is_negated,
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
            // With rows counted upwards and columns to the right.
            (true, [true, false]) => "quarter turn right",
            (true, [false, true]) => "quarter turn left",
            (true, _) => "transposed",
        };
        match (self.is_negated, turn) {
            (false, turn) => turn.to_owned(),
            (true, "") => "negated".to_owned(),
            (true, turn) => format!("{turn}, negated"),
        }
    }
}
