//! The picture of a run: values and results over the key, and the borders of the ranks.

use super::axis::{Axis, Tick, numbers};
use crate::plot::{Area, Drawn, FAINT, INK, Picture, text};
use halocline::{CommError, Communicator, Reduce};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const SIZE: (u32, u32) = (1100, 640);
/// Edges of the chart in the picture.
const LEFT: i32 = 110;
const RIGHT: i32 = LEFT + WIDTH as i32;
const TOP: i32 = 132;
const BOTTOM: i32 = SIZE.1 as i32 - 76;
/// Pixels from the first key to the last.
const WIDTH: usize = 950;

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
    /// 1 where a number is missing.
    missing: Vec<u8>,
}

/// Columns of pixels without a missing number between them: each with its lowest and its highest number.
type Segment = Vec<(i32, [f64; 2])>;

impl Envelope {
    pub(super) fn new() -> Self {
        let columns = WIDTH + 1;
        Self {
            low: vec![f64::INFINITY; columns],
            high: vec![f64::NEG_INFINITY; columns],
            missing: vec![0; columns],
        }
    }

    /// Adds a number at a share of the width, from 0 to 1. Numbers that are not finite are missing.
    pub(super) fn add(&mut self, share: f64, number: Option<f64>) {
        let column = (share * WIDTH as f64).round().clamp(0.0, WIDTH as f64) as usize;
        match number.filter(|number| number.is_finite()) {
            Some(number) => {
                self.low[column] = self.low[column].min(number);
                self.high[column] = self.high[column].max(number);
            }
            None => self.missing[column] = 1,
        }
    }

    /// That of all ranks. Collective.
    pub(super) fn of_all(self, comm: &Communicator) -> Result<Self, CommError> {
        Ok(Self {
            low: comm.all_reduce(self.low, Reduce::Min)?,
            high: comm.all_reduce(self.high, Reduce::Max)?,
            missing: comm.all_reduce(self.missing, Reduce::Max)?,
        })
    }

    /// The columns that have numbers, with both ends.
    fn columns(&self) -> impl Iterator<Item = (i32, [f64; 2])> {
        self.segments().into_iter().flatten()
    }

    /// Its parts: a column with missing numbers alone ends one.
    fn segments(&self) -> Vec<Segment> {
        let mut segments = vec![Segment::new()];
        for (column, ((&low, &high), &missing)) in
            (0..).zip(self.low.iter().zip(&self.high).zip(&self.missing))
        {
            match segments.last_mut() {
                Some(segment) if low <= high => segment.push((column, [low, high])),
                Some(segment) if missing > 0 && !segment.is_empty() => segments.push(Segment::new()),
                _ => {}
            }
        }
        segments.retain(|segment| !segment.is_empty());
        segments
    }
}

/// Where a number lies from the lower end to the upper one, from 0 to 1.
fn share(number: f64, [low, high]: [f64; 2]) -> f64 {
    // Halves: the differences may lie beyond the type.
    if low < high { (number / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) } else { 0.5 }
}

