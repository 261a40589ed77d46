//! Where the cells of a grid lie. All of it follows from the global number of a cell, so that every rank computes the same bits.

mod cubed;
mod icon_file;
mod icosahedral;
mod nemo;
mod tripolar;

pub(super) use icosahedral::Icosahedral;
pub(super) use nemo::Nemo;
pub(crate) use nemo::NemoError;
pub(super) use tripolar::Tripolar;

use super::choice::GridChoice;
use crate::error::CommandError;
use crate::geometry::{Vector, dot, middle, minus, spherical_area};
use cubed::Cubed;
use halocline::{IconGrid, Mesh, PatchGrid, PatternError};
use icon_file::IconFile;

/// Points closer to each other than this are equal up to rounding. Cells are far larger.
const ROUNDING: f64 = 1e-10;

/// A grid of cells with three or four sides that are great circles.
pub(super) trait Grid: Send + Sync {
    /// Number of cells. Their global numbers count from 0.
    fn cells(&self) -> usize;

    /// The shape of a cell.
    fn polygon(&self, cell: usize) -> Polygon;

    /// How the cells are joined.
    fn topology(&self) -> Result<Topology<'_>, PatternError>;

    /// The patch of a cell: a tile, or a triangle of the icosahedron.
    fn patch(&self, cell: usize) -> usize;

    /// Whether a cell is land, through whose sides nothing flows.
    fn is_land(&self, _cell: usize) -> bool {
        false
    }

    /// The cell that a cell repeats, such as one across a fold through the middles of cells. Most cells repeat none but themselves.
    fn original(&self, cell: usize) -> usize {
        cell
    }

    /// Whether land keeps the field from the exact solution.
    fn has_coasts(&self) -> bool {
        false
    }
}

/// How cells are joined, for the library.
pub(super) enum Topology<'a> {
    /// Rows and columns. The global numbers of the cells count patch by patch, row by row.
    Patches(PatchGrid),
    /// The elements of a mesh, counterclockwise; those of a grid file of ICON, if there is one.
    Triangles { mesh: &'a Mesh, file: Option<&'a IconGrid> },
}

/// Makes the grid.
pub(super) fn make(choice: &GridChoice) -> Result<Box<dyn Grid>, CommandError> {
    Ok(match *choice {
        GridChoice::Cubed { n } => Box::new(Cubed { n }),
        GridChoice::Icosahedral { level } => Box::new(Icosahedral::new(level)?),
        GridChoice::File { ref path } => Box::new(IconFile::new(path)?),
        GridChoice::Tripolar { rows, columns } => Box::new(Tripolar::new(columns, rows)),
        GridChoice::TripolarFile { ref path } => Box::new(Nemo::read(path)?),
    })
}

/// The corners of a cell, counterclockwise seen from outside. Side k goes from corner k to the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Polygon {
    corners: [Vector; 4],
    /// 3 or 4.
    sides: usize,
}

impl Polygon {
    pub(super) fn triangle([a, b, c]: [Vector; 3]) -> Self {
        Self { corners: [a, b, c, a], sides: 3 }
    }

    pub(super) fn quadrilateral(corners: [Vector; 4]) -> Self {
        Self { corners, sides: 4 }
    }

    pub(super) fn corners(&self) -> &[Vector] {
        &self.corners[..self.sides]
    }

    pub(super) fn centre(&self) -> Vector {
        middle(self.corners())
    }

    /// Area on the unit sphere.
    pub(super) fn area(&self) -> f64 {
        let [a, b, c, d] = self.corners;
        let half = spherical_area([a, b, c]);
        if self.sides == 4 { half + spherical_area([a, c, d]) } else { half }
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = Arc> {
        (0..self.sides).map(|side| Arc([self.corners[side], self.corners[(side + 1) % self.sides]]))
    }
}

/// A side of a cell: the great circle between two points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc(pub(super) [Vector; 2]);

impl Arc {
    /// The middle of the chord, the same bits in either direction.
    pub(super) fn middle(&self) -> Vector {
        std::array::from_fn(|axis| 0.5 * (self.0[0][axis] + self.0[1][axis]))
    }

    pub(super) fn length(&self) -> f64 {
        distance(self.0[0], self.0[1])
    }

