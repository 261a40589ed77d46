//! `tracing` spans and events of rounds, at level TRACE, as those of halo exchanges.

use super::engine::Shared;
use super::round::Core;
use std::fmt;
use tracing::span::EnteredSpan;
use tracing::{trace, trace_span};

/// An operation, as its spans name it: the same on all ranks.
struct Object(u64, u32);

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.0 >> 32, self.1)
    }
}

macro_rules! calls {
    ($($(#[$what:meta])* $call:ident),* $(,)?) => {$(
        $(#[$what])*
        #[inline]
        pub(super) fn $call(shared: &Shared, core: &Core) -> EnteredSpan {
            let (rank, object, epoch) = (shared.comm().rank(), Object(shared.operation, core.id), core.count);
            let name = format_args!("operation {}", core.id);
            trace_span!(stringify!($call), rank, %name, %object, epoch).entered()
        }
    )*};
}

calls! {
    /// A round is being started.
    exchange,
    /// A thread waits for a round.
    wait,
}

/// A round begins to be in flight, or is over.
#[inline]
pub(super) fn flight(shared: &Shared, core: &Core, over: bool) {
    let (rank, object, epoch) = (shared.comm().rank(), Object(shared.operation, core.id), core.count);
    let name = format_args!("operation {}", core.id);
    trace!(target: "halocline::flight", rank, %name, %object, epoch, over);
}
