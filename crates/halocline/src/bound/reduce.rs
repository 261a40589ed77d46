//! Reduces of the host engine.

use super::Bound;
use crate::check::Finding;
use crate::error::Error;
use crate::link::Direction;
use crate::reduce::{Contribution, Reduction};
use crate::set::{InFlight, Set};
use crate::trace;
use halocline_device::host::{Combine, Source};
use std::sync::Arc;

impl Bound {
    /// Begins a reduce of a set of this object.
    pub(crate) fn begin_reduce(&self, set: &Arc<Set>, reduction: Reduction) -> Result<u64, Error> {
        set.reversed(&self.links)?.check(reduction.op)?;
        set.local.check_reduction(reduction.op)?;
        self.begin_with(set, &[], Some(reduction))
    }

    /// Tells all peers that combine, or are combined, in place that this rank takes part: before it combines anything.
    pub(super) fn begin_in_place(&self, epoch: u64, in_flight: &InFlight) {
        for link in &self.links {
            self.claimed(&link.claim, || {
                if self.life.failure().is_none() {
                    link.begin_in_place(&self.life.comm, epoch, in_flight);
                }
            });
        }
    }

    /// Whether the contributions of all links to this rank's owned cells are there.
    pub(super) fn is_ready_to_combine(&self, epoch: u64) -> bool {
        let mut senders = self.links.iter().filter(|link| link.direction == Direction::Send);
        senders.all(|link| link.is_done(epoch))
    }

    /// Combines the contributions to this rank's owned cells, which are all there, and releases them. Under the claim of the copies
    /// within the rank. In checked mode it may find a fault, and combines nothing then.
    pub(super) fn combine_checked(
        &self,
        epoch: u64,
        in_flight: &InFlight,
        reduction: Reduction,
    ) -> Option<Finding> {
        let Some(check) = &self.check else {
            self.combine(epoch, in_flight, reduction);
            return None;
        };
        let finding = check.before_combination(&self.life.comm, in_flight);
        if finding.is_none() {
            self.combine(epoch, in_flight, reduction);
            check.combined(in_flight);
        }
        finding
    }

    fn combine(&self, epoch: u64, in_flight: &InFlight, reduction: Reduction) {
        let Some(reverse) = in_flight.reverse() else { return };
        let (comm, bases) = (&self.life.comm, in_flight.bases());
        trace::combine(comm, &self.life.name, epoch).in_scope(|| {
            for Contribution { link, op } in &reverse.contributions {
                let link = link.map(|link| &self.links[link]);
                let is_cleared = link.map_or(!reduction.keeps_halo, |link| link.clears_halo(epoch));
                let source = if is_cleared { Source::Clear } else { Source::Keep };
                let Some(combine) = Combine::of(reduction.op, op.element, source) else { continue };
                let run = |from: *mut u8| {
                    // SAFETY: `bind::reverse` has checked the operation against the fields at both ends, whose memory the set of the
                    // reduce in flight holds, and `Reverse::check` its element type. The claim keeps other threads of this rank away
                    // from the owned cells, which no peer touches in a reduce. A peer whose halo is combined in place has signalled
                    // that it is complete, and leaves it alone until `end_reverse`; so does this rank with its own halo until the
                    // wait. The bytes of other links lie in a message of this rank, or in a slot that the peer writes only after this
                    // rank's next signal. No guard is held (`State::begin_flight`), and the caller of `Field::from_raw` leaves the
                    // cells alone until the wait.
                    unsafe { combine.run(op, from, bases[op.target]) };
                };
                match link {
                    Some(link) if link.is_read_in_place => run(reverse.peer_bases(link.part)[op.source]),
                    Some(link) => link.with_halo(epoch, run),
                    None => run(bases[op.source]),
                }
            }
        });
        let senders = self.links.iter().filter(|link| link.direction == Direction::Send);
        senders.for_each(|link| link.end_reverse(comm, epoch, in_flight.subject()));
    }
}
