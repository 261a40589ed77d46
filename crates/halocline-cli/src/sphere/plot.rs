//! The picture of a run: globes with the field at the start and at the end, its error, and the ranks.

mod globe;
mod raster;

use super::choice::days_in_words;
use super::grid::{Grid, number_points};
use super::problem::Problem;
use crate::error::CommandError;
use crate::geometry::{Vector, dot, lon_lat};
use crate::plot::colour::{self, BALANCE, ColourMap, Rgb, THERMAL, blend};
use crate::plot::{self, INK, text};
use globe::{Globe, Line, Mask};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use raster::{Hit, Raster, View};
use std::collections::BTreeMap;
use std::path::Path;

/// The data of the picture.
pub(super) struct Globes<'a> {
    pub(super) grid: &'a dyn Grid,
    pub(super) problem: &'a Problem,
    /// Simulated time.
    pub(super) days: f64,
    /// The owner of each cell.
    pub(super) owners: &'a [u32],
    /// The value of each cell at the end.
    pub(super) values: &'a [f64],
    /// The name of the exact solution.
    pub(super) exact: &'static str,
    /// The line at the top.
    pub(super) title: String,
    /// The second line.
    pub(super) subtitle: String,
}

type Area<'a> = plot::Area<BitMapBackend<'a>>;
type Drawn<'a> = plot::Drawn<BitMapBackend<'a>>;

/// Size of a globe in pixels.
const SIZE: usize = 500;
const LEFT: i32 = 60;
const TOP: i32 = 138;
/// From one globe to the next.
const ACROSS: i32 = SIZE as i32 + 90;
const DOWN: i32 = SIZE as i32 + 128;
const LAND: Rgb = [150, 148, 144];
/// Cells are drawn as lines down to this size in pixels.
const LEAST_CELL: f64 = 5.0;
/// Fields are interpolated between cells up to this number of cells. Smaller cells are hardly larger than pixels.
const MOST_INTERPOLATED: usize = 400_000;

/// Draws a picture into a PNG file.
pub(super) fn draw(path: &Path, globes: &Globes<'_>) -> Result<(), CommandError> {
    let size = ((2 * LEFT + ACROSS + SIZE as i32) as u32, (TOP + 2 * DOWN - 30) as u32);
    let (longitude, latitude) = match globes.problem {
        // The bell, and a corner of the cubed sphere on its path.
        Problem::Rotation { .. } => (-68.0, 18.0),
        // The fold, from pole to pole.
        Problem::Diffusion { .. } => (-25.0, 62.0),
    };
    let raster = Raster::new(globes.grid, View::above(longitude, latitude), SIZE);
    plot::save_png(path, size, |area| draw_all(area, globes, &raster))
}

fn draw_all<'a>(area: &Area<'a>, globes: &Globes<'_>, raster: &Raster) -> Drawn<'a> {
    let Globes { grid, problem, days, values, .. } = *globes;
    text(area, &globes.title, (LEFT, 36), 27.0, HPos::Left)?;
    text(area, &globes.subtitle, (LEFT, 72), 17.0, HPos::Left)?;

    let corners = Corners::new(grid);
    let at_centres = |value: &dyn Fn(Vector) -> f64| -> Vec<f64> {
        (0..grid.cells()).map(|cell| value(grid.polygon(cell).centre())).collect()
    };
    let start = corners.field(at_centres(&|point| problem.bell().value(point)));
    let exact = corners.field(at_centres(&|point| problem.exact(point, days)));
    let error = corners.field(values.iter().zip(&exact.cells).map(|(value, exact)| value - exact).collect());
    let end = corners.field(values.to_vec());
    let coloured = |scale: &Scale, field: &Field<'_>| {
        let of = |hit: &Hit| match corners.land[hit.cell as usize] {
            true => LAND,
            false => scale.colour(field.value(hit)),
        };
        raster.colours(of)
    };

    let (height, unit) = (problem.bell().height, problem.unit());
    let scale = Scale { map: &THERMAL, low: 0.0, high: height, step: height / 5.0, unit };
    let masks = Masks::new(globes, raster);
    let light: Rgb = [255, 255, 255];
    let mut globe = Globe { area, raster, place: (LEFT, TOP) };
    let path = masks.path(problem);
    let title = if path.is_some() { "At the start; orange: the path of the bell" } else { "At the start" };
    let over: Vec<Line> = masks.all(light).into_iter().chain(path).collect();
    globe.draw(title, coloured(&scale, &start), &over)?;
    globe.bar(&scale)?;
    globe.place = (LEFT + ACROSS, TOP);
    let title = format!("After {}; lines: {}", days_in_words(days), globes.exact);
    let over: Vec<Line> =
        masks.all(light).into_iter().chain([masks.contours(&exact, height, light)]).collect();
    globe.draw(&title, coloured(&scale, &end), &over)?;
    globe.bar(&scale)?;

    let largest = scale_of(&error.cells, height);
    let scale = Scale { map: &BALANCE, low: -largest, high: largest, step: largest / 2.0, unit };
    let dark: Rgb = [40, 40, 60];
    globe.place = (LEFT, TOP + DOWN);
    let title = format!("Difference from {}", globes.exact);
    globe.draw(&title, coloured(&scale, &error), &masks.all(dark))?;
    globe.bar(&scale)?;
    globe.place = (LEFT + ACROSS, TOP + DOWN);
    let of_rank = raster.colours(|hit| {
        let colour = colour::of_rank(globes.owners[hit.cell as usize]);
        if corners.land[hit.cell as usize] { blend(colour, LAND, 0.7) } else { colour }
    });
    globe.draw("Cells and their ranks", of_rank, &masks.of_cells(grid, dark))?;
    legend(area, globes.owners, globe.place)
}

