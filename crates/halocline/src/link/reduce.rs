//! A link in a reduce: the receiver's halo cells are combined with the sender's owned cells.
//!
//! On a direct link whose sender reaches the receiver's fields, the sender combines the halo where it lies, and clears it. On other
//! links the bytes travel through the mailbox, in the receiver's memory, or through a message:
//!
//! | | receiver | sender |
//! | --- | --- | --- |
//! | in place | signals: its halo is complete | signals that it takes part; combines; signals that it has combined |
//! | mailbox | once the sender takes part, packs its halo into the mailbox and signals | signals that it takes part; combines |
//! | message | once the sender takes part, packs its halo into a message | sends an empty message; combines |
//!
//! The sender of an exchange signals first in each of them. So a rank that exchanges while its peer reduces finds that out by the
//! subject of the first signal. The sender combines once the bytes of all its links are there, in the order of domains
//! ([`crate::reduce`]). In checked mode nothing is combined in place.

use super::signals::{ACKNOWLEDGED, Looked, Signals};
use super::{Direction, Link, Polled, Subject, as_sources};
use crate::check::{LinkCheck, Verdict};
use crate::error::{Cause, Fault};
use crate::lock::lock;
use crate::reduce::Reduction;
use crate::set::InFlight;
use crate::trace;
use halocline_comm::{CommError, Communicator, Endpoint, Tag, buffers};
use halocline_device::host::{self, Combine};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one side of a link keeps of reduces.
#[derive(Default)]
pub(super) struct ReverseState {
    /// The last epoch in which this side has begun a reduce: a sender has sent its first signal.
    begun: AtomicU64,
    /// The last even and odd epochs whose message this side has taken where an exchange awaits an acknowledgement.
    taken: [AtomicU64; 2],
    /// The message that has arrived, until it is combined.
    payload: Mutex<Vec<u8>>,
}

impl ReverseState {
    /// Whether this side has begun a reduce in an epoch.
    pub(super) fn is_begun(&self, epoch: u64) -> bool {
        self.begun.load(Ordering::Relaxed) == epoch
    }

    /// Whether the message of an epoch was taken that an exchange would await as an acknowledgement.
    pub(super) fn has_taken(&self, epoch: u64) -> bool {
        self.taken[(epoch & 1) as usize].load(Ordering::Relaxed) == epoch
    }
}

