//! The heat map of the bytes between ranks.

use super::traffic::Traffic;
use crate::plot::colour::THERMAL;
use crate::plot::{Area, Drawn, FAINT, INK, Picture, PlotError, round_step, save, text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::collections::BTreeMap;
use std::path::PathBuf;

const SIZE: (u32, u32) = (960, 880);
/// The map's corner and the length of its sides.
const CORNER: (i32, i32) = (110, 128);
const SIDE: i32 = 660;
/// Most ranks whose bytes are written into the map.
const WRITTEN: usize = 12;

/// Draws the map into each of the files.
pub(super) fn draw(paths: &[PathBuf], title: String, traffic: &Traffic) -> Result<(), PlotError> {
    let map = Map::new(title, traffic);
    paths.iter().try_for_each(|path| save(path, &map))
}

struct Map<'a> {
    title: String,
    traffic: &'a Traffic,
    /// Ranks along a side of one dot.
    dot: usize,
    /// Bytes of each dot that has any, by row (senders) and column.
    dots: BTreeMap<(usize, usize), u128>,
}

impl<'a> Map<'a> {
    fn new(title: String, traffic: &'a Traffic) -> Self {
        // No dot is smaller than two pixels.
        let dot = traffic.ranks().div_ceil(SIDE as usize / 2).max(1);
        let mut dots = BTreeMap::new();
        for (from, to, bytes) in traffic.links() {
            *dots.entry((from / dot, to / dot)).or_insert(0) += bytes;
        }
        Self { title, traffic, dot, dots }
    }

    fn below(&self) -> String {
        let traffic = self.traffic;
        format!(
            "{} ranks, {} in an exchange over {} links; bytes sent and received by a rank: max/mean {:.2}",
            traffic.ranks(),
            size(traffic.total() as f64),
            traffic.links().count(),
            traffic.imbalance()
        )
    }

    /// The place of a dot's edge, from the map's corner.
    fn edge(&self, dot: usize) -> i32 {
        let rank = (dot * self.dot).min(self.traffic.ranks());
        (rank as f64 / self.traffic.ranks() as f64 * f64::from(SIDE)).round() as i32
    }
}

/// Colours by the logarithm of the bytes where they differ much, else by the bytes.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(values: impl Iterator<Item = u128> + Clone) -> Self {
        let least = values.clone().min().unwrap_or(1).max(1) as f64;
        let most = values.max().unwrap_or(1).max(1) as f64;
        match most / least > 20.0 {
            true => Self {
                low: 10f64.powf(least.log10().floor()),
                high: 10f64.powf(most.log10().ceil()),
                logarithmic: true,
            },
            false => {
                let step = round_step(most / 5.0);
                Self { low: 0.0, high: (most / step).ceil() * step, logarithmic: false }
            }
        }
    }

    /// Where a value lies between the ends, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10f64.powi(decade)).collect();
        }
        let step = round_step(self.high / 5.0);
        (0..=(self.high / step).round() as i32).map(|tick| f64::from(tick) * step).collect()
    }

    /// Dark means much: paper is light.
    fn colour(&self, value: f64) -> RGBColor {
        let [r, g, b] = THERMAL.at(1.0 - self.place(value));
        RGBColor(r, g, b)
    }
}

impl Picture for Map<'_> {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let (left, top) = CORNER;
        let scale = Scale::of(self.dots.values().copied());
        text(area, "Bytes between ranks in an exchange", (left, 30), 24.0, HPos::Left)?;
        text(area, &self.title, (left, 60), 15.0, HPos::Left)?;
        text(area, &self.below(), (left, 82), 15.0, HPos::Left)?;
        text(area, "to rank", (left + SIDE / 2, top + SIDE + 46), 16.0, HPos::Center)?;
        text(area, "from rank", (left - 12, top - 20), 16.0, HPos::Right)?;

        self.grid(area)?;
        let ranks = self.traffic.ranks();
        for (&(from, to), &bytes) in &self.dots {
            let corner = (left + self.edge(to), top + self.edge(from));
            let other = (left + self.edge(to + 1), top + self.edge(from + 1));
            area.draw(&Rectangle::new([corner, other], scale.colour(bytes as f64).filled()))?;
            if ranks <= WRITTEN {
                self.write_into(area, &scale, bytes as f64, (corner, other))?;
            }
        }
        area.draw(&Rectangle::new([CORNER, (left + SIDE, top + SIDE)], INK.stroke_width(1)))?;
        if self.dot > 1 {
            let note = format!("each dot is the sum over {0} x {0} ranks", self.dot);
            text(area, &note, (left + SIDE, top + SIDE + 46), 14.0, HPos::Right)?;
        }
        self.bar(area, &scale)
    }
}

