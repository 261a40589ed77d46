//! Halos of a partitioned mesh, any number of elements deep.

use super::shape::UNSET;
use super::{Elements, Mesh, MeshError, Shared};
use crate::partition::Partition;
use crate::unstructured::UnstructuredDomain;

/// Maximum halo depth; a larger one is a mistake.
const MAX_DEPTH: usize = 1 << 16;

impl Mesh {
    /// The domains of part `part` of a partition of the elements, with halos `depth` elements deep.
    /// Elements at depth 1 are neighbours of an owned element, elements at depth 2 are neighbours of one at
    /// depth 1, and so on; `shared` defines neighbours. A domain has the number of its part. If there are
    /// more parts than ranks, a rank takes the domains of several parts.
    ///
    /// Each rank makes its own domains, without communication; [`MeshHalos`] describes the local cells.
    /// Takes time proportional to the mesh for each depth (and n log n once, unless neighbours share
    /// vertices).
    ///
    /// **Not collective: the call may fail on one rank and succeed on another.** Only parts near the ends
    /// of the mesh notice a depth beyond it; a part without elements never does. If the failing rank
    /// returned its error alone, the others would wait for it in the collective pattern call. Agree on the
    /// result first: `let halos = agree(&comm, mesh.halos(..))?`, with `agree` of the crate `halocline`,
    /// which returns an error on all ranks or on none.
    ///
    /// Depth 0 gives elements without a halo. A part without a neighbour (all elements, whole connected
    /// components, or no element) has an empty halo at any depth.
    ///
    /// Errors: a partition of another size, a depth at which there are no more elements, or a depth above
    /// 65,536.
    pub fn halos(
        &self,
        partition: &Partition,
        part: usize,
        depth: usize,
        shared: Shared,
    ) -> Result<MeshHalos<'_>, MeshError> {
        super::check_partition(partition, "elements", self.elements.len(), part)?;
        MeshHalos::new(Source { mesh: self, ids: None }, partition, part, depth, shared)
    }
}

/// A mesh or a part of one, with global numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub mesh: &'a Mesh,
    /// Global numbers of the vertices and of the elements; `None` if they equal the local ones.
    pub ids: Option<(&'a [u64], &'a [u64])>,
}

impl Source<'_> {
    pub(super) fn vertex(&self, at: usize) -> u64 {
        self.ids.map_or(at as u64, |(vertices, _)| vertices[at])
    }

    pub(super) fn element(&self, at: usize) -> u64 {
        self.ids.map_or(at as u64, |(_, elements)| elements[at])
    }
}

/// The domains of one part of a mesh for fields on elements, vertices and edges, made by [`Mesh::halos`] or
/// [`MeshPart::halos`](super::MeshPart::halos).
///
/// **Owners.** The partition assigns each element to a part. A vertex or an edge belongs to the lowest part
/// that owns an element around it (a vertex of no element to part 0). So each has one owner, the same on
/// all ranks.
///
/// **Local cells.** The elements of depth 0 (owned) to the depth requested, and all their vertices and
/// edges. A vertex or an edge is as deep as the least deep element around it, so a halo narrowed to depth d
/// fills all vertices and edges of the elements of depth 0 to d. Vertices and edges at the rim of the owned
/// elements that belong to other parts are halo of depth 0.
///
/// **Local order.** Owned cells by ascending number, then the halo by (depth, owner, number), so the cells
/// that one part sends for one depth are contiguous. The domains carry the end of each depth
/// ([`UnstructuredDomain::with_levels`]).
///
/// ```
/// use halocline_plan::{Mesh, Partition, Shared};
///
/// // Four segments in a line, two for each of two parts.
/// let mesh = Mesh::new(5, 2, vec![0, 1, 1, 2, 2, 3, 3, 4])?;
/// let halos = mesh.halos(&Partition::block(4, 2)?, 0, 2, Shared::Vertex)?;
/// // The owned elements, those at depth 1, those at depth 2.
/// assert_eq!(halos.elements().levels(), [2, 3, 4]);
/// assert_eq!(halos.elements().cells(), [0, 1, 2, 3]);
/// assert_eq!(halos.local_elements().get(2), [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MeshHalos<'a> {
    source: Source<'a>,
    part: usize,
    depth: usize,
    /// The owner of each element of the source.
    owners: Vec<u32>,
    distances: Vec<u32>,
    elements: Local,
    vertices: Local,
    element_domain: UnstructuredDomain,
    vertex_domain: UnstructuredDomain,
    connectivity: Elements,
}

