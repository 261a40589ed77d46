//! The messages of packets as bytes. Received bytes are checked: every field is validated before use.

use super::failure;
use super::parts::PART;
use halocline_plan::wire::{Reader, WireError};

/// The version of the format.
const VERSION: u8 = 1;
/// Bytes of a header before the metadata.
const BYTES: usize = 72;
/// Sequence numbers stay below this, so that they fit into a tag.
pub(super) const SEQUENCES: u64 = 1 << 59;
/// Payloads up to this length of host memory follow their header as a message.
pub(super) const SMALL: u64 = crate::memory_resource::SMALL as u64;
/// A flag of the header: there is a payload, which may be empty.
const PRESENT: u8 = 1;

/// How the payload of a packet travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// There is none, or it is empty.
    Nothing,
    /// The next message.
    Message,
    /// The receiver copies it from memory of the sender that it has mapped.
    Mapped {
        /// The receiver's name of the mapping.
        token: u64,
        /// The first byte within the mapping.
        offset: u64,
        /// The mapping is memory of a device.
        on_device: bool,
    },
    /// In parts, each once the receiver has said that it is ready.
    Parts {
        /// Bytes of each but the last.
        part: u64,
    },
}

/// The header of a packet, without its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The kind of the packet within its operation.
    pub(super) kind: u8,
    /// The number of the packet, unique between its sender and receiver within the operation.
    pub(super) sequence: u64,
    /// Words of the operation.
    pub(super) words: [u64; 4],
    /// The length of the payload; `None` if there is none.
    pub(super) payload: Option<u64>,
    pub(super) path: Path,
}

/// A message of a packet that no rank of this library sends.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Truncated, or longer than its lengths say.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Another version of the format.
    #[error("it has version {found} of the format, this rank knows version {known}")]
    Version {
        /// The version received.
        found: u8,
        /// The version of this rank.
        known: u8,
    },
    /// A field has a value that no sender writes, or that contradicts another field.
    #[error("its {field} is {value}, which contradicts its other fields or is no value of that field")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

halocline_plan::debug_as_text!(HeaderError);

fn field(field: &'static str, value: u64) -> HeaderError {
    HeaderError::Field { field, value }
}

impl Header {
    /// Appends the header and the metadata to an empty buffer with capacity for them.
    pub(super) fn write(&self, metadata: &[u8], message: &mut Vec<u8>) {
        let (path, token, offset) = match self.path {
            Path::Nothing => (0, 0, 0),
            Path::Message => (1, 0, 0),
            Path::Mapped { token, offset, on_device } => (2 + u8::from(on_device), token, offset),
            Path::Parts { part } => (4, part, 0),
        };
        let flags = if self.payload.is_some() { PRESENT } else { 0 };
        message.extend_from_slice(&[VERSION, self.kind, flags, path]);
        message.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        let lengths = [self.sequence, self.payload.unwrap_or(0)];
        for word in lengths.into_iter().chain(self.words).chain([token, offset]) {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(metadata);
    }

    /// The length of the message.
    pub(super) fn length(metadata: &[u8]) -> usize {
        BYTES + metadata.len()
    }

    /// Reads and validates a header; the metadata is the rest of the message.
    pub(super) fn read(message: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let missing = BYTES.saturating_sub(message.len());
        let (head, metadata) = message.split_at_checked(BYTES).ok_or(WireError::Short { missing })?;
        let mut reader = Reader::new(head);
        let [version, kind, flags, path] = reader.u32()?.to_le_bytes();
        if version != VERSION {
            return Err(HeaderError::Version { found: version, known: VERSION });
        }
        if flags & !PRESENT != 0 {
            return Err(field("flags", flags.into()));
        }
        let announced = reader.u32()?;
        if announced as usize != metadata.len() {
            return Err(field("metadata length", announced.into()));
        }
        let (sequence, length) = (reader.u64()?, reader.u64()?);
        if sequence >= SEQUENCES {
            return Err(field("sequence number", sequence));
        }
        let words = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let (token, offset) = (reader.u64()?, reader.u64()?);
        let is_present = flags & PRESENT != 0;
        let longest = if is_present { isize::MAX as u64 } else { 0 };
        if length > longest {
            return Err(field("payload length", length));
        }
        let is_known = match path {
            2 | 3 => true,
            4 => (1..=PART as u64).contains(&token) && offset == 0,
            _ => (token, offset) == (0, 0),
        };
        if !is_known {
            return Err(field("mapping or part", token.max(offset)));
        }
        if offset.checked_add(length).is_none() {
            return Err(field("offset", offset));
        }
        let path = match (path, length) {
            (0, 0) => Path::Nothing,
            (1, 1..=SMALL) => Path::Message,
            (2 | 3, 1..) => Path::Mapped { token, offset, on_device: path == 3 },
            (4, 1..) => Path::Parts { part: token },
            _ => return Err(field("path", path.into())),
        };
        let payload = is_present.then_some(length);
        Ok((Self { kind, sequence, words, payload, path }, metadata))
    }
}

/// The reply of a receiver to the sender of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// It has memory for the next part of the payload.
    Ready,
    /// It has copied the payload.
    Copied,
    /// It cannot map the sender's memory: send the payload in parts.
    Unmapped,
    /// It has no memory for the payload, or another failure.
    Refused(String),
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, text) = match self {
            Self::Ready => (1, ""),
            Self::Copied => (2, ""),
            Self::Unmapped => (3, ""),
            Self::Refused(text) => (4, failure::cut(text)),
        };
        let mut message = Vec::with_capacity(2 + text.len() + crate::mpi::TRAILER);
        message.extend_from_slice(&[VERSION, kind]);
        message.extend_from_slice(text.as_bytes());
        message
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, HeaderError> {
        let [version, kind, text @ ..] = message else {
            return Err(WireError::Short { missing: 2 - message.len() }.into());
        };
        if *version != VERSION {
            return Err(HeaderError::Version { found: *version, known: VERSION });
        }
        if *kind != 4 && !text.is_empty() {
            return Err(WireError::Trailing(text.len()).into());
        }
        match kind {
            1 => Ok(Self::Ready),
            2 => Ok(Self::Copied),
            3 => Ok(Self::Unmapped),
            4 => Ok(Self::Refused(failure::text(text)?.to_owned())),
            _ => Err(field("reply", (*kind).into())),
        }
    }
}

