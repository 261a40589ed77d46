//! Errors of grid files of ICON.

use super::IconPlace;
use halocline_plan::MeshError;
use std::path::Path;

/// Why a grid file of ICON cannot be read. Cells, edges and vertices are counted from 1 in the text, as in the file.
///
/// ```
/// use halocline::{IconGrid, IconGridError};
///
/// let error = IconGrid::open("Cargo.toml").expect_err("no grid");
/// assert!(matches!(error, IconGridError::File { .. }));
/// assert!(error.to_string().starts_with("cannot read Cargo.toml: "));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IconGridError {
    /// The file cannot be read, or is no NetCDF file.
    #[error("cannot read {}: {reason}; give a whole, undamaged grid file of ICON in NetCDF", path.display())]
    File {
        /// The file.
        path: Box<Path>,
        /// What the system or the NetCDF reader says.
        reason: Box<str>,
    },
    /// A dimension that a grid file must have.
    #[error("{} has no dimension {dimension}; give a grid file of ICON", path.display())]
    NoDimension {
        /// The file.
        path: Box<Path>,
        /// The name of the dimension.
        dimension: &'static str,
    },
    /// More cells, edges or vertices than 32-bit numbers count.
    #[error("dimension {dimension} of {} has the size {size}; at most {} are supported", path.display(), u32::MAX)]
    TooLarge {
        /// The file.
        path: Box<Path>,
        /// The name of the dimension.
        dimension: &'static str,
        /// Its size.
        size: u64,
    },
    /// More edges or vertices than the cells of the grid have.
    #[error(
        "{} has {cells} cells and {count} {}, but a cell has 3, so there are at most {}; the file is damaged",
        path.display(), place.plural(), 3 * u64::from(*cells)
    )]
    TooMany {
        /// The file.
        path: Box<Path>,
        /// What there are too many of.
        place: IconPlace,
        /// How many the file states.
        count: u32,
        /// The number of cells that it states.
        cells: u32,
    },
    /// A variable that the file does not have.
    #[error("{} has no variable {variable}; give a grid file that has it", path.display())]
    NoVariable {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: Box<str>,
    },
    /// A variable of the wrong shape.
    #[error("{variable} of {} has the shape {found:?}; it must be {wanted}", path.display())]
    Shape {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: Box<str>,
        /// Its extents.
        found: Box<[u64]>,
        /// What they must be.
        wanted: Box<str>,
    },
    /// A variable of the wrong type.
    #[error("{variable} of {} is of the type {found}; it must hold {wanted}", path.display())]
    Type {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: Box<str>,
        /// Its type.
        found: Box<str>,
        /// What it must hold.
        wanted: &'static str,
    },
    /// The values of a variable cannot be read.
    #[error("cannot read {variable} of {}: {reason}; the file is damaged or cut off", path.display())]
    Values {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: Box<str>,
        /// What the system or the NetCDF reader says.
        reason: Box<str>,
    },
    /// A number in a table that is no cell, edge or vertex of the grid.
    #[error(
        "{variable} of {}: entry {entry} of {from} {column} is {value}, but there are {count} {}, counted from 1; the file is damaged",
        path.display(), to.plural()
    )]
    Entry {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: &'static str,
        /// What the columns of the table are of.
        from: IconPlace,
        /// The column, counted from 1.
        column: u64,
        /// The entry in the column, counted from 1.
        entry: usize,
        /// The number found.
        value: i64,
        /// What the numbers are of.
        to: IconPlace,
        /// How many of them there are.
        count: u32,
    },
    /// A cell with less than three vertices.
    #[error("vertex_of_cell of {}: cell {cell} has the vertex {vertex} twice; the file is damaged", path.display())]
    SameVertex {
        /// The file.
        path: Box<Path>,
        /// The cell, counted from 1.
        cell: u64,
        /// The vertex, counted from 1.
        vertex: u64,
    },
    /// Two tables that contradict each other.
    #[error(
        "{}: {variable} lists {to} {number} for {from} {column}, but {inverse} does not list {from} {column} for {to} {number}; the file is \
         damaged",
        path.display()
    )]
    Contradiction {
        /// The file.
        path: Box<Path>,
        /// The table with the entry.
        variable: &'static str,
        /// What its columns are of.
        from: IconPlace,
        /// The column, counted from 1.
        column: u64,
        /// What its entries are.
        to: IconPlace,
        /// The entry, counted from 1.
        number: u64,
        /// The table that lacks the opposite entry.
        inverse: &'static str,
    },
    /// An edge that is no side of its cell.
    #[error(
        "{}: edge_of_cell lists edge {edge} for cell {cell}, but its edge_vertices are no side of the cell, or that of another edge; the \
         file is damaged",
        path.display()
    )]
    NoSide {
        /// The file.
        path: Box<Path>,
        /// The cell, counted from 1.
        cell: u64,
        /// The edge, counted from 1.
        edge: u64,
    },
    /// A cell, edge or vertex to read that the file does not have.
    #[error("{variable} of {} has {count} columns, counted from 0; there is no column {id} to read", path.display())]
    NoColumn {
        /// The file.
        path: Box<Path>,
        /// The name of the variable.
        variable: Box<str>,
        /// The number given, counted from 0.
        id: u64,
        /// How many columns there are.
        count: u64,
    },
    /// The grid does not match the partition.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

halocline_plan::debug_as_text!(IconGridError);
