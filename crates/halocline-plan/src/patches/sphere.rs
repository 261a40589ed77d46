//! The cubed sphere: how its tiles are joined, and where they lie.

use super::{PatchError, PatchSide, Seam};
use crate::error::PatternError;

/// The seams of the cubed sphere among its first tiles: all 6, or 5 for a lat-lon-cap grid, which ends where tile 5
/// would be.
///
/// The contacts of the mosaic that FV3 uses: L. Zhou et al., "Toward convective-scale prediction within the next
/// generation global prediction system", BAMS 2019; its generator writes them to each mosaic file.
pub(super) fn seams(tiles: usize) -> Vec<Seam> {
    let (west, east) = (|tile| PatchSide::low(tile, 1), |tile| PatchSide::high(tile, 1));
    let (south, north) = (|tile| PatchSide::low(tile, 0), |tile| PatchSide::high(tile, 0));
    let all = [
        Seam::join(east(0), west(1)),
        Seam::join_reversed(north(0), west(2)),
        Seam::join_reversed(west(0), north(4)),
        Seam::join(north(1), south(2)),
        Seam::join_reversed(east(1), south(3)),
        Seam::join(east(2), west(3)),
        Seam::join_reversed(north(2), west(4)),
        Seam::join(north(3), south(4)),
        Seam::join(south(0), north(5)),
        Seam::join_reversed(south(1), east(5)),
        Seam::join_reversed(east(3), south(5)),
        Seam::join(east(4), west(5)),
    ];
    let is_among = |seam: &Seam| seam.sides.iter().all(|side| side.patch < tiles);
    all.into_iter().filter(is_among).collect()
}

/// The unit vector to a point of tile 0 to 5 of [`PatchGrid::cubed_sphere`](crate::PatchGrid::cubed_sphere), in an
/// equiangular projection. `along` are its coordinates along both axes, from 0 at the low side to 1 at the high side.
///
/// The projection goes on beyond the sides: to halo cells, for example.
///
/// Errors: another tile, or a coordinate that is not above -0.5 and below 1.5, where the projection ends.
///
/// C. Ronchi, R. Iacono and P. S. Paolucci, "The cubed sphere", J. Comput. Phys. 124 (1996).
///
/// ```
/// use halocline_plan::cubed_sphere_point;
///
/// let [x, y, z] = cubed_sphere_point(2, [0.5, 0.5])?;
/// assert!(x.abs() < 1e-15 && y.abs() < 1e-15 && z == 1.0);
/// // The middle of the eastern side of tile 0 is that of the western side of tile 1.
/// let east = cubed_sphere_point(0, [0.5, 1.0])?;
/// let west = cubed_sphere_point(1, [0.5, 0.0])?;
/// assert!(east.iter().zip(&west).all(|(a, b)| (a - b).abs() < 1e-15));
/// assert!(cubed_sphere_point(6, [0.5, 0.5]).is_err() && cubed_sphere_point(5, [0.5, 1.5]).is_err());
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
pub fn cubed_sphere_point(tile: usize, along: [f64; 2]) -> Result<[f64; 3], PatternError> {
    if let Some(axis) = along.iter().position(|at| !matches!((at - 0.5).abs(), 0.0..1.0)).filter(|_| tile < 6)
    {
        return Err(PatchError::OutsideOfTile { tile, axis, at: along[axis].to_string() }.into());
    }
    let [b, a] = along.map(|at| ((at - 0.5) * std::f64::consts::FRAC_PI_2).tan());
    let on_cube = match tile {
        0 => [1.0, a, b],
        1 => [-a, 1.0, b],
        2 => [-a, -b, 1.0],
        3 => [-1.0, -b, -a],
        4 => [b, -1.0, -a],
        5 => [b, a, -1.0],
        _ => return Err(PatchError::NoSuchTile { tile }.into()),
    };
    let length = on_cube.iter().map(|x| x * x).sum::<f64>().sqrt();
    Ok(on_cube.map(|x| x / length))
}
