//! A part of a mesh that is too large to be stored on every rank.

use super::halos::Source;
use super::shape::UNSET;
use super::{Mesh, MeshError, MeshHalos, Shared};
use crate::partition::Partition;
use std::collections::TryReserveError;

/// One rank's part of a distributed mesh: some elements with their vertices, the global numbers of both,
/// and the part that owns each element.
///
/// ```
/// use halocline_plan::{Mesh, MeshPart, Partition, Shared};
///
/// // A line of 100 segments; segment s has the vertices s and s + 1. Part 0 owns the segments below 50, and this rank
/// // has the segments 48 to 51.
/// let mesh = Mesh::new(5, 2, vec![0, 1, 1, 2, 2, 3, 3, 4])?;
/// let (vertices, elements) = ((48..53).collect(), (48..52).collect());
/// let partition = Partition::given(vec![0, 0, 1, 1], 2)?;
/// let part = MeshPart::new(mesh, vertices, elements, (partition, 0), 1)?;
///
/// let halos = part.halos(1, Shared::Vertex)?;
/// assert_eq!(halos.elements().cells(), [48, 49, 50]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshPart {
    mesh: Mesh,
    vertices: Vec<u64>,
    elements: Vec<u64>,
    partition: Partition,
    /// The part whose halos can be made, and the maximum depth.
    part: usize,
    depth: usize,
}

impl MeshPart {
    /// The local mesh for halos up to `depth` elements deep around part `part`. `mesh` has the local
    /// elements and vertices, numbered from 0; `vertices` and `elements` give their global numbers,
    /// `partition` the part of each element.
    ///
    /// All elements within `depth` + 1 steps of the part must be present, stepping from element to element
    /// across shared vertices. The last step determines the owners of the vertices at the rim of the halo.
    /// This precondition cannot be checked here; if ranks disagree about an owner, making the pattern
    /// fails.
    ///
    /// Errors: lists whose length differs from the number of vertices or elements, duplicate numbers, or a
    /// vertex of no element.
    pub fn new(
        mesh: Mesh,
        vertices: Vec<u64>,
        elements: Vec<u64>,
        (partition, part): (Partition, usize),
        depth: usize,
    ) -> Result<Self, MeshError> {
        super::check_partition(&partition, "elements", mesh.elements.len(), part)?;
        check_ids("vertices", &vertices, mesh.vertices)?;
        check_ids("elements", &elements, mesh.elements.len())?;
        let mut has_element = vec![false; mesh.vertices];
        mesh.elements.connectivity().iter().for_each(|&vertex| has_element[vertex as usize] = true);
        if let Some(vertex) = has_element.iter().position(|has| !has) {
            return Err(MeshError::LonelyVertex { vertex });
        }
        Ok(Self { mesh, vertices, elements, partition, part, depth })
    }

    /// The local elements and vertices.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The domains of the part with halos `depth` elements deep, as [`Mesh::halos`] makes them of a whole
    /// mesh.
    ///
    /// Errors: those of [`Mesh::halos`], and a depth larger than this part was made for. Some ranks may
    /// fail while others succeed; pass the result to `agree`.
    pub fn halos(&self, depth: usize, shared: Shared) -> Result<MeshHalos<'_>, MeshError> {
        if depth > self.depth {
            return Err(MeshError::DepthBeyondPart { depth, holds: self.depth });
        }
        let (source, partition, part) = self.source();
        MeshHalos::new(source, partition, part, depth, shared)
    }

    /// The local mesh with its global numbers, the partition of its elements, and the part whose halos can be made.
    pub(super) fn source(&self) -> (Source<'_>, &Partition, usize) {
        let ids = Some((&self.vertices[..], &self.elements[..]));
        (Source { mesh: &self.mesh, ids }, &self.partition, self.part)
    }

    /// The maximum depth of its halos.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }
}

