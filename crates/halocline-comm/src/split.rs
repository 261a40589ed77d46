//! Communicators over some ranks of another one.

use crate::bell::Doorbell;
use crate::borrowed::Borrowed;
use crate::bulk::Surround;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Tag};
use crate::segment::Segment;
use crate::transport::{Cores, PeerState, Post, Transport};
use std::sync::Arc;

/// The ranks of a split communicator, and what their transport calls them.
#[derive(Debug)]
pub(crate) struct Members {
    /// The transport's number of each rank.
    outer: Vec<usize>,
    /// The rank of each number of the transport; `None` for one that is no member.
    inner: Vec<Option<usize>>,
}

impl Members {
    fn new(outer: Vec<usize>, size: usize) -> Self {
        let mut inner = vec![None; size];
        outer.iter().enumerate().for_each(|(rank, &number)| inner[number] = Some(rank));
        Self { outer, inner }
    }

    /// The transport's number of a rank.
    pub(crate) fn outer(&self, rank: usize) -> Option<usize> {
        self.outer.get(rank).copied()
    }

    /// The rank that has a number of the transport.
    pub(crate) fn inner(&self, number: usize) -> Option<usize> {
        self.inner.get(number).copied().flatten()
    }
}

impl Communicator {
    /// Splits the communicator into one for each color, as `MPI_Comm_split`: it has the ranks that pass this color, ordered by
    /// `key`, and by their rank here where keys are equal. A rank that passes `None` gets no communicator. Collective.
    /// Blocks until all ranks have called it.
    ///
    /// ```
    /// # use halocline_comm::{CommError, Communicator};
    /// # let comm = Communicator::single();
    /// // Rows of a grid of ranks that has four columns.
    /// let row = comm.split(comm.rank() / 4, 0)?.expect("every rank passes a color");
    /// row.barrier()?;
    /// # Ok::<(), CommError>(())
    /// ```
    ///
    /// Like a duplicate, it keeps the rank from leaving: drop it with its parent.
    ///
    /// # Errors
    /// Those of [collective calls](Communicator#errors-of-collective-calls).
    pub fn split(&self, color: impl Into<Option<usize>>, key: i64) -> Result<Option<Self>, CommError> {
        let color = color.into();
        let mine = color.map_or([0, 0, 0], |color| [1, color as i64, key]);
        let all = self.or_within("split").all_gather(mine)?;
        // After the gather, whose number then meets that of any other call.
        let context = self.begin();
        if color.is_none() {
            return Ok(None);
        }
        let mut ranks: Vec<usize> = (0..self.size()).filter(|&rank| all[rank][..2] == mine[..2]).collect();
        ranks.sort_by_key(|&rank| all[rank][2]);
        let outer = ranks.iter().filter_map(|&rank| self.outer_rank(rank)).collect();
        Ok(Some(self.over_members(context, Members::new(outer, self.outer_link().size()))))
    }
}

/// A transport seen by some of its ranks.
pub(crate) struct SplitTransport {
    whole: Arc<dyn Transport>,
    members: Arc<Members>,
    rank: usize,
    inbox: Inbox,
}

impl SplitTransport {
    /// `members` has the rank of `whole`.
    pub(crate) fn new(whole: Arc<dyn Transport>, members: Arc<Members>) -> Self {
        let rank = members.inner(whole.rank()).unwrap_or(0);
        let inbox = whole.inbox().of_members(Arc::clone(&members));
        Self { whole, members, rank, inbox }
    }

    fn outer(&self, rank: usize) -> Result<usize, CommError> {
        self.members.outer(rank).ok_or(CommError::NoSuchRank { rank, size: self.size() })
    }

    /// Names the rank of the split communicator in an error about memory.
    fn renamed(result: Result<(), CommError>, to: usize) -> Result<(), CommError> {
        result.map_err(|error| match error {
            CommError::OutOfReach { why, .. } => CommError::OutOfReach { rank: to, why },
            other => other,
        })
    }
}

// SAFETY: every method is that of `whole`, which keeps the contract, for the rank that has the number in `members`; the inbox names
// senders by the same table.
unsafe impl Transport for SplitTransport {
    fn name(&self) -> &'static str {
        self.whole.name()
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.outer.len()
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        Self::renamed(self.whole.post(self.outer(to)?, tag, payload, segments), to)
    }

    fn post_pair(&self, to: usize, pair: [Post; 2]) -> Result<(), CommError> {
        Self::renamed(self.whole.post_pair(self.outer(to)?, pair), to)
    }

    fn post_borrowed(&self, to: usize, tag: Tag, payload: Borrowed) -> Result<(), CommError> {
        Self::renamed(self.whole.post_borrowed(self.outer(to)?, tag, payload), to)
    }

    fn post_receive(&self, from: usize, tag: Tag, buffer: Borrowed) {
        if let Some(from) = self.members.outer(from) {
            self.whole.post_receive(from, tag, buffer);
        }
    }

    fn cancel_receives(&self, from: Option<usize>, which: &dyn Fn(Tag) -> bool) {
        match from.map(|from| self.members.outer(from)) {
            None => self.whole.cancel_receives(None, which),
            Some(Some(from)) => self.whole.cancel_receives(Some(from), which),
            // Nothing was posted for it.
            Some(None) => {}
        }
    }

    fn accepts_device_memory(&self, peer: usize) -> Result<(), String> {
        self.whole.accepts_device_memory(self.outer(peer).map_err(|error| error.to_string())?)
    }

    fn post_bulk(&self, to: usize, tag: Tag, payload: Vec<u8>, bulk: Borrowed) -> Result<(), CommError> {
        Self::renamed(self.whole.post_bulk(self.outer(to)?, tag, payload, bulk), to)
    }

    fn surround(&self, surround: Arc<dyn Surround>) {
        self.whole.surround(surround);
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        self.whole.allocate(bytes)
    }

    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String> {
        self.whole.reach(self.outer(peer).map_err(|error| error.to_string())?, segment)
    }

    fn emulated_process(&self) -> Option<u32> {
        self.whole.emulated_process()
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.whole.bell(self.members.outer(rank)?)
    }

    fn leave(&self) {
        self.whole.leave();
    }

    fn own_bell(&self) -> &Doorbell {
        self.whole.own_bell()
    }

    fn state(&self, rank: usize) -> PeerState {
        self.members.outer(rank).map_or(PeerState::Dead, |rank| self.whole.state(rank))
    }

    fn departures(&self) -> u64 {
        self.whole.departures()
    }

    fn host(&self) -> &dyn Host {
        self.whole.host()
    }

    fn cores(&self) -> Cores {
        self.whole.cores()
    }

    fn is_polled(&self) -> bool {
        self.whole.is_polled()
    }

    fn poll(&self) {
        self.whole.poll();
    }

    fn is_carrying(&self) -> bool {
        self.whole.is_carrying()
    }

    fn is_driven(&self) -> bool {
        self.whole.is_driven()
    }

    fn broken(&self) -> Option<CommError> {
        self.whole.broken()
    }

    fn fault(&self) -> Option<CommError> {
        self.whole.fault()
    }

    fn check(&self) -> Result<(), CommError> {
        self.whole.check()
    }
}
