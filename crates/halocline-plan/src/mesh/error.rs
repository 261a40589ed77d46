//! What can be wrong with a mesh, its parts and its partitions.

/// A mesh that is none, or a partition that is not of it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// The connectivity does not divide into elements.
    #[error("{entries} entries of connectivity do not divide into elements of {arity} vertices")]
    Arity {
        /// Vertices of an element.
        arity: usize,
        /// Entries given.
        entries: usize,
    },
    /// Offsets that are not those of compressed rows.
    #[error("the offsets must ascend from 0 to the number of entries of connectivity, {entries}")]
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
    /// An element that names a vertex that the mesh does not have.
    #[error(
        "element {element}, vertex {position} of it: {vertex} is out of range, the mesh has {vertices} \
         vertices, counted from 0"
    )]
    Vertex {
        /// The element.
        element: usize,
        /// Position among its vertices.
        position: usize,
        /// The vertex named.
        vertex: u32,
        /// Vertices of the mesh.
        vertices: usize,
    },
    /// More than local indices count.
    #[error("{count} {what} are more than 32-bit indices count")]
    TooLarge {
        /// Vertices or elements.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// More vertices than there is memory for.
    #[error("there is no memory for what is made of a mesh of {vertices} vertices")]
    Memory {
        /// Vertices of the mesh.
        vertices: usize,
    },
    /// A partition of something else.
    #[error("the partition is of {given} cells, the mesh has {needed} {what}")]
    PartitionLength {
        /// Vertices or elements.
        what: &'static str,
        /// Cells of the partition.
        given: usize,
        /// Cells of the mesh.
        needed: usize,
    },
    /// A rank that the partition does not have.
    #[error("there is no part {rank}: the partition has {ranks}, numbered from 0")]
    Rank {
        /// The rank.
        rank: usize,
        /// Ranks of the partition.
        ranks: usize,
    },
    /// A solid whose elements have no known faces.
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
    /// A halo deeper than any.
    #[error("a halo of depth {depth}; halos are at most {most} elements deep")]
    TooDeep {
        /// Depth asked for.
        depth: usize,
        /// The deepest.
        most: usize,
    },
    /// A halo deeper than what is here of the mesh.
    #[error(
        "a halo of depth {depth}, but the part of the mesh here was made for depth {holds}; make it larger"
    )]
    DepthBeyondPart {
        /// Depth asked for.
        depth: usize,
        /// Depth that the part is good for.
        holds: usize,
    },
    /// A list that needs one entry for each vertex or element has another length.
    #[error("{given} {what} for a mesh that has {needed} of them here; give one for each")]
    Count {
        /// What was given.
        what: &'static str,
        /// How many.
        given: usize,
        /// How many are needed.
        needed: usize,
    },
    /// One global number for two vertices or two elements.
    #[error("{what} {first} and {second} here have one global number, {id}")]
    SameId {
        /// Vertices or elements.
        what: &'static str,
        /// The global number.
        id: u64,
        /// One that has it.
        first: usize,
        /// Another.
        second: usize,
    },
    /// A vertex of a part of a mesh that no element there has.
    #[error("vertex {vertex} belongs to no element of this part of the mesh; leave it out")]
    LonelyVertex {
        /// The vertex, as it is numbered here.
        vertex: usize,
    },
    /// Edges between vertices whose numbers are too large for it.
    #[error(
        "edges are numbered by the pair of their vertices, whose numbers must be below 2^32; vertex {id} is not"
    )]
    EdgeVertex {
        /// Global number of the vertex.
        id: u64,
    },
    /// Elements that are not triangles cannot be refined.
    #[error("element {element} is no triangle of three different vertices; only such are refined")]
    NoTriangle {
        /// The element.
        element: usize,
    },
    /// A refinement into nothing.
    #[error("triangles cannot be refined into edges of {segments} segments; give 1 to 65,536")]
    Segments {
        /// Segments asked for.
        segments: usize,
    },
}

crate::debug_as_text!(MeshError);
