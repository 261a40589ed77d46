//! The small collective calls, over messages alone. A call costs each rank about log2(ranks) messages, except where the result
//! itself is larger. A call that this thread may not make is refused before it takes a number, so that the ranks stay in step.

use crate::call::Call;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::values::{self, Number, Values};
use std::fmt;

/// How [`Communicator::all_reduce`] combines.
///
/// ```
/// use halocline_comm::{Communicator, Reduce};
///
/// let comm = Communicator::init()?;
/// // The longest time step that is stable on all ranks.
/// let step: f64 = comm.all_reduce(0.25, Reduce::Min)?;
/// assert_eq!(step, 0.25);
/// # Ok::<(), halocline_comm::CommError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The smallest; NaN if any value is NaN.
    Min,
    /// The largest; NaN if any value is NaN.
    Max,
    /// The sum. Sums of integers wrap. Sums of floating-point numbers are added in an order that depends on the number of ranks
    /// alone.
    Sum,
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "minimum",
            Self::Max => "maximum",
            Self::Sum => "sum",
        })
    }
}

/// The subject of waits, for errors.
const BROADCAST: &str = "a broadcast";

/// Rounds of the messages of [`Communicator::sparse_exchange`]: those of its barrier come after them.
const DATA: u64 = 0;
const ACKNOWLEDGED: u64 = 1;
const AFTER: u64 = 2;

/// Rounds of the messages up the tree and down again.
pub(crate) const UP: u64 = 0;
pub(crate) const DOWN: u64 = 1;

impl Communicator {
    /// Collective. Blocks until all ranks have called it.
    ///
    /// # Errors
    /// Those of [collective calls](Communicator#errors-of-collective-calls).
    pub fn barrier(&self) -> Result<(), CommError> {
        self.check()?;
        let mut barrier = self.start_barrier();
        while let Some((from, round)) = barrier.awaited(self)? {
            barrier.call.receive(self, from, round, "a barrier")?;
            barrier.arrived();
        }
        Ok(())
    }

    /// Sends `root`'s values to every rank and ignores the values of the others. All ranks pass the same `root`, and
    /// values of one type. Collective. Blocks until all ranks have called it.
    ///
    /// ```
    /// # use halocline_comm::{CommError, Communicator};
    /// # let comm = Communicator::single();
    /// let step: f64 = comm.broadcast(0, 0.25)?;
    /// let names: Vec<u8> = comm.broadcast(0, b"u,v,w".to_vec())?;
    /// # Ok::<(), CommError>(())
    /// ```
    ///
    /// # Errors
    /// [`CommError::NoSuchRank`] if there is no rank `root`; [`CommError::Arguments`] if ranks pass different roots or types;
    /// those of [collective calls](Communicator#errors-of-collective-calls).
    pub fn broadcast<V: Values>(&self, root: usize, values: V) -> Result<V::Owned, CommError> {
        let all = self.broadcast_of(root, type_of::<V>(), || values::encode(values.numbers()))?;
        values::decode::<V>(&all).ok_or_else(|| malformed(root, BROADCAST))
    }

