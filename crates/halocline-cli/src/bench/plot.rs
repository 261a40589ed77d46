//! The pictures of benchmarks.

use super::error::BenchError;
use super::halo::{Outcome, Row};
use super::latency::{Point, Series};
use crate::plot::chart::{COLOURS, Chart, Line, number};
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
/// Draws the outcome of `bench halo`.
pub(super) fn halo(path: &Path, outcome: &Outcome) -> Result<(), BenchError> {
    Ok(save(path, outcome)?)
}

/// Draws the outcome of `bench latency`.
pub(super) fn latency(path: &Path, series: &[Series]) -> Result<(), BenchError> {
    Ok(save(path, &chart(series))?)
}

impl Picture for Outcome {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        draw_halo(area, self)
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
        text(area, &row.path, (centre, BOTTOM + 42), 13.0, HPos::Center)?;
        if !row.path.is_empty() {
            let note = format!("{:.2} of the {}", row.ratio(rows[0]), rows[0].name);
            text(area, &note, (centre, BOTTOM + 60), 13.0, HPos::Center)?;
        }
    }
    area.draw(&PathElement::new([(LEFT, BOTTOM), (RIGHT, BOTTOM)], INK.stroke_width(1)))
}

/// Messages and exchanges of each transport, and the round trips of a cache line in the same run.
fn chart(series: &[Series]) -> Chart {
    let trips: Vec<String> = series
        .iter()
        .filter_map(|one| Some(format!("{} {:.0} ns", one.transport, one.round_trip?)))
        .collect();
    let mut lines = Vec::new();
    for (one, colour) in series.iter().zip(COLOURS.into_iter().cycle()) {
        let of = |time: fn(&Point) -> f64| -> Vec<(f64, f64)> {
            one.points.iter().map(|point| (point.bytes as f64, time(point))).collect()
        };
        let line = |name: &str, width, points| Line {
            name: format!("{}, {name}", one.transport),
            style: colour.stroke_width(width),
            points,
        };
        lines.push(line("exchange", 3, of(|point| point.exchange)));
        lines.push(line("message there and back", 1, of(|point| point.message)));
    }
    let sizes = || series.iter().flat_map(|one| &one.points).map(|point| point.bytes as f64);
    // The first one; the others stand in the text.
    if let Some(floor) = series.iter().find_map(|one| Some(one.round_trip? / 1e3)) {
        let ends = [sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max)];
        lines.push(Line {
            name: "cache line there and back".to_owned(),
            style: INK.mix(0.5).stroke_width(1),
            points: ends.map(|bytes| (bytes, floor)).to_vec(),
        });
    }
    Chart {
        title: "Two ranks: messages and exchanges over sizes".to_owned(),
        below: format!(
            "Median times in steady state; round trip of a cache line in the same run: {}",
            trips.join(", ")
        ),
        lines,
    }
}
