//! Which rows of other ranks a rank needs: a demand travels from rank to rank, away from the one that needs them.

use crate::group::Group;
use crate::keys::Keys;
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

/// Rows that a rank needs from a side, in its group at that side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Demand {
    group: Group,
    wanted: Wanted,
}

/// Keys, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    first: i64,
    last: i64,
}

impl Span {
    /// The keys of the windows of rows with keys from `first_key` to `last_key`, and those between the windows. `None`: no key.
    fn of(first_key: i64, last_key: i64, from: i128, until: i128) -> Option<Self> {
        let first = (i128::from(first_key) + from).max(i64::MIN.into());
        let last = (i128::from(last_key) + until - 1).min(i64::MAX.into());
        // An end beyond the keys at the other side leaves none.
        let span = Self { first: first.try_into().ok()?, last: last.try_into().ok()? };
        (first <= last).then_some(span)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    /// Keys in these spans, which ascend and do not overlap.
    Keys(Vec<Span>),
    /// Rows beyond the nearest ones: leave out `skip`, then take `take`.
    Rows { skip: u64, take: u64 },
}

/// How far a rank meets a demand.
#[derive(Debug)]
pub(crate) struct Met {
    /// It may have such rows.
    pub(crate) supplies: bool,
    /// The demand on ranks further away.
    pub(crate) rest: Option<Demand>,
}

impl Demand {
    /// The most rows that a rank with these ends needs from a side: those of its windows and, for keys, those between two windows.
    pub(crate) fn of(ends: &Ends, side: Side, offsets: Offsets) -> Option<Self> {
        let End { group, first_key, last_key, rows } = match side {
            Side::Before => &ends.first,
            Side::After => &ends.last,
        };
        if offsets.is_empty() {
            return None;
        }
        let wanted = match offsets {
            Offsets::Keys { from, until } => {
                let reaches = if side == Side::Before { from <= 0 } else { until > 0 };
                let span = Span::of(*first_key, *last_key, from, until).filter(|_| reaches)?;
                Wanted::Keys(vec![span])
            }
            Offsets::Rows { from, until } => {
                // The distance of the nearest and of the farthest row from the nearest own one. The windows of consecutive rows leave
                // no row out.
                let others = i64::try_from(*rows).unwrap_or(i64::MAX) - 1;
                let [nearest, farthest] = match side {
                    Side::Before => {
                        [1i64.saturating_sub(until).saturating_sub(others), from.saturating_neg()]
                    }
                    Side::After => [from.saturating_sub(others), until - 1],
                };
                let nearest = nearest.max(1);
                let count = |distance: i64| u64::try_from(distance).unwrap_or(0);
                let (skip, take) = (count(nearest - 1), count(farthest - nearest + 1));
                (take > 0).then_some(Wanted::Rows { skip, take })?
            }
        };
        Some(Self { group: group.clone(), wanted })
    }

    /// The rows that a rank needs from a side, without those between two windows: for windows that an offset moves off their rows.
    pub(crate) fn exact(sorted: &Sorted, ends: &Ends, side: Side) -> Option<Self> {
        let Offsets::Keys { from, until } = sorted.offsets else {
            return Self::of(ends, side, sorted.offsets);
        };
        let keys = &sorted.keys;
        let span = |row: usize| Span::of(keys.get(row), keys.get(row), from, until);
        // Windows that reach beyond the own rows at this side, in the order of rows.
        let (group, rows) = match side {
            Side::Before => {
                let rows = sorted.first_group();
                let edge = ends.first.first_key;
                let reaches = |&row: &usize| span(row).is_none_or(|span| span.first <= edge);
                (
                    &ends.first.group,
                    rows.start..rows.clone().take_while(reaches).last().map_or(rows.start, |row| row + 1),
                )
            }
            Side::After => {
                let rows = sorted.last_group();
                let edge = ends.last.last_key;
                let reaches = |&row: &usize| span(row).is_none_or(|span| span.last >= edge);
                (
                    &ends.last.group,
                    rows.clone().rev().take_while(reaches).last().unwrap_or(rows.end)..rows.end,
                )
            }
        };
        let mut spans: Vec<Span> = Vec::new();
        for next in rows.filter_map(span) {
            match spans.last_mut() {
                Some(before) if next.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(next.last)
                }
                _ => spans.push(next),
            }
        }
        (!spans.is_empty()).then(|| Self { group: group.clone(), wanted: Wanted::Keys(spans) })
    }

