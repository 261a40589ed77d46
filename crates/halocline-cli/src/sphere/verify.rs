//! The comparison with a run without exchanges.

use super::grid::{self, Grid};
use super::part::{LocalCells, Part};
use super::problem::Problem;
use super::simulation::{Steps, simulate_whole};
use crate::verdict::Verdict;

/// Repeats all steps on this thread, and compares the result with `found`: the values of all cells. There is no halo: the neighbours of a
/// cell are those that share the middle of a side with it.
pub(super) fn verify(
    (grid, problem): (&dyn Grid, &Problem),
    steps: Steps,
    found: &[f64],
    tick: impl FnMut(),
) -> Verdict {
    let all = simulate_whole((grid, problem), &whole(grid, problem), steps, tick);
    let due = (0..grid.cells()).map(|cell| all[grid.original(cell)]);
    let (mut max_abs_diff, mut different) = (0f64, 0);
    for (due, &found) in due.zip(found) {
        let is_nan = due.is_nan() || found.is_nan();
        max_abs_diff = max_abs_diff.max(if is_nan { f64::INFINITY } else { (due - found).abs() });
        different += u64::from(due.to_bits() != found.to_bits());
    }
    Verdict::Compared { max_abs_diff, different }
}

/// The part that has all cells, each at the place of its global number. It owns those that repeat no other cell.
pub(super) fn whole(grid: &dyn Grid, problem: &Problem) -> Part {
    let cells = 0..grid.cells() as u32;
    let cells = LocalCells {
        ids: cells.clone().map(Some).collect(),
        owned: cells.filter(|&cell| grid.original(cell as usize) == cell as usize).collect(),
        neighbours: grid::neighbours(grid),
    };
    Part::new(grid, problem, &cells)
}
