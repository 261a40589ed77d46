//! NetCDF files: their dimensions and variables, of which ranges of columns are read.

use super::{IconGridError, Place};
use netcdf_reader::{
    DynStorage, FileStorage, NcFile, NcOpenOptions, NcSliceInfo, NcSliceInfoElem, NcType, NcVariable,
};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The largest number of columns between two wanted ones that are read as well: one larger read is faster than two.
const GAP: u64 = 256;
/// The most values that one read returns.
const MOST_VALUES: u64 = 1 << 20;
/// The most bytes that one read may allocate, whatever the file says.
const MOST_BYTES: usize = 1 << 28;

/// An open NetCDF file.
pub(super) struct NetcdfFile {
    path: Box<Path>,
    file: NcFile,
}

impl NetcdfFile {
    /// Opens a file and reads its header. Values are read later, by `pread`: a file that becomes shorter meanwhile is an error, not a
    /// signal as with a mapping.
    pub(super) fn open(path: &Path) -> Result<Self, IconGridError> {
        let storage = storage(path).map_err(|error| refused(path, error.to_string()))?;
        Self::of(path, storage)
    }

    pub(super) fn of(path: &Path, storage: DynStorage) -> Result<Self, IconGridError> {
        let options = NcOpenOptions {
            max_chunk_bytes: MOST_BYTES,
            max_read_bytes: MOST_BYTES,
            ..NcOpenOptions::default()
        };
        let file = NcFile::from_storage_with_options(storage, options);
        let file = file.map_err(|error| refused(path, error.to_string()))?;
        Ok(Self { path: path.into(), file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The size of a dimension, below 2^32.
    pub(super) fn dimension(&self, dimension: &'static str) -> Result<u32, IconGridError> {
        let all = self.file.dimensions().map_err(|error| refused(&self.path, error.to_string()))?;
        let Some(found) = all.iter().find(|found| found.name == dimension) else {
            return Err(IconGridError::NoDimension { path: self.path.clone(), dimension });
        };
        let too_large = || IconGridError::TooLarge { path: self.path.clone(), dimension, size: found.size };
        u32::try_from(found.size).map_err(|_| too_large())
    }

    fn find(&self, name: &str) -> Result<Option<&NcVariable>, IconGridError> {
        let all = self.file.variables().map_err(|error| refused(&self.path, error.to_string()))?;
        Ok(all.iter().find(|variable| variable.name() == name))
    }

    pub(super) fn has(&self, name: &str) -> Result<bool, IconGridError> {
        Ok(self.find(name)?.is_some())
    }

    /// A variable of numbers with one dimension, or with two of which the last one counts columns.
    pub(super) fn variable<'a>(&'a self, name: &'a str) -> Result<Variable<'a>, IconGridError> {
        let none = || IconGridError::NoVariable { path: self.path.clone(), variable: name.into() };
        let found = self.find(name)?.ok_or_else(none)?;
        let extents = found.shape();
        let (rows, columns) = match extents[..] {
            [columns] => (None, columns),
            [rows, columns] => (Some(rows), columns),
            _ => return Err(self.shape(name, &extents, "of one or two dimensions".into())),
        };
        let is_integer = match found.dtype() {
            NcType::Byte | NcType::Short | NcType::Int | NcType::Int64 => true,
            NcType::UByte | NcType::UShort | NcType::UInt | NcType::UInt64 => true,
            NcType::Float | NcType::Double => false,
            other => return Err(self.wrong_type(name, other, "numbers")),
        };
        if !is_integer || name.is_empty() {
            return Ok(Variable { file: self, name, rows, columns, integer: false });
        }
        Ok(Variable { file: self, name, rows, columns, integer: true })
    }

    fn shape(&self, variable: &str, found: &[u64], wanted: Box<str>) -> IconGridError {
        let (path, variable) = (self.path.clone(), variable.into());
        IconGridError::Shape { path, variable, found: found.into(), wanted }
    }

    fn wrong_type(&self, variable: &str, found: &NcType, wanted: &'static str) -> IconGridError {
        let (path, variable) = (self.path.clone(), variable.into());
        IconGridError::Type { path, variable, found: format!("{found:?}").into(), wanted }
    }
}
