//! Messages that have arrived and wait to be taken.
//!
//! Every transport moves messages from its wire to the inbox at once, so that an unexpected one
//! never blocks those behind it.

use crate::bulk::Bulk;
use crate::call;
use crate::error::CommError;
use crate::segment::Segment;
use crate::split::Members;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tag of a message: an operation, and a round within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag {
    /// The operation: a collective call or a bound object. Never reused.
    pub operation: u64,
    /// The round or epoch within the operation.
    pub round: u64,
}

impl Tag {
    /// Messages of rounds from here on are news: they wake the receiver's progress thread, whatever its program
    /// waits for.
    pub const NEWS: u64 = u64::MAX - 7;

    pub(crate) fn is_news(self) -> bool {
        self.round >= Self::NEWS
    }
}

/// Bytes from one rank to another, with memory that the receiver may use.
#[derive(Debug, Default)]
pub struct Message {
    /// The sender.
    pub source: usize,
    /// Its tag.
    pub tag: Tag,
    /// The bytes.
    pub payload: Vec<u8>,
    /// Memory of the sender, mapped for the receiver: all segments sent with the message, or those before the first missing one.
    pub segments: Vec<Arc<Segment>>,
    /// Why the first missing segment could not be received or mapped.
    pub missing: Option<CommError>,
    /// The bytes are in the posted receive buffer ([`Endpoint::post_receive`](crate::Endpoint::post_receive)); the payload is empty.
    pub in_place: bool,
    /// Bytes that follow once the receiver has posted a buffer.
    pub bulk: Option<Bulk>,
}

/// The arrived messages of one rank, by tag, in order of arrival from each sender.
#[derive(Debug, Default)]
pub struct Inbox {
    arrived: Arc<Arrived>,
    /// For a split communicator: names senders by their ranks there. The messages are those of the whole transport.
    members: Option<Arc<Members>>,
}

#[derive(Debug, Default)]
struct Arrived {
    queues: Mutex<HashMap<Tag, VecDeque<Message>>>,
    over: Mutex<Over>,
    /// Ranks that wait for this one, with their announcements.
    announced: Mutex<BTreeMap<usize, Message>>,
}

/// The last [`OVER`] operations that are over; their last messages may still arrive.
#[derive(Debug, Default)]
struct Over {
    known: HashSet<u64>,
    in_order: VecDeque<u64>,
}

/// Finished operations whose late messages are discarded. A rank may be as many of them ahead of another one.
const OVER: usize = 1 << 14;

impl Over {
    fn add(&mut self, operation: u64) {
        if self.known.insert(operation) {
            self.in_order.push_back(operation);
            if self.in_order.len() > OVER
                && let Some(oldest) = self.in_order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
}

impl Inbox {
    /// The same messages for a split communicator.
    pub(crate) fn of_members(&self, members: Arc<Members>) -> Self {
        Self { arrived: Arc::clone(&self.arrived), members: Some(members) }
    }

    /// Adds a message. The caller rings the rank's bell afterwards, and demands progress for news.
    pub fn push(&self, message: Message) {
        self.arrived.push(message);
    }

    /// Takes the oldest message of `tag`, from one sender or from any.
    pub fn take(&self, tag: Tag, from: Option<usize>) -> Option<Message> {
        let mut message = self.arrived.take(tag, self.outer(from)?)?;
        message.source = self.inner(message.source)?;
        Some(message)
    }

    /// Whether [`Inbox::take`] would find a message, and of how many bytes.
    pub fn probe(&self, tag: Tag, from: Option<usize>) -> Option<usize> {
        let from = self.outer(from)?;
        let queues = self.arrived.lock();
        let found = queues.get(&tag)?.iter().find(|m| from.is_none_or(|rank| rank == m.source))?;
        Some(found.payload.len())
    }

    /// Finds a message or an announcement by its tag: its sender and payload. The message stays.
    pub(crate) fn find(&self, suits: impl Fn(Tag) -> bool) -> Option<(usize, Vec<u8>)> {
        let (source, payload) = self.arrived.find(suits)?;
        Some((self.inner(source)?, payload))
    }

    /// The call in which a rank waits for this one, if it has announced that.
    pub(crate) fn waits_in(&self, rank: usize) -> Option<String> {
        let rank = self.outer(Some(rank))??;
        let announced = self.arrived.announced();
        call::split(&announced.get(&rank)?.payload).map(|(_, name)| call::outer(&name).to_owned())
    }

    /// Discards all messages of an operation that is over, and those still to come, with the
    /// memory that they bring.
    pub fn forget(&self, operation: u64) {
        self.arrived.over.lock().unwrap_or_else(PoisonError::into_inner).add(operation);
        self.arrived.lock().retain(|tag, _| tag.operation != operation);
    }

    /// Discards all messages.
    pub(crate) fn clear(&self) {
        // Dropped outside the lock, with the memory that they bring.
        drop(std::mem::take(&mut *self.arrived.lock()));
    }

    /// The sender by the transport's number; `None` if there is no such rank.
    fn outer(&self, from: Option<usize>) -> Option<Option<usize>> {
        match (&self.members, from) {
            (Some(members), Some(rank)) => members.outer(rank).map(Some),
            (_, from) => Some(from),
        }
    }

    /// A sender by its rank of the communicator; `None` if it is no member.
    fn inner(&self, source: usize) -> Option<usize> {
        self.members.as_ref().map_or(Some(source), |members| members.inner(source))
    }
}

impl Arrived {
    fn push(&self, message: Message) {
        if call::is_announcement(message.tag) {
            let mut announced = self.announced();
            let is_over = call::split(&message.payload).is_none_or(|(_, name)| name.is_empty());
            match announced.get(&message.source) {
                Some(before) if is_over && before.tag == message.tag => {
                    drop(announced.remove(&message.source))
                }
                _ if is_over => {}
                _ => drop(announced.insert(message.source, message)),
            }
            return;
        }
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if !over.known.contains(&message.tag.operation) {
            self.lock().entry(message.tag).or_default().push_back(message);
        }
    }

    fn take(&self, tag: Tag, from: Option<usize>) -> Option<Message> {
        let mut queues = self.lock();
        let queue = queues.get_mut(&tag)?;
        let at = queue.iter().position(|m| from.is_none_or(|rank| rank == m.source))?;
        let message = queue.remove(at);
        if queue.is_empty() {
            queues.remove(&tag);
        }
        message
    }

    fn find(&self, suits: impl Fn(Tag) -> bool) -> Option<(usize, Vec<u8>)> {
        let announced = self.announced();
        if let Some((rank, waiting)) = announced.iter().find(|(_, waiting)| suits(waiting.tag)) {
            return Some((*rank, waiting.payload.clone()));
        }
        let queues = self.lock();
        let (_, queue) = queues.iter().find(|(tag, _)| suits(**tag))?;
        queue.front().map(|message| (message.source, message.payload.clone()))
    }

    fn announced(&self) -> MutexGuard<'_, BTreeMap<usize, Message>> {
        // No panic can happen while it is held: the map is always whole.
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tag, VecDeque<Message>>> {
        // No panic can happen while it is held: the map is always whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
