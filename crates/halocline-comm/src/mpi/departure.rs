//! How ranks depart: each leaves when its communicator is dropped, and those of this process end before MPI is finalised, which would
//! wait for ranks that wait for them.

use super::Shared;
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
    let joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    joined.iter().filter_map(Weak::upgrade).for_each(|shared| shared.tell_node(ShmTransport::end));
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
