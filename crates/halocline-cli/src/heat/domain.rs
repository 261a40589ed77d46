//! The block of one rank, and the cells that the rank computes.

use super::stencil::{Block, Real};
use halocline::{Decomposition, DomainShape, Halo, PatternError};

/// The case that all ranks run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) decomposition: Decomposition,
    pub(super) periodic: [bool; 3],
    /// Width of the halo.
    pub(super) width: usize,
}

impl Case {
    pub(super) fn halo(&self) -> Halo {
        Halo::uniform(self.width)
    }

    /// Cells of the grid along each axis.
    pub(super) fn extents(&self) -> [usize; 3] {
        let extents = self.decomposition.extents();
        [extents[0], extents[1], extents[2]]
    }

    /// The block of a rank. Not collective.
    pub(super) fn domain(&self, rank: usize) -> Result<Domain, PatternError> {
        let pattern = self.decomposition.pattern_of(rank, &self.halo())?;
        Ok(Domain::new(self, &pattern.domains[0].1))
    }
}

/// A block of the grid, in an array that also has its halo.
#[derive(Debug, Clone)]
pub(super) struct Domain {
    /// The grid's coordinates of the array's first cell: a halo cell.
    first: [i64; 3],
    /// Cells of the array along each axis.
    pub(super) extents: [usize; 3],
    /// The owned cells, as a box of the array.
    pub(super) owned: Block,
    grid: [usize; 3],
    periodic: [bool; 3],
}

impl Domain {
    /// The domain of a pattern of a grid with three axes.
    pub(super) fn new(case: &Case, shape: &DomainShape) -> Self {
        let (mut first, mut extents) = ([0; 3], [1; 3]);
        let mut block = Block { low: [0; 3], high: [1; 3] };
        if let DomainShape::Regular { first: low, owned, halo } = shape {
            for axis in 0..3 {
                let (below, above) = halo[axis];
                first[axis] = low[axis] - below as i64;
                extents[axis] = below + owned[axis] + above;
                (block.low[axis], block.high[axis]) = (below, below + owned[axis]);
            }
        }
        Self { first, extents, owned: block, grid: case.extents(), periodic: case.periodic }
    }

    /// The owned cells whose neighbours no exchange fills.
    pub(super) fn interior(&self) -> Block {
        let mut block = self.owned;
        for axis in 0..3 {
            let [below, above] = self.is_border(axis);
            block.low[axis] += usize::from(!below);
            block.high[axis] -= usize::from(!above);
        }
        block
    }

    /// The owned cells and the adjacent cells beyond the grid. No exchange fills any of them.
    pub(super) fn still(&self) -> Block {
        let mut block = self.owned;
        for axis in 0..3 {
            let [below, above] = self.is_border(axis);
            block.low[axis] -= usize::from(below);
            block.high[axis] += usize::from(above);
        }
        block
    }

    /// Whether the block ends at a border of the grid, at its low and its high end along an axis.
    fn is_border(&self, axis: usize) -> [bool; 2] {
        let low = self.first[axis] + self.owned.low[axis] as i64;
        let high = self.first[axis] + self.owned.high[axis] as i64;
        [low == 0, high == self.grid[axis] as i64].map(|ends| ends && !self.periodic[axis])
    }

    /// The owned cells and `beyond` halo cells at each side, within the grid.
    pub(super) fn computed(&self, beyond: usize) -> Block {
        let mut block = self.owned;
        for axis in 0..3 {
            let (mut below, mut above) = (beyond, beyond);
            if !self.periodic[axis] {
                let low = self.first[axis] + block.low[axis] as i64;
                let high = self.first[axis] + block.high[axis] as i64;
                below = below.min(low as usize);
                above = above.min((self.grid[axis] as i64 - high) as usize);
            }
            block.low[axis] -= below;
            block.high[axis] += above;
        }
        block
    }

    /// Sets every cell of an array, halo included, to the initial temperature of field `field`. Cells beyond the grid keep it.
    pub(super) fn fill<T: Real>(&self, field: u32, cells: &mut [T]) {
        let coordinate = |axis: usize, at: usize| {
            let place = self.first[axis] + at as i64;
            if self.periodic[axis] { place.rem_euclid(self.grid[axis] as i64) } else { place }
        };
        let [_, ny, nz] = self.extents;
        for (row, cells) in cells.chunks_exact_mut(nz).enumerate() {
            let (x, y) = (coordinate(0, row / ny), coordinate(1, row % ny));
            for (z, cell) in cells.iter_mut().enumerate() {
                *cell = T::nearest(start([x, y, coordinate(2, z)], field));
            }
        }
    }
}

/// The initial temperature of a cell, from 0 to 1. Neighbours differ.
pub(super) fn start([x, y, z]: [i64; 3], field: u32) -> f64 {
    let mut mixed = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (y as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(21)
        ^ (z as u64).wrapping_mul(0x1656_67b1_9e37_79f9).rotate_left(42)
        ^ u64::from(field) << 56;
    // The finaliser of splitmix64.
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
}
