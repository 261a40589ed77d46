//! Meshes of elements that connect vertices, and their partition into domains.

mod error;
mod halos;
mod icon;
mod icosahedron;
mod part;
mod shape;

pub use error::MeshError;
pub use halos::{MeshEdges, MeshHalos};
pub use icon::IconHalos;
pub use icosahedron::IcosahedralGrid;
pub use part::MeshPart;
pub use shape::Shared;

use crate::partition::{Graph, Partition};
use crate::unstructured::UnstructuredDomain;
use std::hash::{Hash, Hasher};

/// A whole mesh, the same on every rank: the vertices of each element (three for a triangle). Vertices and
/// elements are numbered from 0; these numbers are the global ids.
///
/// ```
/// use halocline_plan::{Mesh, Partition, Shared};
///
/// // Two triangles with the edge 1-2 in common, each of another part.
/// let mesh = Mesh::new(4, 3, vec![0, 1, 2, 1, 3, 2])?;
/// let partition = Partition::given(vec![0, 1], 2)?;
///
/// let halos = mesh.halos(&partition, 0, 1, Shared::Edge)?;
/// assert_eq!(halos.elements().cells(), [0, 1]);
/// assert_eq!((halos.owned_elements(), halos.owned_vertices()), (1, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mesh {
    vertices: usize,
    elements: Elements,
    /// Elements are solids instead of polygons.
    solid: bool,
}

impl Mesh {
    /// A mesh whose elements all have `arity` vertices: `connectivity` lists the vertices of element 0,
    /// then those of element 1, and so on. An element may name a vertex twice (a degenerate element).
    pub fn new(vertices: usize, arity: usize, connectivity: Vec<u32>) -> Result<Self, MeshError> {
        if arity == 0 {
            return Err(MeshError::NoVertices);
        }
        if !connectivity.len().is_multiple_of(arity) {
            return Err(MeshError::Arity { arity, entries: connectivity.len() });
        }
        Self::checked(vertices, Elements { rows: Rows::Fixed(arity), connectivity })
    }

    /// A mesh of elements of different arity: element `e` has the vertices
    /// `connectivity[offsets[e]..offsets[e + 1]]`, at least one.
    pub fn mixed(vertices: usize, offsets: Vec<usize>, connectivity: Vec<u32>) -> Result<Self, MeshError> {
        let entries = connectivity.len();
        if offsets.first() != Some(&0) || offsets.last() != Some(&entries) || !offsets.is_sorted() {
            return Err(MeshError::Offsets { entries });
        }
        if let Some(element) = offsets.windows(2).position(|ends| ends[0] == ends[1]) {
            return Err(MeshError::EmptyElement { element });
        }
        Self::checked(vertices, Elements { rows: Rows::Offsets(offsets), connectivity })
    }

    fn checked(vertices: usize, elements: Elements) -> Result<Self, MeshError> {
        for (what, count) in [("vertices", vertices), ("elements", elements.len())] {
            if u32::try_from(count).is_err() {
                return Err(MeshError::TooLarge { what, count });
            }
        }
        for (element, corners) in elements.iter().enumerate() {
            let outside = |&vertex: &u32| vertex as usize >= vertices;
            if let Some(position) = corners.iter().position(outside) {
                return Err(MeshError::Vertex { element, position, vertex: corners[position], vertices });
            }
        }
        Ok(Self { vertices, elements, solid: false })
    }

