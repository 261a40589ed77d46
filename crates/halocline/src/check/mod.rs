//! Checked mode: each exchange proves that it did what it should, at any cost.
//!
//! When an exchange begins, halo cells are poisoned: before the peers may write them. Each sender sends, beside
//! the data, a manifest: a checksum of every region that it sends. Once
//! the data are there the receiver compares the checksums with those of its own halo cells ([`cells`]); where
//! they differ, and poison is left, those cells were not written, otherwise bytes have changed under way. At
//! the end, and again in the user's wait, each rank compares its owned cells with what they were at the begin, and its halo
//! cells with what has come.
//!
//! What is found is the object's failure, with a report.

mod cells;
#[cfg(test)]
mod tests;

use crate::bind::Place;
use crate::error::{Cause, Fault};
use crate::link::{Direction, Link};
use crate::options::BindOptions;
use crate::pattern::DomainName;
use crate::set::InFlight;
use cells::Region;
use halocline_comm::Endpoint;
use halocline_comm::{CommError, Communicator, Tag};
use halocline_device::Variable;
use halocline_plan::wire::{Reader, WireError, Writer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The variable that asks for checked mode: on or off.
const VARIABLE: &str = "HALOCLINE_CHECK";

/// Whether checked mode is asked for, by the options or else by the environment.
pub(crate) fn wanted(options: &BindOptions) -> Result<bool, CommError> {
    match options.checked {
        Some(checked) => Ok(checked),
        None => Ok(Variable::read(VARIABLE).map_or(Ok(false), Variable::switch)?),
    }
}

/// What is wrong if this rank is checked, or not, unlike rank 0.
pub(crate) fn differs(rank: usize, checked: bool) -> String {
    let (here, there) = if checked { ("in", "without") } else { ("without", "in") };
    format!(
        "rank {rank} binds {here} checked mode, rank 0 binds {there} it; {VARIABLE} and the option must be the \
         same on all ranks"
    )
}

/// What a check has found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) cause: Cause,
    /// The link: whether it sends or receives, if that is known, and the rank at its other end.
    pub(crate) direction: Option<Direction>,
    pub(crate) peer: usize,
    /// What was found where, for people.
    pub(crate) report: String,
}

/// The checks of one bound object.
pub(crate) struct Check {
    operation: u64,
    /// Checksums of all regions that are sent, as they were when the exchange began; those that stay within the rank last.
    sent: Mutex<Vec<u64>>,
    /// What a test does to a halo that was filled from within the rank.
    #[cfg(test)]
    sabotage: Mutex<Option<tests::Sabotage>>,
    /// The last exchange whose owned cells were compared when its user learned that it is over.
    proven: Mutex<u64>,
}

/// A region with its names.
struct Exchanged<'a> {
    region: Region<'a>,
    pattern: usize,
    number: usize,
    domain: DomainName,
    /// The domain at the other end.
    other: DomainName,
}

/// What is exchanged with a peer, in the order that both ends count.
fn exchanged(in_flight: &InFlight, peer: usize, direction: Direction) -> impl Iterator<Item = Exchanged<'_>> {
    let local = &in_flight.set().local;
    local.exchanged(peer, direction).map(move |(index, field, transfer)| {
        let (cells, other) = match direction {
            Direction::Send => (&transfer.source, transfer.to),
            Direction::Receive => (&transfer.target, transfer.from),
        };
        Exchanged {
            region: Region { cells, layout: &field.cells, base: in_flight.bases()[index] },
            pattern: local.index_of(field.place.pattern),
            number: field.place.number,
            domain: local.name_of(field.place),
            other: local.name_of(Place { domain: other, ..field.place }),
        }
    })
}

impl Check {
    /// `operation`: of the messages, the same on all ranks.
    pub(crate) fn new(operation: u64, links: &mut [Link]) -> Self {
        for link in links.iter_mut().filter(|link| link.direction == Direction::Receive) {
            link.proof = Some(Proof::new(operation));
        }
        Self {
            operation,
            sent: Mutex::default(),
            proven: Mutex::default(),
            #[cfg(test)]
            sabotage: Mutex::default(),
        }
    }

