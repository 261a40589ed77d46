//! What all ranks know of each rank's rows, gathered before any row travels.

use crate::error::TableError;
use crate::group::Group;
use crate::spec::Rolling;
use crate::table::{Sorted, columns_of};
use serde::{Deserialize, Serialize};

/// One rank's part of the table: its number of rows and both ends, or why it cannot take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) rows: u64,
    /// `None` without rows.
    pub(crate) ends: Option<Ends>,
    window: String,
    columns: String,
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
    pub(crate) fn new(sorted: &Result<Sorted, TableError>, spec: &Rolling) -> Self {
        let window = spec.to_string();
        match sorted {
            Ok(sorted) => Self {
                rows: sorted.rows() as u64,
                ends: Ends::of(sorted),
                window,
                columns: columns_of(&sorted.schema),
                error: None,
            },
            Err(error) => {
                Self { rows: 0, ends: None, window, columns: String::new(), error: Some(error.clone()) }
            }
        }
    }

    /// Finds what makes the parts of all ranks no sorted table; the same error on all ranks.
    pub(crate) fn check(
        all: &[Self],
        spec: &Rolling,
        key_text: impl Fn(i64) -> String,
    ) -> Result<(), TableError> {
        let Some(head) = all.first() else { return Ok(()) };
        if let Some((rank, other)) = all.iter().enumerate().find(|(_, other)| other.window != head.window) {
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
                    before_row: before.rows - 1,
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
