//! The unbound form of a link. Neither side knows the other's fields beforehand: a payload begins with records that
//! describe its fields. A payload that is larger than the receiver's slots travels as a message.
//!
//! | what | where | written by |
//! | --- | --- | --- |
//! | a header for each slot | a fixed place at the receiver | the sender, before it signals |
//! | slots, of growing capacity | segments of the receiver, by generation | the sender |
//! | a payload: records of the fields, then the bytes | a slot, or a message | the sender |
//!
//! A receiver that expects more than its slots hold makes larger ones and posts them. A sender looks for them only if its payload
//! is too large, and sends messages until they arrive. So neither side waits for the other to grow, and sides that disagree do
//! not hang: the header always fits.

use super::{Direction, Link, Polled, SLOTS};
use crate::bind::unbound;
use crate::error::{Cause, Difference};
use crate::lock::lock;
use crate::set::{InFlight, Part, UnboundPart};
use crate::stream::mix;
use crate::trace;
use halocline_comm::{CommError, Communicator, Endpoint, Segment, Tag};
use halocline_device::host::{self, MESSAGE_ALIGN};
use halocline_plan::copy::{CellLayout, CopyOp};
use halocline_plan::{ElementType, fits};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The round of messages that bring new slots: no epoch, no acknowledgement, no notice.
const GROWN: u64 = 1 << 62;

/// The description of one field of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) pattern: u64,
    pub(crate) number: u64,
    pub(crate) domain: u64,
    /// The code of the element type, above it the digest of its name.
    element: u64,
    extents: u64,
    /// The order of its bytes in the payload; 0 in a record that a receiver expects.
    pub(crate) order: u64,
    /// The beginning of the element type's name, for error messages.
    name: [u64; NAME],
}

/// Words of a record, and of the name at its end.
const WORDS: usize = 6 + NAME;
const NAME: usize = 4;
const RECORD: usize = WORDS * size_of::<u64>();
/// Bits of the code of an element type.
const CODE: u32 = 16;

