//! What one exchange copies: one set of fields, seen from all links of a bound object.
//!
//! A bound object has one set or several; an exchange uses one of them. Sets share the object's links.

use crate::bind::{self, Local, Offered};
use crate::error::{Cause, Error};
use crate::field::{Blocked, Field, Memory, State};
use crate::link::{Link, Record, Subject, describe, prefix};
use crate::lock::lock;
use crate::pattern::Pattern;
use crate::reduce::{Reduction, Reverse};
use halocline_plan::OwnedElements;
use halocline_plan::copy::CopyOp;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Fields that are exchanged together.
pub(crate) struct Set {
    /// Its index among the object's sets, the same on all ranks.
    pub(crate) number: usize,
    /// The fields in their places.
    pub(crate) local: Local,
    /// The fields of each peer.
    pub(crate) offered: Arc<BTreeMap<usize, Offered>>,
    /// What travels over each link of the object, by [`crate::link::Link::part`].
    pub(crate) parts: Vec<Part>,
    /// Copies between domains of this rank, from field to field.
    pub(crate) within: Vec<CopyOp>,
    /// Bytes that this rank copies in an exchange.
    pub(crate) bytes: usize,
    /// Address of element (0, 0, …) of each field; none in the unbound form, whose sets hold no memory.
    pub(crate) bases: Vec<*mut u8>,
    /// The copies of a reduce, made at the first one.
    pub(crate) reverse: OnceLock<Reverse>,
    /// For each field, made at its first use.
    owned: Vec<OnceLock<Option<OwnedElements>>>,
}

impl Set {
    pub(crate) fn new(
        number: usize,
        local: Local,
        offered: Arc<BTreeMap<usize, Offered>>,
        parts: Vec<Part>,
    ) -> Self {
        let (within, bases) = (bind::within(&local), local.bases());
        let copied = |part: &Part| if part.ops.is_empty() && part.unbound.is_none() { 0 } else { part.bytes };
        let bytes = parts.iter().map(copied).sum::<usize>() + within.iter().map(CopyOp::bytes).sum::<usize>();
        let owned = local.fields.iter().map(|_| OnceLock::new()).collect();
        Self { number, local, offered, parts, within, bytes, bases, reverse: OnceLock::new(), owned }
    }

    /// The elements of a field that an exchange leaves alone.
    pub(crate) fn owned(&self, field: usize) -> Option<&OwnedElements> {
        self.owned[field].get_or_init(|| self.local.owned(field)).as_ref()
    }

    /// The copies between the fields and the message of a link, also if the link's path sends no message.
    pub(crate) fn message(&self, link: &Link) -> Result<&[CopyOp], Error> {
        let part = &self.parts[link.part];
        if !link.path.is_direct() {
            return Ok(&part.ops);
        }
        Ok(match part.packing.get() {
            Some(ops) => ops,
            None => {
                let ops = bind::packing(self, link.peer, link.direction)?;
                part.packing.get_or_init(|| ops)
            }
        })
    }
}

/// What travels over one link.
#[derive(Default)]
pub(crate) struct Part {
    /// Bytes of one exchange.
    pub(crate) bytes: usize,
    /// The copies that this side makes, between fields of the set and `remote` or a message.
    pub(crate) ops: Vec<CopyOp>,
    /// Address of element (0, 0, …) of each field of the peer that this side reads or writes.
    pub(crate) remote: Vec<*mut u8>,
    /// The copies between fields and a message, if the link sends none. Made at their first use.
    pub(crate) packing: OnceLock<Vec<CopyOp>>,
    /// In the unbound form.
    pub(crate) unbound: Option<Box<UnboundPart>>,
}

// SAFETY: the pointers lead into memory that `local` and `offered` hold, and are not bound to a thread. Code that follows
// them holds a claim of the exchange that uses the set, or orders streams.
unsafe impl Send for Set {}
// SAFETY: a set changes only through locks, and its pointers lead into memory that `local` and `offered`
// hold. Code that follows them holds a claim of the exchange that uses the set, or orders streams.
unsafe impl Sync for Set {}

