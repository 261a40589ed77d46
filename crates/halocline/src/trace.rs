//! `tracing` spans of an exchange, one for each phase, at level TRACE. Without a subscriber each costs one load.

use crate::link::Link;
use halocline_comm::Communicator;
use halocline_plan::Layout;
use std::fmt;
use tracing::span::EnteredSpan;
use tracing::{Span, trace, trace_span};

/// The name of a bound object.
#[derive(Debug)]
pub(crate) struct Name {
    /// Unique, and the same on all ranks.
    number: u64,
    text: String,
}

impl Name {
    /// The user's name for it; without one, its number and its fields.
    pub(crate) fn new<'a>(
        number: u64,
        given: Option<&str>,
        fields: impl ExactSizeIterator<Item = &'a Layout>,
    ) -> Self {
        const MOST: usize = 3;
        let text = given.map(|name| format!("{name:?}")).unwrap_or_else(|| {
            let more = fields.len().saturating_sub(MOST);
            let fields = fields.take(MOST).map(|field| format!("{} {:?}", field.element(), field.extents()));
            let mut fields: Vec<String> = fields.collect();
            if more > 0 {
                fields.push(format!("{more} more fields"));
            }
            format!("object {} ({})", Number(number), fields.join(", "))
        });
        Self { number, text }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An object's number, as it is shown.
struct Number(u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 32)
    }
}

macro_rules! calls {
    ($($(#[$what:meta])* $call:ident),* $(,)?) => {$(
        $(#[$what])*
        #[inline]
        pub(crate) fn $call(comm: &Communicator, object: &Name, epoch: u64) -> EnteredSpan {
            let number = Number(object.number);
            trace_span!(stringify!($call), rank = comm.rank(), name = %object, object = %number, epoch).entered()
        }
    )*};
}

calls! {
    /// An exchange is being begun.
    exchange,
    /// A thread waits for an exchange.
    wait,
    /// A stream is made to wait for an exchange.
    schedule_wait,
}

/// Bytes are copied between domains of this rank.
#[inline]
pub(crate) fn within(comm: &Communicator, object: &Name, epoch: u64) -> Span {
    trace_span!("within", rank = comm.rank(), object = %Number(object.number), epoch)
}

/// Contributions to owned cells are combined.
#[inline]
pub(crate) fn combine(comm: &Communicator, object: &Name, epoch: u64) -> Span {
    trace_span!("combine", rank = comm.rank(), object = %Number(object.number), epoch)
}

/// An exchange begins to be in flight, or is over.
#[inline]
pub(crate) fn flight(comm: &Communicator, object: &Name, epoch: u64, over: bool) {
    trace!(
        target: "halocline::flight",
        rank = comm.rank(), name = %object, object = %Number(object.number), epoch, over
    );
}

macro_rules! phases {
    ($($(#[$what:meta])* $phase:ident),* $(,)?) => {$(
        $(#[$what])*
        #[inline]
        pub(crate) fn $phase(comm: &Communicator, link: &Link, epoch: u64, bytes: usize) -> Span {
            trace_span!(
                stringify!($phase),
                rank = comm.rank(),
                peer = link.peer,
                direction = ?link.direction,
                path = %link.path,
                object = %Number(link.object),
                epoch,
                bytes
            )
        }
    )*};
}

phases! {
    /// Bytes are copied from field to field.
    copy,
    /// Bytes are packed from owned cells into a message or a mailbox.
    pack,
    /// A message is handed to the transport.
    send,
    /// Bytes are unpacked from a message or a mailbox into halo cells.
    unpack,
}
