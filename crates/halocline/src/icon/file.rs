//! NetCDF files: their dimensions and variables, of which ranges of columns are read.

use super::IconGridError;
use netcdf_reader::{
    DynStorage, FileStorage, NcFile, NcFormat, NcOpenOptions, NcSliceInfo, NcSliceInfoElem, NcType,
    NcVariable,
};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The largest number of columns between two wanted ones that are read as well: one longer read is faster than two.
const GAP: u64 = 256;
/// The most values of one read.
const MOST_VALUES: u64 = 1 << 20;
/// The most bytes that the NetCDF reader may allocate for the values of one read, whatever the file says.
const MOST_BYTES: usize = 1 << 28;

/// An open NetCDF file.
pub(super) struct NetcdfFile {
    path: Box<Path>,
    file: NcFile,
    /// The bytes of a file in a classic format, which has at least those of its values.
    classic_bytes: Option<u64>,
}

impl NetcdfFile {
    /// Opens a file and reads its header. Later reads are positioned reads, not accesses to a mapping: if the file becomes shorter
    /// meanwhile, they return an error instead of a signal.
    pub(super) fn open(path: &Path) -> Result<Self, IconGridError> {
        let storage = storage(path).map_err(|error| unreadable(path, &error))?;
        Self::of(path, storage)
    }

    pub(super) fn of(path: &Path, storage: DynStorage) -> Result<Self, IconGridError> {
        if let Some(stated) = stated_bytes(&storage).filter(|&stated| stated > storage.len()) {
            let reason = format!("it states {stated} bytes, but has {}: it is cut off", storage.len());
            return Err(IconGridError::File { path: path.into(), reason: reason.into() });
        }
        let bytes = storage.len();
        let options = NcOpenOptions { max_read_bytes: MOST_BYTES, ..NcOpenOptions::default() };
        let file = NcFile::from_storage_with_options(storage, options);
        let file = file.map_err(|error| unreadable(path, &error))?;
        let is_classic = matches!(file.format(), NcFormat::Classic | NcFormat::Offset64 | NcFormat::Cdf5);
        Ok(Self { path: path.into(), file, classic_bytes: is_classic.then_some(bytes) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The size of a dimension, below 2^32.
    pub(super) fn dimension(&self, dimension: &'static str) -> Result<u32, IconGridError> {
        let all = self.file.dimensions().map_err(|error| unreadable(&self.path, &error))?;
        let Some(found) = all.iter().find(|found| found.name == dimension) else {
            return Err(IconGridError::NoDimension { path: self.path.clone(), dimension });
        };
        let too_large = || IconGridError::TooLarge { path: self.path.clone(), dimension, size: found.size };
        u32::try_from(found.size).map_err(|_| too_large())
    }

    /// Whether there is a variable of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool, IconGridError> {
        Ok(self.find(name)?.is_some())
    }

    /// A variable of numbers with one dimension, or with two, the last one of which counts its columns.
    pub(super) fn variable<'a>(&'a self, name: &'a str) -> Result<Variable<'a>, IconGridError> {
        let none = || IconGridError::NoVariable { path: self.path.clone(), variable: name.into() };
        let found = self.find(name)?.ok_or_else(none)?;
        let dtype = found.dtype();
        let variable = |rows, columns| Variable { file: self, name, dtype, rows, columns };
        let variable = match found.shape()[..] {
            [columns] => variable(None, columns),
            [rows, columns] => variable(Some(rows), columns),
            ref other => return Err(self.wrong_shape(name, other, "of one or two dimensions".into())),
        };
        variable.check_bytes()?;
        match variable.is_integer() || matches!(dtype, NcType::Float | NcType::Double) {
            true => Ok(variable),
            false => Err(variable.wrong_type("numbers")),
        }
    }

    fn find(&self, name: &str) -> Result<Option<&NcVariable>, IconGridError> {
        let all = self.file.variables().map_err(|error| unreadable(&self.path, &error))?;
        Ok(all.iter().find(|variable| variable.name() == name))
    }

    fn wrong_shape(&self, variable: &str, found: &[u64], wanted: Box<str>) -> IconGridError {
        let (path, variable) = (self.path.clone(), variable.into());
        IconGridError::Shape { path, variable, found: found.into(), wanted }
    }
}

/// The bytes of a regular file. Others could block (a pipe) or have no end (a device).
fn storage(path: &Path) -> io::Result<DynStorage> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let storage = FileStorage::from_file(File::open(path)?).map_err(io::Error::other)?;
    Ok(Arc::new(storage))
}

/// The bytes that a file of NetCDF-4 states for itself: the end-of-file address of its superblock (HDF5 File Format Specification, II.A).
/// Classic files state none.
fn stated_bytes(storage: &DynStorage) -> Option<u64> {
    let head = storage.read_range(0, storage.len().min(64) as usize).ok()?;
    let head: &[u8] = head.as_ref();
    // The version says where the sizes of addresses and the end lie: behind the addresses of the base and of one more.
    let (size, base) = match head.strip_prefix(b"\x89HDF\r\n\x1a\n")?.first()? {
        0 => (13, 24),
        1 => (13, 28),
        _ => (9, 12),
    };
    let word = |at: usize| head.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    if *head.get(size)? != 8 {
        return None;
    }
    word(base + 16)?.checked_add(word(base)?)
}

fn unreadable(path: &Path, error: &dyn std::error::Error) -> IconGridError {
    IconGridError::File { path: path.into(), reason: error.to_string().into() }
}

/// A variable of numbers with a column for each cell, edge or vertex.
pub(super) struct Variable<'a> {
    file: &'a NetcdfFile,
    name: &'a str,
    dtype: &'a NcType,
    /// Values in a column, if the variable has two dimensions; otherwise a column has one value.
    rows: Option<u64>,
    columns: u64,
}

