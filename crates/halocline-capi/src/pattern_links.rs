//! The unbound form: links of patterns, and fields given to each exchange.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::exchange::{BindChoices, Binding, PendingExchange, begun, bind_options, fields_of};
use crate::object::Handle;
use crate::options::OptionsPtr;
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, store_text};
use crate::status::{Refusal, Status};
use halocline::{Field, Pattern, PatternLinks};
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
    options: OptionsPtr<'_, BindChoices>,
    links: OutPtr<'_, Handle<Links>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            // SAFETY: the caller passes null or an array of that many handles.
            let patterns = unsafe { array(patterns, count, "patterns") }?;
            let own = patterns.iter().map(|pattern| {
                let pattern = pattern.pin()?;
                pattern.check(&comm)?;
                Ok(pattern.pattern.clone())
            });
            Ok((own.collect::<Result<Vec<_>, Refusal>>()?, bind_options(&options)?))
        };
        collective_for(&comm.comm, "pattern_links", (links, "links"), parse, |within, (patterns, options)| {
            let links = PatternLinks::new_with(within, &patterns.iter().collect::<Vec<_>>(), &options)?;
            Handle::new(Links { links, comm: Comm { comm: comm.comm.clone(), group: comm.group } })
        })
    })
}

/// Starts an exchange of fields.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_links_exchange(
    links: Handle<Links>,
    bindings: *const Binding,
    count: usize,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let out = pending.optional("pending")?;
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
extern "C" fn halocline_pattern_links_reclaim(links: Handle<Links>, reclaimed: OutPtr<'_, i32>) -> Status {
    call_for(reclaimed, "reclaimed", || Ok(i32::from(links.pin()?.links.reclaim())))
}

/// A table of the links.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_links_explain(
    links: Handle<Links>,
    table: OutArray<'_, c_char>,
    room: Capacity,
    length: OutPtr<'_, usize>,
) -> Status {
    call(|| store_text(&links.pin()?.links.explain(), (table, room), length))
}
