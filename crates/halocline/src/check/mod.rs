//! Checked mode: each exchange is verified, at any cost.
//!
//! When an exchange begins, each rank writes the fill pattern to its halo cells, before it grants the peers access. Beside the
//! data each sender sends a manifest: a checksum of every region that it sends. The receiver compares the checksums with those of
//! its own halo cells ([`cells`]). If they differ and the fill pattern is left, those cells were not written; otherwise bytes
//! have changed on the way. At the end, and again in the user's wait, each rank compares all its owned cells with their checksums
//! at the begin, and its halo cells with what arrived.
//!
//! Reduces: [`reduced`].
//!
//! A finding fails the object, with a report.

mod cells;
mod finding;
mod on_device;
mod owned;
mod reduced;
#[cfg(test)]
mod tests;

pub(crate) use finding::{Finding, found_late};
pub(crate) use on_device::{Area, LookTables, Looked, Spots};
#[cfg(test)]
pub(crate) use tests::Sabotage;

use crate::bind::{Local, Place};
use crate::error::{Cause, Fault};
use crate::link::{Direction, Link};
use crate::lock::lock;
use crate::options::BindOptions;
use crate::pattern::DomainName;
use crate::set::InFlight;
use cells::Region;
use halocline_comm::{CommError, Communicator, Endpoint, Tag};
use halocline_device::Variable;
use halocline_plan::Transfer;
use halocline_plan::copy::CellLayout;
use halocline_plan::wire::{Reader, WireError, Writer};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The variable that asks for checked mode: on or off.
const VARIABLE: &str = "HALOCLINE_CHECK";

/// Whether checked mode is asked for, by the options or else by the environment.
pub(crate) fn wanted(options: &BindOptions) -> Result<bool, CommError> {
    match options.checked {
        Some(checked) => Ok(checked),
        None => Ok(Variable::read(VARIABLE).map_or(Ok(false), Variable::switch)?),
    }
}

/// The checks of one bound object.
pub(crate) struct Check {
    operation: u64,
    /// Checksums, when the exchange began, of all regions that are sent, and after them of those copied within the rank. In a reduce,
    /// of the halo cells of copies within the rank.
    sent: Mutex<Vec<u64>>,
    /// Checksums of all owned cells when the exchange began ([`owned::row_sums`]). In a reduce, at last those of combined cells.
    owned: Mutex<Vec<Vec<u64>>>,
    /// Damage that a test does to a halo that was filled from within the rank.
    #[cfg(test)]
    sabotage: Mutex<Option<tests::Sabotage>>,
    /// The last exchange whose owned cells were compared in the user's wait.
    compared: Mutex<u64>,
}

/// A region with its names.
#[derive(Clone)]
struct Exchanged<'a> {
    region: Region<'a>,
    /// The index of the field.
    field: usize,
    pattern: usize,
    number: usize,
    domain: DomainName,
    /// The domain at the other end.
    other: DomainName,
}

/// The regions exchanged with a peer, in the order that both ends use.
fn exchanged(in_flight: &InFlight, peer: usize, direction: Direction) -> impl Iterator<Item = Exchanged<'_>> {
    exchanged_of(&in_flight.set().local, in_flight.bases(), peer, direction)
}

/// The same of fields at these addresses.
fn exchanged_of<'a>(
    local: &'a Local,
    bases: &'a [*mut u8],
    peer: usize,
    direction: Direction,
) -> impl Iterator<Item = Exchanged<'a>> {
    local.exchanged(peer, direction).map(move |(index, field, transfer)| {
        let other = if direction == Direction::Send { transfer.to } else { transfer.from };
        Exchanged {
            region: region_of(transfer, direction, &field.cells, bases[index]),
            field: index,
            pattern: local.index_of(field.place.pattern),
            number: field.place.number,
            domain: local.name_of(field.place),
            other: local.name_of(Place { domain: other, ..field.place }),
        }
    })
}

