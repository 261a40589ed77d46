//! One directed relation to one peer in a bound exchange, and the steps of its protocol.
//!
//! Each side waits for one counter, which lies in its own memory and is raised by the other side:
//!
//! | way | sender waits for | receiver waits for |
//! | --- | --- | --- |
//! | push | `ready`: the halo may be overwritten | `arrived`: the bytes are there |
//! | pull | `arrived`: the owned cells were read | `ready`: they may be read |
//! | mailbox | `ready` of two epochs before: the slot is free | `arrived`: the slot is full |
//! | message | the same, as messages | the message |

use crate::error::{Cause, Failure};
use halocline_comm::{Claim, Communicator, Counter, Doorbell, PeerState, Seen, Segment, Tag};
use halocline_device::host;
use halocline_plan::copy::CopyOp;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether a link sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// This rank's owned cells go to the peer.
    Send,
    /// The peer's owned cells come into this rank's halo.
    Receive,
}

/// The way that the bytes of a link take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Direct: the sender writes into the receiver's halo.
    Push,
    /// Direct: the receiver reads the sender's owned cells.
    Pull,
    /// Packed into a buffer of the receiver, unpacked there.
    Mailbox {
        /// Packed by non-temporal stores, past the sender's caches.
        streaming: bool,
    },
    /// Packed, sent by the transport, unpacked.
    Message,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Push => "direct, push",
            Self::Pull => "direct, pull",
            Self::Mailbox { streaming: false } => "mailbox",
            Self::Mailbox { streaming: true } => "mailbox, streaming",
            Self::Message => "message",
        })
    }
}

/// Slots of a mailbox: the sender may be two epochs ahead of the receiver's unpacking.
pub(crate) const SLOTS: u64 = 2;

/// Rounds of a message link that are no data: above all epochs.
const ACKNOWLEDGED: u64 = 1 << 63;
const NOTICE: u64 = u64::MAX;
/// What a notice says: failed with this cause, or closed after this epoch.
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

/// How a link's two sides signal each other.
pub(crate) enum Signals {
    /// By counters in memory that both reach.
    Counters {
        /// What this side waits for.
        mine: NonNull<Counter>,
        /// What the other side waits for.
        theirs: NonNull<Counter>,
        /// How the other side is woken.
        bell: NonNull<Doorbell>,
    },
    /// By messages of this operation. Those of the two directions differ in their rounds or senders.
    Messages {
        /// The operation.
        operation: u64,
    },
}

/// The copying of this side, if it has any.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) ops: Vec<CopyOp>,
    /// Address of element (0, 0, …) of each source field; empty where the source is a message.
    pub(crate) sources: Vec<*const u8>,
    /// Address of element (0, 0, …) of each target field; empty where the target is a message.
    pub(crate) targets: Vec<*mut u8>,
}

/// One side of a link.
pub(crate) struct Link {
    pub(crate) peer: usize,
    pub(crate) direction: Direction,
    pub(crate) way: Way,
    /// Bytes of one epoch.
    pub(crate) bytes: usize,
    /// Why the link has no better way.
    pub(crate) why: Option<String>,
    pub(crate) work: Work,
    /// The mailbox, of [`SLOTS`] slots of `bytes`, each rounded up to [`host::MESSAGE_ALIGN`].
    pub(crate) mailbox: Option<NonNull<u8>>,
    pub(crate) signals: Signals,
    /// Holds the peer's memory.
    #[expect(dead_code, reason = "held for its pointers")]
    keep: Vec<Arc<Segment>>,
    pub(crate) claim: Claim,
    /// The last epoch that this side has finished with.
    done: AtomicU64,
    /// The other side was told that this one has failed.
    told: AtomicBool,
    /// What the other side said last, where it says so by message.
    notice: OnceLock<(Cause, usize)>,
    /// How the other side went, once it is gone.
    gone: OnceLock<Cause>,
}

// SAFETY: the raw pointers are to segments that the link (`keep`) and its bound object hold, and the
// protocol (claim, counters) decides who accesses their bytes at what time.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

/// What a turn at a link led to.
pub(crate) enum Turn {
    /// This side has nothing more to do for the epoch.
    Done,
    /// It waits for the other side.
    Waits,
    /// The other side will never come.
    Lost(Cause, usize),
}

impl Link {
    pub(crate) fn new(
        (peer, direction, way): (usize, Direction, Way),
        bytes: usize,
        why: Option<String>,
        work: Work,
        mailbox: Option<NonNull<u8>>,
        signals: Signals,
        keep: Vec<Arc<Segment>>,
    ) -> Self {
        Self {
            peer,
            direction,
            way,
            bytes,
            why,
            work,
            mailbox,
            signals,
            keep,
            claim: Claim::default(),
            done: AtomicU64::new(0),
            told: AtomicBool::new(false),
            notice: OnceLock::new(),
            gone: OnceLock::new(),
        }
    }

    /// Whether this side has finished with `epoch`.
    #[inline]
    pub(crate) fn is_done(&self, epoch: u64) -> bool {
        self.done.load(Ordering::Acquire) >= epoch
    }

