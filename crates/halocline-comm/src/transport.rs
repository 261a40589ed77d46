//! The interface of a transport to the layers above: messages, memory that peers can reach, and which
//! ranks have left. No layer above depends on the name of a transport.

use crate::bell::Doorbell;
use crate::borrowed::Borrowed;
use crate::bulk::Surround;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Tag};
use crate::mpi::MpiError;
use crate::segment::Segment;
use std::sync::Arc;

/// Whether a rank still takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// It may still send.
    Present,
    /// It has dropped its communicator and makes no further collective call. Exchanges that it dropped in
    /// flight go on.
    Left,
    /// It has left, and nothing of it is in flight any more.
    Ended,
    /// Its process has died without leaving.
    Dead,
}

/// How many cores there are for the ranks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// Ranks outnumber cores.
    Oversubscribed,
    /// One core for each rank.
    OnePerRank,
    /// More cores than ranks, and this rank may use two: a second thread runs beside it.
    Spare,
}

impl Cores {
    /// For a rank of this host, one of so many ranks, which together may run on so many cores.
    pub(crate) fn of(host: &dyn Host, ranks: usize, cores: usize) -> Self {
        match ranks.cmp(&cores) {
            std::cmp::Ordering::Greater => Self::Oversubscribed,
            std::cmp::Ordering::Less if host.cores() > 1 => Self::Spare,
            _ => Self::OnePerRank,
        }
    }
}

/// A message to be sent.
#[derive(Debug)]
pub struct Post {
    /// Its tag.
    pub tag: Tag,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// One rank's end of a transport.
///
/// # Safety
/// The layers above follow pointers into the memory that a transport hands out, and let peers write there.
/// - [`Transport::allocate`] returns zeroed memory that nothing else uses as long as the segment is held.
/// - A message arrives with the bytes and segments that were posted, from the rank that it names, once. Segments that arrive are the
///   sender's memory: both sides see each other's writes there, in the order of the C++ memory model.
/// - A peer can read and write every segment that [`Transport::reach`] accepts. [`Transport::bell`] is the same bell for all ranks.
/// - The bytes of a [`Borrowed`] are accessed only until it is dropped.
/// - A rank is [`PeerState::Ended`] or [`PeerState::Dead`] only once it accesses memory of others no more.
pub unsafe trait Transport: Send + Sync {
    /// The name that users give: `thread`, `shm`, `mpi`.
    fn name(&self) -> &'static str;

    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends a message and returns without waiting for the receiver. Messages of one sender to
    /// one receiver arrive in order. A receiver that is gone is no error here, but in the wait for its
    /// answer.
    ///
    /// [`Transport::reach`] accepts each of the `segments` for the receiver.
    fn post(&self, to: usize, tag: Tag, payload: Vec<u8>, segments: &[Arc<Segment>])
    -> Result<(), CommError>;

    /// As [`Transport::post`] for two messages. The first one arrives first.
    fn post_pair(&self, to: usize, pair: [Post; 2]) -> Result<(), CommError> {
        pair.into_iter().try_for_each(|post| self.post(to, post.tag, post.payload, &[]))
    }

    /// As [`Transport::post`], from a buffer that the transport need not copy.
    fn post_borrowed(&self, to: usize, tag: Tag, payload: Borrowed) -> Result<(), CommError> {
        self.post(to, tag, payload.copied(), &[])
    }

    /// Posts a receive buffer for a message of `tag` from a rank, as long as the buffer. If the transport can, it receives into the
    /// buffer, and the message has no payload ([`crate::Message::in_place`]). Nothing else uses the buffer until it is dropped: when
    /// the message has come, when the receive is cancelled, or at once.
    fn post_receive(&self, from: usize, tag: Tag, buffer: Borrowed) {
        let _ = (from, tag, buffer);
    }

    /// Cancels the receives of these tags from a rank, or from all, except one whose buffer is being written to.
    fn cancel_receives(&self, from: Option<usize>, which: &dyn Fn(Tag) -> bool) {
        let _ = (from, which);
    }

