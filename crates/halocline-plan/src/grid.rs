//! A regular grid and its decompositions.

use crate::PerAxis;
use crate::boxes::BoxList;
use crate::decomposition::{Blocks, Cuts, Decomposition, Kind};
use crate::error::PatternError;

/// Maximum number of cells of a grid, or of a domain with its halo: sums and differences of
/// coordinates cannot overflow.
pub(crate) const MAX_CELLS: usize = 1 << 60;
/// Maximum number of domains in a decomposition by count, which finds factors by trial division.
pub(crate) const MAX_DOMAINS: usize = u32::MAX as usize;
/// How many larger and how many smaller numbers of ranks an error message tries.
const SUGGESTIONS_TRIED: usize = 256;

/// A regular grid of 1 to 4 axes. Cells and domains are numbered in row-major order: the last axis
/// runs fastest.
///
/// ```
/// # use halocline_plan::{Halo, PatternError, RegularGrid};
/// let grid = RegularGrid::new([100, 60, 40]).periodic([true, true, false]);
/// let pattern = grid.decompose(8)?.pattern_of(3, &Halo::uniform(1))?;
/// assert_eq!(pattern.peers.len(), 5);
/// # Ok::<(), PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegularGrid {
    extents: Vec<usize>,
    periodic: Option<Vec<bool>>,
    domains_per_rank: usize,
}

/// One box of an explicit decomposition: the owning rank, the first cell, and the number of cells
/// along each axis.
pub type OwnedBox = (usize, Vec<usize>, Vec<usize>);

impl RegularGrid {
    /// A grid of `extents` cells along each axis, not periodic, one domain per rank. The
    /// decompositions and [`RegularGrid::check`] refuse an invalid grid.
    pub fn new(extents: impl PerAxis<usize>) -> Self {
        Self { extents: extents.into_vec(), periodic: None, domains_per_rank: 1 }
    }

    /// Sets which axes are periodic: the first cell follows the last one.
    pub fn periodic(mut self, periodic: impl PerAxis<bool>) -> Self {
        self.periodic = Some(periodic.into_vec());
        self
    }

    /// Sets how many domains each rank owns (default 1). [`RegularGrid::decompose_boxes`] ignores
    /// it.
    pub fn domains_per_rank(mut self, domains: usize) -> Self {
        self.domains_per_rank = domains;
        self
    }

    /// Checks the grid: 1 to 4 axes, at least 1 cell along each, at most 2^60 cells in all, and one
    /// periodicity flag for each axis.
    pub fn check(&self) -> Result<(), PatternError> {
        self.checked_periodic().map(drop)
    }

    /// Decomposes the grid into one block per domain, minimising the number of cell faces that are
    /// cut; ties cut the first axes more. A periodic seam counts as a cut unless the axis is one
    /// block long. Blocks along an axis differ by at most one cell.
    ///
    /// Domains are numbered in row-major order and dealt out to the ranks in turn, so the domains
    /// of a rank are neighbours. All ranks compute the same result without communication.
    ///
    /// Errors: an invalid grid, 0 ranks, fewer cells than domains, or a number of domains whose
    /// factors do not fit the extents.
    pub fn decompose(&self, ranks: usize) -> Result<Decomposition, PatternError> {
        let periodic = self.checked_periodic()?;
        let domains = self.checked_domains(ranks)?;
        let cells = self.extents.iter().product();
        if domains > cells {
            return Err(PatternError::MoreRanksThanCells {
                ranks,
                domains_per_rank: self.domains_per_rank,
                extents: self.extents.clone(),
                cells,
            });
        }
        let Some(blocks) = least_surface(&self.extents, &periodic, domains) else {
            return Err(self.no_factors(ranks, &periodic, cells));
        };
        self.blocks(periodic, ranks, &blocks)
    }

    /// Decomposes the grid into `blocks` blocks along each axis. Blocks along an axis differ by at
    /// most one cell; domains are numbered as by [`RegularGrid::decompose`].
    ///
    /// Errors: an invalid grid, a list that is not one number for each axis, an axis with 0 blocks
    /// or more blocks than cells, or a number of blocks that is not ranks times domains per rank.
    pub fn decompose_into(
        &self,
        blocks_per_axis: impl PerAxis<usize>,
        ranks: usize,
    ) -> Result<Decomposition, PatternError> {
        let periodic = self.checked_periodic()?;
        let blocks = blocks_per_axis.into_vec();
        self.one_for_each_axis("numbers of blocks", blocks.len())?;
        for (axis, (&blocks, &cells)) in blocks.iter().zip(&self.extents).enumerate() {
            if blocks == 0 || blocks > cells {
                return Err(PatternError::BlocksOnAxis { axis, blocks, cells });
            }
        }
        self.blocks(periodic, ranks, &blocks)
    }