    /// The other side is gone for good: a turn that finds something missing fails from now on.
    pub(crate) fn gone(&self, cause: Cause) {
        // Known already: it does not go twice.
        let _ = self.gone.set(cause);
    }

    /// How the other side went, if it is gone.
    pub(crate) fn is_gone(&self) -> Option<Cause> {
        self.gone.get().copied()
    }

    /// Gives the other side leave to copy, where it is the one that copies.
    #[inline]
    pub(crate) fn start(&self, comm: &Communicator, epoch: u64) {
        if let ((Direction::Send, Way::Pull) | (Direction::Receive, Way::Push), Signals::Counters { .. }) =
            ((self.direction, self.way), &self.signals)
        {
            self.raise_counter(comm, epoch);
        }
    }

    /// One turn at the link, under its claim: does what can be done without waiting.
    pub(crate) fn serve(&self, comm: &Communicator, epoch: u64) -> Result<Turn, halocline_comm::CommError> {
        let awaited = match (self.direction, self.way) {
            (Direction::Send, Way::Mailbox { .. } | Way::Message) => epoch.saturating_sub(SLOTS),
            _ => epoch,
        };
        let message = match self.look(comm, awaited) {
            Looked::Reached(message) => message,
            Looked::Below => return Ok(Turn::Waits),
            Looked::Lost(cause, culprit) => return Ok(Turn::Lost(cause, culprit)),
        };
        match (self.direction, self.way) {
            (Direction::Send, Way::Push) | (Direction::Receive, Way::Pull) => {
                // SAFETY: bind has checked every operation against the memory at both ends, which the
                // bound object and `keep` hold. The other side gave leave for this epoch and touches the
                // cells concerned no more until the raise below; our own side's user leaves them alone
                // from the exchange's begin to the end of its wait.
                unsafe { host::copy(&self.work.ops, &self.work.sources, &self.work.targets) };
                self.raise(comm, epoch)?;
            }
            (Direction::Send, Way::Mailbox { streaming }) => {
                self.pack(self.slot(epoch), streaming);
                self.raise(comm, epoch)?;
            }
            (Direction::Receive, Way::Mailbox { .. }) => {
                self.unpack(self.slot(epoch));
                self.raise(comm, epoch)?;
            }
            (Direction::Send, Way::Message) => self.send(comm, epoch)?,
            (Direction::Receive, Way::Message) => match message {
                Some(payload) if payload.len() == self.bytes => {
                    self.unpack(payload.as_ptr());
                    self.raise(comm, epoch)?;
                }
                _ => return Ok(Turn::Lost(Cause::Malformed, self.peer)),
            },
            (Direction::Send, Way::Pull) | (Direction::Receive, Way::Push) => {}
        }
        self.done.store(epoch, Ordering::Release);
        Ok(Turn::Done)
    }

    fn slot(&self, epoch: u64) -> *mut u8 {
        let offset = (epoch % SLOTS) as usize * self.bytes.next_multiple_of(host::MESSAGE_ALIGN);
        // A link without bytes has no mailbox, and no operation that would follow the pointer.
        self.mailbox.map_or(std::ptr::null_mut(), |mailbox| mailbox.as_ptr().wrapping_add(offset))
    }

    fn pack(&self, message: *mut u8, streaming: bool) {
        // SAFETY: bind has checked the operations; the message has room for `bytes`, rounded up, and is
        // aligned where we stream; the receiver has freed the slot (the turn saw its counter).
        unsafe {
            if streaming {
                host::pack_streaming(&self.work.ops, &self.work.sources, message);
            } else {
                host::copy(&self.work.ops, &self.work.sources, &[message]);
            }
        }
    }

    fn unpack(&self, message: *const u8) {
        // SAFETY: bind has checked the operations; the message holds `bytes`, written before the raise
        // that the turn saw; the halo is the exchange's until the wait has returned.
        unsafe { host::copy(&self.work.ops, &[message], &self.work.targets) };
    }

    fn send(&self, comm: &Communicator, epoch: u64) -> Result<(), halocline_comm::CommError> {
        let Signals::Messages { operation } = self.signals else { return Ok(()) };
        let mut message = vec![0; self.bytes];
        self.pack(message.as_mut_ptr(), false);
        comm.send(self.peer, Tag { operation, round: epoch }, message)
    }

    /// Tells the other side that this side has done its part of `epoch`.
    #[inline]
    fn raise(&self, comm: &Communicator, epoch: u64) -> Result<(), halocline_comm::CommError> {
        match self.signals {
            Signals::Counters { .. } => self.raise_counter(comm, epoch),
            Signals::Messages { operation } => {
                let tag = Tag { operation, round: ACKNOWLEDGED | epoch };
                comm.send(self.peer, tag, Vec::new())?;
            }
        }
        Ok(())
    }

    #[inline]
    fn raise_counter(&self, comm: &Communicator, epoch: u64) {
        if let Signals::Counters { theirs, bell, .. } = self.signals {
            // SAFETY: counters and bells live in segments that `keep` and the communicator hold.
            let (theirs, bell) = unsafe { (theirs.as_ref(), bell.as_ref()) };
            theirs.raise(epoch);
            bell.changed(comm.link().host());
        }
    }