impl Check {
    /// `operation` is that of the messages, the same on all ranks.
    pub(crate) fn new(operation: u64, links: &mut [Link]) -> Self {
        for link in links.iter_mut() {
            link.check = Some(LinkCheck::new(operation));
            // What is combined in place has no moment at which the receiver could compare it.
            link.is_read_in_place = false;
        }
        Self {
            operation,
            sent: Mutex::default(),
            owned: Mutex::default(),
            compared: Mutex::default(),
            #[cfg(test)]
            sabotage: Mutex::default(),
        }
    }

    /// An exchange begins; no peer is granted yet.
    pub(crate) fn begin(
        &self,
        comm: &Communicator,
        links: &[Link],
        epoch: u64,
        in_flight: &InFlight,
    ) -> Result<(), CommError> {
        if in_flight.reduction().is_some() {
            self.begin_reduce(links, in_flight);
            return Ok(());
        }
        for link in links.iter().filter(|link| link.direction == Direction::Receive) {
            for Exchanged { region, .. } in exchanged(in_flight, link.peer, Direction::Receive) {
                // SAFETY: bind has checked the region. No other thread or peer accesses it: no peer is granted this exchange yet,
                // and the memory is in flight, so that no guard is held.
                unsafe { region.fill(epoch) };
            }
        }
        for (_, target) in within(in_flight) {
            // SAFETY: bind has checked the region. No other thread accesses it: the copies within the rank come later, and
            // the memory is in flight, so that no guard is held.
            unsafe { target.region.fill(epoch) };
        }
        let mut sent: Vec<u64> = Vec::new();
        let mut manifests = Vec::new();
        for link in links.iter().filter(|link| link.direction == Direction::Send) {
            let sums = checksums(exchanged(in_flight, link.peer, Direction::Send));
            sent.extend(&sums);
            manifests.push((link.peer, Manifest { sums }.write()));
        }
        sent.extend(checksums(within(in_flight).map(|(source, _)| source)));
        *lock(&self.sent) = sent;
        *lock(&self.owned) = owned::row_sums(in_flight);
        let tag = Tag { operation: self.operation, round: epoch };
        manifests.into_iter().try_for_each(|(peer, manifest)| comm.send(peer, tag, manifest))
    }

    /// The copies between domains of this rank are made.
    pub(crate) fn within(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) -> Option<Finding> {
        #[cfg(test)]
        if let Some(sabotage) = lock(&self.sabotage).take() {
            within(in_flight).take(1).for_each(|(_, target)| sabotage(&target.region, epoch));
        }
        within(in_flight).find_map(|(source, target)| {
            let sums = checksums([source].into_iter());
            compare(&sums, comm.rank(), epoch, [target].into_iter())
        })
    }

    /// All data have arrived: checks owned and halo cells.
    pub(crate) fn end(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        self.owned(comm, links, in_flight).or_else(|| self.halo(comm, links, in_flight))
    }

    /// Looks for halo cells that were overwritten after they had arrived.
    fn halo(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        let filled = |(exchanged, sum): &(Exchanged<'_>, u64)| {
            // SAFETY: bind has checked the region, whose memory the exchange in flight holds. All copies of the exchange are
            // made, and the user writes no halo cells before the wait has returned.
            unsafe { exchanged.region.checksum() != *sum }
        };
        let from = |(peer, check): (usize, &LinkCheck)| {
            let sums = lock(&check.sums);
            let here = exchanged(in_flight, peer, Direction::Receive).zip(sums.iter().copied()).find(filled);
            here.map(|(exchanged, _)| (peer, exchanged))
        };
        let checks = links.iter().filter(|link| link.direction == Direction::Receive);
        let checks = checks.filter_map(|link| Some((link.peer, link.check.as_ref()?)));
        let (peer, overwritten) = checks.into_iter().find_map(from).or_else(|| {
            let sent = lock(&self.sent);
            let first = sent.len().saturating_sub(within(in_flight).count());
            let targets = within(in_flight).map(|(_, target)| target).zip(sent[first..].iter().copied());
            targets.into_iter().find(filled).map(|(exchanged, _)| (comm.rank(), exchanged))
        })?;
        Some(match in_flight.reduction() {
            Some(_) => Finding::contribution_written(peer, &overwritten),
            None => Finding::halo_written(peer, &overwritten),
        })
    }

