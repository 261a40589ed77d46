//! Which rank owns which part of a regular grid.

use crate::boxes::BoxList;
use crate::error::PatternError;
use crate::grid::checked_cells;
use crate::region::{Region, Span};
use std::ops::Range;
use std::sync::Arc;

/// A regular grid cut into domains, each owned by one rank. Made by
/// [`RegularGrid`](crate::RegularGrid); computes the [`PatternPlan`](crate::PatternPlan) of each rank.
///
/// Every rank makes its own copy from the same arguments, without communication. Blocks are
/// computed, not stored: memory does not grow with the number of ranks, except for explicit cuts
/// and boxes.
///
/// ```
/// use halocline_plan::{Halo, RegularGrid};
///
/// let grid = RegularGrid::new((60, 40)).decompose(6)?;
/// assert_eq!((grid.ranks(), grid.domains()), (6, 6));
/// assert_eq!(grid.blocks_per_axis(), Some(vec![3, 2]));
///
/// // The domain of rank 0: 20 x 20 cells, and a halo of one cell.
/// let (_, shape) = &grid.pattern_of(0, &Halo::uniform(1))?.domains[0];
/// assert_eq!(shape.extents(), [22, 22]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decomposition {
    extents: Vec<usize>,
    periodic: Vec<bool>,
    ranks: usize,
    /// Axes whose cells are points staggered between those of the original grid.
    staggered: Vec<bool>,
    kind: Kind,
}

impl Decomposition {
    /// The decomposition of the points between the cells along the axes that are `true`, as
    /// velocities on an Arakawa C grid (faces if one axis is staggered, corners if all are).
    ///
    /// Point i lies at the low side of cell i. A non-periodic axis has one point more than cells,
    /// at the high border; on a periodic axis that point is point 0. Each domain owns the points at
    /// the low sides of its cells; a domain at the high border also owns the points there. Ranks,
    /// numbers and positions of the domains are those of this decomposition.
    ///
    /// Errors: a number of flags other than the number of axes, an axis that is staggered already,
    /// or more than 2^60 points.
    ///
    /// ```
    /// # use halocline_plan::{PatternError, RegularGrid};
    /// let cells = RegularGrid::new([60, 40]).periodic([true, false]).decompose(6)?;
    /// assert_eq!(cells.staggered([true, false])?.extents(), [60, 40]);
    /// assert_eq!(cells.staggered([false, true])?.extents(), [60, 41]);
    /// # Ok::<(), PatternError>(())
    /// ```
    pub fn staggered(&self, axes: impl Into<Vec<bool>>) -> Result<Self, PatternError> {
        let axes = axes.into();
        if axes.len() != self.extents.len() {
            let (given, axes) = (axes.len(), self.extents.len());
            return Err(PatternError::AxisCount { what: "flags of staggered axes", given, axes });
        }
        if let Some(axis) = (0..axes.len()).find(|&axis| axes[axis] && self.staggered[axis]) {
            return Err(PatternError::StaggeredTwice { axis });
        }
        let more = |axis: usize| usize::from(axes[axis] && !self.periodic[axis]);
        let extents: Vec<usize> = self.extents.iter().enumerate().map(|(axis, n)| n + more(axis)).collect();
        checked_cells(&extents)?;
        let kind = match &self.kind {
            Kind::Blocks(blocks) => {
                let cuts = blocks.axes.iter().enumerate().map(|(axis, cuts)| cuts.longer(more(axis)));
                Kind::Blocks(Blocks { axes: cuts.collect(), per_rank: blocks.per_rank })
            }
            Kind::Boxes(boxes) => {
                let longer = |(axis, span): (usize, &mut Span)| {
                    if span.end == self.extents[axis] as i64 {
                        span.end += more(axis) as i64;
                    }
                };
                let mut regions = boxes.index.regions().to_vec();
                regions.iter_mut().for_each(|region| region.0.iter_mut().enumerate().for_each(longer));
                Kind::Boxes(boxes.with_regions(regions).into())
            }
        };
        let staggered = self.staggered.iter().zip(&axes).map(|(before, now)| *before || *now).collect();
        Ok(Self { extents, periodic: self.periodic.clone(), ranks: self.ranks, staggered, kind })
    }

