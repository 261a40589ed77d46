//! Grid files of ICON, of which each rank reads its part.

mod error;
mod file;
mod part;

pub use error::IconGridError;
pub use part::IconGridPart;

use file::{NetcdfFile, Variable};
use halocline_plan::Mesh;
use part::Triangles;
use std::fmt;
use std::path::Path;

/// An open grid file of ICON: triangles, their edges and vertices, on the whole Earth or in a limited area. It is a NetCDF file, classic
/// or NetCDF-4.
///
/// | variable of the file | extents | read by |
/// | --- | --- | --- |
/// | `vertex_of_cell` | 3, cell | [`IconGrid::mesh`]: in full; [`IconGrid::part`]: the part and the cells around it |
/// | `cells_of_vertex` | any (ICON has 6), vertex | `part`: the vertices of the part and of the cells around it |
/// | `edge_of_cell` | 3, cell | `part`: the local cells |
/// | `edge_vertices`, `adjacent_cell_of_edge` | 2, edge | `part`: the edges of the local cells |
/// | any other with such a last dimension: `clon`, `vlat`, `cell_area`, ... | | [`IconGrid::read`]: the listed cells, edges or vertices |
///
/// Entries of the tables count from 1. An entry of 0 or less says that there is no cell, as beside an edge at the border of a limited
/// area. **In a file without `cells_of_vertex`, `part` reads `vertex_of_cell` in full, twice, but stores its part only.**
///
/// All calls are local: a rank needs no others. They may fail on some ranks only; pass the result to [`agree`](crate::agree()).
///
/// ```no_run
/// use halocline::{Communicator, IconGrid, Partition, Pattern, agree};
///
/// let comm = Communicator::init()?;
/// let grid = agree(&comm, IconGrid::open("icon_grid_0013_R02B04_R.nc"))?;
/// // METIS needs the whole mesh. An own list of owners does without.
/// let mesh = agree(&comm, grid.mesh())?;
/// let partition = Partition::metis(&mesh.element_graph(2)?, comm.size())?;
///
/// let part = agree(&comm, grid.part(&partition, comm.rank()))?;
/// let cells = Pattern::unstructured(&comm, &[part.halos().cells().clone()])?;
/// let edges = Pattern::unstructured(&comm, &[part.halos().edges().domain().clone()])?;
/// let longitudes = agree(&comm, grid.read("clon", part.halos().cells().cells()))?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub struct IconGrid {
    file: NetcdfFile,
    cells: u32,
    edges: u32,
    vertices: u32,
}

impl fmt::Debug for IconGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, [cells, edges, vertices]) = (self.file.path(), [self.cells, self.edges, self.vertices]);
        write!(f, "IconGrid({}, {cells} cells, {edges} edges, {vertices} vertices)", path.display())
    }
}

/// What a column of a variable is of, and what the entries of a table are.
///
/// ```
/// use halocline::IconPlace;
///
/// assert_eq!(IconPlace::Vertex.to_string(), "vertex");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IconPlace {
    /// Cells.
    Cell,
    /// Edges.
    Edge,
    /// Vertices.
    Vertex,
}

impl fmt::Display for IconPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cell => "cell",
            Self::Edge => "edge",
            Self::Vertex => "vertex",
        })
    }
}

impl IconPlace {
    fn plural(self) -> &'static str {
        match self {
            Self::Cell => "cells",
            Self::Edge => "edges",
            Self::Vertex => "vertices",
        }
    }
}

