//! Regular grids and their decompositions.

use crate::call::{call, call_for};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr};
use crate::pointer::{OutPtr, array, optional_array};
use crate::status::{Refusal, Status};
use halocline::{Decomposition, Halo, Neighbours, RegularGrid};

/// The most axes of a grid.
pub(crate) const AXES: usize = 4;

/// `halocline_grid`.
#[repr(C)]
pub(crate) struct Grid {
    pub(crate) size: usize,
    pub(crate) axes: usize,
    pub(crate) extents: *const usize,
    pub(crate) periodic: *const i32,
    pub(crate) domains_per_rank: usize,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers and raw pointers.
unsafe impl Options for Grid {
    const FIRST_SIZE: usize = 40;
    const NAME: &'static str = "halocline_grid";
}

/// `halocline_halo`.
#[repr(C)]
pub(crate) struct HaloWidths {
    pub(crate) size: usize,
    pub(crate) width: usize,
    pub(crate) axes: usize,
    pub(crate) low: *const usize,
    pub(crate) high: *const usize,
    pub(crate) neighbours: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers and raw pointers.
unsafe impl Options for HaloWidths {
    const FIRST_SIZE: usize = 48;
    const NAME: &'static str = "halocline_halo";
}

/// The halo that a struct describes.
pub(crate) fn halo(halo: &OptionsPtr<'_, HaloWidths>) -> Result<Halo, Refusal> {
    let given = halo.required()?;
    let neighbours = options::choice(
        given.neighbours,
        [Neighbours::All, Neighbours::Faces, Neighbours::FacesAndEdges],
        "neighbours of the halo",
        "set it to HALOCLINE_ALL, HALOCLINE_FACES or HALOCLINE_FACES_AND_EDGES",
    )?;
    if given.axes == 0 {
        return Ok(Halo::uniform(given.width).neighbours(neighbours));
    }
    if given.width != 0 {
        return Err(Refusal::argument(
            "the halo has a width and widths for each axis; set `width` or `axes` to 0",
        ));
    }
    axes(given.axes, "the halo")?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `low` is null or has `axes` elements that may be read until the call
    // ends. Any bytes are a `usize`.
    let low = unsafe { array(given.low, given.axes, "low of the halo") }?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `high` is null or has `axes` elements that may be read until the call
    // ends. Any bytes are a `usize`.
    let high = unsafe { array(given.high, given.axes, "high of the halo") }?;
    let widths: Vec<_> = low.iter().copied().zip(high.iter().copied()).collect();
    Ok(Halo::per_axis(widths).neighbours(neighbours))
}

fn axes(axes: usize, what: &str) -> Result<(), Refusal> {
    match axes {
        1..=AXES => Ok(()),
        _ => Err(Refusal::argument(format!("{what} has {axes} axes; give 1 to {AXES}"))),
    }
}

/// The grid that a struct describes, and its number of axes.
fn regular(grid: &OptionsPtr<'_, Grid>) -> Result<(RegularGrid, usize), Refusal> {
    let given = grid.required()?;
    axes(given.axes, "the grid")?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `extents` is null or has `axes` elements that may be read until the call
    // ends. Any bytes are a `usize`.
    let extents = unsafe { array(given.extents, given.axes, "extents of the grid") }?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `periodic` is null or has `axes` elements that may be read until the
    // call ends. Any bytes are an `i32`.
    let periodic = unsafe { optional_array(given.periodic, given.axes, "periodic of the grid") }?;
    let mut grid = RegularGrid::new(extents);
    if let Some(periodic) = periodic {
        let flags = periodic.iter().map(|&flag| options::flag(flag, "an element of periodic"));
        grid = grid.periodic(flags.collect::<Result<Vec<_>, _>>()?);
    }
    // 0, as in a struct that was not set, is one domain for each rank.
    Ok((grid.domains_per_rank(given.domains_per_rank.max(1)), given.axes))
}

/// One block for each domain, chosen by the library.
#[unsafe(no_mangle)]
extern "C" fn halocline_decompose(
    grid: OptionsPtr<'_, Grid>,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<Decomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || Handle::new(regular(&grid)?.0.decompose(ranks)?))
}

/// A number of blocks for each axis.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_decompose_into(
    grid: OptionsPtr<'_, Grid>,
    blocks: *const usize,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<Decomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || {
        let (grid, axes) = regular(&grid)?;
        // SAFETY: the caller passes null or one element for each axis. Any bytes are a `usize`.
        let blocks = unsafe { array(blocks, axes, "blocks") }?;
        Handle::new(grid.decompose_into(blocks, ranks)?)
    })
}