/// Samples of both messages.
#[cfg(any(test, fuzzing))]
pub(super) fn samples() -> Vec<Vec<u8>> {
    let paths = [
        (None, Path::Nothing),
        (Some(0), Path::Nothing),
        (Some(SMALL), Path::Message),
        (Some(SMALL + 1), Path::Mapped { token: 7, offset: 64, on_device: true }),
        (Some(1 << 20), Path::Mapped { token: u64::MAX, offset: 0, on_device: false }),
        (Some(1 << 33), Path::Parts { part: PART as u64 }),
        (Some(1 << 33), Path::Parts { part: 1 }),
    ];
    let header = |(payload, path)| {
        let mut message = Vec::new();
        Header { kind: 3, sequence: 5, words: [1, 2, 3, 4], payload, path }.write(b"metadata", &mut message);
        message
    };
    let replies = [Reply::Ready, Reply::Copied, Reply::Unmapped, Reply::Refused("no memory".to_owned())];
    paths.into_iter().map(header).chain(replies.iter().map(Reply::encode)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_read_is_the_one_that_was_written() {
        for message in samples() {
            match Header::read(&message) {
                Ok((header, metadata)) => {
                    let mut again = Vec::new();
                    header.write(metadata, &mut again);
                    assert_eq!(again, message);
                }
                Err(_) => assert_eq!(Reply::decode(&message).unwrap().encode(), message),
            }
        }
    }

    #[test]
    fn each_forged_or_cut_field_is_refused() {
        let mut message = Vec::new();
        let path = Path::Message;
        Header { kind: 1, sequence: 2, words: [0; 4], payload: Some(8), path }.write(b"ab", &mut message);
        for cut in 0..message.len() {
            Header::read(&message[..cut]).unwrap_err();
        }
        let forged = |at: usize, bytes: &[u8]| {
            let mut forged = message.clone();
            forged[at..at + bytes.len()].copy_from_slice(bytes);
            Header::read(&forged).unwrap_err()
        };
        assert!(matches!(forged(0, &[9]), HeaderError::Version { found: 9, known: 1 }));
        let refused = [
            ("flags", forged(2, &[3])),
            ("payload length", forged(2, &[0])),
            ("path", forged(3, &[0])),
            ("path", forged(3, &[5])),
            ("metadata length", forged(4, &[3])),
            ("sequence number", forged(8, &[0xff; 8])),
            ("payload length", forged(16, &[0xff; 8])),
            ("path", forged(16, &[0; 8])),
            ("mapping or part", forged(56, &[1])),
            ("mapping or part", forged(3, &[4])),
        ];
        for (field, error) in refused {
            assert!(
                matches!(error, HeaderError::Field { field: named, .. } if named == field),
                "{field}: {error}"
            );
        }
    }
}