    /// As [`Communicator::broadcast`], from and to the bytes of each rank. All ranks pass equally many.
    ///
    /// # Errors
    /// Those of [`Communicator::broadcast`]; [`CommError::Arguments`] also if ranks pass different numbers of bytes.
    pub fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        let all = self.broadcast_of(root, count_of::<u8>(bytes.len()), || bytes.to_vec())?;
        if all.len() != bytes.len() {
            return Err(malformed(root, BROADCAST));
        }
        bytes.copy_from_slice(&all);
        Ok(())
    }

    /// The bytes that `root` gives, on all ranks.
    fn broadcast_of(
        &self,
        root: usize,
        values: String,
        own: impl FnOnce() -> Vec<u8>,
    ) -> Result<Vec<u8>, CommError> {
        const PRESENT: u8 = 1;
        let mut mine = Vec::new();
        if self.rank() == root {
            mine = own();
            mine.push(PRESENT);
        }
        let arguments = format!("root {root} ({values})");
        let mut all = self.combine("broadcast", BROADCAST, arguments, mine, |all, part| {
            if !part.is_empty() {
                *all = part.to_vec();
            }
            Some(())
        })?;
        all.pop().map(|_| all).ok_or(CommError::NoSuchRank { rank: root, size: self.size() })
    }

    /// Sends the values of every rank to every rank, and returns them in the order of ranks. Vectors may differ in length.
    /// Collective. Blocks until all ranks have called it.
    ///
    /// # Errors
    /// [`CommError::Arguments`] if ranks pass different types; those of
    /// [collective calls](Communicator#errors-of-collective-calls).
    pub fn all_gather<V: Values>(&self, values: V) -> Result<Vec<V::Owned>, CommError> {
        const WHAT: &str = "an all-gather";
        // A subtree's packed contributions: (rank, length, bytes) each.
        let mut packed = Vec::new();
        put(&mut packed, self.rank(), &values::encode(values.numbers()));
        let packed = self.combine("all_gather", WHAT, type_of::<V>(), packed, |all, part| {
            all.extend_from_slice(part);
            Some(())
        })?;
        let mut parts: Vec<_> = (0..self.size()).map(|_| None).collect();
        let mut rest = &packed[..];
        while let Some((rank, bytes)) = take(&mut rest) {
            if let Some(part) = parts.get_mut(rank) {
                *part = values::decode::<V>(bytes);
            }
        }
        parts.into_iter().collect::<Option<_>>().ok_or_else(|| malformed(0, WHAT))
    }

    /// Combines the values of all ranks, element by element. All ranks pass as many values of one type, and the same `op`.
    /// Collective. Blocks until all ranks have called it.
    ///
    /// ```
    /// # use halocline_comm::{CommError, Communicator, Reduce};
    /// # let comm = Communicator::single();
    /// # let (residual, cells) = (1e-9, 64usize);
    /// let worst: f64 = comm.all_reduce(residual, Reduce::Max)?;
    /// let total: usize = comm.all_reduce(cells, Reduce::Sum)?;
    /// let moments: [f64; 3] = comm.all_reduce([1.0, 2.0, 3.0], Reduce::Sum)?;
    /// # Ok::<(), CommError>(())
    /// ```
    ///
    /// # Errors
    /// [`CommError::Arguments`] if ranks pass different types, numbers of values or operations; those of
    /// [collective calls](Communicator#errors-of-collective-calls).
    pub fn all_reduce<V: Values>(&self, values: V, op: Reduce) -> Result<V::Owned, CommError> {
        const WHAT: &str = "an all-reduce";
        let numbers = values.numbers();
        let arguments = format!("{op} of {}", count_of::<V::Number>(numbers.len()));
        let all = self.combine("all_reduce", WHAT, arguments, values::encode(numbers), |all, part| {
            let mut ours = V::Number::decode(all);
            let theirs = V::Number::decode(part);
            if all.len() != part.len() || ours.len() != theirs.len() {
                return None;
            }
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = ours.combine(theirs, op));
            V::Number::encode(&ours, all);
            Some(())
        })?;
        let all = Some(all).filter(|all| all.len() == numbers.len() * V::Number::BYTES);
        all.and_then(|all| values::decode::<V>(&all)).ok_or_else(|| malformed(0, WHAT))
    }

    /// Combines the contributions of all ranks up a binomial tree with root 0, and returns the result on all ranks. Contributions
    /// whose `arguments` differ are an error on all ranks; so is one that `combine` refuses.
    fn combine(
        &self,
        method: &'static str,
        what: &'static str,
        arguments: String,
        mine: Vec<u8>,
        combine: impl Fn(&mut Vec<u8>, &[u8]) -> Option<()>,
    ) -> Result<Vec<u8>, CommError> {
        self.check()?;
        let call = Call::begin(self, method);
        let (parent, children) = tree(self.rank(), self.size());
        let mut all = Combined::Data { arguments: arguments.clone(), bytes: mine };
        for &child in &children {
            let part = call.receive(self, child, UP, what)?.payload;
            all = match (all, Combined::read(&part)) {
                (all, None) => all.malformed(child),
                (
                    Combined::Data { arguments, mut bytes },
                    Some(Combined::Data { arguments: theirs, bytes: part }),
                ) => {
                    if arguments != theirs {
                        Combined::Differ([(self.rank(), arguments), (child, theirs)])
                    } else if combine(&mut bytes, &part).is_some() {
                        Combined::Data { arguments, bytes }
                    } else {
                        Combined::Malformed(child)
                    }
                }
                // The first failure found is the one that all ranks return.
                (Combined::Data { .. }, Some(failed)) => failed,
                (failed, Some(_)) => failed,
            };
        }
        if let Some(parent) = parent {
            call.send(self, parent, UP, &all.write())?;
            let result = call.receive(self, parent, DOWN, what)?.payload;
            all = Combined::read(&result).unwrap_or(Combined::Malformed(parent));
        }
        let result = all.write();
        for child in children.into_iter().rev() {
            call.send(self, child, DOWN, &result)?;
        }
        match all {
            Combined::Data { bytes, .. } => Ok(bytes),
            Combined::Malformed(from) => Err(malformed(from, what)),
            Combined::Differ([(rank, given), (other, other_given)]) => {
                Err(CommError::Arguments { call: method, rank, given, other, other_given })
            }
        }
    }

    /// Sends to a few ranks and receives from those that sent to this one. No rank needs to know its senders
    /// beforehand. Received messages come sorted by their sender. Collective. Blocks until all ranks have called it and
    /// every message has been received.
    ///
    /// # Errors
    /// [`CommError::NoSuchRank`] if a receiver does not exist; those of
    /// [collective calls](Communicator#errors-of-collective-calls).
    ///
    /// # Method
    /// Non-blocking consensus (Hoefler, Siebert, Lumsdaine 2010). Every message is acknowledged. A rank
    /// that has all acknowledgements enters a barrier that does not block. When the
    /// barrier is over, no message is in flight. No memory or message grows with the number of ranks.
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