impl Mesh {
    /// Refines the triangles around part `part` of this mesh and returns the local part for halos of depth
    /// `depth`. Every edge is cut into `segments` segments, so each triangle becomes `segments`^2 triangles
    /// of the same shape, which belong to the part of their triangle in `partition`. No rank stores the
    /// fine mesh: the coarse mesh is partitioned and then refined.
    ///
    /// Global numbers: the finer triangles of triangle t are numbered from t `segments`^2. Vertices are
    /// numbered in the order: those of this mesh, those on its edges (ordered by the pairs of their
    /// vertices), those inside its triangles.
    ///
    /// Errors: elements that are not triangles, an unsupported number of segments, more local cells than
    /// 32-bit numbers count, or a partition of another size.
    pub fn refined_part(
        &self,
        partition: &Partition,
        part: usize,
        segments: usize,
        depth: usize,
    ) -> Result<MeshPart, MeshError> {
        super::check_partition(partition, "elements", self.elements.len(), part)?;
        if !(1..=1 << 16).contains(&segments) {
            return Err(MeshError::Segments { segments });
        }
        let no_triangle = |[a, b, c]: [u32; 3]| a == b || b == c || c == a;
        let triangle = |element: usize| <[u32; 3]>::try_from(self.elements.get(element));
        let mut all = (0..self.elements.len()).map(triangle);
        if let Some(element) = all.position(|corners| corners.map_or(true, no_triangle)) {
            return Err(MeshError::NoTriangle { element });
        }
        // Two vertices of this mesh are at least `segments` steps apart in the finer mesh.
        let owned: Vec<bool> = partition.owners().iter().map(|&owner| owner == part).collect();
        let steps = (depth.saturating_add(1)).div_ceil(segments);
        let (distances, _) = self.distances(&owned, steps.min(self.elements.len()), Shared::Vertex)?;
        let here: Vec<usize> =
            (0..self.elements.len()).filter(|&element| distances[element] != UNSET).collect();

        let mut refinement = Refinement::new(self, segments as u64);
        let finer = here.len().saturating_mul(segments * segments);
        let mut owners = Vec::new();
        refinement
            .reserve(finer)
            .and_then(|()| owners.try_reserve_exact(finer))
            .map_err(|_| MeshError::Memory { vertices: finer / 2 })?;
        for element in here {
            if let Ok(corners) = triangle(element) {
                refinement.add(element as u64, corners);
                owners.resize(refinement.elements.len(), partition.owners()[element]);
            }
        }
        let Refinement { vertices, elements, connectivity, .. } = refinement;
        let mesh = Mesh::new(vertices.len(), 3, connectivity)?;
        // The owners are valid: they come from a partition over as many ranks.
        let owners = Partition::of_ranks(owners, partition.ranks());
        Ok(MeshPart { mesh, vertices, elements, partition: owners, part, depth })
    }
}

/// The finer triangles and their vertices, built from coarse triangles.
struct Refinement {
    segments: u64,
    /// Vertices of the coarse mesh.
    corners: u64,
    /// Edges of the coarse mesh: their ends, ascending.
    edges: Vec<[u32; 2]>,
    /// The first local vertex on each edge, and the local vertex at each corner; [`UNSET`] if not added yet.
    on_edges: Vec<u32>,
    at_corners: Vec<u32>,
    /// Global numbers of the local vertices and elements.
    vertices: Vec<u64>,
    elements: Vec<u64>,
    connectivity: Vec<u32>,
}

impl Refinement {
    fn new(mesh: &Mesh, segments: u64) -> Self {
        let mut edges: Vec<[u32; 2]> =
            (0..mesh.elements.len()).flat_map(|element| mesh.edges_of(element)).collect();
        edges.sort_unstable();
        edges.dedup();
        Self {
            segments,
            corners: mesh.vertices as u64,
            on_edges: vec![UNSET; edges.len()],
            at_corners: vec![UNSET; mesh.vertices],
            edges,
            vertices: Vec::new(),
            elements: Vec::new(),
            connectivity: Vec::new(),
        }
    }