/// The edges of one part of a mesh, as described at [`MeshHalos`].
///
/// ```
/// use halocline_plan::{Mesh, Partition, Shared};
///
/// // Two triangles with the edge 1-2 in common, each of another part.
/// let mesh = Mesh::new(4, 3, vec![0, 1, 2, 1, 3, 2])?;
/// let partition = Partition::given(vec![0, 1], 2)?;
/// let halos = mesh.halos(&partition, 0, 1, Shared::Edge)?;
///
/// let edges = halos.edges()?;
/// assert_eq!((edges.domain().cells().len(), edges.owned()), (5, 3));
/// // Part 0 owns the edge in common; its number is made of those of its vertices.
/// assert_eq!(edges.domain().cells()[2], 1 << 32 | 2);
/// assert_eq!(edges.vertices()[2], [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshEdges {
    domain: UnstructuredDomain,
    owned: usize,
    vertices: Vec<[u32; 2]>,
}

impl<'a> MeshHalos<'a> {
    pub(super) fn new(
        source: Source<'a>,
        partition: &Partition,
        part: usize,
        depth: usize,
        shared: Shared,
    ) -> Result<Self, MeshError> {
        let mesh = source.mesh;
        mesh.check_memory()?;
        let too_many = MeshError::TooLarge { what: "parts", count: partition.ranks() };
        u32::try_from(partition.ranks()).map_err(|_| too_many)?;
        let owners: Vec<u32> = partition.owners().iter().map(|&owner| owner as u32).collect();
        let owned: Vec<bool> = partition.owners().iter().map(|&owner| owner == part).collect();
        if depth > MAX_DEPTH {
            return Err(MeshError::TooDeep { depth, most: MAX_DEPTH });
        }
        let (distances, ends) = mesh.distances(&owned, depth, shared)?;
        if ends > 0 && ends < depth {
            return Err(MeshError::DepthBeyondMesh { part, depth, ends });
        }

        let element = |at: usize| (distances[at], owners[at], source.element(at));
        let elements = Local::new(part, depth, mesh.elements.len(), element);
        let vertices = {
            let mut nearest = vec![UNSET; mesh.vertices];
            let mut lowest = vec![UNSET; mesh.vertices];
            for (at, corners) in mesh.elements.iter().enumerate() {
                for vertex in corners.iter().map(|&vertex| vertex as usize) {
                    nearest[vertex] = nearest[vertex].min(distances[at]);
                    lowest[vertex] = lowest[vertex].min(owners[at]);
                }
            }
            // Vertices of no element.
            let lonely = |at: usize| lowest[at] == UNSET;
            let vertex = |at: usize| match lonely(at) {
                true => (if part == 0 { 0 } else { UNSET }, 0, source.vertex(at)),
                false => (nearest[at], lowest[at], source.vertex(at)),
            };
            Local::new(part, depth, mesh.vertices, vertex)
        };
        let mut names = vec![UNSET; mesh.vertices];
        (0..).zip(&vertices.cells).for_each(|(local, &vertex)| names[vertex as usize] = local);
        let connectivity = mesh.elements.renumbered(elements.cells.iter().map(|&at| at as usize), &names);
        let element_domain = elements.domain(part, |at| source.element(at));
        let vertex_domain = vertices.domain(part, |at| source.vertex(at));
        Ok(Self {
            source,
            part,
            depth,
            owners,
            distances,
            elements,
            vertices,
            element_domain,
            vertex_domain,
            connectivity,
        })
    }

