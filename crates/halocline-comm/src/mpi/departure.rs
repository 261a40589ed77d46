//! How ranks depart: each leaves when its communicator is dropped, and those of this process end before MPI is finalised, which would
//! wait for ranks that wait for them.

use super::{MpiError, Shared};
use crate::shm::ShmTransport;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Transports that have joined and were not dropped.
static JOINED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(super) fn remember(shared: &Arc<Shared>) {
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    joined.retain(|known| known.strong_count() > 0);
    joined.push(Arc::downgrade(shared));
}

/// Tells the ranks of this node that those of this process end. Ranks that MPI reaches learn it when the channels close.
pub(super) fn end_all() {
    for_all(|shared| shared.tell_node(ShmTransport::end));
}

/// After [`end_all`] and the close of the channels: calls fail with [`MpiError::Finalized`] from now on, also between ranks that share
/// memory and need no MPI: their peers expect nothing of them any more. A rank alone needs no others.
pub(super) fn break_all() {
    for_all(|shared| {
        if shared.slots.len() > 1 {
            shared.break_down(MpiError::Finalized);
        }
    });
}

fn for_all(act: impl Fn(&Shared)) {
    // No lock is held meanwhile: other threads may join, or drop their transports.
    let joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    joined.iter().filter_map(Weak::upgrade).for_each(|shared| act(&shared));
}

impl Shared {
    pub(super) fn tell_node(&self, how: impl Fn(&ShmTransport)) {
        if let Some(shm) = &self.shm {
            // Before the others see this rank leave: they would finalise MPI without it.
            self.note_failure(shm);
            how(shm);
        }
    }
}
