//! One directed relation to one peer in a bound exchange, and the steps of its protocol.
//!
//! Each side waits for one flag, which lies in its own memory and is set by the other side:
//!
//! | path | sender waits for | receiver waits for |
//! | --- | --- | --- |
//! | push | `granted`: the halo may be overwritten | `arrived`: the bytes are there |
//! | pull | `arrived`: the owned cells were read | `granted`: they may be read |
//! | mailbox | `granted` of epoch e - 2 where no bytes come back: the slot is free | `arrived`: the slot is full |
//! | message | `granted` as a message, of epoch e - 2 where no bytes come back | the message |
//!
//! A flag also carries its subject, the index of the field set and the operation: no side touches memory of a set that the other has
//! not granted. In a reduce the bytes travel from the receiver to the sender ([`reduce`]).

mod copies;
mod path;
mod reduce;
mod signals;
mod subject;
mod take_once;
mod unbound;

pub(crate) use copies::as_sources;
pub use path::LinkPath;
pub(crate) use signals::{Counters, MOST_SETS, Signals};
pub(crate) use subject::Subject;
pub(crate) use unbound::{HEADERS, LinkMemory, Record, UnboundSlots, describe, prefix};

use crate::check::{LinkCheck, Verdict};
use crate::error::{Cause, FailedLink, Failure};
use crate::explain::LinkInfo;
use crate::lifecycle::Lifecycle;
use crate::set::{InFlight, Part};
use crate::trace;
use copies::{pack, unpack};
use halocline_comm::mappings::Kind;
use halocline_comm::{Claim, CommError, Communicator, Endpoint, PeerState, Segment, Tag, buffers};
use halocline_device::host;
use halocline_plan::copy::CopyOp;
use signals::Looked;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use take_once::TakeOnce;

/// Whether a link sends or receives.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Direction, Error, Halo, HaloExchange, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     // A halo at the low end alone: data go from rank 0 to rank 1.
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, Halo::per_axis([(1, 0)]))?;
///     let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///     let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
///     let directions: Vec<Direction> = halo.links().map(|link| link.direction).collect();
///     assert_eq!(directions, [[Direction::Send], [Direction::Receive]][comm.rank()]);
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// This rank's owned cells go to the peer.
    Send,
    /// The peer's owned cells come into this rank's halo.
    Receive,
}

/// Slots of a mailbox: the sender may be this many epochs ahead of the receiver's unpacking.
pub(crate) const SLOTS: u64 = 2;

/// The buffer of a mailbox: [`SLOTS`] slots of `capacity` bytes, each rounded up to [`host::MESSAGE_ALIGN`].
#[derive(Clone, Copy)]
pub(crate) struct Mailbox {
    pub(crate) base: NonNull<u8>,
    pub(crate) capacity: usize,
}

impl Mailbox {
    fn slot(self, epoch: u64) -> *mut u8 {
        let offset = (epoch % SLOTS) as usize * self.capacity.next_multiple_of(host::MESSAGE_ALIGN);
        self.base.as_ptr().wrapping_add(offset)
    }
}

