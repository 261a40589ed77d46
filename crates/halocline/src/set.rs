//! What one exchange copies: one set of fields, seen from all links of a bound object.
//!
//! A bound object has one set or several, of which an exchange uses one. The links last, the sets are what
//! they carry.

use crate::bind::{self, Local, Offered};
use halocline_plan::copy::CopyOp;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fields that are exchanged together.
pub(crate) struct Set {
    /// The fields in their places.
    pub(crate) local: Local,
    /// The fields of each peer.
    pub(crate) offered: Arc<BTreeMap<usize, Offered>>,
    /// What goes over each link of the object, by [`crate::link::Link::part`].
    pub(crate) parts: Vec<Part>,
    /// Copies between domains of this rank, from field to field.
    pub(crate) within: Vec<CopyOp>,
    /// Address of element (0, 0, …) of each field.
    pub(crate) bases: Vec<*mut u8>,
}

impl Set {
    pub(crate) fn new(local: Local, offered: Arc<BTreeMap<usize, Offered>>, parts: Vec<Part>) -> Self {
        let (within, bases) = (bind::within(&local), local.bases());
        Self { local, offered, parts, within, bases }
    }
}

/// What goes over one link.
#[derive(Default)]
pub(crate) struct Part {
    /// Bytes of one exchange.
    pub(crate) bytes: usize,
    /// The copying of this side, if it has any: between fields of the set and `remote`, or a message.
    pub(crate) ops: Vec<CopyOp>,
    /// Address of element (0, 0, …) of each field of the peer that this side reads or writes.
    pub(crate) remote: Vec<*mut u8>,
}

// SAFETY: the pointers are into memory that the set holds (`local`, `offered`), and the protocol of the
// exchange that uses the set decides who accesses its bytes at what time.
unsafe impl Send for Set {}
// SAFETY: as above.
unsafe impl Sync for Set {}

/// The set of the exchange in flight: which one it is changes only while none is.
pub(crate) struct Flight(UnsafeCell<Arc<Set>>);

// SAFETY: the promises of `get` and `change` exclude each other, and exclude another `change`.
unsafe impl Sync for Flight {}

impl Flight {
    pub(crate) fn new(set: Arc<Set>) -> Self {
        Self(UnsafeCell::new(set))
    }

    /// The set in flight.
    ///
    /// # Safety
    /// An exchange is in flight and stays so as long as the reference is used, or this thread is the one
    /// that begins it.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &Arc<Set> {
        // SAFETY: nobody changes it meanwhile.
        unsafe { &*self.0.get() }
    }

    /// Makes `set` the one that the next exchange uses.
    ///
    /// # Safety
    /// No exchange is in flight, and no other thread begins one.
    #[inline]
    pub(crate) unsafe fn change(&self, set: &Arc<Set>) {
        // SAFETY: nobody else reads or writes it meanwhile.
        let current = unsafe { &mut *self.0.get() };
        if !Arc::ptr_eq(current, set) {
            *current = Arc::clone(set);
        }
    }
}
