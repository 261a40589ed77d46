//! Answers ranks that wait in an operation which is over here, so that sets which contradict each other are found out.
//!
//! A rank that names this one, but is not named by it, waits for its hello. Once it has waited for a while, it asks here. If the
//! operation goes on here, its own messages tell the answer.

use super::control::Control;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::inbox::Tag;
use crate::mappings::DeviceId;
use crate::packet::{Failure, PacketTag};
use crate::progress::Serve;
use crate::transport::Transport;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The tag of all questions. The number is arbitrary: operations are hashed to 64 bits.
const TAG: Tag = Tag { operation: 0x7370_6172_7365_2061, round: Tag::NEWS };

/// Operations that are remembered.
const MOST: usize = 1024;

/// The first and the longest time between two questions.
pub(super) const ASK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// What the operations of a rank leave behind.
pub(super) struct Registry {
    transport: Weak<dyn Transport>,
    over: Mutex<VecDeque<(u64, Control)>>,
    /// The device of each rank in its last operation with this one.
    devices: Mutex<BTreeMap<usize, Option<DeviceId>>>,
}

#[derive(Default)]
struct Extension(OnceLock<Arc<Registry>>);

impl Registry {
    pub(super) fn of(comm: &Communicator) -> Arc<Self> {
        let extension = comm.extension::<Extension>();
        let mut is_new = false;
        let registry = extension.0.get_or_init(|| {
            is_new = true;
            let transport = comm.weak_transport();
            Arc::new(Self { transport, over: Mutex::default(), devices: Mutex::default() })
        });
        if is_new {
            let weak: Weak<Self> = Arc::downgrade(registry);
            comm.register(weak);
        }
        Arc::clone(registry)
    }

    fn over(&self) -> MutexGuard<'_, VecDeque<(u64, Control)>> {
        // No panic can happen while it is held: the list is always whole.
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn devices(&self) -> MutexGuard<'_, BTreeMap<usize, Option<DeviceId>>> {
        // No panic can happen while it is held: the map is always whole.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device of a rank in its last operation with this one.
    pub(super) fn device_of(&self, rank: usize) -> Option<Option<DeviceId>> {
        self.devices().get(&rank).copied()
    }

    pub(super) fn note_device(&self, rank: usize, device: Option<DeviceId>) {
        self.devices().insert(rank, device);
    }

    /// Remembers an operation that is over, or that this rank could not begin.
    pub(super) fn note(&self, operation: u64, failure: Option<Failure>) {
        let answer = failure.map_or(Control::Over, Control::Abort);
        {
            let mut over = self.over();
            over.truncate(MOST - 1);
            over.push_front((operation, answer));
        }
        // A rank may have asked before.
        self.serve();
    }

    /// Asks a rank whether the operation is over there.
    pub(super) fn ask(comm: &Communicator, rank: usize, operation: u64) {
        // A rank that cannot be reached is noticed otherwise.
        let _ = comm.send(rank, TAG, operation.to_le_bytes().to_vec());
    }
}

impl Serve for Registry {
    fn serve(&self) {
        let Some(transport) = self.transport.upgrade() else { return };
        while let Some(message) = transport.inbox().take(TAG, None) {
            let Some(operation) = message.payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
            else {
                continue;
            };
            let answer = self.over().iter().find(|(known, _)| *known == operation).map(|(_, it)| it.encode());
            if let Some(answer) = answer {
                let tag = PacketTag { operation, channel: 0 }.control();
                let _ = transport.post(message.source, tag, answer, &[]);
            }
        }
    }

    fn is_over(&self) -> bool {
        true
    }
}
