//! How the two sides of a link tell each other what they have done: counters where they share memory,
//! messages where they do not.

use super::{Direction, Link};
use crate::error::{Cause, Failure};
use halocline_comm::Endpoint;
use halocline_comm::{CommError, Communicator, Counter, Doorbell, Seen, Tag};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Rounds of a message link that are no data: above all epochs.
const ACKNOWLEDGED: u64 = 1 << 63;
const NOTICE: u64 = Tag::NEWS;
const QUIET: u64 = Tag::NEWS + 3;
/// Which of the two labels of a counter says what the devices of scheduled exchanges wait for, and the bits of a set in it.
const AWAITED: u64 = 0;
const SETS: u32 = 16;

/// Sets of device fields that an object can have.
pub(crate) const MOST_SETS: usize = 1 << SETS;

/// What a notice says: failed with this cause, or closed after this epoch.
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

/// How a link's two sides signal each other.
pub(crate) enum Signals {
    /// By counters in memory that both reach.
    Counters(Counters),
    /// By messages of this operation. Those of the two directions differ in their rounds or senders.
    Messages {
        /// The operation.
        operation: u64,
    },
}

/// The counters of a link's two sides, and how the other side is woken.
pub(crate) struct Counters {
    mine: NonNull<Counter>,
    theirs: NonNull<Counter>,
    bell: NonNull<Doorbell>,
}

impl Counters {
    /// # Safety
    /// The counters and the bell stay valid as long as what is returned is used.
    pub(crate) unsafe fn new(mine: NonNull<Counter>, theirs: NonNull<Counter>, bell: &Doorbell) -> Self {
        Self { mine, theirs, bell: NonNull::from(bell) }
    }

    /// What this side waits for.
    #[inline]
    fn mine(&self) -> &Counter {
        // SAFETY: the caller of `new` promises that the counter is valid. It consists of atomic numbers, for which all
        // bytes are valid, whatever another process writes.
        unsafe { self.mine.as_ref() }
    }

    /// What the other side waits for, and its bell.
    #[inline]
    fn theirs(&self) -> (&Counter, &Doorbell) {
        // SAFETY: the caller of `new` promises that the counter and the bell are valid. They consist of atomic numbers,
        // for which all bytes are valid, whatever another process writes.
        unsafe { (self.theirs.as_ref(), self.bell.as_ref()) }
    }
}

/// What a side found when it looked for an epoch.
pub(super) enum Looked {
    /// It is there; with the payload, if it came as a message.
    Reached(Option<Vec<u8>>),
    Below,
    Lost(Cause, usize),
}

fn lost((cause, culprit): (Cause, usize)) -> Looked {
    Looked::Lost(cause, culprit)
}

