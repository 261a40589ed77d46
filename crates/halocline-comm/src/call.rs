//! Detects ranks that make different collective calls, and names the calls.
//!
//! Each collective call takes a number, the same on all ranks as long as all make the same calls in the same order. A message
//! with a call's number but another kind proves that its sender makes another call at this position. The first rank that finds
//! such a message reports it to all others, and the communicator fails every call from then on.
//! If both calls begin with a wait, there is no such message: so a wait that takes a second announces its call to the rank that
//! it waits for.

#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(test)]
mod tests;

use crate::collective::{put, take};
use crate::communicator::{Communicator, mix};
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::inbox::{Message, Tag};
use std::sync::PoisonError;

/// Bits 63 and 62 of the rounds of these messages, and of no others.
const MARK: u64 = 0b01 << 62;
/// Below them are the kind of the call, then this many bits of the round within the call.
const ROUND: u32 = 32;
const KINDS: u64 = (1 << 30) - 1;
/// Rounds without data: the sender waits in this call; two ranks make different calls.
const ANNOUNCED: u64 = u32::MAX as u64;
const MISMATCH: u64 = ANNOUNCED - 1;

/// Operations that are remembered to be compared with calls of other ranks.
const LASTING: usize = 64;

/// Separates the name of a call from that of its part.
const PART: char = '\u{1f}';
/// The most bytes of a name, whose length is one byte in a message.
const LONGEST: usize = u8::MAX as usize;

/// A collective call in progress on this rank, an operation that goes on beside calls, or another wait for a rank.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number, hashed.
    operation: u64,
    /// A hash of its name; 0: no collective call.
    kind: u64,
    name: String,
}

impl Call {
    /// Begins the next collective call: `method`, or the function that it is a part of.
    pub(crate) fn begin(comm: &Communicator, method: &str) -> Self {
        let name = comm.within.map_or_else(|| method.to_owned(), |within| format!("{within}{PART}{method}"));
        let hash = name.bytes().fold(1, |hash, byte| mix(hash ^ u64::from(byte)));
        Self { operation: comm.begin(), kind: (hash & KINDS).max(1), name }
    }

    /// Begins an operation that all ranks begin, and that goes on beside calls.
    pub fn lasting(comm: &Communicator, name: &str) -> Self {
        let call = Self::begin(comm, name);
        let mut lasting = comm.shared.lasting.lock().unwrap_or_else(PoisonError::into_inner);
        lasting.truncate(LASTING - 1);
        lasting.push_front(call.clone());
        call
    }

    /// A number for the messages of an operation: no operation with another name has it.
    pub fn operation(&self) -> u64 {
        mix(self.operation ^ self.kind)
    }

    /// A wait outside of collective calls; `operation` is no call's number.
    pub(crate) fn other(operation: u64, name: String) -> Self {
        Self { operation, kind: 0, name }
    }

    fn tag(&self, round: u64) -> Tag {
        Tag { operation: self.operation, round: MARK | self.kind << ROUND | round }
    }

    /// Sends a message, followed by the name of the call.
    pub(crate) fn send(
        &self,
        comm: &Communicator,
        to: usize,
        round: u64,
        data: &[u8],
    ) -> Result<(), CommError> {
        let name = &self.name.as_bytes()[..self.name.len().min(LONGEST)];
        let mut payload = Vec::with_capacity(data.len() + name.len() + 1 + Communicator::SPARE);
        payload.extend_from_slice(data);
        payload.extend_from_slice(name);
        payload.push(name.len() as u8);
        comm.send(to, self.tag(round), payload)
    }

    /// Takes a message of the call, if it has come.
    pub(crate) fn take(
        &self,
        comm: &Communicator,
        round: u64,
        from: Option<usize>,
        what: &str,
    ) -> Result<Option<Message>, CommError> {
        let Some(mut message) = comm.link().inbox().take(self.tag(round), from) else { return Ok(None) };
        let Some((data, _)) = split(&message.payload) else {
            return Err(CommError::Malformed { from: message.source, what: what.to_owned() });
        };
        message.payload.truncate(data.len());
        Ok(Some(message))
    }

    /// Waits for a message of the call.
    pub(crate) fn receive(
        &self,
        comm: &Communicator,
        from: usize,
        round: u64,
        what: &str,
    ) -> Result<Message, CommError> {
        comm.wait_in(self, Some(from), what, || self.take(comm, round, Some(from), what))
    }

