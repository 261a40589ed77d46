//! Reads a rank's rows of a Parquet file.

use super::input::{Columns, Part, TableInputError, batch, besides, find, open};
use crate::error::CommandError;
use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ::parquet::basic::Compression;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float64Array, new_empty_array};
use arrow_schema::DataType;
use halocline_table::Table;
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

/// Rows of a batch.
const BATCH: usize = 1 << 16;

fn damaged(path: &Path) -> impl Fn(&dyn Display) -> TableInputError {
    let file = path.display().to_string();
    move |why| TableInputError::Parquet { file: file.clone(), why: why.to_string() }
}

/// Refuses a file that does not begin as Parquet files do.
fn check_begin(path: &Path, bytes: &mut File) -> Result<(), TableInputError> {
    let file = || path.display().to_string();
    let (mut begin, unreadable) = (Vec::new(), |source| TableInputError::Unreadable { file: file(), source });
    bytes.take(4).read_to_end(&mut begin).map_err(unreadable)?;
    // The second is that of files with an encrypted footer, of which the decoder says so.
    match begin[..] == *b"PAR1" || begin[..] == *b"PARE" {
        true => bytes.rewind().map_err(unreadable),
        false => Err(TableInputError::NotParquet { file: file() }),
    }
}

/// The indices of the columns in the file: the key, the value, the groups.
fn begin(
    path: &Path,
    columns: Columns<'_>,
) -> Result<(ParquetRecordBatchReaderBuilder<File>, Vec<usize>), TableInputError> {
    let mut bytes = open(path)?;
    check_begin(path, &mut bytes)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|why| damaged(path)(&why))?;
    let schema = builder.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let file = path.display().to_string();
    let wanted = [columns.by, columns.value].into_iter().chain(columns.groups.iter().map(String::as_str));
    let indices = wanted.map(|column| find(&names, column, &file)).collect::<Result<Vec<_>, _>>()?;
    let used = builder.metadata().row_groups().iter().flat_map(|group| group.columns());
    for compression in used.map(|column| column.compression()) {
        if !matches!(compression, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)) {
            // Without its level.
            let text = compression.to_string();
            let codec = text.split('(').next().unwrap_or_default().to_lowercase();
            return Err(TableInputError::Codec { file, codec });
        }
    }
    Ok((builder, indices))
}

/// The columns of numbers besides those that are named.
pub(super) fn numbers_besides(path: &Path, named: &[&str]) -> Result<Vec<String>, TableInputError> {
    let mut bytes = open(path)?;
    check_begin(path, &mut bytes)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|why| damaged(path)(&why))?;
    let fields = builder.schema().fields();
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    let numbers = (0..fields.len()).filter(|&at| fields[at].data_type().is_numeric());
    besides(&names, numbers, named, &path.display().to_string())
}

/// The rows of the file. Checks its columns.
pub(super) fn rows(path: &Path, columns: Columns<'_>) -> Result<u64, TableInputError> {
    let (builder, indices) = begin(path, columns)?;
    let data_type = builder.schema().field(indices[1]).data_type().clone();
    floats(&new_empty_array(&data_type)).ok_or_else(|| value_type(path, columns, &data_type))?;
    match builder.metadata().file_metadata().num_rows() {
        0 => Err(TableInputError::NoRows { file: path.display().to_string() }),
        rows => u64::try_from(rows).map_err(|why| damaged(path)(&why)),
    }
}

fn value_type(path: &Path, columns: Columns<'_>, found: &DataType) -> TableInputError {
    let (file, column) = (path.display().to_string(), columns.value.to_owned());
    TableInputError::ValueType { file, column, found: found.to_string() }
}

/// Reads a part.
pub(super) fn read(
    path: &Path,
    columns: Columns<'_>,
    part: Part,
    mut tick: impl FnMut(u64),
) -> Result<Table, CommandError> {
    let damaged = damaged(path);
    let [start, end] = part.of(rows(path, columns)?);
    let (builder, indices) = begin(path, columns)?;
    // The groups of rows that the part overlaps; others are not read.
    let (mut groups, mut first, mut skipped) = (Vec::new(), 0, None);
    for (index, group) in builder.metadata().row_groups().iter().enumerate() {
        let after = first + group.num_rows().unsigned_abs();
        if first < end && start < after {
            groups.push(index);
            skipped.get_or_insert(start - first.min(start));
        }
        first = after;
    }
    let schema = builder.schema().clone();
    let mask = ProjectionMask::roots(builder.parquet_schema(), indices.iter().copied());
    let builder = builder.with_row_groups(groups).with_projection(mask).with_batch_size(BATCH);
    let builder = builder.with_offset(skipped.unwrap_or(0) as usize).with_limit((end - start) as usize);
    let mut batches = Vec::new();
    // Columns come in the order of the file.
    let place = |index: &usize| indices.iter().filter(|&other| other < index).count();
    let places: Vec<usize> = indices.iter().map(place).collect();
    let convert = |found: Vec<ArrayRef>| {
        let [by, value, groups @ ..] = &found[..] else { return Err(damaged(&"columns are missing").into()) };
        let floats = floats(value).ok_or_else(|| value_type(path, columns, value.data_type()))?;
        batch(columns, by.clone(), Arc::new(floats), groups.to_vec())
    };
    for rows in builder.build().map_err(|why| damaged(&why))? {
        let rows = rows.map_err(|why| damaged(&why))?;
        batches.push(convert(places.iter().map(|&place| rows.column(place).clone()).collect())?);
        tick(rows.num_rows() as u64);
    }
    let empty = indices.iter().map(|&index| new_empty_array(schema.field(index).data_type()));
    Ok(Table::new(convert(empty.collect())?.schema(), batches)?)
}

/// A column of numbers as `f64`; `None` if it holds others.
fn floats(column: &ArrayRef) -> Option<Float64Array> {
    fn of<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        convert: impl Fn(T::Native) -> f64,
    ) -> Option<Float64Array> {
        Some(column.as_primitive::<T>().unary(convert))
    }
    match column.data_type() {
        DataType::Float64 => Some(column.as_primitive::<Float64Type>().clone()),
        DataType::Float32 => of::<Float32Type>(column, f64::from),
        DataType::Int8 => of::<Int8Type>(column, f64::from),
        DataType::Int16 => of::<Int16Type>(column, f64::from),
        DataType::Int32 => of::<Int32Type>(column, f64::from),
        DataType::Int64 => of::<Int64Type>(column, |value| value as f64),
        DataType::UInt8 => of::<UInt8Type>(column, f64::from),
        DataType::UInt16 => of::<UInt16Type>(column, f64::from),
        DataType::UInt32 => of::<UInt32Type>(column, f64::from),
        DataType::UInt64 => of::<UInt64Type>(column, |value| value as f64),
        _ => None,
    }
}
