//! Reads a rank's part of a table with two columns: the key and a value.

use super::{csv, parquet};
use crate::error::CommandError;
use arrow_array::{ArrayRef, RecordBatch};
use halocline_table::Table;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

/// A year of temperatures in Seattle.
const EMBEDDED: &[u8] = include_bytes!("../../../../data/seattle-temps/seattle-temps.csv");

/// Bytes that can be read from any place.
pub(super) trait Bytes: Read + Seek {}
impl<T: Read + Seek> Bytes for T {}

/// Where the table is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A CSV file within this program.
    Embedded,
    Csv(PathBuf),
    Parquet(PathBuf),
}

/// The columns to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'a> {
    pub(super) by: &'a str,
    pub(super) value: &'a str,
}

/// The part of a rank: equal parts of a file, in the order of ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl Part {
    pub(super) const WHOLE: Self = Self { rank: 0, size: 1 };

    /// Where it begins among `count` things, and where the next one begins.
    pub(super) fn of(self, count: u64) -> [u64; 2] {
        let start = |rank: usize| (u128::from(count) * rank as u128 / self.size as u128) as u64;
        [start(self.rank), start(self.rank + 1)]
    }
}

/// What a file takes to read, for a progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Bytes(u64),
    Rows(u64),
}

impl Source {
    /// The name of the data for reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Embedded => "seattle-temps.csv (built in)".to_owned(),
            Self::Csv(path) | Self::Parquet(path) => path.display().to_string(),
        }
    }

    /// How much a part is of it. Checks the header of the file.
    pub(super) fn extent(&self, columns: Columns<'_>, part: Part) -> Result<Extent, TableInputError> {
        match self {
            Self::Parquet(path) => {
                let [start, end] = part.of(parquet::rows(path, columns)?);
                Ok(Extent::Rows(end - start))
            }
            _ => csv::bytes(self, columns, part).map(Extent::Bytes),
        }
    }

    /// Reads a part. The value is converted to `f64`. `tick` is told of each bit of the extent that is done.
    pub(super) fn read(
        &self,
        columns: Columns<'_>,
        part: Part,
        tick: impl FnMut(u64),
    ) -> Result<Table, CommandError> {
        match self {
            Self::Parquet(path) => parquet::read(path, columns, part, tick),
            _ => csv::read(self, columns, part, tick),
        }
    }

    /// The bytes of a CSV file.
    pub(super) fn open(&self) -> Result<Box<dyn Bytes>, TableInputError> {
        match self {
            Self::Embedded => Ok(Box::new(Cursor::new(EMBEDDED))),
            Self::Csv(path) | Self::Parquet(path) => Ok(Box::new(open(path)?)),
        }
    }
}

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<File, TableInputError> {
    File::open(path)
        .map_err(|source| TableInputError::Unreadable { file: path.display().to_string(), source })
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableInputError {
    /// The system refuses to read a file.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// A file without a header, or without rows.
    #[error("{file} has no {what}; give a file with a header and at least one row")]
    Empty {
        /// The file.
        file: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A column that a file does not have.
    #[error("{file} has no column {column:?}; its columns are {columns}")]
    NoColumn {
        /// The file.
        file: String,
        /// The column asked for.
        column: String,
        /// Those that exist.
        columns: String,
    },
    /// A line of a CSV file with more or fewer fields than the header.
    #[error(
        "line {line} of {file} has {found} fields, its header has {expected}; a line is a row, without line breaks in fields"
    )]
    Fields {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// Its fields.
        found: usize,
        /// Those of the header.
        expected: usize,
    },
    /// A field of a CSV file that cannot be read.
    #[error("line {line} of {file} has {text:?} in column {column:?}, which is no {what}")]
    Field {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The field.
        text: String,
        /// The column.
        column: String,
        /// What is expected, with an example.
        what: &'static str,
    },
    /// A Parquet file that is damaged, or of a kind that is not read here.
    #[error("cannot read {file} as Parquet: {why}")]
    Parquet {
        /// The file.
        file: String,
        /// What the decoder says.
        why: String,
    },
    /// A column of values that are no numbers.
    #[error("column {column:?} of {file} is {found}; choose a column of integers or floating-point numbers")]
    ValueType {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
}

/// A batch of a key and a value.
pub(super) fn batch(
    columns: Columns<'_>,
    by: ArrayRef,
    value: ArrayRef,
) -> Result<RecordBatch, CommandError> {
    let rows =
        RecordBatch::try_from_iter_with_nullable([(columns.by, by, true), (columns.value, value, true)]);
    rows.map_err(|why| {
        CommandError::failed(format!(
            "cannot make a table of {:?} and {:?}: {why}",
            columns.by, columns.value
        ))
    })
}
