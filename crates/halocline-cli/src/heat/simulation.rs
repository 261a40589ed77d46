//! The time loop of one rank.

use super::domain::{Case, Domain};
use super::error::HeatError;
use super::stencil::{All, Block, Real, Still, THIN, sweep, sweep_thin};
use halocline::plan::Transfer;
use halocline::{Array, BindOptions, Communicator, Field, HaloExchange, LinkChoice, Pattern};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Two time levels of each field, on the block of one rank.
pub(super) struct Heat<T: Real> {
    rank: usize,
    pub(super) domain: Domain,
    pattern: Pattern,
    levels: [Vec<Array<T>>; 2],
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

impl<T: Real> Heat<T> {
    /// The fields of these numbers at the start. Collective.
    pub(super) fn new(comm: &Communicator, case: &Case, fields: Range<u32>) -> Result<Self, HeatError> {
        let pattern = Pattern::regular(comm, &case.decomposition, &case.halo())?;
        let domain = Domain::new(case, &pattern.plan().domains[0].1);
        let level = || -> Result<Vec<Array<T>>, HeatError> {
            let array = |field| -> Result<Array<T>, HeatError> {
                let array = Array::zeros(comm, &domain.extents)?;
                // Both levels: what lies beyond the grid is never written again.
                domain.fill(field, &mut array.write()?);
                Ok(array)
            };
            fields.clone().map(array).collect()
        };
        let levels = [level()?, level()?];
        Ok(Self { rank: comm.rank(), domain, pattern, levels, now: 0, width: case.width })
    }

    /// Binds both levels, as alternatives. Collective.
    pub(super) fn bind(&self, comm: &Communicator, link: LinkChoice) -> Result<HaloExchange, HeatError> {
        let pairs = |level: usize| -> Vec<(&Pattern, &Field)> {
            self.levels[level].iter().map(|array| (&self.pattern, &**array)).collect()
        };
        let options = BindOptions { link, ..BindOptions::default() };
        Ok(HaloExchange::bind_alternatives(comm, &[&pairs(0), &pairs(1)], &options)?)
    }

    /// One exchange and the steps that it serves, `steps` of them, at most the halo's width. With
    /// `overlap` the interior of the first step is computed while the exchange is in flight.
    pub(super) fn round(
        &mut self,
        halo: &HaloExchange,
        steps: usize,
        overlap: bool,
    ) -> Result<Phases, HeatError> {
        let start = Instant::now();
        let pending = halo.exchange_set(self.now)?;
        let begun = start.elapsed();
        if overlap {
            self.interior()?;
        }
        let computed = start.elapsed();
        pending.wait()?;
        let waited = start.elapsed();
        self.rest(steps, overlap)?;
        let rest = start.elapsed() - waited;
        Ok(Phases { begin: begun, interior: computed - begun, wait: waited - computed, rest })
    }

    /// Exchanges the halos of the level that is now.
    pub(super) fn exchange(&self, halo: &HaloExchange) -> Result<(), HeatError> {
        Ok(halo.exchange_set(self.now)?.wait()?)
    }

    /// Computes the first step of those cells that need no halo.
    pub(super) fn interior(&self) -> Result<(), HeatError> {
        let interior = self.domain.interior();
        if interior.cells() == 0 {
            return Ok(());
        }
        let _span = tracing::trace_span!("interior", rank = self.rank).entered();
        for (from, to) in self.levels[self.now].iter().zip(&self.levels[1 - self.now]) {
            // SAFETY: exchanges fill halo cells within the grid; these are owned cells of the domain of the
            // pattern that all arrays are bound with, or beyond the grid. Writing guards are taken of the
            // other level only, here and in `rest`, until this level's turn comes after the wait.
            let still = unsafe { Still::new(from, self.domain.still()) };
            sweep(&still, &mut to.write()?, self.domain.extents, &interior);
        }
        Ok(())
    }

    /// Computes the rest of `steps` steps, with the interior of the first one `done` or not. Each step
    /// computes as many cells of the halo as the steps after it need.
    pub(super) fn rest(&mut self, steps: usize, done: bool) -> Result<(), HeatError> {
        let _span = tracing::trace_span!("rest", rank = self.rank, steps).entered();
        for step in 0..steps {
            let block = self.domain.computed(steps - 1 - step);
            let blocks = if done && step == 0 { block.without(&self.domain.interior()) } else { vec![block] };
            self.sweep(&blocks)?;
            self.now = 1 - self.now;
        }
        Ok(())
    }

    fn sweep(&self, blocks: &[Block]) -> Result<(), HeatError> {
        let extents = self.domain.extents;
        for (from, to) in self.levels[self.now].iter().zip(&self.levels[1 - self.now]) {
            let (from, mut to) = (from.read()?, to.write()?);
            let from = All { cells: &from, extents };
            let (thin, others): (Vec<&Block>, Vec<&Block>) =
                blocks.iter().partition(|block| block.extent(2) <= THIN);
            others.into_iter().for_each(|block| sweep(&from, &mut to, extents, block));
            // Those that `Block::without` leaves at both ends of rows are of the same rows.
            for group in thin.chunk_by(|a, b| a.low[..2] == b.low[..2] && a.high[..2] == b.high[..2]) {
                let depths: Vec<_> = group.iter().map(|block| block.low[2]..block.high[2]).collect();
                sweep_thin(&from, &mut to, group[0], &depths);
            }
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
    ) -> Result<Vec<Phases>, HeatError> {
        let mut phases = Vec::with_capacity(steps.div_ceil(self.width));
        let mut left = steps;
        while left > 0 {
            let steps = left.min(self.width);
            phases.push(self.round(halo, steps, overlap)?);
            left -= steps;
            tick(steps);
        }
        Ok(phases)
    }

    /// Calls `visit` with each row of owned cells of a field, in order.
    pub(super) fn owned_rows(&self, field: usize, mut visit: impl FnMut(&[T])) -> Result<(), HeatError> {
        let Block { low, high } = self.domain.owned;
        let cells = self.levels[self.now][field].read()?;
        let [_, ny, nz] = self.domain.extents;
        for x in low[0]..high[0] {
            for y in low[1]..high[1] {
                let row = (x * ny + y) * nz;
                visit(&cells[row + low[2]..row + high[2]]);
            }
        }
        Ok(())
    }

    /// Bytes of halo that an exchange fills on this rank, and those of them that come from other ranks.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let plan = self.pattern.plan();
        let bytes = |transfers: &[Transfer]| -> u64 {
            let cells: usize = transfers.iter().map(|transfer| transfer.target.count()).sum();
            (cells * self.fields() * size_of::<T>()) as u64
        };
        let received = plan.peers.iter().map(|peer| bytes(&peer.receives)).sum();
        (bytes(&plan.local) + received, received)
    }

    pub(super) fn fields(&self) -> usize {
        self.levels[0].len()
    }
}
