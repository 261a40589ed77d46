//! The stencil, and sweeps of it over boxes of cells.

use halocline::{Array, Element};
use std::ops::{Add, Mul, Range, Sub};

/// Element type of the temperature.
pub(super) trait Real:
    Element + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + From<f32> + Into<f64>
{
    /// The suffix of the kernels' names.
    const NAME: &'static str;

    /// Rounds `value` to this type.
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

/// The temperature of a cell after a step, from its neighbours along x, y and z. All sweeps on a CPU call this function, so that they
/// round alike. `heat.cu` does the same operations in the same order.
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

    /// This box without `inner`, which lies within it, as at most six boxes. The boxes at the ends of the first axis are the largest.
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

/// Read access to cells of an array in C order.
pub(super) trait Cells<T> {
    /// The cells `z` of the row at `x`, `y`.
    fn row(&self, x: usize, y: usize, z: Range<usize>) -> &[T];
}

/// All cells of an array with these extents.
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

/// The cells of an array that no exchange writes. They can be read while an exchange is in flight.
pub(super) struct Still<'a, T> {
    array: &'a Array<T>,
    still: Block,
}

impl<'a, T: Element> Still<'a, T> {
    /// A box of cells of an array in C order.
    ///
    /// # Safety
    /// No exchange of the array fills a cell of `still`, and no write guard of the array exists while this value lives.
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
        // SAFETY: the cells lie within the array (asserted here and in `new`), which is in C order, aligned and initialised. By the
        // contract of `new` neither an exchange nor a write guard writes them.
        unsafe { std::slice::from_raw_parts(self.array.base().cast::<T>().add(at).as_ptr(), z.end - z.start) }
    }
}

/// Bytes of a tile of four planes: half of a small second-level cache.
const TILE: usize = 256 << 10;

/// Computes the cells of `block` in `to`, an array with these extents. It goes through the planes in tiles along y, so that each cell
/// is loaded from memory once and is in the cache when the adjacent planes are computed.
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

/// Computes one row. `cells` has one more cell at each end; `pairs` are the adjacent rows along x and y.
fn line<T: Real>(to: &mut [T], cells: &[T], pairs: [[&[T]; 2]; 2]) {
    let len = to.len();
    // All slices have one length, so that the compiler removes the bounds checks and vectorises the loop.
    let [[x0, x1], [y0, y1]] = pairs.map(|pair| pair.map(|row| &row[..len]));
    let (before, here, after) = (&cells[..len], &cells[1..len + 1], &cells[2..len + 2]);
    for z in 0..len {
        to[z] = step(here[z], [[x0[z], x1[z]], [y0[z], y1[z]], [before[z], after[z]]]);
    }
}

/// As [`sweep`], for boxes with a few cells along z: the ranges `depths` in the rows of `block`. It computes opposite faces together,
/// because the end of a row and the start of the next row share cache lines.
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

/// Maximum number of cells along z of a thin box.
pub(super) const THIN: usize = 4;
