//! Reads a rank's part of a CSV file: the lines that begin in its part of the bytes.

use super::input::{Bytes, Columns, Part, Source, TableInputError};
use crate::error::CommandError;
use ::csv::{ByteRecord, ReaderBuilder, Trim};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use halocline_table::Table;
use std::io::{self, BufRead, BufReader, Read, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use time::{Date, Month, PrimitiveDateTime, Time, UtcOffset};

/// Rows of a batch.
const BATCH: usize = 1 << 16;

/// What the header and the first row say.
struct Head {
    by: usize,
    value: usize,
    fields: usize,
    /// Whether the keys are integers; else they are times.
    is_integer: bool,
    /// The rows.
    data: Range<u64>,
}

fn unreadable(source: &Source) -> impl FnOnce(io::Error) -> TableInputError {
    let file = source.name();
    move |source| TableInputError::Unreadable { file, source }
}

fn reader<R: Read>(bytes: R) -> ::csv::Reader<R> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).trim(Trim::All).buffer_capacity(1 << 18).from_reader(bytes)
}

impl Head {
    fn read(source: &Source, columns: Columns<'_>) -> Result<Self, TableInputError> {
        let mut bytes = source.open()?;
        let end = bytes.seek(SeekFrom::End(0)).map_err(unreadable(source))?;
        bytes.rewind().map_err(unreadable(source))?;
        let mut reader = reader(&mut bytes);
        let mut next = |what| {
            let mut record = ByteRecord::new();
            match reader.read_byte_record(&mut record) {
                Ok(true) => Ok((record, reader.position().byte())),
                Ok(false) => Err(TableInputError::Empty { file: source.name(), what }),
                Err(error) => Err(unreadable(source)(error.into())),
            }
        };
        let (header, start) = next("header")?;
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        // Some programs begin files with a byte order mark.
        let names: Vec<&str> = names.iter().map(|name| name.trim_start_matches('\u{feff}')).collect();
        let find = |column: &str| {
            names.iter().position(|name| *name == column).ok_or_else(|| TableInputError::NoColumn {
                file: source.name(),
                column: column.to_owned(),
                columns: names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
            })
        };
        let (by, value) = (find(columns.by)?, find(columns.value)?);
        let (first, _) = next("rows")?;
        let is_integer = first.get(by).and_then(integer).is_some();
        Ok(Self { by, value, fields: names.len(), is_integer, data: start..end })
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

/// Reads a part.
pub(super) fn read(
    source: &Source,
    columns: Columns<'_>,
    part: Part,
    mut tick: impl FnMut(u64),
) -> Result<Table, CommandError> {
    let head = Head::read(source, columns)?;
    let mut bytes = source.open()?;
    let range = head.part(&mut bytes, part).map_err(unreadable(source))?;
    bytes.seek(SeekFrom::Start(range.start)).map_err(unreadable(source))?;
    let mut reader = reader(bytes.take(range.end - range.start));
    let (mut record, mut batches, mut rows) = (ByteRecord::new(), Vec::new(), Rows::default());
    let mut told = 0;
    loop {
        let place = reader.position().byte();
        let is_row =
            reader.read_byte_record(&mut record).map_err(|error| unreadable(source)(error.into()))?;
        if !is_row || rows.keys.len() == BATCH {
            batches.push(rows.take(&head, columns)?);
            tick(place - told);
            told = place;
        }
        if !is_row {
            break;
        }
        if let Err(wrong) = rows.push(&record, &head) {
            let at = range.start + record.position().map_or(place, |position| position.byte());
            return Err(wrong.at(source, columns, line(source, at)?).into());
        }
    }
    let schema = batches[0].schema();
    Ok(Table::new(schema, batches)?)
}

/// The number of the line that begins at a byte.
fn line(source: &Source, at: u64) -> Result<u64, TableInputError> {
    let mut before = BufReader::new(source.open()?.take(at));
    let mut line = 1;
    loop {
        let buffer = before.fill_buf().map_err(unreadable(source))?;
        if buffer.is_empty() {
            return Ok(line);
        }
        line += buffer.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let read = buffer.len();
        before.consume(read);
    }
}

/// The next rows of a batch. A key or a value that is missing is null.
#[derive(Default)]
struct Rows {
    keys: Vec<Option<i64>>,
    values: Vec<Option<f64>>,
}

/// What is wrong with a line.
enum Wrong {
    Fields { found: usize, expected: usize },
    Key(String, &'static str),
    Value(String),
}

impl Wrong {
    fn at(self, source: &Source, columns: Columns<'_>, line: u64) -> TableInputError {
        let file = source.name();
        match self {
            Self::Fields { found, expected } => TableInputError::Fields { file, line, found, expected },
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
    fn push(&mut self, record: &ByteRecord, head: &Head) -> Result<(), Wrong> {
        if record.len() != head.fields {
            return Err(Wrong::Fields { found: record.len(), expected: head.fields });
        }
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (key, value) = (&record[head.by], &record[head.value]);
        let (parsed, what) = match head.is_integer {
            true => (integer(key), "integer, as the key of the first row is"),
            false => (micros(key), "time; write 2010-12-31, 2010-12-31 23:59 or 2010-12-31T23:59:59.5Z"),
        };
        if parsed.is_none() && !key.is_empty() {
            return Err(Wrong::Key(text(key), what));
        }
        let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        if number.is_none() && !value.is_empty() {
            return Err(Wrong::Value(text(value)));
        }
        self.keys.push(parsed);
        self.values.push(number);
        Ok(())
    }

    fn take(&mut self, head: &Head, columns: Columns<'_>) -> Result<RecordBatch, CommandError> {
        let Self { keys, values } = std::mem::take(self);
        let key: ArrayRef = match head.is_integer {
            true => Arc::new(Int64Array::from(keys)),
            false => Arc::new(TimestampMicrosecondArray::from(keys)),
        };
        super::input::batch(columns, key, Arc::new(Float64Array::from(values)))
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Microseconds since 1970 of a date, or of a date and a time. Without a zone it counts as UTC.
fn micros(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut parts = date.split(['-', '/']);
    let mut next = |digits: usize| parts.next().filter(|part| part.len() == digits).and_then(number);
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    if parts.next().is_some() {
        return None;
    }
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year as i32, month, u8::try_from(day).ok()?).ok()?;
    let (clock, offset) = match clock.strip_suffix('Z') {
        Some(clock) => (clock, UtcOffset::UTC),
        None => match clock.find(['+', '-']) {
            Some(at) => (&clock[..at], offset(&clock[at..])?),
            None => (clock, UtcOffset::UTC),
        },
    };
    let time = PrimitiveDateTime::new(date, time_of_day(clock)?).assume_offset(offset);
    i64::try_from(time.unix_timestamp_nanos() / 1000).ok()
}

/// A number of digits alone.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `23:59`, `23:59:59` or `23:59:59.123456`.
fn time_of_day(text: &str) -> Option<Time> {
    let mut parts = text.split(':');
    let next = |part: Option<&str>| part.filter(|part| part.len() == 2).and_then(number);
    let (hour, minute) = (next(parts.next())?, next(parts.next())?);
    let (second, fraction) = match parts.next() {
        None => (0, 0),
        Some(part) => {
            let (second, fraction) = part.split_once('.').unwrap_or((part, "0"));
            if fraction.is_empty() || fraction.len() > 6 {
                return None;
            }
            (next(Some(second))?, number(&format!("{fraction:0<6}"))?)
        }
    };
    let [hour, minute, second] = [hour, minute, second].map(|part| part as u8);
    parts.next().is_none().then(|| Time::from_hms_micro(hour, minute, second, fraction).ok()).flatten()
}

/// `+01:00` or `-0530`.
fn offset(text: &str) -> Option<UtcOffset> {
    let (sign, digits) = text.split_at(1);
    let digits = number(&digits.replace(':', "")).filter(|_| matches!(digits.len(), 4 | 5))?;
    let sign = if sign == "-" { -1 } else { 1 };
    UtcOffset::from_hms(sign * (digits / 100) as i8, sign * (digits % 100) as i8, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_usual_forms() {
        let of = |text: &str| micros(text.as_bytes());
        assert_eq!(of("1970-01-02"), Some(86_400_000_000));
        assert_eq!(of("1970/01/01 00:01"), Some(60_000_000));
        assert_eq!(of("1970-01-01T00:00:01.5Z"), Some(1_500_000));
        assert_eq!(of("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(of("1969-12-31 23:59:59.999999-0000"), Some(-1));
        for text in [
            "",
            "1970",
            "1970-1-1",
            "1970-02-30",
            "1970-01-01 24:00",
            "1970-01-01 0:00",
            "1970-01-01T00:00:01.",
            "1970-01-01T00:00:01.1234567",
            "1970-01-01 00:00+1",
            "1970-01-01-01",
            "x",
            "1970-01-01 00:00:00:00",
            "+970-01-01",
            "1970-01-01 \u{1F600}",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