    /// Declares the elements as solids: tetrahedra (4 vertices), pyramids (5, apex last), prisms (6, one
    /// triangle after the other) and hexahedra (8, one quadrilateral after the opposite one), in VTK's
    /// order. Without this call elements are polygons, with vertices in order around them. Only edges and
    /// facets depend on it.
    pub fn solid(self) -> Result<Self, MeshError> {
        let odd = self.elements.iter().position(|corners| !matches!(corners.len(), 4 | 5 | 6 | 8));
        match odd {
            Some(element) => Err(MeshError::Solid { element, vertices: self.elements.get(element).len() }),
            None => Ok(Self { solid: true, ..self }),
        }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// The elements.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Whether the elements are solids ([`Mesh::solid`]).
    pub fn is_solid(&self) -> bool {
        self.solid
    }

    /// The domains of `rank` for a partition of the vertices. Each element belongs to the lowest rank that
    /// owns one of its vertices. [`MeshDomains`] describes the local cells.
    pub fn domains_by_vertex(&self, partition: &Partition, rank: usize) -> Result<MeshDomains, MeshError> {
        check_partition(partition, "vertices", self.vertices, rank)?;
        self.check_memory()?;
        let vertex_owners = partition.owners();
        let owner = |corners: &[u32]| corners.iter().map(|&vertex| vertex_owners[vertex as usize]).min();
        // Every element has a vertex.
        let element_owners: Vec<usize> = self.elements.iter().map(|e| owner(e).unwrap_or(0)).collect();
        Ok(self.domains(rank, vertex_owners, &element_owners))
    }

    /// The domains of `rank` for a partition of the elements. Each vertex belongs to the lowest rank that
    /// owns an element around it; a vertex of no element belongs to rank 0. [`MeshDomains`] describes the
    /// local cells.
    pub fn domains_by_element(&self, partition: &Partition, rank: usize) -> Result<MeshDomains, MeshError> {
        check_partition(partition, "elements", self.elements.len(), rank)?;
        self.check_memory()?;
        let element_owners = partition.owners();
        let mut vertex_owners: Vec<Option<usize>> = vec![None; self.vertices];
        for (corners, &owner) in self.elements.iter().zip(element_owners) {
            for &vertex in corners {
                let lowest = &mut vertex_owners[vertex as usize];
                *lowest = Some(lowest.map_or(owner, |lowest| lowest.min(owner)));
            }
        }
        let vertex_owners: Vec<usize> = vertex_owners.into_iter().map(|owner| owner.unwrap_or(0)).collect();
        Ok(self.domains(rank, &vertex_owners, element_owners))
    }

    fn domains(&self, rank: usize, vertex_owners: &[usize], element_owners: &[usize]) -> MeshDomains {
        // Vertices whose elements must all be local.
        let mut centre: Vec<bool> = vertex_owners.iter().map(|&owner| owner == rank).collect();
        for (corners, _) in self.elements.iter().zip(element_owners).filter(|&(_, &owner)| owner == rank) {
            corners.iter().for_each(|&vertex| centre[vertex as usize] = true);
        }
        let element_here: Vec<bool> =
            self.elements.iter().map(|corners| corners.iter().any(|&v| centre[v as usize])).collect();
        let elements = LocalCells::new(rank, element_owners, &element_here);

        let mut vertex_here = centre;
        for (corners, _) in self.elements.iter().zip(&element_here).filter(|&(_, &here)| here) {
            corners.iter().for_each(|&vertex| vertex_here[vertex as usize] = true);
        }
        let vertices = LocalCells::new(rank, vertex_owners, &vertex_here);
        let mut local = vec![0; self.vertices];
        (0..).zip(vertices.ids()).for_each(|(index, id)| local[id] = index);
        MeshDomains {
            local: self.elements.renumbered(elements.ids(), &local),
            owned_vertices: vertices.owned.len(),
            owned_elements: elements.owned.len(),
            vertices: vertices.domain(rank),
            elements: elements.domain(rank),
        }
    }

    /// The graph of the vertices, for a partition of the vertices. Vertices of a common element are
    /// neighbours.
    ///
    /// Errors: [`MeshError::Memory`] if the allocation fails.
    pub fn vertex_graph(&self) -> Result<Graph, MeshError> {
        let around = self.elements_around()?;
        Ok(Graph::from_rows((0..self.vertices).map(|vertex| {
            let elements = around.get(vertex).iter();
            elements.flat_map(|&element| self.elements.get(element as usize)).copied().collect()
        })))
    }

    /// The graph of the elements, for a partition of the elements. Elements that share at least `common`
    /// vertices are neighbours. Pass 2 for the triangles or quadrilaterals of a surface, so that neighbours
    /// share an edge; 0 means 1. Errors as for [`Mesh::vertex_graph`].
    pub fn element_graph(&self, common: usize) -> Result<Graph, MeshError> {
        let around = self.elements_around()?;
        Ok(Graph::from_rows(self.elements.iter().map(|corners| {
            let mut corners = corners.to_vec();
            corners.sort_unstable();
            corners.dedup();
            let mut near: Vec<u32> =
                corners.iter().flat_map(|&vertex| around.get(vertex as usize)).copied().collect();
            near.sort_unstable();
            near.chunk_by(|a, b| a == b).filter(|same| same.len() >= common).map(|same| same[0]).collect()
        })))
    }

    /// Checks that memory for the derived structures is available: some words for each vertex. There may be
    /// far more vertices than the elements use.
    fn check_memory(&self) -> Result<(), MeshError> {
        let reserved = Vec::<[usize; 4]>::new().try_reserve_exact(self.vertices + 1);
        reserved.map_err(|_| MeshError::Memory { vertices: self.vertices })
    }

    /// The elements around each vertex, each element once.
    fn elements_around(&self) -> Result<Elements, MeshError> {
        self.check_memory()?;
        let mut offsets = vec![0; self.vertices + 1];
        let mut last = vec![u32::MAX; self.vertices];
        let mut each = |visit: &mut dyn FnMut(usize, u32)| {
            last.fill(u32::MAX);
            for (element, corners) in (0..).zip(self.elements.iter()) {
                for vertex in corners.iter().map(|&vertex| vertex as usize) {
                    if std::mem::replace(&mut last[vertex], element) != element {
                        visit(vertex, element);
                    }
                }
            }
        };
        each(&mut |vertex, _| offsets[vertex + 1] += 1);
        for vertex in 0..self.vertices {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut connectivity = vec![0; offsets[self.vertices]];
        each(&mut |vertex, element| {
            connectivity[next[vertex]] = element;
            next[vertex] += 1;
        });
        Ok(Elements { rows: Rows::Offsets(offsets), connectivity })
    }
}

/// Elements as lists of vertices. Two lists with the same vertices are equal, whether their arity was given
/// once or for each element.
///
/// ```
/// use halocline_plan::Mesh;
///
/// // A quadrilateral and a triangle.
/// let mesh = Mesh::mixed(5, vec![0, 4, 7], vec![0, 1, 2, 3, 1, 4, 2])?;
/// let elements = mesh.elements();
/// assert_eq!((elements.len(), elements.arity()), (2, None));
/// assert_eq!(elements.get(1), [1, 4, 2]);
/// # Ok::<(), halocline_plan::MeshError>(())
/// ```
#[derive(Debug, Clone, Eq)]
pub struct Elements {
    rows: Rows,
    connectivity: Vec<u32>,
}

impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        let arities = |elements: &Self| elements.iter().map(<[u32]>::len).collect::<Vec<_>>();
        self.connectivity == other.connectivity
            && (self.rows == other.rows || arities(self) == arities(other))
    }
}