impl IconGrid {
    /// Opens a file and reads its header.
    ///
    /// Errors: a file that cannot be read, is no NetCDF file, lacks one of the dimensions `cell`, `edge` and `vertex` or the table
    /// `vertex_of_cell`, or states more edges or vertices than three for each cell, or a longer table than the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, IconGridError> {
        Self::of(NetcdfFile::open(path.as_ref())?)
    }

    fn of(file: NetcdfFile) -> Result<Self, IconGridError> {
        let [cells, edges, vertices] = ["cell", "edge", "vertex"].map(|name| file.dimension(name));
        let grid = Self { cells: cells?, edges: edges?, vertices: vertices?, file };
        // No read refuses these sizes if they are wrong, and the tables of a mesh have their length.
        for place in [IconPlace::Edge, IconPlace::Vertex] {
            let (count, cells) = (grid.count(place), grid.cells);
            if u64::from(count) > 3 * u64::from(cells) {
                return Err(IconGridError::TooMany { path: grid.file.path().into(), place, count, cells });
            }
        }
        grid.table(&VERTEX_OF_CELL)?;
        Ok(grid)
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.cells as usize
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.edges as usize
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.vertices as usize
    }

    /// All cells with their vertices, in the order of the file, numbered from 0. Reads `vertex_of_cell` in full.
    ///
    /// Errors: a variable that is missing, damaged, or has another type or shape.
    pub fn mesh(&self) -> Result<Mesh, IconGridError> {
        // Grows with what has been read: the size that the file states may be wrong.
        let mut connectivity = Vec::new();
        self.for_all_triangles(|_, corners| connectivity.extend(corners))?;
        Ok(Mesh::new(self.vertices(), 3, connectivity)?)
    }

    /// The values of a variable for the listed cells, edges or vertices, which count from 0 and may have any order: those of its last
    /// dimension. A variable with two dimensions has several values for each of them, which follow each other.
    ///
    /// Errors: a variable that is missing, damaged, no variable of numbers with one or two dimensions, or that has no such column.
    pub fn read(&self, name: &str, ids: &[u64]) -> Result<Vec<f64>, IconGridError> {
        let variable = self.file.variable(name)?;
        let (rows, count) = (variable.rows() as usize, variable.columns());
        if let Some(&id) = ids.iter().find(|&&id| id >= count) {
            return Err(IconGridError::NoColumn {
                path: self.file.path().into(),
                variable: name.into(),
                id,
                count,
            });
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut read = Vec::new();
        variable.for_columns(&sorted, |_, values| {
            read.extend_from_slice(values);
            Ok(())
        })?;
        let place = |id: &u64| rows * sorted.partition_point(|other| other < id);
        Ok(ids.iter().map(place).flat_map(|place| &read[place..place + rows]).copied().collect())
    }

    /// The vertices of each cell of the file.
    fn for_all_triangles(&self, mut each: impl FnMut(u32, [u32; 3])) -> Result<(), IconGridError> {
        let table = self.table(&VERTEX_OF_CELL)?;
        table.variable.for_all_columns(|cell, values| {
            each(cell as u32, table.triangle(cell, values)?);
            Ok(())
        })
    }

    /// Adds listed cells, which ascend.
    fn add_triangles(&self, cells: &[u32], triangles: &mut Triangles) -> Result<(), IconGridError> {
        let table = self.table(&VERTEX_OF_CELL)?;
        table.variable.for_columns(&wide(cells), |cell, values| {
            triangles.insert(cell as u32, table.triangle(cell, values)?);
            Ok(())
        })
    }

    fn table(&self, kind: &'static TableKind) -> Result<Table<'_>, IconGridError> {
        let variable = self.file.variable(kind.name)?;
        variable.check(kind.rows, self.count(kind.from).into())?;
        Ok(Table { grid: self, kind, variable })
    }

    fn count(&self, place: IconPlace) -> u32 {
        match place {
            IconPlace::Cell => self.cells,
            IconPlace::Edge => self.edges,
            IconPlace::Vertex => self.vertices,
        }
    }
}

fn wide(ids: &[u32]) -> Vec<u64> {
    ids.iter().map(|&id| id.into()).collect()
}

/// A table of the file: for each cell, edge or vertex the numbers of others.
struct TableKind {
    name: &'static str,
    from: IconPlace,
    to: IconPlace,
    /// The fewest and the most entries that a column may have.
    rows: [u64; 2],
}

static VERTEX_OF_CELL: TableKind =
    TableKind { name: "vertex_of_cell", from: IconPlace::Cell, to: IconPlace::Vertex, rows: [3, 3] };
static CELLS_OF_VERTEX: TableKind =
    TableKind { name: "cells_of_vertex", from: IconPlace::Vertex, to: IconPlace::Cell, rows: [1, 64] };
static EDGE_OF_CELL: TableKind =
    TableKind { name: "edge_of_cell", from: IconPlace::Cell, to: IconPlace::Edge, rows: [3, 3] };
static EDGE_VERTICES: TableKind =
    TableKind { name: "edge_vertices", from: IconPlace::Edge, to: IconPlace::Vertex, rows: [2, 2] };
static ADJACENT_CELL_OF_EDGE: TableKind =
    TableKind { name: "adjacent_cell_of_edge", from: IconPlace::Edge, to: IconPlace::Cell, rows: [2, 2] };

/// A table whose type and shape were checked.
struct Table<'a> {
    grid: &'a IconGrid,
    kind: &'static TableKind,
    variable: Variable<'a>,
}

