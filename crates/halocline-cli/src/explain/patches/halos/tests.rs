//! What is drawn in each cell is what an exchange brings there.

use super::super::layout::{PatchLayout, Values};
use super::picture::HaloPicture;
use super::sheet::Sheet;
use super::{Cell, HaloMap};
use halocline::{Array, Communicator, Halo, HaloExchange, PatchSide, Pattern, Pivot};
use std::collections::HashMap;

/// Values by component, patch and cell. Halo cells that nothing fills are left out.
type Exchanged = HashMap<(usize, usize, Cell), f64>;

fn number(component: usize, patch: usize, [row, column]: Cell) -> f64 {
    ((2 * patch + component) * 10_000) as f64 + (100 * row + column + 1) as f64
}

/// Component, patch and cell of a number.
fn meaning(number: f64) -> (usize, usize, Cell) {
    let (whole, at) = (number.abs() as i64 / 10_000, number.abs() as i64 % 10_000 - 1);
    (whole as usize % 2, whole as usize / 2, [at / 100, at % 100])
}

/// Exchanges whole patches, which one rank owns.
fn exchanged(layout: PatchLayout, values: Values, width: usize) -> Exchanged {
    let comm = Communicator::single();
    let grid = layout.grid().unwrap();
    let cut = grid.decompose_into(&vec![[1, 1]; grid.extents().len()], 1).unwrap();
    let quantity = values.quantity();
    let pattern = Pattern::patches(&comm, &cut, &quantity, &Halo::uniform(width)).unwrap();
    let (mut arrays, mut fields) = (Vec::new(), Vec::new());
    for component in 0..quantity.components() {
        let pattern =
            if quantity.components() == 1 { pattern.clone() } else { pattern.component(component).unwrap() };
        for domain in pattern.domains() {
            let patch = cut.block(domain.number()).unwrap().patch;
            let array = Array::<f64>::zeros(&comm, &domain.extents()).unwrap();
            let columns = domain.extents()[1];
            for (at, value) in array.write().unwrap().iter_mut().enumerate() {
                let cell = [at / columns, at % columns].map(|at| at as i64 - width as i64);
                let is_owned =
                    (0..2).all(|axis| (0..grid.extents()[patch][axis] as i64).contains(&cell[axis]));
                *value = if is_owned { number(component, patch, cell) } else { f64::NAN };
            }
            fields.push((pattern.clone(), array.on_domain(domain.number())));
            arrays.push((component, patch, columns, array));
        }
    }
    let pairs: Vec<_> = fields.iter().map(|(pattern, field)| (pattern, field)).collect();
    HaloExchange::bind(&comm, &pairs).unwrap().exchange().unwrap().wait().unwrap();
    let mut found = Exchanged::new();
    for (component, patch, columns, array) in &arrays {
        for (at, value) in array.read().unwrap().iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let cell = [at / columns, at % columns].map(|at| at as i64 - width as i64);
            found.insert((*component, *patch, cell), *value);
        }
    }
    found
}

/// The texts of a picture by their places.
fn texts(picture: &HaloPicture) -> HashMap<(i32, i32), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("halos.svg");
    crate::plot::save(&file, picture).unwrap();
    let svg = std::fs::read_to_string(file).unwrap();
    let texts = svg.lines().filter_map(|line| line.strip_prefix("<text x=\""));
    texts
        .map(|text| {
            let (x, rest) = text.split_once("\" y=\"").unwrap();
            let (y, rest) = rest.split_once('"').unwrap();
            let words = rest.split_once('>').unwrap().1.strip_suffix("</text>").unwrap();
            ((x.parse().unwrap(), y.parse().unwrap()), words.to_owned())
        })
        .collect()
}

fn picture(layout: PatchLayout, values: Values, width: usize) -> HaloPicture {
    let grid = layout.grid().unwrap();
    let sheet = Sheet::new(&grid, width).unwrap();
    HaloPicture::new(layout, HaloMap::new(grid, values, width).unwrap(), sheet)
}

