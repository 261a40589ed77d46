//! Layer 4: rolling windows over Arrow tables whose rows are sorted over the ranks.
//!
//! Rank 0 has the first rows of a table, rank 1 the rows after them, and so on. A window of a row near the border needs rows of
//! other ranks. [`rolling`] brings them. The result is a [`Context`]: the rows before a rank's own, its own rows, the rows after
//! them. Any engine can compute windows on it; [`Context::aggregate`] has the usual statistics.
//!
//! ```
//! use arrow_array::{ArrayRef, Float64Array, RecordBatch, TimestampSecondArray, cast::AsArray, types::Float64Type};
//! use halocline_comm::Communicator;
//! use halocline_table::{Aggregation, Rolling, Statistic, Table, Window, rolling};
//! use std::sync::Arc;
//!
//! let comm = Communicator::single();
//! let time = Arc::new(TimestampSecondArray::from(vec![0, 1, 2, 9])) as ArrayRef;
//! let temp = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0])) as ArrayRef;
//! let batch = RecordBatch::try_from_iter([("time", time), ("temp", temp)])?;
//! let table = Table::new(batch.schema(), vec![batch])?;
//!
//! // Of each row: the rows later than 3 s before it, up to it.
//! let window = Rolling::new("time", Window::period("3s")?);
//! let context = rolling(&table, &window, &comm)?;
//! let result = context.aggregate(&[Aggregation::new("temp", Statistic::Mean)], 1)?;
//! assert_eq!(result.column(0).as_primitive::<Float64Type>().values(), &[1.0, 1.5, 2.0, 4.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rolling.md")]
struct Guide;

mod aggregate;
mod bounds;
mod compact;
mod context;
mod demand;
mod direct;
mod duration;
mod error;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod group;
mod kernel;
mod keys;
mod links;
mod message;
mod output;
mod relay;
mod spec;
mod summary;
mod table;
mod window;

pub use aggregate::{Aggregation, Statistic};
pub use context::{Context, rolling};
pub use error::TableError;
pub use exchange::Traffic;
pub use kernel::quantile::Interpolation;
pub use spec::{Closed, Rolling, Route};
pub use table::Table;
pub use window::Window;
