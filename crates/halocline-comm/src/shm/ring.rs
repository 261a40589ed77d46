//! A ring of messages from one process to another, in memory that both map: a message costs no system call if the receiver polls.
//!
//! The sender makes the ring and sends its memory over the socket. It uses the ring once the receiver has mapped it.
//! A record is a header and the payload, at a multiple of [`LINE`] bytes; it may continue at the ring's begin.

use crate::buffers;
use crate::cursors::Cursors;
use crate::error::CommError;
use crate::inbox::Tag;
use crate::segment::Segment;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bytes of a ring, a power of two.
const CAPACITY: usize = 1 << 18;
/// The longest record; longer messages take the socket.
const LONGEST: usize = CAPACITY / 2;
/// Records begin at multiples of this.
const LINE: usize = 64;

/// The first bytes of the memory of a ring.
#[repr(C)]
struct Head {
    cursors: Cursors,
    /// 1 once the receiver reads the ring.
    mapped: AtomicU32,
}

/// The bytes from the begin of the memory to the first record.
const HEAD: usize = 512;
const _: () = assert!(size_of::<Head>() <= HEAD && LINE.is_power_of_two() && CAPACITY.is_multiple_of(LINE));

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Record {
    /// The place of the message among all messages of the sender to the receiver.
    pub sequence: u64,
    operation: u64,
    round: u64,
    len: u64,
}

const HEADER: usize = size_of::<Record>();
const _: () = assert!(HEADER <= LINE);

impl Record {
    pub(super) fn tag(&self) -> Tag {
        Tag { operation: self.operation, round: self.round }
    }

    /// The bytes that it takes in the ring, if so long a record can be.
    fn extent(&self) -> Option<u64> {
        let len = usize::try_from(self.len).ok().filter(|&len| len <= LONGEST - HEADER)?;
        Some((HEADER + len).next_multiple_of(LINE) as u64)
    }
}

/// A ring that another process has filled with bytes that are no records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingError {
    #[error("its message ring is {0} bytes long instead of {bytes}", bytes = Ring::BYTES)]
    Size(usize),
    #[error("its message ring claims {0} unread bytes of {CAPACITY}")]
    Cursor(u64),
    #[error("a record of its message ring claims {0} bytes")]
    Length(u64),
}

/// One end of a ring.
pub(super) struct Ring {
    memory: Arc<Segment>,
}

impl Ring {
    /// The bytes of the memory.
    pub(super) const BYTES: usize = HEAD + CAPACITY;

    /// A ring for the sender.
    pub(super) fn create() -> Result<Self, CommError> {
        Ok(Self { memory: Segment::shared(Self::BYTES)? })
    }

    /// The ring for the receiver, in memory of the sender.
    pub(super) fn map(memory: Arc<Segment>) -> Result<Self, RingError> {
        if memory.len() != Self::BYTES {
            return Err(RingError::Size(memory.len()));
        }
        let ring = Self { memory };
        ring.head().mapped.store(1, Ordering::Release);
        Ok(ring)
    }

    pub(super) fn memory(&self) -> &Arc<Segment> {
        &self.memory
    }

    /// Whether the receiver reads it.
    pub(super) fn is_mapped(&self) -> bool {
        self.head().mapped.load(Ordering::Acquire) != 0
    }

    /// For the receiver: whether there are records beyond `at`.
    #[inline]
    pub(super) fn has_more(&self, at: u64) -> bool {
        self.head().cursors.written() != at
    }

    /// Writes a message at `at`, which moves on; false if there is no space.
    pub(super) fn push(&self, at: &mut u64, sequence: u64, tag: Tag, payload: &[u8]) -> bool {
        let len = payload.len() as u64;
        let record = Record { sequence, operation: tag.operation, round: tag.round, len };
        let Some(extent) = record.extent() else { return false };
        if !self.head().cursors.has_space(*at, extent, CAPACITY as u64) {
            return false;
        }
        // SAFETY: a header lies within one line, so that it does not reach beyond the ring, aligned. The sender alone writes to
        // bytes that the receiver has freed.
        unsafe { self.place(*at).cast::<Record>().write(record) };
        let (first, rest) = payload.split_at(payload.len().min(self.before_end(*at + HEADER as u64)));
        for (at, part) in [(*at + HEADER as u64, first), (*at + (HEADER + first.len()) as u64, rest)] {
            // SAFETY: neither part reaches beyond the ring's end, and both lie in bytes that the receiver has freed.
            unsafe { self.place(at).copy_from_nonoverlapping(NonNull::from(part).cast(), part.len()) };
        }
        *at += extent;
        self.head().cursors.publish(*at);
        true
    }

    /// The header of the record at `at`, which stays; `None` if nothing is written there yet.
    pub(super) fn front(&self, at: u64) -> Result<Option<Record>, RingError> {
        let unread = self.head().cursors.written().wrapping_sub(at);
        if unread == 0 {
            return Ok(None);
        }
        if unread > CAPACITY as u64 || !unread.is_multiple_of(LINE as u64) {
            return Err(RingError::Cursor(unread));
        }
        // SAFETY: a header lies within one line of the ring, aligned; all bytes are valid for it. The sender does not write
        // to bytes that it has published and that are not freed. (A sender that breaks this yields other numbers.)
        let record = unsafe { self.place(at).cast::<Record>().read() };
        match record.extent().filter(|&extent| extent <= unread) {
            Some(_) => Ok(Some(record)),
            None => Err(RingError::Length(record.len)),
        }
    }

