//! Reads a rank's part of a table: the key, a value, and groups.

use super::{csv, parquet};
use crate::error::CommandError;
use arrow_array::{ArrayRef, RecordBatch};
use halocline_table::{Table, TableError};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A year of temperatures in Seattle.
const EMBEDDED: &[u8] = include_bytes!("../../../../data/seattle-temps/seattle-temps.csv");

/// Bytes that can be read from any place.
pub(super) trait Bytes: Read + Seek {}
impl<T: Read + Seek> Bytes for T {}

/// Where the table is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A CSV file in memory.
    Memory {
        name: &'static str,
        bytes: Cow<'static, [u8]>,
    },
    Csv(PathBuf),
    Parquet(PathBuf),
}

/// The columns to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'a> {
    pub(super) by: &'a str,
    pub(super) value: &'a str,
    pub(super) groups: &'a [String],
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
    /// The data within this program.
    pub(super) fn embedded() -> Self {
        Self::Memory { name: "seattle-temps.csv (built in)", bytes: Cow::Borrowed(EMBEDDED) }
    }

    /// The name of the data for reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Memory { name, .. } => (*name).to_owned(),
            Self::Csv(path) | Self::Parquet(path) => path.display().to_string(),
        }
    }

    /// The columns of numbers besides those that are named, as far as the begin of the file tells. The named ones must exist.
    pub(super) fn numbers_besides(&self, named: &[&str]) -> Result<Vec<String>, TableInputError> {
        match self {
            Self::Parquet(path) => parquet::numbers_besides(path, named),
            _ => csv::numbers_besides(self, named),
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

    /// Reads a part. The value is converted to `f64`. `tick` receives each part of the extent that is done.
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

    /// Where a row of a part is: the line of a CSV file, counted from 1, or the row of a Parquet file, counted from 0.
    fn place(&self, columns: Columns<'_>, part: Part, row: u64) -> Result<String, TableInputError> {
        Ok(match self {
            Self::Parquet(path) => {
                let [start, _] = part.of(parquet::rows(path, columns)?);
                format!("row {} of {}", start + row, self.name())
            }
            _ => format!("line {} of {}", csv::line_of_row(self, columns, part, row)?, self.name()),
        })
    }

    /// An error of `size` ranks that names a rank's row, as one that names the place in the file.
    pub(super) fn in_file(
        &self,
        columns: Columns<'_>,
        size: usize,
        error: TableError,
    ) -> Result<CommandError, TableInputError> {
        let place = |rank, row| self.place(columns, Part { rank, size }, row);
        Ok(match error {
            TableError::NullKey { rank, row, column } => {
                TableInputError::NullKey { place: place(rank, row)?, column }.into()
            }
            TableError::Unsorted { rank, row, column, value, before, before_rank, before_row } => {
                let (place, before_place) = (place(rank, row)?, place(before_rank, before_row)?);
                TableInputError::Unsorted { place, column, value, before, before_place }.into()
            }
            other => other.into(),
        })
    }

    /// The bytes of a CSV file.
    pub(super) fn open(&self) -> Result<Box<dyn Bytes>, TableInputError> {
        match self {
            Self::Memory { bytes, .. } => Ok(Box::new(Cursor::new(bytes.clone()))),
            Self::Csv(path) | Self::Parquet(path) => Ok(Box::new(open(path)?)),
        }
    }
}

/// Opens a file. One that cannot be read from any place is refused first: to open a pipe would wait for its writer.
pub(super) fn open(path: &Path) -> Result<File, TableInputError> {
    let file = || path.display().to_string();
    let unreadable = |source| TableInputError::Unreadable { file: file(), source };
    let kind = path.metadata().map_err(unreadable)?.file_type();
    if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
        return Err(TableInputError::NotRegular { file: file() });
    }
    File::open(path).map_err(unreadable)
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableInputError {
    /// The system refuses to read a file.
    #[error("cannot read {file}: {source}; check its path and its permissions")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// A pipe or a device: a rank reads its part from the middle of a file.
    #[error(
        "{file} is a pipe or a device, not a regular file; ranks read parts of it: store it in a file first"
    )]
    NotRegular {
        /// The file.
        file: String,
    },
    /// A Parquet file without rows.
    #[error("{file} has columns, but not a row; give a file with at least one row")]
    NoRows {
        /// The file.
        file: String,
    },
    /// A file of another kind given as Parquet.
    #[error("{file} is no Parquet file; give the path of one, or a CSV file as `--csv`")]
    NotParquet {
        /// The file.
        file: String,
    },
    /// A CSV file without a header, or without rows.
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
    /// A file of another kind given as CSV.
    #[error("{file} is {found}, it cannot be read as CSV; {remedy}")]
    NotCsv {
        /// The file.
        file: String,
        /// What it is.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A column whose name another one has, too.
    #[error("{file} has two columns {column:?}; rename one of them")]
    TwoColumns {
        /// The file.
        file: String,
        /// The name.
        column: String,
    },
    /// A row of a CSV file that goes on in the next line.
    #[error(
        "line {line} of {file} has a field in quotes that goes on in the next line; a line is a row: take line breaks out of fields"
    )]
    LineBreak {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
    },
    /// A row without a key.
    #[error("{place} has no {column:?}; every row needs one: drop such rows before")]
    NullKey {
        /// The row.
        place: String,
        /// The key.
        column: String,
    },
    /// A row that belongs before the previous one.
    #[error(
        "rows are not sorted: {place} has {column} = {value}, after {before} in {before_place}; sort the file by its groups \
         (nulls first, categories by value), then by the key, ascending"
    )]
    Unsorted {
        /// The row.
        place: String,
        /// The column that descends.
        column: String,
        /// The value there.
        value: String,
        /// The value of the row before.
        before: String,
        /// The row before.
        before_place: String,
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
    #[error("line {line} of {file} has {text:?} in column {column:?}, which is no {what}{}", correct(what))]
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
    #[error("cannot read {file} as Parquet: {why}; write it again, without encryption")]
    Parquet {
        /// The file.
        file: String,
        /// What the decoder says.
        why: String,
    },
    /// A Parquet file in a compression that is not read here.
    #[error(
        "{file} is compressed by {codec}, which is not read here; write it with snappy or zstd, or uncompressed"
    )]
    Codec {
        /// The file.
        file: String,
        /// The compression.
        codec: String,
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

/// What to do about a field, unless what is expected says it.
fn correct(what: &str) -> &'static str {
    if what.contains(';') { "" } else { "; correct that line" }
}

