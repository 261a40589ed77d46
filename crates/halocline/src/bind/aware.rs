//! Decides whether messages travel from device memory to device memory. If the transport claims to access device memory, both sides make it
//! carry bytes between the slots of a link and compare them. If the bytes are wrong, the slots are in pinned memory, and
//! [`crate::HaloExchange::explain`] shows why.

use super::connect::Connected;
use super::lanes::Opened;
use super::sides::capacity;
use crate::error::Error;
use crate::link::{Direction, LinkPath, SLOTS};
use crate::stream::{Stage, chunks, offset};
use halocline_comm::{Borrowed, Communicator, Endpoint, Surround, Tag};
use halocline_device::{Device, Memory};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of the slots, for the links whose messages travel between device memories.
pub(super) type Slots = HashMap<usize, Arc<Memory>>;

/// Links that do not use memory of devices, and why.
type Reasons = Vec<(usize, String)>;

/// Links that were tested, and the reasons against them.
type Verdicts = Vec<(Candidate, Result<(), String>)>;

/// Rounds of messages: the states of sender and receiver, the receiver's verdict on the bytes, and the bytes.
const SENDER: u64 = 0;
const RECEIVER: u64 = 1;
const VERDICT: u64 = 2;
const BYTES: u64 = 16;

/// The verdict that the bytes are right: no reason against it.
const YES: &str = "";

/// Makes this device current, for libraries that act on the thread's current device.
struct Within(Device);

impl Surround for Within {
    fn within(&self, work: &mut dyn FnMut()) {
        self.0.driver().within(work);
    }
}

/// A link that is tested.
struct Candidate {
    link: usize,
    peer: usize,
    sends: bool,
    memory: Arc<Memory>,
    /// The memory of the test bytes: all of both slots.
    places: Vec<Range<usize>>,
    /// Ranges that the transport holds.
    out: Arc<AtomicUsize>,
}

/// Tests all links by messages. Both ranks of a link take part, and wait only for each other.
pub(super) fn prove(
    comm: &Communicator,
    operation: u64,
    opened: &Opened,
    made: &mut Connected,
) -> Result<Slots, Error> {
    let tag = |round| Tag { operation, round };
    let (candidates, mut reasons) = agree_on_candidates(comm, tag, opened, made)?;
    if let Some(device) = opened.devices.first().filter(|_| !candidates.is_empty()) {
        comm.link().surround(Arc::new(Within(device.clone())));
    }
    let mut slots = Slots::new();
    for (candidate, verdict) in exchange_bytes(comm, tag, opened, candidates)? {
        match verdict {
            Ok(()) => drop(slots.insert(candidate.link, candidate.memory)),
            Err(why) => {
                tracing::warn!("rank {}: link with rank {}: {why}", comm.rank(), candidate.peer);
                reasons.push((candidate.link, why));
            }
        }
    }
    comm.link().inbox().forget(operation);
    for (link, reason) in reasons {
        let why = &mut made.links[link].why;
        *why = Some(why.take().map_or_else(|| reason.clone(), |before| format!("{before}; {reason}")));
    }
    Ok(slots)
}

/// The links that both ranks can test, and why the others are not tested.
fn agree_on_candidates(
    comm: &Communicator,
    tag: impl Fn(u64) -> Tag,
    opened: &Opened,
    made: &Connected,
) -> Result<(Vec<Candidate>, Reasons), Error> {
    let (mut candidates, mut reasons) = (Vec::new(), Vec::new());
    let ends = made.ends.iter().flat_map(|end| end.links.iter().map(|&link| (end.peer, link)));
    let links: Vec<(usize, usize)> =
        ends.filter(|&(_, link)| made.links[link].path == LinkPath::Message).collect();
    let is_sent = |link: usize| made.links[link].direction == Direction::Send;
    for &(peer, link) in &links {
        let found = candidate(comm, opened, made, (peer, link));
        let answer = found.as_ref().map_or_else(String::as_str, |_| YES);
        let round = if is_sent(link) { SENDER } else { RECEIVER };
        comm.send(peer, tag(round), answer.as_bytes().to_vec())?;
        match found {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => reasons.push((link, why)),
        }
    }
    for &(peer, link) in &links {
        let round = if is_sent(link) { RECEIVER } else { SENDER };
        let answer = comm.receive(Some(peer), tag(round), "memory of devices for messages")?.payload;
        if answer != YES.as_bytes() {
            candidates.retain(|candidate| candidate.link != link);
            reasons.push((link, format!("rank {peer}: {}", String::from_utf8_lossy(&answer))));
        }
    }
    Ok((candidates, reasons))
}