impl Record {
    /// Of a field with these cells.
    pub(crate) fn new((pattern, number, domain): (u64, usize, u64), cells: &CellLayout, order: u64) -> Self {
        let extents = cells.extra.iter().fold(cells.extra.len() as u64, |hash, &(extent, _)| {
            (hash ^ extent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        let named = cells.named_element();
        let element = named.digest() << CODE | u64::from(cells.element.code());
        let name = name_in_words(named.name.as_deref().unwrap_or_default());
        Self { pattern, number: number as u64, domain, element, extents, order, name }
    }

    /// The element type, and the digest of its name if it has one.
    fn element(&self) -> Option<(ElementType, Option<u64>)> {
        let digest = Some(self.element >> CODE).filter(|digest| *digest != 0);
        Some((ElementType::from_code(self.element as u16)?, digest))
    }

    /// The element type, for error messages.
    fn elements(&self) -> String {
        let bytes = self.name.map(u64::to_le_bytes).concat();
        let name = String::from_utf8_lossy(&bytes);
        match (name.trim_end_matches('\0'), self.element()) {
            ("", Some((element, _))) => element.to_string(),
            ("", None) => "unknown elements".to_owned(),
            (name, _) => name.to_owned(),
        }
    }

    /// Whether it describes the field at this place of the sender.
    pub(crate) fn is_at(&self, pattern: u64, number: usize, domain: u64) -> bool {
        (self.pattern, self.number, self.domain) == (pattern, number as u64, domain)
    }

    /// A word that tells apart its place, its element type, its extra dimensions and its order, 16 bits of each.
    pub(crate) fn summary(&self) -> u64 {
        let place = mix(mix(self.pattern ^ mix(self.number)) ^ self.domain);
        let parts = [place, mix(self.element), mix(self.extents), mix(self.order)];
        parts.iter().fold(0, |word, part| word << 16 | part >> 48)
    }

    /// How two fields differ, by their summaries. `field` is the number of the field in the exchange.
    pub(crate) fn differs_by_summary(one: u64, other: u64, field: u32) -> Option<Difference> {
        match one ^ other {
            0 => None,
            bits if bits >> 48 != 0 => Some(Difference::Fields),
            bits if bits >> 32 != 0 => Some(Difference::Element { field }),
            bits if bits >> 16 != 0 => Some(Difference::Extents { field }),
            _ => Some(Difference::Order { field }),
        }
    }

    pub(crate) fn words(self) -> [u64; WORDS] {
        let [a, b, c, d] = self.name;
        [self.pattern, self.number, self.domain, self.element, self.extents, self.order, a, b, c, d]
    }

    fn read(bytes: &[u8; RECORD]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [pattern, number, domain, element, extents, order, name @ ..] = words;
        Self { pattern, number, domain, element, extents, order, name }
    }

    /// How another record differs from this one.
    fn differs(&self, other: &Self) -> Option<Difference> {
        let field = self.number as u32;
        let same_element = match (self.element(), other.element()) {
            (Some(ours), Some(theirs)) => fits(ours, theirs),
            _ => false,
        };
        let place = |record: &Self| (record.pattern, record.number, record.domain);
        match () {
            () if place(self) != place(other) => Some(Difference::Fields),
            () if !same_element => Some(Difference::Element { field }),
            () if self.extents != other.extents => Some(Difference::Extents { field }),
            () => None,
        }
    }
}

/// The beginning of a name.
fn name_in_words(name: &str) -> [u64; NAME] {
    const MOST: usize = NAME * size_of::<u64>();
    const MORE: &str = "...";
    let mut bytes = [0; MOST];
    let whole = (0..=MOST - MORE.len()).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let (head, tail) = if name.len() <= MOST { (name, "") } else { (&name[..whole], MORE) };
    let text = head.bytes().chain(tail.bytes());
    bytes.iter_mut().zip(text).for_each(|(byte, of_text)| *byte = of_text);
    let mut words = [0; NAME];
    words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    words
}

/// Records as they travel.
pub(crate) fn describe(records: &[Record]) -> Box<[u8]> {
    records.iter().flat_map(|record| record.words()).flat_map(u64::to_le_bytes).collect()
}

/// Where the bytes of a payload begin.
pub(crate) fn prefix(records: usize) -> usize {
    (records * RECORD).next_multiple_of(MESSAGE_ALIGN)
}

/// The header of a payload: beside its slot, or at the front of its message.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Records of the payload, and bytes after them.
    records: u64,
    bytes: u64,
    /// The generation of the slots that hold the payload; 0 if it travels as a message.
    generation: u64,
}

/// Bytes of the headers of a link.
pub(crate) const HEADERS: usize = SLOTS as usize * size_of::<Header>();

/// The slots and headers of a link in the unbound form.
pub(crate) struct UnboundSlots {
    /// [`SLOTS`] headers; none if the ranks share no memory.
    headers: Option<NonNull<Header>>,
    /// The operation of messages.
    operation: u64,
    /// Bytes that the newest slots hold.
    capacity: AtomicUsize,
    /// Slots, the oldest first. Under the link's claim, except while an exchange begins.
    slots: Mutex<Vec<Slots>>,
}

/// The slots of one generation.
struct Slots {
    generation: u64,
    base: NonNull<u8>,
    capacity: usize,
    #[expect(dead_code, reason = "held for the pointer into it")]
    segment: Arc<Segment>,
}

// SAFETY: `base` leads into `segment`, which is held, and is not bound to a thread. Only the holder of the link's claim uses the
// slots.
unsafe impl Send for Slots {}

impl Slots {
    fn slot(&self, epoch: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add((epoch % SLOTS) as usize * self.capacity)
    }
}

/// The headers and the first slots of a link, in the receiver's segment.
pub(crate) struct LinkMemory {
    pub(crate) headers: NonNull<Header>,
    pub(crate) slots: NonNull<u8>,
    /// A multiple of [`MESSAGE_ALIGN`].
    pub(crate) capacity: usize,
    pub(crate) segment: Arc<Segment>,
}

impl UnboundSlots {
    pub(crate) fn new(operation: u64, memory: Option<LinkMemory>) -> Self {
        let headers = memory.as_ref().map(|memory| memory.headers);
        let capacity = AtomicUsize::new(memory.as_ref().map_or(0, |memory| memory.capacity));
        let first = memory.map(|LinkMemory { slots: base, capacity, segment, .. }| Slots {
            generation: 1,
            base,
            capacity,
            segment,
        });
        Self { headers, operation, capacity, slots: Mutex::new(first.into_iter().collect()) }
    }

    /// The operation of this link's messages.
    pub(super) fn operation(&self) -> u64 {
        self.operation
    }

    /// Bytes that the newest slots hold, as far as this side knows.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    fn header(&self, epoch: u64) -> Option<NonNull<Header>> {
        let offset = (epoch % SLOTS) as usize * size_of::<Header>();
        self.headers.map(|headers| headers.map_addr(|first| first.saturating_add(offset)))
    }

    /// The receiver expects a payload of `bytes`: makes slots that hold it, if the present ones do not. If there is no memory for
    /// them, payloads go on arriving as messages.
    pub(super) fn grow(&self, comm: &Communicator, peer: usize, bytes: usize) {
        if self.headers.is_none() || bytes <= self.capacity() {
            return;
        }
        let capacity = bytes.next_power_of_two();
        // Tried once for each capacity.
        self.capacity.store(capacity, Ordering::Relaxed);
        let grown = comm.allocate(SLOTS as usize * capacity).map_err(|error| error.to_string());
        let posted = grown.and_then(|segment| {
            comm.link().reach(peer, &segment)?;
            let mut slots = lock(&self.slots);
            let generation = slots.last().map_or(1, |newest| newest.generation + 1);
            let tag = Tag { operation: self.operation, round: GROWN };
            let payload = [generation, capacity as u64].map(u64::to_le_bytes).concat();
            comm.link()
                .post(peer, tag, payload, std::slice::from_ref(&segment))
                .map_err(|e| e.to_string())?;
            slots.push(Slots { generation, base: segment.base(), capacity, segment });
            Ok(())
        });
        if let Err(why) = posted {
            let rank = comm.rank();
            tracing::warn!(
                "rank {rank}: cannot allocate or share a receive buffer of {capacity} bytes for rank {peer}: {why}; its data \
                 travel as messages, which is slower"
            );
        }
    }

    /// The newest slots that the sender knows, if they hold `bytes`.
    fn slots_for(
        &self,
        comm: &Communicator,
        peer: usize,
        bytes: usize,
    ) -> Option<MutexGuard<'_, Vec<Slots>>> {
        self.headers?;
        let mut slots = lock(&self.slots);
        if bytes > self.capacity() {
            let tag = Tag { operation: self.operation, round: GROWN };
            while let Some(message) = comm.link().inbox().take(tag, Some(peer)) {
                let words = message.payload.as_chunks().0;
                let why = message.missing.map_or_else(|| "it is malformed".to_owned(), |why| why.to_string());
                let ([generation, capacity], Some(segment)) = (words, message.segments.into_iter().next())
                else {
                    let rank = comm.rank();
                    tracing::warn!(
                        "rank {rank}: cannot use the receive buffer of rank {peer}: {why}; data for it travel as messages, which is slower"
                    );
                    continue;
                };
                let (generation, capacity) = (u64::from_le_bytes(*generation), u64::from_le_bytes(*capacity));
                let needed = capacity.checked_mul(SLOTS);
                if needed.is_some_and(|needed| {
                    needed <= segment.len() as u64 && capacity % MESSAGE_ALIGN as u64 == 0
                }) {
                    let capacity = capacity as usize;
                    *slots = vec![Slots { generation, base: segment.base(), capacity, segment }];
                    self.capacity.store(capacity, Ordering::Relaxed);
                }
            }
        }
        (bytes <= self.capacity()).then_some(slots)
    }
}

