//! Points, distances and areas on the unit sphere.
//!
//! Points are unit vectors in Cartesian coordinates, so that neither the poles nor the date line are special.

/// A vector in space.
pub(crate) type Vector = [f64; 3];

/// The point at a longitude and latitude in degrees.
pub(crate) fn on_sphere(longitude: f64, latitude: f64) -> Vector {
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
}

/// Longitude (-180 to 180) and latitude of a point, degrees.
pub(crate) fn lon_lat([x, y, z]: Vector) -> (f64, f64) {
    (y.atan2(x).to_degrees(), z.clamp(-1.0, 1.0).asin().to_degrees())
}

/// The sum of the products of the components.
pub(crate) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The vector product.
pub(crate) fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The difference `a - b`.
pub(crate) fn minus(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|axis| a[axis] - b[axis])
}

/// `factor` times a vector.
pub(crate) fn times(factor: f64, a: Vector) -> Vector {
    a.map(|component| factor * component)
}

/// The sum of two vectors.
pub(crate) fn plus(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|axis| a[axis] + b[axis])
}

/// The point of the sphere in the middle between some points.
pub(crate) fn middle(points: &[Vector]) -> Vector {
    unit(points.iter().fold([0.0; 3], |sum, &point| plus(sum, point)))
}

/// The vector of length 1 in the same direction.
pub(crate) fn unit(a: Vector) -> Vector {
    let length = dot(a, a).sqrt();
    a.map(|component| component / length)
}

/// The angle between two vectors, accurate for small angles, too.
pub(crate) fn angle(a: Vector, b: Vector) -> f64 {
    let across = cross(a, b);
    dot(across, across).sqrt().atan2(dot(a, b))
}

/// The volume spanned by three vectors, computed without cancellation for points close to each other. It is positive if they are
/// counterclockwise seen from outside.
pub(crate) fn triple(a: Vector, b: Vector, c: Vector) -> f64 {
    dot(a, cross(minus(b, a), minus(c, a)))
}

/// Area of a triangle whose sides are great circles.
///
/// Source: A. van Oosterom and J. Strackee, "The solid angle of a plane triangle", IEEE Trans. Biomed.
/// Eng. 30 (1983).
pub(crate) fn spherical_area([a, b, c]: [Vector; 3]) -> f64 {
    2.0 * triple(a, b, c).atan2(1.0 + dot(a, b) + dot(b, c) + dot(c, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_octant_has_an_eighth_of_the_sphere() {
        let octant = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        assert!((spherical_area(octant) - std::f64::consts::FRAC_PI_2).abs() < 1e-12);
    }

    #[test]
    fn small_angles_are_accurate() {
        let point = on_sphere(1e-7, 0.0);
        assert!((angle([1.0, 0.0, 0.0], point) / 1e-7f64.to_radians() - 1.0).abs() < 1e-12);
        assert_eq!(angle([1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]), std::f64::consts::PI);
    }
}
