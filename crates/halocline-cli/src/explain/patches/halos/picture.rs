//! The picture of halo cells and what they copy.

use super::super::layout::PatchLayout;
use super::super::marks::{Pixel, draw_arrow, moved, on_screen};
use super::sheet::{MARGIN, Sheet};
use super::{Cell, Component, HaloMap, MINUS, Source};
use crate::info::plural;
use crate::plot::colour::{Rgb, blend, of_rank};
use crate::plot::{Area, Drawn, FAINT, INK, Picture, text};
use halocline::plan::AxisMap;
use halocline::{PatchSide, Pivot, SeamKind};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::collections::BTreeMap;

/// Labels smaller than this are not written.
const SMALLEST: f64 = 6.5;
/// Half the side of a square that shows axes.
const HALF: i32 = 16;
/// Turning points of folds.
const TURNING: RGBColor = RGBColor(200, 30, 30);
const PLAIN: Rgb = [236, 236, 240];
const LINE: i32 = 13;

pub(super) struct HaloPicture {
    layout: PatchLayout,
    pub(super) map: HaloMap,
    pub(super) sheet: Sheet,
}

impl HaloPicture {
    pub(super) fn new(layout: PatchLayout, map: HaloMap, sheet: Sheet) -> Self {
        Self { layout, map, sheet }
    }

    fn patches(&self) -> usize {
        self.map.grid.extents().len()
    }

    /// The name of a cell: `4.20` is that in row 2 and column 0 of patch 4.
    fn name(&self, patch: usize, [row, column]: Cell) -> String {
        let counts = |patch| self.map.counts(patch);
        let is_small = (0..self.patches()).flat_map(counts).all(|values| values <= 10);
        match (self.patches(), is_small) {
            (1, _) => format!("{row},{column}"),
            (_, true) => format!("{patch}.{row}{column}"),
            (_, false) => format!("{patch}.{row},{column}"),
        }
    }

    /// What is written in a cell: its own name, or that of the cell that it copies. `None` if nothing fills it.
    pub(super) fn label(&self, patch: usize, cell: Cell) -> Option<String> {
        let Some(source) = self.map.sources[patch].get(&cell) else {
            return self.is_inside(patch, cell).then(|| self.name(patch, cell));
        };
        let name = self.name(source.patch, source.cell);
        Some(match (self.is_negated(source), self.patches()) {
            (false, _) => name,
            (true, 1) => format!("{MINUS}({name})"),
            (true, _) => format!("{MINUS}{name}"),
        })
    }

    fn is_negated(&self, source: &Source) -> bool {
        self.is_vector() && source.components.iter().all(|component| component.is_negated)
    }

    /// What is written below a name: the component that the only one of a picture copies, if it is the other one; what both copy in a
    /// corner, where no note stands beside, unless the sign of the name says it.
    pub(super) fn line_below(&self, patch: usize, cell: Cell) -> Option<String> {
        let counts = self.map.counts(patch);
        let is_corner = (0..2).all(|axis| !(0..counts[axis]).contains(&cell[axis]));
        let source = self.map.sources[patch].get(&cell)?;
        match (&self.map.components[..], &source.components[..]) {
            ([own], [copied]) => (copied.number != *own).then(|| format!("v{}", copied.number)),
            (_, [one, other]) => {
                let is_as_here = one.number == 0 && one.is_negated == other.is_negated;
                (is_corner && !is_as_here).then(|| format!("{} {}", one.name(), other.name()))
            }
            _ => None,
        }
    }

    fn has_lines_below(&self) -> bool {
        (0..self.patches()).any(|patch| self.cells(patch).any(|cell| self.line_below(patch, cell).is_some()))
    }

    /// What the marks of vectors mean.
    fn legend_of_components(&self) -> String {
        let mut marks = match self.map.components.len() {
            0 => return String::new(),
            1 => format!("{MINUS}: it changes its sign."),
            _ => format!("{MINUS}: both change their sign."),
        };
        if self.has_lines_below() {
            marks += match self.map.components.len() {
                1 => " Below a name: the component that is copied, if it is the other one.",
                _ => " In corners, below a name: what v0 and v1 copy.",
            };
        }
        format!(" v0, v1: the components towards the next row and column. {marks}")
    }

    fn is_inside(&self, patch: usize, cell: Cell) -> bool {
        let counts = self.map.counts(patch);
        (0..2).all(|axis| (0..counts[axis]).contains(&cell[axis]))
    }

    fn is_vector(&self) -> bool {
        !self.map.components.is_empty()
    }