/// Sends and receives the bytes of all candidates. Returns them with their verdicts.
fn exchange_bytes(
    comm: &Communicator,
    tag: impl Fn(u64) -> Tag + Copy,
    opened: &Opened,
    candidates: Vec<Candidate>,
) -> Result<Verdicts, Error> {
    let mut found = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.sends) {
        candidate.send(comm, opened, tag)?;
        found.push(Ok(()));
    }
    for candidate in candidates.iter().filter(|candidate| !candidate.sends) {
        let verdict = candidate.receive(comm, opened, tag)?;
        comm.send(candidate.peer, tag(VERDICT), verdict.clone().err().unwrap_or_default().into_bytes())?;
        found.push(verdict);
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| one.sends);
    let mut judged: Verdicts = senders.into_iter().chain(receivers).zip(found).collect();
    for (candidate, verdict) in &mut judged {
        if candidate.sends {
            let answer =
                comm.receive(Some(candidate.peer), tag(VERDICT), "a verdict on memory of devices")?;
            if answer.payload != YES.as_bytes() {
                *verdict =
                    Err(format!("rank {}: {}", candidate.peer, String::from_utf8_lossy(&answer.payload)));
            }
        }
        // The transport has finished with it on this rank, too.
        let is_back = || Ok((candidate.out.load(Ordering::Acquire) == 0).then_some(()));
        comm.wait_for(Some(candidate.peer), "memory of devices on its way", is_back)?;
    }
    Ok(judged)
}

/// Memory for the slots of a link, or why it cannot be allocated.
fn candidate(
    comm: &Communicator,
    opened: &Opened,
    made: &Connected,
    (peer, link): (usize, usize),
) -> Result<Candidate, String> {
    comm.link().accepts_device_memory(peer)?;
    let device = opened.devices.first().ok_or("this rank has no device")?;
    if !device.sees_writes_of_networks() {
        return Err("what a network card writes into this device's memory would have to be flushed".into());
    }
    let capacity = capacity(made, link);
    let memory = device.allocate(Stage::slots(capacity)).map_err(|error| error.to_string())?;
    memory.handed_over(0..0, false).ok_or("no MPI takes memory of this kind of device")?;
    let place = |epoch: u64| {
        let chunks = chunks(capacity, made.links[link].chunk).into_iter().enumerate();
        chunks.map(move |(at, bytes)| {
            let begin = offset(capacity, epoch, at) + bytes.start;
            begin..begin + bytes.len()
        })
    };
    let places: Vec<Range<usize>> = (0..SLOTS).flat_map(place).collect();
    if let Some(long) = places.iter().map(Range::len).find(|&bytes| bytes > Communicator::LONGEST_BULK) {
        return Err(format!("a chunk of {long} bytes is too long"));
    }
    let (memory, out) = (Arc::new(memory), Arc::default());
    let sends = made.links[link].direction == Direction::Send;
    Ok(Candidate { link, peer, sends, memory, places, out })
}

impl Candidate {
    /// Sends the bytes that the receiver expects, or wrong ones if they cannot be written.
    fn send(&self, comm: &Communicator, opened: &Opened, tag: impl Fn(u64) -> Tag) -> Result<(), Error> {
        for (at, place) in self.places.iter().enumerate() {
            let wrote = self.write(opened, place, |byte| pattern(comm.rank(), self.peer, at, byte));
            // Any bytes are sent, so that the receiver does not wait: it finds them wrong.
            if let Err(why) = wrote {
                tracing::warn!("rank {}: {why}", comm.rank());
            }
            match self.lend(place, false) {
                Some(lent) => comm.link().post_bulk(self.peer, tag(BYTES + at as u64), Vec::new(), lent)?,
                None => comm.send(self.peer, tag(BYTES + at as u64), Vec::new())?,
            }
        }
        Ok(())
    }

