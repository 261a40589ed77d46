//! The redundant cells of ORCA2's own file, beside those that an exchange fills.

use super::orca2;
use crate::error::CommandError;
use crate::geometry::on_sphere;
use crate::ranks::as_threads;
use crate::sphere::grid::distance;
use halocline::{Array, Communicator, Decomposed, HaloExchange, PatchGrid, Pivot};
use netcdf_reader::NcFile;

const ROWS: usize = 148;
const COLUMNS: usize = 180;
const WIDTH: usize = 2;
/// Values of a cell: longitude, latitude and temperature, then longitudes and latitudes of the corners.
const VALUES: usize = 11;
const TEMPERATURE: usize = 2;

/// The values of each cell of the file.
fn values() -> Vec<[f64; VALUES]> {
    let file = NcFile::open(orca2()).unwrap();
    let read = |name: &str| file.read_variable_as_f64(name).unwrap().into_raw_vec_and_offset().0;
    let scalars = ["nav_lon", "nav_lat", "votemper"].map(read);
    let corners = ["nav_lon_bnds", "nav_lat_bnds"].map(read);
    let of_cell = |cell: usize| {
        std::array::from_fn(|at| match at {
            0..3 => scalars[at][cell],
            _ => corners[(at - 3) / 4][4 * cell + (at - 3) % 4],
        })
    };
    (0..ROWS * COLUMNS).map(of_cell).collect()
}

/// The cells of a rank's array after an exchange.
struct Filled {
    /// Row and column of the first cell, halo included.
    first: [i64; 2],
    extents: [usize; 2],
    cells: Vec<[f64; VALUES]>,
}

/// Exchanges an array that holds the file's values in the cells that repeat no other one with this pivot, and NaN elsewhere.
fn exchanged(
    comm: &Communicator,
    values: &[[f64; VALUES]],
    pivot: Pivot,
) -> Result<Vec<Filled>, CommandError> {
    let cut = PatchGrid::tripolar([ROWS, COLUMNS], pivot)?.decompose(comm.size())?;
    let pattern = cut.pattern(comm, WIDTH)?;
    let mut filled = Vec::new();
    for domain in pattern.domains() {
        let block = cut.block(domain.number()).expect("a domain of this rank");
        let (extents, owned) = (domain.extents(), domain.owned());
        let first = [0, 1].map(|axis| block.first[axis] as i64 - owned[axis].start as i64);
        let array = Array::<f64>::zeros(comm, &[extents[0], extents[1], VALUES])?;
        array.write()?.fill(f64::NAN);
        for row in owned[0].clone() {
            for column in owned[1].clone() {
                let at = [first[0] + row as i64, first[1] + column as i64].map(|at| at as usize);
                let is_redundant = pivot == Pivot::Cell && at[0] == ROWS - 1 && at[1] > COLUMNS / 2;
                if !is_redundant {
                    let place = VALUES * (row * extents[1] + column);
                    array.write()?[place..place + VALUES].copy_from_slice(&values[at[0] * COLUMNS + at[1]]);
                }
            }
        }
        filled.push((array.on_domain(domain.number()), array, first, [extents[0], extents[1]]));
    }
    let fields: Vec<_> = filled.iter().map(|(field, ..)| (&pattern, field)).collect();
    HaloExchange::bind(comm, &fields)?.exchange()?.wait()?;
    let of =
        |(_, array, first, extents): &(_, Array<f64>, [i64; 2], [usize; 2])| -> Result<Filled, CommandError> {
            let cells =
                array.read()?.chunks_exact(VALUES).map(|cell| std::array::from_fn(|at| cell[at])).collect();
            Ok(Filled { first: *first, extents: *extents, cells })
        };
    filled.iter().map(of).collect()
}

impl Filled {
    /// Row and column in the file of each cell; rows from `ROWS` lie beyond the fold.
    fn places(&self) -> impl Iterator<Item = ([i64; 2], &[f64; VALUES])> {
        self.cells.iter().enumerate().map(|(at, cell)| {
            let [row, column] = [at / self.extents[1], at % self.extents[1]];
            ([self.first[0] + row as i64, self.first[1] + column as i64], cell)
        })
    }

