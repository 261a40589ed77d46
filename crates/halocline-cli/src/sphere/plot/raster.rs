//! The cell that each sample of a globe shows.

use super::super::grid::{Grid, distance};
use super::LAND;
use crate::geometry::{Vector, cross, dot, on_sphere, plus, times, unit};
use crate::plot::colour::Rgb;

/// Samples along each axis of a pixel.
pub(super) const SAMPLES: usize = 2;

/// The directions of a view of the globe from far away.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) right: Vector,
    pub(super) up: Vector,
    /// To the eye.
    pub(super) ahead: Vector,
}

impl View {
    /// From above a place, in degrees; north is up.
    pub(super) fn above(longitude: f64, latitude: f64) -> Self {
        let ahead = on_sphere(longitude, latitude);
        let right = unit(cross([0.0, 0.0, 1.0], ahead));
        Self { right, up: cross(ahead, right), ahead }
    }

    /// The point of the sphere at a place of the picture, in radii.
    fn point(&self, [x, y]: [f64; 2]) -> Option<Vector> {
        let square = 1.0 - x * x - y * y;
        let sum = || plus(plus(times(x, self.right), times(y, self.up)), times(square.sqrt(), self.ahead));
        (square > 0.0).then(sum)
    }

    /// The place of a point in the picture, in radii.
    fn place(&self, point: Vector) -> [f64; 2] {
        [dot(point, self.right), dot(point, self.up)]
    }
}

/// A point in a cell: in the triangle of its centre and one of its sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) cell: u32,
    pub(super) side: u8,
    /// Weights of the centre and of the ends of the side in a linear interpolation.
    pub(super) weights: [f32; 3],
}

/// A square of samples, by rows from the top.
pub(super) struct Raster {
    pub(super) view: View,
    /// Samples along an axis.
    pub(super) width: usize,
    pub(super) samples: Vec<Option<Hit>>,
    /// The colour where no cell lies: that of land, if the grid leaves land out.
    ground: Option<Rgb>,
    /// How bright the light makes each sample: it comes from above, on the left.
    pub(super) brightness: Vec<f32>,
}

impl Raster {
    /// The view of a grid, `size` pixels wide.
    pub(super) fn new(grid: &dyn Grid, view: View, size: usize) -> Self {
        let width = size * SAMPLES;
        let ground = grid.has_coasts().then_some(LAND);
        let mut raster =
            Self { view, width, samples: vec![None; width * width], ground, brightness: Vec::new() };
        let light = unit(plus(plus(times(-0.5, view.right), times(0.6, view.up)), view.ahead));
        let bright = |at: usize| match raster.view.point(raster.place(at)) {
            Some(point) => (0.66 + 0.34 * dot(point, light).max(0.0)) as f32,
            None => 1.0,
        };
        raster.brightness = (0..width * width).map(bright).collect();
        // Water is drawn over land, whose cells can lie anywhere.
        let cells = (0..grid.cells()).filter(|&cell| grid.original(cell) == cell);
        let (land, water): (Vec<usize>, Vec<usize>) = cells.partition(|&cell| grid.is_land(cell));
        land.into_iter().chain(water).for_each(|cell| raster.fill(grid, cell));
        raster
    }

    /// The place of a sample in radii.
    fn place(&self, at: usize) -> [f64; 2] {
        let along = |index: usize| 2.0 * (index as f64 + 0.5) / self.width as f64 - 1.0;
        [along(at % self.width), -along(at / self.width)]
    }

