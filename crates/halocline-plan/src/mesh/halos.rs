//! Halos of a partitioned mesh, as many elements deep as asked for.

use super::shape::FAR;
use super::{Elements, Mesh, MeshError, Shared};
use crate::partition::Partition;
use crate::unstructured::UnstructuredDomain;

/// Deepest halo; what is beyond is a mistake.
const MAX_DEPTH: usize = 1 << 16;

impl Mesh {
    /// The domains of part `part` of a partition of the elements, with halos `depth` elements deep: the
    /// elements at depth 1 are those that share something with an owned one, at depth 2 those that do with
    /// one at depth 1, and so on. A domain has the number of its part; where there are more parts than
    /// ranks, a rank takes those of several.
    ///
    /// Each rank makes its own, without communication. What is where is told by [`MeshHalos`]. Takes time
    /// in proportion to the mesh for each step of the depth (and n log n once, unless vertices are shared).
    ///
    /// **Not collective, and what is refused for one part may be fine for another:** a depth beyond the mesh
    /// is found by the parts that are too near to its ends, and not by those that have no element. A rank
    /// that returned its error while others went on to make the pattern, which is collective, would leave
    /// them waiting. So end it together, `let halos = agree(&comm, mesh.halos(..))?`, with `agree` of the
    /// crate `halocline`: it gives an error to all ranks, or to none.
    ///
    /// Depth 0 gives elements without a halo. A part without a neighbour (it has all elements, or whole
    /// pieces of a mesh that does not hang together, or none) has an empty halo at any depth. Refused: a
    /// partition of something else, a depth at which there are no elements any more, one of more than
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

/// A mesh, or a part of one, and the global numbers of what it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub mesh: &'a Mesh,
    /// Global numbers of the vertices and of the elements, if they are others than here.
    pub ids: Option<(&'a [u64], &'a [u64])>,
}

impl Source<'_> {
    fn vertex(&self, at: usize) -> u64 {
        self.ids.map_or(at as u64, |(vertices, _)| vertices[at])
    }

    fn element(&self, at: usize) -> u64 {
        self.ids.map_or(at as u64, |(_, elements)| elements[at])
    }
}

/// The domains of one part of a mesh for fields on elements, vertices and edges, made by [`Mesh::halos`]
/// or [`MeshPart::halos`](super::MeshPart::halos).
///
/// **Who owns what.** An element belongs to the part that the partition gives it to; a vertex or an edge to
/// the lowest part that owns an element around it (a vertex of no element to part 0). So everything has one
/// owner, the same on all ranks.
///
/// **What is here.** The elements of depth 0 (owned) to the depth asked for, and all their vertices and
/// edges. A vertex or an edge is as deep as the least deep element around it, so that what a halo narrowed
/// to depth d fills is all that the elements of depth 0 to d have: those at the rim of the owned
/// elements that belong to other parts are halo of depth 0.
///
/// **Local order.** What is owned by ascending number, then the halo by (depth, owner, number): what one
/// part sends for one depth lies in one block. The domains carry the end of each depth
/// ([`UnstructuredDomain::with_levels`]).
#[derive(Debug, Clone)]
pub struct MeshHalos<'a> {
    source: Source<'a>,
    part: usize,
    depth: usize,
    /// Of each element of the source.
    owners: Vec<u32>,
    distances: Vec<u32>,
    elements: Local,
    vertices: Local,
    element_domain: UnstructuredDomain,
    vertex_domain: UnstructuredDomain,
    connectivity: Elements,
}