    /// Also the rows between these and the rank's own. Windows of ranks further away reach less far than that.
    pub(crate) fn up_to_own_rows(mut self, side: Side) -> Self {
        match &mut self.wanted {
            Wanted::Keys(spans) => {
                if let (Some(first), Some(last)) = (spans.first().copied(), spans.last().copied()) {
                    let whole = match side {
                        Side::Before => Span { first: first.first, last: i64::MAX },
                        Side::After => Span { first: i64::MIN, last: last.last },
                    };
                    *spans = vec![whole];
                }
            }
            Wanted::Rows { skip, take } => (*skip, *take) = (0, skip.saturating_add(*take)),
        }
        self
    }

    /// The contribution of a rank with these ends, judged by its ends alone.
    pub(crate) fn meet(&self, side: Side, ends: &Ends) -> Met {
        let end = match side {
            Side::Before => &ends.last,
            Side::After => &ends.first,
        };
        if end.group != self.group {
            return Met { supplies: false, rest: None };
        }
        let (supplies, wanted) = match &self.wanted {
            Wanted::Keys(spans) => {
                let has = |span: &Span| span.first <= end.last_key && span.last >= end.first_key;
                let goes_on = match side {
                    Side::Before => spans.first().is_some_and(|span| span.first <= end.first_key),
                    Side::After => spans.last().is_some_and(|span| span.last >= end.last_key),
                };
                (spans.iter().any(has), goes_on.then(|| self.wanted.clone()))
            }
            &Wanted::Rows { skip, take } => {
                let given = end.rows.saturating_sub(skip).min(take);
                let rest = Wanted::Rows { skip: skip.saturating_sub(end.rows), take: take - given };
                (given > 0, (take > given).then_some(rest))
            }
        };
        let wanted = wanted.filter(|_| ends.is_one_group());
        Met { supplies, rest: wanted.map(|wanted| Self { group: self.group.clone(), wanted }) }
    }

    /// The rows of this rank that meet the demand, ascending.
    pub(crate) fn select(&self, side: Side, sorted: &Sorted) -> Vec<Range<usize>> {
        let (rows, group) = match side {
            Side::Before => (sorted.last_group(), &sorted.groups[1]),
            Side::After => (sorted.first_group(), &sorted.groups[0]),
        };
        if *group == self.group { self.cut(side, &sorted.keys, rows) } else { Vec::new() }
    }

    /// Those of some rows of the group that meet the demand, ascending.
    pub(crate) fn cut(&self, side: Side, keys: &Keys, rows: Range<usize>) -> Vec<Range<usize>> {
        match &self.wanted {
            Wanted::Keys(spans) => {
                let mut at = rows.start;
                let mut chosen = Vec::new();
                for span in spans {
                    let start = keys.first_at(at..rows.end, span.first, 0);
                    at = keys.first_at(start..rows.end, span.last, 1);
                    if start < at {
                        chosen.push(start..at);
                    }
                }
                chosen
            }
            &Wanted::Rows { skip, take } => {
                let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
                let (near, far) =
                    (rows.len().min(count(skip)), rows.len().min(count(skip.saturating_add(take))));
                let chosen = match side {
                    Side::Before => rows.end - far..rows.end - near,
                    Side::After => rows.start + near..rows.start + far,
                };
                if chosen.is_empty() { Vec::new() } else { vec![chosen] }
            }
        }
    }

    /// The demand beyond some rows, which have contributed `given` rows.
    pub(crate) fn beyond(mut self, side: Side, keys: &Keys, given: usize) -> Option<Self> {
        let goes_on = match &mut self.wanted {
            Wanted::Rows { skip, take } => {
                let rows = keys.len() as u64;
                (*skip, *take) = (skip.saturating_sub(rows), take.saturating_sub(given as u64));
                *take > 0
            }
            Wanted::Keys(spans) => match (side, keys.len().checked_sub(1)) {
                (_, None) => true,
                (Side::Before, _) => spans.first().is_some_and(|span| span.first <= keys.get(0)),
                (Side::After, Some(last)) => spans.last().is_some_and(|span| span.last >= keys.get(last)),
            },
        };
        goes_on.then_some(self)
    }
}
