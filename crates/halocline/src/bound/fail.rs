//! Failures that checks find.

use super::Bound;
use crate::check::Finding;
use crate::error::Failure;
use crate::link::Link;

impl Bound {
    /// Fails the object for what a check has found on this rank: in exchange `completed`, which is over, or in the one in flight.
    pub(super) fn fail_by(&self, finding: Finding, completed: Option<u64>) {
        let rank = self.life.comm.rank();
        let Finding { cause, direction, peer, report } = finding;
        // None: a copy within the rank.
        let link = self.links.iter().find(|link| (link.peer, link.direction) == (peer, direction));
        self.life.fail(|first| Failure {
            rank,
            epoch: completed.unwrap_or(first),
            link: link.map(Link::named),
            cause,
            culprit: rank,
            report: Some(report),
        });
    }
}
