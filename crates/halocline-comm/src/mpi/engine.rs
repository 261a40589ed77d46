//! Messages in flight on one communicator: the requests that MPI has not completed.

use super::abi::Abi;
use super::error::MpiError;
use super::ffi::{Api, Matched};
use super::frame::Kind;
use super::posted::{PostedReceive, PostedReceives};
use crate::borrowed::{Borrowed, Payload};
use crate::buffers;
use crate::bulk::BulkReceive;
use crate::inbox::Tag;
use std::collections::VecDeque;
use std::ffi::c_int;

/// Bytes by which a rank introduces itself to the ranks of its node.
pub(super) const INTRODUCTION: usize = 160;

/// The content of an MPI message.
#[derive(Debug)]
pub(super) enum Came {
    Bytes(Vec<u8>),
    /// The message is complete in its posted buffer.
    InPlace(Tag),
}

/// An MPI communicator of the library, over any binary interface. One thread at a time uses it.
///
/// Every call is unsafe for one reason: MPI must be up ([`Api`]). [`super::channel::Channel`] keeps that, and is the only caller
/// but for the set-up.
pub(super) trait Wire: Send {
    /// Starts to send bytes. Never waits.
    ///
    /// # Safety
    /// MPI is up ([`Api`]). `to` is a rank of the communicator.
    unsafe fn send(&mut self, to: usize, kind: Kind, bytes: Payload) -> Result<(), MpiError>;

    /// Starts to send bytes that may be in memory of a device, on a communicator of their own, by a number.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and takes memory of the kind that `bytes` lie in. `to` is a rank of the communicator.
    unsafe fn send_bulk(&mut self, to: usize, number: u32, bytes: Borrowed) -> Result<(), MpiError>;

    /// Starts to receive bytes of that kind into a buffer, or discards them. They are in flight. Never waits.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and takes memory of the kind that the place lies in. `receive.from` is a rank of the
    /// communicator.
    unsafe fn receive_bulk(&mut self, receive: BulkReceive) -> Result<(), MpiError>;

    /// Lets MPI progress, and reports what has arrived, in order from each sender; into `posted` buffers where they fit. Never waits.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    unsafe fn advance(
        &mut self,
        posted: &PostedReceives,
        arrive: &mut dyn FnMut(usize, Kind, Came),
    ) -> Result<(), MpiError>;

    /// Whether all sends, and all receives of bulks, are complete.
    fn is_drained(&self) -> bool;

    /// Whether no request is pending.
    fn is_idle(&self) -> bool;

    /// The introductions of all ranks on this node, in the order of ranks. Collective over them, blocks.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    unsafe fn introduce(&mut self, mine: &[u8; INTRODUCTION]) -> Result<Vec<[u8; INTRODUCTION]>, MpiError>;

    /// Splits the ranks of this node: only those that give the same number introduce themselves to each other from now on.
    /// Collective over the former, blocks.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    unsafe fn split_node(&mut self, group: c_int) -> Result<(), MpiError>;

    /// Frees the communicator. Nothing may be in flight on it at any rank.
    ///
    /// # Safety
    /// MPI is up ([`Api`]). No method of this wire that calls MPI is called afterwards.
    unsafe fn free(&mut self) -> Result<(), MpiError>;
}

/// The [`Wire`] over an interface.
pub(super) struct Engine<A: Abi> {
    api: &'static Api<A>,
    comm: A::Handle,
    /// For bulks.
    bulk_comm: A::Handle,
    /// The ranks of this node: their communicator and how many they are.
    node: (A::Handle, usize),
    sends: Vec<Sent<A::Handle>>,
    receives: VecDeque<Receive<A::Handle>>,
    bulks: Vec<Sent<A::Handle>>,
}

/// Bytes that MPI reads, or the buffer of a bulk that it writes, until its request is done.
struct Sent<H> {
    request: H,
    bytes: Payload,
}

/// Bytes that MPI writes until its request is done.
struct Receive<H> {
    source: usize,
    kind: Kind,
    request: H,
    into: Into,
    done: bool,
}