impl Hash for Elements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.connectivity.hash(state);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rows {
    /// The same number of entries in each row, at least 1.
    Fixed(usize),
    /// Where each row begins, and the end of the last one.
    Offsets(Vec<usize>),
}

impl Elements {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Fixed(arity) => self.connectivity.len() / arity,
            Rows::Offsets(offsets) => offsets.len() - 1,
        }
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vertices of one element.
    ///
    /// # Panics
    ///
    /// If there is no such element, as indexing a slice does.
    pub fn get(&self, element: usize) -> &[u32] {
        let range = match &self.rows {
            Rows::Fixed(arity) => element * arity..(element + 1) * arity,
            Rows::Offsets(offsets) => offsets[element]..offsets[element + 1],
        };
        &self.connectivity[range]
    }

    /// The vertices of each element.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|element| self.get(element))
    }

    /// The number of vertices of each element, if the mesh was made with one arity.
    pub fn arity(&self) -> Option<usize> {
        match self.rows {
            Rows::Fixed(arity) => Some(arity),
            Rows::Offsets(_) => None,
        }
    }

    /// The vertices of all elements, element after element.
    pub fn connectivity(&self) -> &[u32] {
        &self.connectivity
    }

    /// The elements `ids`, with vertex v renumbered to `names[v]`.
    fn renumbered(&self, ids: impl Iterator<Item = usize> + Clone, names: &[u32]) -> Self {
        let corners = ids.clone().flat_map(|element| self.get(element));
        let connectivity = corners.map(|&vertex| names[vertex as usize]).collect();
        let rows = match &self.rows {
            Rows::Fixed(arity) => Rows::Fixed(*arity),
            Rows::Offsets(_) => {
                let mut offsets = vec![0];
                offsets.extend(ids.scan(0, |end, element| {
                    *end += self.get(element).len();
                    Some(*end)
                }));
                Rows::Offsets(offsets)
            }
        };
        Self { rows, connectivity }
    }
}

