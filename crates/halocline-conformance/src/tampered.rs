//! A transport that passes every message to a hook before it sends it, so that tests can inject faults.

use halocline::Communicator;
use halocline_comm::{CommError, Cores, Doorbell, Endpoint, Host, Inbox, PeerState, Segment, Tag, Transport};
use std::sync::{Arc, OnceLock};

/// A message about to be sent.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The receiver.
    pub to: usize,
    /// Its tag.
    pub tag: Tag,
    /// Its bytes, which may be changed.
    pub payload: &'a mut Vec<u8>,
    /// The segments sent with it.
    pub segments: &'a [Arc<Segment>],
}

/// A communicator that passes every message to `tamper` before it sends it. An error of `tamper` is an error of the send.
pub fn tampered(
    comm: Communicator,
    tamper: impl Fn(Outgoing<'_>) -> Result<(), CommError> + Send + Sync + 'static,
) -> Communicator {
    Communicator::over(Arc::new(Tampered { comm, tamper, lacks: 0, apart: None }))
}

/// A communicator whose transport allocates that many bytes less than requested.
pub fn short_of_memory(comm: Communicator, lacks: usize) -> Communicator {
    Communicator::over(Arc::new(Tampered { comm, tamper: |_: Outgoing<'_>| Ok(()), lacks, apart: None }))
}

/// A communicator whose ranks share no memory, as if each were on a node of its own.
pub fn apart(comm: Communicator) -> Communicator {
    apart_until(comm, Arc::default())
}

/// The same. Its transport has failed once `broken` is set.
pub fn apart_until(comm: Communicator, broken: Arc<OnceLock<CommError>>) -> Communicator {
    let tamper = |_: Outgoing<'_>| Ok(());
    Communicator::over(Arc::new(Tampered { comm, tamper, lacks: 0, apart: Some(broken) }))
}

struct Tampered<F> {
    comm: Communicator,
    tamper: F,
    lacks: usize,
    /// Ranks share no memory; why the transport has failed.
    apart: Option<Arc<OnceLock<CommError>>>,
}

impl<F> Tampered<F> {
    fn shares_memory_with(&self, rank: usize) -> bool {
        self.apart.is_none() || rank == self.comm.rank()
    }
}

// SAFETY: the transport of `comm` implements everything. A smaller segment is still a segment. A peer need not reach any. Changed payloads are allowed: receivers
// validate every field of a message before they use it, which is what tampering tests.
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
        match self.shares_memory_with(peer) {
            true => self.comm.link().reach(peer, segment),
            false => Err(format!("rank {peer} shares no memory with this one")),
        }
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.comm.link().bell(rank).filter(|_| self.shares_memory_with(rank))
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

    fn broken(&self) -> Option<CommError> {
        self.apart.as_ref()?.get().cloned()
    }

    fn fault(&self) -> Option<CommError> {
        self.comm.link().fault()
    }

    fn check(&self) -> Result<(), CommError> {
        self.comm.link().check()
    }
}
