//! The format of messages over MPI: payload, then a trailer, so that neither side moves the payload. A payload
//! longer than an MPI message is sent in parts; the last part has the trailer. Pure functions;
//! received bytes are checked.

use crate::inbox::Tag;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;

/// Operation, round and length of the whole payload.
pub(crate) const TRAILER: usize = 24;

/// The most bytes of one MPI message, whose count is a C `int`.
pub(crate) const LONGEST: usize = 1 << 30;

/// The kind of an MPI message, by its tag. Messages from one rank to another keep their order across tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The last part of a message, usually the only one.
    Last,
    /// A part before the last.
    Part,
    /// The sender's last message: it drops its communicator.
    Close,
    /// The last part of a message that announces a bulk, which follows on a communicator of its own.
    Bulk,
    /// The last part of a message that carries another one, which comes before it.
    Pair,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Last, Self::Part, Self::Close, Self::Bulk, Self::Pair];

    /// Its tag: small enough for every library.
    pub(super) fn tag(self) -> c_int {
        self as c_int
    }

    /// The kind of a received tag.
    pub(super) fn of(tag: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }
}

/// The trailer of a message of so many bytes.
pub(super) fn trailer(tag: Tag, len: usize) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    let words = [tag.operation, tag.round, len as u64];
    trailer.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    trailer
}

/// Reads a trailer: tag and length of the message.
pub(super) fn read(trailer: &[u8; TRAILER]) -> (Tag, u64) {
    let word = |at: usize| trailer.as_chunks().0.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (Tag { operation: word(0), round: word(1) }, word(2))
}

/// Number and length of the bytes that a message announces.
const ANNOUNCED: usize = size_of::<u32>() + size_of::<u64>();

/// A payload, followed by number and length of the bulk that it announces.
pub(super) fn announce(mut payload: Vec<u8>, number: u32, len: usize) -> Vec<u8> {
    payload.reserve(ANNOUNCED + TRAILER);
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&(len as u64).to_le_bytes());
    payload
}

/// Removes the announcement from a payload.
pub(super) fn announced(payload: &mut Vec<u8>) -> Option<(u32, usize)> {
    let (rest, len) = payload.split_last_chunk()?;
    let (rest, number) = rest.split_last_chunk()?;
    let (kept, number, len) = (rest.len(), u32::from_le_bytes(*number), u64::from_le_bytes(*len));
    payload.truncate(kept);
    let len = usize::try_from(len).ok().filter(|&len| len <= LONGEST)?;
    (number < NUMBERS).then_some((number, len))
}

/// A payload, followed by a message that comes before its own.
pub(super) fn carry(mut payload: Vec<u8>, tag: Tag, first: &[u8]) -> Vec<u8> {
    payload.reserve(first.len() + 2 * TRAILER);
    payload.extend_from_slice(first);
    payload.extend_from_slice(&trailer(tag, first.len()));
    payload
}

/// Removes the message that a payload carries.
pub(super) fn carried(payload: &mut Vec<u8>) -> Option<(Tag, Vec<u8>)> {
    let (rest, trailer) = payload.split_last_chunk()?;
    let (tag, len) = read(trailer);
    let at = rest.len().checked_sub(usize::try_from(len).ok()?)?;
    let first = rest[at..].to_vec();
    payload.truncate(at);
    Some((tag, first))
}

/// Bulks from one rank to another have numbers below this one, used in turn: every MPI supports
/// that many tags. An object has few bulks in flight.
pub(super) const NUMBERS: u32 = 1 << 15;

/// The longest MPI message that MPI libraries send at once between ranks of a node: 4 KiB with their own header in Open MPI. For a longer one
/// the receiver makes a system call.
const PROMPT: usize = 4032;

/// The most bytes of the MPI messages of a message of so many bytes, its trailer included. Up to four short MPI messages are faster than
/// a longer one (`neighbor_rounds`: 4 KiB in two messages take 2 us less).
pub(super) fn longest(bytes: usize) -> usize {
    if bytes <= 4 * PROMPT { PROMPT } else { LONGEST }
}

/// The MPI messages of a message, in order, none longer than `longest`, which has space for a trailer.
pub(super) fn split(tag: Tag, payload: Vec<u8>, longest: usize) -> impl Iterator<Item = (Kind, Vec<u8>)> {
    let trailer = trailer(tag, payload.len());
    let mut rest = Some(payload);
    std::iter::from_fn(move || {
        let mut next = rest.take()?;
        if next.len() + TRAILER <= longest {
            next.extend_from_slice(&trailer);
            return Some((Kind::Last, next));
        }
        rest = Some(next.split_off(longest.min(next.len())));
        Some((Kind::Part, next))
    })
}

