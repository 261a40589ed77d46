//! Which elements of an array an exchange leaves unchanged.

use crate::copy::CellLayout;
use crate::{BoxCells, Cells, DomainShape, Layout, LayoutError, Run};
use std::ops::Range;

/// The elements of the owned cells of a domain, without cells that an exchange fills.
///
/// An element is identified by its position: the element at the lowest address has position 0, and
/// gaps of the layout count. Strides are whole elements.
#[derive(Debug, Clone)]
pub struct OwnedElements {
    /// Bytes per element.
    size: usize,
    /// Coarsest first.
    axes: Vec<Axis>,
    /// The owned index ranges of each dimension of the array, in its order; one without any if no element is owned.
    runs: Vec<Vec<Range<usize>>>,
}

/// One dimension of the array; indices are reversed if its stride is negative.
#[derive(Debug, Clone)]
struct Axis {
    /// Step in bytes.
    step: usize,
    /// The owned index ranges, ascending, none of them empty.
    runs: Vec<Range<usize>>,
    /// The finer dimensions are owned completely and fill a step without a gap.
    is_dense_below: bool,
}

impl OwnedElements {
    /// The owned elements of an array of the domain `shape`; `filled` are the cells that the
    /// exchange fills.
    ///
    /// The shape of an unstructured domain does not state which cells are owned unless they come
    /// first in local order. If halo cells are interleaved with them, all cells that are not filled
    /// count as owned.
    pub fn new<'a>(
        layout: &Layout,
        shape: &DomainShape,
        filled: impl Iterator<Item = &'a Cells>,
    ) -> Result<Self, LayoutError> {
        let of_axes = match shape {
            DomainShape::Regular { owned, .. } => {
                let cells = CellLayout::new(layout, shape)?;
                let origins: Vec<i64> = cells.axes.iter().map(|axis| axis.origin).collect();
                of_regular(owned, &origins, filled)
            }
            DomainShape::Unstructured { owned, cells, .. } => vec![of_list(*owned, *cells, filled)],
        };
        let dims = layout.axes(shape.axes())?;
        let mut runs: Vec<Vec<Range<usize>>> =
            layout.extents().iter().map(|&extent| std::iter::once(0..extent).collect()).collect();
        dims.into_iter().zip(of_axes).for_each(|(dim, of_axis)| runs[dim] = of_axis);
        Ok(Self::of(layout, runs))
    }

    fn of(layout: &Layout, runs: Vec<Vec<Range<usize>>>) -> Self {
        let size = layout.element().size();
        if layout.is_empty() || runs.iter().any(Vec::is_empty) {
            let nothing = Axis { step: 1, runs: Vec::new(), is_dense_below: false };
            return Self { size, axes: vec![nothing], runs };
        }
        let mut dims: Vec<usize> = (0..runs.len()).filter(|&dim| layout.extents()[dim] > 1).collect();
        // Finest first.
        dims.sort_by_key(|&dim| layout.strides()[dim].unsigned_abs());
        let mut block = Some(size);
        let mut axes: Vec<Axis> = Vec::with_capacity(dims.len());
        for dim in dims {
            let (extent, stride) = (layout.extents()[dim], layout.strides()[dim]);
            let mut runs = runs[dim].clone();
            if stride < 0 {
                runs = runs.iter().rev().map(|run| extent - run.end..extent - run.start).collect();
            }
            let step = stride.unsigned_abs();
            let is_dense_below = block == Some(step);
            let is_whole = is_dense_below && runs[0] == (0..extent);
            block = is_whole.then(|| extent * step);
            axes.push(Axis { step, runs, is_dense_below });
        }
        axes.reverse();
        Self { size, axes, runs }
    }

    /// Whether all elements of a box are owned: a range of indices for each dimension of the array.
    pub fn contains(&self, indices: &[Range<usize>]) -> bool {
        let is_owned = |(range, runs): (&Range<usize>, &Vec<Range<usize>>)| {
            runs.iter().any(|run| run.start <= range.start && range.end <= run.end)
        };
        indices.len() == self.runs.len()
            && (indices.iter().any(Range::is_empty) || indices.iter().zip(&self.runs).all(is_owned))
    }

    /// The number of consecutive owned elements from a position on; 0 if the element there is not
    /// owned.
    pub fn count_from(&self, position: usize) -> usize {
        let bytes =
            position.checked_mul(self.size).and_then(|offset| run_from(&self.axes, offset, self.size));
        bytes.map_or(0, |bytes| bytes / self.size)
    }

    /// All owned elements, as ranges of positions, ascending.
    pub fn rows(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = first_from(&self.axes, next)? / self.size;
            let row = start..start + self.count_from(start);
            next = row.end * self.size;
            Some(row).filter(|row| !row.is_empty())
        })
    }
}

