//! The stencil, and sweeps of it over boxes of cells.

use halocline::{Array, Element};
use std::ops::{Add, Mul, Range, Sub};

/// Numbers that heat is computed in.
pub(super) trait Real:
    Element + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + From<f32> + Into<f64>
{
    /// What they are called in names of kernels.
    const NAME: &'static str;

    /// The nearest of these numbers.
    fn nearest(value: f64) -> Self;
}

impl Real for f64 {
    const NAME: &'static str = "f64";

    fn nearest(value: f64) -> Self {
        value
    }
}

impl Real for f32 {
    const NAME: &'static str = "f32";

    fn nearest(value: f64) -> Self {
        value as f32
    }
}

/// Diffusivity x time step / cell width^2; explicit steps are stable up to 1/6.
const RATE: f32 = 0.125;

/// The temperature of a cell after a step: `pairs` are its neighbours along x, y and z. The one place
/// where it is computed on a CPU, so that all sweeps round alike; `heat.cu` does the same operations in the same order.
#[inline(always)]
pub(super) fn step<T: Real>(cell: T, [x, y, z]: [[T; 2]; 3]) -> T {
    let around = ((x[0] + x[1]) + (y[0] + y[1])) + (z[0] + z[1]);
    cell + T::from(RATE) * (around - T::from(6.0) * cell)
}

/// A box of cells of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// First cell along each axis.
    pub(super) low: [usize; 3],
    /// The cell after the last.
    pub(super) high: [usize; 3],
}

impl Block {
    /// Cells along an axis.
    pub(super) fn extent(&self, axis: usize) -> usize {
        self.high[axis].saturating_sub(self.low[axis])
    }

    pub(super) fn cells(&self) -> usize {
        (0..3).map(|axis| self.extent(axis)).product()
    }

    /// The rest of this box without `inner`, which lies within it, as at most six boxes. Those at the ends
    /// of the first axis are the longest.
    pub(super) fn without(&self, inner: &Self) -> Vec<Self> {
        if inner.cells() == 0 {
            return vec![*self];
        }
        let mut rest = *self;
        let mut boxes = Vec::with_capacity(6);
        for axis in 0..3 {
            let (mut below, mut above) = (rest, rest);
            below.high[axis] = inner.low[axis];
            above.low[axis] = inner.high[axis];
            boxes.extend([below, above].into_iter().filter(|one| one.cells() > 0));
            (rest.low[axis], rest.high[axis]) = (inner.low[axis], inner.high[axis]);
        }
        boxes
    }
}

/// Cells of an array in C order that may be read.
pub(super) trait Cells<T> {
    /// Cells `z` of the row at `x`, `y`.
    fn row(&self, x: usize, y: usize, z: Range<usize>) -> &[T];
}

/// All cells of an array of these extents.
pub(super) struct All<'a, T> {
    pub(super) cells: &'a [T],
    pub(super) extents: [usize; 3],
}

impl<T> Cells<T> for All<'_, T> {
    #[inline]
    fn row(&self, x: usize, y: usize, z: Range<usize>) -> &[T] {
        let row = (x * self.extents[1] + y) * self.extents[2];
        &self.cells[row + z.start..row + z.end]
    }
}

/// Those cells of an array that no exchange writes, also while one is in flight.
pub(super) struct Still<'a, T> {
    array: &'a Array<T>,
    still: Block,
}

impl<'a, T: Element> Still<'a, T> {
    /// A box of cells of an array in C order.
    ///
    /// # Safety
    /// No exchange of the array fills any of the cells of `still`, and nobody takes a writing guard of it as
    /// long as this lives.
    pub(super) unsafe fn new(array: &'a Array<T>, still: Block) -> Self {
        let extents = array.layout().extents();
        assert!(extents.len() == 3 && (0..3).all(|axis| still.high[axis] <= extents[axis]));
        Self { array, still }
    }
}

impl<T: Element> Cells<T> for Still<'_, T> {
    #[inline]
    fn row(&self, x: usize, y: usize, z: Range<usize>) -> &[T] {
        let Block { low, high } = self.still;
        assert!((low[0]..high[0]).contains(&x) && (low[1]..high[1]).contains(&y));
        assert!(low[2] <= z.start && z.start <= z.end && z.end <= high[2]);
        let extents = self.array.layout().extents();
        let at = (x * extents[1] + y) * extents[2] + z.start;
        // SAFETY: the cells lie within the array (asserted here and in `new`), in C order, aligned and
        // initialised as the elements of an `Array` are. Nobody writes any of them, by the promise given to
        // `new`.
        unsafe { std::slice::from_raw_parts(self.array.base().cast::<T>().add(at).as_ptr(), z.end - z.start) }
    }
}

/// Bytes that a tile of four planes may take up: half of a small second-level cache.
const TILE: usize = 256 << 10;

/// Computes the cells of `block` in `to`, an array of these extents. Planes go by in tiles along y, so that
/// each cell comes once from memory and is found in the cache when the planes beside it are computed.
pub(super) fn sweep<T: Real>(from: &impl Cells<T>, to: &mut [T], extents: [usize; 3], block: &Block) {
    let Block { low, high } = *block;
    let tile = (TILE / (4 * size_of::<T>() * block.extent(2).max(1))).max(1);
    for first in (low[1]..high[1]).step_by(tile) {
        for x in low[0]..high[0] {
            for y in first..high[1].min(first + tile) {
                let z = || low[2]..high[2];
                let row = (x * extents[1] + y) * extents[2];
                line(
                    &mut to[row + low[2]..row + high[2]],
                    from.row(x, y, low[2] - 1..high[2] + 1),
                    [
                        [from.row(x - 1, y, z()), from.row(x + 1, y, z())],
                        [from.row(x, y - 1, z()), from.row(x, y + 1, z())],
                    ],
                );
            }
        }
    }
}

/// One row. `cells` has one more at each end; `pairs` are the rows beside it along x and y.
fn line<T: Real>(to: &mut [T], cells: &[T], pairs: [[&[T]; 2]; 2]) {
    let len = to.len();
    // Slices of one length: no bounds are checked in the loop, and it is vectorised.
    let [[x0, x1], [y0, y1]] = pairs.map(|pair| pair.map(|row| &row[..len]));
    let (before, here, after) = (&cells[..len], &cells[1..len + 1], &cells[2..len + 2]);
    for z in 0..len {
        to[z] = step(here[z], [[x0[z], x1[z]], [y0[z], y1[z]], [before[z], after[z]]]);
    }
}

/// As [`sweep`], for boxes of a few cells along z, where rows are not worth their beginning: `depths` at the
/// same rows of `block`. The end of a row and the begin of the next one share cache lines, so that opposite
/// faces go together.
pub(super) fn sweep_thin<T: Real>(from: &All<'_, T>, to: &mut [T], block: &Block, depths: &[Range<usize>]) {
    let Block { low, high } = *block;
    let (along_y, along_x) = (from.extents[2], from.extents[1] * from.extents[2]);
    let cells = from.cells;
    for x in low[0]..high[0] {
        for y in low[1]..high[1] {
            for z in depths.iter().flat_map(|depth| depth.clone()) {
                let at = x * along_x + y * along_y + z;
                let pair = |by: usize| [cells[at - by], cells[at + by]];
                to[at] = step(cells[at], [pair(along_x), pair(along_y), pair(1)]);
            }
        }
    }
}

/// Cells along z up to which a box is thin.
pub(super) const THIN: usize = 4;
