//! Where the patches and their halos lie in the picture.

use super::super::marks::Pixel;
use super::super::net::{Net, Place};
use super::Cell;
use super::places::ValuePlace;
use halocline::{PatchGrid, PatchSide};

/// Width of the picture, and free space above the patches.
const WIDTH: i32 = 1120;
pub(super) const TOP: i32 = 118;
/// The most pixels of the patches from top to bottom.
const HEIGHT: i32 = 1000;
/// Free space around the halo of each patch, for notes.
pub(super) const MARGIN: i32 = 58;
/// Pixels of a cell: the least and the most.
const CELL: [i64; 2] = [5, 56];

/// Patches in a plane, apart from each other by their halos and notes.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) size: (u32, u32),
    /// Pixels of a cell.
    pub(super) cell: i32,
    /// How far the halo reaches beyond the cells of a patch, in half cells.
    reach: i64,
    pub(super) net: Net,
    /// The lower left corner of each patch, in the plane and in the picture.
    corners: Vec<(Place, Pixel)>,
}

impl Sheet {
    /// `None` if the cells would be too small.
    pub(super) fn new(grid: &PatchGrid, width: usize, place: ValuePlace) -> Option<Self> {
        let halo = i64::try_from(width).ok().filter(|halo| *halo <= i64::from(WIDTH))?;
        let reach = 2 * halo + i64::from(!place.is_centred());
        let net = Net::of(grid);
        let boxes = net.boxes();
        let [low, _] = net.bounds();
        // How many patches lie before one: those that begin at lower places.
        let before = [0, 1].map(|along| {
            let mut begins: Vec<i64> = boxes.iter().map(|[low, _]| low[along]).collect();
            begins.sort_unstable();
            begins.dedup();
            boxes
                .iter()
                .map(|[low, _]| begins.partition_point(|begin| begin < &low[along]))
                .collect::<Vec<_>>()
        });
        // Half cells and margins up to the end of a patch with all around it.
        let ends = |along: usize| {
            boxes.iter().zip(&before[along]).map(move |([_, high], before)| {
                let around = 2 * (*before as i64 + 1);
                (2 * (high[along] - low[along]) + around * reach, around * i64::from(MARGIN))
            })
        };
        let fits = |along: usize, pixels: i32| {
            ends(along).map(move |(halves, margins)| 2 * (i64::from(pixels) - margins) / halves).min()
        };
        let cell = fits(0, WIDTH)?.min(fits(1, HEIGHT)?).min(CELL[1]);
        // Half of it is a whole number of pixels where squares lie between cells.
        let cell = if place.is_centred() { cell } else { cell - cell % 2 };
        if cell < CELL[0] {
            return None;
        }
        let length = |along: usize| {
            ends(along).map(|(halves, margins)| halves * cell / 2 + margins).max().unwrap_or_default() as i32
        };
        let (left, bottom) = ((WIDTH - length(0)) / 2, TOP + length(1));
        let around = reach * cell / 2 + i64::from(MARGIN);
        let corner = |(at, [own, _]): (usize, &[Place; 2])| {
            let of = |along: usize| {
                ((own[along] - low[along]) * cell + (2 * before[along][at] as i64 + 1) * around) as i32
            };
            (*own, (left + of(0), bottom - of(1)))
        };
        let corners = boxes.iter().enumerate().map(corner).collect();
        Some(Self { size: (WIDTH as u32, bottom as u32), cell: cell as i32, reach, net, corners })
    }

    fn pixel(&self, patch: usize, place: Place) -> Pixel {
        let (low, corner) = self.corners[patch];
        let of = |along: usize| (place[along] - low[along]) as i32 * self.cell;
        (corner.0 + of(0), corner.1 - of(1))
    }

    /// The upper left and the lower right corner of a rectangle, whose corners in the patch are given in half cells.
    pub(super) fn rectangle(&self, patch: usize, corners: [Cell; 2]) -> [Pixel; 2] {
        let [one, other] = corners.map(|corner| self.point(patch, corner));
        [(one.0.min(other.0), one.1.min(other.1)), (one.0.max(other.0), one.1.max(other.1))]
    }

    /// The cells of a patch.
    pub(super) fn cells(&self, patch: usize) -> [Pixel; 2] {
        self.rectangle(patch, [[0; 2], self.net.patches[patch].extents.map(|cells| 2 * cells as i64)])
    }

    /// A patch with its halo.
    pub(super) fn with_halo(&self, patch: usize) -> [Pixel; 2] {
        let end = self.net.patches[patch].extents.map(|cells| 2 * cells as i64 + self.reach);
        self.rectangle(patch, [[-self.reach; 2], end])
    }

    /// The place of a point of a patch, in half cells along its axes.
    pub(super) fn point(&self, patch: usize, halves: Cell) -> Pixel {
        let placed = &self.net.patches[patch];
        let from = self.pixel(patch, placed.place([0, 0]));
        let of = |along: usize| {
            let steps = halves[0] * placed.step(0)[along] + halves[1] * placed.step(1)[along];
            (steps * i64::from(self.cell) / 2) as i32
        };
        (from.0 + of(0), from.1 - of(1))
    }

    /// The middle of the margin beside a side.
    pub(super) fn beside(&self, side: PatchSide) -> Pixel {
        let placed = &self.net.patches[side.patch];
        let end = |axis: usize| 2 * placed.extents[axis] as i64;
        let mut halves = [end(0) / 2, end(1) / 2];
        halves[side.axis] = if side.is_high { end(side.axis) + self.reach } else { -self.reach };
        let (from, out) = (self.point(side.patch, halves), placed.outwards(side));
        (from.0 + out[0] as i32 * MARGIN / 2, from.1 - out[1] as i32 * MARGIN / 2)
    }
}
