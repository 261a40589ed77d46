//! The halos and owners that ICON gives to a partitioned grid.

use super::halos::Local;
use super::shape::UNSET;
use super::{Elements, Mesh, MeshEdges, MeshError, check_partition};
use crate::partition::Partition;
use crate::unstructured::UnstructuredDomain;

/// The domains of one part of a grid of polygons, with the two halo levels and the owners of ICON. Made by [`Mesh::icon_halos`].
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
/// lowest one.) A vertex of no cell belongs to part 0.
///
/// **Local order.** Owned cells by ascending number, then the halo by (level, owner, number). The domains carry the end of each level
/// ([`UnstructuredDomain::with_levels`]), so that a narrower exchange fills level 1 alone. Edges are numbered as those of
/// [`MeshHalos::edges`](super::MeshHalos::edges).
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
#[derive(Debug, Clone)]
pub struct IconHalos {
    cells: UnstructuredDomain,
    vertices: UnstructuredDomain,
    edges: MeshEdges,
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
        if self.solid {
            return Err(MeshError::NoSurface);
        }
        check_partition(partition, "elements", self.elements.len(), part)?;
        let too_many = MeshError::TooLarge { what: "parts", count: partition.ranks() };
        u32::try_from(partition.ranks()).map_err(|_| too_many)?;
        self.check_memory()?;
        let levels = Levels::new(self, partition, part)?;
        let cells =
            Local::new(part, 2, self.elements.len(), |at| (levels.cells[at], levels.owners[at], at as u64));
        let vertices = Local::new(part, 2, self.vertices, |at| {
            (levels.vertices[at], levels.vertex_owners[at], at as u64)
        });
        let mut names = vec![UNSET; self.vertices];
        (0..).zip(&vertices.cells).for_each(|(local, &vertex)| names[vertex as usize] = local);
        let id = |at: usize| levels.edges[at].ends.into_iter().fold(0, |id, end| id << 32 | u64::from(end));
        let edges = Local::new(part, 3, levels.edges.len(), |at| {
            (levels.edges[at].level, levels.edges[at].owner, id(at))
        });
        let ends = |&at: &u32| levels.edges[at as usize].ends.map(|end| names[end as usize]);
        Ok(IconHalos {
            connectivity: self.elements.renumbered(cells.cells.iter().map(|&at| at as usize), &names),
            cells: cells.domain(part, |at| at as u64),
            vertices: vertices.domain(part, |at| at as u64),
            edges: MeshEdges::new(&edges, part, id, edges.cells.iter().map(ends).collect()),
            owned_cells: cells.owned,
            owned_vertices: vertices.owned,
        })
    }
}

impl IconHalos {
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
            0 => 1,
            UNSET => UNSET,
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
