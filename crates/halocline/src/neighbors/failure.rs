//! What a neighbour exchange does once it has failed.

use super::control::Control;
use super::engine::{Active, Reports, Shared, State};
use super::link::{Lingering, channel};
use super::round::Core;
use super::{NeighborError, Side};
use halocline_comm::{Communicator, Endpoint};
use std::sync::Arc;

impl Shared {
    /// A neighbour has sent what no rank of this library sends.
    pub(super) fn fail_malformed(&self, side: Side) -> NeighborError {
        let from = self.neighbors.get(side).unwrap_or(self.comm().rank());
        let error = NeighborError::Malformed { from, what: "header between neighbours" };
        self.fail(error.clone());
        error
    }

    pub(super) fn fail(&self, error: NeighborError) {
        let mut reports = Reports::new();
        {
            let mut state = self.lock();
            if state.failure.is_none() {
                self.give_up(&mut state, error, &mut reports);
            }
            self.linger(&mut state);
        }
        self.report(reports);
    }

    /// Fails because of a round, unless another thread has completed that just before. `error` gets what it waits for.
    pub(super) fn fail_round(&self, core: &Arc<Core>, error: impl FnOnce(String) -> NeighborError) {
        let mut reports = Reports::new();
        {
            let mut state = self.lock();
            let active = state.active.iter().find(|active| Arc::ptr_eq(&active.core, core));
            if let Some(error) = active.map(|active| error(self.missing(active))) {
                self.give_up(&mut state, error, &mut reports);
            }
            self.linger(&mut state);
        }
        self.report(reports);
    }

    /// The failure is final: ends all rounds, and tells the neighbours, who tell theirs.
    pub(super) fn give_up(&self, state: &mut State, error: NeighborError, reports: &mut Reports) {
        // First: a neighbour whose packet is refused below then finds out why. One that cannot be reached waits for nothing.
        let _ = self.tell_all(&Control::Abort(error.failure(self.comm().rank())));
        let why = error.to_string();
        for mut active in std::mem::take(&mut state.active) {
            self.disarm(&mut active);
            let Active { core, links, number, .. } = active;
            state.lingering.extend([links.left, links.right].map(|link| link.abandon(self, &number, &why)));
            reports.push((core, Err(error.clone())));
        }
        state.failure = Some(error);
        // No call waits for the rest any more: the progress thread looks.
        self.comm().link().own_bell().demand(self.comm().link().host());
    }

    pub(super) fn tell_all(&self, control: &Control) -> Result<(), NeighborError> {
        for side in Side::BOTH {
            if let Some(to) = *self.neighbors.get(side) {
                let tag = channel(self.operation, 0, side).control();
                let mut message = control.encode();
                message.reserve(Communicator::SPARE);
                self.comm().send(to, tag, message)?;
            }
        }
        Ok(())
    }

    /// Carries the packets of failed rounds on until no device copies them and no neighbour reads them.
    pub(super) fn linger(&self, state: &mut State) {
        if state.failure.is_none() || (state.has_ended && state.lingering.is_empty()) {
            return;
        }
        let gone = self.gone(&state.peers);
        for side in Side::BOTH {
            // What it says about its failure comes too late to matter: only whether it has ended is of interest.
            while self.look(&mut state.peers, side).is_err() {}
        }
        let State { lingering, peers, .. } = state;
        lingering.retain_mut(|rest| {
            let is_unread = peers.get(rest.side()).has_ended || gone.get(rest.side()).is_some();
            !rest.advance(self, is_unread)
        });
        let is_copying = lingering.iter().any(Lingering::is_copying);
        if !is_copying && !std::mem::replace(&mut state.has_ended, true) {
            // A neighbour that cannot be reached reads nothing.
            let _ = self.tell_all(&Control::Ended);
        }
    }
}