    /// Whether [`Transport::post_bulk`] accepts memory of devices for a rank, as far as is known without a trial, or why
    /// not.
    fn accepts_device_memory(&self, peer: usize) -> Result<(), String> {
        let _ = peer;
        Err(format!("messages of {} lie in memory of the host", self.name()))
    }

    /// As [`Transport::post`], with bytes that follow once the receiver has posted a buffer for them
    /// ([`crate::Message::bulk`]): in memory of the host, or of devices.
    ///
    /// # Errors
    /// [`CommError::OutOfReach`] if [`Transport::accepts_device_memory`] refuses, or there are more than 1 GiB.
    fn post_bulk(&self, to: usize, tag: Tag, payload: Vec<u8>, bulk: Borrowed) -> Result<(), CommError> {
        let _ = (tag, payload, bulk);
        let why = self.accepts_device_memory(to).err().unwrap_or_default();
        Err(CommError::OutOfReach { rank: to, why })
    }

    /// Runs the calls that transfer bulks within this from now on.
    fn surround(&self, surround: Arc<dyn Surround>) {
        let _ = surround;
    }

    /// The messages that have arrived.
    fn inbox(&self) -> &Inbox;

    /// Zeroed memory that as many peers as possible can reach.
    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError>;

    /// Whether `peer` can read and write this segment of ours, or why not.
    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String>;

    /// The number of this process, if it is a thread that behaves like one.
    fn emulated_process(&self) -> Option<u32> {
        None
    }

    /// The bell of a rank whose memory this rank shares, its own included; `None` for a rank that is
    /// reached by messages alone.
    fn bell(&self, rank: usize) -> Option<&Doorbell>;

    /// Tells the others that this rank's user has dropped its communicator. All its messages are in the inboxes
    /// of the others before they see it as [`PeerState::Left`]. Dropping the transport makes it [`PeerState::Ended`].
    fn leave(&self);

    /// This rank's own bell.
    fn own_bell(&self) -> &Doorbell;

    /// Whether a rank still takes part. Cheap: no system call unless something has changed.
    fn state(&self, rank: usize) -> PeerState;

    /// Changes whenever a rank leaves or dies. One load: cheap enough for every exchange.
    fn departures(&self) -> u64;

    /// Clock, park and wake.
    fn host(&self) -> &dyn Host;

    /// How many cores there are for the ranks.
    fn cores(&self) -> Cores;

    /// Whether ranks outnumber cores, so that spinning only delays others.
    fn is_oversubscribed(&self) -> bool {
        self.cores() == Cores::Oversubscribed
    }

    /// Whether messages arrive only while [`Transport::poll`] is called; waits call it then.
    fn is_polled(&self) -> bool {
        false
    }

    /// Moves arrived messages to the inbox. Never blocks.
    fn poll(&self) {}

    /// Whether messages are in flight that progress only while [`Transport::poll`] is called.
    fn is_carrying(&self) -> bool {
        false
    }

    /// Whether messages arrive even if no call of the program polls.
    fn is_driven(&self) -> bool {
        !self.is_polled()
    }

    /// Why ranks that share no memory with this one cannot be reached any more.
    fn broken(&self) -> Option<CommError> {
        None
    }

    /// Why the transport has failed, or has ended with MPI. The same in every thread.
    fn fault(&self) -> Option<CommError> {
        None
    }

    /// The fault of a rank that has ended with MPI: it expects nothing of its peers any more, nor they of it.
    fn ended(&self) -> Option<CommError> {
        self.fault().filter(|why| matches!(why, CommError::Mpi(MpiError::Finalized)))
    }

    /// The fault that makes a peer seem gone that has not departed: this rank has ended with MPI, or the transport has failed and does not
    /// reach the peer any more.
    fn absence_of(&self, peer: usize) -> Option<CommError> {
        let broken = || if self.bell(peer).is_none() { self.broken() } else { None };
        self.ended().or_else(broken)
    }

    /// Whether this thread can wait for messages, or why not: the transport has failed ([`Transport::fault`]), or requires another
    /// thread. For calls of the program: threads in the background, which may not call MPI, ask for the fault alone.
    fn check(&self) -> Result<(), CommError> {
        self.fault().map_or(Ok(()), Err)
    }
}
