//! The specification of windows: the key, the window, the groups, the columns that are needed.

use crate::error::TableError;
use crate::window::{Extent, Offsets, Window};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// Which ends of a window belong to it.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Closed, Rolling, Table, Window, rolling};
///
/// let batch = record_batch!(("time", Int64, [0, 1, 2]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let windows = |closed| {
///     let window = Rolling::new("time", Window::period("2i")?.closed(closed));
///     rolling(&table, &window, &Communicator::single()).map(|context| context.windows().collect::<Vec<_>>())
/// };
/// assert_eq!(windows(Closed::Right)?, [0..1, 0..2, 1..3]);
/// assert_eq!(windows(Closed::Both)?, [0..1, 0..2, 0..3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Closed {
    /// The earlier end only.
    Left,
    /// The later end only: the default, as in polars and pandas.
    #[default]
    Right,
    /// Both ends.
    Both,
    /// Neither end.
    None,
}

impl Closed {
    /// All values with their names.
    pub const NAMED: [(&'static str, Self); 4] =
        [("left", Self::Left), ("right", Self::Right), ("both", Self::Both), ("none", Self::None)];

    pub(crate) fn includes_left(self) -> bool {
        matches!(self, Self::Left | Self::Both)
    }

    pub(crate) fn includes_right(self) -> bool {
        matches!(self, Self::Right | Self::Both)
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMED.iter().find(|(_, value)| value == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// How rows travel between ranks. The result does not depend on it.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Rolling, Route, Table, Window, rolling};
///
/// let batch = record_batch!(("time", Int64, [0, 1, 2]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let window = Rolling::new("time", Window::period("2i")?).route(Route::Relay);
/// let context = rolling(&table, &window, &Communicator::single())?;
/// assert!(context.traffic().is_relayed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// The cheaper one: direct. The ends of all ranks are known before rows travel, so ranks need not ask, and each row goes once to
    /// each rank that needs it. Relays send as many rows, and more messages.
    #[default]
    Auto,
    /// Each rank asks its neighbours, which answer with their rows and pass on those of ranks further away: a rank talks to two others
    /// at most. Windows that an offset moves off their own rows go direct.
    Relay,
    /// Each rank sends its rows to all ranks that need them. It is asked for them first where windows off their own rows may leave
    /// rows out.
    Direct,
}

impl Route {
    /// All values with their names.
    pub const NAMED: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("relay", Self::Relay), ("direct", Self::Direct)];

    /// Whether rows of such windows go from neighbour to neighbour.
    pub(crate) fn is_relayed(self, offsets: Offsets) -> bool {
        self == Self::Relay && offsets.has_own_row()
    }
}

/// A rolling window over a table: the same on all ranks.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Rolling, Table, Window, rolling};
///
/// let batch = record_batch!(
///     ("station", Utf8, ["A", "A", "B"]),
///     ("time", Int64, [0, 1, 1]),
///     ("level", Float64, [2.0, 3.0, 7.0])
/// )?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let window = Rolling::new("time", Window::period("5i")?).group_by(["station"]).columns(["level"]);
/// let context = rolling(&table, &window, &Communicator::single())?;
/// // The window of the last row has no row of the other station.
/// assert_eq!(context.windows().collect::<Vec<_>>(), [0..1, 0..2, 2..3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rolling {
    pub(crate) by: String,
    pub(crate) window: Window,
    pub(crate) groups: Vec<String>,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) route: Route,
}

impl Rolling {
    /// Windows along the column `by`: timestamps, dates or integers, without nulls, ascending over all ranks.
    pub fn new(by: impl Into<String>, window: Window) -> Self {
        Self { by: by.into(), window, groups: Vec::new(), columns: None, route: Route::Auto }
    }

    /// Windows never cross from one group to another. Rows are sorted by these columns (nulls first), then by the key.
    pub fn group_by<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.groups = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The columns that windows are computed of. Without this call: all. Only these, the key and the groups travel between ranks
    /// and are in the [`Context`](crate::Context).
    pub fn columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Refuses a column that is named twice, as the key and a group or as two groups. [`rolling`](crate::rolling) does so, too, on all
    /// ranks.
    pub fn check_names(&self) -> Result<(), TableError> {
        let mut names = HashSet::from([&self.by]);
        match self.groups.iter().find(|group| !names.insert(group)) {
            Some(twice) => Err(TableError::NamedTwice { column: twice.clone() }),
            None => Ok(()),
        }
    }

    /// How rows travel.
    pub fn route(mut self, route: Route) -> Self {
        self.route = route;
        self
    }
}

/// The specification of a rank by its values: two texts may mean one window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    by: String,
    extent: Extent,
    closed: Closed,
    groups: Vec<String>,
    columns: Option<BTreeSet<String>>,
    is_relayed: bool,
}

impl From<&Rolling> for Asked {
    fn from(rolling: &Rolling) -> Self {
        let Rolling { by, window, groups, columns, route } = rolling;
        Self {
            by: by.clone(),
            extent: window.extent,
            closed: window.closed,
            groups: groups.clone(),
            columns: columns.as_ref().map(|columns| columns.iter().cloned().collect()),
            is_relayed: *route == Route::Relay,
        }
    }
}

impl fmt::Display for Rolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {:?}", self.window, self.by)?;
        if !self.groups.is_empty() {
            write!(f, " in groups of {:?}", self.groups)?;
        }
        if let Some(columns) = &self.columns {
            write!(f, " of {columns:?}")?;
        }
        match self.route {
            Route::Auto => Ok(()),
            route => write!(f, " ({route:?})"),
        }
    }
}
