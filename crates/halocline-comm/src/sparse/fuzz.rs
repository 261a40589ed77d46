//! Entry points of `fuzz/` into the private parser. Part of no ordinary build.

use super::control::{Control, samples};

/// A control message. One that is read is what was written.
pub fn controls(bytes: &[u8]) {
    if let Ok(control) = Control::decode(bytes) {
        assert_eq!(control.encode(), bytes);
    }
}

/// Messages as ranks send them.
pub fn sent() -> Vec<Vec<u8>> {
    samples()
}
