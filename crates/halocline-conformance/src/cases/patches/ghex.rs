//! GHEX's case of six tiles (GHEX 0.9, `test/structured/cubed_sphere`), with the transforms of its table as the oracle.
//!
//! Its tiles have the same numbers and directions as here; x counts columns, y counts rows. Each tile is cut into four parts, and
//! values tell their place. The components of GHEX's vectors keep their numbers across a turned edge. Here each comes from the
//! component that points in its direction, with the sign that GHEX gives.

use crate::stage::Stage;
use crate::{Outcome, Trouble, ensure};
use halocline::{Array, Halo, HaloExchange, PatchDecomposition, PatchGrid, Pattern, Quantity};

/// Cells along a side of a tile, and of a part.
const EDGE: i64 = 10;
const PART: i64 = 5;
const WIDTH: i64 = 2;
const LEVELS: usize = 7;
/// The value of cells that an exchange must not change.
const EMPTY: f32 = -1.0;

/// The components of GHEX's vectors.
const X: usize = 0;
const Y: usize = 1;

/// The tiles at the sides of each tile: at low x, high x, low y, high y.
const NEIGHBOURS: [[usize; 4]; 6] =
    [[4, 1, 5, 2], [0, 3, 5, 2], [0, 3, 1, 4], [2, 5, 1, 4], [2, 5, 3, 0], [4, 1, 3, 0]];

/// A cell of a tile, seen from another one.
struct Cell {
    tile: usize,
    at: [i64; 2],
    /// Whether x there is y here.
    is_turned: bool,
    /// The component here that changes its sign.
    negated: Option<usize>,
}

impl Cell {
    /// The cell at x and y of a tile, which may lie beyond one of its sides; `None` behind a corner.
    fn new(tile: usize, [x, y]: [i64; 2]) -> Option<Self> {
        let inside = 0..EDGE;
        let side = match (inside.contains(&x), inside.contains(&y)) {
            (true, true) => return Some(Self { tile, at: [x, y], is_turned: false, negated: None }),
            (false, true) => usize::from(x >= EDGE),
            (true, false) => 2 + usize::from(y >= EDGE),
            (false, false) => return None,
        };
        let is_even = tile.is_multiple_of(2);
        let (at, negated) = match (is_even, side) {
            (true, 0) => ([EDGE - 1 - y, EDGE + x], Some(Y)),
            (true, 3) => ([y - EDGE, EDGE - 1 - x], Some(X)),
            (false, 1) => ([EDGE - 1 - y, x - EDGE], Some(Y)),
            (false, 2) => ([EDGE + y, EDGE - 1 - x], Some(X)),
            _ => ([x.rem_euclid(EDGE), y.rem_euclid(EDGE)], None),
        };
        Some(Self { tile: NEIGHBOURS[tile][side], at, is_turned: negated.is_some(), negated })
    }

    /// GHEX's value of a component on a level.
    fn value(&self, component: usize, level: usize) -> f32 {
        let [x, y] = self.at;
        let part = x / PART + 2 * (y / PART);
        let numbers = 100_000 * (self.tile + 1) + 1000 * component + level;
        (numbers as i64 + 10_000 * part + 100 * (x % PART) + 10 * (y % PART)) as f32
    }
}

pub(super) fn six_tiles(comm: &Stage<'_>) -> Outcome {
    let cut = PatchGrid::cubed_sphere(EDGE as usize)?.decompose_into(&[[2, 2]; 6], comm.size())?;
    let scalars = |_: usize, cell: &Cell, component: usize, level: usize| cell.value(component, level);
    check(comm, (&cut, &Quantity::cells(), 3), scalars)?;
    let vectors = |along: usize, cell: &Cell, _: usize, level: usize| {
        // Component 0 points along the rows' axis, which is y.
        let component = if along == 0 { Y } else { X };
        let source = if cell.is_turned { 1 - component } else { component };
        let sign = if cell.negated == Some(component) { -1.0 } else { 1.0 };
        sign * cell.value(source, level)
    };
    check(comm, (&cut, &Quantity::cell_vectors(), 1), vectors)
}

/// Exchanges fields with this many values on each level, and compares all cells. `expected` is called with the component of the quantity, a
/// cell, and the number of the value and the level.
fn check(
    comm: &Stage<'_>,
    (cut, quantity, values): (&PatchDecomposition, &Quantity, usize),
    expected: impl Fn(usize, &Cell, usize, usize) -> f32,
) -> Outcome {
    let pattern = Pattern::patches(comm, cut, quantity, &Halo::uniform(WIDTH as usize))?;
    // The tile, and x and y of the first cell of each array.
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for component in 0..quantity.components() {
        let pattern = match quantity.components() {
            1 => pattern.clone(),
            _ => pattern.component(component)?,
        };
        for domain in pattern.domains() {
            let block = cut.values(domain.number(), quantity, component);
            let block = block.ok_or_else(|| Trouble::new("no such domain"))?;
            let extents = [&domain.extents()[..], &[LEVELS, values]].concat();
            let array = Array::<f32>::zeros(comm, &extents)?;
            let first = [1, 0].map(|axis| block.first[axis] as i64 - WIDTH);
            let owned = domain.owned();
            let is_owned = |at: [usize; 2]| (0..2).all(|axis| owned[axis].contains(&at[axis]));
            let mut cells = array.write()?;
            for (index, value) in cells.iter_mut().enumerate() {
                let (at, cell, number, level) = place(index, &extents, (block.patch, first));
                let own = cell.filter(|_| is_owned(at));
                *value = own.map_or(EMPTY, |cell| expected(component, &cell, number, level));
            }
            drop(cells);
            fields.push((pattern.clone(), array.on_domain(domain.number())));
            arrays.push((component, extents, (block.patch, first), array));
        }
    }
    let bound: Vec<_> = fields.iter().map(|(pattern, field)| (pattern, field)).collect();
    HaloExchange::bind(comm, &bound)?.exchange()?.wait()?;
    for (component, extents, origin, array) in &arrays {
        for (index, &value) in array.read()?.iter().enumerate() {
            let (at, cell, number, level) = place(index, extents, *origin);
            let expected = cell.map_or(EMPTY, |cell| expected(*component, &cell, number, level));
            ensure!(
                value == expected,
                "tile {}, component {component}, row {}, column {}: {value} instead of {expected}",
                origin.0,
                at[0],
                at[1]
            );
        }
    }
    Ok(())
}

/// Row and column of an element of an array, the cell there, the number of the value and the level.
fn place(
    index: usize,
    extents: &[usize],
    (tile, first): (usize, [i64; 2]),
) -> ([usize; 2], Option<Cell>, usize, usize) {
    let (number, index) = (index % extents[3], index / extents[3]);
    let (level, index) = (index % LEVELS, index / LEVELS);
    let (row, column) = (index / extents[1], index % extents[1]);
    ([row, column], Cell::new(tile, [first[0] + column as i64, first[1] + row as i64]), number, level)
}
