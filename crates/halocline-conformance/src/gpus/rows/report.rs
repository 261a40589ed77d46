//! The table of results, as text and as JSON.

use serde_json::{Value, json};

/// Ways of an exchange, as JSON names them.
const METHODS: [&str; 4] = ["inline", "overlapped", "nccl_eager", "nccl_graph"];

/// All that a run has found.
pub(super) struct Report {
    pub(super) gpu: String,
    pub(super) gpus: usize,
    pub(super) ranks: usize,
    pub(super) transport: &'static str,
    /// Its version, or why it is not there.
    pub(super) nccl: Result<(i32, i32, i32), String>,
    pub(super) rows: Vec<Row>,
    pub(super) sizes: Vec<Size>,
}

/// A row: times in us, by method.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Bytes that cross, of a rank, each way; bytes that are copied within the rank.
    pub(super) bytes: [usize; 2],
    /// How ours crosses.
    pub(super) paths: String,
    pub(super) us: [Option<f64>; 4],
    /// The host's: the first, and later ones.
    pub(super) host: [Option<[f64; 2]>; 4],
    /// Plain stores of as many bytes as cross, in one piece.
    pub(super) stores: Option<f64>,
    pub(super) bars: [Option<f64>; 2],
}

/// A size of a message: times in us, by method.
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) paths: String,
    pub(super) us: [Option<f64>; 4],
    pub(super) stores: f64,
    pub(super) copy: f64,
}

/// Bars of the host's time of the two calls together, us.
const HOST_BARS: [f64; 2] = [8.0, 12.0];

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

/// How much of a time another is.
fn ratio(time: Option<f64>, other: Option<f64>) -> String {
    time.zip(other).map_or_else(|| "-".to_owned(), |(time, other)| format!("{:.2}", time / other))
}

impl Report {
    /// What is measured, and the columns of rows.
    pub(super) fn head(&self) -> String {
        let nccl = match &self.nccl {
            Ok((major, minor, patch)) => format!("NCCL {major}.{minor}.{patch}"),
            Err(why) => format!("NOT MEASURED, NCCL: {why}"),
        };
        format!(
            "{} ranks by {}, {} of {}; {nccl}\n\
             us an exchange in a row, medians of {} blocks, slowest rank; every method checked cell by cell before. Bars in brackets: \
             inline, overlapped; host {}, {}.\n\
             NCCL: packed by one kernel, grouped send and receive, unpacked by one; what stays on the rank is copied by the kernel that \
             packs or beside it, the faster one counts. In a graph: the time of one of {} exchanges.\n\
             host: us of the calls of one exchange behind a kernel of 1 ms, first (later)\n\
             {:<34} {:>8} {:>13} {:>13} {:>9} {:>9} {:>7} {:>7} {:>8} {:>7}  host: {:>11} {:>11} {:>13} {:>11}  paths\n",
            self.ranks,
            self.transport,
            if self.gpus == 1 { "one".to_owned() } else { self.gpus.to_string() },
            self.gpu,
            crate::gpus::meter::BLOCKS,
            HOST_BARS[0],
            HOST_BARS[1],
            super::IN_GRAPH,
            "a rank, 8 bytes a cell",
            "MB cross",
            "inline",
            "overlapped",
            "NCCL",
            "in graph",
            "of it",
            "of grph",
            "stores",
            "of it",
            "inline",
            "overlapped",
            "NCCL",
            "in graph",
        )
    }

    /// The columns of sizes.
    pub(super) fn head_of_sizes(&self) -> String {
        format!(
            "\nbytes each way between neighbours, all at once, in one piece, which NCCL sends and receives without packing; us an exchange in a row\n{:>10} {:>9} {:>11} {:>9} {:>9} {:>13} {:>12}  paths\n",
            "bytes", "inline", "overlapped", "NCCL", "in graph", "plain stores", "copy engine"
        )
    }

    /// The whole as one JSON object.
    pub(super) fn to_json(&self) -> String {
        let nccl = match &self.nccl {
            Ok((major, minor, patch)) => json!({ "version": format!("{major}.{minor}.{patch}") }),
            Err(why) => json!({ "missing": why }),
        };
        let whole = json!({
            "what": "rows",
            "gpu": self.gpu,
            "gpus": self.gpus,
            "ranks": self.ranks,
            "transport": self.transport,
            "nccl": nccl,
            "in_graph": super::IN_GRAPH,
            "host_bars_us": HOST_BARS,
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "sizes": self.sizes.iter().map(Size::to_json).collect::<Vec<_>>(),
        });
        format!("{whole:#}\n")
    }
}

/// What is there, by method.
fn by_method<T: Copy>(values: &[Option<T>; 4], value: impl Fn(T) -> Value) -> serde_json::Map<String, Value> {
    let found = METHODS
        .iter()
        .zip(values)
        .filter_map(|(method, found)| Some(((*method).to_owned(), value((*found)?))));
    found.collect()
}

impl Row {
    /// A line of the table.
    pub(super) fn line(&self) -> String {
        let with_bar = |at: usize| {
            let bar = self.bars[at].map_or_else(String::new, |bar| format!(" ({bar})"));
            format!("{}{bar}", figure(self.us[at]))
        };
        let host = |at: usize| {
            self.host[at].map_or_else(|| "-".to_owned(), |[first, later]| format!("{first:.1} ({later:.1})"))
        };
        format!(
            "{:<34} {:>8.3} {:>13} {:>13} {:>9} {:>9} {:>7} {:>7} {:>8} {:>7}        {:>11} {:>11} {:>13} {:>11}  {}\n",
            self.name,
            self.bytes[0] as f64 / 1e6,
            with_bar(0),
            with_bar(1),
            figure(self.us[2]),
            figure(self.us[3]),
            ratio(self.us[0], self.us[2]),
            ratio(self.us[0], self.us[3]),
            figure(self.stores),
            ratio(self.stores, self.us[0]),
            host(0),
            host(1),
            host(2),
            host(3),
            self.paths,
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "crossing_bytes": self.bytes[0],
            "local_bytes": self.bytes[1],
            "way": self.paths,
            "us": by_method(&self.us, Value::from),
            "bars_us": { "inline": self.bars[0], "overlapped": self.bars[1] },
            "host_us": by_method(&self.host, |[first, later]| json!({ "first": first, "later": later })),
            "stores_us": self.stores,
        })
    }
}

impl Size {
    /// A line of the table.
    pub(super) fn line(&self) -> String {
        let [inline, overlapped, eager, graph] = self.us.map(figure);
        let bytes = self.bytes;
        let (stores, copy) = (figure(Some(self.stores)), figure(Some(self.copy)));
        format!(
            "{bytes:>10} {inline:>9} {overlapped:>11} {eager:>9} {graph:>9} {stores:>13} {copy:>12}  {}\n",
            self.paths
        )
    }

    fn to_json(&self) -> Value {
        let mut us = by_method(&self.us, Value::from);
        us.insert("stores".to_owned(), self.stores.into());
        us.insert("copy_engine".to_owned(), self.copy.into());
        json!({ "bytes": self.bytes, "way": self.paths, "us": us })
    }
}
