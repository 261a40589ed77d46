//! `--plot-halos`: which value each halo value of a grid of patches copies.

mod picture;
mod places;
mod sheet;
#[cfg(test)]
mod tests;

use super::super::args::GridArgs;
use super::layout::{PatchLayout, Values};
use crate::error::CommandError;
use crate::{options, plot};
use halocline::plan::{AxisMap, BoxCells, Cells, Transfer};
use halocline::{Along, Halo, PatchGrid, PatternError};
use picture::HaloPicture;
use places::ValuePlace;
use sheet::Sheet;
use std::collections::BTreeMap;
use std::path::Path;

/// A value by its row and column in a patch. Those of halo values lie outside of the values that the patch holds.
type Cell = [i64; 2];

const MINUS: &str = "\u{2212}";

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

impl Component {
    /// Its sign and name, such as `−v1`.
    fn name(self) -> String {
        format!("{}v{}", if self.is_negated { MINUS } else { "" }, self.number)
    }
}

/// The values that an exchange fills, for each patch as a whole, and what they copy.
#[derive(Debug)]
struct HaloMap {
    grid: PatchGrid,
    width: usize,
    place: ValuePlace,
    /// The components that are drawn: both of a vector if they lie at the same places. None of a scalar.
    components: Vec<usize>,
    sources: Vec<BTreeMap<Cell, Source>>,
}

impl HaloMap {
    fn new(shown: &Shown) -> Result<Self, PatternError> {
        let (grid, quantity) = (shown.grid.clone(), shown.values.quantity());
        let patches = grid.extents().len();
        let whole = grid.decompose_into(&vec![[1, 1]; patches], 1)?;
        let mut transfers = whole.pattern_of(0, &quantity, &Halo::uniform(shown.width))?.local;
        let of_all = quantity.components();
        transfers.sort_by_key(|transfer| transfer.to % of_all as u64);
        let components = match (of_all, shown.place().is_centred()) {
            (1, _) => Vec::new(),
            (_, true) => vec![0, 1],
            (_, false) => vec![shown.component],
        };
        let sources = vec![BTreeMap::new(); patches];
        let mut map = Self { grid, width: shown.width, place: shown.place(), components, sources };
        for transfer in &transfers {
            map.add(transfer, of_all as u64);
        }
        Ok(map)
    }

    /// Adds the values of a transfer between whole patches, each of which has a domain for each component.
    fn add(&mut self, transfer: &Transfer, components: u64) {
        let (Cells::Box(from), Cells::Box(to)) = (&transfer.source, &transfer.target) else { return };
        let [source_patch, target_patch] =
            [transfer.from, transfer.to].map(|domain| (domain / components) as usize);
        if components == 2 && !self.components.contains(&((transfer.to % components) as usize)) {
            return;
        }
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

    /// Rows and columns of the values that a patch holds.
    fn counts(&self, patch: usize) -> Cell {
        self.place.counts(self.grid.extents()[patch])
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

/// What a picture shows.
#[derive(Debug)]
pub(super) struct Shown {
    layout: PatchLayout,
    grid: PatchGrid,
    values: Values,
    /// Of a vector whose components lie at different places.
    component: usize,
    width: usize,
}

impl Shown {
    /// Refuses a component that is not drawn by itself.
    pub(super) fn new(args: &GridArgs, layout: PatchLayout) -> Result<Self, CommandError> {
        let (values, component) = (args.quantity, args.component);
        let shown = Self {
            layout,
            grid: super::grid(args, layout)?,
            values,
            component: component.unwrap_or(0).into(),
            width: args.halo,
        };
        if component.is_some() && (values.quantity().components() == 1 || shown.place().is_centred()) {
            return Err(CommandError::usage(format!(
                "`--component` with `--quantity {}`; it chooses between the pictures of a vector whose components lie at different \
                 places, such as c-grid: leave it out",
                options::name(&values)
            )));
        }
        Ok(shown)
    }

    fn place(&self) -> ValuePlace {
        ValuePlace(self.values.quantity().place(self.component).unwrap_or([Along::Centre; 2]))
    }

    /// Refuses grids that are too large for a picture.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        self.sheet().map(drop)
    }

    fn sheet(&self) -> Result<Sheet, CommandError> {
        let Self { layout, grid, width, .. } = self;
        Sheet::new(grid, *width, self.place()).ok_or_else(|| {
            CommandError::usage(format!(
                "`--plot-halos` of {layout} with a halo of {width}: a picture has no room for so many cells; draw a grid of fewer \
                 cells, or a narrower halo"
            ))
        })
    }

    /// Draws the halo of each patch.
    pub(super) fn draw(&self, path: &Path) -> Result<(), CommandError> {
        plot::save(path, &HaloPicture::new(self.layout, HaloMap::new(self)?, self.sheet()?))
    }
}
