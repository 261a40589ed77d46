//! Icosahedral grids: the faces of an icosahedron, whose edges are bisected again and again.

use super::{Mesh, MeshError};
use std::collections::{HashMap, TryReserveError};

/// The largest number of bisections whose triangles 32-bit numbers count.
const MOST_BISECTIONS: usize = 13;
/// Vertices and faces of an icosahedron.
const VERTICES: usize = 12;
const FACES: usize = 20;

/// A grid of triangles on the sphere, as ICON and DYNAMICO use it: an icosahedron whose edges are bisected n times, so that each face
/// becomes 4^n triangles. The middle of each edge is moved to the sphere.
///
/// Triangle t of one bisection becomes the triangles 4 t to 4 t + 3 of the next one: those at its corners, then the one in its middle.
/// Vertices keep their numbers. Corners are counterclockwise seen from outside. ICON's grid R2B4 has as many triangles as this one with
/// 5 bisections; ICON then moves the vertices a little.
///
/// ```
/// use halocline_plan::IcosahedralGrid;
///
/// let grid = IcosahedralGrid::new(4)?;
/// assert_eq!((grid.mesh().elements().len(), grid.mesh().vertices()), (20 * 256, 10 * 256 + 2));
/// let [x, y, z] = grid.points()[0];
/// assert!((x * x + y * y + z * z - 1.0).abs() < 1e-15);
/// # Ok::<(), halocline_plan::MeshError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct IcosahedralGrid {
    mesh: Mesh,
    points: Vec<[f64; 3]>,
}

impl IcosahedralGrid {
    /// The grid after n bisections: 480 x 4^n bytes, and about half as much again while it is made.
    ///
    /// Errors: more than 13 bisections, or no memory for the triangles.
    pub fn new(bisections: usize) -> Result<Self, MeshError> {
        if bisections > MOST_BISECTIONS {
            return Err(MeshError::Bisections { bisections, most: MOST_BISECTIONS });
        }
        let vertices = (10 << (2 * bisections)) + 2;
        let no_memory = |_| MeshError::Memory { vertices };
        let mut points = Vec::new();
        points.try_reserve_exact(vertices).map_err(no_memory)?;
        points.extend(corners());
        let mut triangles = FACE_CORNERS.to_vec();
        for _ in 0..bisections {
            triangles = bisect(&mut points, &triangles).map_err(no_memory)?;
        }
        let mesh = Mesh::new(points.len(), 3, triangles.into_flattened())?;
        Ok(Self { mesh, points })
    }

    /// The triangles and their vertices.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Each vertex as a point of the unit sphere.
    pub fn points(&self) -> &[[f64; 3]] {
        &self.points
    }

    /// The triangles, and each vertex as a point of the unit sphere.
    pub fn into_parts(self) -> (Mesh, Vec<[f64; 3]>) {
        (self.mesh, self.points)
    }
}

/// The vertices of an icosahedron: two poles, five around each.
fn corners() -> [[f64; 3]; VERTICES] {
    let (height, radius) = (0.2f64.sqrt(), 0.8f64.sqrt());
    std::array::from_fn(|vertex| {
        let place = match vertex {
            0 => return [0.0, 0.0, 1.0],
            11 => return [0.0, 0.0, -1.0],
            _ => vertex - 1,
        };
        let is_southern = place >= 5;
        let turn = (place % 5) as f64 + if is_southern { 0.5 } else { 0.0 };
        let (sin, cos) = (turn * 0.4 * std::f64::consts::PI).sin_cos();
        [radius * cos, radius * sin, if is_southern { -height } else { height }]
    })
}

/// Its faces: five at the north pole, ten around the equator, five at the south pole.
const FACE_CORNERS: [[u32; 3]; FACES] = {
    let mut faces = [[0; 3]; FACES];
    let mut at = 0;
    while at < 5 {
        let next = (at + 1) % 5;
        let [north, north_next, south, south_next] = [1 + at, 1 + next, 6 + at, 6 + next];
        faces[at as usize] = [0, north, north_next];
        faces[5 + 2 * at as usize] = [north, south, north_next];
        faces[6 + 2 * at as usize] = [north_next, south, south_next];
        faces[15 + at as usize] = [11, south_next, south];
        at += 1;
    }
    faces
};

/// Divides each triangle into four. `points` has room for the middles of all edges.
fn bisect(points: &mut Vec<[f64; 3]>, coarse: &[[u32; 3]]) -> Result<Vec<[u32; 3]>, TryReserveError> {
    let mut triangles = Vec::new();
    triangles.try_reserve_exact(4 * coarse.len())?;
    let mut middles: HashMap<[u32; 2], u32> = HashMap::new();
    // Two triangles share each edge.
    middles.try_reserve(coarse.len() / 2 * 3)?;
    let mut middle = |a: u32, b: u32| {
        *middles.entry([a.min(b), a.max(b)]).or_insert_with(|| {
            let (from, to) = (points[a as usize], points[b as usize]);
            let sum: [f64; 3] = std::array::from_fn(|axis| from[axis] + to[axis]);
            let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
            points.push(sum.map(|x| x / length));
            points.len() as u32 - 1
        })
    };
    for &[a, b, c] in coarse {
        let [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
        triangles.extend([[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]);
    }
    Ok(triangles)
}
