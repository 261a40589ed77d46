//! Records the spans and events that the library reports through `tracing`.

use super::notes::{self, Entry, Notes};
use halocline_comm::{Host, System};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

/// The records of the process.
#[derive(Debug)]
pub(super) struct Recorder {
    /// The records by rank.
    notes: Mutex<BTreeMap<usize, Notes>>,
    /// Maximum number of entries of a rank.
    most: usize,
}

impl Recorder {
    /// The recorder of the process.
    pub(super) fn get() -> &'static Self {
        static RECORDER: Recorder = Recorder::of(notes::MOST);
        &RECORDER
    }

    const fn of(most: usize) -> Self {
        Self { notes: Mutex::new(BTreeMap::new()), most }
    }

    /// A recorder of its own with this limit of entries for each rank.
    #[cfg(test)]
    pub(super) fn with_limit(most: usize) -> &'static Self {
        Box::leak(Box::new(Self::of(most)))
    }

    /// Takes the record of `rank`.
    pub(super) fn take(&self, rank: usize) -> Notes {
        self.lock().remove(&rank).unwrap_or_else(|| Notes::new(self.most))
    }

    /// Changes the record of `rank`.
    pub(super) fn with(&self, rank: usize, add: impl FnOnce(&mut Notes)) {
        add(self.lock().entry(rank).or_insert_with(|| Notes::new(self.most)));
    }

    pub(super) fn add(&self, entry: Entry) {
        let name = || std::thread::current().name().unwrap_or("unnamed").to_owned();
        self.with(entry.rank, |notes| notes.add(entry, name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Notes>> {
        // Nothing that runs under the lock leaves the notes half-changed.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of calls of `want` without an `unwant`.
static WANTED: AtomicIsize = AtomicIsize::new(0);

/// Changes that number.
pub(super) fn count(more: isize) {
    let before = WANTED.fetch_add(more, Ordering::AcqRel);
    if (before > 0) != (before + more > 0) {
        // Each callsite caches whether it is enabled.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// The filter of the layer: everything of this program and its library, while a trace is wanted.
pub(super) struct Wanted;

impl Wanted {
    fn is_wanted(&self, metadata: &Metadata<'_>) -> bool {
        WANTED.load(Ordering::Acquire) > 0 && metadata.target().starts_with("halocline")
    }
}

impl<S> Filter<S> for Wanted {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.is_wanted(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let is_wanted = WANTED.load(Ordering::Acquire) > 0;
        Some(if is_wanted { LevelFilter::TRACE } else { LevelFilter::OFF })
    }
}

/// The layer that writes down spans and events which name their rank.
pub(super) struct Scribe;

/// The state of a span that exists.
struct Open {
    fields: Fields,
    entered: Vec<u64>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Scribe {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Open { fields, entered: Vec::new() });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut open.fields);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.entered.push(now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let end = now();
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
            && let Some(begin) = open.entered.pop()
        {
            write_down(span.metadata(), open.fields.clone(), begin, Some(end));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        write_down(event.metadata(), fields, now(), None);
    }
}

/// Records a span or event that names its rank; others belong on no timeline.
fn write_down(metadata: &Metadata<'static>, fields: Fields, begin: u64, end: Option<u64>) {
    let Some(rank) = fields.0.get("rank").and_then(Value::as_u64) else { return };
    let Fields(mut fields) = fields;
    fields.remove("rank");
    let name = match fields.remove("message") {
        Some(Value::String(message)) => message,
        _ => metadata.name().to_owned(),
    };
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    let (rank, target) = (rank as usize, metadata.target());
    Recorder::get().add(Entry { rank, name, target, begin, end, thread, fields });
}

/// The monotonic clock, ns.
pub(super) fn now() -> u64 {
    System.now().as_nanos() as u64
}

/// The fields of a span or event, as JSON.
#[derive(Debug, Clone, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
