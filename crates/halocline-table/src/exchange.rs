//! Brings the rows that the windows of a rank need, by one of two protocols.

use crate::demand::{Demand, Side};
use crate::direct::{Target, sources, targets};
use crate::error::TableError;
use crate::links::{Links, Progress};
use crate::message::{Arrived, Header, NumberedRows, WHAT, decode, encode};
use crate::relay::{Outgoing, Place, Relay};
use crate::spec::Route;
use crate::summary::Summary;
use crate::table::Sorted;
use std::time::Duration;

/// Counts of an exchange of rows on this rank.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Rolling, Table, Window, rolling};
///
/// let batch = record_batch!(("time", Int64, [0, 1, 2]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let context = rolling(&table, &Rolling::new("time", Window::period("2i")?), &Communicator::single())?;
/// // The only rank has all rows.
/// let traffic = context.traffic();
/// assert_eq!((traffic.rows_received, traffic.messages_sent), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    place: Place,
    traffic: Traffic,
}

/// Brings the rows that the windows of this rank need. Collective; the ranks do not wait for those whose rows they do not need.
pub(crate) fn exchange<L: Links>(
    links: &L,
    sorted: &Sorted,
    all: &[Summary],
    place: Place,
    route: Route,
) -> Result<Received, TableError> {
    let is_relayed = route.is_relayed(sorted.offsets);
    let traffic = Traffic { is_relayed, ..Traffic::default() };
    let mut exchange = Exchange { links, sorted, all, place, traffic };
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
        let bytes = encode(&message.header, self.sorted, &message.batches, self.place.rank)?;
        self.traffic.rows_sent += message.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
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
                // The error itself is what the program learns; a peer that cannot be notified detects that this rank has left.
                let _ = self.send(Outgoing { to, header, batches: Vec::new() });
            }
        }
        error
    }

    fn relay(&mut self) -> Result<[Vec<Arrived>; 2], TableError> {
        let ends = self.all.get(self.place.rank).and_then(|summary| summary.ends.as_ref());
        let mut flows = Side::BOTH.map(|side| Relay::new(side, self.place.clone(), self.sorted, ends));
        let neighbours = Side::BOTH.map(|side| side.next(self.place.rank, self.place.size));
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

    /// Sends rows straight to the ranks that need them. The ends of all ranks say which these are, and which rows, unless windows
    /// may leave out rows between them: then the ranks that need rows ask for them.
    fn direct(&mut self) -> Result<[Vec<Arrived>; 2], TableError> {
        let (all, offsets) = (self.all, self.sorted.offsets);
        let mut targets = targets(all, self.place.rank, offsets);
        let sources = Side::BOTH.map(|side| sources(all, self.place.rank, side, offsets));
        let mut peers: Vec<usize> = targets.iter().map(|target| target.rank).collect();
        peers.extend(sources.iter().flatten());
        peers.sort_unstable();
        peers.dedup();
        let mut arrived = sources.each_ref().map(|from| Vec::from_iter(from.iter().map(|_| None)));
        let mut is_begun = false;
        let links = self.links;
        let ended = links.run(|| {
            if !std::mem::replace(&mut is_begun, true) {
                self.begin_direct(&mut targets, &sources)?;
            }
            for &from in &peers {
                while let Some((header, piece)) = self.receive(from)? {
                    let malformed = || TableError::Malformed { from, what: WHAT.to_owned() };
                    match header {
                        Header::Demand(side, Some(demand)) => {
                            let is_asking = |target: &Target| target.rank == from && target.side == side;
                            let at = targets.iter().position(is_asking).ok_or_else(malformed)?;
                            self.answer(&Target { demand, ..targets.swap_remove(at) })?;
                        }
                        Header::Rows { side, is_last: true, .. } => {
                            let at = usize::from(side == Side::After);
                            let place = sources[at].iter().position(|&source| source == from);
                            let place = place.map(|place| &mut arrived[at][place]);
                            let place = place.filter(|place| place.is_none()).ok_or_else(malformed)?;
                            self.belongs(&piece.rows, from)?;
                            *place = Some(piece);
                        }
                        Header::Abort(error) => return Err(error),
                        _ => return Err(malformed()),
                    }
                }
            }
            let missing = sources.iter().flatten().zip(arrived.iter().flatten());
            let missing = missing.filter(|(_, piece)| piece.is_none()).map(|(&from, _)| from);
            let awaited: Vec<usize> = missing.chain(targets.iter().map(|target| target.rank)).collect();
            Ok(if awaited.is_empty() { Progress::Over } else { Progress::Waits(awaited) })
        });
        ended.map_err(|error| self.abort(error, &peers))?;
        Ok(arrived.map(|pieces| pieces.into_iter().flatten().filter(|piece| piece.keys.len() > 0).collect()))
    }

    /// Asks for rows if need be; else sends to all targets, and empties their list.
    fn begin_direct(
        &mut self,
        targets: &mut Vec<Target>,
        sources: &[Vec<usize>; 2],
    ) -> Result<(), TableError> {
        if !self.sorted.offsets.may_leave_gaps() {
            return std::mem::take(targets).iter().try_for_each(|target| self.answer(target));
        }
        let Some(ends) = self.all.get(self.place.rank).and_then(|summary| summary.ends.as_ref()) else {
            return Ok(());
        };
        for (side, sources) in Side::BOTH.into_iter().zip(sources) {
            let demand = if sources.is_empty() { None } else { Demand::exact(self.sorted, ends, side) };
            for (&to, demand) in sources.iter().zip(demand.iter().cycle()) {
                self.send(Outgoing::demand(to, side, Some(demand.clone())))?;
            }
        }
        Ok(())
    }

    /// Sends the rows of a demand.
    fn answer(&mut self, target: &Target) -> Result<(), TableError> {
        let chosen = target.demand.select(target.side, self.sorted);
        let rows = NumberedRows::of(&self.sorted.batches, self.place.rows.start, &chosen);
        self.send(Outgoing::rows(target.rank, target.side, rows, true))
    }

    /// Checks that rows are of the rank that sent them, by their numbers.
    fn belongs(&self, rows: &NumberedRows, from: usize) -> Result<(), TableError> {
        let own = Summary::rows_of(self.all, from);
        match rows.numbers().find(|numbers| numbers.start < own.start || numbers.end > own.end) {
            None => Ok(()),
            Some(wrong) => Err(TableError::RowNumbers {
                from,
                found: format!("{} to {}", wrong.start, wrong.end.saturating_sub(1)),
                expected: format!("{} to {}", own.start, own.end.saturating_sub(1)),
            }),
        }
    }
}
