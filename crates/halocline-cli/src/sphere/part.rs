//! The scheme on the cells of one array: the rate of change of each owned cell.
//!
//! Advection is computed in flux form. The value at a side is that of the cell upstream plus a limited difference to the cell
//! downstream, of third order where the field is smooth (B. Koren, "A robust upwind discretization method for advection, diffusion and
//! source terms", 1993). The ratio of differences comes from the gradient upstream (M. S. Darwish and F. Moukalled, "TVD schemes for
//! unstructured grids", Int. J. Heat Mass Transfer 46 (2003)), fitted to the neighbours by least squares. Diffusion is the difference
//! of the two cells times the conductance of the side.
//!
//! **Equal bits.** The flow through a side follows from the shape of the cell with the lower global number, and gradients are summed in the
//! order of global numbers. So both cells of a side compute the same flux, and the result does not depend on the ranks.

use super::grid::{Arc, Grid, Polygon, distance};
use super::problem::Problem;
use crate::geometry::{Vector, cross, dot, minus, plus, times, unit};
use std::ops::Range;

/// The cells at the places of an array.
pub(super) struct LocalCells {
    /// The global number of each cell, by place; `None` where the array has no cell.
    pub(super) ids: Vec<Option<u32>>,
    /// Places of the owned cells.
    pub(super) owned: Vec<u32>,
    /// Places of the cells across the sides, by place: of owned cells in the order of their sides, of halo cells beside owned ones in any
    /// order.
    pub(super) neighbours: Vec<[Option<u32>; 4]>,
}

/// The owned cells of an array, and what the scheme needs of their neighbours.
pub(super) struct Part {
    owned: Vec<OwnedCell>,
    sides: Vec<Side>,
    /// The cells whose gradient is needed: none for diffusion.
    slopes: Vec<Slope>,
    terms: Vec<Term>,
    /// Cells of the array.
    places: usize,
}

/// An owned cell.
pub(super) struct OwnedCell {
    /// Its place in the array.
    pub(super) place: usize,
    /// Its global number.
    pub(super) id: usize,
    /// Its area.
    area: f64,
    /// Its part of the list of sides.
    sides: Range<usize>,
}

/// A side of an owned cell through which something flows.
struct Side {
    neighbour: usize,
    /// [`Problem::flow`] out of the cell.
    flow: f64,
    /// From the centre of the cell to that of the neighbour.
    step: Vector,
}

/// A cell whose gradient is needed.
struct Slope {
    place: usize,
    /// Its part of the list of terms.
    terms: Range<usize>,
}

/// A neighbour's share of a gradient: the weight times the difference of the values.
struct Term {
    neighbour: usize,
    weight: Vector,
}

impl Part {
    pub(super) fn new(grid: &dyn Grid, problem: &Problem, cells: &LocalCells) -> Self {
        let polygon = |id: &Option<u32>| id.map(|id| grid.polygon(id as usize));
        let shapes = Shapes { grid, cells, polygons: cells.ids.iter().map(polygon).collect() };
        let mut part = Self {
            owned: Vec::with_capacity(cells.owned.len()),
            sides: Vec::with_capacity(4 * cells.owned.len()),
            slopes: Vec::new(),
            terms: Vec::new(),
            places: cells.ids.len(),
        };
        let mut is_beside = vec![false; cells.ids.len()];
        for &place in &cells.owned {
            let place = place as usize;
            let Some((id, polygon)) = shapes.cell(place) else { continue };
            let first = part.sides.len();
            for (side, neighbour) in shapes.flowing_sides(place) {
                let flow = shapes.flow(problem, side, [place, neighbour]);
                let step = minus(shapes.centre(neighbour), polygon.centre());
                part.sides.push(Side { neighbour, flow, step });
                is_beside[neighbour] = true;
            }
            is_beside[place] = true;
            let sides = first..part.sides.len();
            part.owned.push(OwnedCell { place, id, area: polygon.area(), sides });
        }
        if matches!(problem, Problem::Rotation { .. }) {
            (0..is_beside.len())
                .filter(|&place| is_beside[place])
                .for_each(|place| part.add_slope(&shapes, place));
        }
        part
    }