/// Where MPI writes a message.
enum Into {
    /// Memory that is empty until so many bytes are there.
    Bytes(Vec<u8>, usize),
    Posted(PostedReceive),
}

impl<A: Abi> Engine<A> {
    /// Over two communicators of its own, for messages and for bulks, and the one of their ranks on this node.
    pub(super) fn new(
        api: &'static Api<A>,
        (comm, bulk_comm): (A::Handle, A::Handle),
        node: (A::Handle, usize),
    ) -> Self {
        Self { api, comm, bulk_comm, node, sends: Vec::new(), receives: VecDeque::new(), bulks: Vec::new() }
    }

    /// Begins to receive what has arrived.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    unsafe fn match_arrived(&mut self, posted: &PostedReceives) -> Result<(), MpiError> {
        // SAFETY: the caller promises that MPI is up. `free` alone frees `self.comm`, and is the last
        // call. Matched messages are received below.
        while let Some(mut matched) = unsafe { self.api.next(self.comm)? } {
            let Matched { source, tag, bytes, .. } = matched;
            let kind = Kind::of(tag);
            let receive = if kind == Some(Kind::Last) { posted.take(source, bytes) } else { None };
            let mut into = receive.map_or_else(|| Into::Bytes(buffers::take(bytes), bytes), Into::Posted);
            let first = match &mut into {
                Into::Bytes(buffer, _) => buffer.as_mut_ptr(),
                Into::Posted(receive) => receive.first(),
            };
            // SAFETY: the caller promises that MPI is up. `into` has space for `bytes` bytes: `buffers::take` made it,
            // or the place and the space behind it are as long. `receives` keeps it, and nothing uses it, until the
            // request is done.
            let request = unsafe { self.api.receive(&mut matched, first)? };
            let malformed = MpiError::Malformed { from: source, what: "a message with an unknown tag" };
            let known = kind.ok_or(malformed);
            let kind = *known.as_ref().unwrap_or(&Kind::Part);
            self.receives.push_back(Receive { source, kind, request, into, done: false });
            known?;
        }
        Ok(())
    }
}

impl<A: Abi> Wire for Engine<A> {
    unsafe fn send(&mut self, to: usize, kind: Kind, bytes: Payload) -> Result<(), MpiError> {
        let all = bytes.bytes();
        let all = (all.as_ptr(), all.len());
        // SAFETY: the caller promises that MPI is up and that the communicator has rank `to`. `sends` keeps the bytes
        // where they are until the request is done; if it never is, `drop` leaks them.
        let request = unsafe { self.api.send(self.comm, to, kind.tag(), all)? };
        self.sends.push(Sent { request, bytes });
        // Short messages are done at once. Where MPI fails to say so, the bytes stay.
        if let Some(send) = self.sends.last_mut()
            // SAFETY: the caller promises that MPI is up. The request was begun just now.
            && unsafe { self.api.is_done(&mut send.request)? }
            && let Some(send) = self.sends.pop()
        {
            send.bytes.give_back();
        }
        Ok(())
    }

    unsafe fn send_bulk(&mut self, to: usize, number: u32, bytes: Borrowed) -> Result<(), MpiError> {
        let all = (bytes.first().as_ptr().cast_const(), bytes.len());
        // SAFETY: the caller promises that MPI is up, that the communicator has rank `to`, and that MPI takes this kind
        // of memory. `sends` keeps the bytes where they are until the request is done; where that never is, `drop`
        // forgets them.
        let request = unsafe { self.api.send(self.bulk_comm, to, number as c_int, all)? };
        self.sends.push(Sent { request, bytes: Payload::Borrowed(bytes) });
        Ok(())
    }