    /// Sets the samples of a cell.
    fn fill(&mut self, grid: &dyn Grid, cell: usize) {
        let polygon = grid.polygon(cell);
        let centre = polygon.centre();
        let size = polygon.corners().iter().map(|&corner| distance(corner, centre)).fold(0.0, f64::max);
        if dot(centre, self.view.ahead) < -size {
            return;
        }
        for (side, arc) in polygon.sides().enumerate() {
            let corners = [centre, arc.0[0], arc.0[1]];
            // Great circles are curved, and the part in front of the horizon reaches it.
            let reach = 0.5 * size * size + 2.0 / self.width as f64;
            let places = corners.map(|corner| self.view.place(corner));
            let range = |axis: usize| {
                let along = places.map(|place| if axis == 0 { place[0] } else { -place[1] });
                let index =
                    |place: f64| (0.5 * (place + 1.0) * self.width as f64).clamp(0.0, self.width as f64);
                let low = along.into_iter().fold(f64::INFINITY, f64::min) - reach;
                let high = along.into_iter().fold(f64::NEG_INFINITY, f64::max) + reach;
                index(low).floor() as usize..index(high).ceil() as usize
            };
            let across =
                [cross(corners[1], corners[2]), cross(corners[2], centre), cross(centre, corners[1])];
            for at in range(1).flat_map(|y| range(0).map(move |x| (x, y))).map(|(x, y)| y * self.width + x) {
                let Some(point) = self.view.point(self.place(at)) else { continue };
                let parts = across.map(|across| dot(point, across));
                let sum: f64 = parts.iter().sum();
                if sum > 0.0 && parts.iter().all(|&part| part >= -1e-9 * sum) {
                    let weights = parts.map(|part| (part / sum) as f32);
                    self.samples[at] = Some(Hit { cell: cell as u32, side: side as u8, weights });
                }
            }
        }
    }

    /// The colour of each sample that shows a cell or the ground.
    pub(super) fn colours(&self, colour: impl Fn(&Hit) -> Rgb) -> Vec<Option<Rgb>> {
        let ground = |at: usize| self.ground.filter(|_| self.view.point(self.place(at)).is_some());
        let of = |(at, hit): (usize, &Option<Hit>)| hit.as_ref().map(&colour).or_else(|| ground(at));
        self.samples.iter().enumerate().map(of).collect()
    }

    /// The label of each sample that shows a cell. Lines separate different labels.
    pub(super) fn labels(&self, label: impl Fn(&Hit, Vector) -> i32) -> Vec<Option<i32>> {
        let of = |(at, hit): (usize, &Option<Hit>)| {
            let (hit, point) = hit.as_ref().zip(self.view.point(self.place(at)))?;
            Some(label(hit, point))
        };
        self.samples.iter().enumerate().map(of).collect()
    }

    /// The mean width of a cell in the middle of the globe, in pixels.
    pub(super) fn cell_size(&self, grid: &dyn Grid) -> f64 {
        let cells_around = (grid.cells() as f64 * std::f64::consts::PI).sqrt();
        self.width as f64 / SAMPLES as f64 * std::f64::consts::PI / cells_around
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::grid;
    use super::*;

    #[test]
    fn each_sample_of_the_globe_shows_the_cell_that_holds_its_point() {
        for text in ["cubed:6", "icosahedral:2", "tripolar:20x24"] {
            let grid = grid::make(&text.parse().unwrap()).unwrap();
            let raster = Raster::new(&*grid, View::above(20.0, 70.0), 60);
            for (at, hit) in raster.samples.iter().enumerate() {
                let Some(point) = raster.view.point(raster.place(at)) else {
                    assert!(hit.is_none(), "{text}: {at} lies outside");
                    continue;
                };
                let Hit { cell, weights, .. } = hit.unwrap_or_else(|| panic!("{text}: nothing at {point:?}"));
                assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                let polygon = grid.polygon(cell as usize);
                let inside = |from: Vector, to: Vector| dot(point, cross(from, to)) > -1e-6;
                assert!(polygon.sides().all(|arc| inside(arc.0[0], arc.0[1])), "{text}: {point:?}");
            }
        }
    }

    #[test]
    fn north_is_up_and_east_is_right() {
        let view = View::above(-60.0, 20.0);
        let [x, y] = view.place(on_sphere(-50.0, 20.0));
        assert!(x > 0.1 && y.abs() < 0.01, "{x} {y}");
        let [x, y] = view.place(on_sphere(-60.0, 30.0));
        assert!(x.abs() < 1e-12 && y > 0.1, "{x} {y}");
    }
}
