//! Grids of patches.

pub(crate) mod decomposition;
pub(crate) mod quantity;

use crate::call::{call, call_for};
use crate::object::Handle;
use crate::options;
use crate::pointer::{Capacity, OutArray, OutPtr, array, store};
use crate::status::{Refusal, Status};
use halocline::{Corners, PatchGrid, PatchSide, Pivot, Seam, SeamKind, cubed_sphere_point};

/// `halocline_patch_side`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) patch: usize,
    pub(crate) axis: usize,
    pub(crate) is_high: i32,
}

impl Side {
    fn of(side: PatchSide) -> Self {
        Self { patch: side.patch, axis: side.axis, is_high: i32::from(side.is_high) }
    }

    fn side(self) -> Result<PatchSide, Refusal> {
        let is_high = options::flag(self.is_high, "is_high of a side")?;
        Ok(PatchSide { patch: self.patch, axis: self.axis, is_high })
    }
}

/// `halocline_seam`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct JoinedSides {
    pub(crate) kind: i32,
    pub(crate) one: Side,
    pub(crate) other: Side,
}

/// The kinds, at their numbers in the header.
const KINDS: [SeamKind; 5] = [
    SeamKind::Join { is_reversed: false },
    SeamKind::Join { is_reversed: true },
    SeamKind::Fold(Pivot::Cell),
    SeamKind::Fold(Pivot::Corner),
    SeamKind::Pole,
];

impl JoinedSides {
    fn of(seam: &Seam) -> Self {
        let [one, other] = seam.sides().map(Side::of);
        let kind = KINDS.iter().position(|kind| *kind == seam.kind()).unwrap_or_default();
        Self { kind: kind as i32, one, other }
    }

    fn seam(&self) -> Result<Seam, Refusal> {
        let remedy = "set it to HALOCLINE_SEAM_JOIN, _JOIN_REVERSED, _FOLD_CELL, _FOLD_CORNER or _POLE";
        let one = self.one.side()?;
        Ok(match options::choice(self.kind, KINDS, "kind", remedy)? {
            SeamKind::Join { is_reversed: false } => Seam::join(one, self.other.side()?),
            SeamKind::Join { is_reversed: true } => Seam::join_reversed(one, self.other.side()?),
            SeamKind::Fold(pivot) => Seam::fold(one, pivot),
            SeamKind::Pole => Seam::pole(one),
        })
    }
}

/// Any patches and seams.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_patch_grid_create(
    extents: *const usize,
    patches: usize,
    seams: *const JoinedSides,
    seam_count: usize,
    grid: OutPtr<'_, Handle<PatchGrid>>,
) -> Status {
    call_for(grid, "grid", || {
        // SAFETY: the caller passes null or two elements for each patch. Any bytes are a `usize`.
        let extents = unsafe { array(extents, patches.saturating_mul(2), "extents") }?;
        // SAFETY: the caller passes null or so many structs of integers.
        let given = unsafe { array(seams, seam_count, "seams") }?;
        let of_list = |(at, seam): (usize, &JoinedSides)| {
            seam.seam().map_err(|refusal| Refusal::argument(format!("seam {at}: {}", refusal.message)))
        };
        let seams = given.iter().enumerate().map(of_list).collect::<Result<_, _>>()?;
        Handle::new(PatchGrid::new(pairs(extents), seams)?)
    })
}

/// Two numbers for each patch.
fn pairs(numbers: &[usize]) -> Vec<[usize; 2]> {
    numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The cubed sphere.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_cubed_sphere(n: usize, grid: OutPtr<'_, Handle<PatchGrid>>) -> Status {
    call_for(grid, "grid", || Handle::new(PatchGrid::cubed_sphere(n)?))
}

/// A point of a tile of the cubed sphere.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_cubed_sphere_point(
    tile: usize,
    along: *const f64,
    point: OutPtr<'_, [f64; 3]>,
) -> Status {
    call_for(point, "point", || {
        // SAFETY: the caller passes null or two elements. Any bytes are an `f64`.
        let along = unsafe { array(along, 2, "along") }?;
        Ok(cubed_sphere_point(tile, [along[0], along[1]])?)
    })
}

/// The patches of an LLC grid.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_lat_lon_cap(n: usize, grid: OutPtr<'_, Handle<PatchGrid>>) -> Status {
    call_for(grid, "grid", || Handle::new(PatchGrid::lat_lon_cap(n)?))
}

/// A grid that is folded at its northern side.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_tripolar(
    rows: usize,
    columns: usize,
    pivot: i32,
    grid: OutPtr<'_, Handle<PatchGrid>>,
) -> Status {
    call_for(grid, "grid", || {
        let remedy = "set it to HALOCLINE_PIVOT_CELL or HALOCLINE_PIVOT_CORNER";
        let pivot = options::choice(pivot, [Pivot::Cell, Pivot::Corner], "pivot", remedy)?;
        Handle::new(PatchGrid::tripolar([rows, columns], pivot)?)
    })
}

/// A grid with two poles.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_latitude_longitude(
    rows: usize,
    columns: usize,
    grid: OutPtr<'_, Handle<PatchGrid>>,
) -> Status {
    call_for(grid, "grid", || Handle::new(PatchGrid::latitude_longitude([rows, columns])?))
}

/// The same grid with corners of three patches filled.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_corners_through(
    grid: Handle<PatchGrid>,
    axis: usize,
    filled: OutPtr<'_, Handle<PatchGrid>>,
) -> Status {
    call_for(filled, "filled", || {
        let grid = PatchGrid::clone(&*grid.pin()?);
        Handle::new(grid.corners(Corners::ThroughAxis(axis))?)
    })
}

/// The rows and columns of all patches.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_extents(
    grid: Handle<PatchGrid>,
    extents: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(grid.pin()?.extents().as_flattened(), (extents, capacity), count, "extents"))
}

/// The seams.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_grid_seams(
    grid: Handle<PatchGrid>,
    seams: OutArray<'_, JoinedSides>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let joined: Vec<_> = grid.pin()?.seams().iter().map(JoinedSides::of).collect();
        store(&joined, (seams, capacity), count, "seams")
    })
}