impl Map<'_> {
    /// The ranks at both axes.
    fn grid<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let ((left, top), ranks) = (CORNER, self.traffic.ranks());
        let step = (round_step(ranks as f64 / 16.0) as usize).max(1);
        for rank in (0..ranks).step_by(step) {
            let from = f64::from(SIDE) / ranks as f64;
            // Few ranks have their number amid their row, many at its begin.
            let amid = if step == 1 { 0.5 } else { 0.0 };
            let at = ((rank as f64 + amid) * from).round() as i32;
            let line = (rank as f64 * from).round() as i32;
            area.draw(&PathElement::new(
                [(left + line, top), (left + line, top + SIDE)],
                FAINT.stroke_width(1),
            ))?;
            area.draw(&PathElement::new(
                [(left, top + line), (left + SIDE, top + line)],
                FAINT.stroke_width(1),
            ))?;
            text(area, &rank.to_string(), (left + at, top + SIDE + 18), 14.0, HPos::Center)?;
            text(area, &rank.to_string(), (left - 10, top + at), 14.0, HPos::Right)?;
        }
        Ok(())
    }

    /// The bytes of a dot, light on dark and dark on light.
    fn write_into<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        scale: &Scale,
        bytes: f64,
        (corner, other): ((i32, i32), (i32, i32)),
    ) -> Drawn<B> {
        use plotters::style::text_anchor::{Pos, VPos};
        let colour = if scale.place(bytes) > 0.45 { WHITE } else { INK };
        let style = TextStyle::from(("sans-serif", 15.0).into_font())
            .color(&colour)
            .pos(Pos::new(HPos::Center, VPos::Center));
        let centre = ((corner.0 + other.0) / 2, (corner.1 + other.1) / 2);
        area.draw(&Text::new(size(bytes), centre, style))
    }

    /// The colours and what they mean.
    fn bar<B: DrawingBackend>(&self, area: &Area<B>, scale: &Scale) -> Drawn<B> {
        let (left, top) = (CORNER.0 + SIDE + 50, CORNER.1);
        if self.dots.is_empty() {
            return text(area, "nothing moves", (left, top), 15.0, HPos::Left);
        }
        const BANDS: i32 = 132;
        for band in 0..BANDS {
            let [r, g, b] = THERMAL.at((f64::from(band) + 0.5) / f64::from(BANDS));
            let [y, next] = [band, band + 1].map(|band| top + band * SIDE / BANDS);
            area.draw(&Rectangle::new([(left, y), (left + 22, next)], RGBColor(r, g, b).filled()))?;
        }
        area.draw(&Rectangle::new([(left, top), (left + 22, top + SIDE)], INK.stroke_width(1)))?;
        for tick in scale.ticks() {
            let y = top + SIDE - (scale.place(tick) * f64::from(SIDE)).round() as i32;
            area.draw(&PathElement::new([(left + 22, y), (left + 28, y)], INK.stroke_width(1)))?;
            text(area, &size(tick), (left + 34, y), 14.0, HPos::Left)?;
        }
        Ok(())
    }
}

/// Bytes in three figures.
fn size(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_figures_and_a_unit() {
        for (bytes, due) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1000.0, "1 kB"),
            (1234.0, "1.23 kB"),
            (45_600.0, "45.6 kB"),
            (9e20, "900 EB"),
        ] {
            assert_eq!(size(bytes), due);
        }
    }

    #[test]
    fn many_ranks_share_dots_and_no_byte_is_lost() {
        let mut traffic = Traffic::new(1000);
        for rank in 0..999 {
            traffic.add(rank, rank + 1, 10);
        }
        let map = Map::new(String::new(), &traffic);
        assert_eq!(map.dot, 4);
        assert_eq!(map.dots.values().sum::<u128>(), traffic.total());
        assert_eq!((map.edge(0), map.edge(250)), (0, SIDE));
    }

    #[test]
    fn scales_hold_all_values() {
        for values in [vec![5u128, 7], vec![8, 100_000], vec![]] {
            let scale = Scale::of(values.iter().copied());
            for value in values {
                assert!((0.0..=1.0).contains(&scale.place(value as f64)), "{value}");
            }
            let ticks = scale.ticks();
            assert!(ticks.len() >= 2 && scale.place(*ticks.last().unwrap()) > 0.999);
        }
    }
}
