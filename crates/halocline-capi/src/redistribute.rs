//! Moving fields between two distributions of the cells, and putting a field together.

use crate::call::call;
use crate::cells::{Cells, domains};
use crate::collective::collective;
use crate::comm::Comm;
use crate::exchange::{BindChoices, bind_options};
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::pattern::BoundPattern;
use crate::pointer::{Out, array, text};
use crate::status::{Refusal, Status};
use halocline::{Communicator, Decomposition, Field, HaloExchange, Redistribute};
use std::ffi::c_char;

/// From one decomposition of a grid to another.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_redistribute_regular(
    comm: Handle<Comm>,
    from: Handle<Decomposition>,
    from_halo: *const HaloWidths,
    to: Handle<Decomposition>,
    to_halo: *const HaloWidths,
    redistribute: *mut Handle<Redistribute>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(redistribute, "redistribute") }?;
            // SAFETY: the caller passes null or valid structs.
            let halos = unsafe { (grid::halo(from_halo)?, grid::halo(to_halo)?) };
            Ok((out, (from.pin()?, to.pin()?), halos))
        })();
        let (out, made) =
            collective(&comm.comm, "redistribution", parsed, |comm, (out, (from, to), halos)| {
                Ok((out, Redistribute::regular(comm, (&from, &halos.0), (&to, &halos.1))?))
            })?;
        out.set(Handle::new(made)?);
        Ok(())
    })
}

/// From one set of domains to another.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_redistribute_unstructured(
    comm: Handle<Comm>,
    from: *const Cells,
    from_count: usize,
    to: *const Cells,
    to_count: usize,
    redistribute: *mut Handle<Redistribute>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let rank = comm.comm.rank();
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(redistribute, "redistribute") }?;
            // SAFETY: the caller passes null or as many valid structs.
            Ok((out, unsafe { (domains(from, from_count, rank)?, domains(to, to_count, rank)?) }))
        })();
        let (out, made) = collective(&comm.comm, "redistribution", parsed, |comm, (out, (from, to))| {
            Ok((out, Redistribute::unstructured(comm, &from, &to)?))
        })?;
        out.set(Handle::new(made)?);
        Ok(())
    })
}

/// The reverse.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_redistribute_back(
    redistribute: Handle<Redistribute>,
    back: *mut Handle<Redistribute>,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or a valid pointer to a handle.
        let out = unsafe { Out::new(back, "back") }?;
        out.set(Handle::new(redistribute.pin()?.back())?);
        Ok(())
    })
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
    options: *const BindChoices,
    halo: *mut Handle<HaloExchange>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(halo, "halo") }?;
            // SAFETY: the caller passes null or arrays of that many handles.
            let sides = unsafe { (fields(from, from_count, "from")?, fields(to, to_count, "to")?) };
            // SAFETY: the caller passes null or a valid struct.
            Ok((out, redistribute.pin()?, sides, unsafe { bind_options(options) }?))
        })();
        let bind =
            |comm: &Communicator,
             (out, redistribute, (from, to), options): (_, _, (Vec<Field>, Vec<Field>), _)| {
                let redistribute: crate::object::Pinned<Redistribute> = redistribute;
                let (from, to): (Vec<&Field>, Vec<&Field>) = (from.iter().collect(), to.iter().collect());
                Ok((out, redistribute.bind_with(comm, &from, &to, &options)?))
            };
        let (out, bound) = collective(&comm.comm, "bind", parsed, bind)?;
        out.set(Handle::new(bound)?);
        Ok(())
    })
}

/// Puts a distributed field together on one rank.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_gather_to(
    pattern: Handle<BoundPattern>,
    root: usize,
    given: *const Handle<Field>,
    count: usize,
    whole: *mut Handle<Field>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(whole, "whole") }?;
            // SAFETY: the caller passes null or an array of that many handles.
            Ok((out, unsafe { fields(given, count, "fields") }?))
        })();
        let (out, gathered) = collective(&pattern.comm, "gather_to", parsed, |comm, (out, fields)| {
            let fields: Vec<&Field> = fields.iter().collect();
            Ok((out, pattern.pattern.gather_field_to(comm, root, &fields)?))
        })?;
        out.set(gathered.map_or(Ok(Handle::from_number(0)), Handle::new)?);
        Ok(())
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
            let path = unsafe { text(path, "path") }?;
            // SAFETY: the caller passes null or an array of that many handles.
            Ok((path, unsafe { fields(given, count, "fields") }?))
        })();
        collective(&pattern.comm, "save", parsed, |comm, (path, fields)| {
            pattern.pattern.save(comm, path, &fields.iter().collect::<Vec<_>>())
        })
    })
}
