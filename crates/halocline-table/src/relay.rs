//! Rows that travel from neighbour to neighbour. A demand travels towards the rows; each rank answers with its own, and passes on
//! those that come from further away, until the demand is met or no rank is left (FIN).

use crate::demand::{Demand, Side};
use crate::error::TableError;
use crate::message::{Arrived, Header, NumberedRows, WHAT};
use crate::summary::Ends;
use crate::table::Sorted;
use arrow_array::RecordBatch;
use std::ops::Range;

/// A message to another rank, with its rows.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: usize,
    pub(crate) header: Header,
    pub(crate) batches: Vec<RecordBatch>,
}

impl Outgoing {
    /// Rows for a rank that needs them from a side.
    pub(crate) fn rows(to: usize, side: Side, rows: NumberedRows, is_last: bool) -> Self {
        let NumberedRows { batches, first_rows } = rows;
        Self { to, header: Header::Rows { side, first_rows, is_last }, batches }
    }

    /// A demand.
    pub(crate) fn demand(to: usize, side: Side, demand: Option<Demand>) -> Self {
        Self { to, header: Header::Demand(side, demand), batches: Vec::new() }
    }
}

/// Where a rank is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    /// The number of ranks.
    pub(crate) size: usize,
    /// The numbers of its rows in the whole table.
    pub(crate) rows: Range<u64>,
}

