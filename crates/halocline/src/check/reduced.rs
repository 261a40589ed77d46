//! Checks of reduces.
//!
//! When a reduce begins, each rank notes checksums of its halo cells and of its owned cells. It compares the halo again right before it
//! packs it, and then sends the owner a manifest: the checksum of the packed bytes. The owner compares that with the bytes that have arrived,
//! and its owned cells with those of the begin before it combines. What packing and combining have left is noted anew. At the end, and
//! again in the user's wait, each rank compares its cells with that.

use super::{Check, Finding, LinkCheck, Manifest, Verdict, checksums, exchanged, owned, within};
use crate::error::{Cause, Fault};
use crate::link::{Direction, Link};
use crate::lock::lock;
use crate::set::InFlight;
use halocline_comm::{CommError, Communicator, Endpoint, Tag};

/// Marks the rounds of manifests that go from the receiver of an exchange to its sender: above all epochs.
const REVERSED: u64 = 1 << 63;

impl Check {
    /// A reduce begins; no halo is packed or combined yet.
    pub(super) fn begin_reduce(&self, links: &[Link], in_flight: &InFlight) {
        for link in links.iter().filter(|link| link.direction == Direction::Receive) {
            if let Some(check) = &link.check {
                check.note_halo(link.peer, in_flight);
            }
        }
        self.note(in_flight);
    }

    /// All contributions are there, and none is combined yet.
    pub(crate) fn before_combination(&self, comm: &Communicator, in_flight: &InFlight) -> Option<Finding> {
        self.any_owned(comm, in_flight).or_else(|| {
            let halo = || within(in_flight).map(|(_, target)| target);
            let (now, before) = (checksums(halo()), lock(&self.sent));
            let at = now.iter().zip(&*before).position(|(now, before)| now != before)?;
            halo().nth(at).map(|written| Finding::contribution_written(comm.rank(), &written))
        })
    }

    /// All contributions are combined.
    pub(crate) fn combined(&self, in_flight: &InFlight) {
        self.note(in_flight);
    }

    /// Notes the owned cells, and the halo cells that copy owned cells of this rank.
    fn note(&self, in_flight: &InFlight) {
        *lock(&self.sent) = checksums(within(in_flight).map(|(_, target)| target));
        *lock(&self.owned) = owned::row_sums(in_flight);
    }
}

impl LinkCheck {
    fn note_halo(&self, peer: usize, in_flight: &InFlight) {
        *lock(&self.sums) = checksums(exchanged(in_flight, peer, Direction::Receive));
    }

    /// Whether the halo, which is about to be packed, has changed since the reduce began.
    pub(crate) fn is_overwritten(&self, peer: usize, in_flight: &InFlight) -> bool {
        let now = checksums(exchanged(in_flight, peer, Direction::Receive));
        let changed = now.iter().zip(&*lock(&self.sums)).position(|(now, before)| now != before);
        let written = changed.and_then(|at| exchanged(in_flight, peer, Direction::Receive).nth(at));
        let finding = written.map(|written| Finding::contribution_written(peer, &written));
        finding.map(|finding| self.report.get_or_init(|| finding.report)).is_some()
    }

    /// The halo is packed, and cleared unless the reduce keeps it. Returns the manifest of the bytes.
    ///
    /// # Safety
    /// So many bytes can be read there, and nothing writes them meanwhile.
    pub(crate) unsafe fn packed(
        &self,
        peer: usize,
        (message, bytes): (*const u8, usize),
        in_flight: &InFlight,
    ) -> Manifest {
        self.note_halo(peer, in_flight);
        // SAFETY: the caller promises so many bytes that nothing writes.
        unsafe { Manifest::of_bytes(message, bytes) }
    }

    /// Sends the owner a manifest.
    pub(crate) fn announce(
        &self,
        comm: &Communicator,
        peer: usize,
        epoch: u64,
        manifest: Manifest,
    ) -> Result<(), CommError> {
        comm.send(peer, self.reversed(epoch), manifest.write())
    }

    /// Compares the bytes that have arrived with the manifest of the rank that has packed them.
    ///
    /// # Safety
    /// So many bytes can be read and written there, and nothing else accesses them meanwhile.
    pub(crate) unsafe fn compare_packed(
        &self,
        comm: &Communicator,
        peer: usize,
        (epoch, (message, bytes)): (u64, (*mut u8, usize)),
        in_flight: &InFlight,
    ) -> Verdict {
        let manifest = match Manifest::take(comm, self.reversed(epoch), peer) {
            None => return Verdict::Waits,
            Some(Ok(manifest)) => manifest,
            Some(Err(_)) => return Verdict::Wrong(Cause::Malformed),
        };
        #[cfg(test)]
        if let Some(sabotage) = lock(&self.sabotage).take() {
            let first = exchanged(in_flight, peer, Direction::Send).take(1);
            first.for_each(|it| sabotage(&it.region.packed(message), epoch));
        }
        // SAFETY: the caller promises so many bytes that nothing else writes.
        if unsafe { Manifest::of_bytes(message, bytes) } == manifest {
            return Verdict::Right;
        }
        self.report.get_or_init(|| {
            let first = exchanged(in_flight, peer, Direction::Send).next();
            let domain = first.map_or_else(String::new, |halo| format!(" of {}", halo.other));
            format!("the halo{domain} of rank {peer} is not what that rank has packed: bytes have changed on the way")
        });
        Verdict::Wrong(Cause::Check(Fault::ChangedOnTheWay))
    }

    fn reversed(&self, epoch: u64) -> Tag {
        Tag { operation: self.operation, round: REVERSED | epoch }
    }
}

impl Manifest {
    /// # Safety
    /// So many bytes can be read there, and nothing writes them meanwhile.
    unsafe fn of_bytes(message: *const u8, bytes: usize) -> Self {
        // A message without bytes may lie nowhere.
        let message = if bytes == 0 {
            &[][..]
        } else {
            // SAFETY: the caller promises so many bytes that nothing writes.
            unsafe { std::slice::from_raw_parts(message, bytes) }
        };
        let sum =
            message.iter().fold(super::cells::SUM_OF_NOTHING, |sum, &byte| super::cells::add_byte(sum, byte));
        Self { sums: vec![sum] }
    }
}
