//! What a transport gives to the floors above: messages, memory that peers can reach, and news of
//! ranks that are gone. Nothing above asks a transport for its name.

use crate::bell::Doorbell;
use crate::bulk::Surround;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Tag};
use crate::lent::Lent;
use crate::segment::Segment;
use std::sync::Arc;

/// Whether a rank still takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// It may still send.
    Present,
    /// It gave up its communicator: it takes part in no further collective call. What it dropped in
    /// flight goes on.
    Left,
    /// It has left, and nothing of it goes on any more.
    Ended,
    /// Its process has died without leaving.
    Dead,
}

/// How ranks share the cores that they may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Ranks outnumber cores.
    Crowded,
    /// A core for each rank.
    Tight,
    /// Cores are left over, of which this rank may use one: what it hands to another thread runs beside it.
    Spare,
}

impl Room {
    /// As seen by one of so many ranks, who together may run on so many cores.
    pub(crate) fn of(ranks: usize, cores: usize) -> Self {
        let own = || std::thread::available_parallelism().map_or(1, usize::from);
        match ranks.cmp(&cores) {
            std::cmp::Ordering::Greater => Self::Crowded,
            std::cmp::Ordering::Less if own() > 1 => Self::Spare,
            _ => Self::Tight,
        }
    }
}

/// One rank's end of a transport.
///
/// # Safety
/// The layers above follow pointers into the memory that a transport hands out, and let peers write there.
/// - [`Transport::allocate`] returns zeroed memory that nothing else uses as long as the segment is held.
/// - A message arrives with the bytes and segments that were posted, from the rank that it names, once. Segments that arrive are the
///   sender's memory: both sides see each other's writes there, in the order of the C++ memory model.
/// - What [`Transport::reach`] says yes to, the peer can read and write. [`Transport::bell`] is the same bell for all ranks.
/// - The bytes of a [`Lent`] are accessed only until it is dropped.
/// - A rank is [`PeerState::Ended`] or [`PeerState::Dead`] only once nothing of it accesses memory of others any more.
pub unsafe trait Transport: Send + Sync {
    /// How users call it: `thread`, `shm`, `mpi`.
    fn name(&self) -> &'static str;

    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Hands over a message and returns without waiting for the receiver. Messages of one sender to
    /// one receiver arrive in order. A receiver that is gone is no error here: waiting for its
    /// answer is.
    ///
    /// `segments` must be such that [`Transport::reach`] said yes for the receiver.
    fn post(&self, to: usize, tag: Tag, payload: Vec<u8>, segments: &[Arc<Segment>])
    -> Result<(), CommError>;

    /// As [`Transport::post`], of bytes that may stay where they are until they are sent.
    fn post_lent(&self, to: usize, tag: Tag, payload: Lent) -> Result<(), CommError> {
        self.post(to, tag, payload.copied(), &[])
    }

    /// A message of `tag` from a rank, as long as `place`, is to lie there, where the transport can; it then comes without
    /// bytes ([`crate::Message::landed`]). Nobody else uses the place until it is dropped: when the message has come, when it
    /// is taken back, or at once.
    fn land(&self, from: usize, tag: Tag, place: Lent) {
        let _ = (from, tag, place);
    }

    /// Gives back the places that wait for such messages, but for one that a message is being written to.
    fn take_back(&self, which: &dyn Fn(Tag) -> bool) {
        let _ = which;
    }

    /// Whether [`Transport::post_bulk`] takes memory of devices for a rank, as far as is known without having tried it, or why
    /// not.
    fn takes_devices(&self, peer: usize) -> Result<(), String> {
        let _ = peer;
        Err(format!("messages of {} lie in memory of the host", self.name()))
    }

    /// As [`Transport::post`], with bytes that follow once the receiver has said where they shall lie
    /// ([`crate::Message::bulk`]): in memory of the host, or of devices.
    ///
    /// # Errors
    /// [`CommError::OutOfReach`] where [`Transport::takes_devices`] says no, or the bytes are more than 1 GiB.
    fn post_bulk(&self, to: usize, tag: Tag, payload: Vec<u8>, bulk: Lent) -> Result<(), CommError> {
        let _ = (tag, payload, bulk);
        let why = self.takes_devices(to).err().unwrap_or_default();
        Err(CommError::OutOfReach { rank: to, why })
    }

    /// From now on what carries bulks is called within this.
    fn surround(&self, surround: Arc<dyn Surround>) {
        let _ = surround;
    }

    /// What has arrived.
    fn inbox(&self) -> &Inbox;

    /// Zeroed memory that as many peers as possible can reach.
    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError>;

    /// Whether `peer` can read and write this segment of ours, or why not.
    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String>;

    /// The number of the process that this rank pretends to be, if it is a thread that does.
    fn pretends(&self) -> Option<u32> {
        None
    }

    /// The bell of a rank whose memory this rank shares, its own included; `None` for a rank that is
    /// reached by messages alone.
    fn bell(&self, rank: usize) -> Option<&Doorbell>;

    /// Says that this rank's user has given up its communicator. All that it had sent is in the inboxes
    /// of the others before they see it as [`PeerState::Left`]. Dropping the transport ends it.
    fn leave(&self);

    /// This rank's own bell.
    fn own_bell(&self) -> &Doorbell;

    /// Whether a rank still takes part. Cheap: no system call unless something has changed.
    fn state(&self, rank: usize) -> PeerState;

    /// Changes whenever a rank leaves or dies. One load: cheap enough for every exchange.
    fn departures(&self) -> u64;

    /// Clock, park and wake.
    fn host(&self) -> &dyn Host;

    /// How the ranks share cores.
    fn room(&self) -> Room;

    /// Whether spinning only keeps others from running.
    fn is_crowded(&self) -> bool {
        self.room() == Room::Crowded
    }

    /// Whether messages arrive only while [`Transport::poll`] is called: then waits call it.
    fn is_polled(&self) -> bool {
        false
    }

    /// Takes in what has arrived. Never blocks.
    fn poll(&self) {}

    /// Whether messages are on their way that get on only while [`Transport::poll`] is called.
    fn is_carrying(&self) -> bool {
        false
    }

    /// Whether messages arrive also while no call of the program polls.
    fn is_driven(&self) -> bool {
        !self.is_polled()
    }

    /// Why ranks that share no memory with this one are not reached any more, nor ever again.
    fn broken(&self) -> Option<CommError> {
        None
    }

    /// Whether this thread can wait for messages, and why not: no transport of that kind works any more,
    /// or it wants another thread.
    fn check(&self) -> Result<(), CommError> {
        Ok(())
    }
}
