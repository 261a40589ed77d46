//! The messages of the mapping protocol, as bytes. Received messages are checked before use: truncated, overlong and
//! impossible ones are typed errors.

use halocline_device::remote::{Allocation, DeviceId, Export, Kind, Refusal};
use halocline_plan::wire::{Reader, WireError, Writer};

/// A process; the random number distinguishes it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    pub(crate) fn pretended(number: u32) -> Self {
        Self { pid: number, random: crate::communicator::mix(number.into()) }
    }
}

/// The description of an allocation in an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) process: ProcessId,
    pub(crate) allocation: Allocation,
    pub(crate) handle: Vec<u8>,
}

/// A message of the protocol. `device` is always that of the importer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Owner: open this.
    Offer { entry: u64, device: DeviceId, descriptor: Descriptor },
    /// Importer: it is open, under this token.
    Mapped { entry: u64, device: DeviceId, token: u64 },
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
        let mut w = Writer::new();
        match self {
            Self::Offer { entry, device, descriptor: Descriptor { process, allocation, handle } } => {
                w.u32(1);
                w.u64(*entry);
                write_device(&mut w, *device);
                w.u32(process.pid);
                w.u64(process.random);
                w.u32(KINDS.iter().position(|kind| *kind == allocation.kind).unwrap_or(KINDS.len()) as u32);
                w.u64(allocation.base);
                w.u64(allocation.bytes);
                w.u64(allocation.id);
                write_device(&mut w, allocation.device);
                w.bytes(handle);
            }
            Self::Mapped { entry, device, token } => {
                w.u32(2);
                w.u64(*entry);
                write_device(&mut w, *device);
                w.u64(*token);
            }
            Self::MapFailed { entry, device, why } => {
                w.u32(3);
                w.u64(*entry);
                write_device(&mut w, *device);
                write_refusal(&mut w, Some(*why));
            }
            Self::Unmap { token } => {
                w.u32(4);
                w.u64(*token);
            }
            Self::Unmapped { entry, device } => {
                w.u32(5);
                w.u64(*entry);
                write_device(&mut w, *device);
            }
            Self::Data { entry, token, offset, length, epoch, last } => {
                w.u32(6);
                [entry, token, offset, length, epoch].into_iter().for_each(|&value| w.u64(value));
                w.u32((*last).into());
            }
            Self::Done { epoch, refused } => {
                w.u32(7);
                w.u64(*epoch);
                write_refusal(&mut w, *refused);
            }
            Self::Gone => w.u32(8),
        }
        w.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(bytes);
        let message = match r.u32()? {
            1 => Self::Offer {
                entry: r.u64()?,
                device: read_device(&mut r)?,
                descriptor: read_descriptor(&mut r)?,
            },
            2 => Self::Mapped { entry: r.u64()?, device: read_device(&mut r)?, token: r.u64()? },
            3 => {
                let (entry, device) = (r.u64()?, read_device(&mut r)?);
                let why = read_refusal(&mut r)?.ok_or(WireError::Content("it fails without a reason"))?;
                Self::MapFailed { entry, device, why }
            }
            4 => Self::Unmap { token: r.u64()? },
            5 => Self::Unmapped { entry: r.u64()?, device: read_device(&mut r)? },
            6 => Self::Data {
                entry: r.u64()?,
                token: r.u64()?,
                offset: r.u64()?,
                length: r.u64()?,
                epoch: r.u64()?,
                last: match r.u32()? {
                    0 => false,
                    1 => true,
                    _ => return Err(WireError::Content("a transfer is neither the last nor another").into()),
                },
            },
            7 => Self::Done { epoch: r.u64()?, refused: read_refusal(&mut r)? },
            8 => Self::Gone,
            _ => return Err(WireError::Content("there is no such message").into()),
        };
        r.finish()?;
        Ok(message)
    }
}