    /// The number of ranks that the decomposition was made for.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Cells of the grid along each axis.
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// The number of domains.
    pub fn domains(&self) -> u64 {
        match &self.kind {
            Kind::Blocks(blocks) => blocks.count() as u64,
            Kind::Boxes(boxes) => boxes.index.regions().len() as u64,
        }
    }

    /// Blocks along each axis; `None` for a list of boxes.
    pub fn blocks_per_axis(&self) -> Option<Vec<usize>> {
        match &self.kind {
            Kind::Blocks(blocks) => Some(blocks.axes.iter().map(Cuts::blocks).collect()),
            Kind::Boxes(_) => None,
        }
    }

    pub(crate) fn new(extents: Vec<usize>, periodic: Vec<bool>, ranks: usize, kind: Kind) -> Self {
        let staggered = vec![false; extents.len()];
        Self { extents, periodic, ranks, staggered, kind }
    }

    /// The domains of a rank, ascending.
    pub(crate) fn domains_of(&self, rank: usize) -> Vec<usize> {
        match &self.kind {
            Kind::Blocks(blocks) => (rank * blocks.per_rank..(rank + 1) * blocks.per_rank).collect(),
            Kind::Boxes(boxes) => boxes.domains_of(rank).to_vec(),
        }
    }

    /// The rank that owns an existing domain.
    pub(crate) fn owner(&self, domain: usize) -> usize {
        match &self.kind {
            Kind::Blocks(blocks) => domain / blocks.per_rank,
            Kind::Boxes(boxes) => boxes.owner[domain],
        }
    }

    /// The owned cells of an existing domain.
    pub(crate) fn region(&self, domain: usize) -> Region {
        match &self.kind {
            Kind::Blocks(blocks) => blocks.region(domain),
            Kind::Boxes(boxes) => boxes.index.regions()[domain].clone(),
        }
    }

    /// All domains that meet `region`. Outside the grid, periodic axes repeat and other axes end.
    /// `None` if there are more than `most`.
    pub(crate) fn images(&self, region: &Region, most: usize) -> Option<Vec<Image>> {
        match &self.kind {
            Kind::Blocks(blocks) => {
                let found = |(axis, cuts): (usize, &Cuts)| cuts.images(self.inside(axis, region), most);
                let axes: Vec<_> = blocks.axes.iter().enumerate().map(found).collect::<Option<_>>()?;
                let images = product(&axes, most)?.into_iter().map(|path| blocks.image(&path));
                Some(images.collect())
            }
            Kind::Boxes(boxes) => {
                let periods = |axis| self.periods(axis, self.inside(axis, region), most);
                let axes: Vec<_> = (0..self.extents.len()).map(periods).collect::<Option<_>>()?;
                let mut images = Vec::new();
                for shift in product(&axes, most)? {
                    let back: Vec<i64> = shift.iter().map(|shift| -shift).collect();
                    let region = region.shifted(&back);
                    let found = boxes.index.meeting(&region);
                    images.extend(found.map(|domain| Image { domain, shift: shift.clone() }));
                    if images.len() > most {
                        return None;
                    }
                }
                Some(images)
            }
        }
    }

    /// The span of `region` along an axis, clipped at a non-periodic border.
    fn inside(&self, axis: usize, region: &Region) -> Span {
        match self.periodic[axis] {
            true => region.0[axis],
            false => region.0[axis].intersection(Span::new(0, self.extents[axis] as i64)),
        }
    }

    /// The shifts of the repetitions of the grid that `span` reaches.
    fn periods(&self, axis: usize, span: Span, most: usize) -> Option<Vec<i64>> {
        if span.is_empty() {
            return Some(Vec::new());
        }
        let period = self.extents[axis] as i64;
        let reached: Range<i64> = span.start.div_euclid(period)..(span.end - 1).div_euclid(period) + 1;
        (reached.end.abs_diff(reached.start) <= most as u64).then(|| reached.map(|k| k * period).collect())
    }
}

/// A domain as seen from another one, across any number of periodic seams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub domain: usize,
    /// Shift of its cells in this image: a multiple of the period on each axis.
    pub shift: Vec<i64>,
}

/// How the grid is cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Blocks(Blocks),
    Boxes(Arc<BoxList>),
}

