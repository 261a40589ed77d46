//! The plan of one rank of a regular grid, as data: what it sends and receives, without running it.

use crate::error::CommandError;
use crate::options::AXES;
use halocline::Layout;
use halocline::plan::copy::{CellLayout, End, copy_op};
use halocline::plan::{Cells, PatternPlan, Transfer};

/// One region of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) part: Part,
    /// The side of this rank on which the other rank is.
    pub(super) side: String,
}

/// The cells of a region, of any grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) direction: Direction,
    /// The first cell on this rank that is sent or filled, counted from the first one that its domain holds.
    pub(super) low: Vec<i64>,
    pub(super) extent: Vec<usize>,
    pub(super) cells: usize,
    /// Bytes of all fields.
    pub(super) bytes: u128,
    /// Number of contiguous blocks of memory in one field.
    pub(super) blocks: usize,
}

/// The destination or the source of the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    To(usize),
    From(usize),
    /// Over a periodic border, to the same rank.
    Within,
}

/// What `region` makes of the transfers of a rank: those to and from each peer, then those within the rank.
pub(super) fn of_transfers<R>(
    pattern: &PatternPlan,
    region: impl Fn(&Transfer, Direction) -> Option<R>,
) -> Vec<R> {
    let mut regions = Vec::new();
    for peer in &pattern.peers {
        regions.extend(peer.sends.iter().filter_map(|transfer| region(transfer, Direction::To(peer.rank))));
        regions
            .extend(peer.receives.iter().filter_map(|transfer| region(transfer, Direction::From(peer.rank))));
    }
    regions.extend(pattern.local.iter().filter_map(|transfer| region(transfer, Direction::Within)));
    regions
}

/// The regions of a rank with one domain and `fields` fields of that layout.
pub(super) fn regions(
    pattern: &PatternPlan,
    layout: &Layout,
    fields: u32,
) -> Result<Vec<Region>, CommandError> {
    let cells = CellLayout::new(layout, &pattern.domains[0].1)?;
    let region = |transfer: &Transfer, direction: Direction| {
        let (mine, end) = match direction {
            Direction::To(_) => (&transfer.source, (End::Field(0), End::Message(0, 0))),
            Direction::From(_) => (&transfer.target, (End::Message(0, 0), End::Field(0))),
            Direction::Within => (&transfer.target, (End::Field(0), End::Field(0))),
        };
        let Cells::Box(mine) = mine else { return None };
        // The peer's layout is not looked at: a message has the order of this one.
        let op = copy_op(transfer, (end.0, &cells), (end.1, &cells));
        let count = transfer.target.count();
        let part = Part {
            direction,
            low: mine.low.clone(),
            extent: mine.extent.clone(),
            cells: count,
            bytes: count as u128 * cells.bytes_per_cell() as u128 * u128::from(fields),
            blocks: op.blocks(),
        };
        Some(Region { part, side: side(transfer, matches!(direction, Direction::To(_))) })
    };
    Ok(of_transfers(pattern, region))
}

/// The side of the receiver that is filled; with `opposite`, as the sender sees it. Blocks that share an
/// axis have the same cuts along it, so that a halo there begins with cell 0.
fn side(transfer: &Transfer, opposite: bool) -> String {
    let Cells::Box(target) = &transfer.target else { return String::new() };
    let sign = |low: i64| match (low.signum(), opposite) {
        (0, _) => None,
        (-1, false) | (1, true) => Some('-'),
        _ => Some('+'),
    };
    let axes = target.low.iter().zip(AXES);
    axes.filter_map(|(&low, axis)| Some(format!("{}{axis}", sign(low)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::{ElementType, Halo, RegularGrid};

    fn plan(periodic: bool, ranks: usize, rank: usize) -> Vec<Region> {
        let grid = RegularGrid::new([8, 6]).periodic([periodic, false]);
        let decomposition = grid.decompose_into([ranks, 1], ranks).unwrap();
        let pattern = decomposition.pattern_of(rank, &Halo::uniform(1)).unwrap();
        let layout = Layout::c_order(ElementType::F64, &pattern.domains[0].1.extents()).unwrap();
        regions(&pattern, &layout, 3).unwrap()
    }

    #[test]
    fn sides_are_those_of_this_rank() {
        let of = |regions: &[Region]| -> Vec<(Direction, String)> {
            regions.iter().map(|region| (region.part.direction, region.side.clone())).collect()
        };
        let due = |list: &[(Direction, &str)]| -> Vec<(Direction, String)> {
            list.iter().map(|(direction, side)| (*direction, (*side).to_owned())).collect()
        };
        use Direction::{From, To, Within};
        assert_eq!(of(&plan(false, 4, 0)), due(&[(To(1), "+x"), (From(1), "+x")]));
        let middle = [(To(0), "-x"), (From(0), "-x"), (To(2), "+x"), (From(2), "+x")];
        assert_eq!(of(&plan(false, 4, 1)), due(&middle));
        assert_eq!(of(&plan(true, 1, 0)), due(&[(Within, "-x"), (Within, "+x")]));
    }

    #[test]
    fn bytes_are_those_of_all_fields_and_blocks_those_of_one() {
        for Region { part, .. } in plan(false, 4, 1) {
            assert_eq!((part.cells, part.bytes, part.blocks), (6, 6 * 8 * 3, 1));
        }
    }
}
