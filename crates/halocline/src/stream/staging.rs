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
//! In a reduce the two sides change roles, in the same memory, and the message is one chunk, which the owner's stream combines. So `sent`
//! means of either side that the host and the transport are through with an epoch.
//!
//! If MPI accesses device memory (`bind/aware.rs`), the slots are there: a packed chunk is announced by a message and sent from its
//! slot, and received in a slot.

use super::stage::CHUNKS;
use super::watch::STAGED;
use super::{FlagSet, LINE, Scheduled, Stage};
use crate::error::Cause;
use crate::lifecycle::Engine;
use crate::link::{Link, SLOTS};
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

    /// Whether all chunks up to an epoch are sent, and all acknowledgements.
    pub(super) fn is_sent(&self, epoch: u64) -> bool {
        self.stages.iter().all(|stage| stage.sent.load(Ordering::Acquire) >= epoch)
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

    /// Whether the host has not yet sent, or stored, all of a link's message of an epoch.
    pub(super) fn is_behind(&self, stage: usize, epoch: u64) -> bool {
        self.stages[stage].at.0.load(Ordering::Acquire) <= epoch
    }

    /// The first epoch that the host has not finished, on any link.
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

/// Why a link can go on no more.
enum Broken {
    Link(Cause),
    Transport(CommError),
}

impl From<Cause> for Broken {
    fn from(cause: Cause) -> Self {
        Self::Link(cause)
    }
}

impl From<CommError> for Broken {
    fn from(error: CommError) -> Self {
        Self::Transport(error)
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
                match self.carry(staging, stage) {
                    Ok(()) => {}
                    Err(Broken::Link(cause)) => self.links[stage.link].fail(self.life(), cause, stage.peer),
                    Err(Broken::Transport(error)) => {
                        tracing::warn!("rank {}: link with rank {}: {error}", self.comm.rank(), stage.peer);
                        self.links[stage.link].fail(self.life(), Cause::Died, stage.peer);
                    }
                }
            }
        });
    }

    /// Does what can be done for a link: all chunks of an epoch, then its acknowledgements, then the next epoch.
    fn carry(&self, staging: &Staging, stage: &Stage) -> Result<(), Broken> {
        let (epoch, chunk) = &stage.at;
        loop {
            while stage.say_sent() {
                staging.moved(self);
            }
            self.await_chunks(staging, stage);
            if let Some(remote) = &stage.remote {
                self.ask_for_chunks(staging, stage, remote)?;
            }
            let (now, at) = (epoch.load(Ordering::Relaxed), chunk.load(Ordering::Relaxed));
            if now > stage.given.load(Ordering::Relaxed) {
                return Ok(());
            }
            let of = self.operation_of(now);
            let Some(range) = stage.chunks(of).get(at) else {
                if !self.acknowledge(staging, stage, now)? {
                    return Ok(());
                }
                chunk.store(0, Ordering::Relaxed);
                epoch.store(now + 1, Ordering::Release);
                continue;
            };
            let is_done = match (stage.sends_in(of), &stage.remote) {
                (true, _) => self.send_chunk(staging, stage, (now, at), range)?,
                (false, Some(_)) => self.stage_received(staging, stage, (now, at)),
                (false, None) => self.stage_message(staging, stage, (now, at), range)?,
            };
            if !is_done {
                return Ok(());
            }
            chunk.store(at + 1, Ordering::Relaxed);
        }
    }

    /// Sends a chunk; false if it is not packed yet.
    fn send_chunk(
        &self,
        staging: &Staging,
        stage: &Stage,
        at: (u64, usize),
        range: &Range<usize>,
    ) -> Result<bool, Broken> {
        let (epoch, chunk) = at;
        if !stage.is_packed(epoch, chunk) {
            return Ok(false);
        }
        let (place, tag) = (stage.place(at, range), staging.tag(epoch, chunk));
        let note = (self.number_of(epoch) as u64).to_le_bytes();
        match &stage.remote {
            Some(remote) => {
                let lent = stage.lend_remote(remote, at, (place, true)).ok_or(Cause::Malformed)?;
                self.comm.link().post_bulk(stage.peer, tag, note.to_vec(), lent)?;
            }
            None => {
                // SAFETY: the table has packed the chunk, as its word says, and packs there again only once `sent` says
                // so, which is not before the chunk is given back. The note lies in the gap behind it, and the host
                // alone uses that.
                let lent = unsafe {
                    let _ = stage.memory.bytes(place.clone());
                    stage.note(&place).write_unaligned(note);
                    stage.lend(at, place)
                };
                self.comm.send_borrowed(stage.peer, tag, lent)?;
            }
        }
        staging.moved(self);
        Ok(true)
    }

    /// Takes the acknowledgement that is due at the end of an epoch, and sends that of this epoch; false if the first one is not there.
    fn acknowledge(&self, staging: &Staging, stage: &Stage, epoch: u64) -> Result<bool, Broken> {
        let of = |epoch| Some(self.operation_of(epoch)).filter(|of| stage.is_acknowledged(*of));
        let before = epoch.saturating_sub(SLOTS);
        if before > 0 && of(before).is_some_and(|of| stage.sends_in(of)) {
            let inbox = self.comm.link().inbox();
            if inbox.take(staging.acknowledgement(before), Some(stage.peer)).is_none() {
                // The peer receives nothing if it has sent.
                let sent = inbox.take(staging.tag(before, 0), Some(stage.peer));
                let note = sent.and_then(|message| message.payload.last_chunk().copied());
                return note.map_or(Ok(false), |note| Err(self.clash(stage, before, note).into()));
            }
        }
        if of(epoch).is_some_and(|of| !stage.sends_in(of)) {
            self.comm.send(stage.peer, staging.acknowledgement(epoch), Vec::new())?;
        }
        Ok(true)
    }

    /// The cause of a failure, where the note of a peer's message names another operation than this rank's.
    fn clash(&self, stage: &Stage, epoch: u64, note: [u8; 8]) -> Cause {
        let theirs = FlagSet::of(u64::from_le_bytes(note) as usize, self.sets.max_sets());
        self.links[stage.link].clash(&self.comm, self.operation_of(epoch).subject(), theirs.subject())
    }

    /// Whether a message is one of this rank's operation of an epoch.
    fn check_note(&self, stage: &Stage, epoch: u64, note: [u8; 8]) -> Result<(), Cause> {
        match u64::from_le_bytes(note) == self.number_of(epoch) as u64 {
            true => Ok(()),
            false => Err(self.clash(stage, epoch, note)),
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
            let of = self.operation_of(now);
            let Some(range) = stage.chunks(of).get(at).filter(|_| !stage.sends_in(of)) else {
                chunk.store(0, Ordering::Relaxed);
                epoch.store(now + 1, Ordering::Relaxed);
                continue;
            };
            let announced = self.comm.link().inbox().take(staging.tag(now, at), Some(stage.peer));
            let Some(announced) = announced else { return Ok(()) };
            let note = announced.payload.last_chunk().ok_or(Cause::Malformed)?;
            self.check_note(stage, now, *note)?;
            let bulk = announced.bulk.ok_or(Cause::Malformed)?;
            let place = (stage.place((now, at), range), false);
            let place = stage.lend_remote(remote, (now, at), place).ok_or(Cause::Malformed)?;
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
            // The first lane is done after all others: all that the host has stored is unpacked then.
            let free = self.lanes[0].written().min(stage.sent.load(Ordering::Relaxed)) + SLOTS;
            if next > self.epoch() || next > free {
                return;
            }
            let of = self.operation_of(next);
            for (at, range) in stage.chunks(of).iter().enumerate() {
                if stage.remote.is_some() || stage.sends_in(of) {
                    break;
                }
                let tag = staging.tag(next, at);
                if self.comm.link().inbox().probe(tag, Some(stage.peer)).is_none() {
                    // SAFETY: the stream is through with what the slot held two epochs ago, as `written` says, and
                    // reads it again once the word of the chunk is raised, which is not before the chunk is given back.
                    let lent = unsafe { stage.lend((next, at), stage.place((next, at), range)) };
                    self.comm.post_receive(stage.peer, tag, lent);
                }
            }
            stage.given.store(next, Ordering::Relaxed);
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
        at: (u64, usize),
        range: &Range<usize>,
    ) -> Result<bool, Cause> {
        let (epoch, chunk) = at;
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
        let place = stage.place(at, range);
        let (payload, note) = match message.payload.split_last_chunk() {
            // SAFETY: the chunk was given back, and its message has landed with the note, which lies in the gap
            // behind it. The host alone uses that.
            None if message.in_place => (None, unsafe { stage.note(&place).read_unaligned() }),
            Some((payload, note)) => (Some(payload), *note),
            None => return Err(Cause::Malformed),
        };
        self.check_note(stage, epoch, note)?;
        // SAFETY: the chunk was given back, and the stream reads it only after the word below is raised.
        let bytes = unsafe { stage.memory.bytes_mut(place) };
        match payload {
            Some(payload) if payload.len() == bytes.len() => bytes.copy_from_slice(payload),
            Some(_) => return Err(Cause::Malformed),
            None => {}
        }
        // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone access it.
        unsafe { stage.memory.store(chunk * LINE, epoch) };
        buffers::put(message.payload);
        Ok(true)
    }
}
