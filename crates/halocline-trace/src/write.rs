//! The events of the file, in the trace event format of Chrome, which Perfetto reads: a process is a rank.

use super::clock::Clock;
use super::notes::{Entry, Notes};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The target of the events at the begin and end of an exchange.
const FLIGHT: &str = "halocline::flight";

/// All events of a rank, separated by commas.
pub(super) fn events(rank: usize, notes: Notes, clock: &Clock) -> Vec<u8> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (behind, within) = clock.behind();
    let about = json!({
        "name": format!("rank {rank}"), "host": host, "pid": std::process::id(),
        "clock_behind_rank_0_ns": behind, "clock_known_within_ns": within,
        "events_left_out": notes.left_out,
    });
    let mut events = vec![
        json!({ "ph": "M", "pid": rank, "name": "process_name", "args": about }),
        json!({ "ph": "M", "pid": rank, "name": "process_sort_index", "args": { "sort_index": rank } }),
    ];
    for (thread, name) in &notes.threads {
        if notes.entries.iter().any(|entry| entry.thread == *thread) {
            let args = json!({ "name": name });
            events
                .push(json!({ "ph": "M", "pid": rank, "tid": thread, "name": "thread_name", "args": args }));
        }
    }
    for entry in notes.entries {
        put(&mut events, entry, clock);
    }
    let mut text = String::new();
    for event in events {
        if !text.is_empty() {
            text.push_str(",\n");
        }
        text.push_str(&event.to_string());
    }
    text.into_bytes()
}

/// The beginning of the file, before the events.
pub(super) fn head(left_out: u64) -> Vec<u8> {
    let clock = "CLOCK_MONOTONIC of rank 0; how far those of other machines are behind was found by messages to and fro";
    let about = json!({ "clock": clock, "events_left_out": left_out });
    format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[\n").into_bytes()
}

/// The whole file, in parts.
pub(super) fn whole<'a>(head: &'a [u8], ranks: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    let mut parts: Vec<&[u8]> = vec![head];
    for (at, rank) in ranks.iter().enumerate() {
        if at > 0 {
            parts.push(b",\n");
        }
        parts.push(rank);
    }
    parts.push(b"\n]}\n");
    parts
}

fn put(events: &mut Vec<Value>, entry: Entry, clock: &Clock) {
    let micros = |ns: i64| ns as f64 / 1e3;
    let Entry { rank, name, target, begin, end, thread, fields, .. } = entry;
    let at = clock.on_timeline(begin);
    let number = |field: &str| fields.get(field).and_then(Value::as_u64);
    let exchange = (fields.get("object").map(Value::to_string), number("epoch"));
    if target == FLIGHT {
        // A bar from the begin of the exchange to its end.
        let is_over = fields.get("over").and_then(Value::as_bool) == Some(true);
        let id = id(&(rank, exchange));
        events.push(json!({
            "ph": if is_over { "e" } else { "b" }, "cat": "exchange", "id": id, "pid": rank, "tid": thread,
            "ts": micros(at), "name": "in flight", "args": fields,
        }));
        return;
    }
    let Some(end) = end else {
        events.push(json!({
            "ph": "i", "s": "t", "pid": rank, "tid": thread, "ts": micros(at), "name": name, "cat": target,
            "args": fields,
        }));
        return;
    };
    let length = clock.on_timeline(end) - at;
    // An arrow from where bytes were packed to where they are unpacked.
    let ends = number("peer").map(|peer| match name.as_str() {
        "unpack" => ("f", (peer, rank as u64)),
        _ => ("s", (rank as u64, peer)),
    });
    if let Some((phase, path)) = ends.filter(|_| matches!(name.as_str(), "pack" | "unpack")) {
        let id = id(&(path, exchange));
        events.push(json!({
            "ph": phase, "bp": "e", "cat": "bytes", "id": id, "pid": rank, "tid": thread,
            "ts": micros(at + length / 2), "name": "bytes",
        }));
    }
    events.push(json!({
        "ph": "X", "pid": rank, "tid": thread, "ts": micros(at), "dur": micros(length), "name": name,
        "cat": target, "args": fields,
    }));
}

fn id(of: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:#x}", hasher.finish())
}
