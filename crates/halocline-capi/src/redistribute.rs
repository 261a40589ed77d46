//! Moving fields between two distributions of the cells, and putting a field together.

use crate::call::{call, call_for};
use crate::cells::{Cells, domains};
use crate::collective::{collective, collective_for};
use crate::comm::Comm;
use crate::exchange::{BindChoices, bind_options};
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::options::OptionsPtr;
use crate::pattern::BoundPattern;
use crate::pointer::{OutPtr, array, path_text};
use crate::status::{Refusal, Status};
use halocline::{Decomposition, Field, HaloExchange, Redistribute};
use std::ffi::c_char;

/// From one decomposition of a grid to another.
#[unsafe(no_mangle)]
extern "C" fn halocline_redistribute_regular(
    comm: Handle<Comm>,
    from: Handle<Decomposition>,
    from_halo: OptionsPtr<'_, HaloWidths>,
    to: Handle<Decomposition>,
    to_halo: OptionsPtr<'_, HaloWidths>,
    redistribute: OutPtr<'_, Handle<Redistribute>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let out = (redistribute, "redistribute");
        let parse = || {
            let (from_halo, to_halo) = (grid::halo(&from_halo)?, grid::halo(&to_halo)?);
            Ok(((from.pin()?, from_halo), (to.pin()?, to_halo)))
        };
        collective_for(&comm.comm, "redistribution", out, parse, |comm, (from, to)| {
            Handle::new(Redistribute::regular(comm, (&from.0, &from.1), (&to.0, &to.1))?)
        })
    })
}

/// From one set of domains to another.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_redistribute_unstructured(
    comm: Handle<Comm>,
    from: OptionsPtr<'_, Cells>,
    from_count: usize,
    to: OptionsPtr<'_, Cells>,
    to_count: usize,
    redistribute: OutPtr<'_, Handle<Redistribute>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let (rank, out) = (comm.comm.rank(), (redistribute, "redistribute"));
        // SAFETY: the caller passes null or as many structs of one size, one after the other, each valid as the header says.
        let parse = || unsafe { Ok((domains(from, from_count, rank)?, domains(to, to_count, rank)?)) };
        collective_for(&comm.comm, "redistribution", out, parse, |comm, (from, to)| {
            Handle::new(Redistribute::unstructured(comm, &from, &to)?)
        })
    })
}

/// The reverse.
#[unsafe(no_mangle)]
extern "C" fn halocline_redistribute_back(
    redistribute: Handle<Redistribute>,
    back: OutPtr<'_, Handle<Redistribute>>,
) -> Status {
    call_for(back, "back", || Handle::new(redistribute.pin()?.back()))
}

/// The fields of handles.
///
/// # Safety
/// `fields` is null or an array of that many handles.
unsafe fn fields(
    fields: *const Handle<Field>,
    count: usize,
    name: &'static str,
) -> Result<Vec<Field>, Refusal> {
    // SAFETY: the caller passes null or an array of that many handles.
    let handles = unsafe { array(fields, count, name) }?;
    handles.iter().map(|field| Ok(field.pin()?.clone())).collect()
}

/// Binds fields of both sides.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_redistribute_bind(
    comm: Handle<Comm>,
    redistribute: Handle<Redistribute>,
    from: *const Handle<Field>,
    from_count: usize,
    to: *const Handle<Field>,
    to_count: usize,
    options: OptionsPtr<'_, BindChoices>,
    halo: OutPtr<'_, Handle<HaloExchange>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            // SAFETY: the caller passes null or arrays of that many handles.
            let sides = unsafe { (fields(from, from_count, "from")?, fields(to, to_count, "to")?) };
            Ok((redistribute.pin()?, sides, bind_options(&options)?))
        };
        collective_for(&comm.comm, "bind", (halo, "halo"), parse, |comm, (redistribute, sides, options)| {
            let (from, to): (Vec<_>, Vec<_>) = (sides.0.iter().collect(), sides.1.iter().collect());
            Handle::new(redistribute.bind_with(comm, &from, &to, &options)?)
        })
    })
}

/// Puts a distributed field together on one rank.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_gather_to(
    pattern: Handle<BoundPattern>,
    root: usize,
    given: *const Handle<Field>,
    count: usize,
    whole: OutPtr<'_, Handle<Field>>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        // SAFETY: the caller passes null or an array of that many handles.
        let parse = || unsafe { fields(given, count, "fields") };
        collective_for(&pattern.comm, "gather_to", (whole, "whole"), parse, |comm, fields| {
            let fields: Vec<&Field> = fields.iter().collect();
            Handle::of_option(pattern.pattern.gather_field_to(comm, root, &fields)?)
        })
    })
}

/// Writes a distributed field to a file.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_save(
    pattern: Handle<BoundPattern>,
    path: *const c_char,
    given: *const Handle<Field>,
    count: usize,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a string with a closing zero.
            let path = unsafe { path_text(path, "path") }?;
            // SAFETY: the caller passes null or an array of that many handles.
            Ok((path, unsafe { fields(given, count, "fields") }?))
        })();
        collective(&pattern.comm, "save", parsed, |comm, (path, fields)| {
            Ok(pattern.pattern.save(comm, path, fields.iter().collect::<Vec<_>>())?)
        })
    })
}