    /// Announces to a rank that this one waits for it in this call.
    pub fn announce(&self, comm: &Communicator, to: usize) {
        // Without the announcement only the warning of that rank says less.
        let _ = self.send(comm, to, ANNOUNCED, &[]);
    }

    /// Ends the announcement.
    pub fn retract(&self, comm: &Communicator, to: usize) {
        // A message without a name.
        let _ = Self { name: String::new(), ..self.clone() }.send(comm, to, ANNOUNCED, &[]);
    }

    /// Fails if another rank makes another call where this one has begun an operation. Ranks that wait announce theirs.
    pub fn check_lasting(comm: &Communicator) -> Result<(), CommError> {
        let lasting = comm.shared.lasting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lasting.iter().try_for_each(|call| call.check(comm))
    }

    /// Fails if another rank makes another call at this position.
    pub(crate) fn check(&self, comm: &Communicator) -> Result<(), CommError> {
        check_reported(comm)?;
        let is_other = |tag: Tag| {
            let kind = tag.round >> ROUND & KINDS;
            tag.operation == self.operation && tag.round >> 62 == MARK >> 62 && kind != self.kind
        };
        let Some((rank, payload)) = comm.link().inbox().find(is_other) else { return Ok(()) };
        let theirs = split(&payload).map_or_else(|| "another call".to_owned(), |(_, name)| name);
        let calls = [(comm.rank(), &*self.name), (rank, &*theirs)];
        for other in (0..comm.size()).filter(|&other| other != comm.rank()) {
            // A rank that cannot be reached makes no calls.
            let _ = comm.send(other, mismatch_tag(comm), write(calls));
        }
        Err(comm.shared.mismatch.get_or_init(|| mismatch(calls)).clone())
    }
}

/// Fails once a rank has reported different calls.
pub(crate) fn check_reported(comm: &Communicator) -> Result<(), CommError> {
    let known = &comm.shared.mismatch;
    if known.get().is_none()
        && let Some(message) = comm.link().inbox().take(mismatch_tag(comm), None)
    {
        let from = message.source;
        let malformed = || CommError::Malformed { from, what: "different collective calls".to_owned() };
        known.get_or_init(|| read(&message.payload).unwrap_or_else(malformed));
    }
    known.get().map_or(Ok(()), |error| Err(error.clone()))
}

fn mismatch_tag(comm: &Communicator) -> Tag {
    Tag { operation: mix(!comm.shared.context), round: MARK | MISMATCH }
}

/// Whether a message begins or ends an announcement.
pub(crate) fn is_announcement(tag: Tag) -> bool {
    tag.round & !(KINDS << ROUND) == MARK | ANNOUNCED
}

/// The data of a message and the name of its call.
pub(crate) fn split(payload: &[u8]) -> Option<(&[u8], String)> {
    let (&length, rest) = payload.split_last()?;
    let (data, name) = rest.split_at_checked(rest.len().checked_sub(length.into())?)?;
    Some((data, String::from_utf8_lossy(name).into_owned()))
}

/// The call that a call is part of, or the call itself.
pub(crate) fn outer(name: &str) -> &str {
    name.split_once(PART).map_or(name, |(outer, _)| outer)
}

fn mismatch(mut calls: [(usize, &str); 2]) -> CommError {
    calls.sort_unstable();
    let [a, b] = calls.map(|(_, name)| name);
    let [call, other_call] = match outer(a) == outer(b) {
        false => [a, b].map(|name| outer(name).to_owned()),
        // Different parts of one call: an earlier part has failed on one of the ranks only.
        true => [a, b].map(|name| name.replace(PART, ", ")),
    };
    CommError::Mismatch { rank: calls[0].0, call, other: calls[1].0, other_call }
}

fn write(calls: [(usize, &str); 2]) -> Vec<u8> {
    let mut written = Vec::new();
    calls.iter().for_each(|(rank, name)| put(&mut written, *rank, name.as_bytes()));
    written
}

fn read(mut written: &[u8]) -> Option<CommError> {
    let mut one =
        || take(&mut written).map(|(rank, name)| (rank, String::from_utf8_lossy(name).into_owned()));
    let (a, b) = (one()?, one()?);
    Some(mismatch([(a.0, &a.1), (b.0, &b.1)]))
}