    fn at(&self, [row, column]: [i64; 2]) -> Option<&[f64; VALUES]> {
        let [row, column] = [row - self.first[0], column - self.first[1]].map(|at| usize::try_from(at).ok());
        let (row, column) = (row?, column?);
        (row < self.extents[0] && column < self.extents[1])
            .then(|| &self.cells[row * self.extents[1] + column])
    }
}

/// The cells whose values come from across the fold: their corners are turned by half a turn.
fn is_turned([row, column]: [i64; 2]) -> bool {
    let (last, half) = (ROWS as i64 - 1, COLUMNS as i64 / 2);
    row > last || row == last && column.rem_euclid(COLUMNS as i64) > half
}

/// A corner of a cell, counted from the south-west of the array.
fn corner(place: [i64; 2], cell: &[f64; VALUES], corner: usize) -> [f64; 3] {
    let corner = if is_turned(place) { (corner + 2) % 4 } else { corner };
    on_sphere(cell[3 + corner], cell[7 + corner])
}

fn is_water(cell: &[f64; VALUES]) -> bool {
    cell[TEMPERATURE].abs() < 100.0
}

#[test]
fn an_exchange_restores_the_redundant_cells_of_the_file() {
    let values = values();
    for ranks in [1, 2, 3, 4, 6, 9] {
        let mut restored = 0;
        for filled in
            as_threads(ranks, |comm| exchanged(comm, &values, Pivot::Cell)).unwrap().iter().flatten()
        {
            for (place @ [row, column], cell) in filled.places() {
                let (Ok(row), Ok(column)) = (usize::try_from(row), usize::try_from(column)) else { continue };
                if row >= ROWS || column >= COLUMNS {
                    continue;
                }
                let due = &values[row * COLUMNS + column];
                assert_eq!(cell[..3], due[..3], "row {row}, column {column} on {ranks} ranks");
                for at in 0..4 {
                    let due = on_sphere(due[3 + at], due[7 + at]);
                    assert!(distance(corner(place, cell, at), due) < 1e-10, "row {row}, column {column}");
                }
                restored += usize::from(row == ROWS - 1 && column > COLUMNS / 2);
            }
        }
        assert!(restored >= COLUMNS / 2 - 1, "{restored} on {ranks} ranks");
    }
}

/// Cells of water share their sides with the halo cells beside them, whatever rule says which cells those are.
#[test]
fn halo_cells_join_the_cells_beside_them() {
    let values = values();
    for ranks in [1, 2, 5] {
        let (mut across_fold, mut around) = (0, 0);
        for filled in
            as_threads(ranks, |comm| exchanged(comm, &values, Pivot::Cell)).unwrap().iter().flatten()
        {
            for (place @ [row, column], cell) in filled.places().filter(|(_, cell)| is_water(cell)) {
                let north = ([row + 1, column], [(3, 0), (2, 1)]);
                let east = ([row, column + 1], [(1, 0), (2, 3)]);
                for (next, ends) in [north, east] {
                    let Some(other) = filled.at(next).filter(|other| is_water(other)) else { continue };
                    for (here, there) in ends {
                        let apart = distance(corner(place, cell, here), corner(next, other, there));
                        assert!(
                            apart < 1e-10,
                            "row {row}, column {column} and {next:?} on {ranks} ranks: {apart}"
                        );
                    }
                    across_fold += usize::from(next[0] >= ROWS as i64);
                    around += usize::from(column < 0 || next[1] >= COLUMNS as i64);
                }
            }
        }
        assert!(across_fold > 200 && around > 200, "{across_fold} and {around} pairs on {ranks} ranks");
    }
}

#[test]
fn with_the_other_pivot_halo_cells_join_nothing() {
    let values = values();
    let filled = as_threads(2, |comm| exchanged(comm, &values, Pivot::Corner)).unwrap();
    let apart = filled.iter().flatten().flat_map(|filled| {
        let is_last = |[row, column]: [i64; 2]| row == ROWS as i64 - 1 && column <= COLUMNS as i64 / 2;
        let last = filled.places().filter(move |(place, cell)| is_last(*place) && is_water(cell));
        last.filter_map(|(place @ [row, column], cell)| {
            let next = [row + 1, column];
            let other = filled.at(next).filter(|other| is_water(other))?;
            Some(distance(corner(place, cell, 3), corner(next, other, 0)))
        })
    });
    assert!(apart.fold(0.0, f64::max) > 0.01);
}