/// Kinds by their numbers in messages.
const KINDS: [Kind; 5] = [Kind::Memfd, Kind::Legacy, Kind::Vmm, Kind::Pool, Kind::Simulated];

/// Refusals by their numbers in messages; 0 is none, and the number after them [`Refusal::Other`].
const REFUSALS: [Refusal; 12] = [
    Refusal::Private,
    Refusal::DefaultPool,
    Refusal::NoHandleType,
    Refusal::TooManyPieces,
    Refusal::TooLarge,
    Refusal::AlreadyOpen,
    Refusal::OutOfMemory,
    Refusal::NoPeerAccess,
    Refusal::NoDevice,
    Refusal::BadHandle,
    Refusal::Ending,
    Refusal::TooManyFiles,
];
const OTHER: u32 = REFUSALS.len() as u32 + 1;

fn write_device(w: &mut Writer, device: DeviceId) {
    let (low, high) = device.0.split_at(8);
    for half in [low, high] {
        w.u64(half.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    }
}

fn read_device(r: &mut Reader<'_>) -> Result<DeviceId, WireError> {
    let words = [r.u64()?, r.u64()?];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    Ok(DeviceId(bytes))
}

fn write_refusal(w: &mut Writer, refusal: Option<Refusal>) {
    let (number, code) = match refusal {
        None => (0, 0),
        Some(Refusal::Other(code)) => (OTHER, code),
        Some(known) => match REFUSALS.iter().position(|refusal| *refusal == known) {
            Some(at) => (at as u32 + 1, 0),
            None => (OTHER, 0),
        },
    };
    w.u32(number);
    w.u32(code.cast_unsigned());
}

fn read_refusal(r: &mut Reader<'_>) -> Result<Option<Refusal>, WireError> {
    match (r.u32()?, r.u32()?) {
        (0, 0) => Ok(None),
        (OTHER, code) => Ok(Some(Refusal::Other(code.cast_signed()))),
        (number @ 1..OTHER, 0) => Ok(Some(REFUSALS[number as usize - 1])),
        _ => Err(WireError::Content("there is no such refusal")),
    }
}

fn read_descriptor(r: &mut Reader<'_>) -> Result<Descriptor, WireError> {
    let process = ProcessId { pid: r.u32()?, random: r.u64()? };
    let kind = KINDS.get(r.u32()? as usize).ok_or(WireError::Content("there is no such kind of memory"))?;
    let (base, bytes, id) = (r.u64()?, r.u64()?, r.u64()?);
    let allocation = Allocation { base, bytes, id, device: read_device(r)?, kind: *kind };
    let handle = r.bytes()?.to_vec();
    if bytes == 0 || base.checked_add(bytes).is_none_or(|end| end > i64::MAX as u64) {
        return Err(WireError::Content("an allocation is empty or exceeds the address space"));
    }
    if handle.len() > Export::MOST {
        return Err(WireError::Content("a handle is too long"));
    }
    Ok(Descriptor { process, allocation, handle })
}

/// One message of each kind, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn samples() -> Vec<Message> {
    let device = DeviceId([7; 16]);
    let allocation = Allocation { base: 4096, bytes: 100, id: 5, device, kind: Kind::Legacy };
    let process = ProcessId { pid: 1, random: 2 };
    vec![
        Message::Offer {
            entry: 1,
            device,
            descriptor: Descriptor { process, allocation, handle: vec![1; 64] },
        },
        Message::Mapped { entry: 1, device, token: 2 },
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
        let refusals = REFUSALS.into_iter().chain([Refusal::Other(7)]).map(Some);
        let done = refusals.map(|refused| Message::Done { epoch: 1, refused });
        for message in samples().into_iter().chain(done) {
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
        fn garbage_is_refused_or_canonical(kind in 0u32..10, rest in proptest::collection::vec(any::<u8>(), 0..120)) {
            let bytes = [&kind.to_le_bytes()[..], &rest].concat();
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
