//! What to compute windows over: the key, the window, the groups, the columns that are needed.

use crate::window::Window;
use std::fmt;

/// Which ends of a window belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    pub(crate) fn includes_left(self) -> bool {
        matches!(self, Self::Left | Self::Both)
    }

    pub(crate) fn includes_right(self) -> bool {
        matches!(self, Self::Right | Self::Both)
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::Right => "right",
            Self::Both => "both",
            Self::None => "none",
        })
    }
}

/// How rows travel between ranks. The result does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// Relay where the rows that each rank needs lie on its nearest neighbours, otherwise direct.
    #[default]
    Auto,
    /// Each rank asks its neighbours, which answer with their rows and pass on those of ranks further away.
    Relay,
    /// Each rank sends its rows to all ranks that need them.
    Direct,
}

/// A rolling window over a table: the same on all ranks.
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

    /// How rows travel.
    pub fn route(mut self, route: Route) -> Self {
        self.route = route;
        self
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
