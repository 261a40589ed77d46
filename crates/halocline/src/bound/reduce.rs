//! Reduces of the host engine.

use super::Bound;
use crate::check::Check;
use crate::error::Error;
use crate::reduce::{Contribution, Reduction};
use crate::set::{InFlight, Set};
use crate::trace;
use halocline_device::host::{Combine, Source};
use std::sync::Arc;

impl Bound {
    /// Begins a reduce of a set of this object.
    pub(crate) fn begin_reduce(&self, set: &Arc<Set>, reduction: Reduction) -> Result<u64, Error> {
        set.reversed(&self.links)?.check(reduction.op)?;
        self.begin_with(set, &[], Some(reduction))
    }

    /// The checks of an exchange, in checked mode. A reduce has none.
    pub(super) fn check_of(&self, in_flight: &InFlight) -> Option<&Check> {
        self.check.as_ref().filter(|_| in_flight.reduction().is_none())
    }

    /// Combines the contributions to this rank's owned cells, which have all arrived.
    pub(super) fn combine(&self, epoch: u64, in_flight: &InFlight, reduction: Reduction) {
        let Some(reverse) = in_flight.reverse() else { return };
        let (comm, bases) = (&self.life.comm, in_flight.bases());
        trace::combine(comm, &self.life.name, epoch).in_scope(|| {
            for Contribution { link, op } in &reverse.contributions {
                // A link has cleared its cells when it packed them.
                let source =
                    if reduction.keeps_halo || link.is_some() { Source::Keep } else { Source::Clear };
                let Some(combine) = Combine::of(reduction.op, op.element, source) else { continue };
                let run = |from: *mut u8| {
                    // SAFETY: `bind::reverse` has checked the operation against the fields, whose memory the reduce in flight
                    // holds, and `Reverse::check` its element type. This thread is the one that completes the reduce: all other
                    // parts of it are done on this rank. The bytes of a link stay as they are until `end_reverse`: they lie
                    // in a message of this rank or in a slot that the peer writes only after that. No guard is held
                    // (`State::begin_flight`), and the caller of `Field::from_raw` leaves the cells alone until the wait.
                    unsafe { combine.run(op, from, bases[op.target]) };
                };
                match link {
                    Some(link) => self.links[*link].with_halo(epoch, run),
                    None => run(bases[op.source]),
                }
            }
        });
        self.links.iter().for_each(|link| link.end_reverse(comm, epoch, in_flight.subject()));
    }
}
