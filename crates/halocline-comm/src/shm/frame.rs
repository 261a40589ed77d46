//! The format of messages on a socket: a header, announcements of memory, the payload. Pure functions;
//! every received field is checked before use.

use crate::buffers;
use crate::inbox::Tag;

/// The first bytes of a frame, so that a foreign writer is noticed.
const MAGIC: u32 = 0x4c41_4832;
const HEADER: usize = 40;
const ANNOUNCEMENT: usize = 16;

/// Descriptors that one frame can carry (the kernel takes 253 with one call).
pub(crate) const MAX_SEGMENTS: usize = 128;

/// Memory that a frame announces; its descriptor is sent with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Identity of the segment.
    pub id: u64,
    /// Its bytes.
    pub len: u64,
}

/// One message as read from a socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The place of the message among all messages of the sender to the receiver.
    pub sequence: u64,
    pub tag: Tag,
    pub segments: Vec<Announced>,
    pub payload: Vec<u8>,
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame begins with {0:#010x} instead of {MAGIC:#010x}")]
    Magic(u32),
    #[error("a frame announces {0} segments; {MAX_SEGMENTS} is the most")]
    Segments(u32),
    #[error("a frame announces {0} bytes, more than an address space has")]
    Length(u64),
}

/// The bytes of a frame.
pub(crate) fn encode(sequence: u64, tag: Tag, segments: &[Announced], payload: &[u8]) -> Vec<u8> {
    let mut bytes = buffers::take(HEADER + ANNOUNCEMENT * segments.len() + payload.len());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&tag.operation.to_le_bytes());
    bytes.extend_from_slice(&tag.round.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    for segment in segments {
        bytes.extend_from_slice(&segment.id.to_le_bytes());
        bytes.extend_from_slice(&segment.len.to_le_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// Cuts a stream of bytes into frames. Holds no more than what was fed to it.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Bytes at the front that have been decoded.
    used: usize,
}

impl Decoder {
    /// Adds received bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.used > 0 && self.used >= self.bytes.len() / 2 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame. After an error the stream is unusable.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.used..];
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC {
            return Err(FrameError::Magic(u32_at(0)));
        }
        let count = u32_at(4);
        if count as usize > MAX_SEGMENTS {
            return Err(FrameError::Segments(count));
        }
        let len = u64_at(24);
        let announced = ANNOUNCEMENT * count as usize;
        let total = usize::try_from(len).ok().and_then(|len| len.checked_add(announced));
        let Some(total) = total.filter(|&total| total <= isize::MAX as usize) else {
            return Err(FrameError::Length(len));
        };
        let Some(body) = body.get(..total) else { return Ok(None) };
        let (announcements, payload) = body.split_at(announced);
        let (words, _) = announcements.as_chunks::<8>();
        let mut own = buffers::take(payload.len());
        own.extend_from_slice(payload);
        let frame = Frame {
            sequence: u64_at(32),
            tag: Tag { operation: u64_at(8), round: u64_at(16) },
            segments: words
                .chunks_exact(2)
                .map(|pair| Announced { id: u64::from_le_bytes(pair[0]), len: u64::from_le_bytes(pair[1]) })
                .collect(),
            payload: own,
        };
        self.used += HEADER + total;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let segment = (any::<u64>(), any::<u64>()).prop_map(|(id, len)| Announced { id, len });
        let segments = proptest::collection::vec(segment, 0..4);
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
        (numbers, segments, proptest::collection::vec(any::<u8>(), 0..300)).prop_map(
            |((sequence, operation, round), segments, payload)| Frame {
                sequence,
                tag: Tag { operation, round },
                segments,
                payload,
            },
        )
    }

    #[test]
    fn a_header_that_cannot_be_is_refused() {
        let decoded = |segments: u32, len: u64| {
            let (mut header, tag) = (MAGIC.to_le_bytes().to_vec(), [0; 16]);
            header.extend([&segments.to_le_bytes()[..], &tag, &len.to_le_bytes(), &[0; 8]].concat());
            let mut decoder = Decoder::default();
            decoder.feed(&header);
            decoder.next()
        };
        let most = MAX_SEGMENTS as u32;
        assert_eq!(decoded(most, 0), Ok(None));
        assert_eq!(decoded(most + 1, 0), Err(FrameError::Segments(most + 1)));
        let longest = isize::MAX as u64;
        assert_eq!(decoded(0, longest + 1), Err(FrameError::Length(longest + 1)));
        assert_eq!(decoded(1, u64::MAX), Err(FrameError::Length(u64::MAX)));
        let mut decoder = Decoder::default();
        decoder.feed(&[0; 64]);
        assert_eq!(decoder.next(), Err(FrameError::Magic(0)));
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut_of_the_stream(
            frames in proptest::collection::vec(frame(), 0..6),
            cuts in proptest::collection::vec(1usize..200, 1..50),
        ) {
            let stream: Vec<u8> =
                frames.iter().flat_map(|f| encode(f.sequence, f.tag, &f.segments, &f.payload)).collect();
            let (mut decoder, mut seen, mut rest) = (Decoder::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (piece, tail) = rest.split_at(rest.len().min(*cut));
                decoder.feed(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn garbage_is_an_error_or_too_little_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            let _ = decoder.next();
            let mut decoder = Decoder::default();
            decoder.feed(&MAGIC.to_le_bytes());
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
