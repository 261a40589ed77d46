//! The patches of a grid in a plane, and the ranks that own their cells.

use super::layout::PatchLayout;
use super::marks::{self, Canvas, Pixel};
use super::net::Net;
use super::report;
use crate::error::CommandError;
use crate::info::plural;
use crate::plot::colour::{Rgb, of_rank};
use crate::plot::{Area, Drawn, INK, Picture, text};
use halocline::plan::{Cells, Transfer};
use halocline::{
    Halo, Neighbours, PatchBlock, PatchDecomposition, PatchSide, PatternError, Quantity, SeamKind,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A part of a side, and the owner of the cells behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Behind {
    side: PatchSide,
    /// The first cell along the side, and the one behind the last.
    cells: [i64; 2],
    owner: usize,
}

/// A side that is joined with another one elsewhere in the plane, or with itself.
#[derive(Debug, Clone, Copy)]
struct Mark {
    side: PatchSide,
    seam: usize,
    kind: SeamKind,
    /// Whether the arrow along the side points to lower cells.
    is_reversed: bool,
}

/// The picture.
pub(super) struct PatchPicture {
    title: String,
    below: String,
    net: Net,
    blocks: Vec<(PatchBlock, usize)>,
    behind: Vec<Behind>,
    marks: Vec<Mark>,
}

impl PatchPicture {
    pub(super) fn new(layout: PatchLayout, cut: &PatchDecomposition) -> Result<Self, CommandError> {
        let grid = cut.grid();
        let net = Net::of(grid);
        let blocks = (0..cut.domains()).filter_map(|domain| Some((cut.block(domain)?, cut.owner(domain))));
        let mut marks = Vec::new();
        for (number, seam) in
            grid.seams().iter().enumerate().filter(|(number, _)| !net.glued.contains(number))
        {
            let [one, other] = seam.sides();
            let mark = |side, is_reversed| Mark { side, seam: number, kind: seam.kind(), is_reversed };
            marks.push(mark(one, false));
            if one != other {
                marks.push(mark(other, seam.kind() == SeamKind::Join { is_reversed: true }));
            }
        }
        let behind = behind(cut)?.into_iter().filter(|one| marks.iter().any(|mark| mark.side == one.side));
        let (blocks, behind) = (blocks.collect::<Vec<_>>(), behind.collect());
        Ok(Self {
            title: format!("{layout}: {} in {}", plural(cut.ranks(), "rank"), plural(blocks.len(), "block")),
            below: "Numbers and colours: ranks. Bands: the ranks behind a side. Arrows of one letter: joined sides. \
                    r, c: rows, columns"
                .to_owned(),
            net,
            blocks,
            behind,
            marks,
        })
    }

    fn canvas(&self) -> Canvas {
        Canvas::new(self.net.bounds())
    }
}

/// The owners of the cells behind all joined sides: of the patterns of all ranks.
fn behind(cut: &PatchDecomposition) -> Result<Vec<Behind>, PatternError> {
    let halo = Halo::uniform(1).neighbours(Neighbours::Faces);
    let mut found = Vec::new();
    for rank in 0..cut.ranks() {
        let plan = cut.pattern_of(rank, &Quantity::cells(), &halo)?;
        let received = plan.peers.iter().flat_map(|peer| &peer.receives).chain(&plan.local);
        found.extend(received.filter_map(|transfer| of_transfer(cut, transfer)));
    }
    found.sort_unstable();
    Ok(found)
}

/// The part of a side that a transfer fills a halo behind; `None` within a patch.
fn of_transfer(cut: &PatchDecomposition, transfer: &Transfer) -> Option<Behind> {
    let (block, Cells::Box(target)) = (cut.block(transfer.to)?, &transfer.target) else { return None };
    let extents = cut.grid().extents()[block.patch];
    let first = |axis: usize| block.first[axis] as i64 + target.low[axis];
    // A box may also have copies in the last row of a fold.
    let end = |axis: usize| first(axis) + target.extent[axis] as i64;
    let side = [0, 1].into_iter().find_map(|axis| match (first(axis), end(axis)) {
        (-1, _) => Some(PatchSide::low(block.patch, axis)),
        (_, end) if end == extents[axis] as i64 + 1 => Some(PatchSide::high(block.patch, axis)),
        _ => None,
    })?;
    let along = 1 - side.axis;
    let cells = [first(along), end(along)];
    Some(Behind { side, cells, owner: cut.owner(transfer.from) })
}

/// The colour of a rank.
fn colour(rank: usize) -> RGBColor {
    let [red, green, blue]: Rgb = of_rank(rank as u32);
    RGBColor(red, green, blue)
}

impl Picture for PatchPicture {
    fn size(&self) -> (u32, u32) {
        self.canvas().size
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let canvas = self.canvas();
        text(area, &self.title, (marks::LEFT, 32), 22.0, HPos::Left)?;
        text(area, &self.below, (marks::LEFT, 62), 15.0, HPos::Left)?;
        self.draw_blocks(area, &canvas)?;
        self.draw_behind(area, &canvas)?;
        for (number, patch) in self.net.patches.iter().enumerate() {
            let outline = canvas.rectangle(patch.rectangle([[0; 2], patch.extents.map(|n| n as i64)]));
            area.draw(&Rectangle::new(outline, INK.stroke_width(2)))?;
            marks::axes(area, &canvas, patch, number)?;
        }
        for mark in &self.marks {
            let patch = &self.net.patches[mark.side.patch];
            match mark.kind {
                SeamKind::Join { .. } => {
                    let letter = report::letter(mark.seam);
                    marks::arrow(area, &canvas, patch, mark.side, (&letter, mark.seam), mark.is_reversed)?;
                }
                SeamKind::Fold(pivot) => marks::fold(area, &canvas, patch, mark.side, pivot)?,
                SeamKind::Pole => {
                    marks::label(area, &canvas, patch, mark.side, "pole: half the columns further")?
                }
            }
        }
        Ok(())
    }
}

impl PatchPicture {
    /// The bands beside the sides, each with its owner. Where those of two sides would overlap, at a corner between patches, the later one
    /// is shorter.
    fn bands(&self, canvas: &Canvas) -> Vec<(usize, [Pixel; 2])> {
        let mut room: Vec<(PatchSide, [Pixel; 2])> = Vec::new();
        for side in self.marks.iter().map(|mark| mark.side) {
            let patch = &self.net.patches[side.patch];
            let mut band = canvas.band(patch, side, [0, patch.extents[1 - side.axis] as i64]);
            let is_flat = patch.outwards(side)[0] == 0;
            room.iter().for_each(|(_, other)| band = marks::apart(band, *other, is_flat));
            room.push((side, band));
        }
        let of = |Behind { side, cells, owner }: &Behind| {
            let band = canvas.band(&self.net.patches[side.patch], *side, *cells);
            let (_, [low, high]) = room.iter().find(|(of, _)| of == side)?;
            let within = |at: Pixel| (at.0.clamp(low.0, high.0), at.1.clamp(low.1, high.1));
            Some((*owner, band.map(within)))
        };
        self.behind.iter().filter_map(of).collect()
    }

    fn draw_blocks<B: DrawingBackend>(&self, area: &Area<B>, canvas: &Canvas) -> Drawn<B> {
        for (block, owner) in &self.blocks {
            let low = block.first.map(|first| first as i64);
            let high = [0, 1].map(|axis| low[axis] + block.extents[axis] as i64);
            let [one, other] = canvas.rectangle(self.net.patches[block.patch].rectangle([low, high]));
            area.draw(&Rectangle::new([one, other], colour(*owner).filled()))?;
            area.draw(&Rectangle::new([one, other], WHITE.stroke_width(1)))?;
            let (width, height) = (other.0 - one.0, other.1 - one.1);
            let size = (0.5 * f64::from(width.min(height))).clamp(0.0, 18.0);
            if size >= 8.0 {
                let middle = ((one.0 + other.0) / 2, (one.1 + other.1) / 2);
                text(area, &owner.to_string(), middle, size, HPos::Center)?;
            }
        }
        Ok(())
    }

    fn draw_behind<B: DrawingBackend>(&self, area: &Area<B>, canvas: &Canvas) -> Drawn<B> {
        for (owner, [one, other]) in self.bands(canvas) {
            area.draw(&Rectangle::new([one, other], colour(owner).filled()))?;
            let long = (other.0 - one.0).max(other.1 - one.1);
            if long >= 24 {
                let middle = ((one.0 + other.0) / 2, (one.1 + other.1) / 2);
                text(area, &owner.to_string(), middle, 10.0, HPos::Center)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::{PatchGrid, Pivot};

    fn sphere() -> PatchDecomposition {
        PatchGrid::cubed_sphere(8).unwrap().decompose(24).unwrap()
    }

    #[test]
    fn every_cell_behind_a_joined_side_has_an_owner() {
        let found = behind(&sphere()).unwrap();
        for patch in 0..6 {
            for side in
                [PatchSide::low, PatchSide::high].map(|side| [side(patch, 0), side(patch, 1)]).concat()
            {
                let parts: Vec<_> = found.iter().filter(|one| one.side == side).collect();
                assert_eq!(parts[0].cells[0], 0, "{side}");
                assert_eq!(parts[parts.len() - 1].cells[1], 8, "{side}");
                assert!(parts.windows(2).all(|two| two[0].cells[1] == two[1].cells[0]), "{side}: {parts:?}");
            }
        }
        // North of tile 0 lies the western side of tile 2, from its last row to its first: ranks 10 and 8.
        let north: Vec<usize> =
            found.iter().filter(|one| one.side == PatchSide::high(0, 0)).map(|one| one.owner).collect();
        assert_eq!(north, [10, 8]);
    }

    #[test]
    fn every_cell_behind_a_fold_has_an_owner() {
        for pivot in [Pivot::Cell, Pivot::Corner] {
            let cut = PatchGrid::tripolar([6, 8], pivot).unwrap().decompose_into(&[[1, 4]], 4).unwrap();
            let found = behind(&cut).unwrap();
            let north = found.iter().filter(|one| one.side == PatchSide::high(0, 0));
            let covered: i64 = north.map(|one| one.cells[1] - one.cells[0]).sum();
            assert_eq!(covered, 8, "{pivot:?}");
        }
    }

    #[test]
    fn bands_of_different_sides_do_not_overlap() {
        let names = ["cubed:8", "llc:8", "latlon:8x12", "tripolar:8x12:cell"];
        for layout in names.map(|name| name.parse::<PatchLayout>().unwrap()) {
            let cut = layout.grid().unwrap().decompose(24).unwrap();
            let picture = PatchPicture::new(layout, &cut).unwrap();
            let bands = picture.bands(&picture.canvas());
            assert_eq!(bands.len(), picture.behind.len());
            // Shortened by no more than the width of a band.
            for ((_, [one, other]), behind) in bands.iter().zip(&picture.behind) {
                let patch = &picture.net.patches[behind.side.patch];
                let [first, last] = picture.canvas().band(patch, behind.side, behind.cells);
                let lost = last.0 - first.0 + last.1 - first.1 - (other.0 - one.0 + other.1 - one.1);
                assert!((0..=20).contains(&lost), "{layout}: {behind:?} is {lost} pixels shorter");
            }
            for (at, (_, [one, other])) in bands.iter().enumerate() {
                for (_, [first, last]) in &bands[at + 1..] {
                    let is_apart =
                        last.0 <= one.0 || first.0 >= other.0 || last.1 <= one.1 || first.1 >= other.1;
                    assert!(is_apart, "{layout}: {one:?} to {other:?} and {first:?} to {last:?}");
                }
            }
        }
    }

    #[test]
    fn blocks_and_bands_have_the_colours_of_their_owners() {
        let layout = PatchLayout::Cubed(8);
        let picture = PatchPicture::new(layout, &sphere()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sphere.png");
        crate::plot::save(&file, &picture).unwrap();
        let mut decoder = png::Decoder::new(std::io::Cursor::new(std::fs::read(file).unwrap()));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        assert_eq!((width as u32, height as u32), picture.size());
        let mut pixels = vec![0; 3 * width * height];
        reader.next_frame(&mut pixels).unwrap();
        let at = |(x, y): (i32, i32)| {
            let first = 3 * (y as usize * width + x as usize);
            [pixels[first], pixels[first + 1], pixels[first + 2]]
        };
        let canvas = picture.canvas();
        for (block, owner) in &picture.blocks {
            // Beside its first corner: its number is in the middle.
            let patch = &picture.net.patches[block.patch];
            let low = block.first.map(|first| first as i64);
            let [one, _] = canvas.rectangle(patch.rectangle([low, [low[0] + 1, low[1] + 1]]));
            assert_eq!(at((one.0 + 4, one.1 + 4)), of_rank(*owner as u32), "{block:?}");
        }
        let tile = &picture.net.patches[0];
        let [one, _] = canvas.band(tile, PatchSide::high(0, 0), [0, 4]);
        assert_eq!(at((one.0 + 2, one.1 + 2)), of_rank(10));
    }
}
