//! Messages that have arrived and wait to be taken.
//!
//! Every transport takes messages off its wire at once and puts them here, so that an unexpected one
//! never holds up those behind it.

use crate::bulk::Bulk;
use crate::call;
use crate::error::CommError;
use crate::segment::Segment;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a message belongs to: an operation, and a round within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag {
    /// The operation: a collective call or a bound object. Never reused.
    pub operation: u64,
    /// The round or epoch within the operation.
    pub round: u64,
}

impl Tag {
    /// Messages of rounds from here on are news that the receiver's progress thread has to see although its
    /// program may wait for nothing, or for something else.
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
    /// What it belongs to.
    pub tag: Tag,
    /// The bytes.
    pub payload: Vec<u8>,
    /// Memory of the sender, mapped for the receiver: all that was sent with it, or what comes before the first that is missing.
    pub segments: Vec<Arc<Segment>>,
    /// Why the first segment that is missing could not be received or mapped.
    pub missing: Option<CommError>,
    /// It lies in the place that was given for it, and has no payload here.
    pub landed: bool,
    /// Bytes that it has announced.
    pub bulk: Option<Bulk>,
}

/// The arrived messages of one rank, by tag, in order of arrival from each sender.
#[derive(Debug, Default)]
pub struct Inbox {
    queues: Mutex<HashMap<Tag, VecDeque<Message>>>,
    /// The operations that were over last, whose last messages may still be under way.
    over: Mutex<VecDeque<u64>>,
    /// Ranks that wait for this one, and how they have said so.
    announced: Mutex<BTreeMap<usize, Message>>,
}

/// Operations that are known to be over; what comes for earlier ones has long come.
const OVER: usize = 64;

impl Inbox {
    /// Adds a message. The caller rings the rank's bell afterwards, and demands progress for news.
    pub fn push(&self, message: Message) {
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
        if !over.contains(&message.tag.operation) {
            self.lock().entry(message.tag).or_default().push_back(message);
        }
    }

    /// Takes the oldest message of `tag`, from one sender or from any.
    pub fn take(&self, tag: Tag, from: Option<usize>) -> Option<Message> {
        let mut queues = self.lock();
        let queue = queues.get_mut(&tag)?;
        let at = queue.iter().position(|m| from.is_none_or(|rank| rank == m.source))?;
        let message = queue.remove(at);
        if queue.is_empty() {
            queues.remove(&tag);
        }
        message
    }

    /// Whether [`Inbox::take`] would find a message, and of how many bytes.
    pub fn probe(&self, tag: Tag, from: Option<usize>) -> Option<usize> {
        let queues = self.lock();
        let found = queues.get(&tag)?.iter().find(|m| from.is_none_or(|rank| rank == m.source))?;
        Some(found.payload.len())
    }

    /// A message whose tag suits, or an announcement: its sender and payload. It stays.
    pub(crate) fn find(&self, suits: impl Fn(Tag) -> bool) -> Option<(usize, Vec<u8>)> {
        let announced = self.announced();
        if let Some((rank, waiting)) = announced.iter().find(|(_, waiting)| suits(waiting.tag)) {
            return Some((*rank, waiting.payload.clone()));
        }
        let queues = self.lock();
        let (_, queue) = queues.iter().find(|(tag, _)| suits(**tag))?;
        queue.front().map(|message| (message.source, message.payload.clone()))
    }

    /// What a rank waits in for this one, if it has said so.
    pub(crate) fn waits_in(&self, rank: usize) -> Option<String> {
        let announced = self.announced();
        call::split(&announced.get(&rank)?.payload).map(|(_, name)| call::outer(&name).to_owned())
    }

    /// Throws away all messages of an operation that is over, and those that are still to come, with the
    /// memory that they bring.
    pub fn forget(&self, operation: u64) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if !over.contains(&operation) {
            over.truncate(OVER - 1);
            over.push_front(operation);
        }
        self.lock().retain(|tag, _| tag.operation != operation);
    }

    /// Throws away all that waits.
    pub(crate) fn clear(&self) {
        // Dropped outside the lock, with the memory that it brings.
        drop(std::mem::take(&mut *self.lock()));
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
