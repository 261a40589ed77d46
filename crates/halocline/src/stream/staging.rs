//! Links by messages: staged through pinned memory of both sides, chunk by chunk.
//!
//! Everything is given to the streams beforehand and waits for words in pinned memory; whoever serves the object, most
//! often the progress thread, sends what is packed and puts in place what has come:
//!
//! | who | waits for | then | then raises |
//! | --- | --- | --- | --- |
//! | sender's stream | `sent`, two epochs behind | packs into one of two slots | `packed` of each chunk |
//! | sender's host | `packed` of a chunk | sends it | `sent`, after the last chunk (and, where no messages come back, an acknowledgement of two epochs before) |
//! | receiver's host | the message; that its stream is done with the epoch before the last | copies into a slot | `staged` of the chunk |
//! | receiver's stream | `staged` of a chunk | unpacks it | |

use super::{LINE, Scheduled};
use crate::error::Cause;
use crate::link::SLOTS;
use halocline_comm::{Claim, CommError, Communicator, Tag, buffers};
use halocline_device::{Address, Memory};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that are worth a message of their own.
pub(crate) const CHUNK: usize = 1 << 20;

/// Chunks of one exchange over one link; the rest goes with the last.
pub(crate) const CHUNKS: usize = 64;

/// Rounds of messages that are no data: above all epochs.
const ACKNOWLEDGED: u64 = 1 << 63;

/// The staged links of an object, and how far the host is with each.
pub(crate) struct Staging {
    /// The operation of its messages.
    pub(crate) operation: u64,
    pub(crate) stages: Vec<Stage>,
    claim: Claim,
}

/// One side of a staged link: [`CHUNKS`] words that are raised chunk by chunk, a word `sent`, two slots; pinned.
pub(crate) struct Stage {
    pub(crate) link: usize,
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    /// No messages come back, so that the sender could run ahead: the receiver says what it has put in place.
    pub(crate) acknowledged: bool,
    pub(crate) memory: Memory,
    /// Bytes of a slot.
    pub(crate) capacity: usize,
    /// For each set, the chunks of its message.
    pub(crate) chunks: Vec<Vec<Range<usize>>>,
    /// The exchange that the host is at, and the chunk of it. Under the claim.
    at: (AtomicU64, AtomicUsize),
}

/// Where `sent` lies.
const SENT: usize = CHUNKS * LINE;
const SLOT: usize = SENT + LINE;

impl Stage {
    pub(crate) fn bytes(capacity: usize) -> usize {
        SLOT + SLOTS as usize * capacity.next_multiple_of(LINE)
    }

    pub(crate) fn new(
        (link, peer, sends, acknowledged): (usize, usize, bool, bool),
        memory: Memory,
        capacity: usize,
        chunks: Vec<Vec<Range<usize>>>,
    ) -> Self {
        let at = (AtomicU64::new(1), AtomicUsize::new(0));
        Self { link, peer, sends, acknowledged, memory, capacity, chunks, at }
    }

    /// `packed`, or `staged`, of a chunk.
    pub(crate) fn raised(&self, chunk: usize) -> Address {
        self.memory.at(chunk * LINE)
    }

    pub(crate) fn sent(&self) -> Address {
        self.memory.at(SENT)
    }

    pub(crate) fn slot(&self, parity: usize) -> Address {
        self.memory.at(self.offset(parity as u64))
    }

    fn offset(&self, epoch: u64) -> usize {
        SLOT + (epoch % SLOTS) as usize * self.capacity.next_multiple_of(LINE)
    }

    /// The words that streams wait for on this side.
    pub(crate) fn awaited(&self) -> Vec<Address> {
        match self.sends {
            true => vec![self.sent()],
            false => {
                let most = self.chunks.iter().map(Vec::len).max().unwrap_or(0);
                (0..most).map(|chunk| self.raised(chunk)).collect()
            }
        }
    }
}

impl Staging {
    pub(crate) fn new(operation: u64, stages: Vec<Stage>) -> Self {
        Self { operation, stages, claim: Claim::default() }
    }

    fn tag(&self, epoch: u64, chunk: usize) -> Tag {
        Tag { operation: self.operation, round: epoch * CHUNKS as u64 + chunk as u64 }
    }

    fn acknowledgement(&self, epoch: u64) -> Tag {
        Tag { operation: self.operation, round: ACKNOWLEDGED | epoch }
    }

    /// Whether all that was packed up to an exchange is sent, and all that the peers wait to hear of is said.
    pub(super) fn is_sent(&self, epoch: u64) -> bool {
        let mut due = self.stages.iter().filter(|stage| stage.sends || stage.acknowledged);
        due.all(|stage| stage.at.0.load(Ordering::Acquire) > epoch)
    }

    /// The first exchange that the host is not through with, on any link.
    pub(super) fn oldest(&self) -> u64 {
        let at = self.stages.iter().map(|stage| stage.at.0.load(Ordering::Acquire));
        at.min().unwrap_or(u64::MAX / 2)
    }

    /// Throws away what messages still wait in the inbox.
    pub(super) fn forget(&self, comm: &Communicator) {
        if !self.stages.is_empty() {
            comm.link().inbox().forget(self.operation);
        }
    }
}

