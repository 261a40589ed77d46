//! Unstructured domains: lists of cells with global ids.

use crate::call::call;
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::domain::domain;
use crate::object::Handle;
use crate::options::{Options, OptionsPtr};
use crate::pattern::BoundPattern;
use crate::pointer::{ADDRESS_SPACE, Capacity, OutArray, OutPtr, array, copied, store};
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
/// `first` is null or the address of `count` option structs of one size, one after the other, whose addresses keep the contract of
/// [`OptionsPtr`].
pub(crate) unsafe fn domains(
    first: OptionsPtr<'_, Cells>,
    count: usize,
    rank: usize,
) -> Result<Vec<UnstructuredDomain>, Refusal> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let stride = first.required()?.size;
    if count > ADDRESS_SPACE / stride {
        return Err(Refusal::argument(format!(
            "the list has {count} domains, more than the address space holds; pass their number"
        )));
    }
    let made = (0..count).map(|at| {
        // SAFETY: the caller promises that a struct lies that many bytes after the first one, at an address that keeps the contract of
        // `OptionsPtr`. The product does not overflow, as the structs before it fit in memory.
        let given = unsafe { first.after(at * stride) };
        same_size(&given, stride).and_then(|()| one(&given, rank)).map_err(|refusal| {
            Refusal::new(refusal.status, format!("domain {at} of the list: {}", refusal.message))
        })
    });
    made.collect()
}

/// A struct that says it is larger than the first one may lie at the end of readable memory.
fn same_size(given: &OptionsPtr<'_, Cells>, first: usize) -> Result<(), Refusal> {
    match given.declared_size()? {
        size if size == first => Ok(()),
        size => Err(Refusal::argument(format!(
            "`size` of this {} is {size}, that of the first is {first}; set both to the same",
            Cells::NAME
        ))),
    }
}

fn one(given: &OptionsPtr<'_, Cells>, rank: usize) -> Result<UnstructuredDomain, Refusal> {
    let given = given.required()?;
    // SAFETY: by the contract of `OptionsPtr` and the header, `ids` is null or has `count` elements that may be read until the call
    // ends. Any bytes are a `u64`.
    let ids = copied(unsafe { array(given.ids, given.count, "ids") }?, "ids")?;
    let forms = [!given.halo_ids.is_null(), !given.halo_indices.is_null(), !given.owners.is_null()];
    let domain = match forms {
        [false, true, false] => {
            // SAFETY: by the contract of `OptionsPtr` and the header, `halo_indices` is null or has `halo_count` elements that may be
            // read until the call ends. Any bytes are a `usize`.
            let indices = unsafe { array(given.halo_indices, given.halo_count, "halo_indices") }?;
            UnstructuredDomain::from_indices(given.number, ids, indices)
        }
        [false, false, true] if given.halo_count == 0 => {
            // SAFETY: by the contract of `OptionsPtr` and the header, `owners` is null or has `count` elements that may be read until
            // the call ends. Any bytes are a `usize`.
            let owners = unsafe { array(given.owners, given.count, "owners") }?;
            UnstructuredDomain::from_owners(given.number, rank, ids, copied(owners, "owners")?)
        }
        [_, false, false] => {
            // SAFETY: by the contract of `OptionsPtr` and the header, `halo_ids` is null or has `halo_count` elements that may be read
            // until the call ends. Any bytes are a `u64`.
            let halo = unsafe { array(given.halo_ids, given.halo_count, "halo_ids") }?;
            UnstructuredDomain::new(given.number, ids, copied(halo, "halo_ids")?)
        }
        _ => {
            return Err(Refusal::argument(
                "the halo is given in several forms; set halo_ids or halo_indices with halo_count, or owners alone",
            ));
        }
    };
    // SAFETY: by the contract of `OptionsPtr` and the header, `levels` is null or has `level_count` elements that may be read until
    // the call ends. Any bytes are a `usize`.
    let levels = unsafe { array(given.levels, given.level_count, "levels") }?;
    Ok(if levels.is_empty() { domain } else { domain.with_levels(copied(levels, "levels")?) })
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
        // SAFETY: the caller passes null or as many structs of one size, one after the other, each valid as the header says.
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
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        let found: Vec<u64> = (0..).map_while(|local| domain.global_id(local)).collect();
        store(&found, (ids, capacity), count, "ids")
    })
}

/// The local indices of the owned cells of an unstructured domain.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_owned(
    pattern: Handle<BoundPattern>,
    index: usize,
    indices: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let owned = domain(&*pattern.pin()?, index)?.owned_indices();
        store(&owned, (indices, capacity), count, "indices")
    })
}

/// The owned cells of an unstructured domain whose neighbours are all owned.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_domain_interior_by(
    pattern: Handle<BoundPattern>,
    index: usize,
    offsets: *const usize,
    neighbours: *const usize,
    indices: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        if domain.global_id(0).is_none() && domain.owned_count() > 0 {
            return Err(Refusal::argument(format!(
                "domain {} is of a regular grid, whose cells have no lists of neighbours; call halocline_domain_interior",
                domain.number()
            )));
        }
        let cells = domain.extents().iter().product::<usize>();
        // SAFETY: the caller passes null or one element more than the domain has cells.
        let offsets = unsafe { array(offsets, cells.saturating_add(1), "offsets") }?;
        if let Some(cell) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            let [from, to] = [offsets[cell], offsets[cell + 1]];
            return Err(Refusal::argument(format!(
                "the neighbours of cell {cell} are {from} to {to}, but offsets must not fall; give where the list of each cell begins"
            )));
        }
        // SAFETY: the caller passes null or as many elements as the last offset says.
        let all = unsafe { array(neighbours, offsets[cells], "neighbours") }?;
        let of_cell = |cell: usize| all[offsets[cell]..offsets[cell + 1]].iter().copied();
        store(&domain.interior_by(of_cell), (indices, capacity), count, "indices")
    })
}