/// The result of a poll for a payload.
enum Received {
    Unpacked,
    NotYet,
    Lost(Cause, usize),
}

impl Link {
    /// Polls a link of the unbound form, once the flag that it waits for is set.
    pub(super) fn serve_unbound(
        &self,
        comm: &Communicator,
        epoch: u64,
        message: Option<Vec<u8>>,
        (in_flight, part): (&InFlight, &Part),
        unbound_slots: &UnboundSlots,
    ) -> Result<Polled, CommError> {
        // All sets of an object have the form of its links.
        let Some(unbound) = &part.unbound else { return Ok(Polled::Lost(Cause::Malformed, comm.rank())) };
        match self.direction {
            Direction::Send => {
                self.send_payload(comm, epoch, (in_flight, part), (unbound_slots, unbound))?;
                self.set_flag(comm, epoch, in_flight.subject());
            }
            Direction::Receive => {
                match self.receive_payload(comm, epoch, message, (in_flight, part), (unbound_slots, unbound))
                {
                    Received::Unpacked => self.acknowledge(comm, epoch, in_flight.subject())?,
                    Received::NotYet => return Ok(Polled::Waits),
                    Received::Lost(cause, culprit) => return Ok(Polled::Lost(cause, culprit)),
                }
            }
        }
        Ok(Polled::Done)
    }

