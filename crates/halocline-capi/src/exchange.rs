//! Bound exchanges.

#[cfg(test)]
mod device_tests;

use crate::call::{call, call_for};
use crate::collective::{collective_for, refused};
use crate::comm::{Comm, deadline};
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr};
use crate::pattern::BoundPattern;
use crate::pending::{PendingExchange, begun};
use crate::pointer::{
    Capacity, CheckedOut, OutArray, OutPtr, array, optional_array, store, store_text, text,
};
use crate::status::{Refusal, Status};
use halocline::{Begin, BindOptions, Field, HaloExchange, LinkChoice, Ll, Pattern, ReduceOp, Stream};
use std::ffi::c_char;
use std::sync::Arc;

/// `HALOCLINE_LINK_NCCL`: the numbers between it and the other links are of paths that no bind asks for.
pub(crate) const NCCL: i32 = 7;

/// `halocline_binding`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) pattern: Handle<BoundPattern>,
    pub(crate) field: Handle<Field>,
}

/// `halocline_bind_options`.
#[repr(C)]
pub(crate) struct BindChoices {
    pub(crate) size: usize,
    pub(crate) name: *const c_char,
    pub(crate) deadline: f64,
    pub(crate) streams: *const Handle<Arc<Stream>>,
    pub(crate) stream_count: usize,
    pub(crate) ll_bytes: usize,
    pub(crate) link: i32,
    pub(crate) checked: i32,
    pub(crate) run_inline: i32,
    pub(crate) stream_waits: i32,
    pub(crate) ll: i32,
    pub(crate) reserved: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers, floating-point numbers and raw pointers.
unsafe impl Options for BindChoices {
    const FIRST_SIZE: usize = 72;
    const NAME: &'static str = "halocline_bind_options";
}

/// The options that a struct describes.
pub(crate) fn bind_options(given: &OptionsPtr<'_, BindChoices>) -> Result<BindOptions, Refusal> {
    let given = given.optional()?;
    let links =
        [LinkChoice::Auto, LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];
    let link = match given.link {
        NCCL => LinkChoice::Nccl,
        other => {
            options::choice(other, links, "link", "set it to HALOCLINE_LINK_AUTO or another link of a bind")?
        }
    };
    let remedy = "set it to HALOCLINE_DEFAULT, HALOCLINE_ON (with ll_bytes) or HALOCLINE_OFF";
    if given.ll_bytes != 0 && given.ll != 1 {
        return Err(Refusal::argument(format!(
            "ll_bytes is {}, and ll is not HALOCLINE_ON; set ll to HALOCLINE_ON to use it, or ll_bytes to 0",
            given.ll_bytes
        )));
    }
    let ll = [None, Some(Ll::UpTo(given.ll_bytes)), Some(Ll::Never)];
    let ll = options::choice(given.ll, ll, "ll", remedy)?;
    if given.reserved != 0 {
        return Err(Refusal::argument(
            "reserved is not 0; initialise the struct with HALOCLINE_BIND_OPTIONS_INIT",
        ));
    }
    // SAFETY: by the contract of `OptionsPtr` and the header, `streams` is null or has `stream_count` elements that may be read until
    // the call ends. Any bytes are a `Handle`.
    let streams = unsafe { array(given.streams, given.stream_count, "streams") }?;
    let streams = streams.iter().map(|stream| Ok(Arc::clone(&*stream.pin()?)));
    let bind = BindOptions::default()
        .link(link)
        .deadline(deadline(given.deadline)?)
        .checked(options::switch(given.checked, "checked")?)
        .streams(streams.collect::<Result<Vec<_>, Refusal>>()?)
        .inline(options::flag(given.run_inline, "run_inline")?)
        .stream_waits(options::switch(given.stream_waits, "stream_waits")?)
        .ll(ll);
    if given.name.is_null() {
        return Ok(bind);
    }
    // SAFETY: by the contract of `OptionsPtr` and the header, `name` is null or a string with a closing zero that may be read until
    // the call ends.
    Ok(bind.name(unsafe { text(given.name, "name") }?))
}

/// The patterns and fields of bindings.
pub(crate) fn fields_of(comm: &Comm, bindings: &[Binding]) -> Result<Vec<(Pattern, Field)>, Refusal> {
    let pair = |(at, binding): (usize, &Binding)| {
        let made = binding.pattern.pin().and_then(|pattern| {
            pattern.check(comm)?;
            Ok((pattern.pattern.clone(), binding.field.pin()?.clone()))
        });
        made.map_err(|refusal| Refusal::new(refusal.status, format!("binding {at}: {}", refusal.message)))
    };
    bindings.iter().enumerate().map(pair).collect()
}

/// Binds fields to patterns.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_bind(
    comm: Handle<Comm>,
    bindings: *const Binding,
    count: usize,
    options: OptionsPtr<'_, BindChoices>,
    halo: OutPtr<'_, Handle<HaloExchange>>,
) -> Status {
    // SAFETY: the caller keeps the contract of `halocline_bind_alternatives` for one set.
    unsafe { halocline_bind_alternatives(comm, bindings, count, 1, options, halo) }
}

