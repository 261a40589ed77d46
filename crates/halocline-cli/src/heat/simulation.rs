//! The time loop of one rank.

use super::domain::{Case, Domain};
use super::levels::{Host, Levels};
use super::stencil::{Block, Real};
use crate::device::Replays;
use crate::error::CommandError;
use halocline::plan::Transfer;
use halocline::{Array, BindOptions, Communicator, Error, Field, HaloExchange, LinkChoice, Pattern};
use serde::Serialize;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The simulation on the block of one rank.
pub(super) struct Heat<L: Levels> {
    rank: usize,
    pub(super) domain: Domain,
    pattern: Pattern,
    pub(super) levels: L,
    /// The level that holds the current temperature.
    now: usize,
    /// Width of the halo: the number of steps from one exchange to the next.
    pub(super) width: usize,
}

/// How rounds are computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The interior is computed while the exchange is in flight.
    pub(super) overlap: bool,
    /// Rounds are replayed from a graph.
    pub(super) graph: bool,
}

/// Times of the phases of one round: an exchange, and the steps that it serves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Phases {
    /// The call that starts the exchange.
    pub(super) begin: Duration,
    /// Computation of the interior, while the exchange is in flight.
    pub(super) interior: Duration,
    /// The wait for the exchange.
    pub(super) wait: Duration,
    /// Computation of all other cells.
    pub(super) rest: Duration,
}

/// Medians of [`Phases`], us.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Micros {
    pub(super) begin: f64,
    pub(super) interior: f64,
    pub(super) wait: f64,
    pub(super) rest: f64,
}

impl Phases {
    /// Time from the start of the exchange until the halo is filled.
    pub(super) fn overlapped(&self) -> Duration {
        self.begin + self.interior + self.wait
    }
}

impl<T: Real> Heat<Host<T>> {
    /// The fields with these numbers in their initial state, on the host. Collective.
    pub(super) fn new(comm: &Communicator, case: &Case, fields: Range<u32>) -> Result<Self, CommandError> {
        Self::on(comm, case, |domain| Host::new(comm, domain, fields))
    }
}

impl<L: Levels> Heat<L> {
    /// The initial state; `make` allocates the levels for the domain of this rank. Collective.
    pub(super) fn on(
        comm: &Communicator,
        case: &Case,
        make: impl FnOnce(&Domain) -> Result<L, CommandError>,
    ) -> Result<Self, CommandError> {
        let pattern = Pattern::regular(comm, &case.decomposition, &case.halo())?;
        let domain = Domain::new(case, &pattern.plan().domains[0].1);
        let levels = make(&domain)?;
        Ok(Self { rank: comm.rank(), domain, pattern, levels, now: 0, width: case.width })
    }

    /// Binds both levels as alternative field sets. Without `overlap` exchanges are part of the stream that computes. Collective.
    pub(super) fn bind(
        &self,
        comm: &Communicator,
        link: LinkChoice,
        overlap: bool,
    ) -> Result<HaloExchange, CommandError> {
        let pairs = |level: usize| -> Vec<(&Pattern, &Field)> {
            (0..self.fields()).map(|number| (&self.pattern, self.levels.field(level, number))).collect()
        };
        let options = BindOptions::default().link(link).inline(!overlap);
        Ok(HaloExchange::bind_alternatives(comm, &[&pairs(0), &pairs(1)], &options)?)
    }

    /// Runs one exchange and `steps` steps, at most the halo's width. With `overlap` the interior of the first step is computed while
    /// the exchange is in flight. The times are those of the calls, which may only queue work ([`Levels::QUEUES`]).
    pub(super) fn round(
        &mut self,
        halo: &HaloExchange,
        steps: usize,
        overlap: bool,
    ) -> Result<Phases, CommandError> {
        let start = Instant::now();
        let pending = self.levels.begin(halo, self.now)?;
        let begun = start.elapsed();
        if overlap {
            self.interior()?;
        }
        let computed = start.elapsed();
        self.levels.wait(pending)?;
        let waited = start.elapsed();
        self.rest(steps, overlap)?;
        let rest = start.elapsed() - waited;
        self.levels.settle()?;
        Ok(Phases { begin: begun, interior: computed - begun, wait: waited - computed, rest })
    }

    /// Exchanges the halos of the current level.
    pub(super) fn exchange(&mut self, halo: &HaloExchange) -> Result<(), CommandError> {
        let pending = self.levels.begin(halo, self.now)?;
        self.levels.wait(pending)?;
        self.levels.settle()
    }

    /// Computes the first step of the cells that need no halo.
    pub(super) fn interior(&self) -> Result<(), CommandError> {
        if self.domain.interior().cells() == 0 {
            return Ok(());
        }
        let _span = tracing::trace_span!("interior", rank = self.rank).entered();
        self.levels.interior(&self.domain, self.now)
    }

