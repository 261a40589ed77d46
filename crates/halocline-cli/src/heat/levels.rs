//! The memory of the temperature and the sweeps over it: on the host here, on a GPU in [`super::device`].

use super::domain::Domain;
use super::stencil::{All, Block, Real, Still, THIN, sweep, sweep_thin};
use crate::error::CommandError;
use halocline::{Array, Communicator, Error, Field, HaloExchange, Pending, Stream};
use std::ops::Range;
use std::sync::Arc;

/// Two time levels of each field on the block of one rank. A sweep reads one level and writes the other.
pub(super) trait Levels {
    /// Element type of the fields.
    type Real: Real;
    /// Whether calls only queue work. The work is done when [`Levels::finish`] returns.
    const QUEUES: bool;

    fn fields(&self) -> usize;

    fn field(&self, level: usize, number: usize) -> &Field;

    /// Starts the exchange of a level.
    fn begin(&self, halo: &HaloExchange, level: usize) -> Result<Pending, CommandError>;

    /// Orders all later computations after an exchange.
    fn wait(&mut self, pending: Pending) -> Result<(), CommandError>;

    /// Computes the cells that need no halo from level `now`. An exchange of that level may be in flight.
    fn interior(&self, domain: &Domain, now: usize) -> Result<(), CommandError>;

    /// Computes all cells of these boxes from level `now`.
    fn sweep(&self, domain: &Domain, now: usize, blocks: &[Block]) -> Result<(), CommandError>;

    /// Blocks until another round can be queued.
    fn settle(&mut self) -> Result<(), CommandError>;

    /// Blocks until all queued work is done.
    fn finish(&mut self) -> Result<(), CommandError>;

    /// The stream on which work is queued, if a graph can hold it.
    fn stream(&self) -> Option<Arc<Stream>> {
        None
    }

    /// Writes the device's time stamps into the trace, if the user asked for one, and stops recording. Call it after [`Levels::finish`].
    fn write_trace(&mut self, _rank: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Calls `visit` with all cells of a field.
    fn read(
        &self,
        level: usize,
        number: usize,
        visit: impl FnOnce(&[Self::Real]),
    ) -> Result<(), CommandError>;
}

/// Arrays in host memory.
pub(super) struct Host<T: Real>([Vec<Array<T>>; 2]);

impl<T: Real> Host<T> {
    /// The fields with these numbers in their initial state.
    pub(super) fn new(
        comm: &Communicator,
        domain: &Domain,
        fields: Range<u32>,
    ) -> Result<Self, CommandError> {
        let level = || -> Result<Vec<Array<T>>, CommandError> {
            let array = |field| -> Result<Array<T>, CommandError> {
                let array = Array::zeros(comm, &domain.extents)?;
                // Both levels are filled, because cells beyond the grid are never written again.
                domain.fill(field, &mut array.write()?);
                Ok(array)
            };
            fields.clone().map(array).collect()
        };
        Ok(Self([level()?, level()?]))
    }

    /// For each field, the array of level `now` and the array of the other level.
    fn pairs(&self, now: usize) -> impl Iterator<Item = (&Array<T>, &Array<T>)> {
        self.0[now].iter().zip(&self.0[1 - now])
    }
}

impl<T: Real> Levels for Host<T> {
    type Real = T;
    const QUEUES: bool = false;

    fn fields(&self) -> usize {
        self.0[0].len()
    }

    fn field(&self, level: usize, number: usize) -> &Field {
        &self.0[level][number]
    }

    fn begin(&self, halo: &HaloExchange, level: usize) -> Result<Pending, CommandError> {
        Ok(halo.begin().set(level).start()?)
    }

    fn wait(&mut self, pending: Pending) -> Result<(), CommandError> {
        Ok(pending.wait()?)
    }

    fn interior(&self, domain: &Domain, now: usize) -> Result<(), CommandError> {
        let interior = domain.interior();
        for (from, to) in self.pairs(now) {
            // SAFETY: exchanges fill only halo cells within the grid. `still` has owned cells of the bound pattern's domain, and cells
            // beyond the grid. This method and `sweep` take write guards of the other level only, until the exchange is complete.
            let still = unsafe { Still::new(from, domain.still()) };
            sweep(&still, &mut to.write()?, domain.extents, &interior);
        }
        Ok(())
    }

    fn sweep(&self, domain: &Domain, now: usize, blocks: &[Block]) -> Result<(), CommandError> {
        let extents = domain.extents;
        for (from, to) in self.pairs(now) {
            let (from, mut to) = (from.read()?, to.write()?);
            let from = All { cells: &from, extents };
            let (thin, others): (Vec<&Block>, Vec<&Block>) =
                blocks.iter().partition(|block| block.extent(2) <= THIN);
            others.into_iter().for_each(|block| sweep(&from, &mut to, extents, block));
            // `Block::without` leaves two blocks at the two ends of the same rows.
            for group in thin.chunk_by(|a, b| a.low[..2] == b.low[..2] && a.high[..2] == b.high[..2]) {
                let depths: Vec<_> = group.iter().map(|block| block.low[2]..block.high[2]).collect();
                sweep_thin(&from, &mut to, group[0], &depths);
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), CommandError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        Ok(())
    }

    fn read(&self, level: usize, number: usize, visit: impl FnOnce(&[T])) -> Result<(), CommandError> {
        visit(&self.0[level][number].read()?);
        Ok(())
    }
}