impl Link {
    /// Tells the other side that this side has done its part of `epoch`, for this set.
    #[inline]
    pub(super) fn raise(&self, comm: &Communicator, epoch: u64, set: usize) -> Result<(), CommError> {
        match &self.signals {
            Signals::Counters(_) => self.raise_counter(comm, epoch, set),
            &Signals::Messages { operation } => {
                let tag = Tag { operation, round: ACKNOWLEDGED | epoch };
                comm.send(self.peer, tag, Vec::new())?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn raise_counter(&self, comm: &Communicator, epoch: u64, set: usize) {
        if let Signals::Counters(counters) = &self.signals {
            let (theirs, bell) = counters.theirs();
            let said = &self.said[(epoch & 1) as usize];
            if said.load(Ordering::Relaxed) != set {
                said.store(set, Ordering::Relaxed);
                theirs.say(epoch, set as u64);
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

    /// The set for which the other side has reached `epoch`, where counters tell.
    #[inline]
    pub(super) fn set_there(&self, epoch: u64) -> Option<u64> {
        match &self.signals {
            Signals::Counters(counters) => Some(counters.mine().about(epoch)),
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
        // It is the sender's last word: what came before it is there by now.
        taken().map_or_else(|| lost(notice), |message| Looked::Reached(Some(message.payload)))
    }

    /// The other side's last word, if it has come.
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

    /// Whether the other side has failed, although nothing is awaited from it.
    pub(crate) fn failed_there(&self, comm: &Communicator) -> Option<(Cause, usize)> {
        match &self.signals {
            // No epoch is as high as this.
            Signals::Counters(counters) => match counters.mine().look(u64::MAX) {
                Seen::Poisoned(word) => Some(Cause::decode(word)),
                _ => None,
            },
            &Signals::Messages { operation } => {
                // One that was closed has not failed; one that has may have for somebody else's drop.
                self.notice(comm, operation).filter(|_| self.closed.get().is_none())
            }
        }
    }

    /// Tells the other side, once, that this side has failed and will touch nothing any more. Under
    /// the link's claim.
    pub(crate) fn tell_failure(&self, comm: &Communicator, failure: &Failure) {
        if self.told.swap(true, Ordering::AcqRel) {
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

    /// Tells the other side that this object is gone and took part up to `last`.
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
        // That nobody is reached any more was said once.
        if let Err(error) = comm.send(self.peer, Tag { operation, round: NOTICE }, notice)
            && comm.link().broken().is_none()
        {
            tracing::warn!("rank {}: rank {} was not told: {error}", comm.rank(), self.peer);
        }
    }

    /// Says that after a failure nothing of this side touches anything of the other's any more: of scheduled
    /// exchanges, whose epochs are words of devices, which leaves the counter for this.
    pub(crate) fn say_quiet(&self, comm: &Communicator) {
        match &self.signals {
            Signals::Counters(_) => self.raise_counter(comm, 1, 0),
            &Signals::Messages { operation } => {
                // One that cannot be sent goes to a rank that is gone.
                let _ = comm.send(self.peer, Tag { operation, round: QUIET }, Vec::new());
            }
        }
    }

    /// Tells the other side, where counters can, what the devices of this one wait for: exchange `epoch`, of a set.
    /// Of scheduled exchanges, as above.
    pub(crate) fn say_awaited(&self, comm: &Communicator, epoch: u64, set: usize) {
        if let Signals::Counters(counters) = &self.signals {
            let (theirs, bell) = counters.theirs();
            let awaited = epoch << SETS | set as u64;
            if self.said[AWAITED as usize].swap(awaited as usize, Ordering::Relaxed) != awaited as usize {
                theirs.say(AWAITED, awaited);
                bell.demand(comm.link().host());
            }
        }
    }

    /// What the other side has said so, if anything.
    pub(crate) fn awaited_there(&self) -> Option<(u64, u64)> {
        let Signals::Counters(counters) = &self.signals else { return None };
        let said = counters.mine().about(AWAITED);
        (said != 0).then_some((said >> SETS, said & ((1 << SETS) - 1)))
    }

    /// Whether the other side has said so.
    pub(crate) fn is_quiet_there(&self, comm: &Communicator) -> bool {
        match &self.signals {
            Signals::Counters(counters) => counters.mine().look(1) == Seen::Reached,
            &Signals::Messages { operation } => {
                let tag = Tag { operation, round: QUIET };
                // One for each link between the two.
                self.quiet.get_or_take(|| comm.link().inbox().take(tag, Some(self.peer)).map(drop)).is_some()
            }
        }
    }

    /// The last epoch that the other side took part in, if it was dropped.
    pub(crate) fn closed_there(&self, comm: &Communicator) -> Option<u64> {
        match &self.signals {
            // No epoch is as high as this.
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

    /// Throws away what messages of this link still wait in the inbox.
    pub(crate) fn forget(&self, comm: &Communicator) {
        let operation = match (&self.signals, &self.parcels) {
            (Signals::Messages { operation }, _) => *operation,
            // Parcels that were too large, and slots for them.
            (Signals::Counters(_), Some(parcels)) => parcels.operation(),
            (Signals::Counters(_), None) => return,
        };
        comm.link().inbox().forget(operation);
    }

    /// Rings the other side's progress thread: this side is about to sleep for it.
    pub(crate) fn demand(&self, comm: &Communicator) {
        if let Signals::Counters(counters) = &self.signals {
            counters.theirs().1.demand(comm.link().host());
        }
    }
}
