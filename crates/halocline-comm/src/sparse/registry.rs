//! Answers ranks that wait in an operation which is over here, so that sets which contradict each other are found out.
//!
//! A rank that names this one, but is not named by it, waits for its hello. Once it has waited for a while, it asks here. If the
//! operation goes on here, its own messages tell the answer.

use super::control::Control;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::inbox::Tag;
use crate::mappings::DeviceId;
use crate::packet::PacketTag;
use crate::progress::Serve;
use crate::transport::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The tag of all questions. The number is arbitrary: operations are hashed to 64 bits.
const TAG: Tag = Tag { operation: 0x7370_6172_7365_2061, round: Tag::NEWS };

/// The first and the longest time between two questions.
pub(super) const ASK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// State that outlives the operations of a rank.
pub(super) struct Registry {
    transport: Weak<dyn Transport>,
    operations: Mutex<Operations>,
    /// The device of each rank in its last operation with this one.
    devices: Mutex<BTreeMap<usize, Option<DeviceId>>>,
}

/// The operations of a rank, by their tags. All ranks begin the same ones in the same order, so that they count alike.
#[derive(Default)]
struct Operations {
    begun: u64,
    running: BTreeSet<u64>,
}

impl Operations {
    /// Answers a rank that asks for the operation of this tag and number. No answer if the operation has not begun here or goes on.
    fn answer(&self, operation: u64, number: u64) -> Option<Control> {
        (number < self.begun && !self.running.contains(&operation)).then_some(Control::Over)
    }
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
            Arc::new(Self { transport, operations: Mutex::default(), devices: Mutex::default() })
        });
        if is_new {
            comm.register(registry);
        }
        Arc::clone(registry)
    }

    fn operations(&self) -> MutexGuard<'_, Operations> {
        // No panic can happen while it is held: it is always whole.
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Counts an operation that begins. Returns its number.
    pub(super) fn begin(&self, operation: u64) -> u64 {
        let mut operations = self.operations();
        operations.running.insert(operation);
        operations.begun += 1;
        operations.begun - 1
    }

    /// Remembers that an operation is over: it has completed or failed, or was dropped.
    pub(super) fn end(&self, operation: u64) {
        self.operations().running.remove(&operation);
        // A rank may have asked before.
        self.serve();
    }

    /// Asks a rank whether an operation is over there.
    pub(super) fn ask(comm: &Communicator, rank: usize, operation: u64, number: u64) {
        let question = [operation.to_le_bytes(), number.to_le_bytes()].concat();
        // A rank that cannot be reached is noticed otherwise.
        let _ = comm.send(rank, TAG, question);
    }
}

impl Serve for Registry {
    fn serve(&self) {
        let Some(transport) = self.transport.upgrade() else { return };
        while let Some(message) = transport.inbox().take(TAG, None) {
            let word = |at: usize| {
                message.payload.get(8 * at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
            };
            let (Some(operation), Some(number)) = (word(0), word(1)) else { continue };
            let answer = self.operations().answer(operation, number);
            if let Some(answer) = answer {
                let tag = PacketTag { operation, channel: 0 }.control();
                let _ = transport.post(message.source, tag, answer.encode(), &[]);
            }
        }
    }

    fn is_over(&self) -> bool {
        true
    }
}