/// What the unbound form adds to a part.
pub(crate) struct UnboundPart {
    /// The fields as their sender describes them; without an order where they are received.
    pub(crate) records: Vec<Record>,
    /// The same, encoded.
    pub(crate) described: Box<[u8]>,
    /// How to unpack the payloads of the last senders' layouts, the latest last.
    readings: Mutex<Vec<Reading>>,
}

/// The copies that unpack payloads of this description.
struct Reading {
    described: Box<[u8]>,
    ops: Vec<CopyOp>,
}

/// Descriptions that are remembered.
const READINGS: usize = 4;

impl UnboundPart {
    pub(crate) fn new(records: Vec<Record>) -> Self {
        Self { described: describe(&records), records, readings: Mutex::default() }
    }

    /// The offset of the bytes in a payload.
    pub(crate) fn prefix(&self) -> usize {
        prefix(self.records.len())
    }

    /// Calls `with` with the copies that unpack payloads of this description; `make` makes them the first time.
    pub(crate) fn with_reading<T>(
        &self,
        described: &[u8],
        make: impl FnOnce() -> Result<Vec<CopyOp>, Cause>,
        with: impl FnOnce(&[CopyOp]) -> T,
    ) -> Result<T, Cause> {
        let mut readings = lock(&self.readings);
        let known = readings.iter().rposition(|reading| *reading.described == *described);
        let at = match known {
            Some(at) => at,
            None => {
                let ops = make()?;
                if readings.len() == READINGS {
                    readings.remove(0);
                }
                readings.push(Reading { described: described.into(), ops });
                readings.len() - 1
            }
        };
        Ok(with(&readings[at].ops))
    }
}

/// What the exchange in flight copies.
pub(crate) struct InFlight {
    set: Arc<Set>,
    /// The exchange runs in reverse.
    reduction: Option<Reduction>,
    /// In the unbound form, whose sets hold no memory: address of element (0, 0, …) of each field given to this exchange, and the
    /// memories of the fields, each once.
    given: Vec<*mut u8>,
    held: Vec<Arc<Memory>>,
    /// States of other memories that share bytes with those ([`Memory::overlapping`]).
    overlapping: Vec<Arc<State>>,
}

// SAFETY: the addresses lead into memory that the set or `held` holds, and are not bound to a thread.
unsafe impl Send for InFlight {}
// SAFETY: a shared `InFlight` does not change: changes need `&mut`. Code that follows its addresses holds a claim of
// the exchange.
unsafe impl Sync for InFlight {}

impl InFlight {
    fn new(set: Arc<Set>) -> Self {
        Self { set, reduction: None, given: Vec::new(), held: Vec::new(), overlapping: Vec::new() }
    }

    #[inline]
    pub(crate) fn set(&self) -> &Arc<Set> {
        &self.set
    }

    /// How the exchange combines, if it runs in reverse.
    #[inline]
    pub(crate) fn reduction(&self) -> Option<Reduction> {
        self.reduction
    }

    /// The copies of a reduce, which its begin has made.
    #[inline]
    pub(crate) fn reverse(&self) -> Option<&Reverse> {
        self.set.reverse.get()
    }

    /// What peers must have begun, too: the set and the operation.
    #[inline]
    pub(crate) fn subject(&self) -> Subject {
        Subject::new(self.set.number, self.reduction.map(|reduction| reduction.op))
    }

    /// The number of the field with this memory, layout and address, if it is the only one in its memory.
    pub(crate) fn only_field(&self, field: &Field) -> Option<usize> {
        let local = &self.set.local;
        let own = local.memories.iter().map(|(memory, _)| memory);
        let memory = own.chain(&self.held).position(|memory| Arc::ptr_eq(memory, &field.memory))?;
        let mut there = (0..local.fields.len()).filter(|&at| local.fields[at].memory == memory);
        let only = there.next().filter(|_| there.next().is_none())?;
        let is_it = local.fields[only].layout == field.layout && self.bases()[only] == field.base().as_ptr();
        is_it.then_some(only)
    }

    /// What travels over a link.
    #[inline]
    pub(crate) fn part(&self, link: usize) -> &Part {
        &self.set.parts[link]
    }

