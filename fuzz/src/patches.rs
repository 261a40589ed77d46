//! Grids of patches of any seams: the patterns of all ranks, which must fit each other.

use crate::agreement;
use halocline_plan::{
    Along, Corners, Halo, PatchDecomposition, PatchGrid, PatchSide, Pivot, Quantity, Seam, SeamKind,
};
use std::slice::Iter;

/// Makes the patterns of a grid that the bytes describe, unless the library refuses it, and compares what one rank sends with what
/// another one expects.
pub fn patches(bytes: &[u8]) {
    let mut input = Input(bytes.iter());
    let Some((cut, quantity, halo)) = input.decomposition() else { return };
    let plans: Result<Vec<_>, _> =
        (0..cut.ranks()).map(|rank| cut.pattern_of(rank, &quantity, &halo)).collect();
    if let Ok(plans) = plans {
        agreement::check(&plans);
    }
}

/// The bytes that are left; zeros follow.
struct Input<'a>(Iter<'a, u8>);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// A number of cells: bytes below 32 are themselves, others much larger.
    fn cells(&mut self) -> usize {
        let byte = usize::from(self.byte());
        (byte & 31) << (4 * (byte >> 5))
    }

    /// A side, also of a patch that there is not.
    fn side(&mut self) -> PatchSide {
        let byte = usize::from(self.byte());
        PatchSide { patch: byte >> 2 & 7, axis: byte >> 1 & 1, is_high: byte & 1 == 1 }
    }

    fn seam(&mut self) -> Seam {
        let (kind, one, other) = (self.below(5), self.side(), self.side());
        match kind {
            0 => Seam::join(one, other),
            1 => Seam::join_reversed(one, other),
            2 => Seam::fold(one, Pivot::Cell),
            3 => Seam::fold(one, Pivot::Corner),
            _ => Seam::pole(one),
        }
    }

    fn place(&mut self) -> [Along; 2] {
        [0; 2].map(|_| [Along::Centre, Along::Faces, Along::HighFaces, Along::LowFaces][self.below(4)])
    }

    fn decomposition(&mut self) -> Option<(PatchDecomposition, Quantity, Halo)> {
        let patches = (0..=self.below(6)).map(|_| [self.cells(), self.cells()]).collect();
        let seams = (0..self.below(16)).map(|_| self.seam()).collect();
        let corners = match self.below(3) {
            0 => Corners::Open,
            axis => Corners::ThroughAxis(axis - 1),
        };
        let (components, first, second) = (1 + self.below(2), self.place(), self.place());
        let quantity =
            if components == 1 { Quantity::scalar(first) } else { Quantity::vector(first, second) };
        let halo = Halo::per_axis([0; 2].map(|_| (self.cells(), self.cells())));
        let grid = PatchGrid::new(patches, seams).and_then(|grid| grid.corners(corners)).ok()?;
        Some((grid.decompose(1 + self.below(8)).ok()?, quantity, halo))
    }
}

/// The bytes of a grid with fewer than 32 cells along each axis, its corners open, of a quantity with so many components, on three ranks.
fn encoded(grid: &PatchGrid, (components, places): (u8, [u8; 4]), width: u8) -> Vec<u8> {
    let mut bytes = vec![grid.extents().len() as u8 - 1];
    bytes.extend(grid.extents().as_flattened().iter().map(|&cells| cells as u8));
    bytes.push(grid.seams().len() as u8);
    let side = |side: PatchSide| (side.patch << 2 | side.axis << 1) as u8 | u8::from(side.is_high);
    for seam in grid.seams() {
        bytes.push(match seam.kind() {
            SeamKind::Join { is_reversed } => u8::from(is_reversed),
            SeamKind::Fold(Pivot::Cell) => 2,
            SeamKind::Fold(Pivot::Corner) => 3,
            SeamKind::Pole => 4,
        });
        bytes.extend(seam.sides().map(side));
    }
    bytes.extend([0, components - 1]);
    bytes.extend(places);
    bytes.extend([width; 4]);
    bytes.push(2);
    bytes
}

pub fn seeds() -> Vec<Vec<u8>> {
    let grids = [
        PatchGrid::cubed_sphere(4),
        PatchGrid::lat_lon_cap(2),
        PatchGrid::latitude_longitude([6, 8]),
        PatchGrid::tripolar([7, 10], Pivot::Cell),
        PatchGrid::tripolar([5, 8], Pivot::Corner),
    ];
    // Cells, corners, vectors on a C grid, NEMO's V and U points.
    let quantities = [(1, [0, 0, 0, 0]), (1, [1, 1, 0, 0]), (2, [1, 0, 0, 1]), (2, [2, 0, 0, 2])];
    let grids = grids.into_iter().map(|grid| grid.expect("a grid"));
    grids.flat_map(|grid| quantities.map(|quantity| encoded(&grid, quantity, 2))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_the_grids_that_they_encode() {
        let seeds = seeds();
        let read = |bytes: &[u8]| Input(bytes.iter()).decomposition().expect("a grid");
        let (cut, quantity, halo) = read(&seeds[2]);
        assert_eq!(cut.grid(), &PatchGrid::cubed_sphere(4).expect("a grid"));
        assert_eq!((cut.ranks(), &quantity), (3, &Quantity::c_grid()));
        assert_eq!(halo, Halo::per_axis([(2, 2), (2, 2)]));
        let (cut, ..) = read(&seeds[12]);
        assert_eq!(cut.grid(), &PatchGrid::tripolar([7, 10], Pivot::Cell).expect("a grid"));
        seeds.iter().for_each(|seed| patches(seed));
    }
}
