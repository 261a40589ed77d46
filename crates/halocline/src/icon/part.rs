//! The part of a grid that one rank needs, read from the file.

use super::{
    ADJACENT_CELL_OF_EDGE, CELLS_OF_VERTEX, EDGE_OF_CELL, EDGE_VERTICES, IconGrid, IconGridError, TableKind,
    VERTEX_OF_CELL,
};
use halocline_plan::{IconHalos, Mesh, MeshError, MeshPart, Partition};
use std::collections::{BTreeMap, HashMap};

/// The domains of one part of a grid file, with the halos and owners of ICON, and how its cells, edges and vertices are connected. Made by
/// [`IconGrid::part`].
///
/// Global numbers are those of the file, but count from 0. Tables hold local numbers, in the order of the file's entries.
///
/// ```no_run
/// use halocline::{IconGrid, Partition};
///
/// let grid = IconGrid::open("icon_grid_0013_R02B04_R.nc")?;
/// let part = grid.part(&Partition::metis(&grid.mesh()?.element_graph(2)?, 4)?, 0)?;
/// // The first edge of the first local cell, and the local cells beside it.
/// let edge = part.cell_edges()[0][0];
/// assert!(part.edge_cells()[edge as usize].contains(&Some(0)));
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IconGridPart {
    halos: IconHalos,
    cell_edges: Vec<[u32; 3]>,
    edge_vertices: Vec<[u32; 2]>,
    edge_cells: Vec<[Option<u32>; 2]>,
}

impl IconGridPart {
    /// The domains of cells, vertices and edges, and the local vertices of the local cells ([`IconHalos::local_cells`]).
    pub fn halos(&self) -> &IconHalos {
        &self.halos
    }

    /// The edges of each local cell (`edge_of_cell`).
    pub fn cell_edges(&self) -> &[[u32; 3]] {
        &self.cell_edges
    }

    /// The vertices of each local edge (`edge_vertices`): the direction of its tangent.
    pub fn edge_vertices(&self) -> &[[u32; 2]] {
        &self.edge_vertices
    }

    /// The cells beside each local edge (`adjacent_cell_of_edge`): the direction of its normal. `None` where no cell is, or one that is
    /// not local.
    pub fn edge_cells(&self) -> &[[Option<u32>; 2]] {
        &self.edge_cells
    }
}

impl IconGrid {
    /// The domains of part `part` of a partition of the cells, with the halos of ICON, as
    /// [`Mesh::icon_halos`](crate::Mesh::icon_halos) makes them. Reads what the part needs ([`IconGrid`] lists it).
    ///
    /// Errors: a variable that is missing, damaged, or has another type or shape; tables that contradict each other; a partition of
    /// another number of cells.
    pub fn part(&self, partition: &Partition, part: usize) -> Result<IconGridPart, IconGridError> {
        let (given, ranks) = (partition.owners().len(), partition.ranks());
        if given != self.cells() {
            return Err(MeshError::PartitionLength { what: "elements", given, needed: self.cells() }.into());
        }
        if part >= ranks {
            return Err(MeshError::Rank { rank: part, ranks }.into());
        }
        let triangles = self.neighbourhood(partition, part)?;
        let halos = halos(&triangles, partition, part)?;
        EdgesOfCells::read(self, &halos, &triangles)?.number(halos)
    }

    /// The vertices of the cells of a part, of the cells around it (which share a vertex with one of its cells), and of the cells around
    /// these. The last determine who owns the vertices and edges of the halo.
    fn neighbourhood(&self, partition: &Partition, part: usize) -> Result<Triangles, IconGridError> {
        let own = (0..).zip(partition.owners()).filter(|(_, owner)| **owner == part);
        let own: Vec<u32> = own.map(|(cell, _)| cell).collect();
        let mut triangles = Triangles::new();
        self.add_triangles(&own, &mut triangles)?;
        for _ in 0..2 {
            let vertices = vertices_of(&triangles);
            match self.file.has(CELLS_OF_VERTEX.name)? {
                true => self.add_listed(&vertices, &mut triangles)?,
                false => self.for_all_triangles(|cell, corners| {
                    if corners.iter().any(|corner| vertices.binary_search(corner).is_ok()) {
                        triangles.insert(cell, corners);
                    }
                })?,
            }
        }
        Ok(triangles)
    }