    /// The colour of the cell that is shown: by its patch, or by its column in the only patch.
    fn colour(&self, patch: usize, cell: Cell) -> Rgb {
        let (extents, centre) = (self.map.grid.extents()[patch], self.map.place.centre(cell));
        let [row, column] = [0, 1].map(|axis| centre[axis] as f64 / 2.0 / extents[axis] as f64);
        match self.patches() {
            1 => blend(of_turn(column), [255; 3], 0.5 * (1.0 - row)),
            _ => blend(of_rank(patch as u32), [255; 3], 0.3 * (2.0 - row - column)),
        }
    }

    /// All cells of a patch and of its halo.
    pub(super) fn cells(&self, patch: usize) -> impl Iterator<Item = Cell> + use<> {
        let [rows, columns] = self.map.counts(patch);
        let halo = self.map.width as i64;
        (-halo..rows + halo).flat_map(move |row| (-halo..columns + halo).map(move |column| [row, column]))
    }

    /// The size of letters with which all labels fit their cells.
    pub(super) fn letters(&self) -> f64 {
        let labels = (0..self.patches())
            .flat_map(|patch| self.cells(patch).filter_map(move |cell| self.label(patch, cell)));
        let longest = labels.map(|label| label.chars().count()).max().unwrap_or(1);
        (0.88 * f64::from(self.sheet.cell) / (0.6 * longest as f64)).min(14.0)
    }

    /// What most cells next to a side copy, and how.
    pub(super) fn behind(&self, side: PatchSide) -> Option<&Source> {
        let extents = self.map.counts(side.patch);
        let mut counts: BTreeMap<(usize, AxisMap), (usize, &Source)> = BTreeMap::new();
        for along in 0..extents[1 - side.axis] {
            let mut cell = [along; 2];
            cell[side.axis] = if side.is_high { extents[side.axis] } else { -1 };
            if let Some(source) = self.map.sources[side.patch].get(&cell) {
                counts.entry((source.patch, source.map)).or_insert((0, source)).0 += 1;
            }
        }
        counts.into_values().max_by_key(|(count, _)| *count).map(|(_, source)| source)
    }

    fn has_folds(&self) -> bool {
        self.map.grid.seams().iter().any(|seam| matches!(seam.kind(), SeamKind::Fold(_)))
    }

    /// The grid, the width of the halo, and what its values are unless they are at the centres of cells.
    fn title(&self) -> String {
        let halo = format!("a halo of {}", plural(self.map.width, "cell"));
        let values = match (&self.map.components[..], self.map.place.name()) {
            (_, name) if name.is_empty() => String::new(),
            ([component], name) => format!("component {component} at {name}, "),
            (_, name) => format!("values at {name}, "),
        };
        format!("{}: {values}{halo}, and what it copies", self.layout)
    }

    /// The lines below the title.
    fn legend(&self) -> [String; 3] {
        let (of_patch, colours) = if self.patches() == 1 {
            (String::new(), "columns")
        } else {
            (format!(" of patch {}", self.patches() - 1), "patches")
        };
        // A cell that is there: the first of the last row of the last patch.
        let patch = self.patches() - 1;
        let row = self.map.counts(patch)[0] - 1;
        let name = format!("{}: row {row}, column 0{of_patch}.", self.name(patch, [row, 0]));
        let cells = match self.letters() < SMALLEST {
            true => "halo cells, in the colour of the cell that each copies. Names need larger cells: draw a coarser grid.".to_owned(),
            false => format!("halo cells, with the name and colour of the cell that each copies. {name}"),
        };
        let mut last = String::from("White: not filled.");
        last += &self.legend_of_components();
        if self.has_folds() {
            last += " Red: the points about which the fold turns.";
        }
        let values = match self.letters() < SMALLEST {
            true => {
                "in the colour of the value that it copies. Names need larger cells: draw a coarser grid."
                    .to_owned()
            }
            false => format!("with its name and colour, or those of the value that it copies. {name}"),
        };
        let first = match self.map.place.is_centred() {
            true => format!("Outlined: cells of a patch. Around them: {cells}"),
            false => {
                format!("Outlined: cells of a patch. Each value lies at the middle of its square, {values}")
            }
        };
        [
            first,
            format!(
                "Squares: the directions in which rows (r) and columns (c) count up, of a patch and of the one behind each side. \
                 Colours: {colours}."
            ),
            last,
        ]
    }
}

/// Pixels from a name to the line below it.
pub(super) fn below(letters: f64) -> i32 {
    letters.ceil() as i32
}

