//! The unbound form: links of patterns, and fields given to each exchange.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::exchange::{BindChoices, Binding, bind_options, fields_of, streams_of, with_streams};
use crate::message::LinkOfRank;
use crate::object::Handle;
use crate::options::OptionsPtr;
use crate::pattern::BoundPattern;
use crate::pending::{PendingExchange, begun};
use crate::pointer::{Capacity, OutArray, OutPtr, array, store, store_text};
use crate::status::{Refusal, Status};
use halocline::device::MemorySpace;
use halocline::{Error, Field, Pattern, PatternLinks, Pending, Stream};
use std::ffi::c_char;
use std::sync::Arc;

/// Links of patterns, with the group of their ranks.
pub(crate) struct Links {
    pub(crate) links: PatternLinks,
    pub(crate) comm: Comm,
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
            let patterns: Vec<&Pattern> = patterns.iter().collect();
            // Links with streams of a GPU exchange its fields, too.
            let links = match options.first_stream() {
                None => PatternLinks::new_with(within, &patterns, &options)?,
                Some(stream) => PatternLinks::on_device(within, &patterns, stream.device(), &options)?,
            };
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
        if let Some(at) = fields.iter().position(|(_, field)| field.space() != MemorySpace::Host) {
            return Err(Refusal::argument(format!(
                "binding {at}: the field lies in memory of a GPU; give it to halocline_pattern_links_schedule"
            )));
        }
        begun(links.number(), out, object.links.exchange(&fields).map(|pending| pending.epoch()))
    })
}

/// Starts an exchange of fields of a GPU after earlier work of streams.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_pattern_links_schedule(
    links: Handle<Links>,
    bindings: *const Binding,
    count: usize,
    streams: *const Handle<Arc<Stream>>,
    stream_count: usize,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let out = pending.optional("pending")?;
        // SAFETY: the caller passes null or an array of that many bindings.
        let bindings = unsafe { array(bindings, count, "bindings") }?;
        // SAFETY: the caller passes null or an array of that many handles.
        let streams = unsafe { streams_of(streams, stream_count) }?;
        let object = links.pin()?;
        let fields = fields_of(&object.comm, bindings)?;
        let fields: Vec<(&Pattern, &Field)> =
            fields.iter().map(|(pattern, field)| (pattern, field)).collect();
        if let Some(at) = fields.iter().position(|(_, field)| field.space() == MemorySpace::Host) {
            return Err(Refusal::argument(format!(
                "binding {at}: the field lies in host memory; give it to halocline_pattern_links_exchange"
            )));
        }
        let number = |pending: Result<Pending, Error>| {
            // Without fields it is an exchange of none.
            let mark = if fields.is_empty() { 0 } else { ON_DEVICE };
            begun(links.number(), out, pending.map(|pending| pending.epoch() | mark))
        };
        match streams {
            None => number(object.links.exchange(&fields)),
            Some(streams) => {
                with_streams(streams, |streams| number(object.links.schedule_exchange(&fields, streams)))
            }
        }
    })
}

impl Links {
    /// The exchange that a call has numbered so.
    pub(crate) fn pending_at(&self, number: u64) -> Option<Pending> {
        match number & ON_DEVICE {
            0 => self.links.pending_at(number),
            _ => self.links.pending_on_device(number & !ON_DEVICE),
        }
    }
}

/// In the number of an exchange of fields of a GPU: they count on their own.
const ON_DEVICE: u64 = 1 << 62;

/// Whether the memory of the fields belongs to the program again.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_links_reclaim(links: Handle<Links>, reclaimed: OutPtr<'_, i32>) -> Status {
    call_for(reclaimed, "reclaimed", || Ok(i32::from(links.pin()?.links.reclaim())))
}

/// The links of this rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_links_links(
    links: Handle<Links>,
    found: OutArray<'_, LinkOfRank>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let all: Vec<LinkOfRank> = links.pin()?.links.links().map(LinkOfRank::from).collect();
        store(&all, (found, capacity), count, "found")
    })
}

/// A table of the links.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_links_explain(
    links: Handle<Links>,
    table: OutArray<'_, c_char>,
    capacity: Capacity,
    length: OutPtr<'_, usize>,
) -> Status {
    call(|| store_text(&links.pin()?.links.explain(), (table, capacity), length))
}
