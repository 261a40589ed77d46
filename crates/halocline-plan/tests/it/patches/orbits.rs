//! Folds and poles beside orbits: from a value, all symmetries of the grid are applied until no further place is found. Of
//! the places that the patch holds, without those behind a fold, the lowest one owns the value.

use super::{exchange, filled, parts, plans, shapes};
use halocline_plan::{Along, Halo, PatchError, PatchGrid, PatchSide, PatternError, Pivot, Quantity, Seam};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What lies behind the northern or the southern side.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Border,
    Pole,
    Fold(Pivot),
}

const ENDS: [End; 4] = [End::Border, End::Pole, End::Fold(Pivot::Corner), End::Fold(Pivot::Cell)];

/// A patch around the Earth.
#[derive(Debug, Clone, Copy)]
struct Globe {
    rows: i64,
    columns: i64,
    south: End,
    north: End,
}

/// A place in half cells, and whether a vector has the other sign there. Columns count around the Earth.
type Place = (i64, i64, bool);

impl Globe {
    fn grid(&self) -> Result<PatchGrid, PatternError> {
        let mut seams = vec![Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1))];
        for (side, end) in [(PatchSide::low(0, 0), self.south), (PatchSide::high(0, 0), self.north)] {
            match end {
                End::Border => {}
                End::Pole => seams.push(Seam::pole(side)),
                End::Fold(pivot) => seams.push(Seam::fold(side, pivot)),
            }
        }
        PatchGrid::new(vec![[self.rows as usize, self.columns as usize]], seams)
    }

    /// The row at which it ends: a fold about cells goes through the centres of the last row.
    fn line(&self, is_north: bool) -> i64 {
        let end = if is_north { self.north } else { self.south };
        let inwards = i64::from(end == End::Fold(Pivot::Cell));
        if is_north { 2 * self.rows - inwards } else { inwards }
    }

    /// The same place, reached through one end.
    fn turned(&self, (row, column, is_negated): Place, is_north: bool) -> Option<Place> {
        let end = if is_north { self.north } else { self.south };
        let inwards = i64::from(end == End::Fold(Pivot::Cell));
        let line = self.line(is_north);
        let column = match end {
            End::Border => return None,
            // Half around the Earth.
            End::Pole => column + self.columns,
            // About the corner at coordinate 0, or about the centre of cell 0 at 1.
            End::Fold(_) => 2 * inwards - column,
        };
        Some((2 * line - row, column.rem_euclid(2 * self.columns), !is_negated))
    }

    /// All places of a value near the patch.
    fn orbit(&self, row: i64, column: i64) -> BTreeSet<Place> {
        let first = (row, column.rem_euclid(2 * self.columns), false);
        let (mut orbit, mut rest) = (BTreeSet::from([first]), vec![first]);
        while let Some(place) = rest.pop() {
            for there in [false, true].into_iter().filter_map(|is_north| self.turned(place, is_north)) {
                if there.0.abs() <= 4 * self.rows + 2 && orbit.insert(there) {
                    rest.push(there);
                }
            }
        }
        orbit
    }

    /// The number that a value of a component shows after an exchange; `None` if no place of it is in the patch, or only one behind a fold, in
    /// the only row: then a value stays as it is.
    fn expected(&self, quantity: &Quantity, component: usize, at: [i64; 2]) -> Option<f64> {
        let place = quantity.place(component).expect("a component");
        let [row, column] = [0, 1].map(|axis| 2 * at[axis] + first(place[axis]));
        let counts = [self.rows, self.columns];
        let indices = |axis: usize, coordinate: i64| {
            let index = move |index: &i64| 2 * index + first(place[axis]) == coordinate;
            (0..place[axis].count(counts[axis] as usize) as i64).filter(index)
        };
        // The least: of the lowest place, with the same sign if both are possible.
        let mut owner: Option<([i64; 2], bool)> = None;
        let inside = self.line(false)..=self.line(true);
        for (row, column, is_negated) in
            self.orbit(row, column).into_iter().filter(|place| inside.contains(&place.0))
        {
            // Column 0 has the coordinates of the one behind the last, too.
            for column in [column, column + 2 * self.columns] {
                for (row, column) in indices(0, row).flat_map(|row| indices(1, column).map(move |c| (row, c)))
                {
                    let there = ([row, column], is_negated);
                    owner = Some(owner.map_or(there, |owner| owner.min(there)));
                }
            }
        }
        owner.map(|(at, is_negated)| {
            let is_negated = is_negated && quantity.components() == 2;
            if is_negated { -number(component, at) } else { number(component, at) }
        })
    }

    /// Compares all values and the whole halo. Whether the grid has the quantity with such a halo.
    fn check(&self, quantity: &Quantity, halo: &Halo) -> bool {
        self.check_on([1, 1], 1, quantity, halo)
    }

    /// As [`Globe::check`], of the grid in blocks on several ranks.
    fn check_on(&self, blocks: [usize; 2], ranks: usize, quantity: &Quantity, halo: &Halo) -> bool {
        let Ok(grid) = self.grid() else {
            assert_eq!(self.rows, 1, "{self:?} is a grid");
            return false;
        };
        let cut = grid.decompose_into(&[blocks], ranks).expect("blocks");
        match cut.pattern_of(0, quantity, halo) {
            Err(PatternError::Patch(PatchError::NotHeld { .. } | PatchError::HaloTooWide { .. })) => {
                return false;
            }
            result => drop(result.unwrap_or_else(|error| panic!("{self:?}, {quantity:?}: {error}"))),
        }
        let plans = plans(&cut, quantity, halo);
        let component_of = |domain: u64| domain as usize % quantity.components();
        let mut arrays = filled(&plans, |domain, at| number(component_of(domain), at));
        exchange(&plans, &mut arrays);
        for (domain, shape) in shapes(&plans) {
            let component = component_of(domain);
            let (first, owned, low, extents) = parts(&shape);
            for index in 0..extents[0] * extents[1] {
                let at = [first[0] + index / extents[1] - low[0], first[1] + index % extents[1] - low[1]];
                let is_held = (0..2).all(|axis| (0..owned[axis]).contains(&(at[axis] - first[axis])));
                let before = if is_held { number(component, at) } else { f64::NAN };
                let expected = self.expected(quantity, component, at).unwrap_or(before);
                let found = arrays[&domain][index as usize];
                assert!(
                    found == expected || found.is_nan() && expected.is_nan(),
                    "{self:?}, blocks {blocks:?}, {ranks} ranks, {quantity:?}, {halo:?}: value {at:?} of component {component} in \
                     domain {domain} is {found}, in its orbit {expected}"
                );
            }
        }
        true
    }
}

