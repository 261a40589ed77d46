//! The domains of a pattern on this rank: what a program computes with.

use crate::call::{call, call_for};
use crate::grid::AXES;
use crate::object::Handle;
use crate::options::{self, Options, OutStruct};
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, array_mut, fill, store};
use crate::status::{Refusal, Status};
use halocline::{Domain, LocalBox};

/// `halocline_box`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CellBox {
    pub(crate) first: [usize; AXES],
    pub(crate) extents: [usize; AXES],
}

impl CellBox {
    /// No cell of one axis.
    const EMPTY: Self = Self { first: [0; AXES], extents: [0, 1, 1, 1] };

    fn of(cells: &LocalBox) -> Self {
        let of_axis = |axis: usize| cells.get(axis).cloned().unwrap_or(0..1);
        Self {
            first: std::array::from_fn(|axis| of_axis(axis).start),
            extents: std::array::from_fn(|axis| of_axis(axis).len()),
        }
    }
}

/// `halocline_domain`.
#[repr(C)]
pub(crate) struct DomainShape {
    pub(crate) size: usize,
    pub(crate) axes: usize,
    pub(crate) number: u64,
    pub(crate) owned_count: u64,
    pub(crate) extents: [usize; AXES],
    pub(crate) owned: CellBox,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for DomainShape {
    const FIRST_SIZE: usize = 128;
    const NAME: &'static str = "halocline_domain";
}

/// A domain of this rank.
pub(crate) fn domain(pattern: &BoundPattern, index: usize) -> Result<Domain<'_>, Refusal> {
    let mut domains = pattern.pattern.domains();
    let count = domains.len();
    domains.nth(index).ok_or_else(|| {
        Refusal::argument(format!("there is no domain {index}: this rank has {count}, counted from 0"))
    })
}

/// The number by which fields name a domain: that of its block, or of both components of vectors that in the plan.
fn number(pattern: &BoundPattern, index: usize, domain: &Domain<'_>) -> u64 {
    match (pattern.pattern.component_of_fields(), pattern.pattern.plan().domains.get(index)) {
        (None, Some((number, _))) => *number,
        _ => domain.number(),
    }
}

/// A domain whose cells are in boxes.
fn boxed(pattern: &BoundPattern, index: usize) -> Result<Domain<'_>, Refusal> {
    let domain = domain(pattern, index)?;
    if domain.owned_come_first() {
        return Ok(domain);
    }
    Err(Refusal::argument(format!(
        "domain {} has halo cells among its owned ones, so there are no boxes of either; call halocline_domain_owned for its owned cells",
        domain.number()
    )))
}

/// The number of domains of this rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_domains(pattern: Handle<BoundPattern>, count: OutPtr<'_, usize>) -> Status {
    call_for(count, "count", || Ok(pattern.pin()?.pattern.domains().len()))
}

/// The shape of a domain of this rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_domain(
    pattern: Handle<BoundPattern>,
    index: usize,
    shape: OutStruct<'_, DomainShape>,
) -> Status {
    let describe = || {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        let extents = domain.extents();
        Ok(DomainShape {
            axes: extents.len(),
            number: number(&pattern, index, &domain),
            owned_count: domain.owned_count() as u64,
            extents: std::array::from_fn(|axis| extents.get(axis).copied().unwrap_or(1)),
            owned: if domain.owned_come_first() { CellBox::of(&domain.owned()) } else { CellBox::EMPTY },
            ..DomainShape::defaults()
        })
    };
    call(|| options::store(shape, describe))
}

/// The owned cells whose stencil reads no halo cell.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_interior(
    pattern: Handle<BoundPattern>,
    index: usize,
    width: usize,
    cells: OutPtr<'_, CellBox>,
) -> Status {
    call_for(cells, "cells", || Ok(CellBox::of(&boxed(&*pattern.pin()?, index)?.interior(width))))
}

/// The owned cells that are not of the interior.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_boundary(
    pattern: Handle<BoundPattern>,
    index: usize,
    width: usize,
    boxes: OutArray<'_, CellBox>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let cells: Vec<_> = boxed(&*pattern.pin()?, index)?.boundary(width).iter().map(CellBox::of).collect();
        store(&cells, (boxes, capacity), count, "boxes")
    })
}

/// The halo cells.
#[unsafe(no_mangle)]
extern "C" fn halocline_domain_halo(
    pattern: Handle<BoundPattern>,
    index: usize,
    boxes: OutArray<'_, CellBox>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let cells: Vec<_> = boxed(&*pattern.pin()?, index)?.halo().iter().map(CellBox::of).collect();
        store(&cells, (boxes, capacity), count, "boxes")
    })
}

/// The global coordinates of a local index.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_domain_global(
    pattern: Handle<BoundPattern>,
    index: usize,
    local: *const usize,
    global: *mut i64,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        let axes = domain.extents().len();
        // SAFETY: the caller passes null or an element for each axis.
        let local = unsafe { array(local, axes, "local") }?;
        // SAFETY: the caller passes null or an element for each axis.
        let places = unsafe { array_mut(global, axes, "global") }?;
        let found = domain.global(local).ok_or_else(|| {
            Refusal::argument(format!(
                "the domain of extents {:?} has no cell {local:?}, or no axes",
                domain.extents()
            ))
        })?;
        fill(places, found);
        Ok(())
    })
}

/// The local index of global coordinates.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_domain_local(
    pattern: Handle<BoundPattern>,
    index: usize,
    global: *const i64,
    local: *mut usize,
    found: OutPtr<'_, i32>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let domain = domain(&pattern, index)?;
        let axes = domain.extents().len();
        // SAFETY: the caller passes null or an element for each axis.
        let global = unsafe { array(global, axes, "global") }?;
        // SAFETY: the caller passes null or an element for each axis.
        let places = unsafe { array_mut(local, axes, "local") }?;
        let out = found.checked("found")?;
        let place = domain.local(global);
        out.set(i32::from(place.is_some()));
        fill(places, place.into_iter().flatten());
        Ok(())
    })
}
