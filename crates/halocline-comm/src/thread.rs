//! Ranks as threads of one process: every memory is in reach.

use crate::bell::Doorbell;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Message, Tag};
use crate::segment::Segment;
use crate::transport::{PeerState, Room, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the ranks of one group share.
struct Hub {
    seats: Vec<Seat>,
    departures: AtomicU64,
    host: Arc<dyn Host>,
    room: Room,
    /// What other ranks do not reach, if they pretend to be processes.
    private: Option<Private>,
}

/// Whether a segment is out of reach of other ranks.
pub(crate) type Private = fn(&Segment) -> bool;

#[derive(Default)]
struct Seat {
    bell: Line,
    inbox: Inbox,
    /// The rank's communicator was dropped.
    left: AtomicBool,
    /// Nothing of the rank goes on any more.
    ended: AtomicBool,
}

/// A doorbell on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(Doorbell);

/// One rank's end. Dropping it tells the others that this rank has left.
pub(crate) struct ThreadTransport {
    hub: Arc<Hub>,
    rank: usize,
}

impl ThreadTransport {
    /// The ends of a new group of `size` ranks.
    pub(crate) fn group(size: usize, host: Arc<dyn Host>, private: Option<Private>) -> Vec<Self> {
        let seats = (0..size).map(|_| Seat::default()).collect();
        let room = Room::of(size, std::thread::available_parallelism().map_or(1, usize::from));
        let hub = Arc::new(Hub { seats, departures: AtomicU64::new(0), host, room, private });
        (0..size).map(|rank| Self { hub: Arc::clone(&hub), rank }).collect()
    }
}

// SAFETY: ranks are threads of one process: segments and bells are shared by reference, payloads are moved to the receiver's inbox, and
// a rank has ended once its end is dropped, after all that it had in flight.
unsafe impl Transport for ThreadTransport {
    fn name(&self) -> &'static str {
        "thread"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hub.seats.len()
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        let Some(seat) = self.hub.seats.get(to) else {
            return Err(CommError::NoSuchRank { rank: to, size: self.size() });
        };
        if !seat.ended.load(Ordering::Acquire) {
            seat.inbox.push(Message {
                source: self.rank,
                tag,
                payload,
                segments: segments.to_vec(),
                ..Message::default()
            });
            seat.bell.0.delivered(self.host(), tag.is_news());
        }
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.hub.seats[self.rank].inbox
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        Segment::heap(bytes).ok_or(CommError::OutOfMemory(bytes))
    }

    fn reach(&self, _peer: usize, segment: &Segment) -> Result<(), String> {
        match self.hub.private {
            Some(is_private) if is_private(segment) => {
                Err("its memory belongs to this process alone".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn pretends(&self) -> Option<u32> {
        self.hub.private.map(|_| self.rank as u32)
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.hub.seats.get(rank).map(|seat| &seat.bell.0)
    }

    fn leave(&self) {
        self.depart(&self.hub.seats[self.rank].left);
    }

    fn own_bell(&self) -> &Doorbell {
        &self.hub.seats[self.rank].bell.0
    }

    fn state(&self, rank: usize) -> PeerState {
        match self.hub.seats.get(rank) {
            Some(seat) if seat.ended.load(Ordering::Acquire) => PeerState::Ended,
            Some(seat) if seat.left.load(Ordering::Acquire) => PeerState::Left,
            _ => PeerState::Present,
        }
    }

    fn departures(&self) -> u64 {
        self.hub.departures.load(Ordering::Acquire)
    }

    fn host(&self) -> &dyn Host {
        &*self.hub.host
    }

    fn room(&self) -> Room {
        self.hub.room
    }
}

impl ThreadTransport {
    /// Shows the others that something about this rank has changed for good.
    fn depart(&self, mark: &AtomicBool) {
        mark.store(true, Ordering::Release);
        self.hub.departures.fetch_add(1, Ordering::Release);
        for other in &self.hub.seats {
            other.bell.0.changed(self.host());
        }
    }
}

impl Drop for ThreadTransport {
    fn drop(&mut self) {
        let seat = &self.hub.seats[self.rank];
        self.depart(&seat.left);
        self.depart(&seat.ended);
    }
}
