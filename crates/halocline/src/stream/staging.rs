//! Staged links: messages through pinned memory of both sides, chunk by chunk.
//!
//! The streams get all their work beforehand and wait for flags in pinned memory. The thread that serves the object, usually the
//! progress thread, sends packed chunks and stores arrived ones:
//!
//! | who | waits for | then | then sets |
//! | --- | --- | --- | --- |
//! | sender's stream | `sent`, two epochs behind | packs into one of two slots | `packed` of each chunk |
//! | sender's host | `packed` of a chunk | sends it | `sent`, after the last chunk |
//! | receiver's host | its stream to finish epoch e - 2 | gives the slot to the transport for the message | |
//! | receiver's host | the message | copies it into the slot, unless it arrived there | `staged` of the chunk |
//! | receiver's stream | `staged` of two thirds of the chunks, then of the others | unpacks them | |
//!
//! If the receiver sends no messages, `sent` also requires the acknowledgement of epoch e - 2.
//!
//! If MPI accesses device memory (`bind/aware.rs`), the slots are there: a packed chunk is announced by a message and sent from its
//! slot, and received in a slot.

use super::stage::CHUNKS;
use super::watch::STAGED;
use super::{LINE, Scheduled, Stage};
use crate::error::Cause;
use crate::lifecycle::Engine;
use crate::link::{Link, SLOTS, Subject};
use halocline_comm::{Claim, CommError, Communicator, Cores, Endpoint, Tag, buffers};
use halocline_device::Memory;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For how long after a message the thread looks for the next without a pause.
const BUSY: Duration = Duration::from_micros(200);

/// If the rank has one core, a program thread may hold it, spinning for its GPU. The progress thread then works for `BURST` and sleeps
/// for `REST`: the scheduler runs a thread that uses only a share of the core as soon as it wakes, and delays one that uses more, or
/// yields, by milliseconds.
const BURST: Duration = Duration::from_micros(20);
const REST: Duration = Duration::from_micros(20);

/// Rounds of messages that carry no data: above all epochs.
const ACKNOWLEDGED: u64 = 1 << 63;

/// The staged links of an object, and the host's progress with each.
pub(crate) struct Staging {
    /// The operation of its messages.
    pub(crate) operation: u64,
    pub(crate) stages: Vec<Stage>,
    claim: Claim,
    /// When a message was last sent or stored, in nanoseconds of the host's clock.
    moved: AtomicU64,
    /// When the last rest was over.
    rested: AtomicU64,
}

impl Staging {
    pub(crate) fn new(operation: u64, stages: Vec<Stage>) -> Self {
        Self {
            operation,
            stages,
            claim: Claim::default(),
            moved: AtomicU64::new(0),
            rested: AtomicU64::new(0),
        }
    }

    fn tag(&self, epoch: u64, chunk: usize) -> Tag {
        Tag { operation: self.operation, round: epoch * CHUNKS as u64 + chunk as u64 }
    }

    fn acknowledgement(&self, epoch: u64) -> Tag {
        Tag { operation: self.operation, round: ACKNOWLEDGED | epoch }
    }

    /// Whether all chunks up to an exchange are sent, and all acknowledgements.
    pub(super) fn is_sent(&self, epoch: u64) -> bool {
        self.stages.iter().all(|stage| match stage.sends {
            true => stage.given.load(Ordering::Acquire) >= epoch,
            false => {
                !stage.sets.iter().any(|set| set.acknowledged) || stage.at.0.load(Ordering::Acquire) > epoch
            }
        })
    }

    fn moved(&self, of: &Scheduled) {
        let now = of.comm.link().host().now();
        self.moved.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether the next message is likely to follow at once: a thread that sleeps between messages would be late for each.
    pub(super) fn is_busy(&self, now: Duration) -> bool {
        now.saturating_sub(Duration::from_nanos(self.moved.load(Ordering::Relaxed))) < BUSY
    }

    /// The progress thread's pause between two looks while messages are on their way.
    pub(super) fn pause(&self, now: Duration, cores: Cores) -> Duration {
        match cores {
            Cores::Spare => Duration::ZERO,
            Cores::Oversubscribed => STAGED,
            Cores::OnePerRank => {
                let rested = Duration::from_nanos(self.rested.load(Ordering::Relaxed));
                if now.saturating_sub(rested) < BURST {
                    return Duration::ZERO;
                }
                self.rested.store((now + REST).as_nanos() as u64, Ordering::Relaxed);
                REST
            }
        }
    }

    /// Whether the host has not yet sent, or stored, all of a link's message of an exchange.
    pub(super) fn is_behind(&self, stage: usize, epoch: u64) -> bool {
        self.stages[stage].at.0.load(Ordering::Acquire) <= epoch
    }

    /// The first exchange that the host has not finished, on any link.
    pub(super) fn oldest(&self) -> u64 {
        let at = self.stages.iter().map(|stage| stage.at.0.load(Ordering::Acquire));
        at.min().unwrap_or(u64::MAX / 2)
    }

    /// Discards the messages that are left in the inbox, and waits for no others.
    pub(super) fn forget(&self, comm: &Communicator) {
        if !self.stages.is_empty() {
            comm.cancel_receives(None, |tag| tag.operation == self.operation);
            comm.link().inbox().forget(self.operation);
        }
    }
}

impl Scheduled {
    /// Whether a link's messages travel from device memory to device memory, without host memory.
    pub(crate) fn is_far(&self, link: &Link) -> bool {
        let of =
            |stage: &Stage| stage.remote.is_some() && std::ptr::eq(&raw const self.links[stage.link], link);
        self.staging.as_ref().is_some_and(|staging| staging.stages.iter().any(of))
    }

