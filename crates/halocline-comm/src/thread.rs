//! Ranks as threads of one process: all memory is reachable.

use crate::bell::Doorbell;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Message, Tag};
use crate::segment::Segment;
use crate::transport::{Cores, PeerState, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State that the ranks of one group share.
struct Hub {
    ranks: Vec<RankState>,
    departures: AtomicU64,
    host: Arc<dyn Host>,
    cores: Cores,
    /// The segments that other ranks do not reach, if ranks behave like processes.
    private: Option<Private>,
}

/// Whether other ranks cannot reach a segment.
pub(crate) type Private = fn(&Segment) -> bool;

#[derive(Default)]
struct RankState {
    bell: PaddedBell,
    inbox: Inbox,
    /// The rank's communicator was dropped.
    left: AtomicBool,
    /// Nothing of the rank is in flight any more.
    ended: AtomicBool,
}

/// A doorbell on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct PaddedBell(Doorbell);

/// One rank's end. Dropping it tells the others that this rank has left.
pub(crate) struct ThreadTransport {
    hub: Arc<Hub>,
    rank: usize,
}

impl ThreadTransport {
    /// The ends of a new group of `size` ranks.
    pub(crate) fn group(size: usize, host: Arc<dyn Host>, private: Option<Private>) -> Vec<Self> {
        let ranks = (0..size).map(|_| RankState::default()).collect();
        let cores = Cores::of(&*host, size, host.cores());
        let hub = Arc::new(Hub { ranks, departures: AtomicU64::new(0), host, cores, private });
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
        self.hub.ranks.len()
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        let Some(state) = self.hub.ranks.get(to) else {
            return Err(CommError::NoSuchRank { rank: to, size: self.size() });
        };
        if !state.ended.load(Ordering::Acquire) {
            state.inbox.push(Message {
                source: self.rank,
                tag,
                payload,
                segments: segments.to_vec(),
                ..Message::default()
            });
            state.bell.0.delivered(self.host(), tag.is_news());
        }
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.hub.ranks[self.rank].inbox
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

    fn emulated_process(&self) -> Option<u32> {
        self.hub.private.map(|_| self.rank as u32)
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.hub.ranks.get(rank).map(|state| &state.bell.0)
    }

    fn leave(&self) {
        self.depart(&self.hub.ranks[self.rank].left);
    }

    fn own_bell(&self) -> &Doorbell {
        &self.hub.ranks[self.rank].bell.0
    }

    fn state(&self, rank: usize) -> PeerState {
        match self.hub.ranks.get(rank) {
            Some(state) if state.ended.load(Ordering::Acquire) => PeerState::Ended,
            Some(state) if state.left.load(Ordering::Acquire) => PeerState::Left,
            _ => PeerState::Present,
        }
    }

    fn departures(&self) -> u64 {
        self.hub.departures.load(Ordering::Acquire)
    }

    fn host(&self) -> &dyn Host {
        &*self.hub.host
    }

    fn cores(&self) -> Cores {
        self.hub.cores
    }
}

impl ThreadTransport {
    /// Publishes to the others that this rank has left or ended.
    fn depart(&self, mark: &AtomicBool) {
        mark.store(true, Ordering::Release);
        self.hub.departures.fetch_add(1, Ordering::Release);
        for other in &self.hub.ranks {
            other.bell.0.changed(self.host());
        }
    }
}

impl Drop for ThreadTransport {
    fn drop(&mut self) {
        let state = &self.hub.ranks[self.rank];
        self.depart(&state.left);
        self.depart(&state.ended);
    }
}
