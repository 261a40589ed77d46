//! The summary of each rank's rows, which all ranks gather before any row is sent.

use crate::error::TableError;
use crate::group::Group;
use crate::message::{begin, content, with_checksum};
use crate::spec::{Asked, Rolling};
use crate::table::{Sorted, Table, columns_of};
use halocline_comm::Communicator;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// One rank's part of the table: its number of rows and both ends, or why it cannot take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) rows: u64,
    /// `None` without rows.
    pub(crate) ends: Option<Ends>,
    /// The window, and its text for errors.
    asked: Asked,
    window: String,
    columns: String,
    /// Some columns have the type Null: that of a column without values, whose type the program does not know.
    has_untyped: bool,
    error: Option<TableError>,
}

/// The first and the last group of a rank; the same if it has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) first: End,
    pub(crate) last: End,
}

/// A group at an end of a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) group: Group,
    pub(crate) first_key: i64,
    pub(crate) last_key: i64,
    pub(crate) rows: u64,
}

impl Ends {
    /// `None` without rows.
    pub(crate) fn of(sorted: &Sorted) -> Option<Self> {
        let end = |rows: std::ops::Range<usize>, group: &Group| {
            (!rows.is_empty()).then(|| End {
                group: group.clone(),
                first_key: sorted.keys.get(rows.start),
                last_key: sorted.keys.get(rows.end - 1),
                rows: rows.len() as u64,
            })
        };
        let first = end(sorted.first_group(), &sorted.groups[0])?;
        Some(Self { first, last: end(sorted.last_group(), &sorted.groups[1])? })
    }

    /// Whether the rank has one group.
    pub(crate) fn is_one_group(&self) -> bool {
        self.first.group == self.last.group
    }
}

impl Summary {
    pub(crate) fn new(table: &Table, sorted: &Result<Sorted, TableError>, spec: &Rolling) -> Self {
        let (rows, ends, columns, error) = match sorted {
            Ok(sorted) => (sorted.rows() as u64, Ends::of(sorted), columns_of(&sorted.schema), None),
            Err(error) => (0, None, String::new(), Some(error.clone())),
        };
        let (window, has_untyped) = (spec.to_string(), table.has_untyped());
        Self { rows, ends, asked: spec.into(), window, columns, has_untyped, error }
    }

    /// Those of all ranks. Collective.
    pub(crate) fn gather(&self, comm: &Communicator) -> Result<Vec<Self>, TableError> {
        const WHAT: &str = "summary of a table";
        let bytes = postcard::to_extend(self, begin()).map_err(|why| TableError::Arrow {
            rank: comm.rank(),
            what: "encode the ends of a table".to_owned(),
            why: why.to_string(),
        })?;
        let gathered = comm.all_gather(with_checksum(bytes))?;
        let read = |(from, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(content(bytes, from, WHAT)?)
                .map_err(|_| TableError::Malformed { from, what: WHAT.to_owned() })
        };
        gathered.iter().enumerate().map(read).collect()
    }

    /// Whether the ranks have to agree on types.
    pub(crate) fn lacks_types(all: &[Self]) -> bool {
        all.iter().any(|summary| summary.has_untyped)
    }

    /// The numbers of a rank's rows in the whole table.
    pub(crate) fn rows_of(all: &[Self], rank: usize) -> Range<u64> {
        let before = |rank| all.iter().take(rank).map(|summary| summary.rows).fold(0, u64::saturating_add);
        before(rank)..before(rank + 1)
    }

    /// Finds what makes the parts of all ranks no sorted table; the same error on all ranks.
    pub(crate) fn check(
        all: &[Self],
        spec: &Rolling,
        key_text: impl Fn(i64) -> String,
    ) -> Result<(), TableError> {
        let Some(head) = all.first() else { return Ok(()) };
        if let Some((rank, other)) = all.iter().enumerate().find(|(_, other)| other.asked != head.asked) {
            let (found, expected) = (other.window.clone(), head.window.clone());
            return Err(TableError::Windows { rank, found, other: 0, expected });
        }
        if let Some(error) = all.iter().find_map(|summary| summary.error.clone()) {
            return Err(error);
        }
        if let Some((rank, other)) = all.iter().enumerate().find(|(_, other)| other.columns != head.columns) {
            let (found, expected) = (other.columns.clone(), head.columns.clone());
            return Err(TableError::Schemas { rank, found, other: 0, expected });
        }
        let mut before: Option<(usize, &Self, &End)> = None;
        for (rank, summary) in all.iter().enumerate() {
            let Some(ends) = &summary.ends else { continue };
            if let Some((before_rank, before, last)) = before {
                let first = &ends.first;
                let unsorted = |column: String, value, before_value| TableError::Unsorted {
                    rank,
                    row: 0,
                    column,
                    value,
                    before: before_value,
                    before_rank,
                    before_row: before.rows.saturating_sub(1),
                };
                if first.group < last.group {
                    let texts = (first.group.text.clone(), last.group.text.clone());
                    return Err(unsorted(spec.groups.join(", "), texts.0, texts.1));
                }
                if first.group == last.group && first.first_key < last.last_key {
                    return Err(unsorted(
                        spec.by.clone(),
                        key_text(first.first_key),
                        key_text(last.last_key),
                    ));
                }
            }
            before = Some((rank, summary, &ends.last));
        }
        Ok(())
    }
}