    /// Looks for owned cells that were written since the exchange began: first for those that are sent, to name their receiver.
    pub(crate) fn owned(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        match in_flight.reduction() {
            Some(_) => self.any_owned(comm, in_flight),
            None => self.sent(comm, links, in_flight).or_else(|| self.any_owned(comm, in_flight)),
        }
    }

    fn sent(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        let sent = lock(&self.sent);
        let sends = links.iter().filter(|link| link.direction == Direction::Send);
        let there =
            sends.flat_map(|link| exchanged(in_flight, link.peer, Direction::Send).map(|it| (link.peer, it)));
        let here = within(in_flight).map(|(source, _)| (comm.rank(), source));
        let mut changed = there.chain(here).zip(&*sent).filter(|((_, exchanged), before)| {
            // SAFETY: bind has checked the region, whose memory the exchange in flight holds. The user writes no owned cells
            // before the wait has returned, and no exchange does.
            unsafe { exchanged.region.checksum() != **before }
        });
        let ((peer, written), _) = changed.next()?;
        Some(Finding::owned_written(peer, &written))
    }

    fn any_owned(&self, comm: &Communicator, in_flight: &InFlight) -> Option<Finding> {
        let (field, Range { start, end }) = owned::first_changed(in_flight, &lock(&self.owned))?;
        let local = &in_flight.set().local;
        let place = local.fields[field].place;
        let (number, domain, pattern) = (place.number, local.name_of(place), local.index_of(place.pattern));
        let operation = if in_flight.reduction().is_some() { "reduce" } else { "exchange" };
        Some(Finding {
            cause: Cause::Check(Fault::OwnedWritten),
            direction: Direction::Send,
            peer: comm.rank(),
            report: format!(
                "owned cells of field {number} of {domain} (pattern {pattern} of the bind) were written while the {operation} \
                 was in flight, among elements {start}..{end} in the order of memory; write them before it begins or after \
                 its wait"
            ),
        })
    }

    /// Held by a thread that begins an exchange or checks one that is over.
    pub(crate) fn gate(&self) -> MutexGuard<'_, u64> {
        lock(&self.compared)
    }

    /// Discards the messages that are left in the inbox.
    pub(crate) fn forget(&self, comm: &Communicator) {
        comm.link().inbox().forget(self.operation);
    }
}

/// The two ends of each copy between domains of this rank.
fn within(in_flight: &InFlight) -> impl Iterator<Item = (Exchanged<'_>, Exchanged<'_>)> {
    within_of(&in_flight.set().local, in_flight.bases())
}

/// The same of fields at these addresses.
fn within_of<'a>(
    local: &'a Local,
    bases: &'a [*mut u8],
) -> impl Iterator<Item = (Exchanged<'a>, Exchanged<'a>)> {
    local.patterns.iter().zip(&local.counts).enumerate().flat_map(move |(at, (pattern, &count))| {
        let transfers = &pattern.plan().local;
        let pairs = (0..count).flat_map(move |number| transfers.iter().map(move |t| (number, t)));
        pairs.filter_map(move |(number, transfer)| {
            let end = |domain, other, direction| {
                let (index, field) = local.at(Place { pattern: pattern.id(), number, domain })?;
                let region = region_of(transfer, direction, &field.cells, bases[index]);
                let [domain, other] = [domain, other].map(|domain| pattern.domain_name(domain));
                Some(Exchanged { region, field: index, pattern: at, number, domain, other })
            };
            let source = end(transfer.from, transfer.to, Direction::Send)?;
            Some((source, end(transfer.to, transfer.from, Direction::Receive)?))
        })
    })
}

/// One end of a transfer.
fn region_of<'a>(
    transfer: &'a Transfer,
    direction: Direction,
    layout: &'a CellLayout,
    base: *mut u8,
) -> Region<'a> {
    match direction {
        Direction::Send => Region::source(transfer, layout, base),
        Direction::Receive => Region::new(&transfer.target, layout, base),
    }
}

fn checksums<'a>(regions: impl Iterator<Item = Exchanged<'a>>) -> Vec<u64> {
    // SAFETY: bind has checked the regions, whose memory the exchange in flight holds. They are owned cells of an exchange, or halo cells
    // of a reduce. No thread writes those while the exchange is in flight, but the one that packs or combines the halo, which is this one.
    regions.map(|exchanged| unsafe { exchanged.region.checksum() }).collect()
}

