//! The problems: the initial field, the flow through a side, and the exact solution.
//!
//! Lengths are in radii of the Earth, times in days.

use super::SphereError;
use super::args::SphereArgs;
use super::choice::GridChoice;
use super::grid::{Arc, distance};
use crate::geometry::{Vector, angle, cross, dot, on_sphere, plus, times};
use std::f64::consts::{PI, TAU};

/// Radius of the Earth, m.
pub(super) const EARTH_RADIUS: f64 = 6.371_22e6;
/// Time of a rotation, days.
const PERIOD: f64 = 12.0;
/// Diffusivity of heat, m^2/s.
const DIFFUSIVITY: f64 = 1e5;
/// Angle between the bell's path and the equator by default, degrees. This path crosses edges and corners of the cubed sphere.
const ANGLE: f64 = 45.0;

/// What happens to the field.
#[derive(Debug, Clone)]
pub(super) enum Problem {
    /// A rotation as of a solid body carries a cosine bell once around the Earth in 12 days.
    ///
    /// Source: D. L. Williamson et al., "A standard test set for numerical approximations to the shallow water equations in spherical
    /// geometry", J. Comput. Phys. 102 (1992), test case 1.
    Rotation {
        /// The axis of the rotation, a unit vector.
        axis: Vector,
        bell: Bell,
    },
    /// Heat spreads from a bell.
    Diffusion { bell: Bell, spread: Spread },
}

impl Problem {
    /// The problem of these arguments.
    pub(super) fn new(args: &SphereArgs) -> Result<Self, SphereError> {
        let angle = args.angle.unwrap_or(ANGLE);
        match args.grid {
            GridChoice::Tripolar { .. } | GridChoice::TripolarFile { .. } => match args.angle {
                Some(_) => Err(SphereError::AngleOfHeat),
                None => Ok(Self::diffusion()),
            },
            _ if !angle.is_finite() => Err(SphereError::Angle { angle }),
            _ => Ok(Self::rotation(angle)),
        }
    }

    /// The rotation whose equator is turned by this angle, degrees.
    pub(super) fn rotation(angle: f64) -> Self {
        let (sin, cos) = angle.to_radians().sin_cos();
        let bell = Bell { centre: on_sphere(-90.0, 0.0), height: 1000.0, radius: 1.0 / 3.0 };
        Self::Rotation { axis: [-sin, 0.0, cos], bell }
    }

    /// Heat of a bell beside the North Pole, which lies on both banks of the fold.
    pub(super) fn diffusion() -> Self {
        let bell = Bell { centre: on_sphere(-40.0, 84.0), height: 10.0, radius: 0.3 };
        let spread = Spread::new(&bell);
        Self::Diffusion { bell, spread }
    }

    pub(super) fn bell(&self) -> &Bell {
        match self {
            Self::Rotation { bell, .. } | Self::Diffusion { bell, .. } => bell,
        }
    }

    /// What the flow through a side depends on: the volume per day that leaves a cell through it, or the conductance between the
    /// centres of the cells beside it. The former is exact: the difference of the stream function at the ends.
    pub(super) fn flow(&self, side: &Arc, centres: [Vector; 2]) -> f64 {
        match self {
            Self::Rotation { axis, .. } => {
                let [from, to] = side.0.map(|end| dot(*axis, end));
                TAU / PERIOD * (to - from)
            }
            Self::Diffusion { .. } => diffusivity() * side.length() / distance(centres[0], centres[1]),
        }
    }

    /// The exact solution at a point.
    pub(super) fn exact(&self, point: Vector, days: f64) -> f64 {
        match self {
            Self::Rotation { axis, bell } => {
                let centre = rotated(bell.centre, *axis, TAU * days / PERIOD);
                Bell { centre, ..*bell }.value(point)
            }
            Self::Diffusion { bell, spread } => spread.value(dot(bell.centre, point), days),
        }
    }

    /// The longest step that is accurate, days, whatever is stable.
    pub(super) fn longest_step(&self) -> f64 {
        match self {
            Self::Rotation { .. } => f64::INFINITY,
            // Stable steps on coarse grids are longer than the spreading takes.
            Self::Diffusion { .. } => 0.1,
        }
    }

    /// Width of the halo that a step reads.
    pub(super) fn halo(&self) -> usize {
        match self {
            Self::Rotation { .. } => 2,
            Self::Diffusion { .. } => 1,
        }
    }

    /// The name of the problem.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rotation { .. } => "rotation",
            Self::Diffusion { .. } => "diffusion",
        }
    }

    /// The title of its picture, before the name of the grid.
    pub(super) fn title(&self) -> &'static str {
        match self {
            Self::Rotation { .. } => "A bell carried around the Earth:",
            Self::Diffusion { .. } => "Heat that spreads across a fold:",
        }
    }

    /// The unit of the field.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Rotation { .. } => "m",
            Self::Diffusion { .. } => "K",
        }
    }
}

fn diffusivity() -> f64 {
    DIFFUSIVITY * 86_400.0 / (EARTH_RADIUS * EARTH_RADIUS)
}

