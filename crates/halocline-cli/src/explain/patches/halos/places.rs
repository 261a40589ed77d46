//! Where the values of a component lie among the cells of a patch.

use super::Cell;
use halocline::Along;

/// The place of the values along both axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValuePlace(pub(super) [Along; 2]);

impl ValuePlace {
    pub(super) fn is_centred(self) -> bool {
        self.0 == [Along::Centre; 2]
    }

    /// Rows and columns of the values of a patch with these cells.
    pub(super) fn counts(self, extents: [usize; 2]) -> Cell {
        [0, 1].map(|axis| self.0[axis].count(extents[axis]) as i64)
    }

    /// The centre of a value, in half cells along the axes of its patch.
    pub(super) fn centre(self, value: Cell) -> Cell {
        let first = self.0.map(|along| match along {
            Along::Faces | Along::LowFaces => 0,
            Along::Centre => 1,
            Along::HighFaces => 2,
        });
        [0, 1].map(|axis| 2 * value[axis] + first[axis])
    }

    /// The corners of the square around a value, in half cells.
    pub(super) fn square(self, value: Cell) -> [Cell; 2] {
        let centre = self.centre(value);
        [centre.map(|at| at - 1), centre.map(|at| at + 1)]
    }

    /// Whether a value lies on a side of its patch, or on the line that continues it.
    pub(super) fn is_on_outline(self, value: Cell, extents: [usize; 2]) -> bool {
        let centre = self.centre(value);
        (0..2).any(|axis| centre[axis] == 0 || centre[axis] == 2 * extents[axis] as i64)
    }

    /// The name of the place; empty for centres.
    pub(super) fn name(self) -> String {
        let [rows, columns] = self.0.map(|along| match along {
            Along::Centre => "",
            Along::Faces => "faces",
            Along::HighFaces => "high faces",
            Along::LowFaces => "low faces",
        });
        match (rows, columns) {
            ("", "") => String::new(),
            (rows, "") => format!("{rows} along axis 0"),
            ("", columns) => format!("{columns} along axis 1"),
            ("faces", _) => "corners of cells".to_owned(),
            (rows, _) => format!("{} corners of cells", rows.trim_end_matches(" faces")),
        }
    }
}
