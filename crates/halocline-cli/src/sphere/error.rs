//! Invalid arguments of `halocline run sphere`.

use super::choice::{CUBED, FEWEST_CELLS, ICOSAHEDRAL, MOST_DAYS, TRIPOLAR};
use std::path::Path;

/// An argument that no run can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum SphereError {
    /// A grid of no known form.
    #[error(
        "{text:?} is no grid of the Earth; give cubed:N, icosahedral:L, icosahedral:FILE, tripolar:ROWSxCOLUMNS or tripolar:FILE, \
         such as cubed:48"
    )]
    Grid {
        /// The text of `--grid`.
        text: String,
    },
    /// A cubed sphere that is too small or too large.
    #[error("a cubed sphere with tiles of {n} x {n} cells; give {} to {}", CUBED.start(), CUBED.end())]
    Cubed {
        /// Cells along a tile.
        n: usize,
    },
    /// Too few or too many bisections of the icosahedron.
    #[error(
        "an icosahedron whose edges are bisected {level} times; give {} to {}",
        ICOSAHEDRAL.start(),
        ICOSAHEDRAL.end()
    )]
    Icosahedral {
        /// Number of bisections.
        level: usize,
    },
    /// A file whose grid is not that of a sphere.
    #[error(
        "{} has {cells} cells, {edges} edges and {vertices} vertices, which is no grid of the whole Earth; the bell moves around the \
         Earth: give a global grid",
        path.display()
    )]
    NoGlobe {
        /// The file.
        path: Box<Path>,
        /// Number of cells.
        cells: usize,
        /// Number of edges.
        edges: usize,
        /// Number of vertices.
        vertices: usize,
    },
    /// A file with too few cells.
    #[error("{} has {cells} cells; give a grid of {FEWEST_CELLS} or more", path.display())]
    FewCells {
        /// The file.
        path: Box<Path>,
        /// Number of cells.
        cells: usize,
    },
    /// A vertex of a file that lies nowhere.
    #[error(
        "vertex {vertex} of {} has the longitude {longitude} and the latitude {latitude}; both must be in radians",
        path.display()
    )]
    Position {
        /// The file.
        path: Box<Path>,
        /// The vertex, counted from 1.
        vertex: usize,
        /// Its longitude.
        longitude: f64,
        /// Its latitude.
        latitude: f64,
    },
    /// A cell of a file that is too thin.
    #[error(
        "cell {cell} of {} has {share:.1e} of the mean area of the cells; give a grid of cells that are about equal",
        path.display()
    )]
    ThinCell {
        /// The file.
        path: Box<Path>,
        /// The cell, counted from 1.
        cell: usize,
        /// Its area as a share of the mean.
        share: f64,
    },
    /// Cells of a file that overlap.
    #[error("cells of {} overlap on the sphere; give a grid whose cells cover it once", path.display())]
    Overlap {
        /// The file.
        path: Box<Path>,
    },
    /// A tripolar grid that is too small or too large.
    #[error(
        "a tripolar grid of {rows} rows and {columns} columns; give {} to {} of each",
        TRIPOLAR.start(),
        TRIPOLAR.end()
    )]
    Tripolar {
        /// Cells from south to north.
        rows: usize,
        /// Cells from west to east.
        columns: usize,
    },
    /// A tripolar grid that has no middle to fold at.
    #[error("a tripolar grid of {columns} columns has no middle to be folded at; give an even number")]
    OddColumns {
        /// Cells from west to east.
        columns: usize,
    },
    /// A time that is no number of days.
    #[error("{text:?} is no time to simulate; give a number of days above 0, at most {}", MOST_DAYS)]
    Days {
        /// The text of `--days`.
        text: String,
    },
    /// An angle that is not finite.
    #[error("`--angle {angle}` is no direction; give degrees, such as 45")]
    Angle {
        /// The angle.
        angle: f64,
    },
    /// An angle for a grid on which nothing rotates.
    #[error("`--angle` turns the path of the bell, but on a tripolar grid heat spreads; leave it out")]
    AngleOfHeat,
    /// A run of too many steps.
    #[error(
        "with steps of {seconds:e} s the run takes more than {most} steps; give fewer days, or a grid of larger cells"
    )]
    Steps {
        /// The longest stable step.
        seconds: f64,
        /// The most steps of a run.
        most: u32,
    },
    /// More ranks than cells.
    #[error("{ranks} ranks for the {cells} cells of the grid; use at most one rank for each cell")]
    Ranks {
        /// Number of ranks.
        ranks: usize,
        /// Number of cells.
        cells: usize,
    },
}
