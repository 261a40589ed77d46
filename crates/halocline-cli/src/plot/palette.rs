//! Pictures of at most 256 colours: their files take a third of the bytes.
//!
//! The colours are cut into boxes (P. Heckbert, "Color image quantization for frame buffer display", SIGGRAPH 1982), those with the largest
//! sum of squared differences first. A colour that most pixels of a box have stands for all of it, so that areas of one colour keep it; otherwise the mean does.

use super::colour::Rgb;
use std::collections::{BTreeMap, HashMap};

/// Most colours of a palette.
const COLOURS: usize = 256;

/// A picture whose pixels are numbers of colours.
pub(super) struct Indexed {
    pub(super) palette: Vec<Rgb>,
    pub(super) pixels: Vec<u8>,
}

/// Reduces a picture to a palette. A picture of at most 256 colours stays as it is.
pub(super) fn reduce(pixels: &[Rgb]) -> Indexed {
    let mut counts = BTreeMap::new();
    let runs = || pixels.chunk_by(|one, next| one == next);
    runs().for_each(|run| *counts.entry(run[0]).or_insert(0) += run.len() as u32);
    let mut boxes = vec![ColourBox::new(counts.into_iter().collect())];
    while boxes.len() < COLOURS {
        let most = |a: &(usize, &ColourBox), b: &(usize, &ColourBox)| a.1.spread.total_cmp(&b.1.spread);
        let widest = boxes.iter().enumerate().max_by(most).filter(|(_, widest)| widest.spread > 0.0);
        let Some((at, _)) = widest else { break };
        let [low, high] = boxes.swap_remove(at).split();
        boxes.extend([low, high]);
    }
    let numbers: HashMap<Rgb, u8> = boxes
        .iter()
        .zip(0..=u8::MAX)
        .flat_map(|(one, number)| one.colours.iter().map(move |&(colour, _)| (colour, number)))
        .collect();
    Indexed {
        palette: boxes.iter().map(ColourBox::colour).collect(),
        pixels: runs().flat_map(|run| std::iter::repeat_n(numbers[&run[0]], run.len())).collect(),
    }
}

/// Colours, with the number of pixels of each.
struct ColourBox {
    colours: Vec<(Rgb, u32)>,
    /// The component that differs most, and the means of all.
    component: usize,
    means: [f64; 3],
    /// The sum over all pixels of its squared differences from its mean.
    spread: f64,
}

impl ColourBox {
    fn new(colours: Vec<(Rgb, u32)>) -> Self {
        let pixels: f64 = colours.iter().map(|&(_, count)| f64::from(count)).sum();
        let sum = |of: &dyn Fn(Rgb) -> f64| -> f64 {
            colours.iter().map(|&(colour, count)| f64::from(count) * of(colour)).sum()
        };
        let means = [0, 1, 2].map(|component| sum(&|colour: Rgb| f64::from(colour[component])) / pixels);
        let spread =
            |component: usize| sum(&|colour: Rgb| (f64::from(colour[component]) - means[component]).powi(2));
        let spreads = [0, 1, 2].map(|component| (component, spread(component)));
        let wider = |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 { b } else { a };
        let (component, spread) = wider(wider(spreads[0], spreads[1]), spreads[2]);
        // The mean of one colour may be rounded.
        let spread = if colours.len() > 1 { spread } else { 0.0 };
        Self { colours, component, means, spread }
    }

    /// The colours below the mean of that component and those above it.
    fn split(self) -> [Self; 2] {
        let is_low =
            |(colour, _): &(Rgb, u32)| f64::from(colour[self.component]) <= self.means[self.component];
        let (low, high) = self.colours.into_iter().partition(is_low);
        [low, high].map(Self::new)
    }

    /// The colour that stands for the box.
    fn colour(&self) -> Rgb {
        let pixels: u64 = self.colours.iter().map(|&(_, count)| u64::from(count)).sum();
        let most = self.colours.iter().max_by_key(|(_, count)| *count);
        let most = most.filter(|(_, count)| 2 * u64::from(*count) >= pixels);
        most.map_or_else(|| self.means.map(|mean| mean.round() as u8), |&(colour, _)| colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pixels: &[Rgb]) -> Vec<Rgb> {
        let Indexed { palette, pixels } = reduce(pixels);
        assert!(palette.len() <= COLOURS);
        pixels.iter().map(|&number| palette[usize::from(number)]).collect()
    }

    #[test]
    fn few_colours_stay_as_they_are() {
        let pixels: Vec<Rgb> = (0..=255).chain(100..120).map(|x| [x, 255 - x, x / 2]).collect();
        assert_eq!(shown(&pixels), pixels);
        assert_eq!(shown(&[[7, 8, 9]]), [[7, 8, 9]]);
    }

    #[test]
    fn areas_keep_their_colour_and_others_hardly_change() {
        let gradient = (0..=255u8).flat_map(|x| (0..=255).step_by(5).map(move |y| [x, y, 128]));
        let pixels: Vec<Rgb> = gradient.chain([[90, 60, 128]; 20_000]).chain([[255; 3]; 20_000]).collect();
        for (found, pixel) in shown(&pixels).iter().zip(&pixels) {
            let most = (0..3).map(|at| found[at].abs_diff(pixel[at])).max();
            assert!(most <= Some(16), "{pixel:?} is shown as {found:?}");
            let is_area = [[90, 60, 128], [255; 3]].contains(pixel);
            assert!(!is_area || found == pixel, "{pixel:?} is shown as {found:?}");
        }
    }
}