    unsafe fn receive_bulk(&mut self, receive: BulkReceive) -> Result<(), MpiError> {
        let BulkReceive { from, number, len, place } = receive;
        let mut into = place.map_or_else(|| Payload::Owned(vec![0; len]), Payload::Borrowed);
        let first = match &mut into {
            Payload::Owned(bytes) => bytes.as_mut_ptr(),
            Payload::Borrowed(place) => place.first().as_ptr(),
        };
        // SAFETY: the caller promises that MPI is up, that the communicator has rank `from`, and that MPI takes this
        // kind of memory. `into` has space for `len` bytes: it was made so, or `Bulk::post_receive` has compared the length.
        // `bulks` keeps it, and nothing uses it, until the request is done.
        let request = unsafe { self.api.receive_of(self.bulk_comm, (from, number as c_int), (first, len))? };
        self.bulks.push(Sent { request, bytes: into });
        Ok(())
    }

    unsafe fn advance(
        &mut self,
        posted: &PostedReceives,
        arrive: &mut dyn FnMut(usize, Kind, Came),
    ) -> Result<(), MpiError> {
        for pending in [&mut self.sends, &mut self.bulks] {
            let mut at = 0;
            while let Some(one) = pending.get_mut(at) {
                // SAFETY: the caller promises that MPI is up. The request was not done before: one that is done is
                // removed.
                match unsafe { self.api.is_done(&mut one.request)? } {
                    true => pending.swap_remove(at).bytes.give_back(),
                    false => at += 1,
                }
            }
        }
        // SAFETY: the caller promises that MPI is up.
        unsafe { self.match_arrived(posted)? };
        for receive in self.receives.iter_mut().filter(|receive| !receive.done) {
            // SAFETY: the caller promises that MPI is up. The request was not done before: `receive.done` says so.
            receive.done = unsafe { self.api.is_done(&mut receive.request)? };
        }
        // A long message delays only later messages of its own sender.
        let mut held = Vec::new();
        let mut at = 0;
        while let Some(receive) = self.receives.get(at) {
            if !receive.done || held.contains(&receive.source) {
                held.push(receive.source);
                at += 1;
            } else if let Some(receive) = self.receives.remove(at) {
                let came = match receive.into {
                    Into::Bytes(mut buffer, bytes) => {
                        // SAFETY: the request is done, so that MPI has written all `bytes` bytes. `buffers::take`
                        // has reserved them.
                        unsafe { buffer.set_len(bytes) };
                        Came::Bytes(buffer)
                    }
                    Into::Posted(receive) => receive.complete(posted).map_or_else(Came::Bytes, Came::InPlace),
                };
                arrive(receive.source, receive.kind, came);
            }
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.sends.is_empty() && self.bulks.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.is_drained() && self.receives.is_empty()
    }

    unsafe fn introduce(&mut self, mine: &[u8; INTRODUCTION]) -> Result<Vec<[u8; INTRODUCTION]>, MpiError> {
        let (comm, size) = self.node;
        // SAFETY: the caller promises that MPI is up. `self.node` is a communicator and the number of its ranks.
        unsafe { self.api.all_gather(comm, size, mine) }
    }

    unsafe fn split_node(&mut self, group: c_int) -> Result<(), MpiError> {
        let (whole, _) = self.node;
        // SAFETY: the caller promises that MPI is up. `whole` is a communicator; nothing is in flight on it, for its
        // only calls are collective ones that wait, and `part` takes its place.
        unsafe {
            let part = self.api.split(whole, group)?;
            self.node = (part, self.api.place(part)?.1);
            self.api.free(whole)
        }
    }

    unsafe fn free(&mut self) -> Result<(), MpiError> {
        let (node, _) = self.node;
        // SAFETY: the caller promises that MPI is up and that nothing is in flight on these communicators, which nothing
        // uses afterwards.
        unsafe { self.api.free(node).and(self.api.free(self.bulk_comm)).and(self.api.free(self.comm)) }
    }
}

impl<A: Abi> Drop for Engine<A> {
    fn drop(&mut self) {
        // MPI may still access the memory of pending requests: it is leaked.
        self.sends.drain(..).chain(self.bulks.drain(..)).for_each(|one| std::mem::forget(one.bytes));
        self.receives.drain(..).for_each(|receive| std::mem::forget(receive.into));
    }
}
