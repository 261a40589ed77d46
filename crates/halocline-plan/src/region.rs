//! Boxes of cells, and an index that finds those that meet a given one.

use crate::BoxCells;

/// Cells `start` to `end` (exclusive) along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    pub start: i64,
    pub end: i64,
}

impl Span {
    pub fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub fn shifted(self, by: i64) -> Self {
        Self::new(self.start + by, self.end + by)
    }

    pub fn intersection(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    fn hull(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }
}

/// A box: one span for each axis, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Region(pub Vec<Span>);

impl Region {
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| !a.intersection(*b).is_empty())
    }

    /// The cells of both, for regions that meet.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a.intersection(*b)).collect())
    }

    /// A cell of `self` that is not in `outer`, if there is one.
    pub fn cell_outside(&self, outer: &Self) -> Option<Vec<i64>> {
        let mut outside = false;
        let cell = self.0.iter().zip(&outer.0).map(|(inner, outer)| {
            let low_inside = inner.start >= outer.start && inner.start < outer.end;
            outside |= !low_inside || inner.end > outer.end;
            if low_inside && inner.end > outer.end { outer.end } else { inner.start }
        });
        let cell = cell.collect();
        outside.then_some(cell)
    }

    /// The lowest cell of the intersection, for regions that meet.
    pub fn common_cell(&self, other: &Self) -> Vec<i64> {
        self.0.iter().zip(&other.0).map(|(a, b)| a.start.max(b.start)).collect()
    }

    pub fn shifted(&self, by: &[i64]) -> Self {
        Self(self.0.iter().zip(by).map(|(span, by)| span.shifted(*by)).collect())
    }

    /// These cells counted from the first cell of `origin`.
    pub fn cells_from(&self, origin: &Self) -> BoxCells {
        BoxCells {
            low: self.0.iter().zip(&origin.0).map(|(span, origin)| span.start - origin.start).collect(),
            extent: self.0.iter().map(|span| (span.end - span.start) as usize).collect(),
        }
    }

    fn hull(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.hull(*other);
        }
    }
}

/// A tree over a list of regions, all of the same number of axes: finds the members that meet a
/// region in logarithmic time for ordinary lists (regions that hardly overlap), with memory linear
/// in their number for any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RegionIndex {
    regions: Vec<Region>,
    /// Numbers of the regions, the members of each node consecutive.
    order: Vec<usize>,
    /// In preorder.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    bounds: Region,
    /// The members of a leaf in `order`; empty for an inner node.
    members: (usize, usize),
    /// The next node that is not below this one.
    next: usize,
}

/// Most members of a leaf.
const LEAF: usize = 4;

impl RegionIndex {
    pub fn new(regions: Vec<Region>) -> Self {
        let mut index = Self { order: (0..regions.len()).collect(), nodes: Vec::new(), regions };
        if !index.regions.is_empty() {
            index.build(0, index.regions.len());
        }
        index
    }

    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The numbers of the regions that meet `with`, in no particular order.
    pub fn meeting<'a>(&'a self, with: &'a Region) -> impl Iterator<Item = usize> + 'a {
        let mut node = 0;
        let mut members = (0, 0);
        std::iter::from_fn(move || {
            loop {
                while members.0 < members.1 {
                    let region = self.order[members.0];
                    members.0 += 1;
                    if self.regions[region].meets(with) {
                        return Some(region);
                    }
                }
                let at = self.nodes.get(node)?;
                if at.bounds.meets(with) {
                    members = at.members;
                    node += 1;
                } else {
                    node = at.next;
                }
            }
        })
    }

    /// Two regions that share cells and one cell that they share, if there are any: the lower
    /// number first.
    pub fn overlap(&self) -> Option<(usize, usize, Vec<i64>)> {
        self.regions.iter().enumerate().find_map(|(number, region)| {
            let other = self.meeting(region).find(|&other| other != number)?;
            // Were `other` the lower number, it would have been found before.
            Some((number, other, region.common_cell(&self.regions[other])))
        })
    }

    /// Adds the tree of `order[first..end]`, which is not empty.
    fn build(&mut self, first: usize, end: usize) {
        let members = &self.order[first..end];
        let mut bounds = self.regions[members[0]].clone();
        let mut starts: Vec<Span> = bounds.0.iter().map(|span| Span::new(span.start, span.start)).collect();
        for &member in &members[1..] {
            let region = &self.regions[member];
            bounds.hull(region);
            for (starts, span) in starts.iter_mut().zip(&region.0) {
                *starts = starts.hull(Span::new(span.start, span.start));
            }
        }
        let me = self.nodes.len();
        self.nodes.push(Node { bounds, members: (first, end), next: me + 1 });
        if end - first > LEAF {
            // Halves along the axis on which the regions are spread the most.
            let spread = |axis: &usize| starts[*axis].end.abs_diff(starts[*axis].start);
            let axis = (0..starts.len()).max_by_key(spread).unwrap_or(0);
            let middle = (end - first) / 2;
            let regions = &self.regions;
            self.order[first..end].select_nth_unstable_by_key(middle, |&r| regions[r].0[axis].start);
            self.nodes[me].members = (0, 0);
            self.build(first, first + middle);
            self.build(first + middle, end);
            self.nodes[me].next = self.nodes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region() -> impl Strategy<Value = Region> {
        let span = (-20..20_i64, 1..8_i64).prop_map(|(start, cells)| Span::new(start, start + cells));
        prop::collection::vec(span, 2).prop_map(Region)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_index_finds_what_a_scan_finds(regions in prop::collection::vec(region(), 0..40), with in region()) {
            let index = RegionIndex::new(regions.clone());
            let mut found: Vec<usize> = index.meeting(&with).collect();
            found.sort_unstable();
            let scan = (0..regions.len()).filter(|&number| regions[number].meets(&with));
            prop_assert_eq!(found, scan.collect::<Vec<_>>());

            let other = |one: usize| (one + 1..regions.len()).any(|other| regions[one].meets(&regions[other]));
            let overlap = index.overlap();
            prop_assert_eq!(overlap.as_ref().map(|(one, _, _)| *one), (0..regions.len()).find(|&one| other(one)));
            if let Some((one, other, cell)) = overlap {
                let cell = Region(cell.into_iter().map(|at| Span::new(at, at + 1)).collect());
                prop_assert!(one < other && cell.meets(&regions[one]) && cell.meets(&regions[other]));
            }
        }
    }
}
