//! Copies between the fields of an exchange and a message.

use crate::set::{InFlight, Part};
use halocline_device::host;

/// Packs a part into a message. The caller alone holds the message's [`Part::bytes`] (for streaming rounded up to
/// [`host::MESSAGE_ALIGN`], and aligned to it).
pub(super) fn pack(in_flight: &InFlight, part: &Part, message: *mut u8, streaming: bool) {
    let sources = as_sources(in_flight.bases());
    // SAFETY: bind has checked the operations against the fields, whose memory the exchange in flight holds and whose owned cells
    // no thread writes until the wait. The caller promises that the message has space for all operations, that no other thread
    // uses it, and its alignment.
    unsafe {
        if streaming {
            host::pack_streaming(&part.ops, sources, message);
        } else {
            host::copy(&part.ops, sources, &[message]);
        }
    }
}

/// Unpacks a message of [`Part::bytes`].
pub(super) fn unpack(in_flight: &InFlight, part: &Part, message: *const u8) {
    // SAFETY: bind has checked the operations against the fields, whose memory the exchange in flight holds and whose halo cells
    // no other thread uses until the wait. The caller promises that the message has as many bytes as the operations read, and
    // that it does not change any more.
    unsafe { host::copy(&part.ops, &[message], in_flight.bases()) };
}

/// The same addresses, for reading.
pub(crate) fn as_sources(bases: &[*mut u8]) -> &[*const u8] {
    // SAFETY: `*mut u8` and `*const u8` have one layout, and a slice of the one has the length of the other.
    unsafe { std::slice::from_raw_parts(bases.as_ptr().cast(), bases.len()) }
}
