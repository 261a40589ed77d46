//! Vector clocks: how much of each actor's work another has seen.

/// A thread of the host, a stream, or a part of a copy table: a unit with program order.
pub(super) type Actor = usize;

/// How much of every actor's work has been seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    pub(super) fn get(&self, actor: Actor) -> u32 {
        self.0.get(actor).copied().unwrap_or(0)
    }

    /// Advances the actor: its later work is not yet seen by the others.
    pub(super) fn tick(&mut self, actor: Actor) {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] += 1;
    }

    /// Merges everything that `other` has seen.
    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}