/// A range with a margin at both ends, also if all numbers are equal.
fn with_margin([low, high]: [f64; 2]) -> [f64; 2] {
    let margin = match high / 2.0 - low / 2.0 {
        half if half > 0.0 => half * 0.1,
        _ if high != 0.0 => high.abs() * 0.05,
        _ => 1.0,
    };
    [(low - margin).max(f64::MIN), (high + margin).min(f64::MAX)]
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
    pub(super) axis: Axis,
    /// The first key of each rank, if it has rows.
    pub(super) firsts: Vec<Option<i128>>,
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
    fn x(share: f64) -> i32 {
        LEFT + (share * WIDTH as f64).round() as i32
    }

    /// Where the rows of each rank lie.
    fn bands(&self) -> Vec<Band> {
        let left = |(rank, first): (usize, &Option<i128>)| Some((rank, Self::x(self.axis.share((*first)?))));
        let mut present: Vec<(usize, i32)> = self.firsts.iter().enumerate().filter_map(left).collect();
        if let Some((_, left)) = present.first_mut() {
            *left = LEFT;
        }
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

    /// A line through both ends of each column, the nearer one first, broken where numbers are missing. A number alone is a dot.
    fn draw_line<B: DrawingBackend>(
        area: &Area<B>,
        line: &Envelope,
        y: impl Fn(f64) -> i32,
        style: ShapeStyle,
    ) -> Drawn<B> {
        for segment in line.segments() {
            let mut places: Vec<(i32, i32)> = Vec::new();
            for (column, ends) in segment {
                let mut ends = ends.map(&y);
                let is_nearer = |before: i32| ends[1].abs_diff(before) < ends[0].abs_diff(before);
                if places.last().is_some_and(|&(_, before)| is_nearer(before)) {
                    ends.reverse();
                }
                places.extend(ends.map(|end| (LEFT + column, end)));
            }
            places.dedup();
            match places[..] {
                [place] => area.draw(&Circle::new(place, style.stroke_width as i32 + 1, style.filled()))?,
                _ => area.draw(&PathElement::new(places, style))?,
            }
        }
        Ok(())
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
        let range = with_margin([low, high]);
        let y = |value: f64| BOTTOM - (share(value, range) * f64::from(BOTTOM - TOP)).round() as i32;
        for Tick { at, text: number } in numbers(range, 6) {
            area.draw(&PathElement::new([(LEFT, y(at)), (RIGHT, y(at))], FAINT.stroke_width(1)))?;
            text(area, &number, (LEFT - 8, y(at)), 14.0, HPos::Right)?;
        }
        for Tick { at, text: name } in self.axis.ticks(8) {
            let x = Self::x(at);
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

#[cfg(test)]
mod tests {
    use super::super::axis::Unit;
    use super::*;
    use plotters::backend::SVGBackend;

    /// A picture of numbers at equal distances, as SVG.
    fn drawn(numbers: &[Option<f64>], last: i128) -> String {
        let axis = Axis { first: 0, last, unit: Unit::Integer };
        let (values, mut results) = (Envelope::new(), Envelope::new());
        for (key, &number) in (0..).zip(numbers) {
            results.add(axis.share(if last == 0 { 0 } else { key }), number);
        }
        let [title, below, by, value, result] =
            ["title", "below", "by", "value", "result"].map(str::to_owned);
        let plot =
            Plot { title, below, by, value, result, axis, firsts: vec![Some(0), None], values, results };
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            plot.draw(&area).unwrap();
            area.present().unwrap();
        }
        text
    }

    /// The lines of the results, and the dots.
    fn lines(svg: &str) -> (usize, usize) {
        let colour = |line: &&str| line.contains("#C95A3C");
        let lines: Vec<&str> = svg.lines().filter(colour).collect();
        let count = |tag: &str| lines.iter().filter(|line| line.starts_with(tag)).count();
        // Without the line of the legend.
        (count("<polyline") - 1, count("<circle"))
    }

    #[test]
    fn a_line_is_broken_where_results_are_missing() {
        let whole: Vec<Option<f64>> = (0..9).map(|at| Some(f64::from(at))).collect();
        assert_eq!(lines(&drawn(&whole, 8)), (1, 0));
        let mut broken = whole.clone();
        broken[4] = None;
        assert_eq!(lines(&drawn(&broken, 8)), (2, 0));
        broken[6] = Some(f64::NAN);
        assert_eq!(lines(&drawn(&broken, 8)), (2, 1), "one result alone is a dot");
    }

    #[test]
    fn ranges_without_width_are_drawn_in_the_middle() {
        let svg = drawn(&[Some(3.0), Some(3.0)], 0);
        assert_eq!(lines(&svg), (0, 1));
        let middle = format!("cx=\"{}\" cy=\"{}\"", (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2);
        assert!(svg.contains(&middle), "{svg}");
        for numbers in [
            [Some(f64::MAX), Some(f64::MIN)],
            [Some(0.0), Some(0.0)],
            [None, None],
            [Some(5e-324), Some(0.0)],
        ] {
            let svg = drawn(&numbers, 1);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn small_differences_of_large_numbers_show() {
        let [low, high] = with_margin([1e6 - 1e-3, 1e6 + 1e-3]);
        assert!(share(1e6 - 1e-3, [low, high]) < 0.06 && share(1e6 + 1e-3, [low, high]) > 0.94);
    }
}
