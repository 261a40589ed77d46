//! What both engines of an object do alike: they end, report late peers, and keep deadlines.

use super::{Completed, Lateness, Lifecycle, Warning};
use crate::error::{Cause, Error, Failure};
use crate::link::Link;
use halocline_comm::{Endpoint, Serve};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The state of one engine's part of an object's exchanges.
pub(crate) struct EnginePart {
    pub(crate) completed: Completed,
    /// The clock of the exchange that the engine waits for.
    pub(crate) lateness: Lateness,
    /// The user has dropped the object, and the peers were notified.
    closed: AtomicBool,
}

impl EnginePart {
    /// `carries`: whether the engine has anything to do in the exchanges of this object.
    pub(super) fn new(carries: bool) -> Self {
        let completed = Completed::new(carries);
        Self { completed, lateness: Lateness::default(), closed: AtomicBool::new(false) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// One engine of an object.
pub(crate) trait Engine: Serve {
    fn life(&self) -> &Lifecycle;

    fn part(&self) -> &EnginePart;

    fn links(&self) -> &[Link];

    /// The last exchange of this side, as its peers count.
    fn last_epoch(&self) -> u64 {
        self.life().epoch()
    }

    /// Who waits, as a warning begins: "rank 0 has".
    fn waiter(&self) -> String;

    /// The links whose peers exchange `epoch` waits for, after it has waited for that time.
    fn missing(&self, epoch: u64, waited: Duration) -> Vec<&Link>;

    /// Counts the exchanges that are over and that no call has looked at yet.
    fn settle(&self) {}

    /// After a failure: notifies the peers of this engine's links and ends its waits.
    fn release_waits(&self, failure: &Failure);

    /// Whether nothing touches the fields any more: no exchange is in flight or, after a failure, this rank and its peers have
    /// stopped.
    fn is_quiet(&self) -> bool;

    /// The outcome of this engine's part of exchange `epoch`, once there is one.
    #[inline]
    fn outcome(&self, epoch: u64) -> Option<Result<(), Error>> {
        self.life().outcome(&self.part().completed, epoch)
    }

    /// The user has dropped the object: it ends now, or once it is quiet.
    fn release(self: Arc<Self>)
    where
        Self: Sized + 'static,
    {
        if !self.is_over() {
            let comm = self.life().comm.clone();
            comm.defer_drop(self);
        }
    }

    /// Once a dropped object is quiet, notifies the peers that this side is gone. Whether it was quiet.
    fn close(&self) -> bool {
        if !self.is_quiet() {
            return false;
        }
        let life = self.life();
        if life.failure().is_none() && !self.part().closed.swap(true, Ordering::AcqRel) {
            match (self.links().first(), life.dead_rank()) {
                // Most likely the object is dropped because of the death: peers report the dead rank, not this one.
                (Some(link), Some(dead)) => {
                    link.fail(life, Cause::Died, dead);
                    life.wake();
                    return self.is_quiet();
                }
                _ => self.links().iter().for_each(|link| link.close(&life.comm, self.last_epoch())),
            }
        }
        true
    }

    /// Fails the object if a peer reports a failure. Whether one does.
    fn look_for_failed_peers(&self) -> bool {
        let life = self.life();
        let failed = |link: &Link| link.peer_failure(&life.comm);
        let Some((link, (cause, culprit))) = self.links().iter().find_map(|link| Some((link, failed(link)?)))
        else {
            return false;
        };
        link.fail(life, cause, culprit);
        true
    }

    /// Fails exchange `epoch` if it has missed its deadline. If a caller waits for it, also warns every 30 s.
    fn keep_time(&self, epoch: u64, is_awaited: bool) {
        let (life, lateness) = (self.life(), &self.part().lateness);
        let deadline = life.patience.deadline;
        if deadline.is_none() && !is_awaited || self.outcome(epoch).is_some() {
            return;
        }
        let now = life.comm.link().host().now();
        let warning = if is_awaited { lateness.warning(epoch, now) } else { None };
        let after = lateness.elapsed(epoch, now);
        if deadline.is_some_and(|deadline| after >= deadline) {
            self.miss_deadline(epoch, after);
        }
        if let Some(warning) = warning
            && life.failure().is_none()
        {
            self.warn(epoch, warning);
        }
    }

    /// Reports that exchange `epoch` takes long, and what the missing ranks wait for themselves.
    fn warn(&self, epoch: u64, warning: Warning) {
        let (waiter, Lifecycle { comm, name, .. }) = (self.waiter(), self.life());
        let after = match warning.after.as_secs() {
            0 => format!("{} ms", warning.after.as_millis()),
            _ => format!("{:.0} s", warning.after.as_secs_f32()),
        };
        let awaited = match &self.missing_ranks(epoch, warning.after)[..] {
            [] => "the device".to_owned(),
            ranks => comm.describe_waits(ranks),
        };
        let text = format!("{waiter} waited {after} in exchange {epoch} of {name} for {awaited}");
        comm.link().host().tell_late(&text, warning.again);
    }

    /// The ranks that exchange `epoch` waits for, after it has waited for that time.
    fn missing_ranks(&self, epoch: u64, waited: Duration) -> Vec<usize> {
        let ranks: BTreeSet<usize> = self.missing(epoch, waited).iter().map(|link| link.peer).collect();
        ranks.into_iter().collect()
    }

    /// Exchange `epoch` has missed its deadline: fails the object, if a peer is missing.
    fn miss_deadline(&self, epoch: u64, after: Duration) {
        // Otherwise this rank's device has not come that far.
        if let Some(link) = self.missing(epoch, after).first() {
            self.warn(epoch, Warning { after, again: false });
            link.fail(self.life(), Cause::Deadline(Some(after)), link.peer);
            self.life().wake();
        }
    }
}