/// Binds several sets of fields.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_bind_alternatives(
    comm: Handle<Comm>,
    bindings: *const Binding,
    count: usize,
    sets: usize,
    options: OptionsPtr<'_, BindChoices>,
    halo: OutPtr<'_, Handle<HaloExchange>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            if !(1..=MOST_SETS).contains(&sets) {
                return Err(Refusal::argument(format!(
                    "sets is {sets}; bind 1 to {MOST_SETS} sets of fields"
                )));
            }
            // SAFETY: the caller passes null or `count` bindings for each set. Any bytes are a `Binding`.
            let bindings = unsafe { array(bindings, count.saturating_mul(sets), "bindings") }?;
            Ok((fields_of(&comm, bindings)?, bind_options(&options)?))
        };
        collective_for(&comm.comm, "bind", (halo, "halo"), parse, |comm, (fields, options)| {
            let of_set = |set: usize| -> Vec<(&Pattern, &Field)> {
                fields[set * count..(set + 1) * count]
                    .iter()
                    .map(|(pattern, field)| (pattern, field))
                    .collect()
            };
            let sets: Vec<_> = (0..sets).map(of_set).collect();
            Handle::new(HaloExchange::bind_alternatives(comm, &sets, &options)?)
        })
    })
}

const MOST_SETS: usize = 1 << 16;

/// Where an exchange is stored. A caller without a handle cannot leave the wait to another thread: the exchange must not begin if
/// this thread may not wait.
#[inline]
fn out_of<'a>(
    object: &HaloExchange,
    pending: OutPtr<'a, PendingExchange>,
) -> Result<CheckedOut<'a, PendingExchange>, Refusal> {
    let out = pending.optional("pending")?;
    if !out.is_wanted() {
        object.check_thread()?;
    }
    Ok(out)
}

/// Starts an exchange.
#[unsafe(no_mangle)]
extern "C" fn halocline_exchange(halo: Handle<HaloExchange>, pending: OutPtr<'_, PendingExchange>) -> Status {
    call(|| {
        let object = halo.pin()?;
        begun(halo.number(), out_of(&object, pending)?, object.begin().start_epoch())
    })
}

/// Starts an exchange of one of several sets.
#[unsafe(no_mangle)]
extern "C" fn halocline_exchange_set(
    halo: Handle<HaloExchange>,
    set: usize,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let object = halo.pin()?;
        begun(halo.number(), out_of(&object, pending)?, object.begin().set(set).start_epoch())
    })
}

