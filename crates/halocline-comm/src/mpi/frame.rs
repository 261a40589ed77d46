//! How a message looks on MPI: payload, then a trailer, so that neither side moves the payload. What is
//! longer than one MPI message may be comes in parts, of which the last has the trailer. Pure functions;
//! what is received is checked.

use crate::inbox::Tag;
use std::collections::HashMap;
use std::ffi::c_int;

/// Operation, round and length of the whole payload.
pub(crate) const TRAILER: usize = 24;

/// The most bytes of one MPI message: counts are C `int`s, and buffers should not be absurd.
pub(crate) const LONGEST: usize = 1 << 30;

/// What an MPI message is, by its tag. Messages of one rank to another keep their order whatever their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The last part of a message, mostly the only one.
    Last,
    /// A part that others follow.
    Part,
    /// The sender's last word: it gives up its communicator.
    Close,
    /// The last part of a message that announces bytes, which wait on a communicator of their own.
    Bulk,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Last, Self::Part, Self::Close, Self::Bulk];

    /// Its tag: small enough for every library.
    pub(super) fn tag(self) -> c_int {
        self as c_int
    }

    /// The kind of a received tag.
    pub(super) fn of(tag: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }
}

/// What ends a message of so many bytes.
pub(super) fn trailer(tag: Tag, len: usize) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    let words = [tag.operation, tag.round, len as u64];
    trailer.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    trailer
}

/// What a trailer says: of which message it is, and of how many bytes.
pub(super) fn read(trailer: &[u8; TRAILER]) -> (Tag, u64) {
    let word = |at: usize| trailer.as_chunks().0.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (Tag { operation: word(0), round: word(1) }, word(2))
}

/// Number and length of the bytes that a message announces.
const ANNOUNCED: usize = size_of::<u32>() + size_of::<u64>();

/// A payload, and what it announces: how many bytes, by which number they are to be asked for.
pub(super) fn announce(mut payload: Vec<u8>, number: u32, len: usize) -> Vec<u8> {
    payload.reserve(ANNOUNCED + TRAILER);
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&(len as u64).to_le_bytes());
    payload
}

/// Takes from a payload what it announces.
pub(super) fn announced(payload: &mut Vec<u8>) -> Option<(u32, usize)> {
    let (rest, len) = payload.split_last_chunk()?;
    let (rest, number) = rest.split_last_chunk()?;
    let (kept, number, len) = (rest.len(), u32::from_le_bytes(*number), u64::from_le_bytes(*len));
    payload.truncate(kept);
    let len = usize::try_from(len).ok().filter(|&len| len <= LONGEST)?;
    (number < NUMBERS).then_some((number, len))
}

/// Bytes that wait at one rank for another are told apart by numbers below this one, used in turn: as many tags as every MPI
/// has. An object has a few of them under way.
pub(super) const NUMBERS: u32 = 1 << 15;

/// The MPI messages of a message, in order, none longer than `longest`.
pub(super) fn split(tag: Tag, mut payload: Vec<u8>, longest: usize) -> impl Iterator<Item = (Kind, Vec<u8>)> {
    let trailer = trailer(tag, payload.len());
    let (parts, last) = match payload.len() + TRAILER <= longest {
        true => {
            payload.extend_from_slice(&trailer);
            (Vec::new(), payload)
        }
        false => (payload, trailer.to_vec()),
    };
    let begins = (0..parts.len()).step_by(longest);
    let part = move |begin| (Kind::Part, parts[begin..parts.len().min(begin + longest)].to_vec());
    begins.map(part).chain([(Kind::Last, last)])
}

/// Messages that have come in part, by their senders.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: HashMap<usize, Vec<u8>>,
}

impl Assembly {
    /// Takes a part that others follow.
    pub(super) fn part(&mut self, from: usize, part: Vec<u8>) {
        self.parts.entry(from).or_default().extend_from_slice(&part);
    }

    /// Takes the last part; gives the message unless it is none.
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

    proptest! {
        #[test]
        fn what_is_announced_is_read_again_and_nothing_else(
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
        fn garbage_is_no_message_never_a_panic(
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
            prop_assert!(Kind::of(4).is_none() && Kind::of(-1).is_none());
        }
    }
}