/// The lines that all globes have.
struct Masks<'a> {
    raster: &'a Raster,
    /// Meridians and parallels.
    graticule: Mask,
    patches: Mask,
    ranks: Mask,
}

impl<'a> Masks<'a> {
    fn new(globes: &Globes<'_>, raster: &'a Raster) -> Self {
        let Globes { grid, owners, .. } = *globes;
        let patch: Vec<i32> = (0..grid.cells()).map(|cell| grid.patch(cell) as i32).collect();
        let of_cells = |label: &dyn Fn(usize) -> i32| {
            Mask::new(&raster.labels(|hit, _| label(hit.cell as usize)), raster.width, true)
        };
        Self {
            raster,
            graticule: Mask::new(&raster.labels(|_, point| graticule(point)), raster.width, false),
            patches: of_cells(&|cell| patch[cell]),
            ranks: of_cells(&|cell| owners[cell] as i32),
        }
    }

    fn all(&self, colour: Rgb) -> Vec<Line> {
        let graticule = self.graticule.line(colour, 0.18);
        [graticule].into_iter().chain(self.borders(colour)).collect()
    }

    fn borders(&self, colour: Rgb) -> [Line; 2] {
        [self.patches.line(colour, 0.3), self.ranks.line(colour, 0.6)]
    }

    /// The sides of cells, unless they are too small, and the borders.
    fn of_cells(&self, grid: &dyn Grid, colour: Rgb) -> Vec<Line> {
        let sides = (self.raster.cell_size(grid) >= LEAST_CELL).then(|| {
            let labels = self.raster.labels(|hit, _| hit.cell as i32);
            Mask::new(&labels, self.raster.width, false).line(colour, 0.35)
        });
        sides.into_iter().chain(self.borders(colour)).collect()
    }

    /// Where a field has 1/8, 3/8, 5/8 and 7/8 of a height.
    fn contours(&self, field: &Field<'_>, height: f64, colour: Rgb) -> Line {
        let step = 0.25 * height;
        let labels = self.raster.labels(|hit, _| (field.value(hit) / step - 0.5).ceil() as i32);
        Mask::new(&labels, self.raster.width, false).line(colour, 0.9)
    }

    /// The path of the middle of the bell, if it moves.
    fn path(&self, problem: &Problem) -> Option<Line> {
        let Problem::Rotation { axis, .. } = problem else { return None };
        let labels = self.raster.labels(|_, point| i32::from(dot(*axis, point) > 0.0));
        Some(Mask::new(&labels, self.raster.width, true).line([255, 190, 90], 0.6))
    }
}

/// Which field of 30 x 30 degrees a point lies in.
fn graticule(point: Vector) -> i32 {
    let (longitude, latitude) = lon_lat(point);
    64 * (latitude / 30.0).floor() as i32 + (longitude / 30.0).floor() as i32
}

/// A round number that no error exceeds.
fn scale_of(errors: &[f64], height: f64) -> f64 {
    let most = errors.iter().fold(0.0, |most: f64, error| most.max(error.abs()));
    if !most.is_finite() || most < 1e-12 * height {
        return height;
    }
    let decade = 10f64.powf(most.log10().floor());
    let digits = [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0];
    digits.into_iter().map(|digit| digit * decade).find(|&round| most <= round).unwrap_or(10.0 * decade)
}

