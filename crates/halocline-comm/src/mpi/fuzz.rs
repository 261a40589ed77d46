//! Entry points of `fuzz/` into the private parsers. Part of no ordinary build.

use super::engine::INTRODUCTION;
use super::frame::{Assembly, Kind, announce, announced, carried, carry, split};
use super::node;
use crate::inbox::Tag;

/// Messages of two ranks: for each MPI message its sender and kind, its length, its bytes.
pub fn messages(mut bytes: &[u8]) {
    let mut assembly = Assembly::default();
    while let Some((&[about, len], rest)) = bytes.split_first_chunk() {
        let (message, rest) = rest.split_at(rest.len().min(len.into()));
        let from = usize::from(about & 1);
        match Kind::of(i32::from(about >> 1) - 1) {
            Some(Kind::Part) => assembly.part(from, message.to_vec()),
            Some(Kind::Last) => {
                if let Some((tag, payload)) = assembly.last(from, message.to_vec()) {
                    let mut again = Assembly::default();
                    let parts: Vec<_> = split(tag, payload.clone(), usize::MAX).collect();
                    assert_eq!(parts.len(), 1);
                    let whole = parts.into_iter().find_map(|(_, part)| again.last(from, part));
                    assert_eq!(whole, Some((tag, payload)));
                }
            }
            Some(Kind::Bulk) => {
                let whole = assembly.last(from, message.to_vec());
                if let Some((_, mut payload)) = whole {
                    let before = payload.clone();
                    if let Some((number, len)) = announced(&mut payload) {
                        assert_eq!(announce(payload, number, len), before);
                    }
                }
            }
            Some(Kind::Pair) => {
                let whole = assembly.last(from, message.to_vec());
                if let Some((_, mut payload)) = whole {
                    let before = payload.clone();
                    if let Some((tag, first)) = carried(&mut payload) {
                        assert_eq!(carry(payload, tag, &first), before);
                    }
                }
            }
            Some(Kind::Close) | None => {}
        }
        bytes = rest;
    }
}

/// Messages as ranks send them.
pub fn sent() -> Vec<Vec<u8>> {
    let sent = |longest| {
        let parts = split(Tag { operation: 5, round: 1 }, b"a payload".repeat(5), longest);
        let bytes = |(kind, part): (Kind, Vec<u8>)| {
            [&[((kind.tag() + 1) << 1) as u8, part.len() as u8][..], &part].concat()
        };
        parts.map(bytes).collect::<Vec<_>>().concat()
    };
    let pair = {
        let (first, tag) = (Tag { operation: 5, round: 0 }, Tag { operation: 5, round: 1 });
        let carrying = carry(b"a payload".to_vec(), first, b"a header");
        let whole = split(tag, carrying, usize::MAX).flat_map(|(_, part)| part).collect::<Vec<_>>();
        [&[((Kind::Pair.tag() + 1) << 1) as u8, whole.len() as u8][..], &whole].concat()
    };
    [usize::MAX, 30].map(sent).into_iter().chain([pair]).collect()
}

/// The first messages of the ranks of a node: how many may share memory, then their introductions.
pub fn introductions(bytes: &[u8]) {
    let Some((&most, all)) = bytes.split_first() else { return };
    node::fuzz(all.as_chunks::<INTRODUCTION>().0, most.into());
}

/// Introductions as ranks make them.
pub fn introduced() -> Vec<Vec<u8>> {
    [1, 8].map(|most| [&[most][..], &node::introduced().concat()].concat()).to_vec()
}
