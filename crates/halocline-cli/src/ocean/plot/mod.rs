//! The picture of a run: maps of the surface temperature before and after, of the change, and of the
//! partition.

mod raster;

use super::geometry::lon_lat;
use super::state::Case;
use crate::error::CommandError;
use crate::plot::colour::{self, BALANCE, ColourMap, Rgb, THERMAL, blend};
use crate::plot::{self, INK, text};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use raster::Raster;
use std::path::Path;

/// The data of the picture.
pub struct Picture<'a> {
    /// Mesh and model.
    pub case: &'a Case,
    /// The owner of each node.
    pub owners: &'a [u32],
    /// Surface temperature of each node at the start, deg C.
    pub before: &'a [f64],
    /// Surface temperature at the end.
    pub after: &'a [f64],
    /// The line at the top.
    pub title: String,
    /// The second line.
    pub subtitle: String,
    /// Title of the map of the temperature at the end.
    pub after_title: String,
}

type Area<'a> = plot::Area<BitMapBackend<'a>>;
type Drawn<'a> = plot::Drawn<BitMapBackend<'a>>;

const MAP_WIDTH: usize = 860;
const LEFT: i32 = 62;
const GAP: i32 = 178;
const TOP: i32 = 118;
const ROW: i32 = 496;
const LAND: Rgb = [205, 205, 203];
const COAST: Rgb = [110, 110, 110];

/// Draws a picture into a PNG file.
pub fn draw(path: &Path, picture: &Picture<'_>) -> Result<(), CommandError> {
    let raster = Raster::new(&picture.case.mesh, MAP_WIDTH);
    let size = (2 * MAP_WIDTH as u32 + 2 * GAP as u32 + LEFT as u32 - 40, (TOP + 2 * ROW) as u32 - 46);
    plot::save_png(path, size, |area| draw_all(area, picture, &raster))
}

fn draw_all<'a>(area: &Area<'a>, picture: &Picture<'_>, raster: &Raster) -> Drawn<'a> {
    text(area, &picture.title, (LEFT, 34), 30.0, HPos::Left)?;
    text(area, &picture.subtitle, (LEFT, 68), 17.0, HPos::Left)?;

    let owners = raster.owners(picture.owners);
    let change: Vec<f64> =
        picture.after.iter().zip(picture.before).map(|(after, before)| after - before).collect();
    let largest = scale_of(&change);
    let temperature = Scale { map: &THERMAL, low: -2.0, high: 30.0, step: 4.0, unit: "\u{b0}C" };
    let difference = Scale { map: &BALANCE, low: -largest, high: largest, step: largest / 4.0, unit: "K" };
    let right = LEFT + MAP_WIDTH as i32 + GAP;
    let field = |scale: &Scale, field: &[f64]| -> Vec<Option<Rgb>> {
        raster.pixels.iter().map(|hit| hit.map(|hit| scale.colour(hit.value(field)))).collect()
    };

    let panels = [
        ("Surface temperature at the start", &temperature, picture.before, (LEFT, TOP)),
        (picture.after_title.as_str(), &temperature, picture.after, (right, TOP)),
        ("Change of the surface temperature", &difference, change.as_slice(), (LEFT, TOP + ROW)),
    ];
    for (title, scale, values, place) in panels {
        let panel = Panel { area, raster, place };
        panel.paint(&field(scale, values), &owners, 0.75)?;
        panel.frame(title)?;
        panel.labels(&owners)?;
        panel.bar(scale)?;
    }
    let panel = Panel { area, raster, place: (right, TOP + ROW) };
    panel.paint(&partition_colours(picture, raster), &owners, 0.0)?;
    panel.mesh(picture.case)?;
    panel.frame("Partition: cells of each rank, darker where triangles are shared; the model's mesh")?;
    panel.labels(&owners)?;
    panel.legend(picture.owners)?;
    area.present()
}

/// A rank's colour, darker in the triangles whose corners belong to several ranks.
fn partition_colours(picture: &Picture<'_>, raster: &Raster) -> Vec<Option<Rgb>> {
    let colour = |hit: raster::Hit| {
        let owner = picture.owners[hit.nearest() as usize];
        let shared = hit.nodes.iter().any(|&node| picture.owners[node as usize] != owner);
        blend(colour::of_rank(owner), [40, 40, 60], if shared { 0.45 } else { 0.0 })
    };
    raster.pixels.iter().map(|hit| hit.map(colour)).collect()
}

/// A round number that is larger than nearly all values.
fn scale_of(values: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let most = sizes.get(sizes.len() * 99 / 100).copied().unwrap_or(1.0);
    [0.1, 0.2, 0.4, 1.0, 2.0, 4.0, 6.0, 8.0].into_iter().find(|&round| most <= round).unwrap_or(12.0)
}

