//! Reads a rank's part of a CSV file: the lines that begin in its part of the bytes.

use super::input::{Bytes, Columns, Part, Source, TableInputError, besides, find};
use super::key::KeyKind;
use crate::error::CommandError;
use ::csv::{ByteRecord, ReaderBuilder};
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use halocline_table::Table;
use std::io::{self, BufRead, BufReader, Read, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch.
const BATCH: usize = 1 << 16;

/// What files begin with that are no CSV, what they are, and what to do.
const OTHER_FORMATS: [(&[u8], &str, &str); 8] = [
    (b"\x1f\x8b", "compressed by gzip", "decompress it first, with gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it first, with unzstd"),
    (b"BZh", "compressed by bzip2", "decompress it first, with bunzip2"),
    (b"\xfd7zXZ", "compressed by xz", "decompress it first, with unxz"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first, with unzip"),
    (b"PAR1", "a Parquet file", "give it as `--parquet`"),
    (b"\xff\xfe", "text in UTF-16", "convert it to UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "convert it to UTF-8"),
];

/// What the header and the first row say.
struct Head {
    by: usize,
    value: usize,
    groups: Vec<usize>,
    fields: usize,
    keys: KeyKind,
    /// The rows.
    data: Range<u64>,
}

fn unreadable(source: &Source) -> impl FnOnce(io::Error) -> TableInputError {
    let file = source.name();
    move |source| TableInputError::Unreadable { file, source }
}

fn reader<R: Read>(bytes: R) -> ::csv::Reader<R> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).buffer_capacity(1 << 18).from_reader(bytes)
}

/// A file from its begin on.
struct Beginning<'a> {
    source: &'a Source,
    reader: ::csv::Reader<Box<dyn Bytes>>,
    names: Vec<String>,
    /// The rows.
    data: Range<u64>,
}

impl<'a> Beginning<'a> {
    /// Reads the header.
    fn read(source: &'a Source) -> Result<Self, TableInputError> {
        let mut bytes = source.open()?;
        let end = bytes.seek(SeekFrom::End(0)).map_err(unreadable(source))?;
        bytes.rewind().map_err(unreadable(source))?;
        let mut begin = Vec::new();
        (&mut bytes).take(8).read_to_end(&mut begin).map_err(unreadable(source))?;
        if let Some(&(_, found, remedy)) = OTHER_FORMATS.iter().find(|(magic, ..)| begin.starts_with(magic)) {
            return Err(TableInputError::NotCsv { file: source.name(), found, remedy });
        }
        bytes.rewind().map_err(unreadable(source))?;
        let mut file = Self { source, reader: reader(bytes), names: Vec::new(), data: end..end };
        let header = file.next("header")?;
        if goes_on(&header) {
            return Err(TableInputError::LineBreak { file: source.name(), line: 1 });
        }
        // Some programs begin files with a byte order mark.
        let name = |name| String::from_utf8_lossy(name).trim().trim_start_matches('\u{feff}').to_owned();
        file.names = header.iter().map(name).collect();
        file.data.start = file.reader.position().byte();
        Ok(file)
    }

    fn next(&mut self, what: &'static str) -> Result<ByteRecord, TableInputError> {
        let mut record = ByteRecord::new();
        match self.reader.read_byte_record(&mut record) {
            Ok(true) => Ok(record),
            Ok(false) => Err(TableInputError::Empty { file: self.source.name(), what }),
            Err(error) => Err(unreadable(self.source)(error.into())),
        }
    }
}

/// Whether a field goes on in the next line.
fn goes_on(record: &ByteRecord) -> bool {
    record.as_slice().iter().any(|byte| matches!(byte, b'\n' | b'\r'))
}

/// The columns that have a number in the first row, besides those that are named.
pub(super) fn numbers_besides(source: &Source, named: &[&str]) -> Result<Vec<String>, TableInputError> {
    let mut file = Beginning::read(source)?;
    let row = file.next("rows")?;
    let names: Vec<&str> = file.names.iter().map(String::as_str).collect();
    let fields = row.iter().take(names.len()).enumerate();
    let numbers = fields.filter(|(_, field)| number(field.trim_ascii()).is_some()).map(|(at, _)| at);
    besides(&names, numbers, named, &source.name())
}

fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

impl Head {
    fn read(source: &Source, columns: Columns<'_>) -> Result<Self, TableInputError> {
        let mut file = Beginning::read(source)?;
        let names: Vec<&str> = file.names.iter().map(String::as_str).collect();
        let find = |column: &str| find(&names, column, &source.name());
        let (by, value) = (find(columns.by)?, find(columns.value)?);
        let groups = columns.groups.iter().map(|group| find(group)).collect::<Result<_, _>>()?;
        let mut row = file.next("rows")?;
        let key = |row: &ByteRecord| row.get(by).unwrap_or_default().trim_ascii().to_vec();
        // Rows without a key are refused where they are read.
        while key(&row).is_empty() {
            let Ok(next) = file.next("rows") else { break };
            row = next;
        }
        let keys = KeyKind::of(&key(&row));
        Ok(Self { by, value, groups, fields: file.names.len(), keys, data: file.data })
    }

    /// The bytes of the lines that begin in a part of the data.
    fn part(&self, bytes: &mut dyn Bytes, part: Part) -> io::Result<Range<u64>> {
        let [start, end] = part.of(self.data.end - self.data.start);
        Ok(self.line_at(bytes, start)?..self.line_at(bytes, end)?)
    }

    /// Where the first line begins that does so at least `at` bytes after the first row.
    fn line_at(&self, bytes: &mut dyn Bytes, at: u64) -> io::Result<u64> {
        if at == 0 {
            return Ok(self.data.start);
        }
        let before = self.data.start + at - 1;
        bytes.seek(SeekFrom::Start(before))?;
        let skipped = BufReader::new(bytes).skip_until(b'\n')?;
        Ok((before + skipped as u64).min(self.data.end))
    }
}

/// The bytes of a part. Checks the header.
pub(super) fn bytes(source: &Source, columns: Columns<'_>, part: Part) -> Result<u64, TableInputError> {
    let part = Head::read(source, columns)?.part(&mut source.open()?, part).map_err(unreadable(source))?;
    Ok(part.end - part.start)
}

/// The records of a part, with the byte of the file where each begins, or the blank lines before it.
struct Records {
    reader: ::csv::Reader<io::Take<Box<dyn Bytes>>>,
    record: ByteRecord,
    first: u64,
}

impl Records {
    fn of(source: &Source, head: &Head, part: Part) -> Result<Self, TableInputError> {
        let mut bytes = source.open()?;
        let range = head.part(&mut bytes, part).map_err(unreadable(source))?;
        bytes.seek(SeekFrom::Start(range.start)).map_err(unreadable(source))?;
        let reader = reader(bytes.take(range.end - range.start));
        Ok(Self { reader, record: ByteRecord::new(), first: range.start })
    }

    /// The bytes of the part that have been read.
    fn done(&self) -> u64 {
        self.reader.position().byte()
    }

    /// The next record.
    fn next(&mut self, source: &Source) -> Result<Option<(&ByteRecord, u64)>, TableInputError> {
        let read = self.reader.read_byte_record(&mut self.record);
        let is_row = read.map_err(|error| unreadable(source)(error.into()))?;
        let at = self.first + self.record.position().map_or(0, ::csv::Position::byte);
        Ok(is_row.then_some((&self.record, at)))
    }
}

/// Reads a part.
pub(super) fn read(
    source: &Source,
    columns: Columns<'_>,
    part: Part,
    mut tick: impl FnMut(u64),
) -> Result<Table, CommandError> {
    let head = Head::read(source, columns)?;
    let mut records = Records::of(source, &head, part)?;
    let (mut batches, mut rows, mut reported) = (Vec::new(), Rows::new(&head), 0);
    loop {
        let done = records.done();
        let next = records.next(source)?;
        if next.is_none() || rows.keys.len() == BATCH {
            batches.push(std::mem::replace(&mut rows, Rows::new(&head)).into_batch(&head, columns)?);
            tick(done - reported);
            reported = done;
        }
        let Some((record, at)) = next else { break };
        if let Err(wrong) = rows.push(record, &head) {
            return Err(wrong.at(source, columns, line(source, at)?).into());
        }
    }
    let schema = batches[0].schema();
    Ok(Table::new(schema, batches)?)
}