    /// Fits the gradient of a cell to its neighbours by least squares, in the plane that touches the sphere at its centre.
    fn add_slope(&mut self, shapes: &Shapes<'_>, place: usize) {
        let centre = shapes.centre(place);
        // Any direction will do; this one is not that of a centre of a cell.
        let east = unit(cross([0.28, 0.96, 0.0], centre));
        let north = cross(centre, east);
        let mut neighbours: Vec<usize> = shapes.neighbours(place).collect();
        neighbours.sort_unstable_by_key(|&neighbour| shapes.cells.ids[neighbour]);
        let steps: Vec<[f64; 2]> = neighbours
            .iter()
            .map(|&neighbour| minus(shapes.centre(neighbour), centre))
            .map(|step| [dot(step, east), dot(step, north)])
            .collect();
        let sum = |a: usize, b: usize| -> f64 { steps.iter().map(|step| step[a] * step[b]).sum() };
        let (xx, xy, yy) = (sum(0, 0), sum(0, 1), sum(1, 1));
        let determinant = xx * yy - xy * xy;
        let first = self.terms.len();
        for (&neighbour, [x, y]) in neighbours.iter().zip(&steps) {
            let to_east = (yy * x - xy * y) / determinant;
            let to_north = (xx * y - xy * x) / determinant;
            let weight = plus(times(to_east, east), times(to_north, north));
            self.terms.push(Term { neighbour, weight });
        }
        self.slopes.push(Slope { place, terms: first..self.terms.len() });
    }

    /// The owned cells, in the order of [`Part::rates`].
    pub(super) fn owned(&self) -> &[OwnedCell] {
        &self.owned
    }

    /// The longest time in which no owned cell loses more than it holds, days; infinity without owned cells.
    pub(super) fn longest_step(&self) -> f64 {
        let time = |cell: &OwnedCell| {
            let out: f64 = self.sides[cell.sides.clone()].iter().map(|side| side.flow.max(0.0)).sum();
            if out > 0.0 { cell.area / out } else { f64::INFINITY }
        };
        self.owned.iter().map(time).fold(f64::INFINITY, f64::min)
    }

    /// The rate of change of each owned cell, per day. `values` are those of the array, `gradients` is memory to work in.
    pub(super) fn rates(&self, values: &[f64], gradients: &mut Vec<Vector>, rates: &mut Vec<f64>) {
        self.set_gradients(values, gradients);
        let is_advection = !self.slopes.is_empty();
        rates.clear();
        rates.extend(self.owned.iter().map(|cell| {
            let here = values[cell.place];
            let mut outflow = 0.0;
            for side in &self.sides[cell.sides.clone()] {
                let there = values[side.neighbour];
                outflow += match is_advection {
                    false => side.flow * (here - there),
                    true if side.flow > 0.0 => {
                        side.flow * at_side(here, there, dot(gradients[cell.place], side.step))
                    }
                    // The same numbers as the neighbour has for the same side, whose step is the opposite one.
                    true => side.flow * at_side(there, here, -dot(gradients[side.neighbour], side.step)),
                };
            }
            // Land may have no area.
            if cell.sides.is_empty() { 0.0 } else { -outflow / cell.area }
        }));
    }

    fn set_gradients(&self, values: &[f64], gradients: &mut Vec<Vector>) {
        gradients.resize(if self.slopes.is_empty() { 0 } else { self.places }, [0.0; 3]);
        for slope in &self.slopes {
            let here = values[slope.place];
            let terms = self.terms[slope.terms.clone()].iter();
            gradients[slope.place] = terms
                .fold([0.0; 3], |sum, term| plus(sum, times(values[term.neighbour] - here, term.weight)));
        }
    }
}

