//! What a picture of patches shows beside their cells: axes, joined sides, folds and poles.

use super::net::{Place, Placed};
use crate::plot::{Area, Drawn, INK, text};
use halocline::{PatchSide, Pivot};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A place in the picture, in pixels.
pub(super) type Pixel = (i32, i32);

/// Free space beside the patches, in pixels.
pub(super) const LEFT: i32 = 92;
const TOP: i32 = 176;
const BELOW: i32 = 96;
/// The most pixels that the patches may take.
const MOST: (i32, i32) = (916, 720);
/// Distances from a side outwards, in pixels: of its band, of its arrow, and of its letter.
const BAND: [i32; 2] = [4, 18];
const ARROW: i32 = 28;
const LETTER: i32 = 42;

/// Colours of seams.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 90, 160),
    RGBColor(196, 66, 36),
    RGBColor(40, 125, 60),
    RGBColor(125, 65, 150),
    RGBColor(160, 115, 10),
    RGBColor(20, 125, 130),
    RGBColor(185, 45, 115),
    RGBColor(80, 80, 90),
];

/// Where cells of the plane lie in the picture.
pub(super) struct Canvas {
    pub(super) size: (u32, u32),
    low: Place,
    left: i32,
    bottom: i32,
    /// Pixels of a cell.
    scale: f64,
}

impl Canvas {
    /// For patches between these corners.
    pub(super) fn new([low, high]: [Place; 2]) -> Self {
        let cells = [0, 1].map(|along| (high[along] - low[along]).max(1) as f64);
        let scale = (f64::from(MOST.0) / cells[0]).min(f64::from(MOST.1) / cells[1]);
        let height = ((cells[1] * scale).round() as i32).max(1);
        let left = LEFT + (MOST.0 - (cells[0] * scale).round() as i32) / 2;
        let size = ((2 * LEFT + MOST.0) as u32, (TOP + height + BELOW) as u32);
        Self { size, low, left, bottom: TOP + height, scale }
    }

    fn pixel(&self, place: Place) -> Pixel {
        let of = |along: usize| ((place[along] - self.low[along]) as f64 * self.scale).round() as i32;
        (self.left + of(0), self.bottom - of(1))
    }

    /// The upper left and the lower right corner of a rectangle.
    pub(super) fn rectangle(&self, [low, high]: [Place; 2]) -> [Pixel; 2] {
        let (low, high) = (self.pixel(low), self.pixel(high));
        [(low.0, high.1), (high.0, low.1)]
    }

    /// The band behind a part of a side.
    pub(super) fn band(&self, patch: &Placed, side: PatchSide, cells: [i64; 2]) -> [Pixel; 2] {
        let out = outwards(patch, side);
        let ends = patch.part_of_side(side, cells).map(|place| self.pixel(place));
        let corners = [moved(ends[0], out, BAND[0]), moved(ends[1], out, BAND[1])];
        let (one, other) = (corners[0], corners[1]);
        [(one.0.min(other.0), one.1.min(other.1)), (one.0.max(other.0), one.1.max(other.1))]
    }

    /// The ends of a side.
    fn side(&self, patch: &Placed, side: PatchSide) -> [Pixel; 2] {
        let cells = patch.extents[1 - side.axis] as i64;
        patch.part_of_side(side, [0, cells]).map(|place| self.pixel(place))
    }
}

/// A band, shortened so that it does not overlap another one. `is_flat`: it lies along a row of pixels.
pub(super) fn apart([low, high]: [Pixel; 2], other: [Pixel; 2], is_flat: bool) -> [Pixel; 2] {
    let overlaps = low.0 < other[1].0 && other[0].0 < high.0 && low.1 < other[1].1 && other[0].1 < high.1;
    // The end at which the other band is.
    let is_high = [low.0 + high.0 < other[0].0 + other[1].0, low.1 + high.1 < other[0].1 + other[1].1];
    match (overlaps, is_flat) {
        (false, _) => [low, high],
        (true, true) if is_high[0] => [low, (other[0].0 - 2, high.1)],
        (true, true) => [(other[1].0 + 2, low.1), high],
        (true, false) if is_high[1] => [low, (high.0, other[0].1 - 2)],
        (true, false) => [(low.0, other[1].1 + 2), high],
    }
}

/// A unit step of the plane as one of pixels.
pub(super) fn on_screen(step: Place) -> Pixel {
    (step[0] as i32, -step[1] as i32)
}

fn outwards(patch: &Placed, side: PatchSide) -> Pixel {
    on_screen(patch.outwards(side))
}

pub(super) fn moved(from: Pixel, step: Pixel, pixels: i32) -> Pixel {
    (from.0 + step.0 * pixels, from.1 + step.1 * pixels)
}

fn middle([one, other]: [Pixel; 2]) -> Pixel {
    ((one.0 + other.0) / 2, (one.1 + other.1) / 2)
}

/// An arrow from one place to another, along an axis of the picture.
pub(super) fn draw_arrow<B: DrawingBackend>(
    area: &Area<B>,
    [from, to]: [Pixel; 2],
    colour: RGBColor,
    width: u32,
) -> Drawn<B> {
    let along = ((to.0 - from.0).signum(), (to.1 - from.1).signum());
    let across = (-along.1, along.0);
    let size = 3 + 2 * width as i32;
    let base = moved(to, along, -size);
    area.draw(&PathElement::new([from, base], colour.stroke_width(width)))?;
    let half = size / 2 + 1;
    area.draw(&Polygon::new([to, moved(base, across, half), moved(base, across, -half)], colour.filled()))
}