/// The number of the line, counted from 1, with a row of a part, counted from 0.
pub(super) fn line_of_row(
    source: &Source,
    columns: Columns<'_>,
    part: Part,
    row: u64,
) -> Result<u64, TableInputError> {
    let head = Head::read(source, columns)?;
    let mut records = Records::of(source, &head, part)?;
    let mut at = 0;
    for _ in 0..=row {
        let Some((_, next)) = records.next(source)? else { break };
        at = next;
    }
    line(source, at)
}

/// The number of the line that begins at a byte, or of the first one after it that is not blank.
fn line(source: &Source, at: u64) -> Result<u64, TableInputError> {
    let mut bytes = BufReader::new(source.open()?);
    let (mut line, mut place) = (1, 0);
    loop {
        let buffer = bytes.fill_buf().map_err(unreadable(source))?;
        let before = buffer.len().min(usize::try_from(at.saturating_sub(place)).unwrap_or(usize::MAX));
        let is_blank = |byte: &&u8| matches!(byte, b'\n' | b'\r');
        let blank = buffer[before..].iter().take_while(is_blank).count();
        line += buffer[..before + blank].iter().filter(|&&byte| byte == b'\n').count() as u64;
        let read = buffer.len();
        if read == 0 || before + blank < read {
            return Ok(line);
        }
        bytes.consume(read);
        place += read as u64;
    }
}

/// The next rows of a batch. A key, a value or a group that is missing is null.
struct Rows {
    keys: Vec<Option<i64>>,
    values: Vec<Option<f64>>,
    groups: Vec<StringBuilder>,
}

/// What is wrong with a line.
enum Wrong {
    Fields { found: usize, expected: usize },
    LineBreak,
    Key(String, &'static str),
    Value(String),
}

impl Wrong {
    fn at(self, source: &Source, columns: Columns<'_>, line: u64) -> TableInputError {
        let file = source.name();
        match self {
            Self::Fields { found, expected } => TableInputError::Fields { file, line, found, expected },
            Self::LineBreak => TableInputError::LineBreak { file, line },
            Self::Key(text, what) => {
                TableInputError::Field { file, line, text, column: columns.by.to_owned(), what }
            }
            Self::Value(text) => {
                let (column, what) = (columns.value.to_owned(), "number; leave a missing one empty");
                TableInputError::Field { file, line, text, column, what }
            }
        }
    }
}

impl Rows {
    fn new(head: &Head) -> Self {
        let groups = head.groups.iter().map(|_| StringBuilder::new()).collect();
        Self { keys: Vec::new(), values: Vec::new(), groups }
    }

    fn push(&mut self, record: &ByteRecord, head: &Head) -> Result<(), Wrong> {
        // A quoted field: other ranks would take its second line for a row.
        if goes_on(record) {
            return Err(Wrong::LineBreak);
        }
        if record.len() != head.fields {
            return Err(Wrong::Fields { found: record.len(), expected: head.fields });
        }
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (key, value) = (record[head.by].trim_ascii(), record[head.value].trim_ascii());
        let parsed = match key {
            b"" => None,
            key => Some(head.keys.parse(key).map_err(|what| Wrong::Key(text(key), what))?),
        };
        let number = number(value);
        if number.is_none() && !value.is_empty() {
            return Err(Wrong::Value(text(value)));
        }
        self.keys.push(parsed);
        self.values.push(number);
        for (builder, &group) in self.groups.iter_mut().zip(&head.groups) {
            let group = Some(record[group].trim_ascii()).filter(|group| !group.is_empty());
            builder.append_option(group.map(String::from_utf8_lossy));
        }
        Ok(())
    }

    fn into_batch(self, head: &Head, columns: Columns<'_>) -> Result<RecordBatch, CommandError> {
        let groups = self.groups.into_iter().map(|mut group| Arc::new(group.finish()) as ArrayRef);
        let value = Arc::new(Float64Array::from(self.values));
        super::input::batch(columns, head.keys.column(self.keys), value, groups.collect())
    }
}