    /// The elements as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn elements(&self) -> &UnstructuredDomain {
        &self.element_domain
    }

    /// The vertices as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn vertices(&self) -> &UnstructuredDomain {
        &self.vertex_domain
    }

    /// Number of owned elements; they have the local indices from 0.
    pub fn owned_elements(&self) -> usize {
        self.elements.owned
    }

    /// Number of owned vertices; they have the local indices from 0.
    pub fn owned_vertices(&self) -> usize {
        self.vertices.owned
    }

    /// The local vertices of each local element, in the mesh's order of its vertices.
    pub fn local_elements(&self) -> &Elements {
        &self.connectivity
    }

    /// The edges as a domain. The global number of an edge is 2^32 times the lower of its vertices' numbers
    /// plus the higher one. Takes time n log n in the number of edges.
    ///
    /// Errors: a vertex whose global number is 2^32 or more, or more edges than 32-bit indices count.
    pub fn edges(&self) -> Result<MeshEdges, MeshError> {
        let (mesh, source) = (self.source.mesh, self.source);
        let mut names = vec![UNSET; mesh.vertices];
        (0..).zip(&self.vertices.cells).for_each(|(local, &vertex)| names[vertex as usize] = local);
        let mut all: Vec<([u32; 2], u32, u32)> = Vec::new();
        for at in 0..mesh.elements.len() {
            let here = mesh.edges_of(at).filter(|ends| ends.iter().all(|&end| names[end as usize] != UNSET));
            all.extend(here.map(|ends| (ends, self.distances[at], self.owners[at])));
        }
        if u32::try_from(all.len()).is_err() {
            return Err(MeshError::TooLarge { what: "edges of elements", count: all.len() });
        }
        all.sort_unstable();
        // For each edge, once: its ends, the depth of the nearest element around it, the lowest owner.
        all.dedup_by(|next, edge| {
            let same = next.0 == edge.0;
            if same {
                edge.2 = edge.2.min(next.2);
            }
            same
        });
        all.retain(|(_, distance, _)| *distance != UNSET);
        let global = |end: u32| source.vertex(end as usize);
        let ends = |at: usize| {
            let [a, b] = all[at].0;
            if global(a) < global(b) { [a, b] } else { [b, a] }
        };
        let vertices = || all.iter().flat_map(|(ends, ..)| ends);
        if let Some(&large) = vertices().find(|&&end| u32::try_from(global(end)).is_err()) {
            return Err(MeshError::EdgeVertex { id: global(large) });
        }
        let id = |at: usize| ends(at).into_iter().fold(0, |id, end| id << 32 | global(end));
        let edges = Local::new(self.part, self.depth, all.len(), |at| (all[at].1, all[at].2, id(at)));
        let local_ends = |&at: &u32| ends(at as usize).map(|end| names[end as usize]);
        Ok(MeshEdges::new(&edges, self.part, id, edges.cells.iter().map(local_ends).collect()))
    }
}

impl MeshEdges {
    /// The local edges of a part; `id` returns the global number of an edge of the source.
    pub(super) fn new(
        edges: &Local,
        part: usize,
        id: impl Fn(usize) -> u64,
        vertices: Vec<[u32; 2]>,
    ) -> Self {
        Self { domain: edges.domain(part, id), owned: edges.owned, vertices }
    }

    /// The edges as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn domain(&self) -> &UnstructuredDomain {
        &self.domain
    }

    /// Number of owned edges; they have the local indices from 0.
    pub fn owned(&self) -> usize {
        self.owned
    }

    /// The local vertices at the ends of each local edge, the one with the lower global number first: the
    /// direction is the same on all ranks.
    pub fn vertices(&self) -> &[[u32; 2]] {
        &self.vertices
    }
}

/// The local cells of one kind, in local order.
#[derive(Debug, Clone)]
pub(super) struct Local {
    /// Their numbers in the source.
    pub(super) cells: Vec<u32>,
    pub(super) owned: usize,
    /// The end of each depth.
    ends: Vec<usize>,
}

impl Local {
    /// Selects among `count` cells; `of` returns the depth ([`UNSET`] if not local), owner and global number
    /// of a cell.
    pub(super) fn new(
        part: usize,
        depth: usize,
        count: usize,
        of: impl Fn(usize) -> (u32, u32, u64),
    ) -> Self {
        let near = (0..count as u32).filter(|&at| of(at as usize).0 != UNSET);
        let (mut cells, mut halo): (Vec<u32>, Vec<u32>) =
            near.partition(|&at| of(at as usize).1 as usize == part);
        cells.sort_unstable_by_key(|&at| of(at as usize).2);
        halo.sort_unstable_by_key(|&at| of(at as usize));
        let owned = cells.len();
        let end = |level: usize| owned + halo.partition_point(|&at| of(at as usize).0 as usize <= level);
        let ends = (0..=depth).map(end).collect();
        cells.append(&mut halo);
        Self { cells, owned, ends }
    }

    pub(super) fn domain(&self, part: usize, id: impl Fn(usize) -> u64) -> UnstructuredDomain {
        let ids = |cells: &[u32]| cells.iter().map(|&at| id(at as usize)).collect();
        let (owned, halo) = self.cells.split_at(self.owned);
        UnstructuredDomain::new(part as u64, ids(owned), ids(halo)).with_levels(self.ends.clone())
    }
}