    /// Adds the cells that `cells_of_vertex` lists for these vertices: all vertices of the given cells.
    fn add_listed(&self, vertices: &[u32], triangles: &mut Triangles) -> Result<(), IconGridError> {
        let mut listed = self.table(&CELLS_OF_VERTEX)?.pairs(vertices)?;
        listed.sort_unstable();
        for (&cell, corners) in &*triangles {
            let is_missing = |corner: &&u32| listed.binary_search(&(**corner, cell)).is_err();
            if let Some(&vertex) = corners.iter().find(is_missing) {
                return Err(self.contradiction(&VERTEX_OF_CELL, cell, vertex, &CELLS_OF_VERTEX));
            }
        }
        let mut new: Vec<u32> = listed.iter().map(|(_, cell)| *cell).collect();
        new.sort_unstable();
        new.dedup();
        new.retain(|cell| !triangles.contains_key(cell));
        self.add_triangles(&new, triangles)?;
        match listed.iter().find(|(vertex, cell)| !triangles[cell].contains(vertex)) {
            Some(&(vertex, cell)) => Err(self.contradiction(&CELLS_OF_VERTEX, vertex, cell, &VERTEX_OF_CELL)),
            None => Ok(()),
        }
    }

    /// The error that `table` has an entry for a column, but `inverse` not the opposite one.
    fn contradiction(
        &self,
        table: &TableKind,
        column: u32,
        entry: u32,
        inverse: &TableKind,
    ) -> IconGridError {
        IconGridError::Contradiction {
            path: self.file.path().into(),
            variable: table.name,
            from: table.from,
            column: u64::from(column) + 1,
            to: table.to,
            number: u64::from(entry) + 1,
            inverse: inverse.name,
        }
    }
}

/// The vertices of some cells of the file.
pub(super) type Triangles = BTreeMap<u32, [u32; 3]>;

/// All vertices of these cells, ascending.
fn vertices_of(triangles: &Triangles) -> Vec<u32> {
    let mut vertices: Vec<u32> = triangles.values().flatten().copied().collect();
    vertices.sort_unstable();
    vertices.dedup();
    vertices
}

/// The halos of a part, from the cells around it.
fn halos(triangles: &Triangles, partition: &Partition, part: usize) -> Result<IconHalos, IconGridError> {
    let vertices = vertices_of(triangles);
    let local = |vertex: &u32| vertices.partition_point(|other| other < vertex) as u32;
    let mesh = Mesh::new(vertices.len(), 3, triangles.values().flatten().map(local).collect())?;
    let owners = partition.of_cells(triangles.keys().map(|&cell| cell as usize));
    let cells = triangles.keys().map(|&cell| cell.into()).collect();
    Ok(MeshPart::new(mesh, super::wide(&vertices), cells, (owners, part), 1)?.icon_halos()?)
}

/// The edges of the local cells of a part.
struct EdgesOfCells {
    /// The edges of each local cell, in local order of the cells.
    of_cells: Vec<[u32; 3]>,
    /// The file's numbers of all edges of the local cells, ascending; their vertices, and the cells beside them.
    edges: Vec<u32>,
    vertices: Vec<[u32; 2]>,
    cells: Vec<[Option<u32>; 2]>,
    /// The file's number of the edge between two vertices, the lower one first.
    between: HashMap<[u32; 2], u32>,
}

