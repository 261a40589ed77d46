//! Shared by several topics: a typed ring of cells, small messages between ranks, and a check that a communicator still works.

use crate::fixtures::{Grid, by};
use crate::numbers::mix;
use crate::stage::{Cells, Stage};
use crate::{Outcome, Trouble, ensure, fail};
use halocline::{
    BindOptions, Cause, Communicator, Error, Failure, HaloExchange, LinkChoice, Pattern, Pending, Reduce,
};
use halocline_comm::{Endpoint, Tag};
use std::sync::Arc;
use std::time::Duration;

/// Owned cells of each rank of a [`Line`].
const OWNED: usize = 3;

/// A periodic line of cells over all ranks, one halo cell at each side, in a typed array.
pub(super) struct Line {
    pub pattern: Pattern,
    pub array: Cells<u64>,
    rank: usize,
    ranks: usize,
}

impl Line {
    pub fn new(comm: &Stage<'_>) -> Result<Self, Trouble> {
        let pattern = Grid::new(comm.size(), &[OWNED * comm.size()], &[true], 1)?.pattern(comm)?;
        let array = comm.zeros(&[OWNED + 2])?;
        Ok(Self { pattern, array, rank: comm.rank(), ranks: comm.size() })
    }

    pub fn bind(&self, comm: &Communicator, link: LinkChoice) -> Result<HaloExchange, Error> {
        self.bind_with(comm, &by(link))
    }

    pub fn bind_with(&self, comm: &Communicator, options: &BindOptions) -> Result<HaloExchange, Error> {
        HaloExchange::bind_with(comm, [(&self.pattern, &self.array)], options)
    }

    /// Writes the owned cells of a step, and invalid values into the halo.
    pub fn fill(&self, step: u64) -> Outcome {
        let mut cells = [u64::MAX; OWNED + 2];
        (0..OWNED).for_each(|at| cells[at + 1] = value(self.rank * OWNED + at, step));
        Ok(self.array.put(&cells)?)
    }

    /// Compares the halo with the values that the owners wrote.
    pub fn check(&self, step: u64) -> Outcome {
        let (cells, total) = (self.array.get()?, OWNED * self.ranks);
        let first = self.rank * OWNED;
        let expected = [value((first + total - 1) % total, step), value((first + OWNED) % total, step)];
        let found = [cells[0], cells[OWNED + 1]];
        ensure!(found == expected, "step {step}: the halo is {found:x?} instead of {expected:x?}");
        Ok(())
    }

    /// Fills, exchanges, compares; every other exchange of a device array is a scheduled one.
    pub fn step(&self, halo: &HaloExchange, step: u64) -> Outcome {
        self.fill(step)?;
        match self.array.stream().filter(|_| step.is_multiple_of(2)) {
            None => halo.exchange()?.wait()?,
            Some(stream) => {
                halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
                stream.synchronise()?;
            }
        }
        self.check(step)
    }
}

fn value(cell: usize, step: u64) -> u64 {
    mix(cell as u64 ^ mix(step))
}

/// Small messages between ranks, to order what they do in a case.
pub(super) struct Words<'a> {
    comm: &'a Communicator,
    operation: u64,
}

impl<'a> Words<'a> {
    /// Collective.
    pub fn new(comm: &'a Communicator) -> Self {
        Self { comm, operation: comm.begin() }
    }

    pub fn say(&self, to: usize, round: u64) -> Outcome {
        Ok(self.comm.send(to, Tag { operation: self.operation, round }, Vec::new())?)
    }

    pub fn hear(&self, from: usize, round: u64) -> Outcome {
        let tag = Tag { operation: self.operation, round };
        self.comm.receive(Some(from), tag, "a word of the suite")?;
        Ok(())
    }

    /// Rank `from` notifies all others, which wait for it.
    pub fn tell_all(&self, from: usize, round: u64) -> Outcome {
        let others = (0..self.comm.size()).filter(|&rank| rank != from);
        match self.comm.rank() == from {
            true => others.into_iter().try_for_each(|rank| self.say(rank, round)),
            false => self.hear(from, round),
        }
    }

