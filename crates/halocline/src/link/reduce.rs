//! A link in a reduce: the receiver's halo cells travel to the sender, which combines them with its owned cells.
//!
//! The side that signals first in an exchange signals first in a reduce, too. So a rank that exchanges while its peer reduces finds
//! that out by the subject of the first signal:
//!
//! | path | first | then |
//! | --- | --- | --- |
//! | push | the receiver packs its halo into its mailbox and signals | the sender combines and signals |
//! | pull, mailbox | the sender signals | the receiver packs its halo into its mailbox and signals |
//! | message | the sender sends an empty message | the receiver packs its halo into a message |
//!
//! The mailbox is that of the link, in the receiver's memory, where the sender reads it. The sender combines once the bytes of all
//! its links have arrived, in the order of domains ([`crate::reduce`]).

use super::signals::{ACKNOWLEDGED, Looked, Signals};
use super::{Direction, Link, LinkPath, Subject, Turn, as_sources};
use crate::error::Cause;
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
    /// The last epoch in which this side has sent the first signal.
    first: AtomicU64,
    /// The last even and odd epochs whose message this side has taken where an exchange awaits an acknowledgement.
    taken: [AtomicU64; 2],
    /// The message that has arrived, until it is combined.
    payload: Mutex<Vec<u8>>,
}

impl ReverseState {
    /// Whether the message of an epoch was taken that an exchange would await as an acknowledgement.
    pub(super) fn has_taken(&self, epoch: u64) -> bool {
        self.taken[(epoch & 1) as usize].load(Ordering::Relaxed) == epoch
    }
}

impl Link {
    /// One turn in a reduce, under the claim.
    pub(super) fn serve_reverse(
        &self,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Result<Turn, CommError> {
        let packs_first = self.direction == Direction::Receive && self.path == LinkPath::Push;
        let signals_first = self.direction == Direction::Send && self.path != LinkPath::Push;
        if (packs_first || signals_first) && self.reverse.first.load(Ordering::Relaxed) < epoch {
            if packs_first {
                // The sender has read the mailbox of two epochs before: this side has waited for that in the epoch before.
                self.pack_halo(comm, epoch, in_flight)?;
            } else {
                match self.look(comm, self.freed_by(epoch)) {
                    Looked::Reached(_) => self.grant_reverse(comm, epoch, in_flight.subject())?,
                    Looked::Below => return Ok(Turn::Waits),
                    Looked::Lost(cause, culprit) => return Ok(Turn::Lost(cause, culprit)),
                }
            }
            self.reverse.first.store(epoch, Ordering::Relaxed);
        }
        let awaited = if packs_first { epoch - 1 } else { epoch };
        let message = match self.look(comm, awaited) {
            Looked::Reached(message) => message,
            Looked::Below => return Ok(Turn::Waits),
            Looked::Lost(cause, culprit) => return Ok(Turn::Lost(cause, culprit)),
        };
        if awaited == epoch
            && let Some(lost) = self.arrived_reverse(comm, epoch, in_flight, message)
        {
            return Ok(lost);
        }
        if self.direction == Direction::Receive && !packs_first {
            self.pack_halo(comm, epoch, in_flight)?;
        }
        Ok(self.finish(epoch))
    }

    /// The peer has signalled: checks its subject and keeps its message.
    fn arrived_reverse(
        &self,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
        message: Option<Vec<u8>>,
    ) -> Option<Turn> {
        let ours = in_flight.subject();
        let expected = if self.direction == Direction::Send { in_flight.part(self.part).bytes } else { 0 };
        let Some(mut message) = message else {
            let theirs = self.peer_subject(epoch).filter(|theirs| *theirs != ours)?;
            return Some(Turn::Lost(self.differs(comm, ours, theirs), comm.rank()));
        };
        match message.split_last_chunk() {
            Some((_, theirs)) if Subject::from_bytes(*theirs) != ours => {
                let cause = self.differs(comm, ours, Subject::from_bytes(*theirs));
                return Some(Turn::Lost(cause, comm.rank()));
            }
            Some((payload, _)) if payload.len() == expected => {}
            _ => return Some(Turn::Lost(Cause::Malformed, self.peer)),
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
        let pack = |message: *mut u8| {
            trace::pack(comm, self, epoch, bytes).in_scope(|| pack_halo(in_flight, self.part, message));
        };
        match &self.signals {
            Signals::Counters(_) => {
                pack(self.slot(epoch));
                self.set_flag(comm, epoch, subject);
            }
            &Signals::Messages { operation } => {
                let mut message = buffers::take(bytes + subject.to_bytes().len() + Communicator::SPARE);
                pack(message.as_mut_ptr());
                // SAFETY: there is room for so many bytes, and packing has written each of them: the operations of a message
                // fill it without gaps (`PeerView::reverse`).
                unsafe { message.set_len(bytes) };
                message.extend_from_slice(&subject.to_bytes());
                let tag = Tag { operation, round: ACKNOWLEDGED | epoch };
                trace::send(comm, self, epoch, bytes).in_scope(|| comm.send(self.peer, tag, message))?;
            }
        }
        Ok(())
    }

    /// Calls `with` with the bytes of the receiver's halo, which have arrived in `epoch`.
    pub(crate) fn with_halo(&self, epoch: u64, with: impl FnOnce(*mut u8)) {
        match &self.signals {
            Signals::Counters(_) => with(self.slot(epoch)),
            Signals::Messages { .. } => with(lock(&self.reverse.payload).as_mut_ptr()),
        }
    }

    /// All contributions of `epoch` are combined: releases the bytes of this link.
    pub(crate) fn end_reverse(&self, comm: &Communicator, epoch: u64, subject: Subject) {
        if self.direction == Direction::Receive {
            return;
        }
        match self.signals {
            // On other paths the first signal of the next epoch says so.
            Signals::Counters(_) if self.path == LinkPath::Push => self.set_flag(comm, epoch, subject),
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
    // buffer, has room for all operations, and this thread alone uses it: it holds the link's claim, and the peer has read what
    // the slot held before.
    unsafe {
        if keeps_halo {
            return host::copy(ops, as_sources(bases), &[message]);
        }
        ops.iter().for_each(|op| Combine::take(op.element).run(op, bases[op.source], message));
    }
}
