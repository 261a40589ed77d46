//! Times over sizes of messages, as lines: both scales are logarithmic.

use super::{Area, Drawn, FAINT, INK, Picture, text};
use crate::info::binary_size;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const SIZE: (u32, u32) = (1100, 660);
/// Edges of the chart in the picture.
const LEFT: i32 = 90;
const RIGHT: i32 = SIZE.0 as i32 - 40;
const TOP: i32 = 118;
const BOTTOM: i32 = SIZE.1 as i32 - 78;
/// Space for the names of lines, in pixels.
const LEGEND: i32 = 210;

/// Colours of lines that stand beside each other.
const COLOURS: [RGBColor; 6] = [
    RGBColor(61, 107, 168),
    RGBColor(201, 90, 60),
    RGBColor(80, 145, 90),
    RGBColor(140, 95, 160),
    RGBColor(190, 150, 40),
    RGBColor(90, 90, 100),
];

/// A line: bytes and microseconds, both above 0.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The picture.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) below: String,
    pub(crate) lines: Vec<Line>,
}

impl Picture for Chart {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        text(area, &self.title, (LEFT, 32), 22.0, HPos::Left)?;
        text(area, &self.below, (LEFT, 62), 15.0, HPos::Left)?;
        let points = || self.lines.iter().flat_map(|line| &line.points).copied();
        let (first, last) = points()
            .fold((f64::INFINITY, 1.0), |(least, most), (bytes, _)| (bytes.min(least), bytes.max(most)));
        let low = points().map(|(_, us)| us).fold(f64::INFINITY, f64::min).log10().floor();
        let high = points().map(|(_, us)| us).fold(0.0, f64::max).log10().ceil();
        let across = f64::from(RIGHT - LEGEND - 40 - LEFT) / (last / first).log2().max(1.0);
        let x = |bytes: f64| LEFT + ((bytes / first).log2() * across).round() as i32;
        let y = |us: f64| {
            BOTTOM - ((us.log10() - low) / (high - low).max(1.0) * f64::from(BOTTOM - TOP)).round() as i32
        };

        text(area, "us", (LEFT - 8, TOP - 18), 15.0, HPos::Right)?;
        for decade in low as i32..=high as i32 {
            let value = 10f64.powi(decade);
            area.draw(&PathElement::new([(LEFT, y(value)), (x(last), y(value))], FAINT.stroke_width(1)))?;
            text(area, &value.to_string(), (LEFT - 8, y(value)), 14.0, HPos::Right)?;
        }
        for size in
            std::iter::successors(Some(first), |size| Some(size * 8.0)).take_while(|&size| size <= last)
        {
            area.draw(&PathElement::new([(x(size), BOTTOM), (x(size), BOTTOM + 5)], INK.stroke_width(1)))?;
            text(area, &binary_size(size as u64), (x(size), BOTTOM + 20), 14.0, HPos::Center)?;
        }
        text(area, "bytes each way", ((LEFT + x(last)) / 2, BOTTOM + 48), 15.0, HPos::Center)?;
        for ((at, line), colour) in (0..).zip(&self.lines).zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            let places: Vec<(i32, i32)> = line.points.iter().map(|&(bytes, us)| (x(bytes), y(us))).collect();
            area.draw(&PathElement::new(places, style))?;
            let legend = TOP + 26 * at;
            area.draw(&PathElement::new([(RIGHT - 225, legend), (RIGHT - 195, legend)], style))?;
            text(area, &line.name, (RIGHT - 187, legend), 15.0, HPos::Left)?;
        }
        area.draw(&Rectangle::new([(LEFT, TOP), (x(last), BOTTOM)], INK.stroke_width(1)))
    }
}