/// Colours and ticks of a field.
struct Scale {
    map: &'static ColourMap,
    low: f64,
    high: f64,
    step: f64,
    unit: &'static str,
}

impl Scale {
    fn colour(&self, value: f64) -> Rgb {
        self.map.at((value - self.low) / (self.high - self.low))
    }
}

/// The corners of all cells, where values are interpolated.
struct Corners {
    /// Whether each cell is land.
    land: Vec<bool>,
    /// Whether each cell is water that repeats no other cell.
    is_counted: Vec<bool>,
    /// The first corner of each cell in `numbers`.
    first: Vec<u32>,
    /// The number of each corner of each cell, empty if nothing is interpolated.
    numbers: Vec<u32>,
    count: usize,
}

impl Corners {
    fn new(grid: &dyn Grid) -> Self {
        let (mut first, mut points) = (Vec::new(), Vec::new());
        if grid.cells() <= MOST_INTERPOLATED {
            for cell in 0..grid.cells() {
                first.push(points.len() as u32);
                points.extend_from_slice(grid.polygon(cell).corners());
            }
        }
        let (numbers, count) = number_points(&points);
        first.push(numbers.len() as u32);
        let land: Vec<bool> = (0..grid.cells()).map(|cell| grid.is_land(cell)).collect();
        let is_counted =
            land.iter().enumerate().map(|(cell, is_land)| !is_land && grid.original(cell) == cell);
        Self { is_counted: is_counted.collect(), land, first, numbers, count }
    }

    fn of(&self, cell: usize) -> &[u32] {
        match self.numbers.is_empty() {
            true => &[],
            false => &self.numbers[self.first[cell] as usize..self.first[cell + 1] as usize],
        }
    }

    /// The field with these values of the cells. The value at a corner is the mean of the cells of water around it.
    fn field(&self, cells: Vec<f64>) -> Field<'_> {
        let mut sums = vec![(0.0, 0.0); self.count];
        for (cell, value) in cells.iter().enumerate().filter(|(cell, _)| self.is_counted[*cell]) {
            for &corner in self.of(cell) {
                let (sum, count) = &mut sums[corner as usize];
                (*sum, *count) = (*sum + value, *count + 1.0);
            }
        }
        Field { corners: self, at_corners: sums.into_iter().map(|(sum, count)| sum / count).collect(), cells }
    }
}

/// A field that is linear between the centres and the corners of the cells.
struct Field<'a> {
    corners: &'a Corners,
    cells: Vec<f64>,
    at_corners: Vec<f64>,
}

impl Field<'_> {
    fn value(&self, hit: &Hit) -> f64 {
        let (cell, side) = (hit.cell as usize, hit.side as usize);
        let corners = self.corners.of(cell);
        if corners.is_empty() {
            return self.cells[cell];
        }
        let ends =
            [corners[side], corners[(side + 1) % corners.len()]].map(|end| self.at_corners[end as usize]);
        let [centre, from, to] = hit.weights.map(f64::from);
        centre * self.cells[cell] + from * ends[0] + to * ends[1]
    }
}

/// Draws the number of cells of each rank below a globe.
fn legend<'a>(area: &Area<'a>, owners: &[u32], (left, top): (i32, i32)) -> Drawn<'a> {
    const MOST: usize = 8;
    let mut counts = BTreeMap::new();
    owners.iter().for_each(|&owner| *counts.entry(owner).or_insert(0usize) += 1);
    let width = SIZE as i32 / 4;
    for (at, (rank, count)) in counts.iter().take(MOST).enumerate() {
        let (x, y) = (left + width * (at as i32 % 4), top + SIZE as i32 + 28 + 24 * (at as i32 / 4));
        let [r, g, b] = colour::of_rank(*rank);
        let square = [(x, y - 8), (x + 16, y + 8)];
        area.draw(&Rectangle::new(square, RGBColor(r, g, b).filled()))?;
        area.draw(&Rectangle::new(square, INK.stroke_width(1)))?;
        text(area, &format!("{rank}: {count} cells"), (x + 22, y), 14.0, HPos::Left)?;
    }
    if counts.len() > MOST {
        let more = format!("and {} more ranks", counts.len() - MOST);
        text(area, &more, (left, top + SIZE as i32 + 76), 14.0, HPos::Left)?;
    }
    Ok(())
}
