//! Exceptions for errors of rolling windows.

use crate::error;
use halocline_table::TableError;
use pyo3::prelude::*;

/// The exception; its text begins with the name of the argument that is wrong, which is `parsed` for an error of a text.
pub(super) fn of_table(error: TableError, parsed: &str) -> PyErr {
    use TableError as E;
    let text = error.to_string();
    let (class, name) = match error {
        E::Comm(comm) => return error::of(comm),
        E::NullKey { rank, row, column } | E::Unsorted { rank, row, column, .. } => {
            return error::of_row(&format!("table: {text}"), rank, row, &column);
        }
        E::Duration { .. } | E::NoLength { .. } | E::MixedUnits { .. } => ("HaloValueError", Some(parsed)),
        E::WindowType { .. } | E::Windows { .. } => ("HaloValueError", Some("window")),
        E::NoColumn { .. } | E::Schemas { .. } | E::Batches { .. } | E::TwoColumns { .. } => {
            ("HaloValueError", Some("table"))
        }
        E::NotThere { .. } | E::Quantile { .. } => ("HaloValueError", Some("aggregate")),
        E::NamedTwice { .. } => ("HaloValueError", Some("group")),
        E::NoThreads => ("HaloValueError", Some("threads")),
        E::KeyType { .. } => ("HaloTypeError", Some("by")),
        E::GroupType { .. } => ("HaloTypeError", Some("group")),
        E::ValueType { .. } => ("HaloTypeError", Some("aggregate")),
        E::Malformed { .. } | E::Version { .. } | E::RowNumbers { .. } => ("CommunicatorError", None),
        _ => ("HaloError", None),
    };
    error::of_text(class, name, text, false)
}
