//! What a NetCDF file says of a grid: the corners of the cells, and which are land.

use super::{COLUMNS, NemoError, ROWS};
use netcdf_reader::{FileStorage, NcFile, NcOpenOptions, NcSliceInfo, NcSliceInfoElem, NcVariable};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The most bytes that reading a variable may allocate, whatever the file says.
const MOST_BYTES: usize = 1 << 32;

/// The cells of a file, row by row.
pub(super) struct Contents {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Longitudes and latitudes of the corners, degrees, four for each cell.
    pub(super) corners: [Coordinates; 2],
    pub(super) is_land: Vec<bool>,
}

/// A variable with the corners of the cells.
pub(super) struct Coordinates {
    /// The name of the variable.
    pub(super) name: Box<str>,
    pub(super) degrees: Vec<f64>,
}

/// Reads a file: the variables that the attribute `bounds` of `nav_lon` and `nav_lat` names, and the first level of a field with a fill
/// value.
pub(super) fn read(path: &Path) -> Result<Contents, NemoError> {
    let unreadable = |error: &dyn std::error::Error| NemoError::Unreadable {
        path: path.into(),
        reason: error.to_string().into(),
    };
    let storage = storage(path).map_err(|error| unreadable(&error))?;
    let options = NcOpenOptions { max_read_bytes: MOST_BYTES, ..NcOpenOptions::default() };
    let file = NcFile::from_storage_with_options(Arc::new(storage), options);
    let file = file.map_err(|error| unreadable(&error))?;
    let variables = file.variables().map_err(|error| unreadable(&error))?;
    let reader = Reader { path, file: &file, variables };

    let centres = reader.variable("nav_lon", "variable nav_lon")?;
    let (rows, columns) = reader.extents(centres)?;
    let corners = [
        reader.corners("nav_lon", "bounds of nav_lon", (rows, columns))?,
        reader.corners("nav_lat", "bounds of nav_lat", (rows, columns))?,
    ];
    let is_land = reader.land(centres)?;
    Ok(Contents { rows, columns, corners, is_land })
}

/// The bytes of a regular file. Others could block (a pipe) or have no end (a device). They are read, not mapped: if the file becomes
/// shorter meanwhile, that is an error instead of a signal.
fn storage(path: &Path) -> io::Result<FileStorage> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    FileStorage::from_file(File::open(path)?).map_err(io::Error::other)
}

struct Reader<'a> {
    path: &'a Path,
    file: &'a NcFile,
    variables: &'a [NcVariable],
}

impl Reader<'_> {
    fn variable(&self, name: &str, what: &'static str) -> Result<&NcVariable, NemoError> {
        let found = self.variables.iter().find(|variable| variable.name() == name);
        found.ok_or_else(|| NemoError::Missing { path: self.path.into(), what })
    }

    /// Rows and columns of the grid.
    fn extents(&self, centres: &NcVariable) -> Result<(usize, usize), NemoError> {
        let [rows, columns] = centres.shape()[..] else {
            return Err(self.shape(centres, "two dimensions: rows and columns"));
        };
        match (usize::try_from(rows), usize::try_from(columns)) {
            (Ok(rows), Ok(columns))
                if ROWS.contains(&rows) && COLUMNS.contains(&columns) && columns.is_multiple_of(2) =>
            {
                Ok((rows, columns))
            }
            _ => Err(NemoError::Extents { path: self.path.into(), rows, columns }),
        }
    }

    /// The variable that a coordinate names as its bounds.
    fn corners(
        &self,
        coordinate: &str,
        what: &'static str,
        (rows, columns): (usize, usize),
    ) -> Result<Coordinates, NemoError> {
        let centres = self.variable(coordinate, what)?;
        let name = centres.attribute("bounds").and_then(|bounds| bounds.value.as_string());
        let bounds = self.variable(&name.unwrap_or_default(), what)?;
        if bounds.shape() != [rows as u64, columns as u64, 4] {
            return Err(self.shape(bounds, "four corners for each row and column of nav_lon"));
        }
        let degrees = self.file.read_variable_unpacked(bounds.name());
        Ok(Coordinates {
            name: bounds.name().into(),
            degrees: self.values(bounds, degrees, 4 * rows * columns)?,
        })
    }

    /// Where the first level of a field has fill values.
    fn land(&self, centres: &NcVariable) -> Result<Vec<bool>, NemoError> {
        let cells = centres.dimensions();
        let is_field = |variable: &&NcVariable| {
            let has_fill =
                ["_FillValue", "missing_value"].iter().any(|name| variable.attribute(name).is_some());
            has_fill && variable.dimensions().ends_with(cells) && !variable.name().starts_with("nav_")
        };
        let field = self.variables.iter().find(is_field);
        let what = "field with fill values on land";
        let field = field.ok_or_else(|| NemoError::Missing { path: self.path.into(), what })?;
        let levels = field.ndim() - cells.len();
        let whole = NcSliceInfoElem::Slice { start: 0, end: u64::MAX, step: 1 };
        let selections = (0..field.ndim()).map(|dimension| match dimension < levels {
            true => NcSliceInfoElem::Index(0),
            false => whole.clone(),
        });
        let selection = NcSliceInfo { selections: selections.collect() };
        let values = self.file.read_variable_slice_masked(field.name(), &selection);
        let count = centres.shape().iter().product::<u64>() as usize;
        let values = self.values(field, values, count)?;
        Ok(values.into_iter().map(f64::is_nan).collect())
    }

    /// The values that were read, if there are as many as expected.
    fn values(
        &self,
        variable: &NcVariable,
        values: netcdf_reader::Result<impl IntoIterator<Item = f64>>,
        count: usize,
    ) -> Result<Vec<f64>, NemoError> {
        let wrong = |reason: String| NemoError::Values {
            path: self.path.into(),
            variable: variable.name().into(),
            reason: reason.into(),
        };
        let values: Vec<f64> = values.map_err(|error| wrong(error.to_string()))?.into_iter().collect();
        match values.len() == count {
            true => Ok(values),
            false => Err(wrong(format!("{} values instead of {count}", values.len()))),
        }
    }

    fn shape(&self, variable: &NcVariable, wanted: &'static str) -> NemoError {
        NemoError::Shape {
            path: self.path.into(),
            variable: variable.name().into(),
            found: variable.shape().into(),
            wanted,
        }
    }
}
