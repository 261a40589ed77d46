//! The unbound form: links of patterns, and fields given to each exchange.

use crate::call::call;
use crate::collective::collective;
use crate::comm::Comm;
use crate::exchange::{BindChoices, Binding, PendingExchange, begun, bind_options, fields_of};
use crate::object::Handle;
use crate::pattern::BoundPattern;
use crate::pointer::{Out, array, store_text};
use crate::status::{Refusal, Status};
use halocline::{Communicator, Field, Pattern, PatternLinks};
use std::ffi::c_char;

/// Links of patterns, with the group of their ranks.
pub(crate) struct Links {
    pub(crate) links: PatternLinks,
    comm: Comm,
}

/// Makes links of patterns.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_links_create(
    comm: Handle<Comm>,
    patterns: *const Handle<BoundPattern>,
    count: usize,
    options: *const BindChoices,
    links: *mut Handle<Links>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(links, "links") }?;
            // SAFETY: the caller passes null or an array of that many handles.
            let patterns = unsafe { array(patterns, count, "patterns") }?;
            let own = patterns.iter().map(|pattern| {
                let pattern = pattern.pin()?;
                pattern.check(&comm)?;
                Ok(pattern.pattern.clone())
            });
            // SAFETY: the caller passes null or a valid struct.
            Ok((out, own.collect::<Result<Vec<_>, Refusal>>()?, unsafe { bind_options(options) }?))
        })();
        let make = |comm: &Communicator, (out, patterns, options): (_, Vec<Pattern>, _)| {
            let patterns: Vec<&Pattern> = patterns.iter().collect();
            Ok((out, PatternLinks::new_with(comm, &patterns, &options)?))
        };
        let (out, links) = collective(&comm.comm, "pattern_links", parsed, make)?;
        let comm = Comm { comm: comm.comm.clone(), group: comm.group };
        out.set(Handle::new(Links { links, comm })?);
        Ok(())
    })
}

/// Starts an exchange of fields.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_links_exchange(
    links: Handle<Links>,
    bindings: *const Binding,
    count: usize,
    pending: *mut PendingExchange,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or a valid pointer.
        let out = unsafe { Out::optional(pending, "pending") }?;
        // SAFETY: the caller passes null or an array of that many bindings.
        let bindings = unsafe { array(bindings, count, "bindings") }?;
        let object = links.pin()?;
        let fields = fields_of(&object.comm, bindings)?;
        let fields: Vec<(&Pattern, &Field)> =
            fields.iter().map(|(pattern, field)| (pattern, field)).collect();
        begun(links.number(), out, object.links.exchange(&fields).map(|pending| pending.epoch()))
    })
}

/// Whether the memory of the fields belongs to the program again.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_links_reclaim(links: Handle<Links>, reclaimed: *mut i32) -> Status {
    call(|| {
        // SAFETY: the caller passes null or a valid pointer.
        let out = unsafe { Out::new(reclaimed, "reclaimed") }?;
        out.set(i32::from(links.pin()?.links.reclaim()));
        Ok(())
    })
}

/// A table of the links.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_links_explain(
    links: Handle<Links>,
    table: *mut c_char,
    room: usize,
    length: *mut usize,
) -> Status {
    call(|| {
        let explained = links.pin()?.links.explain();
        // SAFETY: the caller passes null or an array with that room, and null or a valid pointer.
        unsafe { store_text(&explained, (table, room), length) }
    })
}
