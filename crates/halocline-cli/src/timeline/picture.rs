//! The picture of a timeline.

use super::read::{ON_DEVICE, Span, Timeline};
use crate::plot::{Area, Drawn, FAINT, INK, Picture, round_step, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A part of a timeline, between two moments in microseconds of the trace.
pub(super) struct Sheet<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) from: f64,
    pub(super) to: f64,
}

const WIDTH: i32 = 1240;
const LEFT: i32 = 190;
const RIGHT: i32 = WIDTH - 40;
const TOP: i32 = 118;
/// Heights of a lane, of the bar of an exchange, and between ranks.
const LANE: i32 = 44;
const FLIGHT: i32 = 18;
const GAP: i32 = 22;

/// Colours of spans by the start of their names. The first match counts.
const COLOURS: [(&str, RGBColor); 10] = [
    ("interior", RGBColor(118, 174, 126)),
    ("boundary", RGBColor(61, 107, 168)),
    ("rest", RGBColor(61, 107, 168)),
    ("wait", RGBColor(236, 166, 84)),
    (ON_DEVICE, IN_FLIGHT),
    ("exchange", RGBColor(90, 90, 100)),
    ("within", RGBColor(201, 90, 60)),
    ("pack", RGBColor(201, 90, 60)),
    ("unpack", RGBColor(140, 95, 160)),
    ("copy", RGBColor(201, 90, 60)),
];
const OTHER: RGBColor = RGBColor(170, 160, 190);
const IN_FLIGHT: RGBColor = RGBColor(250, 222, 150);

fn colour(name: &str) -> RGBColor {
    COLOURS.iter().find(|(begin, _)| name.starts_with(begin)).map_or(OTHER, |(_, colour)| *colour)
}

impl Sheet<'_> {
    fn x(&self, moment: f64) -> i32 {
        let share = ((moment - self.from) / (self.to - self.from).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        LEFT + (share * f64::from(RIGHT - LEFT)).round() as i32
    }

    /// The ranks that are shown.
    fn ranks(&self) -> Vec<u64> {
        let mut ranks: Vec<u64> = self.timeline.lanes.iter().map(|lane| lane.rank).collect();
        ranks.dedup();
        ranks
    }

    fn bottom(&self) -> i32 {
        let ranks = self.ranks().len() as i32;
        TOP + self.timeline.lanes.len() as i32 * LANE + ranks * (FLIGHT + GAP)
    }

    /// The names of spans, in the order of their colours, then by name.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.timeline.lanes.iter().flat_map(|lane| &lane.spans).map(|span| span.name.as_str()).collect();
        let place = |name: &str| COLOURS.iter().position(|(begin, _)| name.starts_with(begin));
        names.sort_by_key(|name| (place(name).unwrap_or(COLOURS.len()), *name));
        names.dedup();
        names
    }
}

impl Picture for Sheet<'_> {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (self.bottom() + 54) as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        text(area, "Ranks during halo exchanges", (LEFT, 32), 22.0, HPos::Left)?;
        let below = format!("microseconds from {:.1} us of the trace on", self.from);
        text(area, &below, (LEFT, 60), 14.0, HPos::Left)?;
        self.legend(area)?;
        self.scale(area)?;
        let mut y = TOP;
        for rank in self.ranks() {
            text(area, &format!("rank {rank}"), (14, y + FLIGHT / 2), 16.0, HPos::Left)?;
            for flight in self.timeline.flights.get(&rank).into_iter().flatten() {
                self.bar(area, flight, (y, y + FLIGHT - 4), IN_FLIGHT)?;
            }
            y += FLIGHT;
            for lane in self.timeline.lanes.iter().filter(|lane| lane.rank == rank) {
                text(area, &lane.name, (LEFT - 10, y + LANE / 2), 13.0, HPos::Right)?;
                area.draw(&PathElement::new(
                    [(LEFT, y + LANE - 4), (RIGHT, y + LANE - 4)],
                    FAINT.stroke_width(1),
                ))?;
                for span in &lane.spans {
                    // A span within another one is drawn over it, with less height.
                    let inset = (8 * span.depth as i32).min(LANE - 14);
                    self.bar(area, span, (y + inset, y + LANE - 6), colour(&span.name))?;
                }
                y += LANE;
            }
            y += GAP;
        }
        Ok(())
    }
}

impl Sheet<'_> {
    /// A span, with its name where it fits.
    fn bar<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        span: &Span,
        (top, bottom): (i32, i32),
        fill: RGBColor,
    ) -> Drawn<B> {
        let (left, right) = (self.x(span.begin), self.x(span.end));
        // A span that is shorter than a pixel still gets a mark.
        let corners = [(left, top), (right.max(left + 1), bottom)];
        area.draw(&Rectangle::new(corners, fill.filled()))?;
        if right - left > 3 {
            area.draw(&Rectangle::new(corners, INK.mix(0.5).stroke_width(1)))?;
        }
        let label = format!("{} {:.0} us", span.name, span.end - span.begin);
        let fits = |label: &&str| right - left > 8 * label.chars().count() as i32;
        // Both, the name, or at least how long it is.
        let labels = [label.as_str(), span.name.as_str(), &label[span.name.len() + 1..]];
        if let Some(label) = labels.into_iter().find(fits) {
            let size = f64::from(bottom - top).min(13.0);
            text(area, label, ((left + right) / 2, (top + bottom) / 2), size, HPos::Center)?;
        }
        Ok(())
    }

    fn legend<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let mut x = LEFT;
        let mut entry = |name: &str, fill: RGBColor| -> Drawn<B> {
            let width = 34 + 8 * name.chars().count() as i32;
            if x + width > RIGHT {
                return Ok(());
            }
            area.draw(&Rectangle::new([(x, 76), (x + 14, 90)], fill.filled()))?;
            text(area, name, (x + 20, 83), 13.0, HPos::Left)?;
            x += width;
            Ok(())
        };
        if self.timeline.flights.values().any(|flights| !flights.is_empty()) {
            entry("exchange in flight", IN_FLIGHT)?;
        }
        self.names().into_iter().try_for_each(|name| entry(name, colour(name)))
    }

    fn scale<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let bottom = self.bottom() - GAP / 2;
        let step = round_step((self.to - self.from) / 9.0);
        let ticks = ((self.to - self.from) / step) as i32;
        for tick in 0..=ticks {
            let offset = f64::from(tick) * step;
            let x = self.x(self.from + offset);
            area.draw(&PathElement::new([(x, TOP - 8), (x, bottom)], FAINT.stroke_width(1)))?;
            let style = TextStyle::from(("sans-serif", 13.0).into_font())
                .color(&INK)
                .pos(Pos::new(HPos::Center, VPos::Top));
            let digits = usize::from(step < 1.0);
            area.draw(&Text::new(format!("{offset:.digits$}"), (x, bottom + 8), style))?;
        }
        Ok(())
    }
}