impl Scheduled {
    /// Sends what is packed, puts in place what has come. Never waits; one thread at a time.
    pub(super) fn carry_on(&self) {
        let Some(staging) = self.staging.as_ref() else { return };
        self.comm.link().poll();
        staging.claim.turn(|| {
            for stage in &staging.stages {
                if self.failure().is_some() {
                    return;
                }
                let carried = match stage.sends {
                    true => self.send_chunks(staging, stage),
                    false => self.stage_chunks(staging, stage),
                };
                match carried {
                    Ok(None) => {}
                    Ok(Some(cause)) => self.fail(&self.links[stage.link], cause, stage.peer),
                    Err(error) => {
                        tracing::warn!("rank {}: link with rank {}: {error}", self.comm.rank(), stage.peer);
                        self.fail(&self.links[stage.link], Cause::Died, stage.peer);
                    }
                }
            }
        });
    }

    fn send_chunks(&self, staging: &Staging, stage: &Stage) -> Result<Option<Cause>, CommError> {
        let (epoch, chunk) = &stage.at;
        loop {
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            if now > self.epoch() {
                return Ok(None);
            }
            let set = self.set_of(now);
            if let Some(range) = stage.chunks[set].get(at) {
                // SAFETY: written by tables alone.
                if unsafe { stage.memory.load(at * LINE) } < now {
                    return Ok(None);
                }
                let slot = stage.offset(now);
                // SAFETY: the chunk is packed, and is packed again only once it is said to be sent, below.
                let bytes = unsafe { stage.memory.bytes(slot + range.start..slot + range.end) };
                let mut message = buffers::take(bytes.len() + size_of::<u64>() + Communicator::ROOM);
                message.extend_from_slice(bytes);
                message.extend_from_slice(&(set as u64).to_le_bytes());
                self.comm.send(stage.peer, staging.tag(now, at), message)?;
                chunk.store(at + 1, Ordering::Relaxed);
                continue;
            }
            if stage.acknowledged && now > SLOTS {
                let tag = staging.acknowledgement(now - SLOTS);
                if self.comm.link().inbox().take(tag, Some(stage.peer)).is_none() {
                    return Ok(None);
                }
            }
            // SAFETY: streams read it.
            unsafe { stage.memory.store(SENT, now) };
            chunk.store(0, Ordering::Relaxed);
            epoch.store(now + 1, Ordering::Release);
        }
    }

    fn stage_chunks(&self, staging: &Staging, stage: &Stage) -> Result<Option<Cause>, CommError> {
        let (epoch, chunk) = &stage.at;
        loop {
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            // All is unpacked on the first lane.
            if now > self.epoch() || self.lanes[0].done() + SLOTS < now {
                return Ok(None);
            }
            let set = self.set_of(now);
            let Some(range) = stage.chunks[set].get(at) else {
                if stage.acknowledged {
                    self.comm.send(stage.peer, staging.acknowledgement(now), Vec::new())?;
                }
                chunk.store(0, Ordering::Relaxed);
                epoch.store(now + 1, Ordering::Release);
                continue;
            };
            let tag = staging.tag(now, at);
            let Some(message) = self.comm.link().inbox().take(tag, Some(stage.peer)) else { return Ok(None) };
            let payload = match message.payload.split_last_chunk() {
                Some((_, theirs)) if u64::from_le_bytes(*theirs) != set as u64 => {
                    let theirs = u64::from_le_bytes(*theirs);
                    return Ok(Some(self.links[stage.link].clash(&self.comm, set, theirs)));
                }
                Some((payload, _)) if payload.len() == range.len() => payload,
                _ => return Ok(Some(Cause::Malformed)),
            };
            let slot = stage.offset(now);
            // SAFETY: the stream is through with what the slot held two epochs ago, and waits for the word below.
            unsafe {
                stage.memory.bytes_mut(slot + range.start..slot + range.end).copy_from_slice(payload);
                stage.memory.store(at * LINE, now);
            }
            buffers::put(message.payload);
            chunk.store(at + 1, Ordering::Relaxed);
        }
    }
}

/// The chunks of a message of such pieces, in order: each at least so many bytes, but the last. With each, which
/// pieces it has.
pub(crate) fn chunks(pieces: &[usize], least: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let mut chunks: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let total: usize = pieces.iter().sum();
    let size = least.max(total.div_ceil(CHUNKS));
    let (mut begin, mut first, mut end) = (0, 0, 0);
    for (number, bytes) in pieces.iter().enumerate() {
        end += bytes;
        if end - begin >= size || number + 1 == pieces.len() {
            chunks.push((begin..end, first..number + 1));
            (begin, first) = (end, number + 1);
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_message_in_order_and_are_not_too_many() {
        assert!(chunks(&[], CHUNK).is_empty());
        assert_eq!(chunks(&[8, 8], CHUNK), [(0..16, 0..2)]);
        for pieces in [vec![CHUNK; 3], vec![CHUNK / 2; 7], vec![3 * CHUNK, 1, 1], vec![CHUNK; 500]] {
            let (total, made) = (pieces.iter().sum(), chunks(&pieces, CHUNK));
            assert!(made.len() <= CHUNKS, "{} chunks", made.len());
            let (mut byte, mut piece) = (0, 0);
            for (bytes, of) in &made {
                assert_eq!((bytes.start, of.start), (byte, piece));
                assert_eq!(bytes.len(), pieces[of.clone()].iter().sum::<usize>());
                (byte, piece) = (bytes.end, of.end);
            }
            assert_eq!((byte, piece), (total, pieces.len()));
        }
    }
}
