//! Mass and error of a field.

use super::grid::Grid;
use super::problem::Problem;
use crate::stats::Sum;
use serde::Serialize;

/// Relative changes of the mass up to this are rounding: each step rounds every cell a few dozen times, by at most 1e-16 of its value.
/// One flux that is lost or counted twice changes the mass by far more.
pub(super) const ROUNDING: f64 = 1e-13;

/// Mass and error of the field at the end.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Norms {
    /// Relative change of the mass, without sign.
    #[serde(rename = "conservation")]
    pub(super) mass_change: f64,
    /// Sum of the absolute errors over the sum of the exact values, both times the area (Williamson et al. 1992, equation 82).
    pub(super) l1: f64,
    /// The same for squares (equation 83).
    pub(super) l2: f64,
    /// The largest error over the largest exact value (equation 84).
    pub(super) linf: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Norms {
    /// Of the values of all cells after some days.
    pub(super) fn new(grid: &dyn Grid, problem: &Problem, values: &[f64], days: f64) -> Self {
        let mut sums: [Sum; 6] = Default::default();
        let (mut error_most, mut exact_most) = (0f64, 0f64);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        let is_counted = |cell: usize| !grid.is_land(cell) && grid.original(cell) == cell;
        for (cell, &value) in values.iter().enumerate().filter(|(cell, _)| is_counted(*cell)) {
            let polygon = grid.polygon(cell);
            let (area, centre) = (polygon.area(), polygon.centre());
            let (start, exact) = (problem.bell().value(centre), problem.exact(centre, days));
            let error = (value - exact).abs();
            let parts = [value - start, start, error, exact.abs(), error * error, exact * exact];
            sums.iter_mut().zip(parts).for_each(|(sum, part)| sum.add(area * part));
            // A value that is not a number is the largest error.
            error_most = if error.is_nan() { f64::INFINITY } else { error_most.max(error) };
            exact_most = exact_most.max(exact.abs());
            (min, max) = (min.min(value), max.max(value));
        }
        let [change, mass, error, exact, squared_error, squared_exact] = sums.map(|sum| sum.value());
        Self {
            mass_change: (change / mass).abs(),
            l1: error / exact,
            l2: (squared_error / squared_exact).sqrt(),
            linf: error_most / exact_most,
            min,
            max,
        }
    }

    /// Whether the mass is conserved.
    pub(super) fn is_conserved(&self) -> bool {
        self.mass_change <= ROUNDING
    }
}