/// The contribution of a subtree of ranks to a call, or its result.
#[derive(Debug)]
enum Combined {
    /// All ranks passed these arguments.
    Data { arguments: String, bytes: Vec<u8> },
    /// Two ranks passed different arguments.
    Differ([(usize, String); 2]),
    /// The message of this rank is malformed.
    Malformed(usize),
}

impl Combined {
    const DATA: usize = 0;
    const DIFFER: usize = 1;
    const MALFORMED: usize = 2;

    /// A list of tagged byte strings: what it is, then its parts.
    fn write(&self) -> Vec<u8> {
        let mut written = Vec::new();
        match self {
            Self::Data { arguments, bytes } => {
                written.reserve(bytes.len() + arguments.len() + 64);
                put(&mut written, Self::DATA, arguments.as_bytes());
                written.extend_from_slice(bytes);
            }
            Self::Differ(pair) => {
                put(&mut written, Self::DIFFER, &[]);
                pair.iter().for_each(|(rank, arguments)| put(&mut written, *rank, arguments.as_bytes()));
            }
            Self::Malformed(from) => {
                put(&mut written, Self::MALFORMED, &[]);
                put(&mut written, *from, &[]);
            }
        }
        written
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (kind, arguments) = take(&mut bytes)?;
        let mut one = || take(&mut bytes).map(|(rank, arguments)| (rank, text(arguments)));
        match kind {
            Self::DATA => Some(Self::Data { arguments: text(arguments), bytes: bytes.to_vec() }),
            Self::DIFFER => Some(Self::Differ([one()?, one()?])),
            Self::MALFORMED => Some(Self::Malformed(one()?.0)),
            _ => None,
        }
    }

    /// The same after a malformed message of a rank; an earlier failure stays.
    fn malformed(self, from: usize) -> Self {
        match self {
            Self::Data { .. } => Self::Malformed(from),
            failed => failed,
        }
    }
}

/// The type of values, for errors, with their number where the type has one.
fn type_of<V: Values>() -> String {
    match V::COUNT {
        Some(count) => count_of::<V::Number>(count),
        None => format!("{} values", V::Number::name()),
    }
}

fn count_of<T: Number>(count: usize) -> String {
    format!("{count} {} value{}", T::name(), if count == 1 { "" } else { "s" })
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
    /// Begins a barrier. Collective.
    pub(crate) fn start(comm: &Communicator) -> Self {
        Self { call: Call::begin(comm, "barrier"), first: 0, step: 0, sent: false }
    }

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

/// Parent and children of a rank in the binomial tree over `size` ranks with root 0.
fn tree(rank: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let lowest_bit = if rank == 0 { size.next_power_of_two() } else { 1 << rank.trailing_zeros() };
    let children = (0..lowest_bit.trailing_zeros()).map(|k| rank + (1 << k)).filter(|&child| child < size);
    let parent = (rank != 0).then(|| rank - lowest_bit);
    (parent, children.collect())
}

/// Appends a byte string and a number.
pub(crate) fn put(packed: &mut Vec<u8>, number: usize, bytes: &[u8]) {
    packed.extend_from_slice(&(number as u64).to_le_bytes());
    packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    packed.extend_from_slice(bytes);
}

/// Takes what [`put`] has appended.
pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let (number, tail) = rest.split_first_chunk::<8>()?;
    let (len, tail) = tail.split_first_chunk::<8>()?;
    let (bytes, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *rest = tail;
    Some((usize::try_from(u64::from_le_bytes(*number)).ok()?, bytes))
}

fn malformed(from: usize, what: &str) -> CommError {
    CommError::Malformed { from, what: what.to_owned() }
}