/// The number of contiguous owned bytes from an offset on, if an owned element begins there.
fn run_from(axes: &[Axis], offset: usize, size: usize) -> Option<usize> {
    let Some((axis, finer)) = axes.split_first() else {
        return (offset == 0).then_some(size);
    };
    let (index, within) = (offset / axis.step, offset % axis.step);
    let run = &axis.runs[axis.runs.partition_point(|run| run.end <= index)..].first()?;
    let steps = run.end.checked_sub(index + 1).filter(|_| run.start <= index)?;
    let below = run_from(finer, within, size)?;
    Some(if axis.is_dense_below { below + steps * axis.step } else { below })
}

/// The first owned offset at or after a given one.
fn first_from(axes: &[Axis], offset: usize) -> Option<usize> {
    let Some((axis, finer)) = axes.split_first() else {
        return (offset == 0).then_some(0);
    };
    let (index, within) = (offset / axis.step, offset % axis.step);
    let mut runs = axis.runs[axis.runs.partition_point(|run| run.end <= index)..].iter();
    let run = runs.next()?;
    if run.start <= index
        && let Some(below) = first_from(finer, within)
    {
        return Some(index * axis.step + below);
    }
    let next = if index < run.start { run.start } else { index + 1 };
    let next = if next < run.end { next } else { runs.next()?.start };
    Some(next * axis.step + first_from(finer, 0)?)
}

/// The owned indices along each axis of a regular domain whose first owned cell is at `origins`: a box without the cells that
/// are filled.
fn of_regular<'a>(
    owned: &[usize],
    origins: &[i64],
    filled: impl Iterator<Item = &'a Cells>,
) -> Vec<Vec<Range<usize>>> {
    let left = unfilled(owned, filled);
    if left.iter().any(Range::is_empty) {
        return vec![Vec::new(); owned.len()];
    }
    let along = |(left, &origin): (&Range<usize>, &i64)| {
        let at = |cell: usize| (origin + cell as i64) as usize;
        std::iter::once(at(left.start)..at(left.end)).collect()
    };
    left.iter().zip(origins).map(along).collect()
}

/// A box of the owned cells of a regular domain, counted from the first, without those that are filled. Empty ranges if all are, as in a
/// redistribution.
pub(crate) fn unfilled<'a>(owned: &[usize], filled: impl Iterator<Item = &'a Cells>) -> Vec<Range<usize>> {
    let mut left: Vec<Range<i64>> = owned.iter().map(|&owned| 0..owned as i64).collect();
    for cells in filled {
        match cells {
            Cells::Box(cells) => cut(&mut left, cells),
            Cells::Runs(_) => return vec![0..0; owned.len()],
        }
    }
    if left.iter().any(Range::is_empty) {
        return vec![0..0; owned.len()];
    }
    left.into_iter().map(|left| left.start as usize..left.end as usize).collect()
}

/// Cuts a box at the side where it loses the fewest layers of cells, so that it does not meet `filled`.
fn cut(left: &mut [Range<i64>], filled: &BoxCells) {
    let end = |axis: usize| filled.low[axis] + filled.extent[axis] as i64;
    let meets = |(axis, left): (usize, &Range<i64>)| filled.low[axis] < left.end && end(axis) > left.start;
    if !left.iter().enumerate().all(meets) {
        return;
    }
    let cuts = (0..left.len()).flat_map(|axis| {
        let Range { start, end: stop } = left[axis];
        [(axis, start..filled.low[axis].max(start)), (axis, end(axis).min(stop)..stop)]
    });
    let lost = |(axis, kept): &(usize, Range<i64>)| {
        let all = left[*axis].end - left[*axis].start;
        // In thousandths of the box.
        (all - (kept.end - kept.start)) as i128 * 1000 / i128::from(all.max(1))
    };
    if let Some((axis, kept)) = cuts.min_by_key(lost) {
        left[axis] = kept;
    }
}

/// The owned indices of an unstructured domain.
fn of_list<'a>(owned: usize, cells: usize, filled: impl Iterator<Item = &'a Cells>) -> Vec<Range<usize>> {
    let runs = |cells: &'a Cells| match cells {
        Cells::Runs(runs) => &runs[..],
        Cells::Box(_) => &[],
    };
    let mut filled: Vec<Run> = filled.flat_map(runs).copied().collect();
    filled.sort_unstable_by_key(|run| run.start);
    let owned_first = filled.first().is_none_or(|run| run.start as usize >= owned);
    let end = if owned_first { owned } else { cells };
    let mut left = Vec::new();
    let mut next = 0;
    for run in filled.iter().filter(|run| (run.start as usize) < end) {
        let start = run.start as usize;
        if next < start {
            left.push(next..start);
        }
        next = start + run.len as usize;
    }
    if next < end {
        left.push(next..end);
    }
    left
}