    /// Packs a payload into its slot or sends it, with its header. The slot is free.
    fn send_payload(
        &self,
        comm: &Communicator,
        epoch: u64,
        (in_flight, part): (&InFlight, &Part),
        (unbound_slots, unbound): (&UnboundSlots, &UnboundPart),
    ) -> Result<(), CommError> {
        let before = unbound.prefix();
        let (records, bytes) = (unbound.records.len() as u64, part.bytes as u64);
        let put = |payload: *mut u8| {
            // SAFETY: the payload is a slot or a message of the caller's, initialised (both are zeroed at first), with
            // space for records and bytes. The sender alone uses a slot until it signals.
            let described = unsafe { std::slice::from_raw_parts_mut(payload, unbound.described.len()) };
            // Unchanged records are not written again: they stay in the receiver's cache.
            if *described != *unbound.described {
                described.copy_from_slice(&unbound.described);
            }
            trace::pack(comm, self, epoch, part.bytes)
                .in_scope(|| super::pack(in_flight, part, payload.wrapping_add(before), false));
        };
        let mut header = Header { records, bytes, generation: 0 };
        let slots = unbound_slots.slots_for(comm, self.peer, before + part.bytes);
        match slots.as_deref().and_then(|slots| slots.last()) {
            Some(slots) => {
                header.generation = slots.generation;
                put(slots.slot(epoch));
            }
            None => {
                let head = if unbound_slots.headers.is_some() { 0 } else { size_of::<Header>() };
                let mut message = vec![0; head + before + part.bytes];
                put(message[head..].as_mut_ptr());
                let words = [header.records, header.bytes].map(u64::to_le_bytes).concat();
                message[..head].iter_mut().zip(words).for_each(|(byte, word)| *byte = word);
                let tag = Tag { operation: unbound_slots.operation, round: epoch };
                trace::send(comm, self, epoch, part.bytes).in_scope(|| comm.send(self.peer, tag, message))?;
            }
        }
        if let Some(place) = unbound_slots.header(epoch) {
            // SAFETY: the header lies in the receiver's segment, aligned, and is initialised (zeroed at first). The
            // sender alone uses it until it signals: the receiver has finished with that of two epochs ago.
            if unsafe { place.read() } != header {
                // SAFETY: the header lies in the receiver's segment, aligned. The sender alone uses it until it signals:
                // the receiver has finished with that of two epochs ago.
                unsafe { place.write(header) };
            }
        }
        Ok(())
    }

