//! Comparing what ranks have begun, while a round waits for a neighbour that has not begun the exchange.

use super::engine::{Shared, State};
use super::{NeighborError, Side};
use halocline_comm::Call;
use std::time::Duration;

/// When to compare what ranks have begun, and how long to wait until the next time.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) at: Duration,
    interval: Duration,
}

/// The first and the longest time between two comparisons.
const ASK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

impl Shared {
    /// Tells neighbours that have not begun for long what this rank waits in, and compares what ranks have begun.
    pub(super) fn ask(&self, state: &mut State) -> Result<(), NeighborError> {
        let silent = Side::BOTH
            .map(|side| self.neighbors.get(side).filter(|_| state.peers.get(side).device.is_none()));
        if state.active.is_empty() || silent == [None, None] {
            state.ask = None;
            return Ok(());
        }
        let now = self.now();
        let Ask { at, interval } = *state.ask.get_or_insert(Ask { at: now + ASK.0, interval: ASK.0 });
        if now < at {
            return Ok(());
        }
        let interval = ASK.1.min(2 * interval);
        state.ask = Some(Ask { at: now + interval, interval });
        for (side, rank) in Side::BOTH.into_iter().zip(silent) {
            if let Some(rank) = rank {
                state.peers.get_mut(side).is_asked = true;
                self.call.announce(self.comm(), rank);
            }
        }
        Ok(Call::check_lasting(self.comm())?)
    }
}
