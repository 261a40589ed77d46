//! Waiting for a scheduled exchange: on the host, and on a stream.

use super::capture::is_captured;
use super::{Cut, IN_FLIGHT, Scheduled, Work};
use crate::error::{Cause, Error};
use crate::field::Memory;
use crate::lifecycle::Engine;
use crate::link::{Direction, Link, LinkPath};
use crate::set::Set;
use halocline_comm::{Endpoint, Late, Patience, Serve};
use halocline_device::Stream;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// A thread's sleep between two looks, at first and at last: no device rings a bell.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

impl Scheduled {
    /// The last exchange that is over, asked of the streams.
    pub(super) fn look(&self) -> u64 {
        let (known, epoch) = (self.completed(), self.epoch());
        if known == epoch {
            return if self.checks.is_some() { self.check(known, known) } else { known };
        }
        let done = self.done(known, epoch);
        // After that: an exchange whose fields were not sent never counts as over.
        if self.look_at_announcements() {
            return self.completed();
        }
        if done > known
            && let Some((link, (cause, culprit))) = self.torn()
        {
            // An exchange whose halo may be wrong never counts as over.
            link.fail(self.life(), cause, culprit);
            return self.completed();
        }
        if done > known && self.is_cut_short() {
            // Its messages may have ended by an abort.
            self.end_by_device(
                "NCCL was aborted, because an exchange of another object has failed".to_owned(),
            );
            return self.completed();
        }
        let done = self.check(known, done);
        // An exchange that ends after a failure ended by poison: it does not count.
        let completed = self.life().device.completed.reach(done);
        if completed == epoch {
            self.let_free();
            self.release_given(completed);
        }
        completed
    }

    /// Whether an exchange in flight uses a memory. The caller holds a guard of it, which later begins find.
    pub(crate) fn is_in_flight_with(&self, memory: &Arc<Memory>) -> bool {
        // A begin that did not see the guard has returned, and has counted.
        drop(self.enter());
        let (known, epoch) = (self.completed(), self.epoch());
        let is_after = |over: u64| (over + 1..=epoch).any(|epoch| self.is_used(epoch, memory));
        // At its end each lane waits for the copies of all others: one that is done is enough.
        let done = self.lanes.iter().map(|lane| lane.done(known, epoch)).max().unwrap_or(epoch);
        // Asked last: after a failure lanes end although peers may still write.
        let is_used = match self.life().failure() {
            Some(_) => is_after(self.completed()) && !self.is_quiet(),
            None => is_after(done),
        };
        if !is_used {
            self.follow_without_look();
        }
        is_used || self.is_looking()
    }

    /// The last exchange up to `epoch` that all streams have finished; they have finished those up to `known`.
    pub(super) fn done(&self, known: u64, epoch: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.done(known, epoch)).min().unwrap_or(epoch)
    }

    /// The failure of a rank that this one pulls from. It fails this object, too: that rank's owned cells are its user's again, so that
    /// the bytes read may have changed. A failing rank signals before it gives its cells back; so this is asked after the streams were
    /// seen to have finished.
    fn torn(&self) -> Option<(&Link, (Cause, usize))> {
        let mut pulled = self
            .links
            .iter()
            .filter(|link| link.path == LinkPath::Pull && link.direction == Direction::Receive);
        pulled.find_map(|link| Some((link, link.peer_failure(&self.comm)?)))
    }

    /// Whether messages of NCCL may have ended by an abort. To be asked after an exchange was seen to be over.
    fn is_cut_short(&self) -> bool {
        self.nccl.as_ref().is_some_and(|nccl| nccl.is_aborted())
    }

    /// Before a failure: counts what the user may have seen to be over in the order of a stream.
    pub(super) fn count_done(&self) {
        let known = self.completed();
        let done = self.done(known, self.epoch());
        if self.torn().is_none() && !self.differs() && !self.is_cut_short() {
            self.life().device.completed.reach(self.check_silently(known, done));
        }
    }

    /// Whether exchange `epoch` is over. Never blocks.
    pub(crate) fn is_ready(&self, epoch: u64) -> Result<bool, Error> {
        if self.final_outcome(epoch).is_none() {
            self.serve();
        }
        self.final_outcome(epoch).map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Fails unless the last exchange is over, the object has not failed, and the fields of a set are where they were bound.
    pub(crate) fn check_idle(&self, set: &Arc<Set>) -> Result<(), Error> {
        let epoch = self.epoch();
        self.check_failure()?;
        match self.is_ready(epoch)? {
            true => self.check_memories(Work::Set(set)),
            false => Err(Error::InFlight { epoch }),
        }
    }

    /// Waits on the host until exchange `epoch` is over. `serve` keeps its deadline and warns.
    pub(crate) fn wait(&self, epoch: u64) -> Result<(), Error> {
        let patience = Patience { deadline: None, ..self.life().patience };
        let look = || {
            self.carry_on();
            self.final_outcome(epoch)
        };
        let sleep = Cell::new(SLEEP.0);
        let next_sleep = || sleep.replace(SLEEP.1.min(2 * sleep.get()));
        patience.wait(
            self.comm.link(),
            look,
            || self.serve(),
            next_sleep,
            |late| match late {
                Late::Interrupted => Some(Err(self.life().interrupted(epoch))),
                Late::Announce | Late::Warn { .. } | Late::Deadline(_) => None,
            },
        )
    }

    /// When the next look is due, of tasks that wait.
    pub(super) fn next_look(&self, now: Duration) -> Option<Duration> {
        let sleep = (now.saturating_sub(self.life().last_task_came()) / 4).clamp(SLEEP.0, SLEEP.1);
        self.life().has_tasks().then(|| now + sleep)
    }

    /// Orders later work of the stream after exchange `epoch`. Never waits. Fails with [`Error::NotDriven`] if only a wait on the host
    /// carries the exchange on.
    pub(crate) fn schedule_wait(&self, epoch: u64, stream: &Stream) -> Result<(), Error> {
        let capture = self.check_stream(0, stream)?;
        if is_captured(epoch) {
            return self.wait_captured(stream, capture);
        }
        self.check_failure()?;
        // A stream would wait for chunks that no thread carries on, or a peer for this rank's manifest.
        if (self.staging.is_some() || self.checks.is_some())
            && !self.comm.link().is_driven()
            && self.completed() < epoch
        {
            return Err(Error::NotDriven);
        }
        let Some(lane) = self.lane_of(stream) else { return Ok(()) };
        if capture.is_some() {
            return Err(Error::OtherCapture { stream: 0 });
        }
        let begin = self.enter();
        // An exchange that the host has seen to be over precedes all later work of a stream.
        if self.completed() >= epoch || self.is_cut(Cut::Consumer) {
            let looked = self.look_on(epoch, (lane, stream));
            drop(begin);
            return looked.map_err(|error| self.lose(error));
        }
        let flight = begin.flights[(epoch % IN_FLIGHT) as usize][lane].as_ref().filter(|_| !begin.is_broken);
        let given = flight.map(|flight| {
            flight.precede(stream)?;
            self.look_on(epoch, (lane, stream))
        });
        drop(begin);
        match given {
            Some(given) => given.map_err(|error| self.lose(error)),
            None => {
                // Another thread has failed to begin an exchange, and is about to fail the object.
                while self.life().failure().is_none() {
                    self.comm.link().host().yield_now();
                }
                self.check_failure()
            }
        }
    }
}