    /// Computes the rest of `steps` steps. `done`: the interior of the first step is already computed. Each step also computes the
    /// halo cells that the following steps need.
    pub(super) fn rest(&mut self, steps: usize, done: bool) -> Result<(), CommandError> {
        let _span = tracing::trace_span!("rest", rank = self.rank, steps).entered();
        for step in 0..steps {
            let block = self.domain.computed(steps - 1 - step);
            let blocks = if done && step == 0 { block.without(&self.domain.interior()) } else { vec![block] };
            self.levels.sweep(&self.domain, self.now, &blocks)?;
            self.now = 1 - self.now;
        }
        Ok(())
    }

    /// Captures two rounds into a graph, after which the same level has the temperature as before; `None` if this memory has no stream.
    ///
    /// # Safety
    /// The graph is not launched after `self` is dropped.
    pub(super) unsafe fn capture(
        &mut self,
        mut round: impl FnMut(&mut Self) -> Result<(), CommandError>,
    ) -> Result<Option<Replays>, CommandError> {
        let Some(stream) = self.levels.stream() else { return Ok(None) };
        // SAFETY: the work uses the levels of `self`, which wait for the stream when they are dropped. The caller launches no graph later.
        let graph = unsafe { stream.capture_graph(|| (0..2).try_for_each(|_| round(self))) }?;
        Ok(Some(Replays::new(graph, stream)))
    }

    /// Runs steps by replaying a graph, as many as fit into whole launches, and returns their number. Calls `tick` as [`Heat::run`] does.
    fn replay(
        &mut self,
        halo: &HaloExchange,
        steps: usize,
        overlap: bool,
        mut tick: impl FnMut(usize),
    ) -> Result<usize, CommandError> {
        let two_rounds = 2 * self.width;
        // SAFETY: the graph is dropped at the end of this call.
        let graph = unsafe { self.capture(|heat| heat.round(halo, heat.width, overlap).map(drop)) }?;
        let Some(mut graph) = graph else { return Ok(0) };
        for _ in 0..steps / two_rounds {
            graph.launch()?;
            tick(two_rounds);
        }
        // An exchange that is no part of the graph reports a failure of those that are.
        self.exchange(halo)?;
        self.finish()?;
        Ok(steps / two_rounds * two_rounds)
    }

    /// Runs all steps. Calls `tick` with the number of steps of each round. With `graph`, all but the first and last few rounds are replayed
    /// from a graph.
    pub(super) fn run(
        &mut self,
        halo: &HaloExchange,
        steps: usize,
        Way { overlap, graph }: Way,
        mut tick: impl FnMut(usize),
    ) -> Result<Vec<Phases>, CommandError> {
        let mut phases = Vec::with_capacity(steps.div_ceil(self.width));
        let mut left = steps;
        if graph && left > 0 {
            // The first round loads kernels and tables, which a capture does not allow.
            let steps = left.min(self.width);
            phases.push(self.round(halo, steps, overlap)?);
            left -= steps;
            tick(steps);
            left -= self.replay(halo, left, overlap, &mut tick)?;
        }
        while left > 0 {
            let steps = left.min(self.width);
            phases.push(self.round(halo, steps, overlap)?);
            left -= steps;
            tick(steps);
        }
        self.finish()?;
        Ok(phases)
    }

    /// Blocks until all queued work is done.
    pub(super) fn finish(&mut self) -> Result<(), CommandError> {
        self.levels.finish()
    }

    /// Writes the device's time stamps into the trace.
    pub(super) fn write_trace(&mut self) -> Result<(), Error> {
        self.levels.write_trace(self.rank)
    }

    /// All cells of a field in the order of the grid, on rank 0. Collective.
    pub(super) fn gather(
        &self,
        comm: &Communicator,
        field: usize,
    ) -> Result<Option<Vec<L::Real>>, CommandError> {
        let part = Array::zeros(comm, &self.domain.extents)?;
        let mut to = part.write()?;
        self.levels.read(self.now, field, |cells| to.copy_from_slice(cells))?;
        drop(to);
        let whole = self.pattern.gather_to(comm, 0, &part)?;
        Ok(whole.map(|whole| whole.read().map(|cells| cells.to_vec())).transpose()?)
    }

    /// Calls `visit` with each row of owned cells of a field, in order.
    pub(super) fn owned_rows(
        &self,
        field: usize,
        mut visit: impl FnMut(&[L::Real]),
    ) -> Result<(), CommandError> {
        let Block { low, high } = self.domain.owned;
        let [_, ny, nz] = self.domain.extents;
        self.levels.read(self.now, field, |cells| {
            for x in low[0]..high[0] {
                for y in low[1]..high[1] {
                    let row = (x * ny + y) * nz;
                    visit(&cells[row + low[2]..row + high[2]]);
                }
            }
        })
    }

    /// Bytes of halo that an exchange fills on this rank, and the part of them that comes from other ranks.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let plan = self.pattern.plan();
        let bytes = |transfers: &[Transfer]| -> u64 {
            let cells: usize = transfers.iter().map(|transfer| transfer.target.count()).sum();
            (cells * self.fields() * size_of::<L::Real>()) as u64
        };
        let received = plan.peers.iter().map(|peer| bytes(&peer.receives)).sum();
        (bytes(&plan.local) + received, received)
    }

    pub(super) fn fields(&self) -> usize {
        self.levels.fields()
    }
}