/// The place of a column among the names of all.
pub(super) fn find(names: &[&str], column: &str, file: &str) -> Result<usize, TableInputError> {
    let mut found = (0..names.len()).filter(|&at| names[at] == column);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => {
            Err(TableInputError::TwoColumns { file: file.to_owned(), column: column.to_owned() })
        }
        (None, _) => Err(TableInputError::NoColumn {
            file: file.to_owned(),
            column: column.to_owned(),
            columns: names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// The names of the columns with these numbers besides those that are named, which must exist.
pub(super) fn besides(
    names: &[&str],
    columns: impl Iterator<Item = usize>,
    named: &[&str],
    file: &str,
) -> Result<Vec<String>, TableInputError> {
    named.iter().try_for_each(|column| find(names, column, file).map(drop))?;
    let mut seen = BTreeSet::new();
    let mut free = Vec::new();
    for column in columns.map(|at| names[at]).filter(|name| !named.contains(name)) {
        if !seen.insert(column) {
            return Err(TableInputError::TwoColumns { file: file.to_owned(), column: column.to_owned() });
        }
        free.push(column.to_owned());
    }
    Ok(free)
}

/// A batch of a key, a value and groups.
pub(super) fn batch(
    columns: Columns<'_>,
    by: ArrayRef,
    value: ArrayRef,
    groups: Vec<ArrayRef>,
) -> Result<RecordBatch, CommandError> {
    let groups = columns.groups.iter().map(String::as_str).zip(groups);
    let all = [(columns.by, by), (columns.value, value)].into_iter().chain(groups);
    RecordBatch::try_from_iter_with_nullable(all.map(|(name, column)| (name, column, true))).map_err(|why| {
        CommandError::failed(format!(
            "cannot make a table of {:?} and {:?}: {why}; please report this with the types of the columns",
            columns.by, columns.value
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use std::sync::Arc;

    #[test]
    fn columns_of_different_lengths_are_no_table() {
        let columns = Columns { by: "t", value: "v", groups: &[] };
        let array = |rows| Arc::new(Int64Array::from(vec![0; rows])) as ArrayRef;
        let error = batch(columns, array(1), array(2), Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("cannot make a table of \"t\" and \"v\": "), "{error}");
        assert!(error.ends_with("; please report this with the types of the columns"), "{error}");
    }
}
