//! Columns to be sent, without the text that their rows do not use.
//!
//! The encoder cuts offsets, values and children to the rows of a slice, but writes the buffers of views as they are: those of
//! the whole column. Dictionaries keep all their values: these and their order are part of the type of a categorical column.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field};
use std::sync::Arc;

/// A column whose views, at any depth, have only the buffers that its rows use.
pub(crate) fn compact(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_views(column.data_type()) {
        return Ok(column.clone());
    }
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::Struct(_) => Arc::new(compact_struct(column.as_struct())?),
        DataType::List(_) => Arc::new(compact_list(column.as_list::<i32>())?),
        DataType::LargeList(_) => Arc::new(compact_list(column.as_list::<i64>())?),
        DataType::FixedSizeList(..) => {
            let rows = column.len();
            let (field, size, values, nulls) = column.as_fixed_size_list().clone().into_parts();
            let values = compact(&values)?;
            Arc::new(FixedSizeListArray::try_new_with_length(field, size, values, nulls, rows)?)
        }
        DataType::Map(..) => {
            let (field, offsets, entries, nulls, is_sorted) = column.as_map().clone().into_parts();
            let (offsets, used) = cut(&offsets);
            let entries = compact_struct(&entries.slice(used.start, used.len()))?;
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, is_sorted)?)
        }
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            dictionary.with_values(compact(dictionary.values())?)
        }
        _ => column.clone(),
    })
}

/// Whether [`compact`] finds views in such a column.
fn has_views(data_type: &DataType) -> bool {
    let of = |field: &Field| has_views(field.data_type());
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::Struct(fields) => fields.iter().any(|field| of(field)),
        DataType::List(field) | DataType::LargeList(field) => of(field),
        DataType::FixedSizeList(field, _) | DataType::Map(field, _) => of(field),
        DataType::Dictionary(_, values) => has_views(values),
        _ => false,
    }
}

fn compact_struct(rows: &StructArray) -> Result<StructArray, ArrowError> {
    // A struct with views has a column.
    let (fields, columns, nulls) = rows.clone().into_parts();
    StructArray::try_new(fields, columns.iter().map(compact).collect::<Result<_, _>>()?, nulls)
}

fn compact_list<O: OffsetSizeTrait>(rows: &GenericListArray<O>) -> Result<GenericListArray<O>, ArrowError> {
    let (field, offsets, values, nulls) = rows.clone().into_parts();
    let (offsets, used) = cut(&offsets);
    GenericListArray::try_new(field, offsets, compact(&values.slice(used.start, used.len()))?, nulls)
}

/// Offsets from 0, and the values that they cover.
fn cut<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (OffsetBuffer<O>, std::ops::Range<usize>) {
    // An `OffsetBuffer` has at least one offset.
    let [first, last] = [offsets[0], offsets[offsets.len() - 1]];
    let shifted: Vec<O> = offsets.iter().map(|&offset| offset - first).collect();
    (OffsetBuffer::new(shifted.into()), first.as_usize()..last.as_usize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{
        FixedSizeListBuilder, LargeListBuilder, ListBuilder, MapBuilder, StringViewBuilder, StructBuilder,
    };
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int32Array, RecordBatch, StringViewArray, UInt8Array};
    use arrow_ipc::writer::StreamWriter;

    const ROWS: usize = 1000;

    fn text(row: usize, part: usize) -> String {
        format!("a text that is too long for a view of its own: {row} {part}")
    }

    fn views() -> StringViewBuilder {
        StringViewBuilder::new()
    }

    /// A column of each kind. Of a list each third row is null, and each fourth one empty.
    fn columns() -> Vec<(&'static str, ArrayRef)> {
        let plain: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|row| text(row, 0))));
        let field = Field::new("text", DataType::Utf8View, true);
        let mut structs = StructBuilder::new(vec![field], vec![Box::new(views())]);
        let (mut list, mut large) = (ListBuilder::new(views()), LargeListBuilder::new(views()));
        let mut nested = ListBuilder::new(ListBuilder::new(views()));
        let mut fixed = FixedSizeListBuilder::new(views(), 2);
        let mut map = MapBuilder::new(None, views(), views());
        for row in 0..ROWS {
            structs.field_builder::<StringViewBuilder>(0).unwrap().append_value(text(row, 0));
            structs.append(row % 3 != 0);
            for part in 0..row % 4 {
                list.values().append_value(text(row, part));
                large.values().append_value(text(row, part));
                nested.values().values().append_value(text(row, part));
                nested.values().append(true);
                map.keys().append_value(text(row, part));
                map.values().append_value(text(row, part + 1));
            }
            list.append(row % 3 != 0);
            large.append(row % 3 != 0);
            nested.append(row % 3 != 0);
            map.append(row % 3 != 0).unwrap();
            (0..2).for_each(|part| fixed.values().append_value(text(row, part)));
            fixed.append(row % 3 != 0);
        }
        vec![
            ("views", plain),
            ("struct", Arc::new(structs.finish())),
            ("list", Arc::new(list.finish())),
            ("large list", Arc::new(large.finish())),
            ("list of lists", Arc::new(nested.finish())),
            ("fixed-size list", Arc::new(fixed.finish())),
            ("map", Arc::new(map.finish())),
        ]
    }

    fn sent_bytes(column: ArrayRef) -> usize {
        let batch = RecordBatch::try_from_iter_with_nullable([("column", column, true)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap().len()
    }

    #[test]
    fn nested_views_travel_without_the_text_of_other_rows() {
        for (kind, column) in columns() {
            assert!(sent_bytes(column.clone()) > 60_000, "{kind}");
            for rows in [10, 1, 0] {
                let some = column.slice(500, rows);
                let compacted = compact(&some).unwrap();
                assert_eq!(&compacted, &some, "{kind}");
                let bytes = sent_bytes(compacted);
                assert!(bytes < 6000, "{bytes} bytes for {rows} of {ROWS} rows: {kind}");
            }
        }
    }

    #[test]
    fn a_dictionary_keeps_its_values_in_their_order_and_no_others() {
        let values: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|row| text(row, 0))));
        let keys = Int32Array::from(vec![Some(2), None, Some(0)]);
        let column: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, values.slice(300, 3)));
        let compacted = compact(&column).unwrap();
        assert_eq!(&compacted, &column);
        assert_eq!(compacted.as_any_dictionary().values().len(), 3);
        assert!(sent_bytes(compacted) < 2000);
    }

    #[test]
    fn columns_without_views_are_not_copied() {
        let column: ArrayRef = Arc::new(UInt8Array::from(vec![1, 2, 3]));
        assert!(Arc::ptr_eq(&column, &compact(&column).unwrap()));
    }
}
