//! NEMO's grid ORCA2, grids that are made here, and files that are wrong.

mod exchange;
mod files;

use super::file::{self, Contents, Coordinates};
use super::{Grid, Nemo, NemoError};
use crate::geometry::lon_lat;
use crate::sphere::grid::{Tripolar, neighbours};
use halocline::Pivot;
use std::path::{Path, PathBuf};

fn orca2() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/orca2/orca2.nc")
}

fn contents() -> Contents {
    file::read(&orca2()).unwrap()
}

/// A grid that is folded at corners, as a file has it.
fn folded_at_corners() -> Contents {
    let (rows, columns) = (18, 24);
    let grid = Tripolar::new(columns, rows);
    let cells = 0..rows * columns;
    let corners = cells.clone().flat_map(|cell| grid.polygon(cell).corners().to_vec()).map(lon_lat);
    let (longitudes, latitudes) = corners.unzip();
    let of = |name: &str, degrees| Coordinates { name: name.into(), degrees };
    let corners = [of("bounds_lon", longitudes), of("bounds_lat", latitudes)];
    Contents { rows, columns, corners, is_land: cells.map(|cell| grid.is_land(cell)).collect() }
}

fn of(contents: Contents) -> Result<Nemo, NemoError> {
    Nemo::new(Path::new("grid.nc"), contents)
}

/// The message of the error of a grid that is changed like this.
fn refused(mut contents: Contents, change: impl FnOnce(&mut Contents)) -> String {
    change(&mut contents);
    of(contents).err().expect("the grid is wrong").to_string()
}

#[test]
fn orca2_is_folded_at_the_centres_of_its_last_row() {
    let grid = of(contents()).unwrap();
    assert_eq!((grid.rows, grid.columns, grid.pivot), (148, 180, Pivot::Cell));
    assert_eq!(grid.water().count(), 16_431);
    let last = 147 * 180;
    assert_eq!([0, 1, 90, 91, 179].map(|column| grid.original(last + column) - last), [0, 1, 90, 89, 1]);
    assert_eq!(grid.original(last - 1), last - 1);
}

#[test]
fn the_pivot_is_that_of_the_corners() {
    let grid = of(folded_at_corners()).unwrap();
    assert_eq!(grid.pivot, Pivot::Corner);
    assert!((0..grid.cells()).all(|cell| grid.original(cell) == cell));
}

#[test]
fn all_sides_between_water_are_found_by_their_middles() {
    let grid = of(contents()).unwrap();
    let neighbours = neighbours(&grid);
    let count = |cell: usize| neighbours[cell].iter().flatten().count();
    let of_row = |row: usize| (180 * row..180 * (row + 1)).map(count).sum::<usize>();
    let is_water = |row: usize, column: usize| grid.is_water((row, column % 180));
    // To the east, the west and the south; those to the north are again in row 146, seen from its other half.
    let last = (0..=90).filter(|&column| is_water(147, column));
    let due = last.map(|column| {
        let around = [is_water(147, column + 1), is_water(147, column + 179)];
        let across = [is_water(146, column), is_water(146, 180 - column)];
        around.into_iter().chain(across).filter(|is_water| *is_water).count()
    });
    assert_eq!(of_row(147), due.sum::<usize>());
    assert!(of_row(147) > 100, "the fold crosses the Arctic Ocean");
}

#[test]
fn a_grid_without_its_fold_is_refused() {
    let cut = |contents: &mut Contents| {
        contents.rows -= 1;
        let cells = contents.rows * contents.columns;
        contents.is_land.truncate(cells);
        contents.corners.iter_mut().for_each(|corners| corners.degrees.truncate(4 * cells));
    };
    let orca2 = refused(contents(), cut);
    assert!(
        orca2.starts_with("the northern side of grid.nc is not folded: column ")
            && orca2.contains(" joins no cell as with the F-point pivot; give all rows up to the fold"),
        "{orca2}"
    );
    let made = refused(folded_at_corners(), cut);
    assert!(made.contains("of the last row repeats no cell as with the T-point pivot"), "{made}");
    // The second half of the last row repeats the first one: here it says of one cell that it is land.
    let land = refused(contents(), |contents| contents.is_land[147 * 180 + 50] = true);
    assert!(land.contains("is not folded: column 50 of the last row repeats no cell"), "{land}");
}

#[test]
fn a_grid_without_water_is_refused() {
    let dry = refused(contents(), |contents| contents.is_land.fill(true));
    assert!(dry.starts_with("grid.nc has no water"), "{dry}");
}

#[test]
fn neighbours_without_a_common_side_are_refused() {
    // The model's halo: the first column is again behind the last one.
    let with_halo = refused(folded_at_corners(), |contents| {
        let wide = |column: usize| column % contents.columns;
        let (rows, columns) = (contents.rows, contents.columns + 2);
        let places: Vec<usize> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| row * contents.columns + wide(column))
            .collect();
        contents.is_land = places.iter().map(|&cell| contents.is_land[cell]).collect();
        for corners in &mut contents.corners {
            let of = |&cell: &usize| corners.degrees[4 * cell..4 * cell + 4].to_vec();
            corners.degrees = places.iter().flat_map(of).collect();
        }
        contents.columns = columns;
    });
    assert_eq!(
        with_halo,
        "in grid.nc, the cells in row 0, column 25 and in row 0, column 0 are neighbours without a common side; give the \
         whole grid without the rows and columns of the model's halo"
    );
    let moved = refused(folded_at_corners(), |contents| {
        contents.corners[1].degrees[4 * (5 * 24 + 3) + 2] += 0.01;
    });
    assert!(moved.contains("the cells in row 5, column 3 and in row 5, column 4 are"), "{moved}");
}

#[test]
fn corners_that_are_no_cell_are_refused_where_there_is_water() {
    let cell = 4 * (5 * 24 + 3);
    let clockwise = refused(folded_at_corners(), |contents| {
        contents.corners.iter_mut().for_each(|corners| corners.degrees[cell..cell + 4].reverse());
    });
    assert!(
        clockwise
            .starts_with("the corners of the cell in row 5, column 3 of grid.nc are not counterclockwise"),
        "{clockwise}"
    );
    for (axis, value, message) in [
        (
            0,
            f64::NAN,
            "variable bounds_lon of grid.nc has NaN for a corner of the cell in row 5, column 3, which is water; expected degrees from -720 to 720",
        ),
        (0, 1e36, "has 1000000000000000000000000000000000000 for a corner"),
        (
            1,
            -90.5,
            "variable bounds_lat of grid.nc has -90.5 for a corner of the cell in row 5, column 3, which is water; expected degrees from -90 to 90",
        ),
    ] {
        let found = refused(folded_at_corners(), |contents| contents.corners[axis].degrees[cell + 1] = value);
        assert!(found.starts_with(message) || found.contains(message), "{found}");
    }
    // Models leave out what they do not compute on land.
    let mut on_land = folded_at_corners();
    on_land.is_land[5 * 24 + 3] = true;
    on_land.corners[0].degrees[cell + 1] = f64::NAN;
    let grid = of(on_land).unwrap();
    assert_eq!(grid.polygon(5 * 24 + 3).area(), 0.0);
}