    /// Whether the bytes arrive unchanged, in their slot.
    fn receive(
        &self,
        comm: &Communicator,
        opened: &Opened,
        tag: impl Fn(u64) -> Tag,
    ) -> Result<Result<(), String>, Error> {
        let mut verdict = Ok(());
        for (at, place) in self.places.iter().enumerate() {
            let expected = |byte| pattern(self.peer, comm.rank(), at, byte);
            let cleared = self.write(opened, place, |byte| !expected(byte));
            let message = comm.receive(Some(self.peer), tag(BYTES + at as u64), "bytes of a device")?;
            let landed = message
                .bulk
                .zip(self.lend(place, true))
                .and_then(|(bulk, lent)| bulk.post_receive(lent).ok());
            let is_back = || Ok((self.out.load(Ordering::Acquire) == 0).then_some(()));
            comm.wait_for(Some(self.peer), "bytes of a device", is_back)?;
            if verdict.is_err() {
                continue;
            }
            verdict = cleared.and_then(|()| match landed {
                None => Err("memory of the device was not sent".to_owned()),
                Some(()) => self.compare(opened, place, expected),
            });
        }
        Ok(verdict)
    }

    fn lend(&self, place: &Range<usize>, writes: bool) -> Option<Borrowed> {
        let first = self.memory.handed_over(place.clone(), writes)?;
        // SAFETY: `memory` has the bytes, and `Borrowed` holds it. They may be device memory: the callers pass them only to
        // `post_bulk` or `Bulk::post_receive`. `out` shows when they are given back, and nothing uses them before.
        Some(unsafe { Borrowed::new(first, place.len(), &self.out, Arc::clone(&self.memory) as _) })
    }

    fn write(
        &self,
        opened: &Opened,
        place: &Range<usize>,
        value: impl Fn(usize) -> u8,
    ) -> Result<(), String> {
        let copy = |device: &Device| {
            let pinned = device.allocate_pinned(place.len())?;
            // SAFETY: no other thread knows the pinned memory, which was allocated just now.
            let bytes = unsafe { pinned.bytes_mut(0..place.len()) };
            bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = value(at));
            let stream = opened.lanes[0].rescue();
            // SAFETY: both memories are held until the stream is synchronised, below. Nothing else uses them: what was
            // lent of `self.memory` has been given back.
            unsafe { stream.copy(self.memory.at(place.start), pinned.at(0), place.len()) }?;
            stream.synchronise()
        };
        copy(&opened.devices[0]).map_err(|error| error.to_string())
    }

    fn compare(
        &self,
        opened: &Opened,
        place: &Range<usize>,
        expected: impl Fn(usize) -> u8,
    ) -> Result<(), String> {
        let count = |device: &Device| {
            let pinned = device.allocate_pinned(place.len())?;
            let stream = opened.lanes[0].rescue();
            // SAFETY: both memories are held until the stream is synchronised, below. Nothing else uses them: what was
            // lent of `self.memory` has been given back.
            unsafe { stream.copy(pinned.at(0), self.memory.at(place.start), place.len()) }?;
            stream.synchronise()?;
            // SAFETY: the stream is synchronised, and no other thread knows the pinned memory.
            let bytes = unsafe { pinned.bytes(0..place.len()) };
            Ok(bytes.iter().enumerate().filter(|&(at, &byte)| byte != expected(at)).count())
        };
        match count(&opened.devices[0]) {
            Ok(0) => Ok(()),
            Ok(wrong) => {
                Err(format!("{wrong} of {} bytes came wrong from memory of the device", place.len()))
            }
            Err(error) => Err(halocline_device::DeviceError::to_string(&error)),
        }
    }
}

/// The test byte at a position, for a sender and a receiver.
fn pattern(from: usize, to: usize, at: usize, byte: usize) -> u8 {
    let mixed = (byte ^ (from << 40) ^ (to << 48) ^ (at << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}