impl Link {
    /// Polls once in a reduce, under the claim. The sender's part is done when the bytes are there: then they can be combined.
    pub(super) fn serve_reverse(
        &self,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Result<Polled, CommError> {
        if self.is_read_in_place {
            return Ok(self.poll_in_place(comm, epoch, in_flight));
        }
        if let Some(check) = self.check.as_ref().filter(|check| check.has_moved(epoch)) {
            return Ok(self.check_contributions(check, comm, epoch, in_flight));
        }
        if self.direction == Direction::Send && !self.reverse.is_begun(epoch) {
            match self.look(comm, self.freed_by(epoch)) {
                Looked::Reached(_) => self.grant_reverse(comm, epoch, in_flight.subject())?,
                Looked::Below => return Ok(Polled::Waits),
                Looked::Lost(cause, culprit) => return Ok(Polled::Lost(cause, culprit)),
            }
        }
        self.reverse.begun.store(epoch, Ordering::Relaxed);
        let message = match self.look(comm, epoch) {
            Looked::Reached(message) => message,
            Looked::Below => return Ok(Polled::Waits),
            Looked::Lost(cause, culprit) => return Ok(Polled::Lost(cause, culprit)),
        };
        if let Some(lost) = self.arrived_reverse(comm, epoch, in_flight, message) {
            return Ok(lost);
        }
        match (self.direction, &self.check) {
            (Direction::Receive, Some(check)) if check.is_overwritten(self.peer, in_flight) => {
                return Ok(Polled::Lost(Cause::Check(Fault::HaloWritten), comm.rank()));
            }
            (Direction::Receive, _) => self.pack_halo(comm, epoch, in_flight)?,
            (Direction::Send, Some(check)) => {
                check.moved(epoch);
                return Ok(self.check_contributions(check, comm, epoch, in_flight));
            }
            (Direction::Send, None) => {}
        }
        Ok(self.finish(epoch))
    }

    /// In checked mode: whether the bytes that arrived are those that the receiver has packed.
    #[cold]
    fn check_contributions(
        &self,
        check: &LinkCheck,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Polled {
        let mut verdict = Verdict::Waits;
        self.with_halo(epoch, |bytes| {
            let bytes = (bytes, in_flight.part(self.part).bytes);
            // SAFETY: so many bytes have arrived there, which the peer does not write before this side's next signal. This thread alone uses
            // them: it holds the claim, and the link is not done.
            verdict = unsafe { check.compare_packed(comm, self.peer, (epoch, bytes), in_flight) };
        });
        match verdict {
            Verdict::Waits => Polled::Waits,
            Verdict::Right => self.finish(epoch),
            Verdict::Wrong(cause) => self.lost_by(comm, cause),
        }
    }

    /// Signals, once, that this side takes part in a reduce in place. Under the claim.
    pub(crate) fn begin_in_place(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) {
        if self.is_read_in_place && !self.reverse.is_begun(epoch) {
            let keeps_halo = in_flight.reduction().is_some_and(|reduction| reduction.keeps_halo);
            self.set_flag(comm, epoch, in_flight.subject().keeping(keeps_halo));
            self.reverse.begun.store(epoch, Ordering::Relaxed);
        }
    }

    /// Polls once in a reduce whose sender combines the receiver's halo in place.
    fn poll_in_place(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) -> Polled {
        let ours = in_flight.subject();
        self.begin_in_place(comm, epoch, in_flight);
        let looked = match self.look(comm, epoch) {
            Looked::Reached(_) => match self.peer_subject(epoch).filter(|theirs| theirs.agreed() != ours) {
                Some(theirs) => return Polled::Lost(self.clash(comm, ours, theirs), comm.rank()),
                None if self.direction == Direction::Receive => self.look_for_combined(comm, epoch),
                None => Looked::Reached(None),
            },
            looked => looked,
        };
        match looked {
            Looked::Reached(_) => self.finish(epoch),
            Looked::Below => Polled::Waits,
            Looked::Lost(cause, culprit) => Polled::Lost(cause, culprit),
        }
    }

    /// Whether the peer has begun the reduce in place that this side has begun.
    pub(crate) fn peer_has_begun(&self, comm: &Communicator, epoch: u64) -> bool {
        let is_begun = self.is_read_in_place && self.reverse.is_begun(epoch);
        is_begun && matches!(self.look(comm, epoch), Looked::Reached(_))
    }

    /// The peer has signalled: checks its subject and keeps its message.
    fn arrived_reverse(
        &self,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
        message: Option<Vec<u8>>,
    ) -> Option<Polled> {
        let ours = in_flight.subject();
        let expected = if self.direction == Direction::Send { in_flight.part(self.part).bytes } else { 0 };
        let Some(mut message) = message else {
            let theirs = self.peer_subject(epoch).filter(|theirs| *theirs != ours)?;
            return Some(Polled::Lost(self.clash(comm, ours, theirs), comm.rank()));
        };
        match message.split_last_chunk() {
            Some((_, theirs)) if Subject::from_bytes(*theirs) != ours => {
                let cause = self.clash(comm, ours, Subject::from_bytes(*theirs));
                return Some(Polled::Lost(cause, comm.rank()));
            }
            Some((payload, _)) if payload.len() == expected => {}
            _ => return Some(Polled::Lost(Cause::Malformed, self.peer)),
        }
        if self.direction == Direction::Send {
            self.reverse.taken[(epoch & 1) as usize].store(epoch, Ordering::Relaxed);
            std::mem::swap(&mut *lock(&self.reverse.payload), &mut message);
        }
        buffers::put(message);
        None
    }

    /// Tells the receiver that this side takes part in the reduce.
    fn grant_reverse(&self, comm: &Communicator, epoch: u64, subject: Subject) -> Result<(), CommError> {
        match &self.signals {
            Signals::Counters(_) => self.set_flag(comm, epoch, subject),
            &Signals::Messages { operation } => {
                let mut message = buffers::take(subject.to_bytes().len() + Communicator::SPARE);
                message.extend_from_slice(&subject.to_bytes());
                comm.send(self.peer, Tag { operation, round: epoch }, message)?;
            }
        }
        Ok(())
    }

    /// Packs the halo cells of the link for the sender, and clears them unless the reduce keeps them.
    fn pack_halo(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) -> Result<(), CommError> {
        let (bytes, subject) = (in_flight.part(self.part).bytes, in_flight.subject());
        let mut packed = None;
        let mut pack = |message: *mut u8| {
            trace::copy(comm, self, epoch, bytes).in_scope(|| pack_halo(in_flight, self.part, message));
            // SAFETY: packing has written each of the bytes: the operations of a message fill it without gaps (`PeerView::reverse`). The
            // peer does not write them.
            packed = self
                .check
                .as_ref()
                .map(|check| unsafe { check.packed(self.peer, (message, bytes), in_flight) });
        };
        match &self.signals {
            Signals::Counters(_) => {
                pack(self.slot(epoch));
                self.set_flag(comm, epoch, subject);
            }
            &Signals::Messages { operation } => {
                let mut message = buffers::take(bytes + subject.to_bytes().len() + Communicator::SPARE);
                pack(message.as_mut_ptr());
                // SAFETY: there is space for so many bytes, and packing has written each of them: the operations of a message
                // fill it without gaps (`PeerView::reverse`).
                unsafe { message.set_len(bytes) };
                message.extend_from_slice(&subject.to_bytes());
                let tag = Tag { operation, round: ACKNOWLEDGED | epoch };
                trace::send(comm, self, epoch, bytes).in_scope(|| comm.send(self.peer, tag, message))?;
            }
        }
        match (&self.check, packed) {
            (Some(check), Some(packed)) => check.announce(comm, self.peer, epoch, packed),
            _ => Ok(()),
        }
    }

    /// Whether a sender's contributions of `epoch` are cleared when they are combined: where they are read in place, and the receiver
    /// keeps no halo. Others were cleared when they were packed.
    pub(crate) fn clears_halo(&self, epoch: u64) -> bool {
        self.is_read_in_place && !self.peer_subject(epoch).is_some_and(Subject::keeps_halo)
    }

    /// Calls `with` with the bytes of the receiver's halo that have arrived in `epoch`, in the mailbox or in a message.
    pub(crate) fn with_halo(&self, epoch: u64, with: impl FnOnce(*mut u8)) {
        match &self.signals {
            Signals::Counters(_) => with(self.slot(epoch)),
            Signals::Messages { .. } => with(lock(&self.reverse.payload).as_mut_ptr()),
        }
    }

    /// All contributions of `epoch` are combined: releases the bytes of a sender's link. This side polls the link no more for
    /// `epoch`.
    pub(crate) fn end_reverse(&self, comm: &Communicator, epoch: u64, subject: Subject) {
        match self.signals {
            Signals::Counters(_) if self.is_read_in_place => self.set_flag(comm, epoch, subject.combined()),
            // The first signal of the next epoch says so.
            Signals::Counters(_) => {}
            Signals::Messages { .. } => buffers::put(std::mem::take(&mut *lock(&self.reverse.payload))),
        }
    }
}

fn pack_halo(in_flight: &InFlight, part: usize, message: *mut u8) {
    let (Some(reverse), Some(Reduction { keeps_halo, .. })) = (in_flight.reverse(), in_flight.reduction())
    else {
        return;
    };
    let (ops, bases) = (reverse.packs(part), in_flight.bases());
    // SAFETY: `PeerView::reverse` has checked the operations against the fields, whose memory the exchange in flight holds and
    // whose halo cells no other thread or peer accesses until the wait. The message, a slot of the link's mailbox or a new
    // buffer, has space for all operations, and this thread alone uses it: it holds the link's claim, and the peer has read what
    // the slot held before.
    unsafe {
        if keeps_halo {
            return host::copy(ops, as_sources(bases), &[message]);
        }
        ops.iter().for_each(|op| Combine::take(op.element).run(op, bases[op.source], message));
    }
}
