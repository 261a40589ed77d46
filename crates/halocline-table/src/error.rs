//! Errors of tables, windows and statistics.

use halocline_comm::CommError;
use serde::{Deserialize, Serialize};

/// Why a rolling window over a table fails. An error of the table or of the window is the same on all ranks: it names the rank
/// and its row, counted from 0 in the table of that rank.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Rolling, Table, TableError, Window, rolling};
///
/// let batch = record_batch!(("time", Int64, [0, 2, 1]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let window = Rolling::new("time", Window::period("2i")?);
/// let Err(error) = rolling(&table, &window, &Communicator::single()) else { panic!("it is not sorted") };
/// assert!(matches!(error, TableError::Unsorted { rank: 0, row: 2, before_row: 1, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TableError {
    /// A text that is no length of a window.
    #[error(
        "{text:?} is no duration: {why}; write whole numbers with units, as \"5s\", \"250ms\" or \"1d12h\""
    )]
    Duration {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A window without length.
    #[error("the window {window} has no length; a window is longer than 0 (to move it, give an offset)")]
    NoLength {
        /// The window.
        window: String,
    },
    /// Parts of a window in different kinds of units.
    #[error(
        "the window {window} mixes rows, time and units of an integer key; give all its parts in one kind"
    )]
    MixedUnits {
        /// The window.
        window: String,
    },
    /// A window of time over a key of integers, or the other way round.
    #[error("the window {window} does not fit column {column:?} of rank {rank}, which is {found}; {remedy}")]
    WindowType {
        /// The window.
        window: String,
        /// The key.
        column: String,
        /// The rank.
        rank: usize,
        /// Its type.
        found: String,
        /// A valid choice.
        remedy: String,
    },
    /// A column that a rank does not have.
    #[error("rank {rank} has no column {column:?}; its columns are {columns}")]
    NoColumn {
        /// The rank.
        rank: usize,
        /// The column asked for.
        column: String,
        /// Those that exist.
        columns: String,
    },
    /// A statistic of a column that did not travel.
    #[error(
        "the rows of the window have no column {column:?}, they have {columns}; name it in the columns of the window"
    )]
    NotThere {
        /// The column asked for.
        column: String,
        /// Those that exist.
        columns: String,
    },
    /// A column of the key that has no order in time.
    #[error(
        "column {column:?} of rank {rank} is {found}, it cannot be the key; a key is a timestamp, a date or an integer"
    )]
    KeyType {
        /// The rank.
        rank: usize,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// A column of groups of another type.
    #[error(
        "column {column:?} of rank {rank} is {found}, it cannot name groups; groups are integers, booleans, dates, strings or \
         dictionaries of these"
    )]
    GroupType {
        /// The rank.
        rank: usize,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// A statistic of a column that is not numeric.
    #[error(
        "column {column:?} is {found}, it has no {statistic}; choose a column of integers or floating-point numbers"
    )]
    ValueType {
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The statistic.
        statistic: String,
    },
    /// A quantile outside of 0 to 1.
    #[error("there is no quantile {quantile}; give a number from 0 to 1")]
    Quantile {
        /// The number.
        quantile: String,
    },
    /// No threads to compute with.
    #[error("an aggregation with 0 threads; give at least 1")]
    NoThreads,
    /// A null in the key.
    #[error("row {row} of rank {rank} has no {column:?} (null); drop such rows before")]
    NullKey {
        /// The rank.
        rank: usize,
        /// Its row.
        row: u64,
        /// The key.
        column: String,
    },
    /// A row that belongs before the previous one.
    #[error(
        "rows are not sorted: row {row} of rank {rank} has {column} = {value}, after {before} in row {before_row} of rank \
         {before_rank}; sort the whole table by its groups (nulls first, in pandas na_position=\"first\"; categories are \
         compared by value), then by the key, ascending"
    )]
    Unsorted {
        /// The rank.
        rank: usize,
        /// Its row.
        row: u64,
        /// The column that descends: the key, or those of the group.
        column: String,
        /// The value there.
        value: String,
        /// The value of the row before.
        before: String,
        /// The rank of the row before.
        before_rank: usize,
        /// The row before.
        before_row: u64,
    },
    /// Two columns of one name.
    #[error("the table has two columns {column:?}; rename or drop one of them")]
    TwoColumns {
        /// The name.
        column: String,
    },
    /// Record batches of one table with different columns.
    #[error(
        "batch {batch} of the table has columns {found}, its schema says {expected}; give batches of one schema"
    )]
    Batches {
        /// The batch, counted from 0.
        batch: usize,
        /// Its columns.
        found: String,
        /// The schema.
        expected: String,
    },
    /// Two ranks with different columns.
    #[error(
        "rank {rank} has columns {found}, rank {other} has {expected}; give the same columns on all ranks"
    )]
    Schemas {
        /// One rank.
        rank: usize,
        /// Its columns.
        found: String,
        /// The other rank.
        other: usize,
        /// Its columns.
        expected: String,
    },
    /// Two ranks with different windows.
    #[error(
        "rank {rank} asks for {found}, rank {other} for {expected}; ask for the same window on all ranks"
    )]
    Windows {
        /// One rank.
        rank: usize,
        /// Its window.
        found: String,
        /// The other rank.
        other: usize,
        /// Its window.
        expected: String,
    },
    /// A message that is not of the expected form.
    #[error("rank {from} sent a malformed {what}; run the same version of Halocline on all ranks")]
    Malformed {
        /// The sender.
        from: usize,
        /// The expected message.
        what: String,
    },
    /// A message in the format of another version.
    #[error(
        "rank {from} sent a {what} in format {found}, this rank reads format {expected}; run the same version of Halocline on all ranks"
    )]
    Version {
        /// The sender.
        from: usize,
        /// The message.
        what: String,
        /// The version of its format.
        found: u16,
        /// The version that is read here.
        expected: u16,
    },
    /// Rows that are not those that belong where they came.
    #[error(
        "rank {from} sent rows {found} of the table in place of rows {expected}; run the same version of Halocline on all ranks"
    )]
    RowNumbers {
        /// The sender.
        from: usize,
        /// The numbers of its rows.
        found: String,
        /// The rows that belong there.
        expected: String,
    },
    /// Arrow refused an operation.
    #[error("Arrow on rank {rank} could not {what}: {why}; please report this with the types of the columns")]
    Arrow {
        /// The rank.
        rank: usize,
        /// The operation.
        what: String,
        /// The message of Arrow.
        why: String,
    },
    /// A window whose key and groups name a column twice.
    #[error("column {column:?} is named twice among the key and the groups; name each column once")]
    NamedTwice {
        /// The column.
        column: String,
    },
    /// Between ranks.
    #[serde(skip)]
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(TableError);