/// Light colours in a circle, for places from 0 to 1.
fn of_turn(place: f64) -> Rgb {
    let at = |shift: f64| {
        let wave = (std::f64::consts::TAU * (place - shift)).cos();
        (192.0 + 56.0 * wave).round() as u8
    };
    [at(0.0), at(1.0 / 3.0), at(2.0 / 3.0)]
}

fn paint([red, green, blue]: Rgb) -> RGBColor {
    RGBColor(red, green, blue)
}

/// How a component of the patch follows from the components of its source.
fn component_line(component: usize, source: Component) -> String {
    format!("v{component} = {}", source.name())
}

impl Picture for HaloPicture {
    fn size(&self) -> (u32, u32) {
        self.sheet.size
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        const LEFT: i32 = 40;
        text(area, &self.title(), (LEFT, 30), 22.0, HPos::Left)?;
        for (at, line) in (0..).zip(&self.legend()) {
            text(area, line, (LEFT, 58 + 21 * at), 14.0, HPos::Left)?;
        }
        let letters = self.letters();
        for patch in 0..self.patches() {
            for cell in self.cells(patch) {
                self.draw_square(area, patch, cell)?;
            }
            draw_outline(area, self.sheet.cells(patch))?;
            if letters >= SMALLEST {
                for cell in self.cells(patch) {
                    self.draw_name(area, patch, cell, letters)?;
                }
            }
            let [corner, _] = self.sheet.with_halo(patch);
            let at = (corner.0 - MARGIN / 2, corner.1 - MARGIN / 2);
            let lines = if self.patches() == 1 { Vec::new() } else { vec![format!("patch {patch}")] };
            self.draw_note(area, (at, false), (patch, AxisMap::IDENTITY, patch), &lines)?;
            for side in
                [PatchSide::low, PatchSide::high].into_iter().flat_map(|of| [of(patch, 0), of(patch, 1)])
            {
                self.draw_side(area, side)?;
            }
        }
        Ok(())
    }
}

impl HaloPicture {
    fn draw_square<B: DrawingBackend>(&self, area: &Area<B>, patch: usize, cell: Cell) -> Drawn<B> {
        let [one, other] = self.sheet.rectangle(patch, self.map.place.square(cell));
        if self.label(patch, cell).is_none() {
            return area.draw(&Rectangle::new(
                [(one.0 + 2, one.1 + 2), (other.0 - 2, other.1 - 2)],
                FAINT.stroke_width(1),
            ));
        }
        let colour = self.colour_shown(patch, cell);
        area.draw(&Rectangle::new([(one.0 + 1, one.1 + 1), (other.0, other.1)], colour.filled()))
    }

    /// The colour of a value, or of the value that it copies.
    fn colour_shown(&self, patch: usize, cell: Cell) -> RGBColor {
        let source = self.map.sources[patch].get(&cell);
        let (patch, cell) = source.map_or((patch, cell), |source| (source.patch, source.cell));
        paint(self.colour(patch, cell))
    }

