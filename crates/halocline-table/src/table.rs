//! The rows of one rank: checked, and reduced to the columns that windows need.

use crate::error::TableError;
use crate::group::{Group, Grouping, Runs, is_group_type};
use crate::keys::{KeyKind, KeyType, Keys};
use crate::message::{begin, content, with_checksum};
use crate::spec::Rolling;
use crate::window::Offsets;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use halocline_comm::Communicator;
use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

/// The rows of one rank as Arrow record batches, which may be slices. Nothing is copied.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_table::{Table, TableError};
///
/// let batch = record_batch!(("time", Int64, [0, 1, 4]), ("level", Float64, [2.0, 3.0, 7.0]))?;
/// let table = Table::new(batch.schema(), vec![batch.clone(), batch.slice(0, 1)])?;
/// assert_eq!(table.rows(), 4);
///
/// let other = record_batch!(("time", Int32, [5]))?;
/// let refused = Table::new(batch.schema(), vec![batch, other]);
/// assert!(matches!(refused, Err(TableError::Batches { batch: 1, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// A table of batches of one schema; metadata and nullability may differ. A rank without rows gives its schema alone.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self, TableError> {
        let mut names = HashSet::new();
        if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
            return Err(TableError::TwoColumns { column: twice.name().clone() });
        }
        let expected = columns_of(&schema);
        for (batch, found) in batches.iter().map(|batch| columns_of(batch.schema_ref())).enumerate() {
            if found != expected {
                return Err(TableError::Batches { batch, found, expected });
            }
        }
        Ok(Self { schema, batches })
    }

    /// Rows of all batches.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Whether a column has the type Null, as pandas' columns of objects have without values.
    pub(crate) fn has_untyped(&self) -> bool {
        self.schema.fields().iter().any(|field| field.data_type() == &DataType::Null)
    }

    /// The same table, where columns of type Null have the type that the first rank that knows one gives to a column of that name.
    /// Collective.
    pub(crate) fn with_types_of_all(&self, comm: &Communicator) -> Result<Self, TableError> {
        const WHAT: &str = "schema of a table";
        let arrow = |why: ArrowError| TableError::Arrow {
            rank: comm.rank(),
            what: "exchange the types of columns".to_owned(),
            why: why.to_string(),
        };
        let own = StreamWriter::try_new(begin(), &self.schema).and_then(StreamWriter::into_inner);
        let gathered = comm.all_gather(with_checksum(own.map_err(arrow)?))?;
        let mut types: HashMap<String, DataType> = HashMap::new();
        for (from, bytes) in gathered.iter().enumerate() {
            let stream = StreamReader::try_new(Cursor::new(content(bytes, from, WHAT)?), None);
            let malformed = |_| TableError::Malformed { from, what: WHAT.to_owned() };
            for field in stream.map_err(malformed)?.schema().fields().iter() {
                if field.data_type() != &DataType::Null {
                    types.entry(field.name().clone()).or_insert_with(|| field.data_type().clone());
                }
            }
        }
        let typed = |field: &FieldRef| match types.get(field.name()) {
            Some(known) if field.data_type() == &DataType::Null => {
                field.as_ref().clone().with_data_type(known.clone()).with_nullable(true)
            }
            _ => field.as_ref().clone(),
        };
        let fields: Vec<Field> = self.schema.fields().iter().map(typed).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        let convert = |batch: &RecordBatch| {
            let columns =
                batch.columns().iter().zip(schema.fields()).map(|(column, field)| match column.data_type() {
                    DataType::Null => new_null_array(field.data_type(), batch.num_rows()),
                    _ => Arc::clone(column),
                });
            RecordBatch::try_new(Arc::clone(&schema), columns.collect())
        };
        let batches = self.batches.iter().map(convert).collect::<Result<_, _>>().map_err(arrow)?;
        Ok(Self { schema, batches })
    }
}

