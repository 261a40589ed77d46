//! The fold of a tripolar grid, beside the loops of NEMO's `lbc_nfd` (G. Madec and the NEMO System Team, "NEMO ocean
//! engine", the chapter on lateral boundary conditions).

use super::{exchange, filled, parts, plans, shapes};
use halocline_plan::{Along, Halo, PatchGrid, Pivot, Quantity};

/// A row of a global array of NEMO, with the two halo columns that it has: columns are counted from 1.
struct Nemo {
    columns: i64,
    rows: i64,
    cells: Vec<f64>,
}

impl Nemo {
    fn at(&self, ji: i64, jj: i64) -> f64 {
        self.cells[((jj - 1) * self.columns + ji - 1) as usize]
    }

    fn set(&mut self, ji: i64, jj: i64, value: f64) {
        self.cells[((jj - 1) * self.columns + ji - 1) as usize] = value;
    }

    /// Columns 1 and jpi are the halo in the east-west direction.
    fn cyclic(&mut self) {
        for jj in 1..=self.rows {
            let (first, last) = (self.at(self.columns - 1, jj), self.at(2, jj));
            self.set(1, jj, first);
            self.set(self.columns, jj, last);
        }
    }

    /// `CASE ( 'T' , 'W' )` and so on of the subroutine, for one halo row. But a value that is its own partner stays: NEMO
    /// gives it the other sign, where a vector must vanish. And of the middle pair of U points the first one is kept.
    fn fold(&mut self, grid: char, pivot: Pivot, sign: f64) {
        let (jpi, jpj) = (self.columns, self.rows);
        let half = jpi / 2;
        match (pivot, grid) {
            (Pivot::Cell, 'T') => {
                (2..=jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 2, jpj - 2)));
                (half + 2..=jpi).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji + 2, jpj - 1)));
            }
            (Pivot::Cell, 'U') => {
                (1..jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 1, jpj - 2)));
                (half + 1..jpi).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji + 1, jpj - 1)));
            }
            (Pivot::Cell, 'V') => {
                (2..=jpi).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji + 2, jpj - 2)));
                (2..=jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 2, jpj - 3)));
            }
            (Pivot::Cell, _) => {
                (1..jpi).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji + 1, jpj - 2)));
                (1..jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 1, jpj - 3)));
            }
            (Pivot::Corner, 'T') => {
                (1..=jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 1, jpj - 1)));
            }
            (Pivot::Corner, 'U') => {
                (1..jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji, jpj - 1)));
            }
            (Pivot::Corner, 'V') => {
                (1..=jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji + 1, jpj - 2)));
                (half + 1..=jpi).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji + 1, jpj - 1)));
            }
            (Pivot::Corner, _) => {
                (1..jpi).for_each(|ji| self.set(ji, jpj, sign * self.at(jpi - ji, jpj - 2)));
                (half + 1..jpi - 1).for_each(|ji| self.set(ji, jpj - 1, sign * self.at(jpi - ji, jpj - 1)));
            }
        }
    }
}

/// Compares all values but those of the low border.
fn check(pivot: Pivot, grid: char, quantity: &Quantity, component: u64) {
    let (rows, columns) = (7, 12);
    let sign = if quantity.components() == 2 { -1.0 } else { 1.0 };
    let value = |row: i64, column: i64| (row * 100 + column + 1) as f64;
    let mut nemo = Nemo {
        columns: columns + 2,
        rows: rows + 1,
        cells: vec![f64::NAN; ((columns + 2) * (rows + 1)) as usize],
    };
    for row in 0..rows {
        (0..columns).for_each(|column| nemo.set(column + 2, row + 1, value(row, column)));
    }
    nemo.cyclic();
    nemo.fold(grid, pivot, sign);
    nemo.cyclic();
    let cut = PatchGrid::tripolar([rows as usize, columns as usize], pivot)
        .expect("a grid")
        .decompose(1)
        .expect("a rank");
    let plans = plans(&cut, quantity, &Halo::uniform(1));
    let mut arrays = filled(&plans, |_, [row, column]| value(row, column));
    exchange(&plans, &mut arrays);
    let (_, _, low, extents) = parts(&shapes(&plans)[&component]);
    for row in 0..=rows {
        for column in -1..=columns {
            let found = arrays[&component][((row + low[0]) * extents[1] + column + low[1]) as usize];
            let expected = nemo.at(column + 2, row + 1);
            assert!(
                found == expected,
                "{grid} points, {pivot:?}, row {row}, column {column}: {found}, NEMO {expected}"
            );
        }
    }
}

#[test]
fn all_points_are_folded_as_by_nemo() {
    use Along::{Centre, HighFaces};
    for pivot in [Pivot::Cell, Pivot::Corner] {
        check(pivot, 'T', &Quantity::cells(), 0);
        check(pivot, 'U', &Quantity::scalar([Centre, HighFaces]), 0);
        check(pivot, 'V', &Quantity::scalar([HighFaces, Centre]), 0);
        check(pivot, 'F', &Quantity::scalar([HighFaces, HighFaces]), 0);
        // V is component 0, along the rows' axis; U is component 1.
        let velocity = Quantity::vector([HighFaces, Centre], [Centre, HighFaces]);
        check(pivot, 'V', &velocity, 0);
        check(pivot, 'U', &velocity, 1);
        check(pivot, 'T', &Quantity::cell_vectors(), 0);
        check(pivot, 'F', &Quantity::vector([HighFaces; 2], [HighFaces; 2]), 1);
    }
}
