//! Pieces of order that a test can leave out, to check that the simulated device detects each.

/// One piece of the order of a scheduled exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Internal streams wait for the producers.
    Producer,
    /// `ready` is raised after the work of the producers, which may still read the halo.
    HaloRead,
    /// An exchange is over for its rank only once its owned cells were sent.
    Sent,
    /// An exchange is over for its rank only once its halo has arrived.
    Arrived,
    /// The sender waits for `ready` of this epoch, not of an earlier one.
    Overtaking,
    /// The user's stream waits for the exchange.
    Consumer,
    /// A slot of a mailbox is written again only once it was unpacked.
    Slot,
    /// A slot of words with flags is said to be free only once it was unpacked.
    Unpacked,
    /// A staging buffer is packed again only once it was sent.
    Staging,
    /// An event stays with its exchange until that is over.
    Event,
    /// `ready` is raised before anything waits.
    ReadyFirst,
    /// What is dropped in flight is held until it is over.
    Drop,
    /// Peers are told of a failure.
    Told,
    /// Poison is written again until all that waits for it is through.
    Poison,
    /// Counters begin at 0.
    Stale,
}