/// Cuts through the whole grid along each axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Blocks {
    pub axes: Vec<Cuts>,
    pub per_rank: usize,
}

impl Blocks {
    fn count(&self) -> usize {
        self.axes.iter().map(Cuts::blocks).product()
    }

    fn region(&self, domain: usize) -> Region {
        let mut rest = domain;
        let mut spans = vec![Span::new(0, 0); self.axes.len()];
        for (span, cuts) in spans.iter_mut().zip(&self.axes).rev() {
            *span = cuts.span(rest % cuts.blocks());
            rest /= cuts.blocks();
        }
        Region(spans)
    }

    /// The domain at the given block and shift along each axis.
    fn image(&self, path: &[(usize, i64)]) -> Image {
        let number = |domain, (cuts, (block, _)): (&Cuts, &(usize, i64))| domain * cuts.blocks() + block;
        let domain = self.axes.iter().zip(path).fold(0, number);
        Image { domain, shift: path.iter().map(|(_, shift)| *shift).collect() }
    }
}

/// The cuts through one axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cuts {
    /// `cells` cells in blocks that differ by at most one cell, larger blocks first; the last block
    /// has `more` additional cells.
    Even { cells: usize, blocks: usize, more: usize },
    /// The first cell of each block, ascending from 0.
    At { starts: Vec<usize>, cells: usize },
}

impl Cuts {
    pub fn blocks(&self) -> usize {
        match self {
            Self::Even { blocks, .. } => *blocks,
            Self::At { starts, .. } => starts.len(),
        }
    }

    /// The same cuts through an axis with `more` additional cells at its end.
    pub fn longer(&self, more: usize) -> Self {
        let mut longer = self.clone();
        match &mut longer {
            Self::Even { more: cells, .. } | Self::At { cells, .. } => *cells += more,
        }
        longer
    }

    fn cells(&self) -> usize {
        match self {
            Self::Even { cells, more, .. } => cells + more,
            Self::At { cells, .. } => *cells,
        }
    }

    /// The first cell of a block; the number of cells for the block after the last one.
    fn start(&self, block: usize) -> usize {
        match self {
            Self::Even { blocks, .. } if block == *blocks => self.cells(),
            Self::Even { cells, blocks, .. } => block * (cells / blocks) + block.min(cells % blocks),
            Self::At { starts, cells } => starts.get(block).copied().unwrap_or(*cells),
        }
    }

    pub fn span(&self, block: usize) -> Span {
        Span::new(self.start(block) as i64, self.start(block + 1) as i64)
    }

    fn block_of(&self, cell: usize) -> usize {
        match self {
            Self::Even { cells, blocks, .. } => {
                let (size, larger) = (cells / blocks, cells % blocks);
                let block = match cell < larger * (size + 1) {
                    true => cell / (size + 1),
                    false => larger + (cell - larger * (size + 1)) / size,
                };
                block.min(blocks - 1)
            }
            Self::At { starts, .. } => starts.partition_point(|&start| start <= cell) - 1,
        }
    }

    /// The blocks that `span` reaches, in order, with the shift of each; the axis repeats beyond
    /// its ends. `None` if there are more than `most`.
    pub fn images(&self, span: Span, most: usize) -> Option<Vec<(usize, i64)>> {
        let period = self.cells() as i64;
        let mut found = Vec::new();
        let mut at = span.start;
        while at < span.end {
            let block = self.block_of(at.rem_euclid(period) as usize);
            let shift = at.div_euclid(period) * period;
            found.push((block, shift));
            if found.len() > most {
                return None;
            }
            at = self.span(block).end + shift;
        }
        Some(found)
    }
}

/// The Cartesian product of the lists, the last list running fastest; `None` if it has more than
/// `most` entries.
pub(crate) fn product<T: Copy>(lists: &[Vec<T>], most: usize) -> Option<Vec<Vec<T>>> {
    let count = lists.iter().try_fold(1, |count: usize, list| count.checked_mul(list.len()));
    count.filter(|count| *count <= most)?;
    let mut paths = vec![Vec::with_capacity(lists.len())];
    for list in lists {
        let extended = |path: Vec<T>| list.iter().map(move |item| [path.as_slice(), &[*item]].concat());
        paths = paths.into_iter().flat_map(extended).collect();
    }
    Some(paths)
}