/// One side of a link. It lasts; what an exchange copies over it is a [`Part`] of the exchange's set.
pub(crate) struct Link {
    pub(crate) peer: usize,
    pub(crate) direction: Direction,
    pub(crate) path: LinkPath,
    /// The object's number: the operation of its bind.
    pub(crate) object: u64,
    /// The index of this link's part in each set.
    pub(crate) part: usize,
    /// Why the link has no better path.
    pub(crate) why: Option<String>,
    /// How one side has mapped the other's device memory.
    pub(crate) mapped: BTreeSet<Kind>,
    /// Messages between devices use the LL protocol up to this many bytes, if both sides want that.
    pub(crate) ll: Option<usize>,
    /// Chunk size of staged messages, in bytes.
    pub(crate) chunk: usize,
    pub(crate) mailbox: Option<Mailbox>,
    /// In a reduce the sender combines the receiver's halo where it lies.
    pub(crate) is_read_in_place: bool,
    signals: Signals,
    /// The bytes go through a buffer, and the two ranks also have a link in the other direction. The receiver's own bytes of
    /// epoch e show that it has emptied the buffer of epoch e - 1, so that no acknowledgement is needed.
    is_mutual: bool,
    /// The peer's memory that holds its flags and mailboxes.
    pub(crate) theirs: Option<Arc<Segment>>,
    pub(crate) claim: Claim,
    /// The last epoch whose part is done on this side.
    done: AtomicU64,
    /// The peer was notified that this side has failed.
    has_notified: AtomicBool,
    /// The subjects that the peer's flag carries, for even and odd epochs.
    signalled: [AtomicU64; 2],
    /// What this side keeps of a reduce.
    reverse: reduce::ReverseState,
    /// The peer's final notice, if it sends messages.
    notice: TakeOnce<(Cause, usize)>,
    /// The peer's message that nothing runs there any more.
    quiet: TakeOnce<()>,
    /// The peer's last epoch, from its message that it is closed.
    closed: OnceLock<u64>,
    /// How the peer departed, if it has.
    gone: OnceLock<Cause>,
    /// In the unbound form, instead of a mailbox.
    pub(crate) unbound_slots: Option<Box<UnboundSlots>>,
    /// In checked mode.
    pub(crate) check: Option<LinkCheck>,
    /// The report of a peer that exchanges another set, or elements of another type.
    clashes: OnceLock<String>,
}

// SAFETY: the pointers of the mailbox, the flags and the headers lead into segments that `theirs` and the bound
// object (`Bound::own`, `Scheduled::segments`) hold. They are not bound to a thread: flags are atomic, and only the
// holder of the claim uses the mailbox.
unsafe impl Send for Link {}
// SAFETY: the pointers of the mailbox, the flags and the headers lead into segments that `theirs` and the bound
// object (`Bound::own`, `Scheduled::segments`) hold. They are not bound to a thread: flags are atomic, and only the
// holder of the claim uses the mailbox.
unsafe impl Sync for Link {}

/// What a poll of a link has found.
pub(crate) enum Polled {
    /// This side's part of the epoch is done.
    Done,
    /// It waits for the peer.
    Waits,
    /// The peer will never come: the cause and the culprit.
    Lost(Cause, usize),
}

impl Link {
    pub(crate) fn new(LinkInfo { peer, direction, path }: LinkInfo, object: u64, signals: Signals) -> Self {
        Self {
            peer,
            direction,
            path,
            object,
            part: 0,
            why: None,
            mapped: BTreeSet::new(),
            ll: None,
            chunk: 0,
            mailbox: None,
            is_read_in_place: false,
            signals,
            is_mutual: false,
            theirs: None,
            claim: Claim::default(),
            done: AtomicU64::new(0),
            has_notified: AtomicBool::new(false),
            signalled: Default::default(),
            reverse: reduce::ReverseState::default(),
            notice: TakeOnce::default(),
            quiet: TakeOnce::default(),
            closed: OnceLock::new(),
            gone: OnceLock::new(),
            unbound_slots: None,
            check: None,
            clashes: OnceLock::new(),
        }
    }

    /// The two ranks also have a link in the other direction.
    pub(crate) fn make_mutual(&mut self) {
        self.is_mutual = matches!(self.path, LinkPath::Mailbox { .. } | LinkPath::Message);
    }

    /// The same link for the unbound form.
    pub(crate) fn with_unbound_slots(self, unbound_slots: UnboundSlots) -> Self {
        Self { unbound_slots: Some(Box::new(unbound_slots)), ..self }
    }

    /// Whether this side's part of `epoch` is done.
    #[inline]
    pub(crate) fn is_done(&self, epoch: u64) -> bool {
        self.done.load(Ordering::Acquire) >= epoch
    }

    /// The peer has departed: from now on a poll that misses something fails.
    pub(crate) fn gone(&self, cause: Cause) {
        // An error: it was known already.
        let _ = self.gone.set(cause);
    }

    /// How the peer departed, if it has.
    pub(crate) fn is_gone(&self) -> Option<Cause> {
        self.gone.get().copied()
    }