    /// Unpacks the payload of an epoch: `message`, if the ranks share no memory.
    fn receive_payload(
        &self,
        comm: &Communicator,
        epoch: u64,
        message: Option<Vec<u8>>,
        (in_flight, part): (&InFlight, &Part),
        (unbound_slots, unbound): (&UnboundSlots, &UnboundPart),
    ) -> Received {
        let malformed = Received::Lost(Cause::Malformed, self.peer);
        let Some(place) = unbound_slots.header(epoch) else {
            let Some((header, payload)) =
                message.as_deref().and_then(|m| m.split_at_checked(size_of::<Header>()))
            else {
                return malformed;
            };
            let word = |at: usize| header.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word));
            let header = Header { records: word(0), bytes: word(1), generation: 0 };
            return self.unpack_payload(comm, epoch, (header, payload), (in_flight, part), unbound);
        };
        // SAFETY: the header lies in this side's segment, aligned; it consists of numbers. The sender has signalled, and
        // leaves it alone until this side has.
        let header = unsafe { place.read() };
        if header.generation == 0 {
            let tag = Tag { operation: unbound_slots.operation, round: epoch };
            return match comm.link().inbox().take(tag, Some(self.peer)) {
                Some(message) => {
                    self.unpack_payload(comm, epoch, (header, &message.payload), (in_flight, part), unbound)
                }
                None => Received::NotYet,
            };
        }
        let mut slots = lock(&unbound_slots.slots);
        // The sender never goes back to an older one.
        slots.retain(|slots| slots.generation >= header.generation);
        let Some(slots) = slots.first().filter(|slots| slots.generation == header.generation) else {
            return malformed;
        };
        // SAFETY: a slot has `capacity` bytes in `segment`, as `slots_for` and `grow` check, initialised (zeroed at first). The
        // sender leaves them alone until this side signals.
        let payload = unsafe { std::slice::from_raw_parts(slots.slot(epoch), slots.capacity) };
        self.unpack_payload(comm, epoch, (header, payload), (in_flight, part), unbound)
    }

    fn unpack_payload(
        &self,
        comm: &Communicator,
        epoch: u64,
        (header, payload): (Header, &[u8]),
        (in_flight, part): (&InFlight, &Part),
        unbound: &UnboundPart,
    ) -> Received {
        let lost = |cause| Received::Lost(cause, self.peer);
        let described = usize::try_from(header.records).ok().and_then(|count| count.checked_mul(RECORD));
        let Some((described, _)) = described.and_then(|bytes| payload.split_at_checked(bytes)) else {
            return lost(Cause::Malformed);
        };
        let read = |ops: &[CopyOp]| {
            let (before, bytes) = (unbound.prefix(), part.bytes);
            let whole = header.bytes == bytes as u64 && payload.len() >= before + bytes;
            if whole {
                let message = payload[before..].as_ptr();
                trace::unpack(comm, self, epoch, bytes).in_scope(|| {
                    // SAFETY: `unbound::operations` has made the operations for this part of the set in flight, from a
                    // pattern and layouts that were checked; they read `part.bytes` bytes, which the message has behind
                    // `before`. The exchange in flight holds the memory of the fields, and no other thread uses their halo
                    // cells until the wait.
                    unsafe { host::copy(ops, &[message], in_flight.bases()) }
                });
            }
            whole
        };
        let make = || {
            let theirs: Vec<Record> = described.as_chunks().0.iter().map(Record::read).collect();
            if theirs.len() != unbound.records.len() {
                return Err(Cause::Fields(Difference::Fields));
            }
            let difference =
                |(ours, theirs): (&Record, &Record)| Some((ours.differs(theirs)?, *ours, *theirs));
            match unbound.records.iter().zip(&theirs).find_map(difference) {
                Some((difference, ours, theirs)) => {
                    if matches!(difference, Difference::Element { .. }) {
                        self.mismatch(comm, (&ours.elements(), &theirs.elements()));
                    }
                    Err(Cause::Fields(difference))
                }
                None => unbound::operations(&in_flight.set().local, self.peer, Direction::Receive, &theirs)
                    .ok_or(Cause::Malformed),
            }
        };
        let reading = unbound.with_reading(described, make, read);
        match reading {
            Ok(true) => Received::Unpacked,
            Ok(false) => lost(Cause::Malformed),
            Err(cause) => lost(cause),
        }
    }
}
