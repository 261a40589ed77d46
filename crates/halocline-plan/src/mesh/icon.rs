//! The halos and owners that ICON gives to a partitioned grid.

use super::halos::{Local, Source};
use super::part::check_ids;
use super::shape::UNSET;
use super::{Elements, Mesh, MeshEdges, MeshError, MeshPart, check_partition};
use crate::partition::Partition;
use crate::unstructured::UnstructuredDomain;

/// The domains of one part of a grid of polygons, with the two halo levels and the owners of ICON. Made by [`Mesh::icon_halos`] or
/// [`MeshPart::icon_halos`].
///
/// The **cutting line** consists of the edges between cells of the part and cells of others.
///
/// | level | cells | vertices | edges |
/// | --- | --- | --- | --- |
/// | 0 | owned | owned | owned |
/// | 1 | with an edge on the cutting line | on the cutting line, owned by another part | on the cutting line, owned by another part |
/// | 2 | all others with a vertex on the cutting line | all others of the cells | all others with a vertex on the cutting line |
/// | 3 | | | all others of the cells |
///
/// A vertex or an edge on the cutting line belongs to the **highest** part that owns a cell beside it. ([`Mesh::halos`] gives it to the
/// lowest one.) A vertex of no cell belongs to part 0; a [`MeshPart`] has none of these.
///
/// **Local order.** Owned cells by ascending number, then the halo by (level, owner, number). The domains carry the end of each level
/// ([`UnstructuredDomain::with_levels`]), so that a narrower exchange fills level 1 alone. Edges are numbered as those of
/// [`MeshHalos::edges`](super::MeshHalos::edges), unless [`IconHalos::with_edge_ids`] numbers them.
///
/// ```
/// use halocline_plan::{IcosahedralGrid, Partition};
///
/// let grid = IcosahedralGrid::new(1)?;
/// // The northern pole's triangles against all others.
/// let owners = (0..80).map(|triangle| usize::from(triangle >= 5 * 4)).collect();
/// let halos = grid.mesh().icon_halos(&Partition::given(owners, 2)?, 0)?;
/// // Ten triangles share an edge with the cutting line, ten more touch it.
/// assert_eq!(halos.cells().levels(), [20, 30, 40]);
/// // The ten vertices on the cutting line belong to part 1.
/// assert_eq!(halos.vertices().levels()[..2], [6, 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IconHalos {
    cells: UnstructuredDomain,
    vertices: UnstructuredDomain,
    edges: MeshEdges,
    /// Level and owner of each local edge.
    edge_places: Vec<(u32, u32)>,
    owned_cells: usize,
    owned_vertices: usize,
    connectivity: Elements,
}

impl Mesh {
    /// The domains of part `part` of a partition of the cells (the elements), with the halos of ICON. Not collective: each rank makes its
    /// own domains, without communication. Takes time n log n in the number of edges of the mesh.
    ///
    /// Errors: elements that are solids, a partition of another size, or more edges than 32-bit indices count.
    pub fn icon_halos(&self, partition: &Partition, part: usize) -> Result<IconHalos, MeshError> {
        check_partition(partition, "elements", self.elements.len(), part)?;
        IconHalos::new(Source { mesh: self, ids: None }, partition, part)
    }
}

impl MeshPart {
    /// The domains of the part with the halos of ICON, as [`Mesh::icon_halos`] makes them of a whole mesh. The part must have been made
    /// for halos at least 1 element deep.
    ///
    /// Errors: those of [`Mesh::icon_halos`], a part made for depth 0, or a vertex whose global number is 2^32 or more.
    pub fn icon_halos(&self) -> Result<IconHalos, MeshError> {
        if self.depth() == 0 {
            return Err(MeshError::DepthBeyondPart { depth: 1, holds: 0 });
        }
        let (source, partition, part) = self.source();
        IconHalos::new(source, partition, part)
    }
}