    /// Decomposes the grid at explicit cuts: for each axis the ascending positions at which a new
    /// block starts. An axis without cuts is one block; cutting 10 cells at `[3, 7]` makes blocks
    /// of 3, 4 and 3 cells. Domains are numbered as by [`RegularGrid::decompose`].
    ///
    /// Errors: an invalid grid, a list that is not one entry for each axis, a cut that lies outside
    /// the axis or does not ascend, or a number of blocks that is not ranks times domains per rank.
    pub fn decompose_at(
        &self,
        cuts: impl Into<Vec<Vec<usize>>>,
        ranks: usize,
    ) -> Result<Decomposition, PatternError> {
        let periodic = self.checked_periodic()?;
        let cuts = cuts.into();
        self.one_for_each_axis("lists of cuts", cuts.len())?;
        let mut axes = Vec::with_capacity(cuts.len());
        for (axis, (cuts, &cells)) in cuts.into_iter().zip(&self.extents).enumerate() {
            let mut starts = vec![0];
            for cut in cuts {
                let after = starts.last().copied().unwrap_or(0);
                if cut <= after || cut >= cells {
                    return Err(PatternError::Cut { axis, cut, after, cells });
                }
                starts.push(cut);
            }
            axes.push(Cuts::At { starts, cells });
        }
        self.cartesian(periodic, ranks, axes)
    }

    /// Decomposes the grid into arbitrary boxes; box i is domain i. A rank may own any number of
    /// boxes, including 0. Takes memory proportional to the number n of boxes, and time n log n.
    ///
    /// Errors: an invalid grid, 0 ranks, a box of a rank that does not exist, a box that is empty,
    /// reaches out of the grid or has another number of axes, two boxes that overlap, or a cell in
    /// no box.
    pub fn decompose_boxes(&self, boxes: Vec<OwnedBox>, ranks: usize) -> Result<Decomposition, PatternError> {
        let periodic = self.checked_periodic()?;
        if ranks == 0 {
            return Err(PatternError::Zero { what: "ranks" });
        }
        let boxes = BoxList::new(boxes, &self.extents, ranks)?;
        Ok(Decomposition::new(self.extents.clone(), periodic, ranks, Kind::Boxes(boxes.into())))
    }

    fn blocks(
        &self,
        periodic: Vec<bool>,
        ranks: usize,
        blocks: &[usize],
    ) -> Result<Decomposition, PatternError> {
        let even = |(&cells, &blocks): (&usize, &usize)| Cuts::Even { cells, blocks, more: 0 };
        self.cartesian(periodic, ranks, self.extents.iter().zip(blocks).map(even).collect())
    }

    fn cartesian(
        &self,
        periodic: Vec<bool>,
        ranks: usize,
        axes: Vec<Cuts>,
    ) -> Result<Decomposition, PatternError> {
        let domains = self.checked_domains(ranks)?;
        let blocks: Vec<usize> = axes.iter().map(Cuts::blocks).collect();
        // No overflow: a grid has at least as many cells as blocks.
        let count = blocks.iter().product();
        if count != domains {
            let domains_per_rank = self.domains_per_rank;
            return Err(PatternError::BlocksForRanks { blocks, count, ranks, domains_per_rank, domains });
        }
        let blocks = Blocks { axes, per_rank: self.domains_per_rank };
        Ok(Decomposition::new(self.extents.clone(), periodic, ranks, Kind::Blocks(blocks)))
    }

    /// Checks the grid. If it passes, the product of the extents does not overflow.
    fn checked_periodic(&self) -> Result<Vec<bool>, PatternError> {
        if !(1..=4).contains(&self.extents.len()) {
            return Err(PatternError::GridAxes(self.extents.len()));
        }
        if let Some(axis) = self.extents.iter().position(|&cells| cells == 0) {
            return Err(PatternError::EmptyAxis { axis });
        }
        checked_cells(&self.extents)?;
        let periodic = self.periodic.clone().unwrap_or_else(|| vec![false; self.extents.len()]);
        self.one_for_each_axis("flags of periodicity", periodic.len())?;
        Ok(periodic)
    }