    /// Whether its ends are one point, such as a side at the pole of coordinates.
    pub(super) fn is_point(&self) -> bool {
        self.length() <= ROUNDING
    }
}

/// The distance of two points along the chord.
pub(super) fn distance(a: Vector, b: Vector) -> f64 {
    let chord = minus(a, b);
    dot(chord, chord).sqrt()
}

/// Numbers points such that those equal up to rounding have the same number. Returns the number of each point, and how many there are.
pub(super) fn number_points(points: &[Vector]) -> (Vec<u32>, usize) {
    // A direction in which no grid is symmetric, so that few points have the same place along it.
    const DIRECTION: Vector = [1.0, std::f64::consts::SQRT_2, std::f64::consts::PI];
    let place = |at: usize| dot(points[at], DIRECTION);
    let mut order: Vec<(f64, usize)> = (0..points.len()).map(|at| (place(at), at)).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut numbers = vec![u32::MAX; points.len()];
    let mut count = 0;
    for (position, &(first_place, first)) in order.iter().enumerate() {
        if numbers[first] != u32::MAX {
            continue;
        }
        let reach = first_place + 2.0 * ROUNDING * distance(DIRECTION, [0.0; 3]);
        for &(_, at) in order[position..].iter().take_while(|(place, _)| *place <= reach) {
            if numbers[at] == u32::MAX && distance(points[at], points[first]) <= ROUNDING {
                numbers[at] = count;
            }
        }
        count += 1;
    }
    (numbers, count as usize)
}

/// The neighbours of each cell of water across its sides, found by the middles of the sides alone: no seam, fold or mesh is asked.
pub(super) fn neighbours(grid: &dyn Grid) -> Vec<[Option<u32>; 4]> {
    let mut sides = Vec::new();
    let mut middles = Vec::new();
    for cell in (0..grid.cells()).filter(|&cell| grid.original(cell) == cell && !grid.is_land(cell)) {
        for (side, arc) in grid.polygon(cell).sides().enumerate().filter(|(_, arc)| !arc.is_point()) {
            sides.push((cell as u32, side));
            middles.push(arc.middle());
        }
    }
    let (numbers, count) = number_points(&middles);
    let mut first: Vec<Option<(u32, usize)>> = vec![None; count];
    let mut neighbours = vec![[None; 4]; grid.cells()];
    for (&number, &(cell, side)) in numbers.iter().zip(&sides) {
        match first[number as usize] {
            None => first[number as usize] = Some((cell, side)),
            Some((other, side_there)) => {
                neighbours[cell as usize][side] = Some(other);
                neighbours[other as usize][side_there] = Some(cell);
            }
        }
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    fn grids() -> [(&'static str, Box<dyn Grid>, f64); 3] {
        let of = |text: &str| make(&text.parse().unwrap()).unwrap();
        let southern = Tripolar::SOUTH.to_radians().sin();
        let tripolar = Box::new(Tripolar::new(60, 40).without_land());
        [
            ("cubed", of("cubed:7"), 4.0 * PI),
            ("icosahedral", of("icosahedral:3"), 4.0 * PI),
            ("tripolar", tripolar, 2.0 * PI * (1.0 - southern)),
        ]
    }

    #[test]
    fn cells_are_counterclockwise_and_cover_the_sphere() {
        for (name, grid, area) in grids() {
            let areas: Vec<f64> = (0..grid.cells()).map(|cell| grid.polygon(cell).area()).collect();
            assert!(areas.iter().all(|&area| area > 0.0), "{name}");
            // The southern border of the tripolar grid is a polygon, not a circle.
            let ratio = areas.iter().sum::<f64>() / area;
            assert!((ratio - 1.0).abs() < if name == "tripolar" { 1e-4 } else { 1e-13 }, "{name}: {ratio}");
        }
    }

    #[test]
    fn each_side_is_shared_by_two_cells() {
        for (name, grid, _) in grids() {
            let neighbours = neighbours(&*grid);
            let mut open = 0;
            for (cell, around) in neighbours.iter().enumerate() {
                for (side, arc) in grid.polygon(cell).sides().enumerate() {
                    let Some(other) = around[side] else {
                        open += usize::from(!arc.is_point());
                        continue;
                    };
                    let back = |at: &usize| neighbours[other as usize][*at] == Some(cell as u32);
                    assert!((0..4).any(|at| back(&at)), "{name}: {cell} and {other}");
                }
            }
            assert_eq!(open, if name == "tripolar" { 60 } else { 0 }, "{name}: the southern border");
        }
    }

    #[test]
    fn equal_points_have_one_number() {
        let near = [1e-13, 0.0, 0.0];
        let points = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], crate::geometry::plus([1.0, 0.0, 0.0], near)];
        assert_eq!(number_points(&points), (vec![0, 1, 0], 2));
        assert_eq!(number_points(&[]), (Vec::new(), 0));
    }
}
