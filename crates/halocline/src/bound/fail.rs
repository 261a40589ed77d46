//! Failures that checks find.

use super::Bound;
use crate::check::Finding;
use crate::error::Failure;
use crate::link::{Direction, LinkPath};

impl Bound {
    /// Fails the object for what a check has found on this rank: in exchange `completed`, which is over, or in the one in flight.
    pub(super) fn fail_by(&self, finding: Finding, completed: Option<u64>) {
        let (rank, epoch) = (self.life.comm.rank(), self.epoch());
        let Finding { cause, direction, peer, report } = finding;
        // A finding that names a peer alone belongs to the link that waits for it.
        let mut of_peer = self.links.iter().filter(|link| link.peer == peer);
        let link = match direction {
            Some(direction) => of_peer.find(|link| link.direction == direction),
            None => of_peer.find(|link| !link.is_done(epoch)),
        };
        let direction = link.map(|link| link.direction).or(direction).unwrap_or(Direction::Receive);
        let path = link.map_or(LinkPath::Pull, |link| link.path);
        self.life.fail(|first| Failure {
            rank,
            epoch: completed.unwrap_or(first),
            peer,
            direction,
            path,
            cause,
            culprit: rank,
            report: Some(report),
        });
    }
}