impl Variable<'_> {
    pub(super) fn columns(&self) -> u64 {
        self.columns
    }

    /// Values in a column.
    pub(super) fn rows(&self) -> u64 {
        self.rows.unwrap_or(1)
    }

    fn is_integer(&self) -> bool {
        use NcType::{Byte, Int, Int64, Short, UByte, UInt, UInt64, UShort};
        matches!(self.dtype, Byte | UByte | Short | UShort | Int | UInt | Int64 | UInt64)
    }

    /// Refuses a variable that is longer than the file.
    fn check_bytes(&self) -> Result<(), IconGridError> {
        let Some(most) = self.file.classic_bytes else { return Ok(()) };
        let values = u128::from(self.rows()) * u128::from(self.columns);
        let size = self.dtype.size().map_err(|error| self.damaged(&error.to_string()))?;
        match values * size as u128 <= most.into() {
            true => Ok(()),
            false => Err(self.damaged(&format!("it has {values} values, more than fit into {most} bytes"))),
        }
    }

    /// Refuses a variable that does not hold integers, or has another shape. `rows` are the fewest and the most rows.
    pub(super) fn check(&self, rows: [u64; 2], columns: u64) -> Result<(), IconGridError> {
        let [fewest, most] = rows;
        let has_rows = self.rows.is_some_and(|rows| (fewest..=most).contains(&rows));
        if !has_rows || self.columns != columns {
            let found: Vec<u64> = self.rows.into_iter().chain([self.columns]).collect();
            let rows = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
            let wanted = format!("[{rows}, {columns}]").into();
            return Err(self.file.wrong_shape(self.name, &found, wanted));
        }
        if self.is_integer() { Ok(()) } else { Err(self.wrong_type("integers")) }
    }

    /// Calls `each` with the values of each listed column. The columns ascend and exist; the values are in the order of the rows.
    pub(super) fn for_columns(
        &self,
        ids: &[u64],
        mut each: impl FnMut(u64, &[f64]) -> Result<(), IconGridError>,
    ) -> Result<(), IconGridError> {
        let mut rest = ids;
        let most = self.most_columns();
        let mut values = Vec::new();
        while let Some(&first) = rest.first() {
            let is_near = |pair: &[u64]| pair[1] - pair[0] <= GAP && pair[1] - first < most;
            let (block, later) = rest.split_at(1 + rest.windows(2).take_while(|pair| is_near(pair)).count());
            let end = block.last().map_or(first, |last| last + 1);
            let (width, all) = (end - first, self.read(first..end)?);
            for &id in block {
                let column = (0..self.rows()).map(|row| all[(row * width + id - first) as usize]);
                values.clear();
                values.extend(column);
                each(id, &values)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Calls `each` with the values of each column of the variable.
    pub(super) fn for_all_columns(
        &self,
        mut each: impl FnMut(u64, &[f64]) -> Result<(), IconGridError>,
    ) -> Result<(), IconGridError> {
        let mut first = 0;
        while first < self.columns {
            let end = self.columns.min(first + self.most_columns());
            self.for_columns(&Vec::from_iter(first..end), &mut each)?;
            first = end;
        }
        Ok(())
    }

    /// The most columns that are read at once.
    fn most_columns(&self) -> u64 {
        (MOST_VALUES / self.rows().max(1)).max(1)
    }

    /// Some columns, row by row.
    fn read(&self, columns: Range<u64>) -> Result<Vec<f64>, IconGridError> {
        let all = |rows| NcSliceInfoElem::Slice { start: 0, end: rows, step: 1 };
        let count = self.rows() * (columns.end - columns.start);
        let columns = NcSliceInfoElem::Slice { start: columns.start, end: columns.end, step: 1 };
        let selection = NcSliceInfo { selections: self.rows.map(all).into_iter().chain([columns]).collect() };
        let read = self.file.file.read_variable_slice_as_f64(self.name, &selection);
        let values = read.map_err(|error| self.damaged(&error.to_string()))?;
        if values.len() as u64 != count {
            return Err(self.damaged(&format!("{} values instead of {count}", values.len())));
        }
        Ok(values.into_iter().collect())
    }

    fn wrong_type(&self, wanted: &'static str) -> IconGridError {
        let (path, variable) = (self.file.path.clone(), self.name.into());
        IconGridError::Type { path, variable, found: format!("{:?}", self.dtype).into(), wanted }
    }

    fn damaged(&self, reason: &str) -> IconGridError {
        let (path, variable) = (self.file.path.clone(), self.name.into());
        IconGridError::Values { path, variable, reason: reason.into() }
    }
}