/// The local part of a partitioned mesh on one rank.
///
/// Local cells are exactly:
/// - the elements that this rank owns, those that share a vertex with one of them, and those around a
///   vertex that this rank owns;
/// - the vertices that this rank owns, and all vertices of the local elements.
///
/// So all elements around each owned vertex are local with all their vertices, and so are all elements that
/// touch an owned element.
///
/// Local numbering: owned cells in ascending order of id, then halo cells in order of (owner, id), so that
/// the cells sent by one rank are contiguous. A rank's domain has the number of the rank, for vertices and
/// for elements. If a partition has more parts than there are ranks, a rank takes the domains of several
/// parts.
///
/// ```
/// use halocline_plan::{Mesh, Partition};
///
/// // Three segments in a line; rank 0 owns the vertices 0 and 1, rank 1 the others.
/// let mesh = Mesh::new(4, 2, vec![0, 1, 1, 2, 2, 3])?;
/// let domains = mesh.domains_by_vertex(&Partition::block(4, 2)?, 0)?;
/// assert_eq!(domains.vertices().cells(), [0, 1, 2, 3]);
/// assert_eq!((domains.owned_vertices(), domains.owned_elements()), (2, 2));
/// // The vertices of element 1 by their local numbers.
/// assert_eq!(domains.local_elements().get(1), [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshDomains {
    vertices: UnstructuredDomain,
    elements: UnstructuredDomain,
    owned_vertices: usize,
    owned_elements: usize,
    local: Elements,
}

impl MeshDomains {
    /// The vertices as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn vertices(&self) -> &UnstructuredDomain {
        &self.vertices
    }

    /// The elements as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn elements(&self) -> &UnstructuredDomain {
        &self.elements
    }

    /// Number of owned vertices; they have the local indices from 0.
    pub fn owned_vertices(&self) -> usize {
        self.owned_vertices
    }

    /// Number of owned elements; they have the local indices from 0.
    pub fn owned_elements(&self) -> usize {
        self.owned_elements
    }

    /// The local vertices of each local element, in the mesh's order of its vertices.
    pub fn local_elements(&self) -> &Elements {
        &self.local
    }
}

/// Cells of one kind on one rank, in local order.
struct LocalCells {
    owned: Vec<u64>,
    halo: Vec<u64>,
}

impl LocalCells {
    fn new(rank: usize, owners: &[usize], here: &[bool]) -> Self {
        let local = || (0..owners.len()).filter(|&cell| here[cell]);
        let mut halo: Vec<usize> = local().filter(|&cell| owners[cell] != rank).collect();
        halo.sort_by_key(|&cell| owners[cell]);
        Self {
            owned: local().filter(|&cell| owners[cell] == rank).map(|cell| cell as u64).collect(),
            halo: halo.into_iter().map(|cell| cell as u64).collect(),
        }
    }

    fn ids(&self) -> impl Iterator<Item = usize> + Clone {
        self.owned.iter().chain(&self.halo).map(|&id| id as usize)
    }

    fn domain(self, rank: usize) -> UnstructuredDomain {
        UnstructuredDomain::new(rank as u64, self.owned, self.halo)
    }
}

fn check_partition(
    partition: &Partition,
    what: &'static str,
    needed: usize,
    rank: usize,
) -> Result<(), MeshError> {
    let (given, ranks) = (partition.owners().len(), partition.ranks());
    if given != needed {
        return Err(MeshError::PartitionLength { what, given, needed });
    }
    if rank >= ranks {
        return Err(MeshError::Rank { rank, ranks });
    }
    Ok(())
}
