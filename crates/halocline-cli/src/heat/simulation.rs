//! The time loop of one rank.

use super::domain::{Case, Domain};
use super::levels::{Host, Levels};
use super::stencil::{Block, Real};
use crate::error::CommandError;
use halocline::plan::Transfer;
use halocline::{BindOptions, Communicator, Error, Field, HaloExchange, LinkChoice, Pattern};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Two time levels of each field, on the block of one rank.
pub(super) struct Heat<L: Levels> {
    rank: usize,
    pub(super) domain: Domain,
    pattern: Pattern,
    pub(super) levels: L,
    /// The level that holds the temperature now.
    now: usize,
    /// Steps from one exchange to the next.
    pub(super) width: usize,
}

/// Where the time of one round went: an exchange, and the steps that it serves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Phases {
    /// The call that begins the exchange.
    pub(super) begin: Duration,
    /// The interior, while the exchange is in flight.
    pub(super) interior: Duration,
    /// The wait.
    pub(super) wait: Duration,
    /// All other cells.
    pub(super) rest: Duration,
}

impl Phases {
    /// From the begin until the halo is filled.
    pub(super) fn overlapped(&self) -> Duration {
        self.begin + self.interior + self.wait
    }
}

impl<T: Real> Heat<Host<T>> {
    /// The fields of these numbers at the start, on the host. Collective.
    pub(super) fn new(comm: &Communicator, case: &Case, fields: Range<u32>) -> Result<Self, CommandError> {
        Self::on(comm, case, |domain| Host::new(comm, domain, fields))
    }
}

impl<L: Levels> Heat<L> {
    /// The start, in levels made for the domain of this rank. Collective.
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

    /// Binds both levels, as alternatives. Collective.
    pub(super) fn bind(&self, comm: &Communicator, link: LinkChoice) -> Result<HaloExchange, CommandError> {
        let pairs = |level: usize| -> Vec<(&Pattern, &Field)> {
            (0..self.fields()).map(|number| (&self.pattern, self.levels.field(level, number))).collect()
        };
        let options = BindOptions::default().link(link);
        Ok(HaloExchange::bind_alternatives(comm, &[&pairs(0), &pairs(1)], &options)?)
    }

    /// One exchange and the steps that it serves, `steps` of them, at most the halo's width. With
    /// `overlap` the interior of the first step is computed while the exchange is in flight. The times are those of the
    /// calls, which may only queue work ([`Levels::QUEUES`]).
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

    /// Exchanges the halos of the level that is now.
    pub(super) fn exchange(&mut self, halo: &HaloExchange) -> Result<(), CommandError> {
        let pending = self.levels.begin(halo, self.now)?;
        self.levels.wait(pending)?;
        self.levels.settle()
    }

    /// Computes the first step of those cells that need no halo.
    pub(super) fn interior(&self) -> Result<(), CommandError> {
        if self.domain.interior().cells() == 0 {
            return Ok(());
        }
        let _span = tracing::trace_span!("interior", rank = self.rank).entered();
        self.levels.interior(&self.domain, self.now)
    }

    /// Computes the rest of `steps` steps, with the interior of the first one `done` or not. Each step
    /// computes as many cells of the halo as the steps after it need.
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

    /// All steps of a run. Calls `tick` with the number of steps done.
    pub(super) fn run(
        &mut self,
        halo: &HaloExchange,
        steps: usize,
        overlap: bool,
        mut tick: impl FnMut(usize),
    ) -> Result<Vec<Phases>, CommandError> {
        let mut phases = Vec::with_capacity(steps.div_ceil(self.width));
        let mut left = steps;
        while left > 0 {
            let steps = left.min(self.width);
            phases.push(self.round(halo, steps, overlap)?);
            left -= steps;
            tick(steps);
        }
        self.finish()?;
        Ok(phases)
    }

    /// Blocks until all that was begun is done.
    pub(super) fn finish(&mut self) -> Result<(), CommandError> {
        self.levels.finish()
    }

    /// Puts what was seen on the device into the trace.
    pub(super) fn write_down(&mut self) -> Result<(), Error> {
        self.levels.write_down(self.rank)
    }

    /// Calls `visit` with each row of owned cells of a field, in order.
    pub(super) fn owned_rows(
        &self,
        field: usize,
        mut visit: impl FnMut(&[L::Real]),
    ) -> Result<(), CommandError> {
        let Block { low, high } = self.domain.owned;
        let [_, ny, nz] = self.domain.extents;
        self.levels.look(self.now, field, |cells| {
            for x in low[0]..high[0] {
                for y in low[1]..high[1] {
                    let row = (x * ny + y) * nz;
                    visit(&cells[row + low[2]..row + high[2]]);
                }
            }
        })
    }

    /// Bytes of halo that an exchange fills on this rank, and those of them that come from other ranks.
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