/// The edges of one part of a mesh, as [`MeshHalos`] tells.
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
        mesh.check_room()?;
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
            let mut nearest = vec![FAR; mesh.vertices];
            let mut lowest = vec![FAR; mesh.vertices];
            for (at, corners) in mesh.elements.iter().enumerate() {
                for vertex in corners.iter().map(|&vertex| vertex as usize) {
                    nearest[vertex] = nearest[vertex].min(distances[at]);
                    lowest[vertex] = lowest[vertex].min(owners[at]);
                }
            }
            // Vertices of no element.
            let lonely = |at: usize| lowest[at] == FAR;
            let vertex = |at: usize| match lonely(at) {
                true => (if part == 0 { 0 } else { FAR }, 0, source.vertex(at)),
                false => (nearest[at], lowest[at], source.vertex(at)),
            };
            Local::new(part, depth, mesh.vertices, vertex)
        };
        let mut names = vec![FAR; mesh.vertices];
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

    /// Number of elements owned here: the local elements from 0 to it.
    pub fn owned_elements(&self) -> usize {
        self.elements.owned
    }

    /// Number of vertices owned here: the local vertices from 0 to it.
    pub fn owned_vertices(&self) -> usize {
        self.vertices.owned
    }

    /// The local vertices of each local element, in the mesh's order of its vertices.
    pub fn local_elements(&self) -> &Elements {
        &self.connectivity
    }

    /// The edges as a domain. The global number of an edge is 2^32 times the lower of the numbers of its
    /// vertices plus the higher one. Takes time n log n in the number of edges.
    ///
    /// Refused: vertices whose global number is 2^32 or more, more edges than 32-bit indices count.
    pub fn edges(&self) -> Result<MeshEdges, MeshError> {
        let (mesh, source) = (self.source.mesh, self.source);
        let mut names = vec![FAR; mesh.vertices];
        (0..).zip(&self.vertices.cells).for_each(|(local, &vertex)| names[vertex as usize] = local);
        let mut all: Vec<([u32; 2], u32, u32)> = Vec::new();
        for at in 0..mesh.elements.len() {
            let here = mesh.edges_of(at).filter(|ends| ends.iter().all(|&end| names[end as usize] != FAR));
            all.extend(here.map(|ends| (ends, self.distances[at], self.owners[at])));
        }
        if u32::try_from(all.len()).is_err() {
            return Err(MeshError::TooLarge { what: "edges of elements", count: all.len() });
        }
        all.sort_unstable();
        // Of each edge, once: the ends, how deep the nearest element around it is, the lowest owner.
        all.dedup_by(|next, edge| {
            let same = next.0 == edge.0;
            if same {
                edge.2 = edge.2.min(next.2);
            }
            same
        });
        all.retain(|(_, distance, _)| *distance != FAR);
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
        Ok(MeshEdges {
            domain: edges.domain(self.part, id),
            owned: edges.owned,
            vertices: edges.cells.iter().map(local_ends).collect(),
        })
    }
}

impl MeshEdges {
    /// The edges as a domain; its [`cells`](UnstructuredDomain::cells) map local to global numbers.
    pub fn domain(&self) -> &UnstructuredDomain {
        &self.domain
    }

    /// Number of edges owned here: the local edges from 0 to it.
    pub fn owned(&self) -> usize {
        self.owned
    }

    /// The local vertices at the ends of each local edge, the one with the lower global number first: the
    /// same direction on all ranks.
    pub fn vertices(&self) -> &[[u32; 2]] {
        &self.vertices
    }
}

/// Which cells of one kind are local, in local order.
#[derive(Debug, Clone)]
struct Local {
    /// Their numbers in the source.
    cells: Vec<u32>,
    owned: usize,
    /// The end of each depth.
    ends: Vec<usize>,
}

impl Local {
    /// Of `count` cells, of each of which `of` tells depth ([`FAR`] if it is not local), owner and global
    /// number.
    fn new(part: usize, depth: usize, count: usize, of: impl Fn(usize) -> (u32, u32, u64)) -> Self {
        let near = (0..count as u32).filter(|&at| of(at as usize).0 != FAR);
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

    fn domain(&self, part: usize, id: impl Fn(usize) -> u64) -> UnstructuredDomain {
        let ids = |cells: &[u32]| cells.iter().map(|&at| id(at as usize)).collect();
        let (owned, halo) = self.cells.split_at(self.owned);
        UnstructuredDomain::new(part as u64, ids(owned), ids(halo)).with_levels(self.ends.clone())
    }
}