    /// All others notify rank `to`, which waits for them.
    pub fn all_tell(&self, to: usize, round: u64) -> Outcome {
        let mut others = (0..self.comm.size()).filter(|&rank| rank != to);
        match self.comm.rank() == to {
            true => others.try_for_each(|rank| self.hear(rank, round)),
            false => self.say(to, round),
        }
    }
}

/// Checks that a communicator still works after a refusal or a failure on it.
pub(super) fn still_works(comm: &Stage<'_>) -> Outcome {
    comm.barrier()?;
    let sum = comm.all_reduce(&[comm.rank() as u64], Reduce::Sum)?;
    let expected = (0..comm.size() as u64).sum::<u64>();
    ensure!(sum == [expected], "a sum after a refusal is {sum:?} instead of {expected}");
    let line = Line::new(comm)?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    line.step(&halo, 1)
}

/// Requires that a call ended with a failure, and returns it.
#[track_caller]
pub(super) fn failure<T>(result: Result<T, Error>) -> Result<Arc<Failure>, Trouble> {
    match result {
        Err(Error::Failed(failure)) => Ok(failure),
        Err(other) => Err(Trouble::new(format!("another error than a failure: {other}"))),
        Ok(_) => Err(Trouble::new("no failure although the exchange cannot complete")),
    }
}

/// Exchanges until the object fails, and returns the failure.
pub(super) fn until_failure(halo: &HaloExchange) -> Result<Arc<Failure>, Trouble> {
    let is_over = |pending: &Pending| matches!(pending.is_ready(), Ok(true));
    let mut last = halo.pending().filter(is_over).map(|pending| pending.epoch());
    loop {
        match halo.exchange().and_then(|pending| pending.wait().map(|()| pending.epoch())) {
            Ok(epoch) => last = Some(epoch),
            failed => {
                let failure = failure(failed)?;
                let is_later = last.is_none_or(|last| failure.epoch > last);
                ensure!(is_later, "exchange {last:?} has ended well: {failure}");
                return Ok(failure);
            }
        }
    }
}

/// Waits until a failed object has released its memory, and checks it.
pub(super) fn reclaimed(comm: &Stage<'_>, halo: &HaloExchange, array: &Cells<u64>) -> Outcome {
    while !halo.reclaim() {
        comm.link().host().yield_now();
    }
    array.fill(7)?;
    ensure!(array.get()?.iter().all(|&cell| cell == 7), "reclaimed memory does not keep what is written");
    ensure!(halo.reclaim(), "what was reclaimed once is not any more");
    Ok(())
}

/// Checks that a failed object stays failed in every call.
pub(super) fn is_sticky(halo: &HaloExchange, first: &Failure) -> Outcome {
    for again in [failure(halo.exchange())?, failure(halo.exchange())?] {
        ensure!(*again == *first, "first {first}, then {again}");
    }
    Ok(())
}

/// Whether a failure is a deadline.
pub(super) fn is_deadline(cause: Cause, at_least: Duration) -> bool {
    match cause {
        Cause::Deadline(Some(after)) => after >= at_least,
        Cause::Deadline(None) => true,
        _ => false,
    }
}

/// Polls until `is_so` holds, and yields between polls.
pub(super) fn poll(comm: &Stage<'_>, mut ready: impl FnMut() -> Result<bool, Error>) -> Outcome {
    while !ready()? {
        comm.link().host().yield_now();
    }
    Ok(())
}

/// The error of a call that must be refused with [`Error::InFlight`] for `epoch`.
pub(super) fn in_flight<T>(result: Result<T, Error>, epoch: u64) -> Outcome {
    match result {
        Err(Error::InFlight { epoch: found }) if found == epoch => Ok(()),
        Err(other) => fail!("instead of exchange {epoch} in flight: {other}"),
        Ok(_) => fail!("an exchange was begun while exchange {epoch} is in flight"),
    }
}
