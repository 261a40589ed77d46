//! Brings the rows that the windows of a rank need, by one of two protocols.

use crate::demand::Side;
use crate::direct::{Target, reaches_neighbours_only, sources, targets};
use crate::error::TableError;
use crate::links::{Links, Progress};
use crate::message::{Arrived, Header, decode, encode};
use crate::relay::{Outgoing, Relay};
use crate::spec::Route;
use crate::summary::Summary;
use crate::table::Sorted;
use std::time::Duration;

/// What an exchange of rows took on this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Whether rows went from neighbour to neighbour, or straight to the ranks that need them.
    pub is_relayed: bool,
    /// Rows of other ranks that this one received and keeps.
    pub rows_received: u64,
    /// Rows that this rank sent; relayed rows count.
    pub rows_sent: u64,
    /// Bytes of all messages received.
    pub bytes_received: u64,
    /// Bytes of all messages sent.
    pub bytes_sent: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// The time in which this rank checked its own rows.
    pub checked: Duration,
    /// The time from then until all rows had come: the all-gather of the ends of all ranks, and the rows. Waiting for ranks that
    /// are late counts.
    pub exchanged: Duration,
}

/// The rows of other ranks, in order.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) before: Vec<Arrived>,
    pub(crate) after: Vec<Arrived>,
    pub(crate) traffic: Traffic,
}

/// One exchange on one rank.
struct Exchange<'a, L> {
    links: &'a L,
    sorted: &'a Sorted,
    all: &'a [Summary],
    rank: usize,
    traffic: Traffic,
}

/// Brings the rows that the windows of this rank need. Collective; the ranks do not wait for those whose rows they do not need.
pub(crate) fn exchange<L: Links>(
    links: &L,
    sorted: &Sorted,
    all: &[Summary],
    rank: usize,
    route: Route,
) -> Result<Received, TableError> {
    let is_relayed = match route {
        Route::Relay => true,
        Route::Direct => false,
        Route::Auto => reaches_neighbours_only(all, sorted.offsets),
    };
    let traffic = Traffic { is_relayed, ..Traffic::default() };
    let mut exchange = Exchange { links, sorted, all, rank, traffic };
    let received = if is_relayed { exchange.relay() } else { exchange.direct() };
    links.finish();
    let [mut before, after] = received?;
    before.reverse();
    let mut traffic = exchange.traffic;
    traffic.rows_received = before.iter().chain(&after).map(|piece| piece.keys.len() as u64).sum();
    Ok(Received { before, after, traffic })
}

impl<L: Links> Exchange<'_, L> {
    fn send(&mut self, message: Outgoing) -> Result<(), TableError> {
        let bytes = encode(&message.header, self.sorted, &message.batches, self.rank)?;
        if let Header::Rows { rows, .. } = message.header {
            self.traffic.rows_sent += rows;
        }
        self.traffic.bytes_sent += bytes.len() as u64;
        self.traffic.messages_sent += 1;
        Ok(self.links.send(message.to, bytes)?)
    }

    /// The next message of a rank.
    fn receive(&mut self, from: usize) -> Result<Option<(Header, Arrived)>, TableError> {
        let Some(bytes) = self.links.receive(from)? else { return Ok(None) };
        self.traffic.bytes_received += bytes.len() as u64;
        decode(&bytes, self.sorted, from).map(Some)
    }

    /// Tells other ranks of an error that only this one knows.
    fn abort(&mut self, error: TableError, ranks: &[usize]) -> TableError {
        if !matches!(error, TableError::Comm(_)) {
            for &to in ranks {
                let header = Header::Abort(error.clone());
                // The error itself is what the program learns; a peer that cannot be told finds out that this rank has left.
                let _ = self.send(Outgoing { to, header, batches: Vec::new() });
            }
        }
        error
    }

    fn relay(&mut self) -> Result<[Vec<Arrived>; 2], TableError> {
        let place = (self.rank, self.all.len());
        let ends = self.all.get(self.rank).and_then(|summary| summary.ends.as_ref());
        let mut flows = Side::BOTH.map(|side| Relay::new(side, place, self.sorted, ends));
        let neighbours = Side::BOTH.map(|side| side.next(place.0, place.1));
        let neighbours: Vec<usize> = neighbours.into_iter().flatten().collect();
        let links = self.links;
        let ended = links.run(|| {
            for &from in &neighbours {
                while let Some((header, piece)) = self.receive(from)? {
                    let index = |side| usize::from(side == Side::After);
                    match header {
                        Header::Demand(side, demand) => flows[index(side)].demanded(demand)?,
                        Header::Rows { side, is_last, .. } => flows[index(side)].supplied(piece, is_last)?,
                        Header::Abort(error) => return Err(error),
                    }
                }
            }
            for message in flows.iter_mut().flat_map(|flow| std::mem::take(&mut flow.outgoing)) {
                self.send(message)?;
            }
            Ok(match flows.iter().all(Relay::is_over) {
                true => Progress::Over,
                false => Progress::Waits(flows.iter().flat_map(Relay::awaited).collect()),
            })
        });
        ended.map_err(|error| self.abort(error, &neighbours))?;
        Ok(flows.map(|flow| flow.arrived))
    }

    fn direct(&mut self) -> Result<[Vec<Arrived>; 2], TableError> {
        let (all, rank, offsets) = (self.all, self.rank, self.sorted.offsets);
        let targets = targets(all, rank, offsets);
        let sources = Side::BOTH.map(|side| sources(all, rank, side, offsets));
        let mut peers: Vec<usize> = targets.iter().map(|target| target.rank).collect();
        peers.extend(sources.iter().flatten());
        let mut arrived =
            sources.each_ref().map(|from| from.iter().map(|_| None).collect::<Vec<Option<Arrived>>>());
        let links = self.links;
        let mut unsent = Some(targets);
        let ended = links.run(|| {
            for Target { rank: to, side, demand } in unsent.take().into_iter().flatten() {
                let rows = demand.select(side, self.sorted);
                let header = Header::Rows { side, rows: rows.len() as u64, is_last: true };
                self.send(Outgoing { to, header, batches: self.sorted.slice(rows) })?;
            }
            let mut awaited = Vec::new();
            for (sources, arrived) in sources.iter().zip(&mut arrived) {
                for (&from, place) in sources.iter().zip(arrived).filter(|(_, place)| place.is_none()) {
                    match self.receive(from)? {
                        Some((Header::Rows { is_last: true, .. }, piece)) => *place = Some(piece),
                        Some((Header::Abort(error), _)) => return Err(error),
                        Some(_) => {
                            let what = "message of a rolling window".to_owned();
                            return Err(TableError::Malformed { from, what });
                        }
                        None => awaited.push(from),
                    }
                }
            }
            Ok(if awaited.is_empty() { Progress::Over } else { Progress::Waits(awaited) })
        });
        ended.map_err(|error| self.abort(error, &peers))?;
        Ok(arrived.map(|pieces| pieces.into_iter().flatten().filter(|piece| piece.keys.len() > 0).collect()))
    }
}
