//! Messages of a channel, cut into MPI messages and put together again.

use super::Arrival;
#[cfg(doc)]
use super::Channel;
use crate::borrowed::{Borrowed, Payload};
use crate::bulk::{Bulk, BulkQueue};
use crate::inbox::Tag;
use crate::mpi::engine::{Came, Wire};
use crate::mpi::error::MpiError;
use crate::mpi::frame::{
    Assembly, Kind, LONGEST, NUMBERS, TRAILER, announce, announced, carried, carry, longest, split, trailer,
};
use crate::mpi::posted::PostedReceives;
use crate::transport::Post;
use std::collections::HashMap;
use std::sync::Arc;

/// The state behind the lock of a [`Channel`].
pub(super) struct State {
    pub(super) wire: Box<dyn Wire>,
    assembly: Assembly,
    /// The number of the next bulk to each peer.
    numbers: HashMap<usize, u32>,
    /// Peers that have closed.
    pub(super) gone: usize,
    /// The user has dropped the communicator, or MPI is about to be finalised.
    pub(super) close: Close,
    /// Why MPI is not called any more.
    pub(super) broken: Option<MpiError>,
}

/// Progress of closing a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    No,
    Due,
    Sent,
}

impl State {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        let (assembly, numbers) = (Assembly::default(), HashMap::new());
        Self { wire, assembly, numbers, gone: 0, close: Close::No, broken: None }
    }

    pub(super) fn check(&self) -> Result<(), MpiError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Records the first failure: the channel is broken from then on.
    pub(super) fn note(&mut self, outcome: Result<(), MpiError>) -> Result<(), MpiError> {
        if let Err(error) = &outcome {
            self.broken.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    /// # Safety
    /// The access rule of [`Channel`] holds. `to` is a rank of the communicator.
    pub(super) unsafe fn send(&mut self, to: usize, tag: Tag, payload: Payload) -> Result<(), MpiError> {
        let payload = match payload {
            Payload::Borrowed(buffer) if buffer.bytes().len() + TRAILER <= LONGEST => {
                let trailer = trailer(tag, buffer.bytes().len());
                let whole = Payload::Borrowed(buffer.extended(trailer));
                // SAFETY: the caller keeps the access rule of `Channel` and gives a rank of the communicator.
                return unsafe { self.wire.send(to, Kind::Last, whole) };
            }
            Payload::Borrowed(buffer) => buffer.copied(),
            Payload::Owned(bytes) => bytes,
        };
        let longest = longest(payload.len() + TRAILER);
        // SAFETY: the caller keeps the access rule of `Channel` and gives a rank of the communicator.
        unsafe { self.send_parts(to, Kind::Last, split(tag, payload, longest)) }
    }

    /// # Safety
    /// The access rule of [`Channel`] holds. `to` is a rank of the communicator.
    pub(super) unsafe fn send_pair(&mut self, to: usize, pair: [Post; 2]) -> Result<(), MpiError> {
        let [first, second] = pair;
        let payload = carry(second.payload, first.tag, &first.payload);
        let longest = longest(payload.len() + TRAILER);
        // SAFETY: the caller keeps the access rule of `Channel` and gives a rank of the communicator.
        unsafe { self.send_parts(to, Kind::Pair, split(second.tag, payload, longest)) }
    }

    /// # Safety
    /// The access rule of [`Channel`] holds. `to` is a rank of the communicator. MPI takes the kind of memory that the bulk
    /// is in.
    pub(super) unsafe fn send_bulk(
        &mut self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        bulk: Borrowed,
    ) -> Result<(), MpiError> {
        let number = self.numbers.entry(to).or_default();
        let payload = announce(payload, *number, bulk.len());
        // SAFETY: the caller keeps the access rule of `Channel`, gives a rank of the communicator, and promises that MPI
        // takes this kind of memory.
        unsafe { self.wire.send_bulk(to, *number, bulk)? };
        *number = (*number + 1) % NUMBERS;
        // SAFETY: the caller keeps the access rule of `Channel` and gives a rank of the communicator.
        unsafe { self.send_parts(to, Kind::Bulk, split(tag, payload, LONGEST)) }
    }

    /// Sends the MPI messages of a message. The last one is of kind `last`.
    ///
    /// # Safety
    /// The access rule of [`Channel`] holds. `to` is a rank of the communicator.
    unsafe fn send_parts(
        &mut self,
        to: usize,
        last: Kind,
        parts: impl Iterator<Item = (Kind, Vec<u8>)>,
    ) -> Result<(), MpiError> {
        for (kind, part) in parts {
            let kind = if kind == Kind::Last { last } else { kind };
            // SAFETY: the caller keeps the access rule of `Channel` and gives a rank of the communicator.
            unsafe { self.wire.send(to, kind, Payload::Owned(part))? };
        }
        Ok(())
    }

    /// # Safety
    /// The access rule of [`Channel`] holds. `peers` are ranks of the communicator.
    pub(super) unsafe fn send_close(&mut self, peers: &[usize]) -> Result<(), MpiError> {
        if self.close == Close::Due {
            self.close = Close::Sent;
            for &peer in peers {
                // SAFETY: the caller keeps the access rule of `Channel` and gives ranks of the communicator.
                unsafe { self.wire.send(peer, Kind::Close, Payload::Owned(Vec::new()))? };
            }
        }
        Ok(())
    }

    /// # Safety
    /// The access rule of [`Channel`] holds.
    pub(super) unsafe fn advance(
        &mut self,
        posted: &PostedReceives,
        bulk_queue: &Arc<BulkQueue>,
        arrive: &mut dyn FnMut(usize, Arrival),
    ) -> Result<(), MpiError> {
        let Self { wire, assembly, gone, .. } = self;
        let mut malformed = None;
        let mut take = |from: usize, kind: Kind, came: Came| match (kind, came) {
            (_, Came::InPlace(tag)) => arrive(from, Arrival::InPlace(tag)),
            (Kind::Part, Came::Bytes(bytes)) => assembly.part(from, bytes),
            (Kind::Last, Came::Bytes(bytes)) => match assembly.last(from, bytes) {
                Some((tag, payload)) => arrive(from, Arrival::Message(tag, payload, None)),
                None => malformed = Some(MpiError::Malformed { from, what: "a message without its end" }),
            },
            (Kind::Bulk, Came::Bytes(bytes)) => {
                let whole = assembly.last(from, bytes);
                let read =
                    whole.and_then(|(tag, mut payload)| Some((announced(&mut payload)?, tag, payload)));
                match read {
                    Some(((number, len), tag, payload)) => {
                        let bulk = Bulk::new((from, number), len, bulk_queue);
                        arrive(from, Arrival::Message(tag, payload, Some(bulk)));
                    }
                    None => {
                        malformed = Some(MpiError::Malformed { from, what: "an announcement of nothing" })
                    }
                }
            }
            (Kind::Pair, Came::Bytes(bytes)) => {
                let whole = assembly.last(from, bytes);
                let read = whole.and_then(|(tag, mut payload)| Some((carried(&mut payload)?, tag, payload)));
                match read {
                    Some(((first, before), tag, payload)) => {
                        arrive(from, Arrival::Message(first, before, None));
                        arrive(from, Arrival::Message(tag, payload, None));
                    }
                    None => malformed = Some(MpiError::Malformed { from, what: "a pair of one message" }),
                }
            }
            (Kind::Close, Came::Bytes(_)) => {
                *gone += 1;
                arrive(from, Arrival::Closed);
            }
        };
        // SAFETY: the caller keeps the access rule of `Channel`.
        unsafe { wire.advance(posted, &mut take)? };
        malformed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::BulkReceive;
    use crate::mpi::engine::INTRODUCTION;

    /// One MPI message of rank 1 that has arrived.
    struct Arrived(Kind, Vec<u8>);

    impl Wire for Arrived {
        unsafe fn send(&mut self, _: usize, _: Kind, _: Payload) -> Result<(), MpiError> {
            Ok(())
        }

        unsafe fn send_bulk(&mut self, _: usize, _: u32, _: Borrowed) -> Result<(), MpiError> {
            Ok(())
        }

        unsafe fn receive_bulk(&mut self, _: BulkReceive) -> Result<(), MpiError> {
            Ok(())
        }

        unsafe fn advance(
            &mut self,
            _: &PostedReceives,
            arrive: &mut dyn FnMut(usize, Kind, Came),
        ) -> Result<(), MpiError> {
            arrive(1, self.0, Came::Bytes(self.1.clone()));
            Ok(())
        }

        fn is_drained(&self) -> bool {
            true
        }

        fn is_idle(&self) -> bool {
            true
        }

        unsafe fn introduce(&mut self, _: &[u8; INTRODUCTION]) -> Result<Vec<[u8; INTRODUCTION]>, MpiError> {
            Ok(Vec::new())
        }

        unsafe fn split_node(&mut self, _: i32) -> Result<(), MpiError> {
            Ok(())
        }

        unsafe fn free(&mut self) -> Result<(), MpiError> {
            Ok(())
        }
    }

    #[test]
    fn messages_that_no_rank_sends_are_named() {
        let empty = trailer(Tag { operation: 3, round: 0 }, 0);
        for (kind, bytes, what) in [
            (Kind::Last, &empty[1..], "a message without its end"),
            (Kind::Bulk, &empty[..], "an announcement of nothing"),
            (Kind::Pair, &empty[..], "a pair of one message"),
        ] {
            let mut state = State::new(Box::new(Arrived(kind, bytes.to_vec())));
            let (posted, bulks) = (PostedReceives::default(), Arc::default());
            // SAFETY: the wire of this test does not call MPI.
            let advanced =
                unsafe { state.advance(&posted, &bulks, &mut |_, _| panic!("{what} has arrived")) };
            assert_eq!(advanced, Err(MpiError::Malformed { from: 1, what }));
        }
    }
}
