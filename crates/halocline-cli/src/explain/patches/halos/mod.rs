//! `--plot-halos`: which cell each halo cell of a grid of patches copies.

mod picture;
mod sheet;
#[cfg(test)]
mod tests;

use super::layout::{PatchLayout, Values};
use crate::error::CommandError;
use crate::{options, plot};
use halocline::plan::{AxisMap, BoxCells, Cells, Transfer};
use halocline::{Halo, PatchGrid, PatternError};
use picture::HaloPicture;
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::Path;

/// A cell by its row and column in a patch. Those of halo cells lie outside of the patch.
type Cell = [i64; 2];

/// What a cell copies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    patch: usize,
    cell: Cell,
    /// How the axes of the source map to those of the patch.
    map: AxisMap,
    /// The source of each component of a vector; empty for scalars.
    components: Vec<Component>,
}

/// A component of a vector, and whether it changes its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Component {
    number: usize,
    is_negated: bool,
}

/// The cells that an exchange fills, for each patch as a whole, and what they copy.
#[derive(Debug)]
struct HaloMap {
    grid: PatchGrid,
    width: usize,
    is_vector: bool,
    sources: Vec<BTreeMap<Cell, Source>>,
}

impl HaloMap {
    fn new(grid: PatchGrid, values: Values, width: usize) -> Result<Self, PatternError> {
        let quantity = values.quantity();
        let patches = grid.extents().len();
        let whole = grid.decompose_into(&vec![[1, 1]; patches], 1)?;
        let mut transfers = whole.pattern_of(0, &quantity, &Halo::uniform(width))?.local;
        let components = quantity.components() as u64;
        transfers.sort_by_key(|transfer| transfer.to % components);
        let is_vector = components == 2;
        let mut map = Self { grid, width, is_vector, sources: vec![BTreeMap::new(); patches] };
        for transfer in &transfers {
            map.add(transfer, components);
        }
        Ok(map)
    }

    /// Adds the cells of a transfer between whole patches, each of which is a domain.
    fn add(&mut self, transfer: &Transfer, components: u64) {
        let (Cells::Box(from), Cells::Box(to)) = (&transfer.source, &transfer.target) else { return };
        let [source_patch, target_patch] =
            [transfer.from, transfer.to].map(|domain| (domain / components) as usize);
        let number = (transfer.from % components) as usize;
        let component = Component { number, is_negated: transfer.is_negated };
        for row in 0..to.extent[0] as i64 {
            for column in 0..to.extent[1] as i64 {
                let cell = [to.low[0] + row, to.low[1] + column];
                let source = self.sources[target_patch].entry(cell).or_insert_with(|| Source {
                    patch: source_patch,
                    cell: source_cell(transfer.map, from, to, [row, column]),
                    map: transfer.map,
                    components: Vec::new(),
                });
                if components == 2 {
                    source.components.push(component);
                }
            }
        }
    }
}

/// The cell of a source for a cell of the target, counted from its first one.
fn source_cell(map: AxisMap, from: &BoxCells, to: &BoxCells, step: Cell) -> Cell {
    let mut cell = [0; 2];
    for (axis, step) in step.into_iter().enumerate() {
        let along = map.source_axis(axis);
        let last = to.extent[axis] as i64 - 1;
        cell[along] = from.low[along] + if map.is_flipped(axis) { last - step } else { step };
    }
    cell
}

/// Refuses values that are not drawn, and grids that are too large for a picture.
pub(super) fn check(layout: PatchLayout, values: Values, width: usize) -> Result<(), CommandError> {
    sheet(layout, values, width).map(drop)
}

fn sheet(layout: PatchLayout, values: Values, width: usize) -> Result<Sheet, CommandError> {
    if !matches!(values, Values::Cells | Values::CellVectors) {
        return Err(CommandError::usage(format!(
            "`--plot-halos` with `--quantity {}`; it draws values at the centres of cells, so give cells or cell-vectors",
            options::name(&values)
        )));
    }
    Sheet::new(&layout.grid()?, width).ok_or_else(|| {
        CommandError::usage(format!(
            "`--plot-halos` of {layout} with a halo of {width}: a picture has no room for so many cells; draw a coarser grid, \
             such as cubed:3, or a narrower halo"
        ))
    })
}

/// Draws the halo of each patch.
pub(super) fn draw(
    layout: PatchLayout,
    values: Values,
    width: usize,
    path: &Path,
) -> Result<(), CommandError> {
    let sheet = sheet(layout, values, width)?;
    let map = HaloMap::new(layout.grid()?, values, width)?;
    plot::save(path, &HaloPicture::new(layout, map, sheet))
}
