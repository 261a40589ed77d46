//! This rank's preferences for the links of its device fields: the LL protocol, the chunk size; and why it cannot use LL.

use super::lanes::MOST_WAITS;
use super::local::Local;
use super::offer::LinkEndpoint;
use super::remote::DeviceRegistry;
use crate::link::{Link, LinkPath};
use crate::options::{BindOptions, Ll};
use halocline_device::Device;
use std::collections::BTreeSet;

pub(super) struct PathPreferences {
    /// Messages use the LL protocol up to this many bytes.
    ll: usize,
    no_ll: Option<&'static str>,
    /// Whether the options ask for it.
    asks_for_ll: bool,
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
        let ll = options.ll_limit();
        let asks_for_ll = matches!(ll, Ll::UpTo(_));
        let peers: BTreeSet<usize> = sets.iter().flat_map(Local::peers).collect();
        let ll = match ll {
            // LL is faster only if an exchange is one launch.
            Ll::Auto
                if is_alone
                    && devices.iter().all(|device| device.waiting_block_limit() > 0)
                    && 2 * peers.len() <= MOST_WAITS
                    && registry.is_near(peers.iter().copied()) =>
            {
                devices.first().map_or(0, |device| device.tuning().ll as usize)
            }
            Ll::UpTo(bytes) => bytes.min(Ll::MOST),
            Ll::Auto | Ll::Never => 0,
        };
        // With several devices, each would have to pack a part of a message; and LL is faster only if kernels wait.
        let no_ll = match () {
            () if ll == 0 => None,
            () if devices.len() != 1 => {
                Some("no LL protocol: the fields of this rank lie on several devices")
            }
            () if options.streams_wait() => Some("no LL protocol: streams wait here, as asked for"),
            () if !sets.iter().all(has_words) => Some(
                "no LL protocol: fields here have elements, strides or addresses of no multiple of 4 bytes",
            ),
            () => None,
        };
        let ll = if no_ll.is_some() { 0 } else { ll };
        Self { ll, no_ll, asks_for_ll, chunk: chunk.unwrap_or(0) }
    }

    /// Writes the preferences into an offer.
    pub(super) fn enter(&self, endpoint: &mut LinkEndpoint) {
        (endpoint.chunk, endpoint.ll) = (self.chunk, self.ll);
    }

    /// Notes at links why they do not use LL although the options ask for it.
    pub(super) fn explain(&self, links: &mut [Link]) {
        for link in links.iter_mut().filter(|link| link.path == LinkPath::Push) {
            let refused = link.ll == Some(0) && self.asks_for_ll;
            let no_ll = self.no_ll.filter(|_| self.asks_for_ll);
            let no_ll = no_ll.or(refused.then_some("no LL protocol: the peer takes none"));
            link.why = link.why.take().or(no_ll.map(str::to_owned));
            link.ll = link.ll.filter(|&most| most > 0);
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
