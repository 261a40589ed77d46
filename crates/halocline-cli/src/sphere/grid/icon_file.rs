//! The grid of a grid file of ICON.

use super::super::SphereError;
use super::super::choice::FEWEST_CELLS;
use super::{Grid, Polygon, Topology};
use crate::error::CommandError;
use crate::geometry::{Vector, cross, dot};
use halocline::{IconGrid, Mesh, PatternError};
use std::f64::consts::{FRAC_PI_2, PI, TAU};
use std::path::Path;

/// The least area of a cell, as a share of the mean. Cells of ICON's grids differ by a factor of 2.
const LEAST_AREA: f64 = 0.01;
/// Latitudes and longitudes of a file are rounded.
const ROUNDING: f64 = 1e-6;

/// The triangles of a grid file.
#[derive(Debug)]
pub(super) struct IconFile {
    file: IconGrid,
    /// All cells, with their vertices counterclockwise seen from outside: files have both directions.
    mesh: Mesh,
    points: Vec<Vector>,
}

impl IconFile {
    /// Reads the cells and the positions of the vertices of a grid of the whole Earth.
    pub(super) fn new(path: &Path) -> Result<Self, CommandError> {
        let file = IconGrid::open(path)?;
        check_size(path, &file)?;
        let mesh = file.mesh()?;
        let all: Vec<u64> = (0..file.vertices() as u64).collect();
        let (longitudes, latitudes) = (file.read("vlon", &all)?, file.read("vlat", &all)?);
        let positions = longitudes.into_iter().zip(latitudes).enumerate();
        let points = positions.map(|(vertex, position)| point(path, vertex, position));
        let points: Vec<Vector> = points.collect::<Result<_, _>>()?;
        let mut connectivity = mesh.elements().connectivity().to_vec();
        for corners in connectivity.as_chunks_mut::<3>().0 {
            let [a, b, c] = corners.map(|corner| points[corner as usize]);
            if dot(a, cross(b, c)) < 0.0 {
                corners.swap(1, 2);
            }
        }
        let grid = Self { file, mesh: Mesh::new(points.len(), 3, connectivity)?, points };
        grid.check_cells(path)?;
        Ok(grid)
    }

    /// Refuses cells that are too thin to compute on, or that overlap.
    fn check_cells(&self, path: &Path) -> Result<(), SphereError> {
        let areas: Vec<f64> = (0..self.cells()).map(|cell| self.polygon(cell).area()).collect();
        let mean = 4.0 * PI / areas.len() as f64;
        if let Some(cell) = areas.iter().position(|area| *area < LEAST_AREA * mean) {
            let share = areas[cell] / mean;
            return Err(SphereError::ThinCell { path: path.into(), cell: cell + 1, share });
        }
        // Of two counterclockwise cells that share a side, each has it in the other direction.
        let elements = self.mesh.elements().iter();
        let mut sides: Vec<_> = elements.flat_map(|c| [(c[0], c[1]), (c[1], c[2]), (c[2], c[0])]).collect();
        sides.sort_unstable();
        let is_folded = sides.windows(2).any(|pair| pair[0] == pair[1]);
        let is_covered_once = (areas.iter().sum::<f64>() / (4.0 * PI) - 1.0).abs() < ROUNDING;
        match is_covered_once && !is_folded {
            true => Ok(()),
            false => Err(SphereError::Overlap { path: path.into() }),
        }
    }
}

/// Refuses a limited area, a torus, and a grid that is too coarse for the bell.
fn check_size(path: &Path, file: &IconGrid) -> Result<(), SphereError> {
    let (cells, edges, vertices) = (file.cells(), file.edges(), file.vertices());
    // A sphere of triangles, by Euler's formula.
    if 2 * edges != 3 * cells || vertices + cells != edges + 2 {
        return Err(SphereError::NoGlobe { path: path.into(), cells, edges, vertices });
    }
    match cells < FEWEST_CELLS {
        true => Err(SphereError::FewCells { path: path.into(), cells }),
        false => Ok(()),
    }
}

/// The point of a vertex at this longitude and latitude, radians.
fn point(path: &Path, vertex: usize, (longitude, latitude): (f64, f64)) -> Result<Vector, SphereError> {
    let is_valid = longitude.abs() <= TAU + ROUNDING && latitude.abs() <= FRAC_PI_2 + ROUNDING;
    if !is_valid {
        let (path, vertex) = (path.into(), vertex + 1);
        return Err(SphereError::Position { path, vertex, longitude, latitude });
    }
    Ok([latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()])
}

impl Grid for IconFile {
    fn cells(&self) -> usize {
        self.mesh.elements().len()
    }

    fn polygon(&self, cell: usize) -> Polygon {
        let vertices = self.mesh.elements().get(cell);
        let corner = |at: usize| -> Vector { self.points[vertices[at] as usize] };
        Polygon::triangle([corner(0), corner(1), corner(2)])
    }