/// Incomplete messages, by their senders.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: HashMap<usize, Vec<u8>>,
}

impl Assembly {
    /// Takes a part that others follow.
    pub(super) fn part(&mut self, from: usize, part: Vec<u8>) {
        match self.parts.entry(from) {
            Entry::Vacant(first) => drop(first.insert(part)),
            Entry::Occupied(mut begun) => begun.get_mut().extend_from_slice(&part),
        }
    }

    /// Adds the last part, and returns the message unless it is malformed.
    pub(super) fn last(&mut self, from: usize, mut last: Vec<u8>) -> Option<(Tag, Vec<u8>)> {
        let begun = self.parts.remove(&from);
        let trailer: [u8; TRAILER] = *last.last_chunk()?;
        last.truncate(last.len() - TRAILER);
        let payload = match begun {
            None => last,
            Some(mut payload) => {
                payload.extend_from_slice(&last);
                payload
            }
        };
        let (tag, len) = read(&trailer);
        (len == payload.len() as u64).then_some((tag, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_of_some_kibibytes_are_cut_into_short_ones() {
        let tag = Tag { operation: 1, round: 2 };
        for (bytes, parts) in
            [(0, 1), (PROMPT - TRAILER, 1), (4096, 2), (4 * PROMPT - TRAILER, 4), (4 * PROMPT, 1)]
        {
            let cut: Vec<_> = split(tag, vec![7; bytes], longest(bytes + TRAILER)).collect();
            assert_eq!(cut.len(), parts, "{bytes} bytes");
            assert_eq!(cut.iter().map(|(_, part)| part.len()).sum::<usize>(), bytes + TRAILER);
        }
    }

    proptest! {
        #[test]
        fn an_announcement_survives_and_other_bytes_are_refused(
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            number in 0..NUMBERS,
            len in 0..LONGEST,
        ) {
            let mut announcing = announce(payload.clone(), number, len);
            prop_assert_eq!(announced(&mut announcing), Some((number, len)));
            prop_assert_eq!(&announcing, &payload);
            if let Some((number, len)) = announced(&mut announcing) {
                prop_assert!(number < NUMBERS && len <= LONGEST);
            }
        }

        #[test]
        fn a_carried_message_survives_and_other_bytes_are_refused(
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            first in proptest::collection::vec(any::<u8>(), 0..60),
            tag in (any::<u64>(), any::<u64>()),
        ) {
            let tag = Tag { operation: tag.0, round: tag.1 };
            let mut carrying = carry(payload.clone(), tag, &first);
            prop_assert_eq!(carried(&mut carrying), Some((tag, first.clone())));
            prop_assert_eq!(&carrying, &payload);
            // A length beyond the bytes, and bytes without a trailer.
            let mut forged = payload.clone();
            forged.extend_from_slice(&trailer(tag, payload.len() + 1 + first.len()));
            prop_assert_eq!(carried(&mut forged), None);
            prop_assert_eq!(carried(&mut first[..first.len().min(TRAILER - 1)].to_vec()), None);
        }

        #[test]
        fn messages_survive_any_split(
            messages in proptest::collection::vec(
                (any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..6),
            longest in 1usize..100,
        ) {
            let longest = longest + TRAILER;
            let mut assembly = Assembly::default();
            for (operation, round, payload) in messages {
                let tag = Tag { operation, round };
                let mut came = None;
                for (kind, part) in split(tag, payload.clone(), longest) {
                    prop_assert!(came.is_none() && part.len() <= longest);
                    prop_assert_eq!(Kind::of(kind.tag()), Some(kind));
                    match kind {
                        Kind::Part => assembly.part(3, part),
                        _ => came = assembly.last(3, part),
                    }
                }
                prop_assert_eq!(came, Some((tag, payload)));
            }
        }

        #[test]
        fn garbage_is_refused_without_a_panic(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..4),
            last in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut assembly = Assembly::default();
            let begun: usize = parts.iter().map(Vec::len).sum();
            parts.into_iter().for_each(|part| assembly.part(0, part));
            let whole = begun + last.len();
            if let Some((_, payload)) = assembly.last(0, last) {
                prop_assert_eq!(payload.len() + TRAILER, whole);
            }
            prop_assert!(Kind::of(5).is_none() && Kind::of(-1).is_none());
        }
    }
}