/// Cuts at given positions.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_decompose_at(
    grid: OptionsPtr<'_, Grid>,
    counts: *const usize,
    cuts: *const usize,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<Decomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || {
        let (grid, axes) = regular(&grid)?;
        // SAFETY: the caller passes null or one element for each axis. Any bytes are a `usize`.
        let counts = unsafe { array(counts, axes, "counts") }?;
        let all = counts.iter().fold(0usize, |all, &count| all.saturating_add(count));
        // SAFETY: the caller passes null or as many elements as `counts` says in all. Any bytes are a `usize`.
        let mut rest = unsafe { array(cuts, all, "cuts") }?;
        let mut by_axis = Vec::with_capacity(axes);
        for &count in counts {
            let (own, others) = rest.split_at(count);
            by_axis.push(own.to_vec());
            rest = others;
        }
        Handle::new(grid.decompose_at(by_axis, ranks)?)
    })
}

/// Any boxes.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_decompose_boxes(
    grid: OptionsPtr<'_, Grid>,
    count: usize,
    owners: *const usize,
    firsts: *const usize,
    extents: *const usize,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<Decomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || {
        let (grid, axes) = regular(&grid)?;
        let numbers = count.saturating_mul(axes);
        // SAFETY: the caller passes null or an element for each box. Any bytes are a `usize`.
        let owners = unsafe { array(owners, count, "owners") }?;
        // SAFETY: the caller passes null or an element for each box and axis. Any bytes are a `usize`.
        let firsts = unsafe { array(firsts, numbers, "firsts") }?;
        // SAFETY: the caller passes null or an element for each box and axis. Any bytes are a `usize`.
        let extents = unsafe { array(extents, numbers, "extents") }?;
        let boxes = owners.iter().zip(firsts.chunks(axes)).zip(extents.chunks(axes));
        let boxes = boxes.map(|((&owner, first), extents)| (owner, first.to_vec(), extents.to_vec()));
        Handle::new(grid.decompose_boxes(boxes.collect(), ranks)?)
    })
}

/// The decomposition of a grid with one more point along some axes.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_decomposition_staggered(
    decomposition: Handle<Decomposition>,
    axes: *const i32,
    staggered: OutPtr<'_, Handle<Decomposition>>,
) -> Status {
    call_for(staggered, "staggered", || {
        let decomposition = decomposition.pin()?;
        // SAFETY: the caller passes null or one element for each axis. Any bytes are an `i32`.
        let axes = unsafe { array(axes, decomposition.extents().len(), "axes") }?;
        let axes = axes.iter().map(|&flag| options::flag(flag, "an element of axes"));
        Handle::new(decomposition.staggered(axes.collect::<Result<Vec<_>, _>>()?)?)
    })
}

/// The numbers of axes, ranks, domains and blocks.
#[unsafe(no_mangle)]
extern "C" fn halocline_decomposition_describe(
    decomposition: Handle<Decomposition>,
    axes: OutPtr<'_, usize>,
    extents: OutPtr<'_, [usize; AXES]>,
    ranks: OutPtr<'_, usize>,
    domains: OutPtr<'_, u64>,
    blocks: OutPtr<'_, [usize; AXES]>,
) -> Status {
    call(|| {
        let decomposition = decomposition.pin()?;
        let given = decomposition.extents();
        let by_axis = decomposition.blocks_per_axis().unwrap_or_default();
        let fill = |numbers: &[usize]| std::array::from_fn(|axis| numbers.get(axis).copied().unwrap_or(0));
        axes.optional("axes")?.set(given.len());
        extents.optional("extents")?.set(fill(given));
        ranks.optional("ranks")?.set(decomposition.ranks());
        domains.optional("domains")?.set(decomposition.domains());
        blocks.optional("blocks")?.set(fill(&by_axis));
        Ok(())
    })
}