impl IconHalos {
    fn new(source: Source<'_>, partition: &Partition, part: usize) -> Result<Self, MeshError> {
        let mesh = source.mesh;
        if mesh.solid {
            return Err(MeshError::NoSurface);
        }
        let too_many = MeshError::TooLarge { what: "parts", count: partition.ranks() };
        u32::try_from(partition.ranks()).map_err(|_| too_many)?;
        mesh.check_memory()?;
        let large = (0..mesh.vertices).map(|at| source.vertex(at)).find(|&id| u32::try_from(id).is_err());
        if let Some(id) = large {
            return Err(MeshError::EdgeVertex { id });
        }
        let levels = Levels::new(mesh, partition, part)?;
        let cells = Local::new(part, 2, mesh.elements.len(), |at| {
            (levels.cells[at], levels.owners[at], source.element(at))
        });
        let vertices = Local::new(part, 2, mesh.vertices, |at| {
            (levels.vertices[at], levels.vertex_owners[at], source.vertex(at))
        });
        let mut names = vec![UNSET; mesh.vertices];
        (0..).zip(&vertices.cells).for_each(|(local, &vertex)| names[vertex as usize] = local);
        // The ends of an edge, the one with the lower global number first.
        let ends = |at: usize| {
            let mut ends = levels.edges[at].ends;
            ends.sort_unstable_by_key(|&end| source.vertex(end as usize));
            ends
        };
        let id = |at: usize| ends(at).into_iter().fold(0, |id, end| id << 32 | source.vertex(end as usize));
        let edges = Local::new(part, 3, levels.edges.len(), |at| {
            (levels.edges[at].level, levels.edges[at].owner, id(at))
        });
        let local_ends = |&at: &u32| ends(at as usize).map(|end| names[end as usize]);
        let place = |&at: &u32| (levels.edges[at as usize].level, levels.edges[at as usize].owner);
        Ok(Self {
            connectivity: mesh.elements.renumbered(cells.cells.iter().map(|&at| at as usize), &names),
            cells: cells.domain(part, |at| source.element(at)),
            vertices: vertices.domain(part, |at| source.vertex(at)),
            edge_places: edges.cells.iter().map(place).collect(),
            edges: MeshEdges::new(&edges, part, id, edges.cells.iter().map(local_ends).collect()),
            owned_cells: cells.owned,
            owned_vertices: vertices.owned,
        })
    }

    /// The same domains with other global numbers of the edges, such as those of a file: `ids` has one for each local edge, in local
    /// order. The edges are then in the local order of these numbers. All ranks must give an edge the same number.
    ///
    /// ```
    /// use halocline_plan::{Mesh, Partition};
    ///
    /// // Two triangles with the edge 1-2 in common, each of another part.
    /// let mesh = Mesh::new(4, 3, vec![0, 1, 2, 1, 3, 2])?;
    /// let halos = mesh.icon_halos(&Partition::given(vec![0, 1], 2)?, 0)?;
    /// assert_eq!(halos.edges().vertices(), [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]);
    /// let halos = halos.with_edge_ids(&[14, 13, 12, 11, 10])?;
    /// // Part 0 owns the edges 13 and 14. Edge 12 lies between the parts and belongs to part 1.
    /// assert_eq!(halos.edges().domain().cells(), [13, 14, 12, 10, 11]);
    /// assert_eq!(halos.edges().owned(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Errors: not one number for each edge, or a number twice.
    pub fn with_edge_ids(mut self, ids: &[u64]) -> Result<Self, MeshError> {
        check_ids("edges", ids, self.edge_places.len())?;
        let part = self.cells.id() as usize;
        let of = |at: usize| (self.edge_places[at].0, self.edge_places[at].1, ids[at]);
        let edges = Local::new(part, 3, ids.len(), of);
        let old = edges.cells.iter().map(|&at| at as usize);
        let vertices = old.clone().map(|at| self.edges.vertices()[at]).collect();
        let places = old.map(|at| self.edge_places[at]).collect();
        self.edges = MeshEdges::new(&edges, part, |at| ids[at], vertices);
        self.edge_places = places;
        Ok(self)
    }

    /// The cells as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn cells(&self) -> &UnstructuredDomain {
        &self.cells
    }

    /// The vertices as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn vertices(&self) -> &UnstructuredDomain {
        &self.vertices
    }

    /// The edges.
    pub fn edges(&self) -> &MeshEdges {
        &self.edges
    }

    /// Number of owned cells; they have the local indices from 0.
    pub fn owned_cells(&self) -> usize {
        self.owned_cells
    }

    /// Number of owned vertices; they have the local indices from 0.
    pub fn owned_vertices(&self) -> usize {
        self.owned_vertices
    }

    /// The local vertices of each local cell, in the mesh's order of its vertices.
    pub fn local_cells(&self) -> &Elements {
        &self.connectivity
    }
}

/// An edge of the mesh.
struct Edge {
    /// Its vertices, ascending.
    ends: [u32; 2],
    /// [`UNSET`] if it is not local.
    level: u32,
    owner: u32,
}