/// The flow of rows from one side, on one rank. It knows of messages, not of how they travel.
///
/// A rank with rows needs at least what the rank downstream still lacks, because windows of later rows begin and end later. So it
/// asks upstream at once. A rank without rows passes on the demand of the rank downstream. Windows that do not contain their own rows
/// would break that rule; their rows do not come by relays.
#[derive(Debug)]
pub(crate) struct Relay<'a> {
    side: Side,
    sorted: &'a Sorted,
    ends: Option<&'a Ends>,
    upstream: Option<usize>,
    downstream: Option<usize>,
    /// The rows that the rank downstream still lacks, once it has asked.
    lacking: Option<Demand>,
    has_heard: bool,
    is_downstream_over: bool,
    is_upstream_over: bool,
    /// The numbers of this rank's rows and of those that have arrived from upstream.
    numbers: Range<u64>,
    first_own_row: u64,
    /// Rows for this rank, the nearest first.
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) outgoing: Vec<Outgoing>,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(side: Side, place: Place, sorted: &'a Sorted, ends: Option<&'a Ends>) -> Self {
        let Place { rank, size, rows } = place;
        let (upstream, downstream) = (side.next(rank, size), side.opposite().next(rank, size));
        let mut relay = Self {
            side,
            sorted,
            ends,
            upstream,
            downstream,
            lacking: None,
            has_heard: downstream.is_none(),
            is_downstream_over: downstream.is_none(),
            is_upstream_over: upstream.is_none(),
            first_own_row: rows.start,
            numbers: rows,
            arrived: Vec::new(),
            outgoing: Vec::new(),
        };
        match ends {
            Some(ends) => relay.ask(Demand::of(ends, side, sorted.offsets)),
            None if downstream.is_none() => relay.ask(None),
            None => {}
        }
        relay
    }

    /// The neighbours that it waits for; none once it is over.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = usize> {
        let upstream =
            self.upstream.filter(|_| !self.is_upstream_over && (self.ends.is_some() || self.has_heard));
        let downstream = self.downstream.filter(|_| !self.has_heard);
        upstream.into_iter().chain(downstream)
    }

    /// Whether no message of this flow will come or go.
    pub(crate) fn is_over(&self) -> bool {
        self.is_upstream_over && self.is_downstream_over
    }

    fn ask(&mut self, demand: Option<Demand>) {
        if let Some(to) = self.upstream {
            self.is_upstream_over = demand.is_none();
            self.outgoing.push(Outgoing::demand(to, self.side, demand));
        }
    }

    /// The rank downstream asks.
    pub(crate) fn demanded(&mut self, demand: Option<Demand>) -> Result<(), TableError> {
        if std::mem::replace(&mut self.has_heard, true) {
            return Err(self.malformed(self.downstream));
        }
        let Some(demand) = demand else {
            self.is_downstream_over = true;
            if self.ends.is_none() {
                self.ask(None);
            }
            return Ok(());
        };
        match self.ends {
            None => {
                self.lacking = Some(demand.clone());
                self.ask(Some(demand));
                if self.upstream.is_none() {
                    self.supply(NumberedRows::default(), true);
                }
            }
            Some(ends) => {
                let rows = demand.select(self.side, self.sorted);
                self.lacking = demand.meet(self.side, ends).rest;
                let is_last = self.lacking.is_none() || self.is_upstream_over && self.arrived.is_empty();
                self.supply(NumberedRows::of(&self.sorted.batches, self.first_own_row, &rows), is_last);
                let arrived = std::mem::take(&mut self.arrived);
                for (at, piece) in arrived.iter().enumerate() {
                    self.pass_on(piece, self.is_upstream_over && at + 1 == arrived.len());
                }
                self.arrived = arrived;
            }
        }
        Ok(())
    }

    /// Rows have come from upstream.
    pub(crate) fn supplied(&mut self, piece: Arrived, is_last: bool) -> Result<(), TableError> {
        if self.is_upstream_over {
            return Err(self.malformed(self.upstream));
        }
        self.adjoin(&piece)?;
        self.is_upstream_over = is_last;
        self.pass_on(&piece, is_last);
        if self.ends.is_some() && piece.keys.len() > 0 {
            self.arrived.push(piece);
        }
        Ok(())
    }

    /// Rows that arrive adjoin those that are here.
    fn adjoin(&mut self, piece: &Arrived) -> Result<(), TableError> {
        let mut numbers: Vec<Range<u64>> = piece.rows.numbers().collect();
        if self.side == Side::Before {
            numbers.reverse();
        }
        for next in numbers {
            let here = &mut self.numbers;
            let adjoins = match self.side {
                Side::Before => next.end == here.start,
                Side::After => next.start == here.end,
            };
            if !adjoins {
                return Err(TableError::RowNumbers {
                    from: self.upstream.unwrap_or_default(),
                    found: format!("{} to {}", next.start, next.end.saturating_sub(1)),
                    expected: match self.side {
                        Side::Before => format!("that end before row {}", here.start),
                        Side::After => format!("that begin with row {}", here.end),
                    },
                });
            }
            *here = here.start.min(next.start)..here.end.max(next.end);
        }
        Ok(())
    }

    /// Passes on what the rank downstream lacks. `is_end`: nothing more comes from upstream.
    fn pass_on(&mut self, piece: &Arrived, is_end: bool) {
        if self.is_downstream_over || !self.has_heard {
            return;
        }
        let Some(lacking) = self.lacking.take() else { return };
        let chosen = lacking.cut(self.side, &piece.keys, 0..piece.keys.len());
        let first_row = piece.rows.first_rows.first().copied().unwrap_or_default();
        let rows = NumberedRows::of(&piece.rows.batches, first_row, &chosen);
        self.lacking = lacking.beyond(self.side, &piece.keys, rows.count());
        self.supply(rows, is_end || self.lacking.is_none());
    }

    fn supply(&mut self, rows: NumberedRows, is_last: bool) {
        let Some(to) = self.downstream else { return };
        if !rows.batches.is_empty() || is_last {
            self.is_downstream_over = is_last;
            self.outgoing.push(Outgoing::rows(to, self.side, rows, is_last));
        }
    }

    fn malformed(&self, from: Option<usize>) -> TableError {
        TableError::Malformed { from: from.unwrap_or_default(), what: WHAT.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::spec::Rolling;
    use crate::table::Table;
    use crate::window::Window;
    use arrow_array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    #[test]
    fn rows_that_do_not_adjoin_are_refused() {
        let keys = Arc::new(Int64Array::from_iter_values(0..10)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
        let table = Table::new(batch.schema(), vec![batch]).unwrap();
        let sorted = Sorted::new(&table, &Rolling::new("key", Window::rows_around(3, 3)), 0).unwrap();
        let ends = Ends::of(&sorted);
        let arrived = |first_row| Arrived {
            rows: NumberedRows::of(&sorted.batches, first_row, &[0..2, 2..4]),
            keys: Keys::new(
                sorted.batches.iter().map(|batch| sorted.key_type.keys(&batch.column(0).slice(0, 4))),
            ),
        };
        let supply = |side, first_row| {
            let place = Place { rank: 1, size: 3, rows: 100..110 };
            Relay::new(side, place, &sorted, ends.as_ref()).supplied(arrived(first_row), true)
        };
        assert!(supply(Side::Before, 96).is_ok() && supply(Side::After, 110).is_ok());
        let error = supply(Side::Before, 95).unwrap_err();
        let text = "rank 0 sent rows 97 to 98 of the table in place of rows that end before row 100; run the same version";
        assert!(error.to_string().starts_with(text), "{error}");
        let error = supply(Side::After, 111).unwrap_err();
        assert!(matches!(error, TableError::RowNumbers { from: 2, .. }), "{error}");
    }
}