impl Table<'_> {
    /// The entries of listed columns, which ascend: `None` where the file says that there is none.
    fn columns<const ROWS: usize>(&self, ids: &[u32]) -> Result<Vec<[Option<u32>; ROWS]>, IconGridError> {
        let mut columns = Vec::new();
        self.variable.for_columns(&wide(ids), |column, values| {
            let mut entries = [None; ROWS];
            for (row, (entry, &value)) in entries.iter_mut().zip(values).enumerate() {
                *entry = self.optional(column, row, value)?;
            }
            columns.push(entries);
            Ok(())
        })?;
        Ok(columns)
    }

    /// The entries of listed columns, which ascend, of a table that has an entry everywhere.
    fn full_columns<const ROWS: usize>(&self, ids: &[u32]) -> Result<Vec<[u32; ROWS]>, IconGridError> {
        let mut columns = Vec::new();
        self.variable.for_columns(&wide(ids), |column, values| {
            columns.push(self.entries(column, values)?);
            Ok(())
        })?;
        Ok(columns)
    }

    /// All entries of listed columns, which ascend, as pairs of a column and an entry.
    fn pairs(&self, ids: &[u32]) -> Result<Vec<(u32, u32)>, IconGridError> {
        let mut pairs = Vec::new();
        self.variable.for_columns(&wide(ids), |column, values| {
            for (row, &value) in values.iter().enumerate() {
                pairs.extend(self.optional(column, row, value)?.map(|entry| (column as u32, entry)));
            }
            Ok(())
        })?;
        Ok(pairs)
    }

    /// The three different vertices of a cell.
    fn triangle(&self, cell: u64, values: &[f64]) -> Result<[u32; 3], IconGridError> {
        let corners: [u32; 3] = self.entries(cell, values)?;
        let [a, b, c] = corners;
        match [(a, b), (b, c), (c, a)].into_iter().find(|(first, second)| first == second) {
            None => Ok(corners),
            Some((vertex, _)) => Err(IconGridError::SameVertex {
                path: self.grid.file.path().into(),
                cell: cell + 1,
                vertex: u64::from(vertex) + 1,
            }),
        }
    }

    fn entries<const ROWS: usize>(&self, column: u64, values: &[f64]) -> Result<[u32; ROWS], IconGridError> {
        let mut entries = [0; ROWS];
        for (row, (entry, &value)) in entries.iter_mut().zip(values).enumerate() {
            let missing = || self.wrong(column, row, value);
            *entry = self.optional(column, row, value)?.ok_or_else(missing)?;
        }
        Ok(entries)
    }

    fn optional(&self, column: u64, row: usize, value: f64) -> Result<Option<u32>, IconGridError> {
        let count = self.grid.count(self.kind.to);
        match value <= f64::from(count) {
            true if value < 1.0 => Ok(None),
            true => Ok(Some(value as u32 - 1)),
            false => Err(self.wrong(column, row, value)),
        }
    }

    fn wrong(&self, column: u64, row: usize, value: f64) -> IconGridError {
        IconGridError::Entry {
            path: self.grid.file.path().into(),
            variable: self.kind.name,
            from: self.kind.from,
            column: column + 1,
            entry: row + 1,
            value: value as i64,
            to: self.kind.to,
            count: self.grid.count(self.kind.to),
        }
    }
}

#[cfg(test)]
mod tests;