    /// Sends packed chunks and stores arrived ones. Never waits; one thread at a time.
    pub(super) fn carry_on(&self) {
        let Some(staging) = self.staging.as_ref() else { return };
        let link = self.comm.link();
        link.poll();
        let owes = || link.own_bell().demand(link.host());
        staging.claim.turn(owes, || {
            for stage in &staging.stages {
                if self.life().failure().is_some() {
                    return;
                }
                let carried = match stage.sends {
                    true => self.send_chunks(staging, stage),
                    false => self.stage_chunks(staging, stage),
                };
                match carried {
                    Ok(None) => {}
                    Ok(Some(cause)) => self.links[stage.link].fail(self.life(), cause, stage.peer),
                    Err(error) => {
                        tracing::warn!("rank {}: link with rank {}: {error}", self.comm.rank(), stage.peer);
                        self.links[stage.link].fail(self.life(), Cause::Died, stage.peer);
                    }
                }
            }
        });
    }

    fn send_chunks(&self, staging: &Staging, stage: &Stage) -> Result<Option<Cause>, CommError> {
        let (epoch, chunk) = &stage.at;
        loop {
            while stage.say_sent() {
                staging.moved(self);
            }
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            if now > self.epoch() {
                return Ok(None);
            }
            let set = self.set_of(now);
            if let Some(range) = stage.sets[set].chunks.get(at) {
                // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone write it.
                if unsafe { stage.memory.load(at * LINE) } < now {
                    return Ok(None);
                }
                let place = stage.place(now, at, range);
                if let Some(remote) = &stage.remote {
                    let Some(lent) = stage.lend_remote(remote, now, at, place) else {
                        return Ok(Some(Cause::Malformed));
                    };
                    let note = (set as u64).to_le_bytes().to_vec();
                    self.comm.link().post_bulk(stage.peer, staging.tag(now, at), note, lent)?;
                    staging.moved(self);
                    chunk.store(at + 1, Ordering::Relaxed);
                    continue;
                }
                // SAFETY: the table has packed the chunk, as its word says, and packs there again only once `sent` says
                // so, which is not before the chunk is given back. The note lies in the gap behind it, and the host
                // alone uses that.
                let lent = unsafe {
                    let _ = stage.memory.bytes(place.clone());
                    stage.note(&place).write_unaligned((set as u64).to_le_bytes());
                    stage.lend(now, at, place)
                };
                self.comm.send_borrowed(stage.peer, staging.tag(now, at), lent)?;
                staging.moved(self);
                chunk.store(at + 1, Ordering::Relaxed);
                continue;
            }
            if now > SLOTS && stage.sets[self.set_of(now - SLOTS)].acknowledged {
                let tag = staging.acknowledgement(now - SLOTS);
                if self.comm.link().inbox().take(tag, Some(stage.peer)).is_none() {
                    return Ok(None);
                }
            }
            chunk.store(0, Ordering::Relaxed);
            epoch.store(now + 1, Ordering::Release);
        }
    }

    /// Receives announced chunks in their slots, in order, as the slots become free.
    fn ask_for_chunks(&self, staging: &Staging, stage: &Stage, remote: &Arc<Memory>) -> Result<(), Cause> {
        let (epoch, chunk) = &stage.asked;
        loop {
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            if now > stage.given.load(Ordering::Relaxed) {
                return Ok(());
            }
            let set = self.set_of(now);
            let Some(range) = stage.sets[set].chunks.get(at) else {
                chunk.store(0, Ordering::Relaxed);
                epoch.store(now + 1, Ordering::Relaxed);
                continue;
            };
            let announced = self.comm.link().inbox().take(staging.tag(now, at), Some(stage.peer));
            let Some(announced) = announced else { return Ok(()) };
            let theirs = announced.payload.as_slice().try_into().map_err(|_| Cause::Malformed)?;
            let theirs = u64::from_le_bytes(theirs);
            if theirs != set as u64 {
                return Err(self.links[stage.link].clash(
                    &self.comm,
                    Subject::new(set, None),
                    Subject::new(theirs as usize, None),
                ));
            }
            let bulk = announced.bulk.ok_or(Cause::Malformed)?;
            let place =
                stage.lend_remote(remote, now, at, stage.place(now, at, range)).ok_or(Cause::Malformed)?;
            bulk.post_receive(place).map_err(|_| Cause::Malformed)?;
            staging.moved(self);
            chunk.store(at + 1, Ordering::Relaxed);
        }
    }

