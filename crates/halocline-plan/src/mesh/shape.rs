//! Edges and facets of elements, and the neighbour relation through them.

use super::{Elements, Mesh, MeshError, Rows};

/// What two neighbouring elements share.
///
/// ```
/// use halocline_plan::{Mesh, Partition, Shared};
///
/// // Triangles 0 and 1 share the edge 1-2, triangles 0 and 2 only vertex 2. Part 0 owns triangle 0.
/// let mesh = Mesh::new(6, 3, vec![0, 1, 2, 1, 3, 2, 2, 4, 5])?;
/// let partition = Partition::given(vec![0, 1, 1], 2)?;
/// let halo = |shared| mesh.halos(&partition, 0, 1, shared).map(|halos| halos.elements().cells().to_vec());
/// assert_eq!(halo(Shared::Edge)?, [0, 1]);
/// assert_eq!(halo(Shared::Vertex)?, [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shared {
    /// At least one vertex.
    #[default]
    Vertex,
    /// At least one edge: two vertices that are joined in both elements.
    Edge,
    /// A facet: a face of solids, an edge of polygons.
    Facet,
}

/// Placeholder for the missing vertex of a triangular face.
const NONE: u32 = u32::MAX;

/// The vertices of a face, ascending, then [`NONE`].
type Face = [u32; 4];

const TETRAHEDRON: (&[[usize; 2]], &[&[usize]]) =
    (&[[0, 1], [1, 2], [2, 0], [0, 3], [1, 3], [2, 3]], &[&[0, 1, 2], &[0, 1, 3], &[1, 2, 3], &[0, 2, 3]]);
const PYRAMID: (&[[usize; 2]], &[&[usize]]) = (
    &[[0, 1], [1, 2], [2, 3], [3, 0], [0, 4], [1, 4], [2, 4], [3, 4]],
    &[&[0, 1, 2, 3], &[0, 1, 4], &[1, 2, 4], &[2, 3, 4], &[3, 0, 4]],
);
const PRISM: (&[[usize; 2]], &[&[usize]]) = (
    &[[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [0, 3], [1, 4], [2, 5]],
    &[&[0, 1, 2], &[3, 4, 5], &[0, 1, 4, 3], &[1, 2, 5, 4], &[2, 0, 3, 5]],
);
const HEXAHEDRON: (&[[usize; 2]], &[&[usize]]) = (
    &[[0, 1], [1, 2], [2, 3], [3, 0], [4, 5], [5, 6], [6, 7], [7, 4], [0, 4], [1, 5], [2, 6], [3, 7]],
    &[&[0, 1, 2, 3], &[4, 5, 6, 7], &[0, 1, 5, 4], &[1, 2, 6, 5], &[2, 3, 7, 6], &[3, 0, 4, 7]],
);

/// Edges and faces of a solid with that many vertices; [`Mesh::solid`] admits no others.
fn solid(vertices: usize) -> (&'static [[usize; 2]], &'static [&'static [usize]]) {
    match vertices {
        4 => TETRAHEDRON,
        5 => PYRAMID,
        6 => PRISM,
        _ => HEXAHEDRON,
    }
}

impl Mesh {
    /// The edges of an element, lower vertex first. Skips edges with equal ends; an edge may appear twice.
    pub(super) fn edges_of(&self, element: usize) -> impl Iterator<Item = [u32; 2]> {
        let corners = self.elements.get(element);
        let (edges, count) = match self.solid {
            true => (solid(corners.len()).0, solid(corners.len()).0.len()),
            false => (&[][..], corners.len()),
        };
        let ends = move |at: usize| match edges.get(at) {
            Some(&[a, b]) => [corners[a], corners[b]],
            None => [corners[at], corners[(at + 1) % corners.len()]],
        };
        (0..count).map(ends).filter(|[a, b]| a != b).map(|[a, b]| [a.min(b), a.max(b)])
    }

    /// The faces of a solid element. Skips faces that degenerate to an edge.
    fn faces_of(&self, element: usize) -> impl Iterator<Item = Face> {
        let corners = self.elements.get(element);
        solid(corners.len()).1.iter().filter_map(move |face| {
            let mut vertices: Vec<u32> = face.iter().map(|&at| corners[at]).collect();
            vertices.sort_unstable();
            vertices.dedup();
            let third = *vertices.get(2)?;
            Some([vertices[0], vertices[1], third, vertices.get(3).copied().unwrap_or(NONE)])
        })
    }

    /// The distance of each element from those in `first`, in steps to neighbours, up to `depth`; [`UNSET`]
    /// if farther. Also returns the largest distance at which there is an element.
    pub(super) fn distances(
        &self,
        first: &[bool],
        depth: usize,
        shared: Shared,
    ) -> Result<(Vec<u32>, usize), MeshError> {
        let elements = self.elements.len();
        let (rows, count) = match shared {
            Shared::Vertex => return Ok(distances(&self.elements, self.vertices, first, depth)),
            Shared::Facet if self.solid => numbered(elements, |element| self.faces_of(element))?,
            Shared::Edge | Shared::Facet => numbered(elements, |element| self.edges_of(element))?,
        };
        Ok(distances(&rows, count, first, depth))
    }
}

/// No distance or index: elements beyond the depth requested, and what is not local.
pub(super) const UNSET: u32 = u32::MAX;

/// As [`Mesh::distances`], for elements that are neighbours if they have one of `things` in common.
fn distances(rows: &Elements, things: usize, first: &[bool], depth: usize) -> (Vec<u32>, usize) {
    let mut distance: Vec<u32> = first.iter().map(|&first| if first { 0 } else { UNSET }).collect();
    let mut reached = vec![false; things];
    let reach = |elements: &mut dyn Iterator<Item = usize>, reached: &mut [bool]| {
        for element in elements {
            rows.get(element).iter().for_each(|&thing| reached[thing as usize] = true);
        }
    };
    reach(&mut (0..first.len()).filter(|&element| first[element]), &mut reached);
    let mut ends = 0;
    for step in 1..=depth {
        let is_next = |&element: &usize| {
            distance[element] == UNSET && rows.get(element).iter().any(|&thing| reached[thing as usize])
        };
        let next: Vec<usize> = (0..first.len()).filter(is_next).collect();
        if next.is_empty() {
            break;
        }
        next.iter().for_each(|&element| distance[element] = step as u32);
        reach(&mut next.iter().copied(), &mut reached);
        ends = step;
    }
    (distance, ends)
}

/// Numbers the different things of all elements. Returns the numbers of each element's things, and how many
/// different ones there are.
fn numbered<T: Ord + Copy, I: Iterator<Item = T>>(
    elements: usize,
    things_of: impl Fn(usize) -> I,
) -> Result<(Elements, usize), MeshError> {
    let mut offsets = vec![0];
    let mut all: Vec<(T, u32)> = Vec::new();
    for element in 0..elements {
        for thing in things_of(element) {
            all.push((thing, all.len() as u32));
        }
        offsets.push(all.len());
    }
    if u32::try_from(all.len()).is_err() {
        return Err(MeshError::TooLarge { what: "edges or faces of elements", count: all.len() });
    }
    all.sort_unstable();
    let mut numbers = vec![0; all.len()];
    let mut count = 0;
    for same in all.chunk_by(|a, b| a.0 == b.0) {
        same.iter().for_each(|&(_, place)| numbers[place as usize] = count);
        count += 1;
    }
    Ok((Elements { rows: Rows::Offsets(offsets), connectivity: numbers }, count as usize))
}