/// Compares halo cells that rank `peer` has filled with the checksums that it sent.
fn compare<'a>(
    sums: &[u64],
    peer: usize,
    epoch: u64,
    regions: impl Iterator<Item = Exchanged<'a>>,
) -> Option<Finding> {
    for (at, received) in regions.enumerate() {
        // SAFETY: bind has checked the region, whose memory the exchange in flight holds. All copies into it are made, and
        // the user writes no halo cells before the wait has returned.
        let (found, unwritten) = unsafe { (received.region.checksum(), received.region.unwritten(epoch)) };
        if sums.get(at) != Some(&found) {
            return Some(Finding::wrong(peer, &received, unwritten));
        }
    }
    None
}

/// What a sender sends beside the data of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// A checksum of every region that it sends.
    sums: Vec<u64>,
}

impl Manifest {
    /// The manifest of a sender, if it has arrived.
    pub(crate) fn take(comm: &Communicator, tag: Tag, peer: usize) -> Option<Result<Self, WireError>> {
        Some(Self::read(&comm.link().inbox().take(tag, Some(peer))?.payload))
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64s(&self.sums);
        w.finish()
    }

    fn read(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message);
        let manifest = Self { sums: reader.u64s()? };
        reader.finish()?;
        Ok(manifest)
    }
}

/// The check at one side of a link: the receiver's in an exchange, in a reduce that of both. Under the link's claim.
pub(crate) struct LinkCheck {
    operation: u64,
    /// The last epoch whose bytes have arrived.
    moved: AtomicU64,
    /// Checksums of the regions that have arrived, once they are known to be right. In a reduce, of the halo: when it began and, later, once
    /// it was packed.
    sums: Mutex<Vec<u64>>,
    /// The finding, as text.
    report: OnceLock<String>,
    /// Damage that a test does to the filled halo.
    #[cfg(test)]
    sabotage: Mutex<Option<tests::Sabotage>>,
}

/// The result of a check at the receiver.
pub(crate) enum Verdict {
    /// The manifest has not arrived.
    Waits,
    Right,
    Wrong(Cause),
}

impl LinkCheck {
    pub(crate) fn new(operation: u64) -> Self {
        Self {
            operation,
            moved: AtomicU64::new(0),
            sums: Mutex::default(),
            report: OnceLock::new(),
            #[cfg(test)]
            sabotage: Mutex::default(),
        }
    }

    /// Whether the bytes of `epoch` have arrived.
    pub(crate) fn has_moved(&self, epoch: u64) -> bool {
        self.moved.load(Ordering::Relaxed) >= epoch
    }

    /// The bytes of `epoch` have arrived.
    pub(crate) fn moved(&self, epoch: u64) {
        self.moved.store(epoch, Ordering::Relaxed);
    }

    /// The finding, for the failure.
    pub(crate) fn report(&self) -> Option<&String> {
        self.report.get()
    }

    /// Compares the bytes of `epoch`, which have arrived, with the sender's manifest.
    pub(crate) fn compare(
        &self,
        comm: &Communicator,
        peer: usize,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Verdict {
        let tag = Tag { operation: self.operation, round: epoch };
        let manifest = match Manifest::take(comm, tag, peer) {
            None => return Verdict::Waits,
            Some(Ok(manifest)) => manifest,
            Some(Err(_)) => return Verdict::Wrong(Cause::Malformed),
        };
        #[cfg(test)]
        if let Some(sabotage) = lock(&self.sabotage).take() {
            exchanged(in_flight, peer, Direction::Receive).take(1).for_each(|it| sabotage(&it.region, epoch));
        }
        match compare(&manifest.sums, peer, epoch, exchanged(in_flight, peer, Direction::Receive)) {
            None => {
                *lock(&self.sums) = manifest.sums;
                Verdict::Right
            }
            Some(finding) => {
                self.report.get_or_init(|| finding.report);
                Verdict::Wrong(finding.cause)
            }
        }
    }
}