/// The coordinate of value 0, in half cells.
fn first(along: Along) -> i64 {
    match along {
        Along::Faces | Along::LowFaces => 0,
        Along::Centre => 1,
        Along::HighFaces => 2,
    }
}

/// A number for each place of each component.
fn number(component: usize, [row, column]: [i64; 2]) -> f64 {
    (component as i64 * 10_000 + row * 100 + column + 1) as f64
}

/// All ends at both sides, each with all halo widths up to the patch.
fn check_globes(sizes: &[[i64; 2]], quantity: &Quantity) -> usize {
    let mut checked = 0;
    for &[rows, columns] in sizes {
        for (south, north) in ENDS.iter().flat_map(|south| ENDS.iter().map(move |north| (*south, *north))) {
            for width in 1..=rows as usize {
                let around = width.min(columns as usize);
                let halo = Halo::per_axis([(width, width), (around, around)]);
                checked += usize::from(Globe { rows, columns, south, north }.check(quantity, &halo));
            }
        }
    }
    checked
}

const SIZES: [[i64; 2]; 4] = [[1, 4], [2, 2], [2, 4], [3, 2]];

#[test]
fn scalars_at_all_places_are_those_of_their_orbits() {
    use Along::{Centre, Faces, HighFaces, LowFaces};
    for rows in [Centre, Faces, HighFaces, LowFaces] {
        for columns in [Centre, Faces, HighFaces, LowFaces] {
            assert!(check_globes(&SIZES, &Quantity::scalar([rows, columns])) > 20, "{rows:?}, {columns:?}");
        }
    }
}

fn vectors() -> Vec<Quantity> {
    use Along::{Centre, Faces, HighFaces, LowFaces};
    vec![
        Quantity::cell_vectors(),
        Quantity::c_grid(),
        Quantity::d_grid(),
        Quantity::vector([Faces; 2], [Faces; 2]),
        Quantity::vector([Faces, HighFaces], [Centre, HighFaces]),
        Quantity::vector([HighFaces, Centre], [Centre, HighFaces]),
        Quantity::vector([LowFaces, Centre], [Centre, LowFaces]),
        Quantity::vector([Faces, LowFaces], [LowFaces, Faces]),
    ]
}