    /// Address of element (0, 0, …) of each field.
    #[inline]
    pub(crate) fn bases(&self) -> &[*mut u8] {
        if self.set.bases.is_empty() { &self.given } else { &self.set.bases }
    }

    #[inline]
    fn take(
        &mut self,
        set: &Arc<Set>,
        given: &[(&Pattern, &Field)],
        reduction: Option<Reduction>,
    ) -> Result<(), Error> {
        set.local.begin_flight()?;
        self.reduction = reduction;
        if !Arc::ptr_eq(&self.set, set) {
            self.set = Arc::clone(set);
        }
        if given.is_empty() { Ok(()) } else { self.take_given(given) }
    }

    /// Takes the fields of a set that holds no memory.
    fn take_given(&mut self, given: &[(&Pattern, &Field)]) -> Result<(), Error> {
        for (at, (_, field)) in given.iter().enumerate() {
            // Memories are counted in the order in which they first appear.
            if self.set.local.fields[at].memory == self.held.len()
                && let Err(blocked) = self.hold(&field.memory)
            {
                self.release();
                return Err(blocked.error(at));
            }
        }
        self.given.clear();
        self.given.extend(given.iter().map(|(_, field)| field.base().as_ptr()));
        Ok(())
    }

    /// Takes a memory, and the states of memories that share bytes with it.
    #[inline]
    fn hold(&mut self, memory: &Arc<Memory>) -> Result<(), Blocked> {
        let is = |state: &Arc<State>, other: &Arc<State>| Arc::ptr_eq(state, other);
        match self.overlapping.iter().position(|state| is(state, &memory.state)) {
            // An earlier memory shares bytes with it: its state is taken already.
            Some(at) => drop(self.overlapping.swap_remove(at)),
            None => memory.state.begin_flight()?,
        }
        self.held.push(Arc::clone(memory));
        for state in memory.overlapping() {
            let is_held = self.held.iter().any(|memory| is(&memory.state, state));
            if !is_held && !self.overlapping.iter().any(|other| is(other, state)) {
                state.begin_flight()?;
                self.overlapping.push(Arc::clone(state));
            }
        }
        Ok(())
    }

    fn release(&mut self) {
        self.held.drain(..).for_each(|memory| memory.state.end_flight());
        self.overlapping.drain(..).for_each(|state| state.end_flight());
    }

    #[inline]
    fn land(&mut self) {
        self.set.local.end_flight();
        if !self.held.is_empty() {
            self.release();
        }
    }
}

/// Holds the [`InFlight`], which changes only while no exchange is in flight.
pub(crate) struct Flight(UnsafeCell<InFlight>);

// SAFETY: a thread gets a shared reference by `get` and changes the `InFlight` by `load` and `land`. The callers of `load` and
// `land` promise that no other thread uses the `InFlight` meanwhile.
unsafe impl Sync for Flight {}

impl Flight {
    pub(crate) fn new(set: Arc<Set>) -> Self {
        Self(UnsafeCell::new(InFlight::new(set)))
    }

    /// What is in flight.
    ///
    /// # Safety
    /// Until the reference is given up, an exchange is in flight, or no thread begins one, or this thread is the one
    /// that begins it.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &InFlight {
        // SAFETY: the caller promises that no thread calls `load` or `land` while the reference is used.
        unsafe { &*self.0.get() }
    }

    /// Takes the memories of a set for the exchange that is about to begin, or those of the `given` fields, if the set holds no
    /// memory.
    ///
    /// # Safety
    /// No exchange is in flight, no other thread begins one, and no reference of `get` is in use.
    #[inline]
    pub(crate) unsafe fn load(
        &self,
        set: &Arc<Set>,
        given: &[(&Pattern, &Field)],
        reduction: Option<Reduction>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises that this thread alone uses the `InFlight`.
        unsafe { &mut *self.0.get() }.take(set, given, reduction)
    }

    /// Gives the memories back to the user.
    ///
    /// # Safety
    /// The exchange in flight is over for all other threads, and no reference of `get` is in use.
    #[inline]
    pub(crate) unsafe fn land(&self) {
        // SAFETY: the caller promises that this thread alone uses the `InFlight`.
        unsafe { &mut *self.0.get() }.land();
    }
}