    /// Reserves memory for that many triangles. There are about half as many vertices.
    fn reserve(&mut self, triangles: usize) -> Result<(), TryReserveError> {
        self.elements.try_reserve_exact(triangles)?;
        self.connectivity.try_reserve_exact(triangles.saturating_mul(3))?;
        self.vertices.try_reserve(triangles / 2)
    }

    /// Appends vertices with these global numbers and returns the local index of the first.
    fn append(vertices: &mut Vec<u64>, ids: std::ops::Range<u64>) -> u32 {
        // Making the mesh refuses more vertices than 32-bit numbers count.
        let first = vertices.len() as u32;
        vertices.extend(ids);
        first
    }

    fn corner(&mut self, vertex: u32) -> u32 {
        let at = &mut self.at_corners[vertex as usize];
        if *at == UNSET {
            *at = Self::append(&mut self.vertices, vertex.into()..u64::from(vertex) + 1);
        }
        *at
    }

    /// The local vertices on the edge from `a` to `b`, without its ends: the first one, and the step to the
    /// next.
    fn edge(&mut self, a: u32, b: u32) -> (i64, i64) {
        let inner = self.segments - 1;
        // The edge exists: it belongs to a triangle of the mesh.
        let edge = self.edges.partition_point(|ends| *ends < [a.min(b), a.max(b)]);
        let at = &mut self.on_edges[edge];
        if *at == UNSET {
            let first = self.corners + edge as u64 * inner;
            *at = Self::append(&mut self.vertices, first..first + inner);
        }
        let first = i64::from(*at);
        if a < b { (first, 1) } else { (first + inner as i64 - 1, -1) }
    }

    /// Adds the finer triangles of triangle `element`.
    fn add(&mut self, element: u64, [a, b, c]: [u32; 3]) {
        let n = self.segments as i64;
        let ends = [self.corner(a), self.corner(b), self.corner(c)];
        let [ab, ac, bc] = [(a, b), (a, c), (b, c)].map(|(from, to)| self.edge(from, to));
        let within = ((n - 1) * (n - 2) / 2) as u64;
        let before = self.corners + self.edges.len() as u64 * (self.segments - 1) + element * within;
        let inner = Self::append(&mut self.vertices, before..before + within);
        // Vertex (i, j) is i steps from a towards b and j steps towards c.
        let vertex = |i: i64, j: i64| -> u32 {
            match (i, j) {
                (0, 0) => ends[0],
                _ if i == n => ends[1],
                _ if j == n => ends[2],
                (_, 0) => (ab.0 + (i - 1) * ab.1) as u32,
                (0, _) => (ac.0 + (j - 1) * ac.1) as u32,
                _ if i + j == n => (bc.0 + (j - 1) * bc.1) as u32,
                _ => inner + ((i - 1) * (2 * n - 2 - i) / 2 + j - 1) as u32,
            }
        };
        let mut id = element * self.segments * self.segments;
        for (i, j) in (0..n).flat_map(|i| (0..n - i).map(move |j| (i, j))) {
            let mut triangle = |corners: [u32; 3]| {
                self.elements.push(id);
                self.connectivity.extend(corners);
                id += 1;
            };
            triangle([vertex(i, j), vertex(i + 1, j), vertex(i, j + 1)]);
            if i + j + 2 <= n {
                triangle([vertex(i + 1, j), vertex(i + 1, j + 1), vertex(i, j + 1)]);
            }
        }
    }
}

pub(super) fn check_ids(what: &'static str, ids: &[u64], needed: usize) -> Result<(), MeshError> {
    if ids.len() != needed {
        return Err(MeshError::Count { what, given: ids.len(), needed });
    }
    let mut sorted: Vec<(u64, usize)> = ids.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(MeshError::SameId { what, id: pair[0].0, first: pair[0].1, second: pair[1].1 }),
        None => Ok(()),
    }
}