/// The same columns: rows of another rank may have nulls.
fn nullable(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

/// Names and types of columns, for errors and comparisons.
pub(crate) fn columns_of(schema: &Schema) -> String {
    let column = |field: &arrow_schema::FieldRef| format!("{} {}", field.name(), field.data_type());
    let columns: Vec<String> = schema.fields().iter().map(column).collect();
    format!("[{}]", columns.join(", "))
}

/// A rank's rows, sorted, with the columns that its windows need.
#[derive(Debug)]
pub(crate) struct Sorted {
    pub(crate) schema: SchemaRef,
    pub(crate) key_type: KeyType,
    /// The key's column in `schema`.
    pub(crate) key_column: usize,
    pub(crate) offsets: Offsets,
    /// Batches with at least a row.
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) keys: Keys,
    /// The row after the last of each group.
    pub(crate) group_ends: Vec<usize>,
    /// The groups of the first and of the last row; empty groups without group columns, and without rows.
    pub(crate) groups: [Group; 2],
}

impl Sorted {
    /// Checks a rank's table against a window.
    pub(crate) fn new(table: &Table, spec: &Rolling, rank: usize) -> Result<Self, TableError> {
        spec.check_names()?;
        let key_index = find(&table.schema, &spec.by, rank)?;
        let (key_type, offsets) = key_of(table.schema.field(key_index), spec, rank)?;
        let kept = kept_columns(&table.schema, key_index, spec, rank)?;
        let arrow = |why: ArrowError| TableError::Arrow {
            rank,
            what: "compare the groups of rows".to_owned(),
            why: why.to_string(),
        };
        let schema = Arc::new(nullable(&table.schema.project(&kept).map_err(arrow)?));
        let reduce = |batch: &RecordBatch| {
            let columns = kept.iter().map(|&index| Arc::clone(batch.column(index))).collect();
            RecordBatch::try_new(Arc::clone(&schema), columns)
        };
        let batches = table.batches.iter().filter(|batch| batch.num_rows() > 0);
        let batches = batches.map(reduce).collect::<Result<Vec<_>, _>>().map_err(arrow)?;
        let key_column = kept.partition_point(|&index| index < key_index);
        let keys = Keys::new(batches.iter().map(|batch| key_type.keys(batch.column(key_column))));
        let (group_ends, groups) = (Vec::new(), Default::default());
        let mut sorted = Self { schema, key_type, key_column, offsets, batches, keys, group_ends, groups };
        sorted.check_nulls(spec, rank)?;
        for runs in sorted.runs(spec).map_err(arrow)? {
            sorted.append(runs, spec, rank)?;
        }
        Ok(sorted)
    }

    pub(crate) fn rows(&self) -> usize {
        self.keys.len()
    }

    fn check_nulls(&self, spec: &Rolling, rank: usize) -> Result<(), TableError> {
        let mut first = 0;
        for batch in &self.batches {
            let key = batch.column(self.key_column);
            if key.null_count() > 0
                && let Some(at) = (0..key.len()).find(|&row| key.is_null(row))
            {
                return Err(TableError::NullKey { rank, row: (first + at) as u64, column: spec.by.clone() });
            }
            first += batch.num_rows();
        }
        Ok(())
    }

    /// The groups of each batch.
    fn runs(&self, spec: &Rolling) -> Result<Vec<Runs>, ArrowError> {
        let columns: Vec<usize> =
            spec.groups.iter().map(|name| self.schema.index_of(name)).collect::<Result<_, _>>()?;
        if columns.is_empty() {
            return Ok(self.batches.iter().map(|_| Runs::default()).collect());
        }
        let grouping = Grouping::new(columns.iter().map(|&index| self.schema.field(index).data_type()))?;
        let runs = |batch: &RecordBatch| {
            let columns: Vec<ArrayRef> = columns.iter().map(|&index| batch.column(index).clone()).collect();
            grouping.runs(&columns)
        };
        self.batches.iter().map(runs).collect()
    }

