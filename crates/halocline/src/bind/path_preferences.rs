//! This rank's preferences for the links of its device fields: the LL protocol, the chunk size; and why it cannot use LL.

use super::lanes::MOST_WAITS;
use super::local::Local;
use super::offer::LinkEndpoint;
use super::remote::DeviceRegistry;
use crate::link::{Link, LinkPath};
use crate::options::{BindOptions, Flags};
use halocline_device::Device;
use std::collections::BTreeSet;

pub(super) struct PathPreferences {
    /// Messages use the LL protocol up to this many bytes.
    flags: usize,
    no_flags: Option<&'static str>,
    /// Whether the options ask for it.
    asks_for_flags: bool,
    chunk: usize,
}

impl PathPreferences {
    /// `is_alone`: no other rank uses this rank's devices.
    pub(super) fn new(
        registry: &DeviceRegistry,
        (devices, sets): (&[Device], &[Local]),
        (options, is_alone): (&BindOptions, bool),
    ) -> Self {
        let chunks = devices.iter().map(|device| device.tuning().chunk);
        let chunk = options.chunk().or(chunks.max().and_then(|chunk| usize::try_from(chunk).ok()));
        let flags = options.ll_limit();
        let asks_for_flags = matches!(flags, Flags::UpTo(_));
        let peers: BTreeSet<usize> = sets.iter().flat_map(Local::peers).collect();
        let flags = match flags {
            // LL is faster only if an exchange is one launch.
            Flags::Auto
                if is_alone
                    && devices.iter().all(|device| device.waiting_block_limit() > 0)
                    && 2 * peers.len() <= MOST_WAITS
                    && registry.is_near(peers.iter().copied()) =>
            {
                devices.first().map_or(0, |device| device.tuning().flags as usize)
            }
            Flags::UpTo(bytes) => bytes.min(Flags::MOST),
            Flags::Auto | Flags::Never => 0,
        };
        // With several devices, each would have to pack a part of a message; and LL is faster only if kernels wait.
        let no_flags = match () {
            () if flags == 0 => None,
            () if devices.len() != 1 => {
                Some("no words with flags: the fields of this rank lie on several devices")
            }
            () if options.streams_wait() => Some("no words with flags: streams wait here, as asked for"),
            () if !sets.iter().all(has_words) => Some(
                "no words with flags: fields here have elements, strides or addresses of no multiple of 4 bytes",
            ),
            () => None,
        };
        let flags = if no_flags.is_some() { 0 } else { flags };
        Self { flags, no_flags, asks_for_flags, chunk: chunk.unwrap_or(0) }
    }

    /// Writes the preferences into an offer.
    pub(super) fn enter(&self, endpoint: &mut LinkEndpoint) {
        (endpoint.chunk, endpoint.flags) = (self.chunk, self.flags);
    }

    /// Notes at links why they do not use LL although the options ask for it.
    pub(super) fn explain(&self, links: &mut [Link]) {
        for link in links.iter_mut().filter(|link| link.path == LinkPath::Push) {
            let refused = link.flags == Some(0) && self.asks_for_flags;
            let no_flags = self.no_flags.filter(|_| self.asks_for_flags);
            let no_flags = no_flags.or(refused.then_some("no words with flags: the peer takes none"));
            link.why = link.why.take().or(no_flags.map(str::to_owned));
            link.flags = link.flags.filter(|&most| most > 0);
        }
    }
}

/// Whether all fields of a set consist of whole 4-byte words.
fn has_words(local: &Local) -> bool {
    local.fields.iter().all(|field| {
        let cells = &field.cells;
        let base = local.segment_of(field).base().addr().get();
        let strides =
            cells.axes.iter().map(|axis| axis.stride).chain(cells.extra.iter().map(|&(_, stride)| stride));
        let bits =
            strides.fold(base | field.offset | cells.element.size(), |all, stride| all | stride as usize);
        bits.is_multiple_of(4)
    })
}
