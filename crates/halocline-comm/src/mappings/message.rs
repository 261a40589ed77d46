//! The messages of the mapping protocol, as bytes. Received messages are checked before use: truncated, overlong and
//! impossible ones are typed errors.

use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Export, Refusal};
use halocline_plan::wire::{self, WireError};
use serde::{Deserialize, Serialize};

/// A process; the random number distinguishes it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) random: u64,
}

impl ProcessId {
    /// This process.
    pub(crate) fn own() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        static RANDOM: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        let random = *RANDOM.get_or_init(|| RandomState::new().build_hasher().finish());
        Self { pid: std::process::id(), random }
    }

    /// The id of a rank that is a thread but behaves like a process.
    pub(crate) fn emulated(number: u32) -> Self {
        Self { pid: number, random: crate::communicator::mix(number.into()) }
    }
}

/// The description of an allocation in an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) process: ProcessId,
    pub(crate) allocation: Allocation,
    pub(crate) handle: Vec<u8>,
}

/// A message of the protocol. `device` is always that of the importer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Owner: open this.
    Offer { entry: u64, device: DeviceId, descriptor: Descriptor },
    /// Importer: it is open, under this token, at this address there.
    Mapped { entry: u64, device: DeviceId, token: u64, address: Address },
    /// Importer: it cannot be opened.
    MapFailed { entry: u64, device: DeviceId, why: Refusal },
    /// Owner: close it.
    Unmap { token: u64 },
    /// Importer: it is closed.
    Unmapped { entry: u64, device: DeviceId },
    /// Owner: read these bytes of it. After the last ones, close it before `DONE`.
    Data { entry: u64, token: u64, offset: u64, length: u64, epoch: u64, last: bool },
    /// Importer: they were read, or why not.
    Done { epoch: u64, refused: Option<Refusal> },
    /// Either: all its imports are closed, and all its memory must be.
    Gone,
}

/// A message that no rank of this library sends.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Truncated, too long, or no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A repeated offer.
    #[error("it offers entry {entry:#x} for {device} again")]
    Repeated {
        /// The owner's entry.
        entry: u64,
        /// The device of the importer.
        device: DeviceId,
    },
    /// A token that the sender does not have.
    #[error("it names mapping {token:#x}, which the sender does not have")]
    NoMapping {
        /// The token.
        token: u64,
    },
}

halocline_plan::debug_as_text!(MessageError);

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let message = wire::decode(bytes)?;
        if let Self::Offer { descriptor: Descriptor { allocation, handle, .. }, .. } = &message {
            let end = allocation.base.checked_add(allocation.bytes);
            if allocation.bytes == 0 || end.is_none_or(|end| end > i64::MAX as u64) {
                let why = "an allocation is empty or exceeds the address space";
                return Err(WireError::Content(why).into());
            }
            if handle.len() > Export::MOST {
                return Err(WireError::Content("a handle is too long").into());
            }
        }
        Ok(message)
    }
}

/// One message of each kind, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn samples() -> Vec<Message> {
    let device = DeviceId([7; 16]);
    let allocation =
        Allocation { base: 4096, bytes: 100, id: 5, device, kind: halocline_device::remote::Kind::Legacy };
    let process = ProcessId { pid: 1, random: 2 };
    vec![
        Message::Offer {
            entry: 1,
            device,
            descriptor: Descriptor { process, allocation, handle: vec![1; 64] },
        },
        Message::Mapped { entry: 1, device, token: 2, address: 8192 },
        Message::MapFailed { entry: 1, device, why: Refusal::Other(-3) },
        Message::MapFailed { entry: 1, device: DeviceId::HOST, why: Refusal::BadHandle },
        Message::Unmap { token: 2 },
        Message::Unmapped { entry: 1, device },
        Message::Data { entry: 1, token: 2, offset: 3, length: 4, epoch: 5, last: true },
        Message::Done { epoch: 5, refused: None },
        Message::Done { epoch: 5, refused: Some(Refusal::Private) },
        Message::Gone,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_encoding() {
        for message in samples() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_truncated_message_is_refused() {
        for bytes in samples().iter().map(Message::encode) {
            for length in 0..bytes.len() {
                let short = Message::decode(&bytes[..length]);
                assert!(matches!(short, Err(MessageError::Wire(_))), "{length} of {bytes:?}: {short:?}");
            }
        }
    }

    #[test]
    fn a_message_with_trailing_bytes_is_refused() {
        for mut bytes in samples().iter().map(Message::encode) {
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), Err(MessageError::Wire(WireError::Trailing(1))));
        }
    }

    #[test]
    fn an_oversized_handle_and_impossible_memory_are_refused() {
        let offer = |change: fn(&mut Descriptor)| {
            let mut message = samples().swap_remove(0);
            if let Message::Offer { descriptor, .. } = &mut message {
                change(descriptor);
            }
            Message::decode(&message.encode())
        };
        assert!(offer(|_| {}).is_ok());
        let content = |error| Err(MessageError::Wire(WireError::Content(error)));
        assert_eq!(offer(|d| d.handle = vec![0; Export::MOST + 1]), content("a handle is too long"));
        let nowhere = content("an allocation is empty or exceeds the address space");
        assert_eq!(offer(|d| d.allocation.bytes = 0), nowhere);
        assert_eq!(offer(|d| d.allocation.bytes = u64::MAX), nowhere);
        assert_eq!(offer(|d| d.allocation.base = i64::MAX as u64), nowhere);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_a_message(kind in 0u8..10, rest in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(message) = Message::decode(&[&[kind], &rest[..]].concat()) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}