    /// Appends the groups of the next batch. Checks that groups and keys ascend.
    fn append(&mut self, runs: Runs, spec: &Rolling, rank: usize) -> Result<(), TableError> {
        let first = self.group_ends.last().copied().unwrap_or(0);
        let rows = first..self.keys.piece_end(first);
        let unsorted = |row: usize, column: &str, [before, value]: [String; 2]| TableError::Unsorted {
            rank,
            row: row as u64,
            column: column.to_owned(),
            value,
            before,
            before_rank: rank,
            before_row: row as u64 - 1,
        };
        let of_groups = |row, groups: [&Group; 2]| {
            Err(unsorted(row, &spec.groups.join(", "), groups.map(|group| group.text.clone())))
        };
        let [head, last] = runs.ends;
        if first > 0 && head < self.groups[1] {
            return of_groups(first, [&self.groups[1], &head]);
        }
        if let Some((at, [before, group])) = &runs.descends {
            return of_groups(first + runs.starts[*at], [before, group]);
        }
        let continues = first > 0 && head == self.groups[1];
        let starts = runs.starts.iter().map(|start| first + start);
        let ends = starts.clone().skip(1).chain([rows.end]);
        for (start, end) in starts.zip(ends) {
            let is_continued = start == first && continues;
            // With the last row of the batch before, if that is of the same group.
            if let Some(row) = self.keys.descends(start - usize::from(is_continued)..end) {
                let keys = [row - 1, row].map(|row| self.key_type.text(self.keys.get(row)));
                return Err(unsorted(row, &spec.by, keys));
            }
            if is_continued {
                self.group_ends.pop();
            }
            self.group_ends.push(end);
        }
        if first == 0 {
            self.groups[0] = head;
        }
        self.groups[1] = last;
        Ok(())
    }

    /// The rows of the first group, and of the last.
    pub(crate) fn first_group(&self) -> Range<usize> {
        0..self.group_ends.first().copied().unwrap_or(0)
    }

    pub(crate) fn last_group(&self) -> Range<usize> {
        let start = self.group_ends.len().checked_sub(2).map_or(0, |before| self.group_ends[before]);
        start..self.rows()
    }
}

/// Some rows of batches, as slices of them.
pub(crate) fn slice(batches: &[RecordBatch], rows: Range<usize>) -> Vec<RecordBatch> {
    let (mut sliced, mut first) = (Vec::new(), 0);
    for batch in batches {
        let (start, end) = (rows.start.max(first), rows.end.min(first + batch.num_rows()));
        if start < end {
            sliced.push(batch.slice(start - first, end - start));
        }
        first += batch.num_rows();
    }
    sliced
}

/// The type of the key, and the windows in its unit.
fn key_of(key: &Field, spec: &Rolling, rank: usize) -> Result<(KeyType, Offsets), TableError> {
    let (column, found) = (spec.by.clone(), key.data_type().to_string());
    let Some(key_type) = KeyType::of(key.data_type()) else {
        return Err(TableError::KeyType { rank, column, found });
    };
    let Some(offsets) = spec.window.offsets(key_type.kind) else {
        let remedy = match key_type.kind {
            KeyKind::Integer => "give its length as \"5i\", or a number of rows",
            KeyKind::Time { .. } => "give its length as \"5s\", or a number of rows",
        };
        let (window, remedy) = (spec.window.to_string(), remedy.to_owned());
        return Err(TableError::WindowType { window, column, rank, found, remedy });
    };
    Ok((key_type, offsets))
}

/// The columns of the key, the groups and the values, ascending.
fn kept_columns(schema: &Schema, key: usize, spec: &Rolling, rank: usize) -> Result<Vec<usize>, TableError> {
    let mut kept = vec![key];
    for name in &spec.groups {
        let index = find(schema, name, rank)?;
        let found = schema.field(index).data_type();
        if !is_group_type(found) {
            let (column, found) = (name.clone(), found.to_string());
            return Err(TableError::GroupType { rank, column, found });
        }
        kept.push(index);
    }
    match &spec.columns {
        Some(columns) => {
            for name in columns {
                kept.push(find(schema, name, rank)?);
            }
        }
        None => kept.extend(0..schema.fields().len()),
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(kept)
}

fn find(schema: &Schema, name: &str, rank: usize) -> Result<usize, TableError> {
    schema.index_of(name).map_err(|_| {
        let names: Vec<String> = schema.fields().iter().map(|field| format!("{:?}", field.name())).collect();
        TableError::NoColumn { rank, column: name.to_owned(), columns: names.join(", ") }
    })
}
