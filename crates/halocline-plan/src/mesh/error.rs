//! Errors of meshes, their parts and their partitions.

/// An invalid mesh, or a partition that does not match it.
///
/// ```
/// use halocline_plan::{Mesh, MeshError};
///
/// // Two triangles with vertices counted from 1.
/// let error = Mesh::new(4, 3, vec![1, 2, 3, 2, 3, 4]).expect_err("vertex 4 of 4, counted from 0");
/// assert_eq!(error, MeshError::Vertex { element: 1, position: 2, vertex: 4, vertices: 4 });
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// Elements without vertices.
    #[error("an element has 0 vertices; give the number of vertices of an element, 3 for triangles")]
    NoVertices,
    /// The length of the connectivity is no multiple of the arity.
    #[error(
        "the connectivity has {entries} entries, no multiple of the {arity} vertices of an element; give {arity} entries for each element"
    )]
    Arity {
        /// Vertices of an element.
        arity: usize,
        /// Entries given.
        entries: usize,
    },
    /// Offsets that are not valid for compressed rows.
    #[error(
        "the offsets are no compressed rows: begin them with 0, never descend, and end with the {entries} entries of the connectivity"
    )]
    Offsets {
        /// Entries given.
        entries: usize,
    },
    /// An element without a vertex.
    #[error("element {element} has no vertex; it needs at least one")]
    EmptyElement {
        /// The element.
        element: usize,
    },
    /// A vertex that the mesh does not have.
    #[error(
        "vertex {position} of element {element} is {vertex}, but the mesh has {vertices} vertices, counted from 0; correct the \
         connectivity, or the number of vertices"
    )]
    Vertex {
        /// The element.
        element: usize,
        /// Position among the element's vertices.
        position: usize,
        /// The vertex named.
        vertex: u32,
        /// Vertices of the mesh.
        vertices: usize,
    },
    /// A count beyond 32-bit indices.
    #[error("{count} {what} exceed 32-bit indices; split the mesh into parts")]
    TooLarge {
        /// The counted things.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// Allocation failed.
    #[error(
        "out of memory: cannot allocate the tables of a mesh of {vertices} vertices; split it into parts"
    )]
    Memory {
        /// Vertices of the mesh.
        vertices: usize,
    },
    /// The number of cells of the partition differs from that of the mesh.
    #[error(
        "the partition has {given} cells, but the mesh has {needed} {what}; make the partition of this mesh"
    )]
    PartitionLength {
        /// Vertices or elements.
        what: &'static str,
        /// Cells of the partition.
        given: usize,
        /// Cells of the mesh.
        needed: usize,
    },
    /// A rank that the partition does not have.
    #[error(
        "there is no part {rank}: the partition has {ranks}, numbered from 0; give a number below {ranks}"
    )]
    Rank {
        /// The rank.
        rank: usize,
        /// Ranks of the partition.
        ranks: usize,
    },
    /// An element that is no supported solid.
    #[error(
        "element {element} has {vertices} vertices; elements of a solid have 4 (tetrahedron), 5 (pyramid), \
         6 (prism) or 8 (hexahedron)"
    )]
    Solid {
        /// The element.
        element: usize,
        /// Its vertices.
        vertices: usize,
    },
    /// A halo deeper than the mesh.
    #[error(
        "a halo of depth {depth} around part {part}: the mesh ends at depth {ends} from there; ask for at most that"
    )]
    DepthBeyondMesh {
        /// The part.
        part: usize,
        /// Depth asked for.
        depth: usize,
        /// The last depth at which there are elements.
        ends: usize,
    },
    /// A halo deeper than the supported maximum.
    #[error("a halo of depth {depth}; halos are at most {most} elements deep")]
    TooDeep {
        /// Depth asked for.
        depth: usize,
        /// The deepest.
        most: usize,
    },
    /// A halo deeper than the local part of the mesh supports.
    #[error(
        "a halo of depth {depth}, but the local part of the mesh supports depth {holds}; make the part for that depth"
    )]
    DepthBeyondPart {
        /// Depth asked for.
        depth: usize,
        /// Depth that the part supports.
        holds: usize,
    },
    /// A list that is not one entry for each vertex or element.
    #[error("{given} {what} for a mesh that has {needed} of them here; give one for each")]
    Count {
        /// What was given.
        what: &'static str,
        /// How many.
        given: usize,
        /// How many are needed.
        needed: usize,
    },
    /// Two vertices or two elements with one global number.
    #[error("{what} {first} and {second} have the same global number {id}; numbers must be unique")]
    SameId {
        /// Vertices or elements.
        what: &'static str,
        /// The global number.
        id: u64,
        /// The first local index.
        first: usize,
        /// The second local index.
        second: usize,
    },
    /// A vertex without an element in a part of a mesh.
    #[error("vertex {vertex} belongs to no element of this part of the mesh; leave it out")]
    LonelyVertex {
        /// Local index of the vertex.
        vertex: usize,
    },
    /// A vertex number too large to number edges.
    #[error(
        "edges are numbered by the pair of their vertices, whose numbers must be below 2^32; vertex {id} is not"
    )]
    EdgeVertex {
        /// Global number of the vertex.
        id: u64,
    },
    /// An element that cannot be refined because it is not a triangle.
    #[error(
        "element {element} is not a triangle of three different vertices; only such triangles can be refined"
    )]
    NoTriangle {
        /// The element.
        element: usize,
    },
    /// An unsupported number of segments.
    #[error("triangles cannot be refined into edges of {segments} segments; give 1 to 65,536")]
    Segments {
        /// Segments asked for.
        segments: usize,
    },
    /// More bisections of an icosahedron than 32-bit numbers count triangles.
    #[error("an icosahedron whose edges are bisected {bisections} times; give at most {most}")]
    Bisections {
        /// Bisections asked for.
        bisections: usize,
        /// The largest number.
        most: usize,
    },
    /// The halos of ICON asked for around solids.
    #[error("the elements are solids, but the halos of ICON are those of polygons; ask for `Mesh::halos`")]
    NoSurface,
}

crate::debug_as_text!(MeshError);
