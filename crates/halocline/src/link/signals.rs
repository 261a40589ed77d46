//! How the two sides of a link signal each other: by flags if they share memory, by messages otherwise.

use super::{Direction, Link, Subject};
use crate::error::{Cause, Failure};
use crate::stream::FlagSet;
use halocline_comm::{CommError, Communicator, Counter, Doorbell, Endpoint, Seen, Tag};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Rounds of a message link that carry no data: above all epochs.
pub(super) const ACKNOWLEDGED: u64 = 1 << 63;
const NOTICE: u64 = Tag::NEWS;
const QUIET: u64 = Tag::NEWS + 3;
/// The label of a flag that says what devices wait for, and the bits of a set in it.
const AWAITED: u64 = 0;
const SETS: u32 = 16;

/// Sets of device fields that an object can have: there are flags for each operation of a set.
pub(crate) const MOST_SETS: usize = (1 << SETS) / FlagSet::count(1);

/// Kinds of a notice: failed with this cause, or closed after this epoch.
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

/// How a link's two sides signal each other.
pub(crate) enum Signals {
    /// By flags in memory that both sides reach.
    Counters(Counters),
    /// By messages of this operation. Those of the two directions differ in their rounds or senders.
    Messages {
        /// The operation.
        operation: u64,
    },
}

/// The flags of a link's two sides, and the doorbell of the peer.
pub(crate) struct Counters {
    mine: NonNull<Counter>,
    theirs: NonNull<Counter>,
    bell: NonNull<Doorbell>,
}

impl Counters {
    /// # Safety
    /// The flags and the bell stay valid as long as the returned value is used.
    pub(crate) unsafe fn new(mine: NonNull<Counter>, theirs: NonNull<Counter>, bell: &Doorbell) -> Self {
        Self { mine, theirs, bell: NonNull::from(bell) }
    }

    /// The flag that this side waits for.
    #[inline]
    fn mine(&self) -> &Counter {
        // SAFETY: the caller of `new` promises that the counter is valid. It consists of atomic numbers, for which all
        // bytes are valid, whatever another process writes.
        unsafe { self.mine.as_ref() }
    }

    /// The flag that the peer waits for, and its bell.
    #[inline]
    fn theirs(&self) -> (&Counter, &Doorbell) {
        // SAFETY: the caller of `new` promises that the counter and the bell are valid. They consist of atomic numbers,
        // for which all bytes are valid, whatever another process writes.
        unsafe { (self.theirs.as_ref(), self.bell.as_ref()) }
    }
}

/// What a look for an epoch found.
pub(super) enum Looked {
    /// The peer has reached it; with the payload, if there is a message.
    Reached(Option<Vec<u8>>),
    Below,
    Lost(Cause, usize),
}

fn lost((cause, culprit): (Cause, usize)) -> Looked {
    Looked::Lost(cause, culprit)
}

