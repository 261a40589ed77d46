//! A globe with lines, a title and a colour bar.

use super::raster::{Raster, SAMPLES};
use super::{Area, Drawn, SIZE, Scale};
use crate::plot::colour::{Rgb, blend};
use crate::plot::{INK, text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::rc::Rc;

/// The samples where labels change.
#[derive(Clone)]
pub(super) struct Mask(Rc<[bool]>);

impl Mask {
    /// Of a raster that is `width` samples wide. Lines are two samples wide instead of one if `is_thick`.
    pub(super) fn new(labels: &[Option<i32>], width: usize, is_thick: bool) -> Self {
        let mut mask = vec![false; labels.len()];
        for (at, label) in labels.iter().enumerate() {
            let right = (at % width + 1 < width).then_some(at + 1);
            let below = (at + width < mask.len()).then_some(at + width);
            for other in [right, below].into_iter().flatten() {
                if label.zip(labels[other]).is_some_and(|(label, other)| label != other) {
                    mask[at] = true;
                    mask[other] |= is_thick;
                }
            }
        }
        Self(mask.into())
    }

    /// Lines of this colour.
    pub(super) fn line(&self, colour: Rgb, opacity: f64) -> Line {
        Line { mask: self.clone(), colour, opacity }
    }
}

/// Lines on a globe.
pub(super) struct Line {
    mask: Mask,
    colour: Rgb,
    opacity: f64,
}

/// A globe in the picture. `place` is its upper left corner.
pub(super) struct Globe<'a, 'b> {
    pub(super) area: &'b Area<'a>,
    pub(super) raster: &'b Raster,
    pub(super) place: (i32, i32),
}

impl<'a> Globe<'a, '_> {
    /// Draws title, colours, and lines over them.
    pub(super) fn draw(&self, title: &str, mut colours: Vec<Option<Rgb>>, lines: &[Line]) -> Drawn<'a> {
        let (left, top) = self.place;
        text(self.area, title, (left + SIZE as i32 / 2, top - 20), 18.0, HPos::Center)?;
        for line in lines {
            for (colour, _) in colours.iter_mut().zip(&*line.mask.0).filter(|(_, is_line)| **is_line) {
                *colour = colour.map(|colour| blend(colour, line.colour, line.opacity));
            }
        }
        for (colour, bright) in colours.iter_mut().zip(&self.raster.brightness) {
            *colour = colour.map(|colour| blend([0, 0, 0], colour, f64::from(*bright)));
        }
        for y in 0..SIZE {
            for x in 0..SIZE {
                if let Some([r, g, b]) = self.pixel(&colours, x, y) {
                    self.area.draw_pixel((left + x as i32, top + y as i32), &RGBColor(r, g, b))?;
                }
            }
        }
        Ok(())
    }

    /// The mean of the samples of a pixel, on white paper; `None` outside the globe.
    fn pixel(&self, colours: &[Option<Rgb>], x: usize, y: usize) -> Option<Rgb> {
        let samples = (0..SAMPLES * SAMPLES)
            .map(|at| (y * SAMPLES + at / SAMPLES) * self.raster.width + x * SAMPLES + at % SAMPLES)
            .map(|at| colours[at]);
        let (mut sum, mut is_globe) = ([0.0; 3], false);
        for sample in samples {
            is_globe |= sample.is_some();
            let colour = sample.unwrap_or([255, 255, 255]);
            sum = std::array::from_fn(|at| sum[at] + f64::from(colour[at]));
        }
        let count = (SAMPLES * SAMPLES) as f64;
        is_globe.then(|| sum.map(|sum: f64| (sum / count).round() as u8))
    }

    /// Draws the colour bar below the globe.
    pub(super) fn bar(&self, scale: &Scale) -> Drawn<'a> {
        const WIDTH: i32 = 360;
        let left = self.place.0 + (SIZE as i32 - WIDTH) / 2;
        let (top, bottom) = (self.place.1 + SIZE as i32 + 22, self.place.1 + SIZE as i32 + 36);
        for x in 0..WIDTH {
            let [r, g, b] = scale.map.at((f64::from(x) + 0.5) / f64::from(WIDTH));
            let line = [(left + x, top), (left + x, bottom)];
            self.area.draw(&PathElement::new(line, RGBColor(r, g, b).stroke_width(1)))?;
        }
        self.area
            .draw(&Rectangle::new([(left - 1, top - 1), (left + WIDTH, bottom + 1)], INK.stroke_width(1)))?;
        let ticks = ((scale.high - scale.low) / scale.step).round() as i32;
        for tick in 0..=ticks {
            let value = scale.low + f64::from(tick) * scale.step;
            let x = left + WIDTH * tick / ticks.max(1);
            self.area.draw(&PathElement::new([(x, bottom + 1), (x, bottom + 5)], INK.stroke_width(1)))?;
            text(self.area, &label(value, scale.high), (x, bottom + 16), 14.0, HPos::Center)?;
        }
        text(self.area, scale.unit, (left + WIDTH + 14, (top + bottom) / 2), 15.0, HPos::Left)
    }
}

/// A tick of a scale up to `high`, with three significant digits.
fn label(value: f64, high: f64) -> String {
    let digits = (2.0 - high.abs().max(f64::MIN_POSITIVE).log10().floor()).clamp(0.0, 12.0);
    let unit = 10f64.powf(digits);
    // Rounding also turns -0 into 0.
    let size = (value.abs() * unit).round() / unit;
    format!("{}{size}", if value < 0.0 && size > 0.0 { "\u{2212}" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_few_digits() {
        assert_eq!(label(200.0, 1000.0), "200");
        assert_eq!(label(-0.05, 0.1), "\u{2212}0.05");
        assert_eq!(label(-1e-17, 0.1), "0");
        assert_eq!(label(0.000_250_000_1, 0.0005), "0.00025");
    }

    #[test]
    fn lines_lie_between_different_labels() {
        let labels = [1, 1, 2, 1, 1, 2, 3, 3, 3].map(Some).to_vec();
        let thin = Mask::new(&labels, 3, false);
        assert_eq!(*thin.0, [false, true, false, true, true, true, false, false, false]);
        let thick = Mask::new(&labels, 3, true);
        assert_eq!(*thick.0, [false, true, true, true, true, true, true, true, true]);
        let outside = Mask::new(&[Some(1), None, Some(1), Some(1)], 2, true);
        assert_eq!(*outside.0, [false; 4]);
    }
}