/// Colours and ticks of a field.
struct Scale {
    map: &'static ColourMap,
    low: f64,
    high: f64,
    step: f64,
    unit: &'static str,
}

impl Scale {
    fn colour(&self, value: f64) -> Rgb {
        self.map.at((value - self.low) / (self.high - self.low))
    }
}

/// One map with its title and scale. `place` is its upper left corner.
struct Panel<'a, 'b> {
    area: &'b Area<'a>,
    raster: &'b Raster,
    place: (i32, i32),
}

impl<'a> Panel<'a, '_> {
    fn corner(&self) -> (i32, i32) {
        (self.place.0 + self.raster.width as i32, self.place.1 + self.raster.height as i32)
    }

    fn pixel(&self, at: usize, colour: Rgb) -> Drawn<'a> {
        let (x, y) = ((at % self.raster.width) as i32, (at / self.raster.width) as i32);
        let [r, g, b] = colour;
        self.area.draw_pixel((self.place.0 + x, self.place.1 + y), &RGBColor(r, g, b))
    }

    /// Draws ocean, land, coasts and the borders between ranks, with a white seam of this opacity.
    fn paint(&self, colours: &[Option<Rgb>], owners: &[Option<u32>], seam: f64) -> Drawn<'a> {
        #[derive(Clone, Copy, PartialEq)]
        enum Line {
            None,
            Coast,
            BesideBorder,
            Border,
        }
        let mut lines = vec![Line::None; colours.len()];
        for at in 0..colours.len() {
            for other in self.raster.neighbours(at) {
                match (owners[at], owners[other]) {
                    (Some(a), Some(b)) if a != b => (lines[at], lines[other]) = (Line::Border, Line::Border),
                    (None, Some(_)) if lines[at] == Line::None => lines[at] = Line::Coast,
                    (Some(_), None) if lines[other] == Line::None => lines[other] = Line::Coast,
                    _ => {}
                }
            }
        }
        for at in 0..colours.len() {
            for other in self.raster.neighbours(at) {
                for (at, other) in [(at, other), (other, at)] {
                    if lines[at] == Line::Border && lines[other] == Line::None {
                        lines[other] = Line::BesideBorder;
                    }
                }
            }
        }
        for (at, colour) in colours.iter().enumerate() {
            let colour = match (lines[at], colour) {
                (Line::Border, _) => [15, 15, 20],
                (Line::BesideBorder, Some(colour)) => blend(*colour, [255, 255, 255], seam),
                (Line::Coast, _) => COAST,
                (_, Some(colour)) => *colour,
                (_, None) => LAND,
            };
            self.pixel(at, colour)?;
        }
        Ok(())
    }

    /// Draws title, graticule with labels, and frame.
    fn frame(&self, title: &str) -> Drawn<'a> {
        let (x, y) = self.place;
        let (right, bottom) = self.corner();
        text(self.area, title, (x, y - 16), 18.0, HPos::Left)?;
        let line =
            |points: [(i32, i32); 2], style: ShapeStyle| self.area.draw(&PathElement::new(points, style));
        let faint = RGBColor(90, 90, 90).mix(0.35).stroke_width(1);
        for longitude in (-180i32..180).step_by(60) {
            let at = x + self.raster.place(f64::from(longitude), 0.0).0 as i32;
            line([(at, y), (at, bottom)], faint)?;
            line([(at, bottom), (at, bottom + 5)], INK.stroke_width(1))?;
            let label = match longitude {
                0 | -180 => format!("{}\u{b0}", longitude.abs()),
                east if east > 0 => format!("{east}\u{b0}E"),
                west => format!("{}\u{b0}W", -west),
            };
            text(self.area, &label, (at, bottom + 16), 14.0, HPos::Center)?;
        }
        for latitude in (-60i32..=60).step_by(30) {
            let at = y + self.raster.place(0.0, f64::from(latitude)).1 as i32;
            line([(x, at), (right, at)], faint)?;
            line([(x - 5, at), (x, at)], INK.stroke_width(1))?;
            let side = if latitude > 0 {
                "N"
            } else if latitude < 0 {
                "S"
            } else {
                ""
            };
            let label = format!("{}\u{b0}{side}", latitude.abs());
            text(self.area, &label, (x - 9, at), 14.0, HPos::Right)?;
        }
        self.area.draw(&Rectangle::new([(x - 1, y - 1), (right, bottom)], INK.stroke_width(1)))
    }

    /// Draws the number of each rank in the middle of its cells.
    fn labels(&self, owners: &[Option<u32>]) -> Drawn<'a> {
        for (rank, (x, y)) in self.raster.label_places(owners) {
            let centre = (self.place.0 + x as i32, self.place.1 + y as i32);
            let label = rank.to_string();
            let radius = 12 + 3 * (label.len() as i32 - 1);
            self.area.draw(&Circle::new(centre, radius, WHITE.mix(0.85).filled()))?;
            self.area.draw(&Circle::new(centre, radius, INK.stroke_width(1)))?;
            text(self.area, &label, centre, 17.0, HPos::Center)?;
        }
        Ok(())
    }

    /// Draws the colour bar to the right of the map.
    fn bar(&self, scale: &Scale) -> Drawn<'a> {
        let (right, bottom) = self.corner();
        let (left, top) = (right + 22, self.place.1);
        let height = f64::from(bottom - top);
        for y in top..bottom {
            let [r, g, b] = scale.map.at(1.0 - (f64::from(y - top) + 0.5) / height);
            for x in left..left + 20 {
                self.area.draw_pixel((x, y), &RGBColor(r, g, b))?;
            }
        }
        self.area.draw(&Rectangle::new([(left, top - 1), (left + 20, bottom)], INK.stroke_width(1)))?;
        let ticks = ((scale.high - scale.low) / scale.step).round() as i32;
        for tick in 0..=ticks {
            let value = scale.low + f64::from(tick) * scale.step;
            let y = bottom - (height * f64::from(tick) / f64::from(ticks)).round() as i32;
            self.area.draw(&PathElement::new([(left + 20, y), (left + 25, y)], INK.stroke_width(1)))?;
            let sign = if value < 0.0 { "\u{2212}" } else { "" };
            // Ticks have at most three decimals. Rounding also turns -0 into 0.
            let size = (value.abs() * 1e3).round() / 1e3;
            text(self.area, &format!("{sign}{size}"), (left + 29, y), 14.0, HPos::Left)?;
        }
        text(self.area, scale.unit, (left + 10, top - 16), 16.0, HPos::Center)
    }

    /// Draws the number of nodes of each rank to the right of the map.
    fn legend(&self, owners: &[u32]) -> Drawn<'a> {
        const MOST: usize = 14;
        let mut counts = std::collections::BTreeMap::new();
        owners.iter().for_each(|&owner| *counts.entry(owner).or_insert(0usize) += 1);
        let x = self.corner().0 + 22;
        text(self.area, "rank: nodes", (x, self.place.1 - 16), 16.0, HPos::Left)?;
        for (row, (rank, count)) in counts.iter().take(MOST).enumerate() {
            let y = self.place.1 + 12 + 26 * row as i32;
            let [r, g, b] = colour::of_rank(*rank);
            let square = [(x, y - 8), (x + 16, y + 8)];
            self.area.draw(&Rectangle::new(square, RGBColor(r, g, b).filled()))?;
            self.area.draw(&Rectangle::new(square, INK.stroke_width(1)))?;
            text(self.area, &format!("{rank}: {count}"), (x + 24, y), 14.0, HPos::Left)?;
        }
        if counts.len() > MOST {
            let more = format!("and {} more", counts.len() - MOST);
            text(self.area, &more, (x, self.place.1 + 12 + 26 * MOST as i32), 14.0, HPos::Left)?;
        }
        Ok(())
    }

    /// Draws the edges of the model's mesh.
    fn mesh(&self, case: &Case) -> Drawn<'a> {
        let width = self.raster.width as f64;
        let style = RGBColor(30, 30, 40).mix(0.28).stroke_width(1);
        let line = |ends: [(f64, f64); 2]| {
            let ends = ends.map(|(x, y)| (self.place.0 + x as i32, self.place.1 + y as i32));
            self.area.draw(&PathElement::new(ends, style))
        };
        let place = |node: u32| {
            let (longitude, latitude) = lon_lat(case.fesom.nodes[node as usize]);
            self.raster.place(longitude, latitude)
        };
        for &[a, b, c] in &case.fesom.triangles {
            // Each inner edge belongs to two triangles, in opposite directions.
            for [from, to] in [[a, b], [b, c], [c, a]].into_iter().filter(|[from, to]| from < to) {
                let (from, to) = (place(from), place(to));
                if (from.0 - to.0).abs() < width / 2.0 {
                    line([from, to])?;
                } else {
                    // An edge across the border of the map has a part at each side.
                    let (west, east) = if from.0 < to.0 { (from, to) } else { (to, from) };
                    let share = (width - east.0) / (west.0 + width - east.0);
                    let y = east.1 + share * (west.1 - east.1);
                    line([east, (width - 1.0, y)])?;
                    line([(0.0, y), west])?;
                }
            }
        }
        Ok(())
    }
}
