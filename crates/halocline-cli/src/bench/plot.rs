//! The pictures of benchmarks.

use super::error::BenchError;
use super::halo::{Outcome, Row};
use super::latency::Series;
use crate::plot::{Area, Drawn, FAINT, INK, Picture, round_step, save, text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::path::Path;

const SIZE: (u32, u32) = (1100, 660);
const NEAR: RGBColor = RGBColor(20, 20, 25);
const FAR: RGBColor = RGBColor(255, 255, 255);
/// Begin, wait, read.
const PHASES: [(&str, RGBColor); 3] = [
    ("begin", RGBColor(61, 107, 168)),
    ("wait", RGBColor(236, 166, 84)),
    ("read the halo", RGBColor(118, 174, 126)),
];
/// All of an exchange.
const IN_A_ROW: [(&str, RGBColor); 1] = [("one after the other on a stream", PHASES[0].1)];
const LINES: [RGBColor; 4] =
    [RGBColor(61, 107, 168), RGBColor(201, 90, 60), RGBColor(80, 145, 90), RGBColor(140, 95, 160)];

/// Draws the outcome of `bench halo`.
pub(super) fn halo(path: &Path, outcome: &Outcome) -> Result<(), BenchError> {
    Ok(save(path, outcome)?)
}

/// Draws the outcome of `bench latency`.
pub(super) fn latency(path: &Path, series: &[Series]) -> Result<(), BenchError> {
    Ok(save(path, &Latencies(series))?)
}

impl Picture for Outcome {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        draw_halo(area, self)
    }
}

struct Latencies<'a>(&'a [Series]);

impl Picture for Latencies<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        draw_latency(area, self.0)
    }
}

/// Where a chart lies in the picture.
const LEFT: i32 = 90;
const RIGHT: i32 = SIZE.0 as i32 - 40;
const TOP: i32 = 118;
const BOTTOM: i32 = SIZE.1 as i32 - 78;

fn draw_halo<B: DrawingBackend>(area: &Area<B>, outcome: &Outcome) -> Drawn<B> {
    let rows: Vec<&Row> = outcome.rows.iter().collect();
    let highest = rows.iter().flat_map(|row| &row.blocks).map(|block| block.total).fold(0.0, f64::max);
    let step = round_step(highest / 5.0);
    let top = (highest / step).ceil().max(1.0) * step;
    let y = |value: f64| BOTTOM - (value / top * f64::from(BOTTOM - TOP)).round() as i32;

    let of_device = outcome.gpu.is_some();
    let what = if of_device { "Exchange on GPUs" } else { "Exchange and reading the halo" };
    let title = format!("{what}: {}", outcome.title);
    text(area, &title, (LEFT, 32), 22.0, HPos::Left)?;
    let below = format!(
        "{} ranks ({}), {} memory, {} iterations a round; bars: medians; a dot each round (black: cores near, white: far)",
        outcome.ranks, outcome.transport, outcome.memory, outcome.iterations
    );
    text(area, &below, (LEFT, 62), 15.0, HPos::Left)?;
    let mut x = LEFT;
    // Of exchanges in a row on a stream nobody sees phases.
    for &(name, colour) in if of_device { &IN_A_ROW[..] } else { &PHASES } {
        area.draw(&Rectangle::new([(x, 82), (x + 14, 96)], colour.filled()))?;
        text(area, name, (x + 20, 89), 14.0, HPos::Left)?;
        x += 40 + 8 * name.len() as i32;
    }
    text(area, "us", (LEFT - 8, TOP - 18), 15.0, HPos::Right)?;
    for tick in 0..=(top / step).round() as i32 {
        let value = f64::from(tick) * step;
        area.draw(&PathElement::new([(LEFT, y(value)), (RIGHT, y(value))], FAINT.stroke_width(1)))?;
        text(area, &number(value), (LEFT - 8, y(value)), 14.0, HPos::Right)?;
    }
    let slot = (RIGHT - LEFT) / rows.len().max(1) as i32;
    for (at, row) in (0..).zip(&rows) {
        let centre = LEFT + slot * at + slot / 2;
        let half = (slot / 4).min(60);
        let phases = match of_device {
            true => [row.median(|b| b.total), 0.0, 0.0],
            false => [row.median(|b| b.begin), row.median(|b| b.wait), row.median(|b| b.read)],
        };
        // Medians of parts need not add up to the median of the whole; the bar's height is the whole.
        let scale = row.median(|b| b.total) / phases.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mut low = 0.0;
        for (phase, (_, colour)) in phases.into_iter().zip(PHASES) {
            let high = low + phase * scale;
            area.draw(&Rectangle::new([(centre - half, y(high)), (centre + half, y(low))], colour.filled()))?;
            low = high;
        }
        text(area, &number(low), (centre - half, y(low) - 12), 16.0, HPos::Left)?;
        for (round, block) in (0..).zip(&row.blocks) {
            let spread = (2 * half - 16) * round / row.blocks.len().max(2) as i32;
            let place = (centre - half + 8 + spread, y(block.total));
            let colour = if block.stamp.is_some_and(|stamp| stamp.is_near()) { NEAR } else { FAR };
            area.draw(&Circle::new(place, 4, colour.filled()))?;
            area.draw(&Circle::new(place, 4, INK.stroke_width(1)))?;
        }
        text(area, &row.name, (centre, BOTTOM + 20), 16.0, HPos::Center)?;
        text(area, &row.way, (centre, BOTTOM + 42), 13.0, HPos::Center)?;
        if !row.way.is_empty() {
            let note = format!("{:.2} of the {}", row.ratio(rows[0]), rows[0].name);
            text(area, &note, (centre, BOTTOM + 60), 13.0, HPos::Center)?;
        }
    }
    area.draw(&PathElement::new([(LEFT, BOTTOM), (RIGHT, BOTTOM)], INK.stroke_width(1)))
}

