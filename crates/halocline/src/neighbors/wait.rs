//! Waiting for rounds, and what carries them on meanwhile.

use super::engine::{Active, Shared, State};
use super::round::Core;
use super::{NeighborError, Side, trace};
use halocline_comm::{CommError, Endpoint, Late, Serve};
use std::sync::Arc;
use std::time::Duration;

impl Shared {
    /// Lets the progress thread carry the round on.
    pub(super) fn arm(&self, core: &Arc<Core>) {
        let armed = {
            let mut state = self.lock();
            let active = state.active.iter_mut().find(|active| Arc::ptr_eq(&active.core, core));
            active.filter(|active| !active.is_armed).map(|active| active.is_armed = true)
        };
        if armed.is_some() {
            let link = self.comm().link();
            link.own_bell().arm();
            // What has come before.
            link.poll();
            self.advance();
            self.demand_if_due();
        }
    }

    /// No message announces the time of the next look: the progress thread, which may sleep, has to know it.
    pub(super) fn demand_if_due(&self) {
        if self.due().is_some() {
            let link = self.comm().link();
            link.own_bell().demand(link.host());
        }
    }

    pub(super) fn disarm(&self, active: &mut Active) {
        if std::mem::take(&mut active.is_armed) {
            self.comm().link().own_bell().disarm();
        }
    }

    /// Waits until the round is over.
    pub(super) fn wait(&self, core: &Arc<Core>) -> Result<(), NeighborError> {
        if let Some(outcome) = core.completion.outcome() {
            return outcome;
        }
        let _span = trace::wait(self, core);
        let link = self.comm().link();
        link.check()?;
        let was_armed = {
            let mut state = self.lock();
            let active = state.active.iter_mut().find(|active| Arc::ptr_eq(&active.core, core));
            active.is_some_and(|active| {
                let was_armed = active.is_armed;
                self.disarm(active);
                was_armed
            })
        };
        let poll = || {
            self.advance();
            core.completion.outcome()
        };
        let patience = self.context.patience(self.deadline);
        let ended = patience.wait(
            link,
            poll,
            || self.demand(core),
            || self.until_due(core),
            |late| self.late(core, late),
        );
        if was_armed && core.completion.outcome().is_none() {
            self.arm(core);
        }
        // Of other rounds, too, which this thread has carried on.
        self.demand_if_due();
        ended
    }

    /// Asks the neighbours that a round waits for to carry it on while their programs compute.
    fn demand(&self, core: &Arc<Core>) {
        let link = self.comm().link();
        let state = self.lock();
        let Some(active) = state.active.iter().find(|active| Arc::ptr_eq(&active.core, core)) else { return };
        for side in Side::BOTH {
            if let (Some(rank), Some(_)) = (*self.neighbors.get(side), active.links.get(side).missing())
                && let Some(bell) = link.bell(rank)
            {
                bell.demand(link.host());
            }
        }
    }

    /// How long a wait may sleep: no bell rings when a device has done its work or a time has come.
    fn until_due(&self, core: &Arc<Core>) -> Duration {
        let (state, now) = (self.lock(), self.now());
        // Another thread has completed the round, and says so soon.
        let is_over = !state.active.iter().any(|active| Arc::ptr_eq(&active.core, core));
        let due = state.due(now).map_or(Duration::MAX, |due| due.saturating_sub(now));
        if is_over { Duration::ZERO } else { due }
    }

    fn late(&self, core: &Arc<Core>, late: Late) -> Option<Result<(), NeighborError>> {
        let link = self.comm().link();
        let missing = || {
            let state = self.lock();
            let active = state.active.iter().find(|active| Arc::ptr_eq(&active.core, core));
            active.map(|active| self.missing(active)).unwrap_or_default()
        };
        let (waiting, id) = (self.comm().rank(), core.id);
        match late {
            Late::Announce => None,
            Late::Warn { after, again } => {
                let (after, missing) = (after.as_secs(), missing());
                let text = format!("rank {waiting} has waited {after} s in operation {id} for {missing}");
                link.host().tell_late(&text, again);
                None
            }
            Late::Deadline(after) => {
                self.fail_round(core, |missing| NeighborError::Deadline { waiting, id, after, missing });
                core.completion.outcome()
            }
            Late::Interrupted => {
                let what = format!("operation {id} of a neighbour exchange");
                Some(Err(CommError::Interrupted { waiting, what }.into()))
            }
        }
    }
}

impl Serve for Shared {
    fn serve(&self) {
        self.advance();
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        let has_told = if state.failure.is_some() { state.has_ended } else { state.has_closed };
        state.active.is_empty() && state.lingering.is_empty() && has_told
    }

    fn due(&self) -> Option<Duration> {
        let (state, now) = (self.lock(), self.now());
        let carried_on = state.active.iter().filter(|active| active.is_armed || state.is_detached);
        let ends = carried_on.filter_map(|active| Some(active.begun.saturating_add(self.deadline?))).min();
        ends.into_iter().chain(state.due(now)).min()
    }
}

impl State {
    /// When to look again at what is in flight, although no message has come.
    fn due(&self, now: Duration) -> Option<Duration> {
        let sides = self.active.iter().flat_map(|active| Side::BOTH.map(|side| active.links.get(side)));
        let rest = self.lingering.iter().filter_map(|rest| rest.due(now));
        sides.filter_map(|link| link.due(now)).chain(rest).chain(self.ask.map(|ask| ask.at)).min()
    }
}