/// The number of a patch, and the directions of its rows and columns, in the corner before its first cell.
pub(super) fn axes<B: DrawingBackend>(
    area: &Area<B>,
    canvas: &Canvas,
    patch: &Placed,
    number: usize,
) -> Drawn<B> {
    let [one, other] = canvas.rectangle(patch.rectangle([[0; 2], patch.extents.map(|n| n as i64)]));
    let steps = [0, 1].map(|axis| on_screen(patch.step(axis)));
    let corner = canvas.pixel(patch.place([0, 0]));
    let room = (other.0 - one.0).min(other.1 - one.1);
    let long = (room / 4).clamp(0, 30);
    if long < 14 {
        return Ok(());
    }
    let from = moved(moved(corner, steps[0], 6), steps[1], 6);
    for (step, name) in steps.into_iter().zip(["r", "c"]) {
        let to = moved(from, step, long);
        draw_arrow(area, [from, to], INK, 1)?;
        text(area, name, moved(to, step, 8), 12.0, HPos::Center)?;
    }
    let inwards = (steps[0].0 + steps[1].0, steps[0].1 + steps[1].1);
    let side = if inwards.0 > 0 { HPos::Left } else { HPos::Right };
    text(area, &format!("patch {number}"), (from.0 + 8 * inwards.0, from.1 + 12 * inwards.1), 14.0, side)
}

/// An arrow along a side with the letter of its seam.
pub(super) fn arrow<B: DrawingBackend>(
    area: &Area<B>,
    canvas: &Canvas,
    patch: &Placed,
    side: PatchSide,
    (letter, seam): (&str, usize),
    is_reversed: bool,
) -> Drawn<B> {
    let out = outwards(patch, side);
    let ends = canvas.side(patch, side).map(|end| moved(end, out, ARROW));
    let third = |one: Pixel, other: Pixel| (one.0 + (other.0 - one.0) / 3, one.1 + (other.1 - one.1) / 3);
    let (first, last) = (third(ends[0], ends[1]), third(ends[1], ends[0]));
    let colour = COLOURS[seam % COLOURS.len()];
    draw_arrow(area, if is_reversed { [last, first] } else { [first, last] }, colour, 3)?;
    let at = moved(middle(canvas.side(patch, side)), out, LETTER);
    area.draw(&Circle::new(at, 10, colour.filled()))?;
    let style = TextStyle::from(("sans-serif", 14.0).into_font()).color(&WHITE);
    let centred = style.pos(plotters::style::text_anchor::Pos::new(
        HPos::Center,
        plotters::style::text_anchor::VPos::Center,
    ));
    area.draw(&Text::new(letter.to_owned(), at, centred))
}

/// A text beside a side.
pub(super) fn label<B: DrawingBackend>(
    area: &Area<B>,
    canvas: &Canvas,
    patch: &Placed,
    side: PatchSide,
    words: &str,
) -> Drawn<B> {
    let at = moved(middle(canvas.side(patch, side)), outwards(patch, side), ARROW + 4);
    text(area, words, at, 14.0, HPos::Center)
}

/// Arcs between cells that a fold lays upon each other, and its turning points.
pub(super) fn fold<B: DrawingBackend>(
    area: &Area<B>,
    canvas: &Canvas,
    patch: &Placed,
    side: PatchSide,
    pivot: Pivot,
) -> Drawn<B> {
    const ARCS: i32 = 5;
    const STEPS: i32 = 40;
    let out = outwards(patch, side);
    let [one, other] = canvas.side(patch, side);
    // Half a cell, along the side and inwards: the turning points are centres of cells.
    let half = if pivot == Pivot::Cell { (canvas.scale / 2.0).round() as i32 } else { 0 };
    let along = on_screen(patch.step(1 - side.axis));
    let centre = moved(middle([one, other]), along, half);
    let reach = ((other.0 - one.0).abs() + (other.1 - one.1).abs()) / 2 - half;
    for arc in 1..=ARCS {
        let (wide, high) = (f64::from(reach * arc / (ARCS + 1)), f64::from(10 * arc));
        let point = |step: i32| {
            let angle = std::f64::consts::PI * f64::from(step) / f64::from(STEPS);
            let foot = moved(centre, out, BAND[1] + 3);
            let at = moved(foot, along, (wide * angle.cos()).round() as i32);
            moved(at, out, (high * angle.sin()).round() as i32)
        };
        area.draw(&PathElement::new((0..=STEPS).map(point).collect::<Vec<_>>(), COLOURS[0].stroke_width(1)))?;
    }
    for turning in [centre, moved(one, along, half)] {
        area.draw(&Circle::new(moved(turning, out, -half), 5, COLOURS[1].filled()))?;
    }
    let words = match pivot {
        Pivot::Cell => "fold about the centres of cells",
        Pivot::Corner => "fold about corners of cells",
    };
    text(area, words, moved(centre, out, BAND[1] + 10 * ARCS + 14), 14.0, HPos::Center)
}
