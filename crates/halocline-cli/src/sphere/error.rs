//! Invalid arguments of `halocline run sphere`.

use super::choice::{CUBED, ICOSAHEDRAL, MOST_DAYS, TRIPOLAR};

/// An argument that no run can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum SphereError {
    /// A grid of no known form.
    #[error(
        "{text:?} is no grid of the Earth; give cubed:N, icosahedral:L or tripolar:COLUMNSxROWS, such as cubed:48"
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
    /// A tripolar grid that is too small or too large.
    #[error("a tripolar grid of {columns} x {rows} cells; give {} to {} of each", TRIPOLAR.start(), TRIPOLAR.end())]
    Tripolar {
        /// Cells from west to east.
        columns: usize,
        /// Cells from south to north.
        rows: usize,
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
    /// More ranks than cells.
    #[error("{ranks} ranks for the {cells} cells of the grid; use at most one rank for each cell")]
    Ranks {
        /// Number of ranks.
        ranks: usize,
        /// Number of cells.
        cells: usize,
    },
}