    /// Takes the payload of the record at `at`, which moves on: `record`, as [`Ring::front`] returned it.
    pub(super) fn take(&self, at: &mut u64, record: &Record) -> Vec<u8> {
        let (len, begin) = (record.len as usize, *at + HEADER as u64);
        let mut payload = buffers::take(len);
        let first = len.min(self.before_end(begin));
        for (at, len) in [(begin, first), (begin + first as u64, len - first)] {
            // SAFETY: `front` has checked that the record is published. Neither part reaches beyond the ring's end. The
            // sender does not write there before the bytes are freed.
            let part = unsafe { std::slice::from_raw_parts(self.place(at).as_ptr(), len) };
            payload.extend_from_slice(part);
        }
        *at += record.extent().unwrap_or(LINE as u64);
        self.head().cursors.free(*at);
        payload
    }

    fn head(&self) -> &Head {
        // SAFETY: the memory has at least `HEAD` bytes, at an address aligned to a page, and lives as long as `self`. A head
        // consists of atomic numbers, for which all bytes are valid, whatever another process writes.
        unsafe { self.memory.base().cast().as_ref() }
    }

    /// The address of a position.
    fn place(&self, at: u64) -> NonNull<u8> {
        // SAFETY: the memory has `HEAD + CAPACITY` bytes.
        unsafe { self.memory.base().add(HEAD + (at as usize & (CAPACITY - 1))) }
    }

    /// The bytes from a position to the ring's end.
    fn before_end(&self, at: u64) -> usize {
        CAPACITY - (at as usize & (CAPACITY - 1))
    }
}

#[cfg(any(test, fuzzing))]
impl Ring {
    /// Overwrites the memory from its begin, as a process that breaks the rules may.
    pub(super) fn overwrite(&self, bytes: &[u8]) {
        let count = bytes.len().min(Self::BYTES);
        // SAFETY: the memory has `BYTES` bytes, and nothing else accesses it meanwhile.
        unsafe { self.memory.base().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), count) };
    }

    /// The memory as bytes.
    #[cfg(fuzzing)]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has `BYTES` bytes, and nothing writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr(), Self::BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(operation: u64) -> Tag {
        Tag { operation, round: !operation }
    }

    proptest! {
        #[test]
        fn messages_of_any_length_arrive_as_they_were_sent(
            lengths in proptest::collection::vec(prop_oneof![0usize..200, 0..LONGEST], 1..60),
            batch in 1usize..8,
        ) {
            let ring = Ring::create().unwrap();
            let (mut written, mut read) = (0, 0);
            let payload = |number: usize, len: usize| -> Vec<u8> {
                (0..len).map(|at| (at * 7 + number) as u8).collect()
            };
            let mut unread = std::collections::VecDeque::new();
            let mut drain = |unread: &mut std::collections::VecDeque<(usize, usize)>| {
                while let Some((number, len)) = unread.pop_front() {
                    let record = ring.front(read).unwrap().unwrap();
                    assert_eq!((record.sequence, record.tag()), (number as u64, tag(number as u64)));
                    assert_eq!(ring.take(&mut read, &record), payload(number, len));
                }
                assert_eq!(ring.front(read), Ok(None));
            };
            for (number, &len) in lengths.iter().enumerate() {
                let push = |written: &mut u64| {
                    ring.push(written, number as u64, tag(number as u64), &payload(number, len))
                };
                let fits = len + HEADER <= LONGEST;
                if !push(&mut written) && fits {
                    drain(&mut unread);
                    prop_assert!(push(&mut written), "an empty ring has space");
                }
                if fits {
                    unread.push_back((number, len));
                }
                if number % batch == 0 {
                    drain(&mut unread);
                }
            }
            drain(&mut unread);
        }

        #[test]
        fn garbage_is_an_error_or_a_message_never_a_panic(
            written in prop_oneof![any::<u64>(), (0u64..5000).prop_map(|lines| 64 * lines)],
            len in prop_oneof![any::<u64>(), 0..2 * LONGEST as u64],
        ) {
            let ring = Ring::create().unwrap();
            let mut bytes = vec![0xa5; HEAD + HEADER];
            bytes[..8].copy_from_slice(&written.to_le_bytes());
            bytes[HEAD + HEADER - 8..].copy_from_slice(&len.to_le_bytes());
            ring.overwrite(&bytes);
            let mut at = 0;
            while let Ok(Some(record)) = ring.front(at) {
                ring.take(&mut at, &record);
            }
        }
    }

    #[test]
    fn another_size_and_cursors_and_records_beyond_a_ring_are_refused() {
        let found = Ring::map(Segment::shared(4096).unwrap()).err();
        assert_eq!(found, Some(RingError::Size(4096)));
        let ring = Ring::create().unwrap();
        ring.overwrite(&65u64.to_le_bytes());
        assert_eq!(ring.front(0).err(), Some(RingError::Cursor(65)));
        // One line is written, and its record says it is longer.
        let mut bytes = vec![0; HEAD + HEADER];
        bytes[..8].copy_from_slice(&(LINE as u64).to_le_bytes());
        bytes[HEAD + HEADER - 8..].copy_from_slice(&(LINE as u64).to_le_bytes());
        ring.overwrite(&bytes);
        assert_eq!(ring.front(0).err(), Some(RingError::Length(LINE as u64)));
    }
}
