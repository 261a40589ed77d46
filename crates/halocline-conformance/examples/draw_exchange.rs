//! Draws one scheduled exchange between two ranks from the trace of a simulated run, as SVG on standard output.
//!
//! `tools/draw-exchange` writes `docs/pictures/scheduled.svg` with it.

use halocline::BindOptions;
use halocline::device::sim::{Kernel, Options, Span, Timeline, Word, World, record};
use halocline::device::{MemorySpace, Priority};
use halocline_conformance::device_fixtures::{DeviceFixture, Kernels, devices};
use halocline_conformance::simulated::{options, run_ranks};
use std::sync::{Mutex, PoisonError};

/// Handles of simulated streams count from here.
const STREAMS: usize = 0x10_0000;
const GAP: usize = 10;
const LEFT: usize = 150;
const TOP: usize = 64;
const ROW: usize = 62;
const BOX: usize = 30;

/// Two ranks on one device: update, exchange beside interior work, boundary work. Twice, so that the second shows the
/// steady state. What comes back: the user's stream of each rank, and when its second update began.
fn play(seed: u64) -> (Timeline, [String; 2]) {
    let streams: Mutex<[String; 2]> = Mutex::default();
    let run = record(seed, &Options { devices: 1, ..options() }, |world: &World| {
        run_ranks(world, 2, |comm| {
            let device = &devices(world, 1)?[0];
            let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
            let stream = device.stream(Priority::Normal)?;
            let name = format!("stream {} of device 0", stream.raw().0 - STREAMS);
            streams.lock().unwrap_or_else(PoisonError::into_inner)[comm.rank()] = name;
            for step in 1..=2 {
                fixture.produce(world, &[0], &stream, step)?;
                let pending = halo.schedule_exchange(&[&stream])?;
                world.read_owned(&fixture.pieces[0][0], &stream)?;
                pending.schedule_wait(&stream)?;
                fixture.consume(world, &[0], &stream, step)?;
                world.launch(&stream, Kernel::new("-"))?;
            }
            Ok(stream.synchronise()?)
        });
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
    (run.timeline, streams.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The name of a flag, by its offset among the flags of one peer.
fn name(word: &Word) -> Option<&'static str> {
    Some(match (word.space, word.offset) {
        (MemorySpace::Host, 0) => return None,
        (MemorySpace::Host, 128) => "done",
        (MemorySpace::Host, _) => return None,
        (_, 0) => return None,
        (_, 128) => "granted",
        _ => "arrived",
    })
}

struct Drawn {
    number: usize,
    row: usize,
    label: String,
    class: &'static str,
}

fn label(span: &Span) -> Option<(String, &'static str)> {
    let word = span.word.as_ref();
    Some(match span.operation.what {
        "produce" => ("update".to_owned(), "kernel"),
        "interior" => ("interior".to_owned(), "kernel"),
        "consume" => ("boundary".to_owned(), "kernel"),
        "copies" => ("copy into peer’s halo".to_owned(), "copy"),
        "event record" => ("event".to_owned(), "event"),
        "wait for an event" => ("wait event".to_owned(), "wait"),
        "wait for a flag" => (format!("wait {}", name(word?)?), "wait"),
        "write of a flag" | "raise of a flag" => {
            let (name, value) = (name(word?)?, word?.value);
            (format!("{name} = {value}"), if name == "done" { "done" } else { "word" })
        }
        _ => return None,
    })
}

fn main() {
    let (timeline, streams) = play(2);
    let row_of = |task: &str| -> Option<usize> {
        let stream = task.rsplit(" on ").next().unwrap_or(task);
        let user = streams.iter().position(|user| user == stream);
        user.map(|rank| 2 * rank).or_else(|| internal(&timeline, &streams, stream).map(|rank| 2 * rank + 1))
    };
    // Of each rank, from its second update on.
    let updates = |rank: usize| {
        let spans = timeline.spans.iter().filter(move |span| span.operation.what == "produce");
        spans.filter(|span| span.operation.task == streams[rank]).nth(1).map_or(u64::MAX, |span| span.begin)
    };
    let from = [updates(0), updates(1)];
    let drawn: Vec<Drawn> = timeline
        .spans
        .iter()
        .enumerate()
        .filter_map(|(number, span)| {
            let row = row_of(&span.operation.task).filter(|row| span.begin >= from[row / 2])?;
            let (label, class) = label(span)?;
            Some(Drawn { number, row, label, class })
        })
        .collect();
    let find = |number: usize| drawn.iter().position(|d| d.number == number);
    // In the order of the run: each after what comes before it in its row, and after what it waits for.
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut ends = [LEFT; 4];
    for d in &drawn {
        let awaited = timeline.arrows.iter().filter(|arrow| arrow.to == d.number);
        let awaited = awaited.filter_map(|arrow| places.get(find(arrow.from)?)).map(|(x, width)| x + width);
        let begin = awaited.max().unwrap_or(0).max(ends[d.row]) + GAP;
        let width = 7 * d.label.chars().count() + 12;
        ends[d.row] = begin + width;
        places.push((begin, width));
    }
    let width = ends.iter().max().copied().unwrap_or(0) + 20;
    println!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">",
        TOP + 4 * ROW + 130
    );
    println!(
        "<style>.kernel{{fill:#cfe3f7}}.copy{{fill:#f7d9a8}}.event{{fill:#d8d8d8}}.wait{{fill:#fff;\
         stroke-dasharray:3 2}}.word{{fill:#f3b7b0}}.done{{fill:#c8e8c4}}rect{{stroke:#444}}\
         .byevent{{stroke:#555;fill:none}}.byword{{stroke:#c0392b;fill:none}}</style>"
    );
    println!("<rect width=\"100%\" height=\"100%\" fill=\"#fff\" stroke=\"none\"/>");
    println!("<text x=\"10\" y=\"24\" font-size=\"16\">One scheduled exchange between two ranks</text>");
    println!(
        "<text x=\"10\" y=\"44\">the order of a simulated run; each row is a stream; a box stands to the right of everything that it waits for</text>"
    );
    for (row, text) in ["rank 0: the user’s", "rank 0: internal", "rank 1: the user’s", "rank 1: internal"]
        .iter()
        .enumerate()
    {
        let y = TOP + row * ROW + BOX / 2;
        println!("<text x=\"10\" y=\"{}\">{text}</text>", y + 4);
        println!("<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ccc\"/>", width - 10);
    }
    for (d, &(x, width)) in drawn.iter().zip(&places) {
        let y = TOP + d.row * ROW;
        println!(
            "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX}\" rx=\"3\"/>",
            d.class
        );
        println!("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x + width / 2, y + 19, d.label);
    }
    for arrow in &timeline.arrows {
        let (Some(from), Some(to)) = (find(arrow.from), find(arrow.to)) else { continue };
        let (a, b) = (drawn[from].row, drawn[to].row);
        if a == b {
            continue;
        }
        let (x1, x2) = (places[from].0 + places[from].1 - 6, places[to].0 + 8);
        let side = |row: usize, other: usize| TOP + row * ROW + if other > row { BOX } else { 0 };
        let class = if arrow.by_word { "byword" } else { "byevent" };
        let (y1, y2) = (side(a, b), side(b, a));
        let middle = (y1 + y2) / 2;
        println!("<path class=\"{class}\" d=\"M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}\"/>");
        println!("<circle cx=\"{x2}\" cy=\"{y2}\" r=\"3\"/>");
    }
    let lines = [
        "grey: events order the internal stream and the user’s stream; red: flags, set by one rank and polled by the other",
        "granted = 2: the peer may write my halo for exchange 2; set after all earlier work of the user’s stream",
        "arrived = 2: the bytes of exchange 2 are in the peer’s halo; set by the copy; the interior runs beside all this",
        "schedule_exchange gives everything but the last “wait event”, which schedule_wait gives; is_ready() and wait() read done = 2",
    ];
    for (at, line) in lines.iter().enumerate() {
        println!("<text x=\"10\" y=\"{}\">{line}</text>", TOP + 4 * ROW + 20 + 22 * at);
    }
    println!("</svg>");
}

/// The rank whose user's stream a stream is tied to.
fn internal(timeline: &Timeline, streams: &[String; 2], stream: &str) -> Option<usize> {
    let who = |number: usize| timeline.spans[number].operation.task.as_str();
    timeline
        .arrows
        .iter()
        .filter(|arrow| !arrow.by_word && who(arrow.to) == stream)
        .find_map(|arrow| streams.iter().position(|user| user == who(arrow.from)))
}
