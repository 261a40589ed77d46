//! Messages between ranks as little-endian bytes. A [`Reader`] accepts untrusted input: it never panics,
//! and allocates at most a small multiple of the bytes given.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that are not the expected message.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends too early.
    #[error("it ends {missing} bytes too early")]
    Short {
        /// Bytes that the next value needs beyond the end.
        missing: usize,
    },
    /// A count of entries that exceeds the rest of the message.
    #[error("it announces {count} entries of at least {size} bytes, but only {left} bytes follow")]
    Count {
        /// Entries announced.
        count: u64,
        /// Minimum bytes of one entry.
        size: usize,
        /// Bytes remaining.
        left: usize,
    },
    /// Bytes after the end of the message.
    #[error("{0} bytes follow after its end")]
    Trailing(usize),
    /// Well-formed bytes with invalid content.
    #[error("{0}")]
    Content(&'static str),
}

crate::debug_as_text!(WireError);

/// A value as a message, in the format of `postcard`.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("memory takes all that is written, and lengths are known")
}

/// A value from a message of [`encode`]. Takes at most 1 MiB, or a small multiple of the bytes given.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(WireError::Trailing(rest.len())),
        Err(postcard::Error::DeserializeUnexpectedEnd) => Err(WireError::Content("it ends too early")),
        Err(_) => Err(WireError::Content("it has bytes that this kind of message never has")),
    }
}

/// Builds a message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number of entries, or a rank.
    pub fn size(&mut self, value: usize) {
        self.u64(value as u64);
    }

    /// Appends the number of values, then the values.
    pub fn u32s(&mut self, values: &[u32]) {
        self.size(values.len());
        self.0.reserve(4 * values.len());
        values.iter().for_each(|&value| self.u32(value));
    }

    /// Appends the number of values, then the values.
    pub fn u64s(&mut self, values: &[u64]) {
        self.size(values.len());
        self.0.reserve(8 * values.len());
        values.iter().for_each(|&value| self.u64(value));
    }

    /// Appends the number of bytes, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a message in the order in which it was written.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) =
            self.rest.split_first_chunk().ok_or(WireError::Short { missing: N - self.rest.len().min(N) })?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A rank or another index.
    pub fn size(&mut self) -> Result<usize, WireError> {
        usize::try_from(self.u64()?).map_err(|_| WireError::Content("a number exceeds the address space"))
    }

    /// A number of entries of at least `size` bytes each (`size` > 0). Refuses a number that the rest of
    /// the message cannot hold.
    pub fn count(&mut self, size: usize) -> Result<usize, WireError> {
        let count = self.u64()?;
        let left = self.rest.len();
        match usize::try_from(count) {
            Ok(n) if n <= left / size.max(1) => Ok(n),
            _ => Err(WireError::Count { count, size, left }),
        }
    }

    /// Values written by [`Writer::u32s`].
    pub fn u32s(&mut self) -> Result<Vec<u32>, WireError> {
        (0..self.count(4)?).map(|_| self.u32()).collect()
    }

    /// Values written by [`Writer::u64s`].
    pub fn u64s(&mut self) -> Result<Vec<u64>, WireError> {
        (0..self.count(8)?).map(|_| self.u64()).collect()
    }

    /// Bytes written by [`Writer::bytes`].
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.count(1)?;
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(bytes)
    }

    /// Checks that the whole message was read.
    pub fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing(self.rest.len())) }
    }
}
