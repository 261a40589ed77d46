//! The paths of links.

use std::fmt;

/// How the bytes of a link travel.
///
/// ```
/// use halocline::{Array, BindOptions, Communicator, Decomposed, Error, HaloExchange, LinkChoice, LinkPath, RegularGrid};
///
/// let rank = |comm: Communicator| -> Result<(), Error> {
///     let pattern = RegularGrid::new([8]).decompose(2)?.pattern(&comm, 1)?;
///     let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
///     let options = BindOptions::default().link(LinkChoice::Message);
///     let halo = HaloExchange::bind_with(&comm, [(&pattern, &t)], &options)?;
///     assert!(halo.links().all(|link| link.path == LinkPath::Message));
///     assert_eq!(LinkPath::Message.to_string(), "message");
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkPath {
    /// Direct: the sender writes into the receiver's halo.
    Push,
    /// Direct: the receiver reads the sender's owned cells.
    Pull,
    /// Packed in the LL (low-latency) protocol into the receiver's device memory, and unpacked there: small messages between devices.
    Ll,
    /// Packed into the receiver's device memory and unpacked there: between devices, if the receiver's field cannot be mapped.
    DeviceMailbox,
    /// Packed into a buffer in the receiver's host memory and unpacked there.
    Mailbox {
        /// Packed by non-temporal stores, past the sender's caches.
        streaming: bool,
    },
    /// Packed, sent by the transport, unpacked.
    Message,
    /// Packed in device memory, sent by NCCL in the order of a stream, unpacked.
    Nccl,
}

impl LinkPath {
    /// Whether one side copies straight from or into the fields of the other.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::Push | Self::Pull)
    }

    /// Whether a device on one side reaches memory of a device on the other.
    pub(crate) fn reaches_devices(self) -> bool {
        self.is_direct() || self.has_slots_on_devices()
    }

    /// Whether the sender packs into slots in the receiver's device memory.
    pub(crate) fn has_slots_on_devices(self) -> bool {
        matches!(self, Self::Ll | Self::DeviceMailbox)
    }
}

impl fmt::Display for LinkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Push => "direct, push",
            Self::Pull => "direct, pull",
            Self::Ll => "LL",
            Self::DeviceMailbox => "device mailbox",
            Self::Mailbox { streaming: false } => "mailbox",
            Self::Mailbox { streaming: true } => "mailbox, streaming",
            Self::Message => "message",
            Self::Nccl => "NCCL",
        })
    }
}
