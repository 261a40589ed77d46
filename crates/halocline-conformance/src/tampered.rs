//! A transport that shows every message to somebody before it is sent: for faults of one's own making.

use halocline::Communicator;
use halocline_comm::Endpoint;
use halocline_comm::{CommError, Cores, Doorbell, Host, Inbox, PeerState, Segment, Tag, Transport};
use std::sync::Arc;

/// A message about to be sent.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The receiver.
    pub to: usize,
    /// What it belongs to.
    pub tag: Tag,
    /// Its bytes, which may be changed.
    pub payload: &'a mut Vec<u8>,
    /// Memory that goes with it.
    pub segments: &'a [Arc<Segment>],
}

/// A communicator of which every message goes by `tamper` first; an error of that is one of sending.
pub fn tampered(
    comm: Communicator,
    tamper: impl Fn(Outgoing<'_>) -> Result<(), CommError> + Send + Sync + 'static,
) -> Communicator {
    Communicator::over(Arc::new(Tampered { comm, tamper, lacks: 0 }))
}

/// A communicator whose transport gives so many bytes less than it is asked for.
pub fn short_of_memory(comm: Communicator, lacks: usize) -> Communicator {
    Communicator::over(Arc::new(Tampered { comm, tamper: |_: Outgoing<'_>| Ok(()), lacks }))
}

struct Tampered<F> {
    comm: Communicator,
    tamper: F,
    lacks: usize,
}

// SAFETY: everything is done by the transport of `comm`. Less memory is still memory of its own. A changed payload is no breach: receivers check every field of what they are
// told before they use it, which is what tampering tests.
unsafe impl<F: Fn(Outgoing<'_>) -> Result<(), CommError> + Send + Sync> Transport for Tampered<F> {
    fn name(&self) -> &'static str {
        self.comm.link().name()
    }

    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        mut payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        (self.tamper)(Outgoing { to, tag, payload: &mut payload, segments })?;
        self.comm.link().post(to, tag, payload, segments)
    }

    fn inbox(&self) -> &Inbox {
        self.comm.link().inbox()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        self.comm.link().allocate(bytes.saturating_sub(self.lacks))
    }

    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String> {
        self.comm.link().reach(peer, segment)
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.comm.link().bell(rank)
    }

    fn leave(&self) {
        self.comm.link().leave();
    }

    fn own_bell(&self) -> &Doorbell {
        self.comm.link().own_bell()
    }

    fn state(&self, rank: usize) -> PeerState {
        self.comm.link().state(rank)
    }

    fn departures(&self) -> u64 {
        self.comm.link().departures()
    }

    fn host(&self) -> &dyn Host {
        self.comm.link().host()
    }

    fn cores(&self) -> Cores {
        self.comm.link().cores()
    }

    fn is_polled(&self) -> bool {
        self.comm.link().is_polled()
    }

    fn poll(&self) {
        self.comm.link().poll();
    }

    fn check(&self) -> Result<(), CommError> {
        self.comm.link().check()
    }
}
