//! Model check of the passes: plays every order of the steps of some ranks, whose streams wait for each
//! other, and of the freeing thread. No thread sleeps forever, and nothing is freed while streams wait.

use super::*;
use std::collections::HashSet;

/// A rank: a thread that in each round queues frees, then lets its streams wait. Its streams wait until
/// those of all ranks do in this round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rank {
    /// Queues frees.
    Queues,
    /// Requests that its streams may wait.
    Asks,
    /// Waits for the end of a pass: the count of passes at its request, and whether it is awake.
    Waits(u64, bool),
    /// Its streams wait.
    In,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Freer {
    Looks,
    Sleeps,
    Frees,
}

const RANKS: usize = 3;
const ROUNDS: usize = 2;

struct World {
    state: State,
    ranks: [(Rank, usize); RANKS],
    freer: Freer,
}

impl World {
    fn copy(&self) -> Self {
        let State { waiting, asking, entering, is_freeing, freed, .. } = self.state;
        let jobs = self.state.jobs.iter().map(|(_, due)| (Box::new(|| {}) as Job, *due)).collect();
        let state = State { jobs, waiting, asking, entering, is_freeing, freed, ..State::default() };
        Self { state, ..*self }
    }

    /// Identifies a world, ignoring the number of passes.
    fn key(&self) -> impl Eq + std::hash::Hash + use<> {
        let State { jobs, waiting, asking, entering, is_freeing, freed, .. } = &self.state;
        let ranks = self.ranks.map(|(rank, rounds)| match rank {
            Rank::Waits(asked, is_awake) => (Rank::Waits(*freed - asked, is_awake), rounds),
            other => (other, rounds),
        });
        (jobs.len(), *waiting, *asking, *entering, *is_freeing, ranks, self.freer)
    }

    fn wake(&mut self) {
        for (rank, _) in &mut self.ranks {
            if let Rank::Waits(_, is_awake) = rank {
                *is_awake = true;
            }
        }
        if self.freer == Freer::Sleeps {
            self.freer = Freer::Looks;
        }
    }

    /// Executes a step of a rank, if possible. A rank that queues frees queues this many.
    fn step(&mut self, at: usize, frees: usize) -> bool {
        let (rank, rounds) = self.ranks[at];
        let through = |(rank, done): &(Rank, usize)| *done > rounds || (*done == rounds && *rank == Rank::In);
        self.ranks[at] = match rank {
            Rank::Queues if rounds == ROUNDS => return false,
            Rank::Queues => {
                for _ in 0..frees {
                    if self.state.put(Box::new(|| {})) {
                        self.wake();
                    }
                }
                (Rank::Asks, rounds)
            }
            Rank::Asks => match self.state.ask() {
                Some(asked) => (Rank::Waits(asked, true), rounds),
                None => (Rank::In, rounds),
            },
            Rank::Waits(_, false) => return false,
            Rank::Waits(asked, true) => match self.state.is_admitted(asked) {
                true => (Rank::In, rounds),
                false => (Rank::Waits(asked, false), rounds),
            },
            Rank::In if !self.ranks.iter().all(through) => return false,
            Rank::In => {
                if self.state.leave() {
                    self.wake();
                }
                (Rank::Queues, rounds + 1)
            }
        };
        true
    }

    /// Executes a step of the freeing thread; `more`: the pass continues with a further job.
    fn free(&mut self, more: bool) -> bool {
        self.freer = match self.freer {
            Freer::Sleeps => return false,
            Freer::Looks if self.state.take().is_some() => Freer::Frees,
            Freer::Looks => Freer::Sleeps,
            Freer::Frees if more && self.state.take_more().is_some() => Freer::Frees,
            Freer::Frees => {
                self.state.end_pass();
                self.wake();
                Freer::Looks
            }
        };
        true
    }
}

#[test]
fn no_thread_sleeps_forever_and_nothing_is_freed_while_streams_wait() {
    let mut seen = HashSet::new();
    let begin = World { state: State::default(), ranks: [(Rank::Queues, 0); RANKS], freer: Freer::Looks };
    let (mut worlds, mut ends) = (vec![begin], 0);
    while let Some(world) = worlds.pop() {
        if !seen.insert(world.key()) {
            continue;
        }
        let is_in = world.ranks.iter().any(|(rank, _)| *rank == Rank::In);
        assert!(!(is_in && world.freer == Freer::Frees), "freed while streams wait: {:?}", world.ranks);
        let before = worlds.len();
        for (at, frees) in (0..RANKS).flat_map(|at| (0..3).map(move |frees| (at, frees))) {
            let mut next = world.copy();
            if next.step(at, frees) {
                worlds.push(next);
            }
        }
        for more in [false, true] {
            let mut next = world.copy();
            if next.free(more) {
                worlds.push(next);
            }
        }
        if worlds.len() == before {
            let is_over = world.ranks.iter().all(|rank| *rank == (Rank::Queues, ROUNDS));
            assert!(
                is_over && world.state.jobs.is_empty(),
                "all sleep: {:?}, {:?}",
                world.ranks,
                world.freer
            );
            ends += 1;
        }
    }
    assert!(ends > 0 && seen.len() > 1000, "{} worlds", seen.len());
}