/// Starts the reverse of an exchange.
#[unsafe(no_mangle)]
extern "C" fn halocline_reduce(
    halo: Handle<HaloExchange>,
    set: usize,
    operation: i32,
    keep_halo: i32,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let op = operation_of(operation)?;
        let keep = options::flag(keep_halo, "keep_halo")?;
        let object = halo.pin()?;
        let out = out_of(&object, pending)?;
        begun(halo.number(), out, object.begin().set(set).reduce(op).keep_halo(keep).start_epoch())
    })
}

fn operation_of(operation: i32) -> Result<ReduceOp, Refusal> {
    use ReduceOp::{And, Max, Min, Or, Product, Replace, Sum, Xor};
    let operations = [Sum, Min, Max, Product, Replace, And, Or, Xor];
    let remedy = "pass HALOCLINE_SUM, HALOCLINE_MIN or another operation of halocline_reduce";
    options::choice(operation, operations, "operation", remedy)
}

/// Combines halo cells with their owned cells. Each halo cell gets the previous value of its owned cell.
#[unsafe(no_mangle)]
extern "C" fn halocline_fetch_and_op(halo: Handle<HaloExchange>, operation: i32) -> Status {
    call(|| {
        let halo = halo.pin()?;
        match operation_of(operation) {
            Ok(op) => Ok(halo.fetch_and_op(op)?),
            Err(refusal) => {
                // The refusal says more than the error of the call.
                let _ = halo.fetch_and_op_if(Err(refused(&refusal)));
                Err(refusal)
            }
        }
    })
}

/// How many halo cells copy each cell.
#[unsafe(no_mangle)]
extern "C" fn halocline_degree(
    halo: Handle<HaloExchange>,
    field: usize,
    degree: OutArray<'_, u32>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let all = halo.pin()?.degree()?;
        let Some(found) = all.get(field) else {
            let fields = all.len();
            return Err(Refusal::argument(format!(
                "field is {field}; the object has {fields} fields in a set; give a number below that"
            )));
        };
        store(&found.read()?, (degree, capacity), count, "degree")
    })
}

/// Starts an exchange after earlier work of streams; the host does not wait for it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_schedule_exchange(
    halo: Handle<HaloExchange>,
    set: usize,
    streams: *const Handle<Arc<Stream>>,
    stream_count: usize,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let out = pending.optional("pending")?;
        // SAFETY: the caller passes null or an array of that many handles.
        let streams = unsafe { streams_of(streams, stream_count) }?;
        let object = halo.pin()?;
        schedule(halo.number(), out, object.begin().set(set), streams)
    })
}

/// Schedules an exchange or a reduce after earlier work of streams, or of those of the object.
fn schedule(
    exchange: u64,
    pending: CheckedOut<'_, PendingExchange>,
    begin: Begin<'_>,
    streams: Option<&[Handle<Arc<Stream>>]>,
) -> Result<(), Refusal> {
    let epoch = |begin: Begin<'_>| begin.schedule().map(|pending| pending.epoch());
    match streams {
        None => begun(exchange, pending, epoch(begin)),
        Some(streams) => {
            with_streams(streams, |streams| begun(exchange, pending, epoch(begin.after(streams))))
        }
    }
}

/// Starts the reverse of an exchange after earlier work of streams; the host does not wait for it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_schedule_reduce(
    halo: Handle<HaloExchange>,
    set: usize,
    operation: i32,
    keep_halo: i32,
    streams: *const Handle<Arc<Stream>>,
    stream_count: usize,
    pending: OutPtr<'_, PendingExchange>,
) -> Status {
    call(|| {
        let out = pending.optional("pending")?;
        let op = operation_of(operation)?;
        let keep = options::flag(keep_halo, "keep_halo")?;
        // SAFETY: the caller passes null or an array of that many handles.
        let streams = unsafe { streams_of(streams, stream_count) }?;
        let object = halo.pin()?;
        schedule(halo.number(), out, object.begin().set(set).reduce(op).keep_halo(keep), streams)
    })
}