    /// An exchange begins: nobody was given leave to write yet.
    pub(crate) fn begin(
        &self,
        comm: &Communicator,
        links: &[Link],
        epoch: u64,
        in_flight: &InFlight,
    ) -> Result<(), CommError> {
        for link in links.iter().filter(|link| link.direction == Direction::Receive) {
            for Exchanged { region, .. } in exchanged(in_flight, link.peer, Direction::Receive) {
                // SAFETY: bind has checked the region. Nobody else accesses it: no peer was granted this exchange yet,
                // and the memory is in flight, so that no guard is held.
                unsafe { region.poison(epoch) };
            }
        }
        for (_, target) in within(in_flight) {
            // SAFETY: bind has checked the region. Nobody else accesses it: the copies within the rank come later, and
            // the memory is in flight, so that no guard is held.
            unsafe { target.region.poison(epoch) };
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

    /// All has come: whether owned and halo cells still are what they should be.
    pub(crate) fn end(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        self.owned(comm, links, in_flight).or_else(|| self.halo(comm, links, in_flight))
    }

    /// Whether the halo cells are what has come.
    fn halo(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
        let filled = |(exchanged, sum): &(Exchanged<'_>, u64)| {
            // SAFETY: bind has checked the region, whose memory the exchange in flight holds. All copies of the exchange are
            // made, and the user writes no halo cells before the wait has returned.
            unsafe { exchanged.region.checksum() != *sum }
        };
        let from = |(peer, proof): (usize, &Proof)| {
            let sums = lock(&proof.sums);
            let here = exchanged(in_flight, peer, Direction::Receive).zip(sums.iter().copied()).find(filled);
            here.map(|(exchanged, _)| (peer, exchanged))
        };
        let proofs = links.iter().filter_map(|link| Some((link.peer, link.proof.as_ref()?)));
        let (peer, Exchanged { region, pattern, number, domain, other }) =
            proofs.into_iter().find_map(from).or_else(|| {
                let sent = lock(&self.sent);
                let first = sent.len().saturating_sub(within(in_flight).count());
                let targets = within(in_flight).map(|(_, target)| target).zip(sent[first..].iter().copied());
                targets.into_iter().find(filled).map(|(exchanged, _)| (comm.rank(), exchanged))
            })?;
        Some(Finding {
            cause: Cause::Check(Fault::HaloWritten),
            direction: Some(Direction::Receive),
            peer,
            report: format!(
                "halo {} of field {number} of {domain} (pattern {pattern} of the bind), which came from {other} of rank \
                 {peer}, were overwritten before the wait had returned; write them after it, or not at all",
                region.describe()
            ),
        })
    }

    /// Whether the owned cells that are sent are what they were when the exchange began.
    pub(crate) fn owned(&self, comm: &Communicator, links: &[Link], in_flight: &InFlight) -> Option<Finding> {
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
        let ((peer, Exchanged { region, pattern, number, domain, other }), _) = changed.next()?;
        Some(Finding {
            cause: Cause::Check(Fault::OwnedWritten),
            direction: Some(Direction::Send),
            peer,
            report: format!(
                "owned {} of field {number} of {domain} (pattern {pattern} of the bind), which go to \
                 {other} of rank {peer}, were written while the exchange was in flight; write them before it \
                 begins or after its wait",
                region.describe()
            ),
        })
    }

    /// Held by whoever begins an exchange or looks at one that is over.
    pub(crate) fn gate(&self) -> MutexGuard<'_, u64> {
        lock(&self.proven)
    }

    /// Throws away what messages still wait in the inbox.
    pub(crate) fn forget(&self, comm: &Communicator) {
        comm.link().inbox().forget(self.operation);
    }
}

/// The two ends of each copy between domains of this rank.
fn within(in_flight: &InFlight) -> impl Iterator<Item = (Exchanged<'_>, Exchanged<'_>)> {
    let local = &in_flight.set().local;
    local.patterns.iter().zip(&local.counts).enumerate().flat_map(move |(at, (pattern, &count))| {
        let transfers = &pattern.plan().local;
        let pairs = (0..count).flat_map(move |number| transfers.iter().map(move |t| (number, t)));
        pairs.filter_map(move |(number, transfer)| {
            let end = |domain, other, cells| {
                let (index, field) = local.at(Place { pattern: pattern.id(), number, domain })?;
                let region = Region { cells, layout: &field.cells, base: in_flight.bases()[index] };
                let [domain, other] = [domain, other].map(|domain| pattern.domain(domain));
                Some(Exchanged { region, pattern: at, number, domain, other })
            };
            let source = end(transfer.from, transfer.to, &transfer.source)?;
            Some((source, end(transfer.to, transfer.from, &transfer.target)?))
        })
    })
}

fn checksums<'a>(regions: impl Iterator<Item = Exchanged<'a>>) -> Vec<u64> {
    // SAFETY: bind has checked the regions, whose memory the exchange in flight holds. They are owned cells, which nobody
    // writes while the exchange is in flight.
    regions.map(|exchanged| unsafe { exchanged.region.checksum() }).collect()
}