fn draw_latency<B: DrawingBackend>(area: &Area<B>, series: &[Series]) -> Drawn<B> {
    text(area, "Two ranks: messages and exchanges over sizes", (LEFT, 32), 22.0, HPos::Left)?;
    let trips: Vec<String> = series
        .iter()
        .filter_map(|one| Some(format!("{} {:.0} ns", one.transport, one.round_trip?)))
        .collect();
    let below = format!(
        "Median times in steady state; round trip of a cache line in the same run: {}",
        trips.join(", ")
    );
    text(area, &below, (LEFT, 62), 15.0, HPos::Left)?;

    let points = || series.iter().flat_map(|one| &one.points);
    let times = || points().flat_map(|point| [point.message, point.exchange]).chain(floors(series));
    let sizes = |by: fn(f64, f64) -> f64, start| points().map(|p| p.bytes as f64).fold(start, by);
    let (first, last) = (sizes(f64::min, f64::INFINITY), sizes(f64::max, 1.0));
    let low = times().fold(f64::INFINITY, f64::min).log10().floor();
    let high = times().fold(0.0, f64::max).log10().ceil();
    let across = f64::from(RIGHT - 250 - LEFT) / (last / first).log2().max(1.0);
    let x = |bytes: f64| LEFT + ((bytes / first).log2() * across).round() as i32;
    let y = |us: f64| {
        BOTTOM - ((us.log10() - low) / (high - low).max(1.0) * f64::from(BOTTOM - TOP)).round() as i32
    };

    text(area, "us", (LEFT - 8, TOP - 18), 15.0, HPos::Right)?;
    for decade in low as i32..=high as i32 {
        let value = 10f64.powi(decade);
        area.draw(&PathElement::new([(LEFT, y(value)), (x(last), y(value))], FAINT.stroke_width(1)))?;
        text(area, &number(value), (LEFT - 8, y(value)), 14.0, HPos::Right)?;
    }
    for size in std::iter::successors(Some(first), |size| Some(size * 8.0)).take_while(|&size| size <= last) {
        area.draw(&PathElement::new([(x(size), BOTTOM), (x(size), BOTTOM + 5)], INK.stroke_width(1)))?;
        text(area, &bytes(size as u64), (x(size), BOTTOM + 20), 14.0, HPos::Center)?;
    }
    text(area, "bytes each way", ((LEFT + x(last)) / 2, BOTTOM + 48), 15.0, HPos::Center)?;
    let mut legend = TOP;
    let mut entry = |name: String, style: ShapeStyle| -> Drawn<B> {
        area.draw(&PathElement::new([(RIGHT - 225, legend), (RIGHT - 195, legend)], style))?;
        text(area, &name, (RIGHT - 187, legend), 15.0, HPos::Left)?;
        legend += 26;
        Ok(())
    };
    for (one, colour) in series.iter().zip(LINES.into_iter().cycle()) {
        let line = |of: fn(&super::latency::Point) -> f64| -> Vec<(i32, i32)> {
            one.points.iter().map(|point| (x(point.bytes as f64), y(of(point)))).collect()
        };
        area.draw(&PathElement::new(line(|p| p.exchange), colour.stroke_width(3)))?;
        entry(format!("{}, exchange", one.transport), colour.stroke_width(3))?;
        area.draw(&PathElement::new(line(|p| p.message), colour.stroke_width(1)))?;
        entry(format!("{}, message there and back", one.transport), colour.stroke_width(1))?;
    }
    for floor in floors(series).take(1) {
        let style = INK.mix(0.5).stroke_width(1);
        area.draw(&PathElement::new([(LEFT, y(floor)), (x(last), y(floor))], style))?;
        entry("cache line there and back".to_owned(), style)?;
    }
    area.draw(&Rectangle::new([(LEFT, TOP), (x(last), BOTTOM)], INK.stroke_width(1)))
}

/// Round trips of a cache line, us.
fn floors(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().filter_map(|one| Some(one.round_trip? / 1e3))
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.1 => format!("{value:.2}"),
        value if value < 10.0 => format!("{:.1}", value).trim_end_matches(".0").to_owned(),
        value => format!("{value:.0}"),
    }
}

fn bytes(count: u64) -> String {
    match count {
        count if count >= 1 << 20 => format!("{} MiB", count >> 20),
        count if count >= 1 << 10 => format!("{} KiB", count >> 10),
        count => count.to_string(),
    }
}