impl EdgesOfCells {
    fn read(grid: &IconGrid, halos: &IconHalos, triangles: &Triangles) -> Result<Self, IconGridError> {
        let local: Vec<u32> = halos.cells().cells().iter().map(|&cell| cell as u32).collect();
        let mut ascending = local.clone();
        ascending.sort_unstable();
        let of_cells: Vec<[u32; 3]> = grid.table(&EDGE_OF_CELL)?.full_columns(&ascending)?;
        let mut edges: Vec<u32> = of_cells.iter().flatten().copied().collect();
        edges.sort_unstable();
        edges.dedup();
        let vertices: Vec<[u32; 2]> = grid.table(&EDGE_VERTICES)?.full_columns(&edges)?;
        let cells: Vec<[Option<u32>; 2]> = grid.table(&ADJACENT_CELL_OF_EDGE)?.columns(&edges)?;

        let mut between = HashMap::new();
        for (&cell, of_cell) in ascending.iter().zip(&of_cells) {
            for (row, &edge) in of_cell.iter().enumerate() {
                let at = edges.partition_point(|&other| other < edge);
                let mut ends = vertices[at];
                ends.sort_unstable();
                let is_side = ends[0] != ends[1] && ends.iter().all(|end| triangles[&cell].contains(end));
                let is_new = !of_cell[..row].contains(&edge);
                if !is_side || !is_new || *between.entry(ends).or_insert(edge) != edge {
                    let path = grid.file.path().into();
                    return Err(IconGridError::NoSide {
                        path,
                        cell: u64::from(cell) + 1,
                        edge: u64::from(edge) + 1,
                    });
                }
                if !cells[at].contains(&Some(cell)) {
                    return Err(grid.contradiction(&EDGE_OF_CELL, cell, edge, &ADJACENT_CELL_OF_EDGE));
                }
            }
        }
        for (&edge, beside) in edges.iter().zip(&cells) {
            for &cell in beside.iter().flatten() {
                if ascending.binary_search(&cell).is_ok_and(|at| !of_cells[at].contains(&edge)) {
                    return Err(grid.contradiction(&ADJACENT_CELL_OF_EDGE, edge, cell, &EDGE_OF_CELL));
                }
            }
        }
        let place = |cell: &u32| ascending.partition_point(|other| other < cell);
        let of_cells = local.iter().map(|cell| of_cells[place(cell)]).collect();
        Ok(Self { of_cells, edges, vertices, cells, between })
    }

    /// Gives the edges of the halos the numbers of the file, and makes the tables of local numbers.
    fn number(self, halos: IconHalos) -> Result<IconGridPart, IconGridError> {
        let global = |&end: &u32| halos.vertices().cells()[end as usize] as u32;
        let number = |ends: &[u32; 2]| {
            let mut ends = ends.each_ref().map(global);
            ends.sort_unstable();
            self.between.get(&ends).map(|&edge| edge.into())
        };
        // Each local edge is a side of a local cell, whose three sides are in `between`.
        let ids: Vec<u64> = halos.edges().vertices().iter().filter_map(number).collect();
        let halos = halos.with_edge_ids(&ids)?;

        let local = |ids: &[u64]| -> HashMap<u32, u32> { ids.iter().map(|&id| id as u32).zip(0..).collect() };
        let [cells, vertices] = [halos.cells(), halos.vertices()].map(|domain| local(domain.cells()));
        let edges = local(halos.edges().domain().cells());
        let place = |&id: &u64| self.edges.partition_point(|&edge| u64::from(edge) < id);
        let places: Vec<usize> = halos.edges().domain().cells().iter().map(place).collect();
        let cell_edges = self.of_cells.iter().map(|of_cell| of_cell.map(|edge| edges[&edge])).collect();
        let edge_vertices =
            places.iter().map(|&at| self.vertices[at].map(|vertex| vertices[&vertex])).collect();
        let here = |cell: Option<u32>| cell.and_then(|cell| cells.get(&cell).copied());
        let edge_cells = places.iter().map(|&at| self.cells[at].map(here)).collect();
        Ok(IconGridPart { halos, cell_edges, edge_vertices, edge_cells })
    }
}