    fn one_for_each_axis(&self, what: &'static str, given: usize) -> Result<(), PatternError> {
        match self.extents.len() {
            axes if axes == given => Ok(()),
            axes => Err(PatternError::AxisCount { what, given, axes }),
        }
    }

    fn checked_domains(&self, ranks: usize) -> Result<usize, PatternError> {
        if ranks == 0 {
            return Err(PatternError::Zero { what: "ranks" });
        }
        if self.domains_per_rank == 0 {
            return Err(PatternError::Zero { what: "domains per rank" });
        }
        ranks.checked_mul(self.domains_per_rank).filter(|&domains| domains <= MAX_DOMAINS).ok_or(
            PatternError::TooManyDomains {
                ranks,
                domains_per_rank: self.domains_per_rank,
                most: MAX_DOMAINS,
            },
        )
    }

    /// An error that names the nearest numbers of ranks that fit.
    fn no_factors(&self, ranks: usize, periodic: &[bool], cells: usize) -> PatternError {
        let per_rank = self.domains_per_rank;
        let fits = |&ranks: &usize| least_surface(&self.extents, periodic, ranks * per_rank).is_some();
        let fewer = (1..ranks).rev().take(SUGGESTIONS_TRIED).find(fits);
        let more = (ranks + 1..=cells.min(MAX_DOMAINS) / per_rank).take(SUGGESTIONS_TRIED).find(fits);
        PatternError::NoFactors {
            domains: ranks * per_rank,
            extents: self.extents.clone(),
            ranks,
            fitting: fewer.into_iter().chain(more).collect(),
        }
    }
}

/// Checks that the number of cells is at most [`MAX_CELLS`].
pub(crate) fn checked_cells(extents: &[usize]) -> Result<(), PatternError> {
    let more = |cells: usize, &extent: &usize| cells.checked_mul(extent).filter(|&cells| cells <= MAX_CELLS);
    match extents.iter().try_fold(1, more) {
        Some(_) => Ok(()),
        None => Err(PatternError::GridTooLarge { extents: extents.to_vec() }),
    }
}

/// The blocks along each axis, `domains` in all, that cut through the fewest faces; `None` if no
/// factors fit the extents.
pub(crate) fn least_surface(extents: &[usize], periodic: &[bool], domains: usize) -> Option<Vec<usize>> {
    let cells: u128 = extents.iter().map(|&n| n as u128).product();
    let mut search = Search {
        extents,
        cut_cells: extents.iter().map(|&n| cells / n as u128).collect(),
        periodic,
        // Largest first, so that the first of equals cuts the first axes more.
        divisors: divisors(domains),
        blocks: vec![1; extents.len()],
        best: None,
    };
    search.axis(0, domains, 0);
    search.best.map(|(_, blocks)| blocks)
}

struct Search<'a> {
    extents: &'a [usize],
    /// Number of faces that one cut through each axis makes.
    cut_cells: Vec<u128>,
    periodic: &'a [bool],
    divisors: Vec<usize>,
    blocks: Vec<usize>,
    best: Option<(u128, Vec<usize>)>,
}

impl Search<'_> {
    /// Tries every split of `axis` and the later axes into `domains` blocks; `surface` faces are
    /// cut already.
    fn axis(&mut self, axis: usize, domains: usize, surface: u128) {
        if self.best.as_ref().is_some_and(|(best, _)| surface >= *best) {
            return;
        }
        if axis == self.extents.len() {
            self.best = Some((surface, self.blocks.clone()));
        } else if axis + 1 == self.extents.len() {
            self.cut(axis, domains, domains, surface);
        } else {
            for at in 0..self.divisors.len() {
                self.cut(axis, self.divisors[at], domains, surface);
            }
        }
    }

    /// Splits `axis` into that many blocks, if they fit, and continues with the next axis.
    fn cut(&mut self, axis: usize, blocks: usize, domains: usize, surface: u128) {
        if blocks <= self.extents[axis] && domains.is_multiple_of(blocks) {
            let cuts = if self.periodic[axis] && blocks > 1 { blocks } else { blocks - 1 };
            self.blocks[axis] = blocks;
            self.axis(axis + 1, domains / blocks, surface + cuts as u128 * self.cut_cells[axis]);
        }
    }
}

/// All divisors of a positive number, largest first.
fn divisors(number: usize) -> Vec<usize> {
    let small: Vec<usize> =
        (1..).take_while(|d| *d <= number / d).filter(|d| number.is_multiple_of(*d)).collect();
    let large = small.iter().map(|d| number / d).filter(|d| d * d > number);
    large.chain(small.iter().rev().copied()).collect()
}
