//! The picture of a run: values and results over the key, and the borders of the ranks.

use super::axis::{Tick, numbers, times};
use crate::plot::{Area, Drawn, FAINT, INK, Picture, text};
use halocline::{CommError, Communicator, Reduce};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const SIZE: (u32, u32) = (1100, 640);
/// Edges of the chart in the picture.
const LEFT: i32 = 80;
const RIGHT: i32 = LEFT + WIDTH as i32;
const TOP: i32 = 132;
const BOTTOM: i32 = SIZE.1 as i32 - 76;
/// Pixels from the first key to the last.
const WIDTH: usize = 980;

const VALUES: RGBColor = RGBColor(150, 180, 215);
const RESULTS: RGBColor = RGBColor(201, 90, 60);
/// Behind every second rank.
const BAND: RGBColor = RGBColor(245, 245, 247);
const BORDER: RGBColor = RGBColor(120, 120, 130);

/// The least and the largest number in each column of pixels, over all ranks; infinite where there is none.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Envelope {
    pub(super) fn new() -> Self {
        Self { low: vec![f64::INFINITY; WIDTH + 1], high: vec![f64::NEG_INFINITY; WIDTH + 1] }
    }

    /// Adds a number at a key. Numbers that are not finite are not drawn.
    pub(super) fn add(&mut self, range: [f64; 2], key: f64, number: f64) {
        let [first, last] = range;
        let share = (key - first) / (last - first).max(f64::MIN_POSITIVE);
        let column = (share * WIDTH as f64).round().clamp(0.0, WIDTH as f64) as usize;
        if number.is_finite() {
            self.low[column] = self.low[column].min(number);
            self.high[column] = self.high[column].max(number);
        }
    }

    /// That of all ranks. Collective.
    pub(super) fn of_all(self, comm: &Communicator) -> Result<Self, CommError> {
        Ok(Self {
            low: comm.all_reduce(self.low, Reduce::Min)?,
            high: comm.all_reduce(self.high, Reduce::Max)?,
        })
    }

    /// The columns that have numbers, with both ends.
    fn columns(&self) -> impl Iterator<Item = (i32, [f64; 2])> {
        let ends = self.low.iter().zip(&self.high).map(|(&low, &high)| [low, high]);
        (0..).zip(ends).filter(|(_, [low, high])| low <= high)
    }
}

/// The picture.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) below: String,
    /// Names of the key, the values and the results.
    pub(super) by: String,
    pub(super) value: String,
    pub(super) result: String,
    pub(super) is_time: bool,
    /// The first key and the last.
    pub(super) range: [f64; 2],
    /// The first key of each rank; infinite if it has no rows.
    pub(super) firsts: Vec<f64>,
    pub(super) values: Envelope,
    pub(super) results: Envelope,
}

/// A rank with rows.
struct Band {
    rank: usize,
    left: i32,
    right: i32,
}

impl Plot {
    fn x(&self, key: f64) -> i32 {
        let [first, last] = self.range;
        LEFT + ((key - first) / (last - first).max(f64::MIN_POSITIVE) * WIDTH as f64).round() as i32
    }

    /// Where the rows of each rank lie.
    fn bands(&self) -> Vec<Band> {
        let present: Vec<(usize, i32)> = (0..)
            .zip(&self.firsts)
            .filter(|(_, first)| first.is_finite())
            .map(|(rank, &first)| (rank, self.x(first)))
            .collect();
        let rights = present.iter().skip(1).map(|&(_, left)| left).chain([RIGHT]);
        present.iter().zip(rights).map(|(&(rank, left), right)| Band { rank, left, right }).collect()
    }

    fn draw_ranks<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        for (at, Band { rank, left, right }) in self.bands().into_iter().enumerate() {
            if at % 2 == 1 {
                area.draw(&Rectangle::new([(left, TOP), (right, BOTTOM)], BAND.filled()))?;
            }
            for y in (TOP - 22..BOTTOM).step_by(10).filter(|_| at > 0) {
                area.draw(&PathElement::new(
                    [(left, y), (left, (y + 5).min(BOTTOM))],
                    BORDER.stroke_width(1),
                ))?;
            }
            let name = format!("rank {rank}");
            if right - left > 8 * name.len() as i32 {
                text(area, &name, ((left + right) / 2, TOP - 12), 14.0, HPos::Center)?;
            }
        }
        Ok(())
    }

    /// A line through both ends of each column, the nearer one first.
    fn draw_line<B: DrawingBackend>(
        area: &Area<B>,
        line: &Envelope,
        y: impl Fn(f64) -> i32,
        style: ShapeStyle,
    ) -> Drawn<B> {
        let mut places: Vec<(i32, i32)> = Vec::new();
        for (column, ends) in line.columns() {
            let mut ends = ends.map(&y);
            if places.last().is_some_and(|&(_, before)| ends[1].abs_diff(before) < ends[0].abs_diff(before)) {
                ends.reverse();
            }
            places.extend(ends.map(|end| (LEFT + column, end)));
        }
        places.dedup();
        area.draw(&PathElement::new(places, style))
    }
}

impl Picture for Plot {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        text(area, &self.title, (LEFT, 30), 22.0, HPos::Left)?;
        text(area, &self.below, (LEFT, 58), 15.0, HPos::Left)?;
        self.draw_ranks(area)?;
        let ends =
            |[low, high]: [f64; 2], (_, [least, most]): (i32, [f64; 2])| [low.min(least), high.max(most)];
        let all = self.values.columns().chain(self.results.columns());
        let [low, high] = all.fold([f64::INFINITY, f64::NEG_INFINITY], ends);
        // Without a finite number an empty chart.
        let [low, high] = if low <= high { [low, high] } else { [0.0, 1.0] };
        let room = ((high - low) * 0.05).max(high.abs() * 1e-6).max(f64::MIN_POSITIVE);
        let [low, high] = [low - room, high + room];
        let y = |value: f64| BOTTOM - ((value - low) / (high - low) * f64::from(BOTTOM - TOP)).round() as i32;
        for Tick { at, text: number } in numbers([low, high], 6) {
            area.draw(&PathElement::new([(LEFT, y(at)), (RIGHT, y(at))], FAINT.stroke_width(1)))?;
            text(area, &number, (LEFT - 8, y(at)), 14.0, HPos::Right)?;
        }
        let ticks = if self.is_time { times(self.range, 8) } else { numbers(self.range, 8) };
        for Tick { at, text: name } in ticks {
            let x = self.x(at);
            area.draw(&PathElement::new([(x, BOTTOM), (x, BOTTOM + 5)], INK.stroke_width(1)))?;
            text(area, &name, (x, BOTTOM + 18), 14.0, HPos::Center)?;
        }
        text(area, &self.by, ((LEFT + RIGHT) / 2, BOTTOM + 46), 15.0, HPos::Center)?;
        let lines = [
            (&self.values, VALUES.stroke_width(1), &self.value),
            (&self.results, RESULTS.stroke_width(2), &self.result),
        ];
        let mut legend = LEFT;
        for (line, style, name) in lines {
            Self::draw_line(area, line, y, style)?;
            area.draw(&PathElement::new([(legend, 86), (legend + 30, 86)], style))?;
            text(area, name, (legend + 38, 86), 15.0, HPos::Left)?;
            legend += 38 + 9 * name.chars().count() as i32 + 30;
        }
        area.draw(&Rectangle::new([(LEFT, TOP), (RIGHT, BOTTOM)], INK.stroke_width(1)))
    }
}
