//! The global mesh and its refinement.

use super::geometry::{Vector, middle};
use super::input::Fesom;
use halocline::MeshError;

/// The model's mesh of the sphere, in which each triangle is split into four `refinements` times. It is the same on every rank.
///
/// The nodes of the model's mesh have the lowest numbers, then those of the first refinement, and so on. The children of triangle t are
/// 4 t to 4 t + 3: child c < 3 keeps corner c of its parent as its own corner c, and child 3 lies in the middle.
pub struct Mesh {
    /// Each node as a point of the unit sphere.
    pub positions: Vec<Vector>,
    /// The nodes of each triangle, counterclockwise seen from above.
    pub topology: halocline::Mesh,
    /// The place of each node in the model's mesh.
    pub origins: Vec<Origin>,
    /// Number of refinements.
    pub refinements: u32,
}

/// The place of a node in a triangle, or on an edge, of the model's mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Nodes of the model's mesh, ascending where the weight is not 0.
    pub nodes: [u32; 3],
    /// Their weights in units of 2^-refinements; they sum to 1.
    pub weights: [u16; 3],
}

/// Maximum number of refinements, with which the pi mesh has 24 million triangles.
pub const MOST_REFINEMENTS: u32 = 6;

impl Mesh {
    /// The model's mesh, refined `refinements` times, at most [`MOST_REFINEMENTS`].
    pub fn new(fesom: &Fesom, refinements: u32) -> Result<Self, MeshError> {
        let count = fesom.triangles.len() << (2 * refinements);
        // There are fewer nodes than corners of triangles.
        if u32::try_from(3 * count).is_err() {
            return Err(MeshError::TooLarge { what: "corners of triangles", count: 3 * count });
        }
        let mut positions = fesom.nodes.clone();
        let mut triangles = fesom.triangles.clone();
        let origin = |node| Origin { nodes: [node; 3], weights: [1, 0, 0] };
        let mut origins: Vec<Origin> = (0..positions.len() as u32).map(origin).collect();
        for _ in 0..refinements {
            let (children, parents) = split(&triangles, positions.len());
            triangles = children;
            origins.iter_mut().for_each(|origin| origin.weights = origin.weights.map(|weight| 2 * weight));
            for [a, b] in parents.into_iter().map(|pair| pair.map(|node| node as usize)) {
                positions.push(middle(&[positions[a], positions[b]]));
                origins.push(Origin::between(origins[a], origins[b]));
            }
        }
        let topology = halocline::Mesh::new(positions.len(), 3, triangles.into_flattened())?;
        Ok(Self { positions, topology, origins, refinements })
    }

    /// The corners of each triangle.
    pub fn triangles(&self) -> &[[u32; 3]] {
        // The topology has only triangles, so that the chunks have no remainder.
        self.topology.elements().connectivity().as_chunks().0
    }

    /// The corners of a triangle on the unit sphere.
    pub fn corners(&self, triangle: usize) -> [Vector; 3] {
        self.triangles()[triangle].map(|node| self.positions[node as usize])
    }

    /// The triangle of the model's mesh that `triangle` is a part of.
    pub fn ancestor(&self, triangle: usize) -> usize {
        triangle >> (2 * self.refinements)
    }
}

impl Origin {
    /// The middle between two origins on one triangle of the model's mesh. Their weights are even.
    fn between(a: Self, b: Self) -> Self {
        let mut merged: Vec<(u32, u16)> = Vec::with_capacity(6);
        for (node, weight) in [a, b].iter().flat_map(|origin| origin.nodes.into_iter().zip(origin.weights)) {
            match merged.iter_mut().find(|(other, _)| *other == node) {
                Some((_, sum)) => *sum += weight / 2,
                None => merged.push((node, weight / 2)),
            }
        }
        merged.retain(|&(_, weight)| weight > 0);
        merged.sort_unstable();
        let mut origin = Self { nodes: [0; 3], weights: [0; 3] };
        for (at, (node, weight)) in merged.into_iter().take(3).enumerate() {
            (origin.nodes[at], origin.weights[at]) = (node, weight);
        }
        origin
    }
}

/// Splits every triangle into four. Returns the children, and for each new node the ends of the edge that it halves. The first new node
/// has the number `nodes`.
fn split(triangles: &[[u32; 3]], nodes: usize) -> (Vec<[u32; 3]>, Vec<[u32; 2]>) {
    const NONE: u32 = u32::MAX;
    // For each node, a linked list of the new nodes on its edges to nodes with higher numbers.
    let mut first = vec![NONE; nodes];
    let mut next: Vec<u32> = Vec::new();
    let mut parents: Vec<[u32; 2]> = Vec::new();
    let mut halve = |a: u32, b: u32| {
        let pair = [a.min(b), a.max(b)];
        let mut at = first[pair[0] as usize];
        while at != NONE {
            if parents[at as usize] == pair {
                return nodes as u32 + at;
            }
            at = next[at as usize];
        }
        let new = parents.len() as u32;
        next.push(std::mem::replace(&mut first[pair[0] as usize], new));
        parents.push(pair);
        nodes as u32 + new
    };
    let mut children = Vec::with_capacity(4 * triangles.len());
    for &[a, b, c] in triangles {
        let [ab, bc, ca] = [halve(a, b), halve(b, c), halve(c, a)];
        children.extend([[a, ab, ca], [ab, b, bc], [ca, bc, c], [bc, ca, ab]]);
    }
    (children, parents)
}

/// The inverse of `split`: the parents of `children`, and for each node from number `nodes` on the ends of the edge that it halves.
/// `nodes` is the number of nodes before the last refinement.
pub fn coarser(children: &[[u32; 3]], nodes: usize) -> (Vec<[u32; 3]>, Vec<[u32; 2]>) {
    let (families, _) = children.as_chunks::<4>();
    let new = families.iter().flatten().flatten().map(|&node| node as usize + 1).max().unwrap_or(nodes);
    let mut parents = vec![[0; 2]; new - nodes];
    let triangles = families.iter().map(|family| {
        let [a, b, c] = [family[0][0], family[1][1], family[2][2]];
        let ends = [[b, c], [c, a], [a, b]];
        for (node, [a, b]) in family[3].into_iter().zip(ends) {
            parents[node as usize - nodes] = [a.min(b), a.max(b)];
        }
        [a, b, c]
    });
    (triangles.collect(), parents)
}