impl Link {
    /// Signals the peer that this side has done its part of `epoch`, of this subject.
    #[inline]
    pub(super) fn signal(&self, comm: &Communicator, epoch: u64, subject: Subject) -> Result<(), CommError> {
        match &self.signals {
            Signals::Counters(_) => self.set_flag(comm, epoch, subject),
            &Signals::Messages { operation } => {
                let tag = Tag { operation, round: ACKNOWLEDGED | epoch };
                comm.send(self.peer, tag, Vec::new())?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn set_flag(&self, comm: &Communicator, epoch: u64, subject: Subject) {
        if let Signals::Counters(counters) = &self.signals {
            let (theirs, bell) = counters.theirs();
            let (signalled, word) = (&self.signalled[(epoch & 1) as usize], subject.word());
            if signalled.load(Ordering::Relaxed) != word {
                signalled.store(word, Ordering::Relaxed);
                theirs.say(epoch, word);
            }
            theirs.raise(epoch);
            bell.changed(comm.link().host());
        }
    }

    #[inline]
    pub(super) fn look(&self, comm: &Communicator, epoch: u64) -> Looked {
        match &self.signals {
            Signals::Counters(counters) => match counters.mine().look(epoch) {
                Seen::Reached => Looked::Reached(None),
                Seen::Below => Looked::Below,
                Seen::Poisoned(word) => lost(Cause::decode(word)),
                Seen::Closed(_) => Looked::Lost(Cause::Dropped, self.peer),
            },
            &Signals::Messages { operation } => self.look_at_messages(comm, operation, epoch),
        }
    }

    /// Whether the peer, which sets flags, has combined this side's halo in `epoch`.
    pub(super) fn look_for_combined(&self, comm: &Communicator, epoch: u64) -> Looked {
        match self.look(comm, epoch) {
            Looked::Reached(_) => {}
            // Its subject is that of two epochs before.
            looked => return looked,
        }
        let is_combined = || self.peer_subject(epoch).is_some_and(Subject::is_combined);
        if is_combined() {
            return Looked::Reached(None);
        }
        // No epoch is as high: a failure, or the end of the peer. It may have combined just before.
        match self.look(comm, u64::MAX) {
            Looked::Lost(..) if is_combined() => Looked::Reached(None),
            looked => looked,
        }
    }

    /// The subject of `epoch`, which the peer has reached, if it sets flags.
    #[inline]
    pub(super) fn peer_subject(&self, epoch: u64) -> Option<Subject> {
        match &self.signals {
            Signals::Counters(counters) => Some(Subject::from_word(counters.mine().about(epoch))),
            Signals::Messages { .. } => None,
        }
    }

    fn look_at_messages(&self, comm: &Communicator, operation: u64, epoch: u64) -> Looked {
        if epoch == 0 {
            return Looked::Reached(None);
        }
        let round = if self.direction == Direction::Send { ACKNOWLEDGED | epoch } else { epoch };
        let taken = || comm.link().inbox().take(Tag { operation, round }, Some(self.peer));
        if let Some(message) = taken() {
            return Looked::Reached(Some(message.payload));
        }
        let Some(notice) = self.notice(comm, operation) else { return Looked::Below };
        // The notice is the peer's last message: earlier ones have arrived.
        taken().map_or_else(|| lost(notice), |message| Looked::Reached(Some(message.payload)))
    }

    /// The peer's final notice, if it has arrived.
    fn notice(&self, comm: &Communicator, operation: u64) -> Option<(Cause, usize)> {
        let taken = || {
            let message = comm.link().inbox().take(Tag { operation, round: NOTICE }, Some(self.peer))?;
            Some(match message.payload.split_first_chunk() {
                Some((&[FAILED], word)) => match word.try_into() {
                    Ok(word) => Cause::decode(u64::from_le_bytes(word)),
                    Err(_) => (Cause::Malformed, self.peer),
                },
                Some((&[CLOSED], last)) => {
                    let last = last.try_into().map_or(0, u64::from_le_bytes);
                    self.closed.get_or_init(|| last);
                    (Cause::Dropped, self.peer)
                }
                _ => (Cause::Malformed, self.peer),
            })
        };
        self.notice.get_or_take(taken).copied()
    }

    /// The peer's failure, if it has failed, although this side waits for nothing from it.
    pub(crate) fn peer_failure(&self, comm: &Communicator) -> Option<(Cause, usize)> {
        match &self.signals {
            // No epoch is as high.
            Signals::Counters(counters) => match counters.mine().look(u64::MAX) {
                Seen::Poisoned(word) => Some(Cause::decode(word)),
                _ => None,
            },
            &Signals::Messages { operation } => {
                // A closed peer has not failed. A failed one may have failed because a third rank dropped its end.
                self.notice(comm, operation).filter(|_| self.closed.get().is_none())
            }
        }
    }

    /// Notifies the peer, once, that this side has failed and accesses the peer's memory no more. Under the link's claim.
    pub(crate) fn notify_failure(&self, comm: &Communicator, failure: &Failure) {
        if self.has_notified.swap(true, Ordering::AcqRel) {
            return;
        }
        let word = failure.cause.encode(failure.culprit);
        match &self.signals {
            Signals::Counters(counters) => {
                let (theirs, bell) = counters.theirs();
                theirs.poison(word);
                bell.changed(comm.link().host());
                bell.demand(comm.link().host());
            }
            &Signals::Messages { operation } => {
                let notice = [&[FAILED][..], &word.to_le_bytes()].concat();
                self.notify(comm, operation, notice);
            }
        }
    }

    /// Notifies the peer that this object is gone and took part up to epoch `last`.
    pub(crate) fn close(&self, comm: &Communicator, last: u64) {
        match &self.signals {
            Signals::Counters(counters) => {
                let (theirs, bell) = counters.theirs();
                theirs.close(last);
                bell.changed(comm.link().host());
            }
            &Signals::Messages { operation } => {
                self.notify(comm, operation, [&[CLOSED][..], &last.to_le_bytes()].concat());
            }
        }
    }

    fn notify(&self, comm: &Communicator, operation: u64, notice: Vec<u8>) {
        // A broken transport was reported before.
        if let Err(error) = comm.send(self.peer, Tag { operation, round: NOTICE }, notice)
            && comm.link().broken().is_none()
        {
            tracing::warn!("rank {}: rank {} could not be notified: {error}", comm.rank(), self.peer);
        }
    }

    /// Notifies the peer that after a failure this side accesses none of its memory any more. For device fields, whose epochs are
    /// flags in device memory, so that the host's flag is free for this.
    pub(crate) fn notify_quiet(&self, comm: &Communicator) {
        match &self.signals {
            Signals::Counters(_) => self.set_flag(comm, 1, Subject::new(0, None)),
            &Signals::Messages { operation } => {
                // It fails only if the peer has departed.
                let _ = comm.send(self.peer, Tag { operation, round: QUIET }, Vec::new());
            }
        }
    }

    /// Notifies the peer, if flags can, what this rank's devices wait for: operation `epoch`, by the number of its [`FlagSet`]. For device
    /// fields.
    pub(crate) fn notify_awaited(&self, comm: &Communicator, epoch: u64, number: usize) {
        if let Signals::Counters(counters) = &self.signals {
            let (theirs, bell) = counters.theirs();
            let awaited = epoch << SETS | number as u64;
            if self.signalled[AWAITED as usize].swap(awaited, Ordering::Relaxed) != awaited {
                theirs.say(AWAITED, awaited);
                bell.demand(comm.link().host());
            }
        }
    }

    /// The operation that the peer's devices wait for, and the number of its [`FlagSet`], if the peer has notified this side.
    pub(crate) fn peer_awaits(&self) -> Option<(u64, u64)> {
        let Signals::Counters(counters) = &self.signals else { return None };
        let awaited = counters.mine().about(AWAITED);
        (awaited != 0).then_some((awaited >> SETS, awaited & ((1 << SETS) - 1)))
    }

    /// Whether the peer accesses none of this rank's memory any more, after a failure.
    pub(crate) fn is_peer_quiet(&self, comm: &Communicator) -> bool {
        match &self.signals {
            Signals::Counters(counters) => counters.mine().look(1) == Seen::Reached,
            &Signals::Messages { operation } => {
                let tag = Tag { operation, round: QUIET };
                // Each link between the two ranks takes one.
                self.quiet.get_or_take(|| comm.link().inbox().take(tag, Some(self.peer)).map(drop)).is_some()
            }
        }
    }

    /// The last epoch that the peer took part in, if it has dropped its end.
    pub(crate) fn peer_closed(&self, comm: &Communicator) -> Option<u64> {
        match &self.signals {
            // No epoch is as high.
            Signals::Counters(counters) => match counters.mine().look(u64::MAX) {
                Seen::Closed(last) => Some(last),
                _ => None,
            },
            &Signals::Messages { operation } => {
                self.notice(comm, operation)?;
                self.closed.get().copied()
            }
        }
    }

    /// Discards this link's messages in the inbox.
    pub(crate) fn forget(&self, comm: &Communicator) {
        let operation = match (&self.signals, &self.unbound_slots) {
            (Signals::Messages { operation }, _) => *operation,
            // Payloads that were too large for a slot, and announcements of larger slots.
            (Signals::Counters(_), Some(unbound_slots)) => unbound_slots.operation(),
            (Signals::Counters(_), None) => return,
        };
        comm.link().inbox().forget(operation);
    }

    /// Wakes the peer's progress thread: this side is about to sleep until the peer signals.
    pub(crate) fn demand(&self, comm: &Communicator) {
        if let Signals::Counters(counters) = &self.signals {
            counters.theirs().1.demand(comm.link().host());
        }
    }
}