/// A vector turned around an axis.
pub(super) fn rotated(vector: Vector, axis: Vector, angle: f64) -> Vector {
    let (sin, cos) = angle.sin_cos();
    let across = plus(times(cos, vector), times(sin, cross(axis, vector)));
    plus(across, times(dot(axis, vector) * (1.0 - cos), axis))
}

/// A bell around a point, as high as a cosine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bell {
    pub(super) centre: Vector,
    pub(super) height: f64,
    pub(super) radius: f64,
}

impl Bell {
    pub(super) fn value(&self, point: Vector) -> f64 {
        self.at(angle(self.centre, point))
    }

    /// The value at a distance from the centre.
    fn at(&self, distance: f64) -> f64 {
        if distance < self.radius {
            0.5 * self.height * (1.0 + (PI * distance / self.radius).cos())
        } else {
            0.0
        }
    }
}

/// A bell that spreads on a sphere, as the sum of Legendre polynomials. The one of degree l decays by l (l + 1) times the diffusivity.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    coefficients: Vec<f64>,
}

impl Spread {
    /// More polynomials change the start of the bell by less than 1e-4 of its height.
    const DEGREES: usize = 300;
    /// Points of the sums over the bell.
    const POINTS: usize = 4000;

    fn new(bell: &Bell) -> Self {
        let mut coefficients = vec![0.0; Self::DEGREES];
        let width = bell.radius / Self::POINTS as f64;
        for point in 0..Self::POINTS {
            let distance = (point as f64 + 0.5) * width;
            let weight = bell.at(distance) * distance.sin() * width;
            let each = coefficients.iter_mut().zip(legendre(distance.cos())).enumerate();
            each.for_each(|(degree, (sum, value))| *sum += (degree as f64 + 0.5) * weight * value);
        }
        Self { coefficients }
    }

    /// The value where the angle to the bell's centre has this cosine.
    fn value(&self, cosine: f64, days: f64) -> f64 {
        let terms = self.coefficients.iter().zip(legendre(cosine)).enumerate();
        let term = |(degree, (coefficient, value)): (usize, (&f64, f64))| {
            let degree = degree as f64;
            coefficient * value * (-degree * (degree + 1.0) * diffusivity() * days).exp()
        };
        terms.map(term).sum()
    }
}

/// The Legendre polynomials of all degrees at x, by their recurrence.
fn legendre(x: f64) -> impl Iterator<Item = f64> {
    let next = move |&(degree, last, now): &(f64, f64, f64)| {
        Some((degree + 1.0, now, ((2.0 * degree + 1.0) * x * now - degree * last) / (degree + 1.0)))
    };
    std::iter::successors(Some((0.0, 0.0, 1.0)), next).map(|(_, _, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bell_returns_after_12_days() {
        let problem = Problem::rotation(45.0);
        for point in [on_sphere(-90.0, 0.0), on_sphere(-80.0, 5.0), on_sphere(10.0, 70.0)] {
            assert!((problem.exact(point, 12.0) - problem.bell().value(point)).abs() < 1e-9);
        }
        // Half way it is on the other side of the Earth.
        assert!((problem.exact(on_sphere(90.0, 0.0), 6.0) - 1000.0).abs() < 1e-9);
        // At 45 degrees it moves to the north-east, and is farthest north after a quarter.
        assert!((problem.exact(on_sphere(0.0, 45.0), 3.0) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn flows_around_a_cell_balance() {
        let corners = [on_sphere(10.0, 20.0), on_sphere(14.0, 21.0), on_sphere(12.0, 25.0)];
        let problem = Problem::rotation(30.0);
        let sides = [0, 1, 2].map(|side| Arc([corners[side], corners[(side + 1) % 3]]));
        let sum: f64 = sides.iter().map(|side| problem.flow(side, corners[..2].try_into().unwrap())).sum();
        assert!(sum.abs() < 1e-16, "{sum}");
    }

    #[test]
    fn heat_begins_as_the_bell_and_spreads() {
        let problem = Problem::diffusion();
        let Problem::Diffusion { bell, spread } = &problem else { unreachable!("heat spreads") };
        for distance in [0.0, 0.1, 0.25, 0.5, 2.0f64] {
            let difference = spread.value(distance.cos(), 0.0) - bell.at(distance);
            assert!(difference.abs() < 1e-4 * bell.height, "{distance}: {difference}");
        }
        let top = [0.0, 6.0, 12.0].map(|days| problem.exact(bell.centre, days));
        assert!(top[0] > top[1] && top[1] > top[2] && top[2] > 0.5 * bell.height, "{top:?}");
    }

    #[test]
    fn legendre_polynomials_are_those_of_their_formulas() {
        let x = 0.3f64;
        let found: Vec<f64> = legendre(x).take(4).collect();
        let due = [1.0, x, (3.0 * x * x - 1.0) / 2.0, (5.0 * x * x * x - 3.0 * x) / 2.0];
        assert!(found.iter().zip(due).all(|(found, due)| (found - due).abs() < 1e-15), "{found:?}");
    }
}
