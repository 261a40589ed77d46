//! The events of a trace, in the trace event format of Chrome.

use serde_json::Value;
use std::collections::BTreeMap;

/// A span. Times are in microseconds of the trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) begin: f64,
    pub(super) end: f64,
    /// Number of spans of the lane around it.
    pub(super) depth: usize,
}

/// The name of the spans of exchanges in a device's record.
pub(super) const ON_DEVICE: &str = "exchange (device)";

/// The spans of one thread of a rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lane {
    pub(super) rank: u64,
    pub(super) name: String,
    /// Sorted by their start, then the longest first.
    pub(super) spans: Vec<Span>,
}

impl Lane {
    /// Whether the lane has the exchanges of a device.
    fn is_of_exchanges(&self) -> bool {
        self.spans.iter().any(|span| span.name == ON_DEVICE)
    }
}

/// A trace, or a part of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Timeline {
    /// Sorted by rank, then by the start of the first span.
    pub(super) lanes: Vec<Lane>,
    /// Exchanges in flight of each rank by its host's record, sorted by their start. A rank whose device has recorded them has none here.
    pub(super) flights: BTreeMap<u64, Vec<Span>>,
}

impl Timeline {
    /// Reads the text of a file. The error says why it is invalid.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let events = file["traceEvents"].as_array().ok_or("it has no list `traceEvents`")?;
        let mut names = BTreeMap::new();
        let mut lanes: BTreeMap<(u64, u64), Vec<Span>> = BTreeMap::new();
        let mut begun = BTreeMap::new();
        let mut flights: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
        for event in events {
            let (rank, thread) = (event["pid"].as_u64().unwrap_or(0), event["tid"].as_u64().unwrap_or(0));
            let name = || event["name"].as_str().unwrap_or("?").to_owned();
            let time = |key: &str| {
                let time = event[key].as_f64().filter(|time| time.is_finite());
                time.ok_or_else(|| format!("an event has no number `{key}`: {event}"))
            };
            match event["ph"].as_str() {
                Some("X") => {
                    let begin = time("ts")?;
                    let end = begin + time("dur")?;
                    if !(begin..=f64::MAX).contains(&end) {
                        return Err(format!("an event has a wrong `dur`: {event}"));
                    }
                    lanes.entry((rank, thread)).or_default().push(Span {
                        name: name(),
                        begin,
                        end,
                        depth: 0,
                    });
                }
                Some("b") => _ = begun.insert((rank, event["id"].to_string()), time("ts")?),
                Some("e") => {
                    let end = time("ts")?;
                    if let Some(begin) = begun.remove(&(rank, event["id"].to_string())) {
                        if end < begin {
                            return Err(format!("an event ends before it begins: {event}"));
                        }
                        flights.entry(rank).or_default().push(Span { name: name(), begin, end, depth: 0 });
                    }
                }
                Some("M") if event["name"] == "thread_name" => {
                    names.insert((rank, thread), event["args"]["name"].as_str().unwrap_or("?").to_owned());
                }
                _ => {}
            }
        }
        let lane = |((rank, thread), spans)| {
            let name = names.get(&(rank, thread)).cloned().unwrap_or_else(|| format!("thread {thread}"));
            Lane { rank, name, spans: nested(spans) }
        };
        let mut lanes: Vec<Lane> = lanes.into_iter().map(lane).collect();
        lanes.sort_by(|a, b| a.rank.cmp(&b.rank).then(a.spans[0].begin.total_cmp(&b.spans[0].begin)));
        flights.values_mut().for_each(|flights| flights.sort_by(|a, b| a.begin.total_cmp(&b.begin)));
        for lane in lanes.iter().filter(|lane| lane.is_of_exchanges()) {
            flights.remove(&lane.rank);
        }
        if lanes.is_empty() {
            return Err("it has no spans".to_owned());
        }
        let timeline = Self { lanes, flights };
        let (first, last) = timeline.extent();
        if !(last - first).is_finite() {
            return Err(format!("its spans from {first} to {last} us are too far apart"));
        }
        Ok(timeline)
    }

    /// The start of the first span and the end of the last.
    pub(super) fn extent(&self) -> (f64, f64) {
        let spans = || self.lanes.iter().flat_map(|lane| &lane.spans);
        let first = spans().map(|span| span.begin).fold(f64::INFINITY, f64::min);
        (first, spans().map(|span| span.end).fold(f64::NEG_INFINITY, f64::max))
    }

    /// The time of the last `count` complete exchanges of the first rank: from the start of the first of them to the start of the
    /// next exchange. The whole trace, if it has fewer.
    pub(super) fn last_exchanges(&self, count: usize) -> (f64, f64) {
        let (first, last) = self.extent();
        let on_device = || self.lanes.iter().find(|lane| lane.is_of_exchanges()).map(|lane| &lane.spans);
        let Some(flights) = self.flights.values().next().or_else(on_device) else { return (first, last) };
        match (flights.len().checked_sub(count + 1), flights.last()) {
            (Some(at), Some(end)) => {
                // A margin, so that the start is visible.
                let margin = (end.begin - flights[at].begin) * 0.02;
                (flights[at].begin - margin, end.begin + margin)
            }
            _ => (first, last),
        }
    }

    /// The spans that overlap the time between two moments.
    pub(super) fn between(&self, from: f64, to: f64) -> Self {
        let meets = |span: &&Span| span.end >= from && span.begin <= to;
        let part = |spans: &[Span]| -> Vec<Span> { spans.iter().filter(meets).cloned().collect() };
        let lanes = self.lanes.iter().map(|lane| Lane { spans: part(&lane.spans), ..lane.clone() });
        Self {
            lanes: lanes.filter(|lane| !lane.spans.is_empty()).collect(),
            flights: self.flights.iter().map(|(&rank, flights)| (rank, part(flights))).collect(),
        }
    }
}