    fn look(&self, comm: &Communicator, epoch: u64) -> Looked {
        match self.signals {
            Signals::Counters { mine, .. } => {
                // SAFETY: as in `raise_counter`.
                match unsafe { mine.as_ref() }.look(epoch) {
                    Seen::Reached => Looked::Reached(None),
                    Seen::Below => Looked::Below,
                    Seen::Poisoned(word) => lost(Cause::decode(word)),
                    Seen::Closed(_) => Looked::Lost(Cause::Dropped, self.peer),
                }
            }
            Signals::Messages { operation } => self.look_at_messages(comm, operation, epoch),
        }
    }

    fn look_at_messages(&self, comm: &Communicator, operation: u64, epoch: u64) -> Looked {
        if epoch == 0 {
            return Looked::Reached(None);
        }
        let round = if self.direction == Direction::Send { ACKNOWLEDGED | epoch } else { epoch };
        // A notice is the sender's last word: looked for first, it cannot hide what was sent before it.
        let notice = self.notice(comm, operation);
        match comm.link().inbox().take(Tag { operation, round }, Some(self.peer)) {
            Some(message) => Looked::Reached(Some(message.payload)),
            None => notice.map_or(Looked::Below, lost),
        }
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
                Some((&[CLOSED], _)) => (Cause::Dropped, self.peer),
                _ => (Cause::Malformed, self.peer),
            })
        };
        self.notice.get().copied().or_else(|| taken().map(|notice| *self.notice.get_or_init(|| notice)))
    }

    /// Whether the other side has failed, although nothing is awaited from it.
    pub(crate) fn failed_there(&self, comm: &Communicator) -> Option<(Cause, usize)> {
        match self.signals {
            // SAFETY: as in `raise_counter`. No epoch is as high as this.
            Signals::Counters { mine, .. } => match unsafe { mine.as_ref() }.look(u64::MAX) {
                Seen::Poisoned(word) => Some(Cause::decode(word)),
                _ => None,
            },
            Signals::Messages { operation } => {
                self.notice(comm, operation).filter(|(cause, _)| *cause != Cause::Dropped)
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
        match self.signals {
            Signals::Counters { theirs, bell, .. } => {
                // SAFETY: as in `raise_counter`.
                let (theirs, bell) = unsafe { (theirs.as_ref(), bell.as_ref()) };
                theirs.poison(word);
                bell.changed(comm.link().host());
                bell.demand(comm.link().host());
            }
            Signals::Messages { operation } => {
                let notice = [&[FAILED][..], &word.to_le_bytes()].concat();
                self.notify(comm, operation, notice);
            }
        }
    }

    /// Tells the other side that this object is gone and took part up to `last`.
    pub(crate) fn close(&self, comm: &Communicator, last: u64) {
        match self.signals {
            Signals::Counters { theirs, bell, .. } => {
                // SAFETY: as in `raise_counter`.
                let (theirs, bell) = unsafe { (theirs.as_ref(), bell.as_ref()) };
                theirs.close(last);
                bell.changed(comm.link().host());
            }
            Signals::Messages { operation } => self.notify(comm, operation, vec![CLOSED]),
        }
    }

    fn notify(&self, comm: &Communicator, operation: u64, notice: Vec<u8>) {
        if let Err(error) = comm.send(self.peer, Tag { operation, round: NOTICE }, notice) {
            tracing::warn!("rank {}: rank {} was not told: {error}", comm.rank(), self.peer);
        }
    }

    /// Throws away what messages of this link still wait in the inbox.
    pub(crate) fn forget(&self, comm: &Communicator) {
        if let Signals::Messages { operation } = self.signals {
            comm.link().inbox().forget(operation);
        }
    }

    /// Rings the other side's progress thread: this side is about to sleep for it.
    pub(crate) fn demand(&self, comm: &Communicator) {
        if let Signals::Counters { bell, .. } = self.signals {
            // SAFETY: as in `raise_counter`.
            unsafe { bell.as_ref() }.demand(comm.link().host());
        }
    }

    /// Whether neither side of the link touches this rank's fields any more, after a failure in `epoch`.
    pub(crate) fn is_quiet(&self, comm: &Communicator, epoch: u64) -> bool {
        // Told under the claim, after the last turn that copied.
        if !self.told.load(Ordering::Acquire) {
            return false;
        }
        let written_or_read = matches!(
            (self.direction, self.way),
            (Direction::Receive, Way::Push) | (Direction::Send, Way::Pull)
        );
        let gone = matches!(comm.link().state(self.peer), PeerState::Ended | PeerState::Dead);
        !written_or_read || self.is_done(epoch) || gone || !matches!(self.look(comm, epoch), Looked::Below)
    }
}

/// What a side found when it looked for an epoch.
enum Looked {
    /// It is there; with the payload, if it came as a message.
    Reached(Option<Vec<u8>>),
    Below,
    Lost(Cause, usize),
}

fn lost((cause, culprit): (Cause, usize)) -> Looked {
    Looked::Lost(cause, culprit)
}
