//! The small collective calls, over messages alone. Each costs a rank of the order of log(ranks)
//! messages, except where what it returns is larger. A call that this thread may not make is refused before it
//! takes a number, so that the ranks stay in step.

use crate::call::Call;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;

/// How [`Communicator::all_reduce`] combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The sum, modulo 2^64.
    Sum,
}

impl Reduce {
    fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Sum => a.wrapping_add(b),
        }
    }
}

/// Rounds of the messages of [`Communicator::sparse_exchange`]: those of its barrier come after them.
const DATA: u64 = 0;
const ACKNOWLEDGED: u64 = 1;
const AFTER: u64 = 2;

/// Rounds of the messages of calls up the tree and down again.
pub(crate) const UP: u64 = 0;
pub(crate) const DOWN: u64 = 1;

impl Communicator {
    /// Returns once all ranks have called it.
    pub fn barrier(&self) -> Result<(), CommError> {
        self.check()?;
        let mut barrier = self.start_barrier();
        while let Some((from, round)) = barrier.awaited(self)? {
            barrier.call.receive(self, from, round, "a barrier")?;
            barrier.arrived();
        }
        Ok(())
    }

    /// Begins a barrier that can be polled. Collective.
    pub fn start_barrier(&self) -> Barrier {
        Barrier { call: Call::begin(self, "barrier"), first: 0, step: 0, sent: false }
    }

    /// Gives `root`'s bytes to every rank; what the others pass is ignored.
    pub fn broadcast(&self, root: usize, data: Vec<u8>) -> Result<Vec<u8>, CommError> {
        self.check()?;
        let call = Call::begin(self, "broadcast");
        if root >= self.size() {
            return Err(CommError::NoSuchRank { rank: root, size: self.size() });
        }
        self.spread(&call, root, data, "a broadcast")
    }

    /// Down a binomial tree over the ranks, counted from the root.
    fn spread(&self, call: &Call, root: usize, data: Vec<u8>, what: &str) -> Result<Vec<u8>, CommError> {
        let size = self.size();
        let place = (self.rank() + size - root) % size;
        let (parent, children) = tree(place, size);
        let data = match parent {
            None => data,
            Some(parent) => call.receive(self, (parent + root) % size, DOWN, what)?.payload,
        };
        for child in children.into_iter().rev() {
            call.send(self, (child + root) % size, DOWN, &data)?;
        }
        Ok(data)
    }

    /// Gives the bytes of every rank to every rank, in the order of ranks.
    pub fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        const WHAT: &str = "an all-gather";
        self.check()?;
        let call = Call::begin(self, "all_gather");
        // A subtree's packed contributions: (rank, length, bytes) each.
        let mut packed = Vec::new();
        put(&mut packed, self.rank(), mine);
        let packed = self.collect(&call, WHAT, packed, |all, part| {
            all.extend_from_slice(&part);
        })?;
        let packed = self.spread(&call, 0, packed, WHAT)?;
        let mut parts = vec![None; self.size()];
        let mut rest = &packed[..];
        while let Some((rank, bytes)) = take(&mut rest) {
            if let Some(part) = parts.get_mut(rank) {
                *part = Some(bytes.to_vec());
            }
        }
        parts.into_iter().collect::<Option<_>>().ok_or_else(|| malformed(0, WHAT))
    }

    /// Combines the values of all ranks, element by element; all ranks give as many.
    pub fn all_reduce(&self, values: &[u64], op: Reduce) -> Result<Vec<u64>, CommError> {
        const WHAT: &str = "an all-reduce";
        self.check()?;
        let call = Call::begin(self, "all_reduce");
        let bytes = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let combined = self.collect(&call, WHAT, bytes(values), |all, part| {
            let pairs = words(all).zip(words(&part)).filter(|(ours, theirs)| ours.len() == theirs.len());
            *all = match pairs {
                Some((ours, theirs)) => {
                    bytes(&ours.iter().zip(&theirs).map(|(&a, &b)| op.of(a, b)).collect::<Vec<_>>())
                }
                // No whole number of words: it spreads to all ranks, which then all refuse.
                None => vec![0],
            };
        })?;
        let combined = words(&self.spread(&call, 0, combined, WHAT)?);
        combined.filter(|all| all.len() == values.len()).ok_or_else(|| malformed(0, WHAT))
    }

    /// Combines contributions up a binomial tree; rank 0 ends with all of them.
    fn collect(
        &self,
        call: &Call,
        what: &str,
        mut mine: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, Vec<u8>),
    ) -> Result<Vec<u8>, CommError> {
        let (parent, children) = tree(self.rank(), self.size());
        for child in children {
            let part = call.receive(self, child, UP, what)?.payload;
            combine(&mut mine, part);
        }
        if let Some(parent) = parent {
            call.send(self, parent, UP, &mine)?;
        }
        Ok(mine)
    }

    /// Sends to a few ranks and receives from those that sent to this one, without any rank knowing
    /// beforehand who they are. Received messages come sorted by their sender.
    ///
    /// Method: non-blocking consensus (Hoefler, Siebert, Lumsdaine 2010). Every message is
    /// acknowledged; who has all acknowledgements enters a barrier that does not block; when the
    /// barrier is over, nothing is under way any more. No memory or message of the order of all ranks.
    pub fn sparse_exchange(&self, sends: Vec<(usize, Vec<u8>)>) -> Result<Vec<(usize, Vec<u8>)>, CommError> {
        const WHAT: &str = "the neighbours of a sparse exchange";
        self.check()?;
        let call = Call::begin(self, "sparse_exchange");
        let mut barrier = Barrier { call: call.clone(), first: AFTER, step: 0, sent: false };
        let mut unacknowledged: Vec<usize> = sends.iter().map(|(to, _)| *to).collect();
        for (to, payload) in sends {
            call.send(self, to, DATA, &payload)?;
        }
        let mut received = Vec::new();
        self.wait_in(&call, None, WHAT, || {
            let missing = unacknowledged.iter().copied().find(|&rank| self.has_left(rank));
            while let Some(message) = call.take(self, DATA, None, WHAT)? {
                call.send(self, message.source, ACKNOWLEDGED, &[])?;
                received.push((message.source, message.payload));
            }
            while let Some(message) = call.take(self, ACKNOWLEDGED, None, WHAT)? {
                if let Some(at) = unacknowledged.iter().position(|&rank| rank == message.source) {
                    unacknowledged.swap_remove(at);
                }
            }
            match missing.filter(|rank| unacknowledged.contains(rank)) {
                Some(rank) => Err(CommError::Left { rank, waiting: self.rank(), what: WHAT.to_owned() }),
                None if unacknowledged.is_empty() => Ok(barrier.is_over(self)?.then_some(())),
                None => Ok(None),
            }
        })?;
        // A rank's data were acknowledged, hence taken, before it entered the barrier.
        received.sort_by_key(|(source, _)| *source);
        Ok(received)
    }
}

