//! Groups of rows: columns whose values divide a table, compared by their bytes in the row format of Arrow.

use crate::keys::KeyType;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};
use serde::{Deserialize, Serialize};

/// One group: comparable with those of other batches and ranks that have the same column types.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Bytes in the order of the values.
    bytes: Vec<u8>,
    /// The values, for errors.
    pub(crate) text: String,
}

/// Whether a column can name groups. One of nulls alone names one.
pub(crate) fn is_group_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_group_type(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean => true,
        DataType::Date32 | DataType::Date64 | DataType::Null => true,
        other => other.is_integer(),
    }
}

/// Finds the groups of batches.
#[derive(Debug)]
pub(crate) struct Grouping {
    converter: RowConverter,
}

/// The groups of a batch with at least a row.
pub(crate) struct Runs {
    /// The first row of each group, ascending from 0.
    pub(crate) starts: Vec<usize>,
    /// The group of the first and of the last row.
    pub(crate) ends: [Group; 2],
    /// The first group that is not after the one before it: its place in `starts`, both groups.
    pub(crate) descends: Option<(usize, [Group; 2])>,
}

/// One group.
impl Default for Runs {
    fn default() -> Self {
        Self { starts: vec![0], ends: Default::default(), descends: None }
    }
}

impl Grouping {
    pub(crate) fn new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<Self, ArrowError> {
        let fields = types.into_iter().map(|data_type| SortField::new(data_type.clone())).collect();
        Ok(Self { converter: RowConverter::new(fields)? })
    }

    /// The groups of a batch with at least a row.
    pub(crate) fn runs(&self, columns: &[ArrayRef]) -> Result<Runs, ArrowError> {
        let starts: Vec<usize> =
            arrow_ord::partition::partition(columns)?.ranges().into_iter().map(|range| range.start).collect();
        let at = UInt64Array::from_iter_values(starts.iter().map(|&start| start as u64));
        let heads: Vec<ArrayRef> = columns
            .iter()
            .map(|column| arrow_select::take::take(column, &at, None))
            .collect::<Result<_, _>>()?;
        let rows = self.converter.convert_columns(&heads)?;
        let group = |at: usize| Group { bytes: rows.row(at).as_ref().to_vec(), text: text_of(&heads, at) };
        let descends = (1..starts.len())
            .find(|&at| rows.row(at) <= rows.row(at - 1))
            .map(|at| (at, [group(at - 1), group(at)]));
        Ok(Runs { ends: [group(0), group(starts.len() - 1)], starts, descends })
    }
}

fn text_of(columns: &[ArrayRef], row: usize) -> String {
    let values: Vec<String> = columns.iter().map(|column| value_text(column, row)).collect();
    values.join(", ")
}

fn value_text(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) || column.data_type() == &DataType::Null {
        return "null".to_owned();
    }
    match column.data_type() {
        DataType::Utf8 => format!("{:?}", column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => format!("{:?}", column.as_string::<i64>().value(row)),
        DataType::Utf8View => format!("{:?}", column.as_string_view().value(row)),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Dictionary(_, _) => {
            let one = column.slice(row, 1);
            let one = one.as_any_dictionary();
            value_text(one.values(), one.normalized_keys()[0])
        }
        other => match KeyType::of(other) {
            Some(key) => key.text(key.keys(&column.slice(row, 1))[0]),
            None => format!("a value of type {other}"),
        },
    }
}
