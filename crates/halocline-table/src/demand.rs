//! Which rows of other ranks a rank needs: a demand travels from rank to rank, away from the one that needs them.

use crate::group::Group;
use crate::keys::{Keys, is_at};
use crate::summary::{End, Ends};
use crate::table::Sorted;
use crate::window::Offsets;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where rows lie, seen from the rank that needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    /// On ranks before it.
    Before,
    /// On ranks after it.
    After,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Before, Self::After];

    /// The next rank in this direction.
    pub(crate) fn next(self, rank: usize, size: usize) -> Option<usize> {
        match self {
            Self::Before => rank.checked_sub(1),
            Self::After => Some(rank + 1).filter(|&next| next < size),
        }
    }

    /// The other direction.
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Before => Self::After,
            Self::After => Self::Before,
        }
    }
}

/// Rows that adjoin those of the rank that needs them, in its group at that side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Demand {
    group: Group,
    wanted: Wanted,
}

/// A key, and how far from it. The sum may lie beyond the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    key: i64,
    offset: i64,
}

impl Bound {
    fn is_reached_by(self, key: i64) -> bool {
        is_at(key, self.key, self.offset)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    /// Keys that reach the first bound and do not reach the second.
    Keys { from: Bound, until: Bound },
    /// The nearest rows.
    Rows(u64),
}

/// How far a rank meets a demand.
#[derive(Debug)]
pub(crate) struct Met {
    /// It may have such rows.
    pub(crate) supplies: bool,
    /// What ranks further away may have.
    pub(crate) rest: Option<Demand>,
}

impl Demand {
    /// What a rank with these ends needs from a side. `is_exact`: leave out rows between the windows and the rank's own rows, if
    /// an offset separates them.
    pub(crate) fn of(ends: &Ends, side: Side, offsets: Offsets, is_exact: bool) -> Option<Self> {
        let End { group, first_key, last_key, .. } = match side {
            Side::Before => &ends.first,
            Side::After => &ends.last,
        };
        let (Offsets::Keys { from, until } | Offsets::Rows { from, until }) = offsets;
        if from >= until {
            return None;
        }
        let wanted = match (offsets, side) {
            (Offsets::Keys { from, until }, Side::Before) => (from <= 0).then_some(Wanted::Keys {
                from: Bound { key: *first_key, offset: from },
                until: Bound { key: *last_key, offset: if is_exact { until } else { i64::MAX } },
            }),
            (Offsets::Keys { from, until }, Side::After) => (until > 0).then_some(Wanted::Keys {
                from: Bound { key: *first_key, offset: if is_exact { from } else { i64::MIN } },
                until: Bound { key: *last_key, offset: until },
            }),
            (Offsets::Rows { from, .. }, Side::Before) => {
                (from < 0).then_some(Wanted::Rows(from.unsigned_abs()))
            }
            (Offsets::Rows { until, .. }, Side::After) => {
                (until > 1).then_some(Wanted::Rows(until.unsigned_abs().saturating_sub(1)))
            }
        };
        wanted.map(|wanted| Self { group: group.clone(), wanted })
    }

    /// What a rank with these ends contributes, judged by its ends alone.
    pub(crate) fn meet(&self, side: Side, ends: &Ends) -> Met {
        let end = match side {
            Side::Before => &ends.last,
            Side::After => &ends.first,
        };
        if end.group != self.group {
            return Met { supplies: false, rest: None };
        }
        let (supplies, wanted) = match self.wanted {
            Wanted::Keys { from, until } => {
                let supplies = from.is_reached_by(end.last_key) && !until.is_reached_by(end.first_key);
                let goes_on = match side {
                    Side::Before => from.is_reached_by(end.first_key),
                    Side::After => !until.is_reached_by(end.last_key),
                };
                (supplies, goes_on.then_some(self.wanted))
            }
            Wanted::Rows(rows) => (rows > 0, (rows > end.rows).then(|| Wanted::Rows(rows - end.rows))),
        };
        let wanted = wanted.filter(|_| ends.is_one_group());
        Met { supplies, rest: wanted.map(|wanted| Self { group: self.group.clone(), wanted }) }
    }

    /// The rows of this rank that meet the demand.
    pub(crate) fn select(&self, side: Side, sorted: &Sorted) -> Range<usize> {
        let (rows, group) = match side {
            Side::Before => (sorted.last_group(), &sorted.groups[1]),
            Side::After => (sorted.first_group(), &sorted.groups[0]),
        };
        if *group == self.group { self.cut(side, &sorted.keys, rows) } else { rows.end..rows.end }
    }

    /// Those of some rows of the group that meet the demand.
    pub(crate) fn cut(&self, side: Side, keys: &Keys, rows: Range<usize>) -> Range<usize> {
        match self.wanted {
            Wanted::Keys { from, until } => {
                let start = keys.first_at(rows.clone(), from.key, from.offset);
                start..keys.first_at(start..rows.end, until.key, until.offset)
            }
            Wanted::Rows(wanted) => {
                let count = rows.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
                match side {
                    Side::Before => rows.end - count..rows.end,
                    Side::After => rows.start..rows.start + count,
                }
            }
        }
    }

    /// What is wanted beyond rows of which [`Demand::cut`] has chosen `chosen`.
    pub(crate) fn beyond(mut self, side: Side, rows: Range<usize>, chosen: &Range<usize>) -> Option<Self> {
        let is_whole = match side {
            Side::Before => chosen.start == rows.start,
            Side::After => chosen.end == rows.end,
        };
        if let Wanted::Rows(wanted) = &mut self.wanted {
            *wanted -= chosen.len() as u64;
            return (*wanted > 0).then_some(self);
        }
        is_whole.then_some(self)
    }
}
