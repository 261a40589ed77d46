//! Waiting for rounds, and what carries them on meanwhile.

use super::engine::{Active, Shared};
use super::round::Core;
use super::{NeighborError, Side, trace};
use halocline_comm::{CommError, Endpoint, Late, Patience, Serve};
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
            self.comm().link().own_bell().arm();
            // What has come before.
            self.comm().link().poll();
            self.advance();
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
        let patience = Patience { deadline: self.deadline, ..Patience::of(link) };
        let ended = patience.wait(link, poll, || self.demand(core), |late| self.late(core, late));
        if was_armed && core.completion.outcome().is_none() {
            self.arm(core);
        }
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
                self.fail(NeighborError::Deadline { waiting, id, after, missing: missing() });
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
        state.active.is_empty() && state.lingering.is_empty() && (state.has_closed || state.failure.is_some())
    }

    fn due(&self) -> Option<Duration> {
        let (state, now) = (self.lock(), self.now());
        let of_round = |active: &Active| {
            let ends = self.deadline.map(|deadline| active.begun + deadline);
            let [left, right] = Side::BOTH.map(|side| active.links.get(side).due(now));
            [ends, left, right].into_iter().flatten().min()
        };
        let rounds = state.active.iter().filter(|active| active.is_armed || state.is_detached);
        let lingering = state.lingering.iter().filter_map(|(_, send)| send.due(now));
        rounds.filter_map(of_round).chain(lingering).min()
    }
}