    fn topology(&self) -> Result<Topology<'_>, PatternError> {
        Ok(Topology::Triangles { mesh: &self.mesh, file: Some(&self.file) })
    }

    /// A file does not say which cells have the same triangle of the icosahedron.
    fn patch(&self, _cell: usize) -> usize {
        0
    }
}

#[cfg(test)]
#[path = "../../../../halocline/src/icon/tests/files.rs"]
// The tests of the crate `halocline` use the rest.
#[allow(dead_code)]
mod files;

#[cfg(test)]
mod tests {
    use super::super::{ROUNDING as SAME_POINT, neighbours};
    use super::files::{Content, Values};
    use super::*;
    use crate::geometry::lon_lat;
    use halocline::IcosahedralGrid;

    fn generated(bisections: usize) -> IcosahedralGrid {
        IcosahedralGrid::new(bisections).unwrap()
    }

    /// The grid of a file with this change of its content.
    fn changed(grid: &IcosahedralGrid, change: impl FnOnce(&mut Content)) -> Result<IconFile, CommandError> {
        let mut content =
            Content::of(grid.points().len(), grid.mesh().elements().connectivity().as_chunks().0);
        let positions = grid.points().iter().map(|&point| lon_lat(point));
        let (longitudes, latitudes) =
            positions.map(|(lon, lat)| (lon.to_radians(), lat.to_radians())).unzip();
        content.set("vlon", &["vertex"], Values::Double(longitudes));
        content.set("vlat", &["vertex"], Values::Double(latitudes));
        change(&mut content);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("grid.nc");
        std::fs::write(&path, content.classic(1)).unwrap();
        IconFile::new(&path)
    }

    fn refused(grid: &IcosahedralGrid, change: impl FnOnce(&mut Content)) -> SphereError {
        match changed(grid, change).unwrap_err() {
            CommandError::Sphere(error) => error,
            other => panic!("{other}"),
        }
    }

    fn doubles<'a>(content: &'a mut Content, name: &str) -> &'a mut Vec<f64> {
        match content.variables.get_mut(name).map(|variable| &mut variable.values) {
            Some(Values::Double(values)) => values,
            _ => panic!("{name} is no variable of numbers"),
        }
    }

    #[test]
    fn cells_of_a_file_are_those_of_its_grid_and_counterclockwise() {
        let generated = generated(2);
        // Every fourth cell has its vertices clockwise.
        let read = changed(&generated, |content| {
            let table = content.ints("vertex_of_cell");
            let cells = table.len() / 3;
            (0..cells).step_by(4).for_each(|cell| table.swap(cells + cell, 2 * cells + cell));
        });
        let read = read.unwrap();
        assert_eq!(read.cells(), 320);
        for cell in 0..read.cells() {
            let corners = generated.mesh().elements().get(cell).iter();
            for (found, &due) in read.polygon(cell).corners().iter().zip(corners) {
                assert!(super::super::distance(*found, generated.points()[due as usize]) < SAME_POINT);
            }
            assert!(read.polygon(cell).area() > 0.0);
        }
        assert!(neighbours(&read).iter().all(|around| around[..3].iter().all(Option::is_some)));
    }

    #[test]
    fn grids_on_which_no_bell_goes_around_the_earth_are_refused() {
        let error = refused(&generated(1), |_| {});
        assert!(matches!(error, SphereError::FewCells { cells: 80, .. }), "{error}");
        let area = |content: &mut Content| {
            content.dimensions.insert("edge", 481);
            for name in ["edge_vertices", "adjacent_cell_of_edge"] {
                content.ints(name).extend([1, 1]);
            }
        };
        let error = refused(&generated(2), area);
        assert!(
            matches!(error, SphereError::NoGlobe { cells: 320, edges: 481, vertices: 162, .. }),
            "{error}"
        );
    }

    #[test]
    fn positions_that_are_no_points_of_a_sphere_of_triangles_are_refused() {
        let grid = generated(2);
        let error = refused(&grid, |content| doubles(content, "vlat")[6] = 45.0);
        assert!(matches!(error, SphereError::Position { vertex: 7, latitude: 45.0, .. }), "{error}");
        let error = refused(&grid, |content| doubles(content, "vlon")[6] = f64::NAN);
        assert!(matches!(error, SphereError::Position { vertex: 7, .. }), "{error}");
        // Two vertices of a cell at the same place.
        let corners = grid.mesh().elements().get(9).to_vec();
        let error = refused(&grid, |content| {
            for name in ["vlon", "vlat"] {
                let values = doubles(content, name);
                values[corners[0] as usize] = values[corners[1] as usize];
            }
        });
        assert!(matches!(error, SphereError::ThinCell { share, .. } if share < 1e-6), "{error}");
        // The southern half lies on the northern one.
        let error =
            refused(&grid, |content| doubles(content, "vlat").iter_mut().for_each(|lat| *lat = lat.abs()));
        assert!(matches!(error, SphereError::Overlap { .. }), "{error}");
    }
}
