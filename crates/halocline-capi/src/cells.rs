//! Unstructured domains: lists of cells with global ids.

use crate::call::call;
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::domain::domain;
use crate::object::Handle;
use crate::options::{Options, OptionsPtr};
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, store};
use crate::status::{Refusal, Status};
use halocline::{Pattern, UnstructuredDomain};

/// `halocline_cells`.
#[repr(C)]
pub(crate) struct Cells {
    pub(crate) size: usize,
    pub(crate) number: u64,
    pub(crate) count: usize,
    pub(crate) ids: *const u64,
    pub(crate) halo_count: usize,
    pub(crate) halo_ids: *const u64,
    pub(crate) halo_indices: *const usize,
    pub(crate) owners: *const usize,
    pub(crate) level_count: usize,
    pub(crate) levels: *const usize,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers and raw pointers.
unsafe impl Options for Cells {
    const FIRST_SIZE: usize = 80;
    const NAME: &'static str = "halocline_cells";
}

/// The domains that structs describe. They lie one after the other, each of the size that the first one has.
///
/// # Safety
/// `first` is null or points to `count` option structs of the same size.
pub(crate) unsafe fn domains(
    first: OptionsPtr<'_, Cells>,
    count: usize,
    rank: usize,
) -> Result<Vec<UnstructuredDomain>, Refusal> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let stride = first.required()?.size;
    let made = (0..count).map(|at| {
        // SAFETY: the caller passes `count` structs of one size, which fit in memory, so that the product does not overflow.
        let given = unsafe { first.after(at.wrapping_mul(stride)) };
        one(&given, rank).map_err(|refusal| {
            Refusal::new(refusal.status, format!("domain {at} of the list: {}", refusal.message))
        })
    });
    made.collect()
}

fn one(given: &OptionsPtr<'_, Cells>, rank: usize) -> Result<UnstructuredDomain, Refusal> {
    let given = given.required()?;
    // SAFETY: C promises an array of that many elements.
    let ids = unsafe { array(given.ids, given.count, "ids") }?.to_vec();
    let forms = [!given.halo_ids.is_null(), !given.halo_indices.is_null(), !given.owners.is_null()];
    let domain = match forms {
        // SAFETY: C promises an array of that many elements.
        [false, true, false] => unsafe {
            let indices = array(given.halo_indices, given.halo_count, "halo_indices")?;
            UnstructuredDomain::from_indices(given.number, ids, indices)
        },
        [false, false, true] if given.halo_count == 0 => {
            // SAFETY: C promises an element for each cell.
            let owners = unsafe { array(given.owners, given.count, "owners") }?;
            UnstructuredDomain::from_owners(given.number, rank, ids, owners.to_vec())
        }
        [_, false, false] => {
            // SAFETY: C promises an array of that many elements.
            let halo = unsafe { array(given.halo_ids, given.halo_count, "halo_ids") }?;
            UnstructuredDomain::new(given.number, ids, halo.to_vec())
        }
        _ => {
            return Err(Refusal::argument(
                "the halo is given in several forms; set halo_ids or halo_indices with halo_count, or owners alone",
            ));
        }
    };
    // SAFETY: C promises an array of that many elements.
    let levels = unsafe { array(given.levels, given.level_count, "levels") }?;
    Ok(if levels.is_empty() { domain } else { domain.with_levels(levels.to_vec()) })
}

/// The pattern of domains given by lists of cells.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_unstructured(
    comm: Handle<Comm>,
    cells: OptionsPtr<'_, Cells>,
    count: usize,
    pattern: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        // SAFETY: the caller passes null or as many structs.
        let parse = || unsafe { domains(cells, count, comm.comm.rank()) };
        collective_for(&comm.comm, "pattern", (pattern, "pattern"), parse, |within, domains| {
            Handle::new(BoundPattern::new(Pattern::unstructured(within, &domains)?, &comm))
        })
    })
}

/// The global ids of the cells of an unstructured domain.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_ids(
    pattern: Handle<BoundPattern>,
    index: usize,
    ids: OutArray<'_, u64>,
    room: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        let found: Vec<u64> = (0..).map_while(|local| domain.global_id(local)).collect();
        store(&found, (ids, room), count, "ids")
    })
}

/// The local indices of the owned cells of an unstructured domain.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_owned(
    pattern: Handle<BoundPattern>,
    index: usize,
    indices: OutArray<'_, usize>,
    room: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let owned = domain(&*pattern.pin()?, index)?.owned_indices();
        store(&owned, (indices, room), count, "indices")
    })
}