    /// The name in a square. A line of the outline behind it is interrupted.
    fn draw_name<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        patch: usize,
        cell: Cell,
        letters: f64,
    ) -> Drawn<B> {
        let Some(label) = self.label(patch, cell) else { return Ok(()) };
        let [one, other] = self.sheet.rectangle(patch, self.map.place.square(cell));
        let middle = ((one.0 + other.0) / 2, (one.1 + other.1) / 2);
        if self.map.place.is_on_outline(cell, self.map.grid.extents()[patch]) {
            let long = (0.33 * letters * label.chars().count() as f64) as i32 + 1;
            let (long, high) = (long.min((other.0 - one.0) / 2 - 1), (0.6 * letters) as i32 + 1);
            let behind = [(middle.0 - long, middle.1 - high), (middle.0 + long, middle.1 + high)];
            area.draw(&Rectangle::new(behind, self.colour_shown(patch, cell).filled()))?;
        }
        text(area, &label, middle, letters, HPos::Center)?;
        match self.line_below(patch, cell) {
            None => Ok(()),
            Some(line) => {
                text(area, &line, moved(middle, (0, 1), below(letters)), 0.8 * letters, HPos::Center)
            }
        }
    }

    /// The axes of what lies behind a side, and the words for it.
    fn draw_side<B: DrawingBackend>(&self, area: &Area<B>, side: PatchSide) -> Drawn<B> {
        let seam = self.map.grid.seams().iter().find(|seam| seam.sides().contains(&side));
        let (Some(seam), Some(source)) = (seam, self.behind(side)) else { return Ok(()) };
        let mut lines = vec![match seam.kind() {
            SeamKind::Fold(_) => "fold".to_owned(),
            SeamKind::Pole => "pole".to_owned(),
            SeamKind::Join { .. } if source.patch == side.patch => "periodic".to_owned(),
            SeamKind::Join { .. } => format!("patch {}", source.patch),
        }];
        let components = || self.map.components.iter().zip(&source.components);
        if components().any(|(component, source)| source.number != *component || source.is_negated) {
            lines.extend(components().map(|(component, source)| component_line(*component, *source)));
        }
        let is_flat = self.sheet.net.patches[side.patch].outwards(side)[0] == 0;
        self.draw_note(
            area,
            (self.sheet.beside(side), is_flat),
            (side.patch, source.map, source.patch),
            &lines,
        )?;
        match seam.kind() {
            SeamKind::Fold(pivot) => self.draw_turning_points(area, side, pivot),
            _ => Ok(()),
        }
    }

    /// A square with the axes of a patch `there` as they run beside the cells of `here`, and lines of text: beside it if it is
    /// flat, else below.
    fn draw_note<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        (at, is_flat): (Pixel, bool),
        (here, map, there): (usize, AxisMap, usize),
        lines: &[String],
    ) -> Drawn<B> {
        let all = LINE * lines.len() as i32;
        let (centre, first, side) = match is_flat {
            true => ((at.0 - 30, at.1), (at.0 - 30 + HALF + 6, at.1 - (all - LINE) / 2), HPos::Left),
            false => {
                let top = at.1 - (2 * HALF + 4 + all) / 2;
                ((at.0, top + HALF), (at.0, top + 2 * HALF + 4 + LINE / 2), HPos::Center)
            }
        };
        let placed = &self.sheet.net.patches[here];
        let mut steps = [(0, 0); 2];
        for axis in 0..2 {
            let sign = if map.is_flipped(axis) { -1 } else { 1 };
            let step = on_screen(placed.step(axis));
            steps[map.source_axis(axis)] = (sign * step.0, sign * step.1);
        }
        let colour = if self.patches() == 1 { PLAIN } else { blend(of_rank(there as u32), [255; 3], 0.3) };
        draw_axes(area, centre, steps, paint(colour))?;
        for (number, line) in (0..).zip(lines) {
            text(area, line, (first.0, first.1 + LINE * number), 11.5, side)?;
        }
        Ok(())
    }

    fn draw_turning_points<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        side: PatchSide,
        pivot: Pivot,
    ) -> Drawn<B> {
        let extents = self.map.grid.extents()[side.patch].map(|cells| cells as i64);
        let half = i64::from(pivot == Pivot::Cell);
        for along in [half, extents[1 - side.axis] + half] {
            let mut halves = [along; 2];
            halves[side.axis] = if side.is_high { 2 * extents[side.axis] - half } else { half };
            let at = self.sheet.point(side.patch, halves);
            match pivot {
                Pivot::Cell if self.map.place.is_centred() => {
                    area.draw(&Circle::new(at, self.sheet.cell * 9 / 20, TURNING.stroke_width(2)))?
                }
                _ => area.draw(&Circle::new(at, 6, TURNING.filled()))?,
            }
        }
        Ok(())
    }
}

/// The four lines around a rectangle: in SVG files, the drawing library makes rectangles with thin lines only.
fn draw_outline<B: DrawingBackend>(area: &Area<B>, [one, other]: [Pixel; 2]) -> Drawn<B> {
    for x in [one.0, other.0] {
        area.draw(&Rectangle::new([(x - 1, one.1 - 1), (x + 2, other.1 + 2)], INK.filled()))?;
    }
    for y in [one.1, other.1] {
        area.draw(&Rectangle::new([(one.0 - 1, y - 1), (other.0 + 2, y + 2)], INK.filled()))?;
    }
    Ok(())
}

/// A square with arrows along rows' and columns' axis.
fn draw_axes<B: DrawingBackend>(
    area: &Area<B>,
    centre: Pixel,
    steps: [Pixel; 2],
    colour: RGBColor,
) -> Drawn<B> {
    let corners = [(centre.0 - HALF, centre.1 - HALF), (centre.0 + HALF, centre.1 + HALF)];
    area.draw(&Rectangle::new(corners, colour.filled()))?;
    area.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
    let from = moved(moved(centre, steps[0], 5 - HALF), steps[1], 5 - HALF);
    for (step, other, name) in [(steps[0], steps[1], "r"), (steps[1], steps[0], "c")] {
        draw_arrow(area, [from, moved(from, step, 22)], INK, 1)?;
        text(area, name, moved(moved(from, step, 16), other, 8), 11.0, HPos::Center)?;
    }
    Ok(())
}