/// The streams given to a call; `None` for null, which stands for those of the object.
///
/// # Safety
/// `first` is null, or an array of that many handles that may be read until the call ends.
pub(crate) unsafe fn streams_of<'a>(
    first: *const Handle<Arc<Stream>>,
    count: usize,
) -> Result<Option<&'a [Handle<Arc<Stream>>]>, Refusal> {
    if first.is_null() && count != 0 {
        return Err(Refusal::argument(format!(
            "streams is NULL, which stands for the streams of the object, and stream_count is {count}; pass 0, or the array"
        )));
    }
    // SAFETY: the caller promises null or an array of that many handles. Any bytes are a `Handle`.
    unsafe { optional_array(first, count, "streams") }
}

/// Calls `run` with the streams of handles; up to a few without an allocation.
pub(crate) fn with_streams<R>(
    handles: &[Handle<Arc<Stream>>],
    run: impl FnOnce(&[&Stream]) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    match handles {
        [] => run(&[]),
        [one] => run(&[&*one.pin()?]),
        [one, other] => run(&[&*one.pin()?, &*other.pin()?]),
        many => {
            let pinned = many.iter().map(|stream| stream.pin()).collect::<Result<Vec<_>, _>>()?;
            run(&pinned.iter().map(|stream| &***stream).collect::<Vec<&Stream>>())
        }
    }
}

/// Starts an exchange and waits for it.
#[unsafe(no_mangle)]
extern "C" fn halocline_exchange_and_wait(halo: Handle<HaloExchange>) -> Status {
    call(|| {
        let object = halo.pin()?;
        // The caller has no handle to wait for an exchange that begins although this thread may not wait.
        object.check_thread()?;
        let epoch = object.begin().start_epoch()?;
        Ok(object.wait_epoch(epoch)?)
    })
}

/// Whether the memory of the fields belongs to the program again.
#[unsafe(no_mangle)]
extern "C" fn halocline_reclaim(halo: Handle<HaloExchange>, reclaimed: OutPtr<'_, i32>) -> Status {
    call_for(reclaimed, "reclaimed", || Ok(i32::from(halo.pin()?.reclaim())))
}

/// The number of sets.
#[unsafe(no_mangle)]
extern "C" fn halocline_sets(halo: Handle<HaloExchange>, sets: OutPtr<'_, usize>) -> Status {
    call_for(sets, "sets", || Ok(halo.pin()?.sets()))
}

/// A handle of one of several sets.
#[unsafe(no_mangle)]
extern "C" fn halocline_alternative(
    halo: Handle<HaloExchange>,
    set: usize,
    alternative: OutPtr<'_, Handle<HaloExchange>>,
) -> Status {
    call_for(alternative, "alternative", || Handle::new(halo.pin()?.alternative(set)?))
}

/// The same fields with a narrower halo.
#[unsafe(no_mangle)]
extern "C" fn halocline_narrowed(
    halo: Handle<HaloExchange>,
    to: OptionsPtr<'_, HaloWidths>,
    narrowed: OutPtr<'_, Handle<HaloExchange>>,
) -> Status {
    call(|| {
        let halo = halo.pin()?;
        let parsed = narrowed.checked("narrowed").and_then(|out| Ok((out, grid::halo(&to)?)));
        match parsed {
            Ok((out, to)) => {
                out.set(Handle::new(halo.narrowed_if(Ok(&to))?)?);
                Ok(())
            }
            Err(refusal) => {
                // The refusal says more than the error of the call.
                let _ = halo.narrowed_if(Err(refused(&refusal)));
                Err(refusal)
            }
        }
    })
}

/// A table of the links.
#[unsafe(no_mangle)]
extern "C" fn halocline_explain(
    halo: Handle<HaloExchange>,
    table: OutArray<'_, c_char>,
    capacity: Capacity,
    length: OutPtr<'_, usize>,
) -> Status {
    call(|| store_text(&halo.pin()?.explain(), (table, capacity), length))
}