/// Level and owner of all cells, vertices and edges of a mesh; the level is [`UNSET`] if they are not local.
struct Levels {
    owners: Vec<u32>,
    cells: Vec<u32>,
    vertex_owners: Vec<u32>,
    vertices: Vec<u32>,
    edges: Vec<Edge>,
}

impl Levels {
    fn new(mesh: &Mesh, partition: &Partition, part: usize) -> Result<Self, MeshError> {
        let owners: Vec<u32> = partition.owners().iter().map(|&owner| owner as u32).collect();
        let is_own = |cell: usize| owners[cell] as usize == part;
        let sides = sides(mesh)?;
        let around = || sides.chunk_by(|a, b| a.0 == b.0);

        let CuttingLine { is_cut, cells } = CuttingLine::new(mesh, &sides, &is_own);
        let is_at_line = |ends: &[u32; 2]| ends.iter().any(|&end| is_cut[end as usize]);

        let mut vertex_owners = vec![0; mesh.vertices];
        // The lowest level of a cell around each vertex.
        let mut nearest = vec![UNSET; mesh.vertices];
        for (cell, corners) in mesh.elements.iter().enumerate() {
            for corner in corners.iter().map(|&corner| corner as usize) {
                vertex_owners[corner] = owners[cell].max(vertex_owners[corner]);
                nearest[corner] = cells[cell].min(nearest[corner]);
            }
        }
        let vertex = |at: usize| match nearest[at] {
            // A vertex of no cell has the owner 0, too.
            _ if vertex_owners[at] as usize == part => 0,
            UNSET => UNSET,
            _ if is_cut[at] => 1,
            // Also one of an owned cell, where cells of two parts meet in a vertex only.
            _ => 2,
        };
        let edge = |edge: &[Side]| {
            let owner = edge.iter().map(|(_, cell)| owners[*cell as usize]).max().unwrap_or(0);
            let nearest = edge.iter().map(|(_, cell)| cells[*cell as usize]).min().unwrap_or(UNSET);
            let level = match nearest {
                0 if owner as usize == part => 0,
                0 => 1,
                UNSET => UNSET,
                _ if is_at_line(&edge[0].0) => 2,
                _ => 3,
            };
            Edge { ends: edge[0].0, level, owner }
        };
        let edges = around().map(edge).collect();
        let vertices = (0..mesh.vertices).map(vertex).collect();
        Ok(Self { vertices, edges, owners, cells, vertex_owners })
    }
}

/// The line between the cells of a part and those of others.
struct CuttingLine {
    /// Whether each vertex lies on it.
    is_cut: Vec<bool>,
    /// The level of each cell; [`UNSET`] if it is not local.
    cells: Vec<u32>,
}

impl CuttingLine {
    /// `sides` are those of all cells, edge by edge.
    fn new(mesh: &Mesh, sides: &[Side], is_own: &impl Fn(usize) -> bool) -> Self {
        let mut is_cut = vec![false; mesh.vertices];
        let level = |cell: usize| if is_own(cell) { 0 } else { UNSET };
        let mut cells: Vec<u32> = (0..mesh.elements.len()).map(level).collect();
        for edge in sides.chunk_by(|a, b| a.0 == b.0) {
            let own = edge.iter().filter(|(_, cell)| is_own(*cell as usize)).count();
            if (1..edge.len()).contains(&own) {
                edge[0].0.iter().for_each(|&end| is_cut[end as usize] = true);
                edge.iter().for_each(|&(_, cell)| cells[cell as usize] = cells[cell as usize].min(1));
            }
        }
        for (level, corners) in cells.iter_mut().zip(mesh.elements.iter()) {
            if *level == UNSET && corners.iter().any(|&corner| is_cut[corner as usize]) {
                *level = 2;
            }
        }
        Self { is_cut, cells }
    }
}

/// A side of a cell: the ends of the edge, and the cell.
type Side = ([u32; 2], u32);

/// The sides of all cells, edge by edge.
fn sides(mesh: &Mesh) -> Result<Vec<Side>, MeshError> {
    let of = |cell: usize| mesh.edges_of(cell).map(move |ends| (ends, cell as u32));
    let mut sides: Vec<Side> = (0..mesh.elements.len()).flat_map(of).collect();
    if u32::try_from(sides.len()).is_err() {
        return Err(MeshError::TooLarge { what: "edges of elements", count: sides.len() });
    }
    sides.sort_unstable();
    sides.dedup();
    Ok(sides)
}