#[test]
fn vectors_at_all_places_are_those_of_their_orbits() {
    for quantity in vectors() {
        assert!(check_globes(&SIZES, &quantity) > 20, "{quantity:?}");
    }
}

/// Blocks on several ranks: partners lie on the same rank and on others, blocks straddle the points about which a fold turns, and
/// halos are wider than blocks.
#[test]
fn blocks_at_folds_and_poles_have_the_values_of_their_orbits() {
    let cuts =
        [([3, 4], [1, 4], 4, 1), ([4, 6], [2, 3], 6, 2), ([5, 8], [2, 3], 2, 3), ([2, 14], [1, 7], 3, 1)];
    let ends = [
        (End::Pole, End::Pole),
        (End::Border, End::Fold(Pivot::Corner)),
        (End::Border, End::Fold(Pivot::Cell)),
    ];
    let mut checked = 0;
    for ([rows, columns], blocks, ranks, width) in cuts {
        for (south, north) in ends {
            let globe = Globe { rows, columns, south, north };
            for quantity in [Quantity::cells(), Quantity::corners()].into_iter().chain(vectors()) {
                checked += usize::from(globe.check_on(blocks, ranks, &quantity, &Halo::uniform(width)));
            }
        }
    }
    assert!(checked > 90, "{checked}");
}

/// The only row ends at a fold about its cells: the values at its southern face have no partner, and no block copies them.
#[test]
fn values_behind_a_fold_of_the_only_row_stay_as_they_are() {
    let globe = Globe { rows: 1, columns: 2, south: End::Fold(Pivot::Cell), north: End::Border };
    let quantity = Quantity::scalar([Along::LowFaces, Along::Centre]);
    assert!(globe.check_on([1, 2], 2, &quantity, &Halo::per_axis([(0, 0), (1, 1)])));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_any_globe_have_the_values_of_their_orbits(
        (rows, half) in (1i64..7, 1i64..7),
        ends in prop::array::uniform2(0usize..4),
        blocks in prop::array::uniform2(1usize..6),
        ranks in 1usize..8,
        widths in prop::array::uniform4(0usize..5),
        places in prop::array::uniform2(0usize..4),
        vector in prop::option::of(0usize..8),
    ) {
        let globe = Globe { rows, columns: 2 * half, south: ENDS[ends[0]], north: ENDS[ends[1]] };
        let [rows, columns] = [rows as usize, 2 * half as usize];
        let blocks = [blocks[0].min(rows), blocks[1].min(columns)];
        let places = places.map(|at| [Along::Centre, Along::Faces, Along::HighFaces, Along::LowFaces][at]);
        let quantity = vector.map_or_else(|| Quantity::scalar(places), |at| vectors().swap_remove(at));
        let width = |at: usize, most: usize| widths[at].min(most);
        let halo = Halo::per_axis([(width(0, rows), width(1, rows)), (width(2, columns), width(3, columns))]);
        globe.check_on(blocks, ranks.min(blocks[0] * blocks[1]), &quantity, &halo);
    }
}

#[test]
fn a_corner_between_a_fold_and_a_pole_is_filled() {
    let globe = Globe { rows: 2, columns: 2, south: End::Pole, north: End::Fold(Pivot::Corner) };
    assert_eq!(globe.expected(&Quantity::corners(), 0, [-2, -1]), Some(number(0, [2, 0])));
    assert!(globe.check(&Quantity::corners(), &Halo::uniform(2)));
}

#[test]
fn halos_of_different_widths_are_those_of_their_orbits() {
    let globe = Globe { rows: 3, columns: 6, south: End::Pole, north: End::Fold(Pivot::Cell) };
    for halo in [[(3, 0), (1, 5)], [(0, 2), (6, 0)], [(1, 2), (2, 3)]] {
        for quantity in [Quantity::corners(), Quantity::c_grid(), Quantity::d_grid()] {
            assert!(globe.check(&quantity, &Halo::per_axis(halo)), "{quantity:?}, {halo:?}");
        }
    }
}