    /// Grants the epoch to the peer if the peer copies, and makes slots that hold the payload.
    #[inline]
    pub(crate) fn start(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) {
        if let (Some(unbound_slots), Direction::Receive) = (&self.unbound_slots, self.direction) {
            let part = in_flight.part(self.part);
            let before = part.unbound.as_ref().map_or(0, |unbound| unbound.prefix());
            unbound_slots.grow(comm, self.peer, before + part.bytes);
        }
        if let (
            (Direction::Send, LinkPath::Pull) | (Direction::Receive, LinkPath::Push),
            Signals::Counters(_),
        ) = ((self.direction, self.path), &self.signals)
        {
            self.set_flag(comm, epoch, in_flight.subject());
        }
    }

    /// Polls the link once, under its claim: does what can be done without waiting. Exchange `epoch` is in flight.
    #[inline]
    pub(crate) fn serve(
        &self,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Result<Polled, CommError> {
        if in_flight.reduction().is_some() {
            return self.serve_reverse(comm, epoch, in_flight);
        }
        let check = self.check.as_ref().filter(|_| self.direction == Direction::Receive);
        let moved = match check.is_some_and(|check| check.has_moved(epoch)) {
            true => Polled::Done,
            false => self.carry(comm, epoch, in_flight)?,
        };
        Ok(match (check, moved) {
            (Some(check), Polled::Done) => self.check_received(check, comm, epoch, in_flight),
            (None, Polled::Done) => self.finish(epoch),
            (_, unfinished) => unfinished,
        })
    }

    /// In checked mode: whether the bytes that arrived are those that were sent.
    #[cold]
    fn check_received(
        &self,
        check: &LinkCheck,
        comm: &Communicator,
        epoch: u64,
        in_flight: &InFlight,
    ) -> Polled {
        check.moved(epoch);
        match check.compare(comm, self.peer, epoch, in_flight) {
            Verdict::Waits => Polled::Waits,
            Verdict::Right => self.finish(epoch),
            Verdict::Wrong(cause) => self.lost_by(comm, cause),
        }
    }

    fn finish(&self, epoch: u64) -> Polled {
        self.done.store(epoch, Ordering::Release);
        Polled::Done
    }

    fn lost_by(&self, comm: &Communicator, cause: Cause) -> Polled {
        Polled::Lost(cause, if cause == Cause::Malformed { self.peer } else { comm.rank() })
    }

    /// Looks for the peer's flag, copies, and sets the flag of the peer.
    #[inline]
    fn carry(&self, comm: &Communicator, epoch: u64, in_flight: &InFlight) -> Result<Polled, CommError> {
        let awaited = match (self.direction, self.path) {
            (Direction::Send, LinkPath::Mailbox { .. } | LinkPath::Message) => self.freed_by(epoch),
            _ => epoch,
        };
        let message = match self.look(comm, awaited) {
            Looked::Reached(message) => message,
            Looked::Below => return Ok(Polled::Waits),
            Looked::Lost(cause, culprit) => return Ok(Polled::Lost(cause, culprit)),
        };
        let subject = in_flight.subject();
        if awaited == epoch
            && let Some(theirs) = self.peer_subject(epoch)
            && theirs != subject
        {
            return Ok(Polled::Lost(self.clash(comm, subject, theirs), comm.rank()));
        }
        let part = in_flight.part(self.part);
        if let Some(unbound_slots) = &self.unbound_slots {
            return self.serve_unbound(comm, epoch, message, (in_flight, part), unbound_slots);
        }
        match (self.direction, self.path) {
            (Direction::Send, LinkPath::Push) | (Direction::Receive, LinkPath::Pull) => {
                trace::copy(comm, self, epoch, part.bytes).in_scope(|| {
                    // SAFETY: the other side has granted this epoch and this set, as `look` and `peer_subject` have shown, and
                    // leaves the cells alone until the signal below. The claim keeps other threads away.
                    unsafe { self.copy(in_flight, part) }
                });
                self.signal(comm, epoch, subject)?;
            }
            (Direction::Send, LinkPath::Mailbox { streaming }) => {
                trace::pack(comm, self, epoch, part.bytes)
                    .in_scope(|| pack(in_flight, part, self.slot(epoch), streaming));
                self.signal(comm, epoch, subject)?;
            }
            (Direction::Receive, LinkPath::Mailbox { .. }) => {
                trace::unpack(comm, self, epoch, part.bytes)
                    .in_scope(|| unpack(in_flight, part, self.slot(epoch)));
                self.acknowledge(comm, epoch, subject)?;
            }
            (Direction::Send, LinkPath::Message) => self.send(comm, epoch, (in_flight, part))?,
            (Direction::Receive, LinkPath::Message) => {
                return self.receive(comm, epoch, message, (in_flight, part));
            }
            // The peer copies, or devices do.
            (Direction::Send, LinkPath::Pull)
            | (Direction::Receive, LinkPath::Push)
            | (_, LinkPath::Ll | LinkPath::DeviceMailbox | LinkPath::Nccl) => {}
        }
        Ok(Polled::Done)
    }

    /// Copies between the fields of both sides.
    ///
    /// # Safety
    /// The other side has granted the exchange in flight and leaves its cells alone. No other thread carries this link.
    #[inline]
    unsafe fn copy(&self, in_flight: &InFlight, part: &Part) {
        let (sources, targets) = match self.direction {
            Direction::Send => (in_flight.bases(), &part.remote[..]),
            Direction::Receive => (&part.remote[..], in_flight.bases()),
        };
        // SAFETY: bind has checked every operation against the memory at both ends, which the set of the exchange in flight
        // holds. The caller promises that the other side leaves its cells alone, and that no other thread copies. On this side
        // no guard is held (`State::begin_flight`), and the caller of `Field::from_raw` leaves the cells alone until the wait.
        unsafe { host::copy(&part.ops, as_sources(sources), targets) }
    }

    /// Unpacks a message, and frees it. Not inlined: then the compiler inlines the poll of a link, which takes 3 % off an exchange of
    /// 8 bytes in shared memory.
    #[inline(never)]
    fn receive(
        &self,
        comm: &Communicator,
        epoch: u64,
        message: Option<Vec<u8>>,
        (in_flight, part): (&InFlight, &Part),
    ) -> Result<Polled, CommError> {
        let subject = in_flight.subject();
        match message.as_deref().and_then(|message| message.split_last_chunk()) {
            Some((_, theirs)) if Subject::from_bytes(*theirs) != subject => {
                let cause = self.clash(comm, subject, Subject::from_bytes(*theirs));
                return Ok(Polled::Lost(cause, comm.rank()));
            }
            Some((payload, _)) if payload.len() == part.bytes => {
                trace::unpack(comm, self, epoch, part.bytes)
                    .in_scope(|| unpack(in_flight, part, payload.as_ptr()));
                self.acknowledge(comm, epoch, subject)?;
            }
            _ => return Ok(Polled::Lost(Cause::Malformed, self.peer)),
        }
        message.into_iter().for_each(buffers::put);
        Ok(Polled::Done)
    }

    /// The epoch of the receiver that frees the sender's buffer for `epoch`; 0 if it is free.
    fn freed_by(&self, epoch: u64) -> u64 {
        let before = epoch.saturating_sub(SLOTS);
        // An exchange begins once the one before is over: the peer's bytes of that have arrived.
        if self.is_mutual || self.reverse.has_taken(before) { 0 } else { before }
    }

    /// Tells the sender that the buffer of this epoch is empty again, unless this rank's own bytes will show that.
    #[inline]
    fn acknowledge(&self, comm: &Communicator, epoch: u64, subject: Subject) -> Result<(), CommError> {
        if self.is_mutual { Ok(()) } else { self.signal(comm, epoch, subject) }
    }

    /// Reports, found on this rank, that the peer exchanges another set or begins another operation.
    #[cold]
    pub(crate) fn clash(&self, comm: &Communicator, ours: Subject, theirs: Subject) -> Cause {
        let (fault, report) = ours.clash((comm.rank(), self.peer), theirs);
        self.clashes.get_or_init(|| report);
        Cause::Check(fault)
    }

    /// Reports, found on this rank, that the peer's elements are of another type.
    #[cold]
    fn mismatch(&self, comm: &Communicator, (ours, theirs): (&str, &str)) {
        let (rank, peer) = (comm.rank(), self.peer);
        self.clashes.get_or_init(|| format!("rank {peer} sends {theirs}, rank {rank} awaits {ours}"));
    }

    /// Fails the object, here and at all its peers, because of this link.
    pub(crate) fn fail(&self, life: &Lifecycle, cause: Cause, culprit: usize) {
        let root_cause = life.root_cause(cause, culprit);
        life.fail(|epoch| self.failure(&life.comm, epoch, root_cause));
    }

    fn failure(&self, comm: &Communicator, epoch: u64, (cause, culprit): (Cause, usize)) -> Failure {
        let (rank, peer) = (comm.rank(), self.peer);
        let (link, has_gone) = (comm.link(), matches!(cause, Cause::Died | Cause::Dropped));
        let broken = match cause {
            _ if has_gone => link.absence_of(peer),
            // With MPI the rank itself has ended, for all its peers, which give up.
            Cause::Transport => link.ended(),
            _ => None,
        };
        let (cause, culprit, report) = match broken {
            Some(why) => (Cause::Transport, rank, Some(why.to_string())),
            None => (cause, culprit, self.report().cloned()),
        };
        Failure { rank, epoch, link: Some(self.named()), cause, culprit, report }
    }

    /// The names of this link in a failure.
    pub(crate) fn named(&self) -> FailedLink {
        FailedLink { peer: self.peer, direction: self.direction, path: self.path }
    }

    /// The report of a failure that this side found.
    fn report(&self) -> Option<&String> {
        self.clashes.get().or_else(|| self.check.as_ref().and_then(LinkCheck::report))
    }

    fn slot(&self, epoch: u64) -> *mut u8 {
        // A link on any other path has no operation that would follow the pointer.
        self.mailbox.map_or(std::ptr::null_mut(), |mailbox| mailbox.slot(epoch))
    }

    fn send(
        &self,
        comm: &Communicator,
        epoch: u64,
        (in_flight, part): (&InFlight, &Part),
    ) -> Result<(), CommError> {
        let Signals::Messages { operation } = self.signals else { return Ok(()) };
        let subject = in_flight.subject().to_bytes();
        let mut message = buffers::take(part.bytes + subject.len() + Communicator::SPARE);
        trace::pack(comm, self, epoch, part.bytes)
            .in_scope(|| pack(in_flight, part, message.as_mut_ptr(), false));
        debug_assert_eq!(part.ops.iter().map(CopyOp::bytes).sum::<usize>(), part.bytes);
        // SAFETY: there is space for so many bytes, and packing has written each of them: the operations of a message
        // fill it without gaps (`PeerView::part`).
        unsafe { message.set_len(part.bytes) };
        message.extend_from_slice(&subject);
        let tag = Tag { operation, round: epoch };
        trace::send(comm, self, epoch, part.bytes).in_scope(|| comm.send(self.peer, tag, message))
    }

    /// Whether neither side of the link touches this rank's fields any more, after a failure in `epoch`.
    pub(crate) fn is_quiet(&self, comm: &Communicator, epoch: u64) -> bool {
        // The peer is notified under the claim, after the last poll that copied.
        if !self.has_notified.load(Ordering::Acquire) {
            return false;
        }
        let gone = matches!(comm.link().state(self.peer), PeerState::Ended | PeerState::Dead);
        if self.is_done(epoch) || gone {
            return true;
        }
        if self.reverse.is_begun(epoch) {
            let is_read = self.direction == Direction::Receive && self.is_read_in_place;
            return !is_read || !matches!(self.look_for_combined(comm, epoch), Looked::Below);
        }
        let written_or_read = matches!(
            (self.direction, self.path),
            (Direction::Receive, LinkPath::Push) | (Direction::Send, LinkPath::Pull)
        );
        !written_or_read || !matches!(self.look(comm, epoch), Looked::Below)
    }
}