/// Whether halo cells that rank `peer` has filled are what it sent.
fn compare<'a>(
    sums: &[u64],
    peer: usize,
    epoch: u64,
    regions: impl Iterator<Item = Exchanged<'a>>,
) -> Option<Finding> {
    for (at, Exchanged { region, pattern, number, domain, other }) in regions.enumerate() {
        // SAFETY: bind has checked the region, whose memory the exchange in flight holds. All copies into it are made, and
        // the user writes no halo cells before the wait has returned.
        let (found, (poisoned, first)) = unsafe { (region.checksum(), region.poisoned(epoch)) };
        if sums.get(at) == Some(&found) {
            continue;
        }
        let (cells, all) = (region.describe(), region.cells.count());
        let of = format!("field {number} of {domain} (pattern {pattern} of the bind)");
        let from = format!("{other} of rank {peer}");
        let (fault, report) = match first {
            Some(first) => (
                Fault::NotWritten,
                format!(
                    "{poisoned} of the {all} halo {cells} of {of} were not written from {from}; the first is \
                     {first:?}"
                ),
            ),
            None => (
                Fault::Changed,
                format!(
                    "halo {cells} of {of} are not what {from} held when its exchange began: bytes have changed \
                     under way, or its owned cells were written meanwhile"
                ),
            ),
        };
        return Some(Finding {
            cause: Cause::Check(fault),
            direction: Some(Direction::Receive),
            peer,
            report,
        });
    }
    None
}

/// What a sender says of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Manifest {
    /// A checksum of every region that it sends.
    sums: Vec<u64>,
}

impl Manifest {
    fn write(&self) -> Vec<u8> {
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

/// The receiving side of a link, until its exchange is proven. Under the link's claim.
pub(crate) struct Proof {
    operation: u64,
    /// The last epoch whose bytes are there.
    moved: AtomicU64,
    /// Checksums of the regions that have come, once they are known to be right.
    sums: Mutex<Vec<u64>>,
    /// What was found.
    report: OnceLock<String>,
    /// What a test does to the halo once it is filled.
    #[cfg(test)]
    sabotage: Mutex<Option<tests::Sabotage>>,
}

/// Where a proof stands.
pub(crate) enum Judgement {
    /// The manifest has not come.
    Waits,
    Proven,
    Wrong(Cause),
}

impl Proof {
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

    /// Whether the bytes of `epoch` are there.
    pub(crate) fn has_moved(&self, epoch: u64) -> bool {
        self.moved.load(Ordering::Relaxed) >= epoch
    }

    /// The bytes of `epoch` are there.
    pub(crate) fn moved(&self, epoch: u64) {
        self.moved.store(epoch, Ordering::Relaxed);
    }

    /// What was found, for the failure.
    pub(crate) fn report(&self) -> Option<&String> {
        self.report.get()
    }

    /// Takes the sender's manifest, if it has come.
    fn read(&self, comm: &Communicator, peer: usize, epoch: u64) -> Option<Result<Manifest, WireError>> {
        let tag = Tag { operation: self.operation, round: epoch };
        Some(Manifest::read(&comm.link().inbox().take(tag, Some(peer))?.payload))
    }

    /// The bytes of `epoch` are there: whether they are what was sent.
    pub(crate) fn judge(
        &self,
        comm: &Communicator,
        peer: usize,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Judgement {
        let manifest = match self.read(comm, peer, epoch) {
            None => return Judgement::Waits,
            Some(Ok(manifest)) => manifest,
            Some(Err(_)) => return Judgement::Wrong(Cause::Malformed),
        };
        #[cfg(test)]
        if let Some(sabotage) = lock(&self.sabotage).take() {
            exchanged(in_flight, peer, Direction::Receive).take(1).for_each(|it| sabotage(&it.region, epoch));
        }
        match compare(&manifest.sums, peer, epoch, exchanged(in_flight, peer, Direction::Receive)) {
            None => {
                *lock(&self.sums) = manifest.sums;
                Judgement::Proven
            }
            Some(finding) => {
                self.report.get_or_init(|| finding.report);
                Judgement::Wrong(finding.cause)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves the data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