/// The value at a side, from those of the cells upstream and downstream. `rise` is that of the gradient upstream over the distance of
/// both.
fn at_side(upstream: f64, downstream: f64, rise: f64) -> f64 {
    let difference = downstream - upstream;
    // On a line of equal cells, the difference between the cell upstream and the one before it.
    let before = 2.0 * rise - difference;
    let sign = difference.signum();
    let (size, before) = (difference.abs(), before * sign);
    let limited = (2.0 * before).min((2.0 * size + before) / 3.0).min(2.0 * size).max(0.0);
    upstream + 0.5 * sign * limited
}

/// The shapes of the cells of an array.
struct Shapes<'a> {
    grid: &'a dyn Grid,
    cells: &'a LocalCells,
    polygons: Vec<Option<Polygon>>,
}

impl Shapes<'_> {
    /// Global number and shape of the cell at a place.
    fn cell(&self, place: usize) -> Option<(usize, &Polygon)> {
        Some((self.cells.ids[place]? as usize, self.polygons[place].as_ref()?))
    }

    fn centre(&self, place: usize) -> Vector {
        self.polygons[place].as_ref().map_or([0.0; 3], Polygon::centre)
    }

    /// The places of the neighbours of a cell.
    fn neighbours(&self, place: usize) -> impl Iterator<Item = usize> {
        let around = self.cells.neighbours[place].into_iter().flatten().map(|neighbour| neighbour as usize);
        around.filter(|&neighbour| self.polygons[neighbour].is_some())
    }

    /// The sides of an owned cell through which something may flow, and the neighbours there.
    fn flowing_sides(&self, place: usize) -> Vec<(Arc, usize)> {
        let Some((_, polygon)) = self.cell(place).filter(|(id, _)| !self.grid.is_land(*id)) else {
            return Vec::new();
        };
        let sides = polygon.sides().zip(self.cells.neighbours[place]);
        let flows = |(side, neighbour): (Arc, Option<u32>)| {
            let neighbour = neighbour? as usize;
            let (there, _) = self.cell(neighbour)?;
            (!side.is_point() && !self.grid.is_land(there)).then_some((side, neighbour))
        };
        sides.filter_map(flows).collect()
    }

    /// The flow through a side of a cell to its neighbour, from the shape of the one with the lower number.
    fn flow(&self, problem: &Problem, side: Arc, [place, neighbour]: [usize; 2]) -> f64 {
        let centres = [place, neighbour].map(|place| self.centre(place));
        if self.cells.ids[place] < self.cells.ids[neighbour] {
            return problem.flow(&side, centres);
        }
        let middle = side.middle();
        let nearer = |a: &Arc, b: &Arc| distance(a.middle(), middle).total_cmp(&distance(b.middle(), middle));
        let there = self.polygons[neighbour].as_ref().and_then(|polygon| polygon.sides().min_by(nearer));
        let there = there.unwrap_or(side);
        match problem {
            Problem::Rotation { .. } => -problem.flow(&there, centres),
            Problem::Diffusion { .. } => problem.flow(&there, centres),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_field_is_exact_at_sides_and_extremes_are_not_exceeded() {
        assert_eq!(at_side(1.0, 3.0, 2.0), 2.0);
        assert_eq!(at_side(3.0, 1.0, -2.0), 2.0);
        // Third order on a parabola: the mean of x^2 over the cells -1, 0, 1 gives the value at 1/2.
        let mean = |x: f64| x * x + 1.0 / 12.0;
        assert!((at_side(mean(2.0), mean(3.0), (mean(3.0) - mean(1.0)) / 2.0) - 6.25).abs() < 1e-12);
        // A hill, a valley and a flat.
        assert_eq!(at_side(5.0, 1.0, 0.0), 5.0);
        assert_eq!(at_side(1.0, 5.0, 0.0), 1.0);
        assert_eq!(at_side(2.0, 2.0, 7.0), 2.0);
    }

    #[test]
    fn values_that_are_no_numbers_stay_visible() {
        assert!(at_side(f64::NAN, 1.0, 1.0).is_nan());
        assert!(at_side(1.0, f64::NAN, 1.0).is_nan());
    }
}
