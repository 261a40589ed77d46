//! What is drawn in each cell is what an exchange brings there.

use super::super::layout::{PatchLayout, Values};
use super::picture::{HaloPicture, below};
use super::places::ValuePlace;
use super::sheet::Sheet;
use super::{Cell, HaloMap, Shown};
use halocline::{Along, Array, Communicator, Corners, Halo, HaloExchange, PatchSide, Pattern, Pivot};
use std::collections::HashMap;

const CENTRES: ValuePlace = ValuePlace([Along::Centre; 2]);

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
fn exchanged(Shown { grid, values, width, .. }: &Shown) -> Exchanged {
    let (comm, width) = (Communicator::single(), *width);
    let cut = grid.decompose_into(&vec![[1, 1]; grid.extents().len()], 1).unwrap();
    let quantity = values.quantity();
    let pattern = Pattern::patches(&comm, &cut, &quantity, &Halo::uniform(width)).unwrap();
    let (mut arrays, mut fields) = (Vec::new(), Vec::new());
    for component in 0..quantity.components() {
        let pattern =
            if quantity.components() == 1 { pattern.clone() } else { pattern.component(component).unwrap() };
        for domain in pattern.domains() {
            let held = cut.values(domain.number(), &quantity, component).unwrap();
            let patch = held.patch;
            let array = Array::<f64>::zeros(&comm, &domain.extents()).unwrap();
            let columns = domain.extents()[1];
            for (at, value) in array.write().unwrap().iter_mut().enumerate() {
                let cell = [at / columns, at % columns].map(|at| at as i64 - width as i64);
                let is_owned = (0..2).all(|axis| (0..held.extents[axis] as i64).contains(&cell[axis]));
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

fn shown(layout: PatchLayout, values: Values, width: usize) -> Shown {
    Shown { layout, grid: layout.grid().unwrap(), values, component: 0, width }
}

fn picture(shown: &Shown) -> HaloPicture {
    HaloPicture::new(shown.layout, HaloMap::new(shown).unwrap(), shown.sheet().unwrap())
}

/// What is written below a name: the component of the value, if the picture shows the other one alone; what both of a vector copy in a
/// corner, unless both keep their place and have the same sign.
fn line_below(
    picture: &HaloPicture,
    patch: usize,
    [row, column]: Cell,
    of: impl Fn(usize) -> Option<f64>,
) -> Option<String> {
    if let [own] = picture.map.components[..] {
        let (number, ..) = meaning(of(own)?);
        return (number != own).then(|| format!("v{number}"));
    }
    let values = [of(0)?, of(1)?];
    let [rows, columns] = picture.map.counts(patch);
    let is_corner = !(0..rows).contains(&row) && !(0..columns).contains(&column);
    let words = values.map(|value| {
        let sign = if value < 0.0 { "\u{2212}" } else { "" };
        format!("{sign}v{}", meaning(value).0)
    });
    let is_plain = matches!([&words[0][..], &words[1][..]], ["v0", "v1"] | ["\u{2212}v0", "\u{2212}v1"]);
    (is_corner && !is_plain).then(|| words.join(" "))
}

/// Compares all texts in the squares of values with values that were exchanged. Returns how many have one.
fn check(shown: &Shown) -> usize {
    let (picture, found) = (picture(shown), exchanged(shown));
    let (drawn, Shown { layout, grid, .. }) = (texts(&picture), shown);
    let components = picture.map.components.clone();
    let (mut filled, mut below_names) = (0, 0);
    for patch in 0..grid.extents().len() {
        for cell in picture.cells(patch) {
            let of = |component| found.get(&(component, patch, cell)).copied();
            let expected = of(shown.component).map(|value| {
                let (_, patch, [row, column]) = meaning(value);
                let is_negated = !components.is_empty()
                    && components.iter().all(|&component| of(component).is_some_and(|value| value < 0.0));
                match (grid.extents().len(), is_negated) {
                    (1, false) => format!("{row},{column}"),
                    (1, true) => format!("\u{2212}({row},{column})"),
                    (_, false) => format!("{patch}.{row}{column}"),
                    (_, true) => format!("\u{2212}{patch}.{row}{column}"),
                }
            });
            filled += usize::from(expected.is_some());
            let [one, other] = picture.sheet.rectangle(patch, picture.map.place.square(cell));
            let middle = ((one.0 + other.0) / 2, (one.1 + other.1) / 2);
            let shown = drawn.get(&middle);
            assert_eq!(shown, expected.as_ref(), "{layout}, patch {patch}, cell {cell:?}");
            let expected = line_below(&picture, patch, cell, of);
            let shown = drawn.get(&(middle.0, middle.1 + below(picture.letters())));
            let is_line = |text: &&String| text.trim_start_matches('\u{2212}').starts_with('v');
            assert_eq!(shown.filter(is_line), expected.as_ref(), "{layout}, patch {patch}, cell {cell:?}");
            below_names += usize::from(expected.is_some());
            if let Some(source) = picture.map.sources[patch].get(&cell) {
                assert_eq!(
                    source.components.len(),
                    components.len(),
                    "{layout}, patch {patch}, cell {cell:?}"
                );
                for (&component, of_source) in components.iter().zip(&source.components) {
                    let value = of(component).unwrap();
                    let expected = (of_source.number, source.patch, source.cell);
                    assert_eq!(meaning(value), expected, "{layout}, patch {patch}, cell {cell:?}");
                    assert_eq!(value < 0.0, of_source.is_negated, "{layout}, patch {patch}, cell {cell:?}");
                }
            }
        }
    }
    assert!(filled > grid.extents().len() * 8, "{layout}: {filled} cells");
    // Rows become columns across sides of these two, so that components change their number.
    let turns = matches!(layout, PatchLayout::Cubed(_) | PatchLayout::LatLonCap(_));
    let has_lines = match components.len() {
        1 => turns,
        components => components == 2 && grid.corner_fill() != Corners::Open,
    };
    assert!(below_names > 0 || !has_lines, "{layout}");
    filled
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
            for width in 1..=2 {
                check(&shown(layout, values, width));
            }
        }
    }
}

#[test]
fn staggered_values_show_what_an_exchange_brings() {
    let (corner, cell) =
        (PatchLayout::Tripolar([4, 8], Pivot::Corner), PatchLayout::Tripolar([4, 8], Pivot::Cell));
    let faces = [Values::Corners, Values::CGrid, Values::DGrid];
    let high = [Values::HighCorners, Values::HighFaces];
    let low = [Values::LowCorners, Values::LowFaces];
    let all = [
        (PatchLayout::Cubed(3), [&faces[..], &high, &low].concat()),
        (PatchLayout::LatLonCap(2), [&faces[..], &low].concat()),
    ];
    let folded = [
        (corner, [&faces[..], &high].concat()),
        (cell, [&faces[..], &high, &low].concat()),
        (PatchLayout::LatLon([4, 8]), faces.to_vec()),
    ];
    for (layout, quantities) in all.into_iter().chain(folded) {
        for values in quantities {
            for component in 0..values.quantity().components() {
                // Names of several patches with wider halos do not fit.
                for width in 1..=if layout.grid().unwrap().extents().len() == 1 { 2 } else { 1 } {
                    check(&Shown { component, ..shown(layout, values, width) });
                }
            }
        }
    }
}

#[test]
fn corners_that_are_filled_show_what_an_exchange_brings() {
    for layout in [PatchLayout::Cubed(3), PatchLayout::LatLonCap(3)] {
        for (values, width, axis) in
            [(Values::Cells, 2, 0), (Values::CellVectors, 2, 1), (Values::CGrid, 1, 0)]
        {
            let open = shown(layout, values, width);
            let filled =
                Shown { grid: open.grid.clone().corners(Corners::ThroughAxis(axis)).unwrap(), ..open };
            let open = check(&shown(layout, values, width));
            assert!(check(&filled) > open, "{layout}, {values:?}");
        }
    }
}

#[test]
fn notes_beside_sides_are_those_of_the_cells_behind_them() {
    let drawn = |layout, side: PatchSide| {
        let picture = picture(&shown(layout, Values::CellVectors, 1));
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
    let picture = picture(&shown(PatchLayout::Cubed(3), Values::CellVectors, 1));
    let words: Vec<String> = texts(&picture).into_values().collect();
    assert_eq!(words.iter().filter(|words| *words == "v0 = \u{2212}v1").count(), 6);
    // Of one component, its own line alone.
    let staggered = shown(PatchLayout::Cubed(3), Values::CGrid, 1);
    let words: Vec<String> =
        texts(&self::picture(&Shown { component: 1, ..staggered })).into_values().collect();
    assert_eq!(words.iter().filter(|words| *words == "v1 = \u{2212}v0").count(), 6);
    assert!(!words.iter().any(|words| words.starts_with("v0 =")));
}

#[test]
fn a_picture_has_room_for_its_patches() {
    for (layout, width) in
        [(PatchLayout::Cubed(20), 2), (PatchLayout::LatLonCap(9), 1), (PatchLayout::LatLon([40, 80]), 3)]
    {
        let grid = layout.grid().unwrap();
        let sheet = Sheet::new(&grid, width, CENTRES).unwrap();
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
    assert!(Sheet::new(&PatchLayout::Cubed(64).grid().unwrap(), 1, CENTRES).is_none());
    assert!(Sheet::new(&PatchLayout::Cubed(4).grid().unwrap(), usize::MAX, CENTRES).is_none());
}
