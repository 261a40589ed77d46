//! Rows that travel from neighbour to neighbour. A demand travels towards the rows; each rank answers with its own, and passes on
//! those that come from further away, until the demand is met or no rank is left (FIN).

use crate::demand::{Demand, Side};
use crate::error::TableError;
use crate::message::{Arrived, Header};
use crate::summary::Ends;
use crate::table::{Sorted, slice};
use arrow_array::RecordBatch;

/// A message to a neighbour, with its rows.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: usize,
    pub(crate) header: Header,
    pub(crate) batches: Vec<RecordBatch>,
}

/// The flow of rows from one side, on one rank. It knows of messages, not of how they travel.
///
/// A rank with rows needs at least what the rank downstream still lacks, because windows of later rows begin and end later. So it
/// asks upstream at once. A rank without rows passes on the demand of the rank downstream.
#[derive(Debug)]
pub(crate) struct Relay<'a> {
    side: Side,
    sorted: &'a Sorted,
    ends: Option<&'a Ends>,
    upstream: Option<usize>,
    downstream: Option<usize>,
    /// What the rank downstream still lacks; once it has asked.
    lacking: Option<Demand>,
    has_heard: bool,
    is_downstream_over: bool,
    is_upstream_over: bool,
    /// Rows for this rank, the nearest first.
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) outgoing: Vec<Outgoing>,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(side: Side, place: (usize, usize), sorted: &'a Sorted, ends: Option<&'a Ends>) -> Self {
        let (rank, size) = place;
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
            arrived: Vec::new(),
            outgoing: Vec::new(),
        };
        match ends {
            Some(ends) => relay.ask(Demand::of(ends, side, sorted.offsets, false)),
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
            self.outgoing.push(Outgoing {
                to,
                header: Header::Demand(self.side, demand),
                batches: Vec::new(),
            });
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
                    self.supply(Vec::new(), 0, true);
                }
            }
            Some(ends) => {
                let rows = demand.select(self.side, self.sorted);
                self.lacking = demand.meet(self.side, ends).rest;
                let is_last = self.lacking.is_none() || self.is_upstream_over && self.arrived.is_empty();
                self.supply(self.sorted.slice(rows.clone()), rows.len(), is_last);
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
        self.is_upstream_over = is_last;
        self.pass_on(&piece, is_last);
        if self.ends.is_some() && piece.keys.len() > 0 {
            self.arrived.push(piece);
        }
        Ok(())
    }

    /// Passes on what the rank downstream lacks. `is_end`: nothing more comes from upstream.
    fn pass_on(&mut self, piece: &Arrived, is_end: bool) {
        if self.is_downstream_over || !self.has_heard {
            return;
        }
        let rows = 0..piece.keys.len();
        let Some(lacking) = self.lacking.take() else { return };
        let chosen = lacking.cut(self.side, &piece.keys, rows.clone());
        self.lacking = lacking.beyond(self.side, rows, &chosen);
        self.supply(slice(&piece.batches, chosen.clone()), chosen.len(), is_end || self.lacking.is_none());
    }

    fn supply(&mut self, batches: Vec<RecordBatch>, rows: usize, is_last: bool) {
        let Some(to) = self.downstream else { return };
        if rows > 0 || is_last {
            self.is_downstream_over = is_last;
            let header = Header::Rows { side: self.side, rows: rows as u64, is_last };
            self.outgoing.push(Outgoing { to, header, batches });
        }
    }

    fn malformed(&self, from: Option<usize>) -> TableError {
        TableError::Malformed {
            from: from.unwrap_or_default(),
            what: "message of a rolling window".to_owned(),
        }
    }
}
