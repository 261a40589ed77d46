//! Decompositions of grids of patches, and their patterns.

use super::pairs;
use super::quantity::{Places, quantity};
use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr, OutStruct};
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, store};
use crate::status::{Refusal, Status};
use halocline::plan::{BoxCells, Cells, Transfer};
use halocline::{PatchDecomposition, PatchGrid, Pattern, PatternError};

/// The numbers of blocks that the library finds.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_decompose(
    grid: Handle<PatchGrid>,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<PatchDecomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || Handle::new(grid.pin()?.decompose(ranks)?))
}

/// Numbers of blocks for each patch.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_patch_decompose_into(
    grid: Handle<PatchGrid>,
    blocks: *const usize,
    ranks: usize,
    decomposition: OutPtr<'_, Handle<PatchDecomposition>>,
) -> Status {
    call_for(decomposition, "decomposition", || {
        let grid = grid.pin()?;
        // SAFETY: the caller passes null or two elements for each patch. Any bytes are a `usize`.
        let blocks = unsafe { array(blocks, 2 * grid.extents().len(), "blocks") }?;
        Handle::new(grid.decompose_into(&pairs(blocks), ranks)?)
    })
}

/// The numbers of ranks, domains and blocks.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_decomposition_describe(
    decomposition: Handle<PatchDecomposition>,
    ranks: OutPtr<'_, usize>,
    domains: OutPtr<'_, u64>,
    blocks: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let decomposition = decomposition.pin()?;
        let patches = 0..decomposition.grid().extents().len();
        let by_patch: Vec<[usize; 2]> = patches.map(|patch| decomposition.blocks(patch)).collect();
        let (ranks, domains) = (ranks.optional("ranks")?, domains.optional("domains")?);
        store(by_patch.as_flattened(), (blocks, capacity), count, "blocks")?;
        ranks.set(decomposition.ranks());
        domains.set(decomposition.domains());
        Ok(())
    })
}

/// The domains of a rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_decomposition_domains_of(
    decomposition: Handle<PatchDecomposition>,
    rank: usize,
    first: OutPtr<'_, u64>,
    end: OutPtr<'_, u64>,
) -> Status {
    call(|| {
        let decomposition = decomposition.pin()?;
        let ranks = decomposition.ranks();
        if rank >= ranks {
            return Err(PatternError::NoSuchRank { rank, ranks }.into());
        }
        let (first, end) = (first.checked("first")?, end.checked("end")?);
        let domains = decomposition.domains_of(rank);
        first.set(domains.start);
        end.set(domains.end);
        Ok(())
    })
}

/// `halocline_patch_block`.
#[repr(C)]
pub(crate) struct Block {
    pub(crate) size: usize,
    pub(crate) patch: usize,
    pub(crate) first: [usize; 2],
    pub(crate) extents: [usize; 2],
    pub(crate) owner: usize,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for Block {
    const FIRST_SIZE: usize = 56;
    const NAME: &'static str = "halocline_patch_block";
}

/// The values that a domain holds.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_decomposition_block(
    decomposition: Handle<PatchDecomposition>,
    domain: u64,
    of: OptionsPtr<'_, Places>,
    component: usize,
    block: OutStruct<'_, Block>,
) -> Status {
    let describe = || {
        let decomposition = decomposition.pin()?;
        let quantity = quantity(&of)?;
        let (domains, components) = (decomposition.domains(), quantity.components());
        if component >= components {
            return Err(Refusal::argument(format!(
                "component is {component}; the quantity has {components}, counted from 0"
            )));
        }
        let held = decomposition.values(domain, &quantity, component).ok_or_else(|| {
            Refusal::argument(format!(
                "there is no domain {domain}; the decomposition has {domains}, counted from 0"
            ))
        })?;
        Ok(Block {
            patch: held.patch,
            first: held.first,
            extents: held.extents,
            owner: decomposition.owner(domain),
            ..Block::defaults()
        })
    };
    call(|| options::store(block, describe))
}

/// `halocline_patch_transfer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) from_rank: usize,
    pub(crate) to_rank: usize,
    pub(crate) from_component: usize,
    pub(crate) to_component: usize,
    pub(crate) source: [i64; 2],
    pub(crate) target: [i64; 2],
    pub(crate) extents: [usize; 2],
    pub(crate) is_swapped: i32,
    pub(crate) is_flipped: [i32; 2],
    pub(crate) is_negated: i32,
}

impl Moved {
    /// A transfer of a plan, whose domains are numbered with `components` for each block.
    fn of(transfer: &Transfer, decomposition: &PatchDecomposition, components: u64) -> Option<Self> {
        let (Cells::Box(source), Cells::Box(target)) = (&transfer.source, &transfer.target) else {
            return None;
        };
        let (from, to) = (transfer.from / components, transfer.to / components);
        let low = |cells: &BoxCells| <[i64; 2]>::try_from(&*cells.low).ok();
        Some(Self {
            from,
            to,
            from_rank: decomposition.owner(from),
            to_rank: decomposition.owner(to),
            from_component: (transfer.from % components) as usize,
            to_component: (transfer.to % components) as usize,
            source: low(source)?,
            target: low(target)?,
            extents: <[usize; 2]>::try_from(&*target.extent).ok()?,
            is_swapped: i32::from(transfer.map.swapped),
            is_flipped: transfer.map.flipped.map(i32::from),
            is_negated: i32::from(transfer.is_negated),
        })
    }
}

/// The transfers of a rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_patch_transfers(
    decomposition: Handle<PatchDecomposition>,
    rank: usize,
    of: OptionsPtr<'_, Places>,
    halo: OptionsPtr<'_, HaloWidths>,
    transfers: OutArray<'_, Moved>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let decomposition = decomposition.pin()?;
        let (quantity, halo) = (quantity(&of)?, grid::halo(&halo)?);
        let plan = decomposition.pattern_of(rank, &quantity, &halo)?;
        let with_peers = plan.peers.iter().flat_map(|peer| peer.sends.iter().chain(&peer.receives));
        let components = quantity.components() as u64;
        let moved: Vec<Moved> = with_peers
            .chain(&plan.local)
            .filter_map(|transfer| Moved::of(transfer, &decomposition, components))
            .collect();
        store(&moved, (transfers, capacity), count, "transfers")
    })
}

/// The pattern of a quantity.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_patches(
    comm: Handle<Comm>,
    decomposition: Handle<PatchDecomposition>,
    of: OptionsPtr<'_, Places>,
    halo: OptionsPtr<'_, HaloWidths>,
    pattern: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || Ok((decomposition.pin()?, quantity(&of)?, grid::halo(&halo)?));
        let out = (pattern, "pattern");
        collective_for(&comm.comm, "pattern", out, parse, |within, (decomposition, quantity, halo)| {
            let pattern = Pattern::patches(within, &decomposition, &quantity, &halo)?;
            Handle::new(BoundPattern::new(pattern, &comm))
        })
    })
}

/// The domains of one component.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_component(
    pattern: Handle<BoundPattern>,
    component: usize,
    of_component: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call_for(of_component, "of_component", || Handle::new(pattern.pin()?.component(component)?))
}
