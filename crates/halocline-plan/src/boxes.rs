//! Checks and ownership of a decomposition given as a list of boxes.

use crate::error::PatternError;
use crate::grid::OwnedBox;
use crate::region::{Region, RegionIndex, Span};

/// Boxes that are disjoint and cover the grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BoxList {
    /// The regions of all domains.
    pub index: RegionIndex,
    /// The rank of each domain.
    pub owner: Vec<usize>,
    /// All domains, sorted by rank, then by number.
    by_rank: Vec<usize>,
}

impl BoxList {
    pub fn new(boxes: Vec<OwnedBox>, extents: &[usize], ranks: usize) -> Result<Self, PatternError> {
        let mut regions = Vec::with_capacity(boxes.len());
        let mut owner = Vec::with_capacity(boxes.len());
        for (number, (rank, first, extent)) in boxes.into_iter().enumerate() {
            if rank >= ranks {
                return Err(PatternError::BoxRank { number, rank, ranks });
            }
            regions.push(region(number, &first, &extent, extents)?);
            owner.push(rank);
        }
        let index = RegionIndex::new(regions);
        if let Some((one, other, cell)) = index.overlap() {
            return Err(PatternError::BoxesOverlap { one, other, cell });
        }
        if let Some(cell) = uncovered(index.regions(), extents) {
            return Err(PatternError::CellInNoBox { cell, boxes: owner.len() });
        }
        let mut by_rank: Vec<usize> = (0..owner.len()).collect();
        by_rank.sort_by_key(|&domain| owner[domain]);
        Ok(Self { index, owner, by_rank })
    }

    /// The same domains with other regions, which also cover their grid.
    pub fn with_regions(&self, regions: Vec<Region>) -> Self {
        Self { index: RegionIndex::new(regions), owner: self.owner.clone(), by_rank: self.by_rank.clone() }
    }

    /// The domains of a rank, ascending.
    pub fn domains_of(&self, rank: usize) -> &[usize] {
        let first = self.by_rank.partition_point(|&domain| self.owner[domain] < rank);
        let end = self.by_rank.partition_point(|&domain| self.owner[domain] <= rank);
        &self.by_rank[first..end]
    }
}

fn region(
    number: usize,
    first: &[usize],
    extent: &[usize],
    extents: &[usize],
) -> Result<Region, PatternError> {
    for (what, given) in
        [("coordinates of a box's first cell", first.len()), ("extents of a box", extent.len())]
    {
        if given != extents.len() {
            return Err(PatternError::AxisCount { what, given, axes: extents.len() });
        }
    }
    let mut spans = Vec::with_capacity(extents.len());
    for (axis, ((&first, &extent), &cells)) in first.iter().zip(extent).zip(extents).enumerate() {
        if extent == 0 || first.checked_add(extent).is_none_or(|end| end > cells) {
            return Err(PatternError::BoxOutside { number, axis, first, extent, cells });
        }
        spans.push(Span::new(first as i64, (first + extent) as i64));
    }
    Ok(Region(spans))
}

/// The first cell that no region covers. The regions are disjoint and lie in the grid. Takes time n
/// log n for each axis.
fn uncovered(regions: &[Region], extents: &[usize]) -> Option<Vec<i64>> {
    let mut members: Vec<&Region> = regions.iter().collect();
    let mut cell = Vec::with_capacity(extents.len());
    for axis in 0..extents.len() {
        // In a covered layer the disjoint sections of the members add up to the whole; the first
        // layer that is not covered contains the cell.
        let at = first_thin_layer(&members, axis, &extents[axis..])?;
        members.retain(|region| region.0[axis].start <= at && at < region.0[axis].end);
        cell.push(at);
    }
    Some(cell)
}

/// The lowest coordinate along `axis` at which the sections of the members are smaller than that of
/// the grid; `extents` are those of the grid from `axis` on.
fn first_thin_layer(members: &[&Region], axis: usize, extents: &[usize]) -> Option<i64> {
    let section = |region: &Region| region.0[axis + 1..].iter().map(|s| s.end - s.start).product::<i64>();
    let mut changes: Vec<(i64, i64)> = Vec::with_capacity(2 * members.len());
    for region in members {
        changes.push((region.0[axis].start, section(region)));
        changes.push((region.0[axis].end, -section(region)));
    }
    changes.sort_unstable();
    let whole: i64 = extents[1..].iter().map(|&n| n as i64).product();
    let (mut at, mut covered) = (0, 0);
    for (coordinate, change) in changes {
        if coordinate > at && covered < whole {
            return Some(at);
        }
        at = coordinate;
        covered += change;
    }
    (at < extents[0] as i64).then_some(at)
}
