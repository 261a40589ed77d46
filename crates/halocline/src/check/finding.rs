//! What checks find, and the failure that comes of it.

use super::Exchanged;
use crate::error::{Cause, Error, Failure, Fault};
use crate::lifecycle::Lifecycle;
use crate::link::{Direction, Link};
use std::sync::Arc;

/// What a check has found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) cause: Cause,
    /// The link: its direction and its peer. This rank itself: copies within the rank.
    pub(crate) direction: Direction,
    pub(crate) peer: usize,
    /// What was found where, as text.
    pub(crate) report: String,
}

impl Finding {
    /// Halo cells are not what rank `peer` has sent. `unwritten`: how many of them hold the fill pattern, and the first of those.
    pub(super) fn wrong(
        peer: usize,
        received: &Exchanged<'_>,
        (unwritten, first): (usize, Option<Vec<i64>>),
    ) -> Self {
        let Exchanged { region, pattern, number, domain, other, .. } = received;
        let (cells, all) = (region.describe(), region.cells.count());
        let of = format!("field {number} of {domain} (pattern {pattern} of the bind)");
        let from = format!("{other} of rank {peer}");
        let (fault, report) = match first {
            Some(first) => (
                Fault::NotWritten,
                format!(
                    "{unwritten} of the {all} halo {cells} of {of} were not written from {from}; the first is \
                     {first:?}"
                ),
            ),
            None => (
                Fault::Changed,
                format!(
                    "halo {cells} of {of} are not what {from} held when its exchange began: bytes have changed \
                     on the way, or its owned cells were written meanwhile"
                ),
            ),
        };
        Self { cause: Cause::Check(fault), direction: Direction::Receive, peer, report }
    }

    /// Owned cells that go to rank `peer` have changed.
    pub(super) fn owned_written(peer: usize, sent: &Exchanged<'_>) -> Self {
        let Exchanged { region, pattern, number, domain, other, .. } = sent;
        let report = format!(
            "owned {} of field {number} of {domain} (pattern {pattern} of the bind), which go to \
             {other} of rank {peer}, were written while the exchange was in flight; write them before it \
             begins or after its wait",
            region.describe()
        );
        Self { cause: Cause::Check(Fault::OwnedWritten), direction: Direction::Send, peer, report }
    }

    /// Halo cells that came from rank `peer` have changed since.
    pub(super) fn halo_written(peer: usize, received: &Exchanged<'_>) -> Self {
        let Exchanged { region, pattern, number, domain, other, .. } = received;
        let report = format!(
            "halo {} of field {number} of {domain} (pattern {pattern} of the bind), which came from {other} of rank \
             {peer}, were overwritten before the wait had returned; write them after it, or not at all",
            region.describe()
        );
        Self { cause: Cause::Check(Fault::HaloWritten), direction: Direction::Receive, peer, report }
    }

    /// Halo cells of a reduce, which rank `peer` owns, were written meanwhile.
    pub(super) fn contribution_written(peer: usize, halo: &Exchanged<'_>) -> Self {
        let Exchanged { region, pattern, number, domain, other, .. } = halo;
        let report = format!(
            "halo {} of field {number} of {domain} (pattern {pattern} of the bind), which {other} of rank {peer} owns, were written after \
             the reduce had begun; write them before it begins or after its wait",
            region.describe()
        );
        Self { cause: Cause::Check(Fault::HaloWritten), direction: Direction::Receive, peer, report }
    }

    /// Fails the object for it: in exchange `completed`, which is over, or in the one in flight.
    pub(crate) fn fail(self, life: &Lifecycle, links: &[Link], completed: Option<u64>) {
        let rank = life.comm.rank();
        let Self { cause, direction, peer, report } = self;
        // None: a copy within the rank.
        let link = links.iter().find(|link| (link.peer, link.direction) == (peer, direction));
        life.fail(|first| Failure {
            rank,
            epoch: completed.unwrap_or(first),
            link: link.map(Link::named),
            cause,
            culprit: rank,
            report: Some(report),
        });
    }
}

/// The failure for what was found after exchange `epoch` was complete: later waits for it return that.
pub(crate) fn found_late(life: &Lifecycle, epoch: u64) -> Option<Error> {
    let found = |failure: &&Arc<Failure>| {
        (failure.epoch, failure.culprit) == (epoch, life.comm.rank())
            && matches!(failure.cause, Cause::Check(Fault::OwnedWritten | Fault::HaloWritten))
    };
    life.failure().filter(found).map(|failure| Error::Failed(Arc::clone(failure)))
}