    /// Whether a chunk that was asked for is in its slot.
    fn is_received(stage: &Stage, epoch: u64, chunk: usize) -> bool {
        let (asked, next) = (stage.asked.0.load(Ordering::Relaxed), stage.asked.1.load(Ordering::Relaxed));
        (asked, next) > (epoch, chunk) && !stage.is_lent(epoch, chunk)
    }

    /// Gives free slots to the transport for the next messages.
    fn await_chunks(&self, staging: &Staging, stage: &Stage) {
        loop {
            let next = stage.given.load(Ordering::Relaxed) + 1;
            // The first lane unpacks everything that the host has stored.
            let free = self.lanes[0].written().min(stage.at.0.load(Ordering::Relaxed) - 1) + SLOTS;
            if next > self.epoch() || next > free {
                return;
            }
            for (at, range) in stage.sets[self.set_of(next)].chunks.iter().enumerate() {
                if stage.remote.is_some() {
                    break;
                }
                let tag = staging.tag(next, at);
                if self.comm.link().inbox().probe(tag, Some(stage.peer)).is_none() {
                    // SAFETY: the stream is through with what the slot held two epochs ago, as `written` says, and
                    // reads it again once the word of the chunk is raised, which is not before the chunk is given back.
                    let lent = unsafe { stage.lend(next, at, stage.place(next, at, range)) };
                    self.comm.post_receive(stage.peer, tag, lent);
                }
            }
            stage.given.store(next, Ordering::Relaxed);
        }
    }

    /// Stores what has arrived in the slots of a link; the cause if the link fails.
    fn stage_chunks(&self, staging: &Staging, stage: &Stage) -> Result<Option<Cause>, CommError> {
        let (epoch, chunk) = &stage.at;
        loop {
            self.await_chunks(staging, stage);
            if let Some(remote) = &stage.remote
                && let Err(cause) = self.ask_for_chunks(staging, stage, remote)
            {
                return Ok(Some(cause));
            }
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            if now > stage.given.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let set = self.set_of(now);
            let Some(range) = stage.sets[set].chunks.get(at) else {
                if stage.sets[set].acknowledged {
                    self.comm.send(stage.peer, staging.acknowledgement(now), Vec::new())?;
                }
                chunk.store(0, Ordering::Relaxed);
                epoch.store(now + 1, Ordering::Release);
                continue;
            };
            let is_there = match stage.remote {
                Some(_) => Ok(self.stage_received(staging, stage, (now, at))),
                None => self.stage_message(staging, stage, (now, at), range),
            };
            match is_there {
                Ok(true) => chunk.store(at + 1, Ordering::Relaxed),
                Ok(false) => return Ok(None),
                Err(cause) => return Ok(Some(cause)),
            }
        }
    }

    /// Tells the stream that a chunk which was asked for is in its slot; false if it is not there yet.
    fn stage_received(&self, staging: &Staging, stage: &Stage, (epoch, chunk): (u64, usize)) -> bool {
        if !Self::is_received(stage, epoch, chunk) {
            return false;
        }
        // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone access it.
        unsafe { stage.memory.store(chunk * LINE, epoch) };
        staging.moved(self);
        true
    }

    /// Stores the message of a chunk in its slot, unless it has landed there, and tells the stream; false if it is not there yet.
    fn stage_message(
        &self,
        staging: &Staging,
        stage: &Stage,
        (epoch, chunk): (u64, usize),
        range: &Range<usize>,
    ) -> Result<bool, Cause> {
        let (inbox, tag) = (self.comm.link().inbox(), staging.tag(epoch, chunk));
        if inbox.probe(tag, Some(stage.peer)).is_none() {
            return Ok(false);
        }
        self.comm.cancel_receives(Some(stage.peer), |other| other == tag);
        // Otherwise the transport is writing another message there, and will copy it away.
        if stage.is_lent(epoch, chunk) {
            return Ok(false);
        }
        let Some(message) = inbox.take(tag, Some(stage.peer)) else { return Ok(false) };
        staging.moved(self);
        let place = stage.place(epoch, chunk, range);
        let (payload, theirs) = match message.payload.split_last_chunk() {
            // SAFETY: the chunk was given back, and its message has landed with the note, which lies in the gap
            // behind it. The host alone uses that.
            None if message.in_place => (None, unsafe { stage.note(&place).read_unaligned() }),
            Some((payload, theirs)) if payload.len() == range.len() => (Some(payload), *theirs),
            _ => return Err(Cause::Malformed),
        };
        let (set, theirs) = (self.set_of(epoch), u64::from_le_bytes(theirs));
        if theirs != set as u64 {
            return Err(self.links[stage.link].clash(
                &self.comm,
                Subject::new(set, None),
                Subject::new(theirs as usize, None),
            ));
        }
        // SAFETY: the chunk was given back, and the stream reads it only after the word below is raised.
        let bytes = unsafe { stage.memory.bytes_mut(place) };
        if let Some(payload) = payload {
            bytes.copy_from_slice(payload);
        }
        // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone access it.
        unsafe { stage.memory.store(chunk * LINE, epoch) };
        buffers::put(message.payload);
        Ok(true)
    }
}
