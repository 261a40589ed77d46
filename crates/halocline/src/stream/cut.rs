//! Pieces of order that a test can leave out, to check that the simulated device detects each.

/// One piece of the order of a scheduled exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Internal streams wait for the producers.
    Producer,
    /// The grant is set after the work of the producers, which may still read the halo.
    HaloRead,
    /// An exchange is over for its rank only once its owned cells were sent.
    Sent,
    /// An exchange is over for its rank only once its halo has arrived.
    Arrived,
    /// The sender waits for the grant of this epoch, not of an earlier one.
    Overtaking,
    /// In a reduce, the owner waits for the grant of this epoch: the halo is complete.
    Complete,
    /// A reduce is over for its rank, and its slots are written again, only once its halo is combined and cleared.
    Cleared,
    /// The user's stream waits for the exchange.
    Consumer,
    /// A slot of a mailbox is written again only once it was unpacked.
    Slot,
    /// A slot of the low-latency protocol is granted only once it was unpacked.
    Unpacked,
    /// A staging buffer is packed again only once it was sent.
    Staging,
    /// NCCL sends a message only once it is packed.
    Packed,
    /// An event stays with its exchange until that is over.
    Event,
    /// The grant is set before anything waits.
    GrantFirst,
    /// An object that is dropped in flight lives until its exchange is over.
    Drop,
    /// Peers receive a message about a failure.
    FailureReport,
    /// Poison is written again until no stream waits for a flag any more.
    Poison,
    /// Flags begin at 0.
    Stale,
    /// A captured launch has its epoch from the counter.
    Epoch,
    /// A launch whose waiting blocks exceed the device's budget waits for an earlier launch of another stream.
    Chain,
    /// In checked mode, the halo is filled with the fill pattern before it is granted to the peers.
    Fill,
    /// In checked mode, an exchange is over only once its cells were copied for the checks.
    Look,
    /// In checked mode, an exchange begins only once the cells of the one before were looked at for the last time.
    LastLook,
}
