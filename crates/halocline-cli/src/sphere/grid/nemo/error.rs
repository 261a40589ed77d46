//! Files that are no tripolar grid.

use super::{COLUMNS, ROWS};
use std::path::Path;

/// A NetCDF file that cannot be read, or is no tripolar grid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum NemoError {
    /// The file cannot be opened.
    #[error("cannot read the grid {}: {reason}; check its name, or give a NetCDF file of NEMO", path.display())]
    Unreadable { path: Box<Path>, reason: Box<str> },
    /// The file lacks a variable.
    #[error("{} has no {what}; give a file as NEMO's output has it, with the corners of the cells and a field", path.display())]
    Missing { path: Box<Path>, what: &'static str },
    /// A variable has another shape.
    #[error("variable {variable} of {} has the shape {found:?}; it needs {wanted}", path.display())]
    Shape { path: Box<Path>, variable: Box<str>, found: Box<[u64]>, wanted: &'static str },
    /// Too few or too many cells.
    #[error(
        "the grid of {} has {rows} rows and {columns} columns; give {} to {} rows and an even number of {} to {} columns",
        path.display(), ROWS.start(), ROWS.end(), COLUMNS.start(), COLUMNS.end()
    )]
    Extents { path: Box<Path>, rows: u64, columns: u64 },
    /// The values of a variable cannot be read.
    #[error("cannot read variable {variable} of {}: {reason}; write the file again", path.display())]
    Values { path: Box<Path>, variable: Box<str>, reason: Box<str> },
    /// No cell is water.
    #[error("{} has no water: its first field has fill values alone; give a file whose first field has values in water", path.display())]
    NoWater { path: Box<Path> },
    /// A corner of a cell of water lies nowhere.
    #[error(
        "variable {variable} of {} has {found} for a corner of the cell in row {row}, column {column}, which is water; \
         expected degrees from -{most} to {most}",
        path.display()
    )]
    Corner { path: Box<Path>, variable: Box<str>, row: usize, column: usize, found: f64, most: f64 },
    /// The corners of a cell of water enclose nothing.
    #[error(
        "the corners of the cell in row {row}, column {column} of {} are not counterclockwise; write its bounds from the \
         south-west to the south-east, the north-east and the north-west",
        path.display()
    )]
    Clockwise { path: Box<Path>, row: usize, column: usize },
    /// Two neighbours of water share no side.
    #[error(
        "in {}, the cells in row {row}, column {column} and in row {next_row}, column {next_column} are neighbours without \
         a common side; give the whole grid without the rows and columns of the model's halo",
        path.display()
    )]
    Apart { path: Box<Path>, row: usize, column: usize, next_row: usize, next_column: usize },
    /// The northern side is folded nowhere.
    #[error(
        "the northern side of {} is not folded: column {cell} of the last row repeats no cell as with the T-point pivot, \
         and column {corner} joins no cell as with the F-point pivot; give all rows up to the fold, without the model's halo",
        path.display()
    )]
    NoFold { path: Box<Path>, cell: usize, corner: usize },
}