/// Sorts spans and sets their depth.
fn nested(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(b.end.total_cmp(&a.end)));
    let mut around: Vec<f64> = Vec::new();
    for span in &mut spans {
        around.retain(|&end| end > span.begin);
        span.depth = around.len();
        around.push(span.end);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trace() -> String {
        let span = |rank: u64, thread: u64, name: &str, ts: f64, dur: f64| json!({"ph": "X", "pid": rank, "tid": thread, "ts": ts, "dur": dur, "name": name});
        let flight = |phase: &str, id: u64, ts: f64| json!({"ph": phase, "cat": "exchange", "pid": 0, "tid": 5, "id": id, "ts": ts, "name": "in flight"});
        let mut events = vec![
            json!({"ph": "M", "pid": 0, "tid": 5, "name": "thread_name", "args": {"name": "main"}}),
            span(1, 7, "wait", 3.0, 2.0),
            span(0, 5, "copy", 1.0, 1.0),
            span(0, 5, "exchange", 1.0, 2.0),
            span(0, 5, "interior", 3.0, 40.0),
            json!({"ph": "i", "pid": 0, "tid": 5, "ts": 2.0, "name": "counter"}),
        ];
        for epoch in 0..4 {
            let begin = 10.0 * epoch as f64;
            events.extend([flight("b", epoch, begin), flight("e", epoch, begin + 8.0)]);
        }
        json!({"traceEvents": events}).to_string()
    }

    #[test]
    fn spans_lie_in_lanes_and_within_each_other() {
        let timeline = Timeline::read(&trace()).unwrap();
        let lanes: Vec<_> = timeline.lanes.iter().map(|lane| (lane.rank, lane.name.as_str())).collect();
        assert_eq!(lanes, [(0, "main"), (1, "thread 7")]);
        let spans: Vec<_> =
            timeline.lanes[0].spans.iter().map(|span| (span.name.as_str(), span.depth)).collect();
        assert_eq!(spans, [("exchange", 0), ("copy", 1), ("interior", 0)]);
        assert_eq!(timeline.extent(), (1.0, 43.0));
        assert_eq!(timeline.flights[&0].len(), 4);
    }

    #[test]
    fn a_part_holds_what_meets_it() {
        let timeline = Timeline::read(&trace()).unwrap();
        let (from, to) = timeline.last_exchanges(2);
        assert!((from - 9.6).abs() < 1e-9 && (to - 30.4).abs() < 1e-9, "{from} {to}");
        assert_eq!(timeline.last_exchanges(9), timeline.extent());
        let part = timeline.between(12.0, 25.0);
        assert_eq!(part.lanes.len(), 1);
        assert_eq!(part.lanes[0].spans.len(), 1);
        assert_eq!(part.flights[&0].len(), 2);
    }

    #[test]
    fn exchanges_that_a_device_has_seen_come_before_what_its_host_knows() {
        let mut file: Value = serde_json::from_str(&trace()).unwrap();
        let events = file["traceEvents"].as_array_mut().unwrap();
        for round in 0..5 {
            let begin = 100.0 + 20.0 * round as f64;
            let span = |thread: u64, name: &str, dur: f64| json!({"ph": "X", "pid": 0, "tid": thread, "ts": begin, "dur": dur, "name": name});
            events.extend([span(8, "interior", 15.0), span(9, ON_DEVICE, 10.0)]);
        }
        let timeline = Timeline::read(&file.to_string()).unwrap();
        assert!(timeline.flights.is_empty());
        let (from, to) = timeline.last_exchanges(2);
        assert!((from - 139.2).abs() < 1e-9 && (to - 180.8).abs() < 1e-9, "{from} {to}");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for (text, reason) in [
            ("", "EOF"),
            ("[]", "no list `traceEvents`"),
            ("{\"traceEvents\": []}", "no spans"),
            ("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1}]}", "no number `dur`"),
            ("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1e308, \"dur\": 1e308}]}", "a wrong `dur`"),
            ("{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1, \"dur\": -1}]}", "a wrong `dur`"),
            (
                "{\"traceEvents\": [{\"ph\": \"X\", \"ts\": -1e308, \"dur\": 0}, {\"ph\": \"X\", \"ts\": 1e308, \"dur\": 0}]}",
                "too far apart",
            ),
            (
                "{\"traceEvents\": [{\"ph\": \"b\", \"ts\": 2, \"id\": 1}, {\"ph\": \"e\", \"ts\": 1, \"id\": 1}]}",
                "ends before it begins",
            ),
            ("{\"traceEvents\": [7]}", "no spans"),
        ] {
            let error = Timeline::read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
