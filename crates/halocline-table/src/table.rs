//! The rows of one rank: checked, and reduced to the columns that windows need.

use crate::error::TableError;
use crate::group::{Group, Grouping, Runs, is_group_type};
use crate::keys::{KeyType, Keys};
use crate::spec::Rolling;
use crate::window::Offsets;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use std::ops::Range;
use std::sync::Arc;

/// The rows of one rank as Arrow record batches, which may be slices. Nothing is copied.
#[derive(Debug, Clone)]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// A table of batches of one schema; metadata and nullability may differ. A rank without rows gives its schema alone.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self, TableError> {
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
        let key_index = find(&table.schema, &spec.by, rank)?;
        let key_field = table.schema.field(key_index);
        let found = || key_field.data_type().to_string();
        let column = || spec.by.clone();
        let key_type = KeyType::of(key_field.data_type()).ok_or_else(|| TableError::KeyType {
            rank,
            column: column(),
            found: found(),
        })?;
        let offsets = spec.window.offsets(key_type.kind).ok_or_else(|| TableError::WindowType {
            window: spec.window.to_string(),
            column: column(),
            rank,
            found: found(),
            remedy: match key_type.kind {
                crate::keys::KeyKind::Integer => "give its length as \"5i\", or a number of rows",
                crate::keys::KeyKind::Time { .. } => "give its length as \"5s\", or a number of rows",
            }
            .to_owned(),
        })?;
        let mut kept = vec![key_index];
        for name in spec.groups.iter() {
            let index = find(&table.schema, name, rank)?;
            let data_type = table.schema.field(index).data_type();
            if !is_group_type(data_type) {
                return Err(TableError::GroupType {
                    rank,
                    column: name.clone(),
                    found: data_type.to_string(),
                });
            }
            kept.push(index);
        }
        match &spec.columns {
            Some(columns) => {
                for name in columns {
                    kept.push(find(&table.schema, name, rank)?);
                }
            }
            None => kept.extend(0..table.schema.fields().len()),
        }
        kept.sort_unstable();
        kept.dedup();
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
        sorted.find_groups(spec, rank).map_err(arrow)??;
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

    /// Divides the rows into groups, and checks that groups and keys ascend.
    fn find_groups(&mut self, spec: &Rolling, rank: usize) -> Result<Result<(), TableError>, ArrowError> {
        let columns: Vec<usize> =
            spec.groups.iter().map(|name| self.schema.index_of(name)).collect::<Result<_, _>>()?;
        let types = columns.iter().map(|&index| self.schema.field(index).data_type());
        let grouping = if columns.is_empty() { None } else { Some(Grouping::new(types)?) };
        let mut first = 0;
        for (batch, rows) in self.batches.iter().zip(self.keys.pieces()) {
            let runs = match &grouping {
                None => Runs { starts: vec![0], ends: Default::default(), descends: None },
                Some(grouping) => {
                    let columns: Vec<ArrayRef> =
                        columns.iter().map(|&index| batch.column(index).clone()).collect();
                    grouping.runs(&columns)?
                }
            };
            let unsorted = |row: usize, [before, value]: [String; 2], column: &str| TableError::Unsorted {
                rank,
                row: row as u64,
                column: column.to_owned(),
                value,
                before,
                before_rank: rank,
                before_row: row as u64 - 1,
            };
            let of_groups = |row, groups: [Group; 2]| {
                unsorted(row, groups.map(|group| group.text), &spec.groups.join(", "))
            };
            if first > 0 && runs.ends[0] < self.groups[1] {
                return Ok(Err(of_groups(first, [self.groups[1].clone(), runs.ends[0].clone()])));
            }
            if let Some((at, groups)) = runs.descends {
                return Ok(Err(of_groups(first + runs.starts[at], groups)));
            }
            let continues = first > 0 && runs.ends[0] == self.groups[1];
            let ends = runs.starts.iter().copied().skip(1).chain([rows.len()]);
            for (start, end) in runs.starts.iter().copied().zip(ends) {
                let group = &rows[start..end];
                let pair = |row, before, value| {
                    unsorted(row, [before, value].map(|key| self.key_type.text(key)), &spec.by)
                };
                if start == 0 && continues && rows[0] < self.keys.get(first - 1) {
                    return Ok(Err(pair(first, self.keys.get(first - 1), rows[0])));
                }
                if !group.is_sorted()
                    && let Some(at) = group.windows(2).position(|keys| keys[1] < keys[0])
                {
                    return Ok(Err(pair(first + start + at + 1, group[at], group[at + 1])));
                }
                if start == 0 && continues {
                    self.group_ends.pop();
                }
                self.group_ends.push(first + end);
            }
            let [head, last] = runs.ends;
            if first == 0 {
                self.groups[0] = head;
            }
            self.groups[1] = last;
            first += rows.len();
        }
        Ok(Ok(()))
    }

    /// The rows of the first group, and of the last.
    pub(crate) fn first_group(&self) -> Range<usize> {
        0..self.group_ends.first().copied().unwrap_or(0)
    }

    pub(crate) fn last_group(&self) -> Range<usize> {
        let start = self.group_ends.len().checked_sub(2).map_or(0, |before| self.group_ends[before]);
        start..self.rows()
    }

    /// Some rows, as slices of the batches.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Vec<RecordBatch> {
        slice(&self.batches, rows)
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

fn find(schema: &Schema, name: &str, rank: usize) -> Result<usize, TableError> {
    schema.index_of(name).map_err(|_| {
        let names: Vec<String> = schema.fields().iter().map(|field| format!("{:?}", field.name())).collect();
        TableError::NoColumn { rank, column: name.to_owned(), columns: names.join(", ") }
    })
}
