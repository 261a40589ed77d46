//! Median-dual faces on the sphere.
//!
//! Each triangle is projected onto the tangent plane at its middle. There, x points to the model's east and y to its north.

pub(crate) use crate::geometry::{
    Vector, cross, dot, lon_lat, middle, minus, on_sphere, spherical_area, triple, unit,
};

/// The Earth's radius in the model, m.
pub const EARTH_RADIUS: f64 = 6_367_500.0;

/// East and north at a point of the sphere, in the frame of the model's velocities.
///
/// FESOM rotates its sphere by the Euler angles (50, 15, -90) degrees, so that the pole is in Greenland, and gives velocities along the
/// rotated meridians and parallels. With this frame the divergence of the columns is a hundred times smaller than with geographic east
/// and north.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Unit vector to the model's east.
    pub east: Vector,
    /// Unit vector to the model's north.
    pub north: Vector,
}

impl Frame {
    /// The frame at `point`.
    pub fn at(point: Vector) -> Self {
        let pole = on_sphere(-40.0, 75.0);
        let along = cross(pole, point);
        // At the pole itself any direction is east.
        let along = if dot(along, along) > 0.0 { along } else { cross([0.0, 1.0, 0.0], point) };
        let east = unit(along);
        Self { east, north: cross(point, east) }
    }

    /// The components of a tangent vector to the east and to the north.
    pub fn components(&self, vector: Vector) -> [f64; 2] {
        [dot(vector, self.east), dot(vector, self.north)]
    }
}

/// A triangle in its tangent plane. Corners are counted 0, 1, 2 counterclockwise.
#[derive(Debug, Clone, Copy)]
pub struct Triangle {
    /// Area in the plane, m^2.
    pub area: f64,
    /// Gradients of the functions that are 1 at one corner and 0 at the others, 1/m.
    pub gradients: [[f64; 2]; 3],
    /// The median-dual face between corner c and corner c + 1 (mod 3): its length, m, along its normal,
    /// which points from c to c + 1.
    pub faces: [[f64; 2]; 3],
}

impl Triangle {
    /// The triangle with these corners.
    pub fn new(corners: [Vector; 3]) -> Self {
        let frame = Frame::at(middle(&corners));
        let points = corners.map(|corner| frame.components(corner).map(|x| x * EARTH_RADIUS));
        let edges: [[f64; 2]; 3] = std::array::from_fn(|c| {
            let (from, to) = (points[c], points[(c + 1) % 3]);
            [to[0] - from[0], to[1] - from[1]]
        });
        let area = 0.5 * (edges[0][0] * edges[1][1] - edges[0][1] * edges[1][0]);
        // A corner's gradient is perpendicular to the opposite edge, edge c + 1.
        let gradients = std::array::from_fn(|c| {
            let across = edges[(c + 1) % 3];
            [-across[1] / (2.0 * area), across[0] / (2.0 * area)]
        });
        // The face goes from the middle of edge c to the middle of the triangle, a third of the way to the third corner. This is
        // (edge c + 1 - edge c + 2) / 6. Rotated clockwise it is the normal.
        let faces = std::array::from_fn(|c| {
            let (next, last) = (edges[(c + 1) % 3], edges[(c + 2) % 3]);
            [(next[1] - last[1]) / 6.0, (last[0] - next[0]) / 6.0]
        });
        Self { area, gradients, faces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners() -> [Vector; 3] {
        // Over the date line.
        [on_sphere(179.0, 50.0), on_sphere(-178.5, 50.5), on_sphere(179.5, 52.0)]
    }

    fn close(a: f64, b: f64, scale: f64) -> bool {
        (a - b).abs() < 1e-12 * scale
    }

    #[test]
    fn the_plane_area_is_nearly_the_spherical_one() {
        let spherical = spherical_area(corners()) * EARTH_RADIUS.powi(2);
        let ratio = Triangle::new(corners()).area / spherical;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn gradients_are_those_of_linear_functions() {
        let triangle = Triangle::new(corners());
        let frame = Frame::at(middle(&corners()));
        // x and y themselves.
        for axis in 0..2 {
            let value = |c: usize| frame.components(corners()[c])[axis] * EARTH_RADIUS;
            for component in 0..2 {
                let gradient: f64 = (0..3).map(|c| value(c) * triangle.gradients[c][component]).sum();
                assert!(close(gradient, if axis == component { 1.0 } else { 0.0 }, 10.0), "{gradient}");
            }
        }
    }

    #[test]
    fn the_faces_around_a_corner_close_its_part_of_the_triangle() {
        // Weak divergence: the outward faces of a corner sum to -area * gradient.
        let triangle = Triangle::new(corners());
        for c in 0..3 {
            for axis in 0..2 {
                let outward = triangle.faces[c][axis] - triangle.faces[(c + 2) % 3][axis];
                assert!(close(outward, -triangle.area * triangle.gradients[c][axis], 1e6));
            }
        }
    }

    #[test]
    fn frames_are_right_angled_even_at_the_models_pole() {
        for point in [on_sphere(-40.0, 75.0), on_sphere(0.0, 90.0), on_sphere(123.0, -45.0)] {
            let Frame { east, north } = Frame::at(point);
            assert!(close(triple([0.0; 3], east, north), 0.0, 1.0));
            assert!(close(dot(cross(east, north), point), 1.0, 1.0));
        }
    }
}