/// A dissemination barrier in progress: in round k a rank hears from the one 2^k before it.
#[derive(Debug)]
pub struct Barrier {
    call: Call,
    /// The round of its first message.
    first: u64,
    step: u32,
    sent: bool,
}

impl Barrier {
    /// Sender and round of the message that the barrier waits for now, `None` once it is over. Sends what is due.
    fn awaited(&mut self, comm: &Communicator) -> Result<Option<(usize, u64)>, CommError> {
        let (rank, size) = (comm.rank(), comm.size());
        let step = 1usize << self.step;
        if step >= size {
            return Ok(None);
        }
        let round = self.first + u64::from(self.step);
        if !self.sent {
            self.sent = true;
            self.call.send(comm, (rank + step) % size, round, &[])?;
        }
        Ok(Some(((rank + size - step) % size, round)))
    }

    fn arrived(&mut self) {
        self.step += 1;
        self.sent = false;
    }

    /// Whether all ranks have begun the barrier. Never blocks.
    pub fn is_over(&mut self, comm: &Communicator) -> Result<bool, CommError> {
        comm.link().poll();
        const WHAT: &str = "a barrier";
        while let Some((rank, round)) = self.awaited(comm)? {
            // Asked before the look: what a rank sent is in the inbox before its leaving shows.
            let left = comm.has_left(rank);
            if self.call.take(comm, round, Some(rank), WHAT)?.is_none() {
                self.call.check(comm)?;
                return match left {
                    true => Err(CommError::Left { rank, waiting: comm.rank(), what: WHAT.to_owned() }),
                    false => Ok(false),
                };
            }
            self.arrived();
        }
        Ok(true)
    }
}

/// Parent and children of a place in the binomial tree over `size` places with root 0.
fn tree(place: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let lowest_bit = if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
    let children = (0..lowest_bit.trailing_zeros()).map(|k| place + (1 << k)).filter(|&child| child < size);
    let parent = (place != 0).then(|| place - lowest_bit);
    (parent, children.collect())
}

pub(crate) fn put(packed: &mut Vec<u8>, rank: usize, bytes: &[u8]) {
    packed.extend_from_slice(&(rank as u64).to_le_bytes());
    packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    packed.extend_from_slice(bytes);
}

pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let (rank, tail) = rest.split_first_chunk::<8>()?;
    let (len, tail) = tail.split_first_chunk::<8>()?;
    let (bytes, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *rest = tail;
    Some((usize::try_from(u64::from_le_bytes(*rank)).ok()?, bytes))
}

fn words(bytes: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|w| u64::from_le_bytes(*w)).collect())
}

fn malformed(from: usize, what: &str) -> CommError {
    CommError::Malformed { from, what: what.to_owned() }
}
