//! A failure as ranks tell each other.

use halocline_plan::wire::{Reader, WireError, Writer};

/// The longest text of a failure; a longer one is cut.
const LONGEST_TEXT: usize = 4096;

/// Which rank has failed, and its error. The operations that are built of packets send it to other ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rank that has failed first.
    pub rank: usize,
    /// The text of its error.
    pub why: String,
    /// It refused its arguments: it has not begun the operation.
    pub is_refusal: bool,
}

impl Failure {
    /// Appends it to a message.
    pub fn write(&self, message: &mut Writer) {
        message.u32(u32::from(self.is_refusal));
        message.size(self.rank);
        message.bytes(cut(&self.why).as_bytes());
    }

    /// Reads what [`Failure::write`] has appended.
    pub fn read(message: &mut Reader<'_>) -> Result<Self, WireError> {
        let is_refusal = match message.u32()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::Content("a failure is a refusal or is none")),
        };
        let rank = message.size()?;
        Ok(Self { rank, why: text(message.bytes()?)?.to_owned(), is_refusal })
    }
}

/// The begin of a text that is too long.
pub(super) fn cut(text: &str) -> &str {
    let most = text.len().min(LONGEST_TEXT);
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// A received text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, WireError> {
    if bytes.len() > LONGEST_TEXT {
        return Err(WireError::Content("the text of a failure is too long"));
    }
    std::str::from_utf8(bytes).map_err(|_| WireError::Content("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_is_read_is_the_one_that_was_written_or_its_begin() {
        for (why, read) in [("no memory".to_owned(), 9), ("ü".repeat(3000), LONGEST_TEXT)] {
            for is_refusal in [false, true] {
                let mut w = Writer::new();
                Failure { rank: 3, why: why.clone(), is_refusal }.write(&mut w);
                let message = w.finish();
                let found = Failure::read(&mut Reader::new(&message)).unwrap();
                assert_eq!(found, Failure { rank: 3, why: why[..read].to_owned(), is_refusal });
            }
        }
    }

    #[test]
    fn a_text_that_no_rank_sends_is_refused() {
        let of_text = |text: &[u8]| {
            let mut w = Writer::new();
            w.u32(0);
            w.size(3);
            w.bytes(text);
            Failure::read(&mut Reader::new(&w.finish())).unwrap_err().to_string()
        };
        assert!(of_text(&[b'a'; LONGEST_TEXT + 1]).contains("the text of a failure is too long"));
        assert!(of_text(&[0xff]).contains("a text is not UTF-8"));
        let mut w = Writer::new();
        w.u32(2);
        assert!(Failure::read(&mut Reader::new(&w.finish())).is_err());
    }
}