/// Compares all texts in cells with values that were exchanged.
fn check(layout: PatchLayout, values: Values, width: usize) {
    let (picture, found) = (picture(layout, values, width), exchanged(layout, values, width));
    let drawn = texts(&picture);
    let grid = layout.grid().unwrap();
    let mut filled = 0;
    for patch in 0..grid.extents().len() {
        for cell in picture.cells(patch) {
            let of = |component| found.get(&(component, patch, cell)).copied();
            let expected = of(0).map(|value| {
                let (_, patch, [row, column]) = meaning(value);
                let sign =
                    if value < 0.0 && of(1).is_some_and(|other| other < 0.0) { "\u{2212}" } else { "" };
                match grid.extents().len() {
                    1 => format!("{sign}{row},{column}"),
                    _ => format!("{sign}{patch}.{row}{column}"),
                }
            });
            filled += usize::from(expected.is_some());
            let [one, other] = picture.sheet.cells(patch, cell, cell.map(|at| at + 1));
            let shown = drawn.get(&((one.0 + other.0) / 2, (one.1 + other.1) / 2));
            assert_eq!(shown, expected.as_ref(), "{layout}, patch {patch}, cell {cell:?}");
            if let (Some(source), Some(_)) = (picture.map.sources[patch].get(&cell), of(1)) {
                for (component, of_source) in source.components.iter().enumerate() {
                    let value = of(component).unwrap();
                    let expected = (of_source.number, source.patch, source.cell);
                    assert_eq!(meaning(value), expected, "{layout}, patch {patch}, cell {cell:?}");
                    assert_eq!(value < 0.0, of_source.is_negated, "{layout}, patch {patch}, cell {cell:?}");
                }
            }
        }
    }
    assert!(filled > grid.extents().len() * 8, "{layout}: {filled} cells");
}

#[test]
fn cells_show_what_an_exchange_brings() {
    for layout in [
        PatchLayout::Cubed(3),
        PatchLayout::LatLonCap(2),
        PatchLayout::LatLon([4, 8]),
        PatchLayout::Tripolar([4, 8], Pivot::Corner),
        PatchLayout::Tripolar([4, 8], Pivot::Cell),
    ] {
        for values in [Values::Cells, Values::CellVectors] {
            (1..=2).for_each(|width| check(layout, values, width));
        }
    }
}

#[test]
fn notes_beside_sides_are_those_of_the_cells_behind_them() {
    let drawn = |layout, side: PatchSide| {
        let picture = picture(layout, Values::CellVectors, 1);
        let source = picture.behind(side).unwrap();
        (
            source.patch,
            source.components.iter().map(|part| (part.number, part.is_negated)).collect::<Vec<_>>(),
        )
    };
    // West of tile 0, columns of tile 4 run as rows, backwards.
    assert_eq!(drawn(PatchLayout::Cubed(3), PatchSide::low(0, 1)), (4, vec![(1, true), (0, false)]));
    let fold = drawn(PatchLayout::Tripolar([4, 8], Pivot::Cell), PatchSide::high(0, 0));
    assert_eq!(fold, (0, vec![(0, true), (1, true)]));
    let picture = picture(PatchLayout::Cubed(3), Values::CellVectors, 1);
    let words: Vec<String> = texts(&picture).into_values().collect();
    assert_eq!(words.iter().filter(|words| *words == "v0 = \u{2212}v1").count(), 6);
}

#[test]
fn a_picture_has_room_for_its_patches() {
    for (layout, width) in
        [(PatchLayout::Cubed(20), 2), (PatchLayout::LatLonCap(9), 1), (PatchLayout::LatLon([40, 80]), 3)]
    {
        let grid = layout.grid().unwrap();
        let sheet = Sheet::new(&grid, width).unwrap();
        let boxes: Vec<_> = (0..grid.extents().len()).map(|patch| sheet.with_halo(patch)).collect();
        for (at, [one, other]) in boxes.iter().enumerate() {
            assert!(one.0 >= 0 && other.0 <= sheet.size.0 as i32, "{layout}, patch {at}");
            assert!(one.1 >= 0 && other.1 <= sheet.size.1 as i32, "{layout}, patch {at}");
            let is_apart = |[first, last]: &[(i32, i32); 2]| {
                last.0 < one.0 || first.0 > other.0 || last.1 < one.1 || first.1 > other.1
            };
            assert!(boxes[at + 1..].iter().all(is_apart), "{layout}, patch {at}");
        }
    }
    assert!(Sheet::new(&PatchLayout::Cubed(64).grid().unwrap(), 1).is_none());
    assert!(Sheet::new(&PatchLayout::Cubed(4).grid().unwrap(), usize::MAX).is_none());
}
