//! Where the temperature lies and who computes it: arrays of the host here, those of a GPU in [`super::device`].

use super::domain::Domain;
use super::stencil::{All, Block, Real, Still, THIN, sweep, sweep_thin};
use crate::error::CommandError;
use halocline::{Array, Communicator, Error, Field, HaloExchange, Pending};
use std::ops::Range;

/// Two time levels of each field on the block of one rank. A sweep reads one level and writes the other.
pub(super) trait Levels {
    /// Numbers that heat is computed in.
    type Real: Real;
    /// Whether calls only queue work, which is done when [`Levels::finish`] returns.
    const QUEUES: bool;

    fn fields(&self) -> usize;

    fn field(&self, level: usize, number: usize) -> &Field;

    /// Begins the exchange of a level.
    fn begin(&self, halo: &HaloExchange, level: usize) -> Result<Pending, CommandError>;

    /// All that is computed from now on comes after an exchange.
    fn wait(&mut self, pending: Pending) -> Result<(), CommandError>;

    /// Computes the cells that need no halo, from level `now`, of which an exchange may be in flight.
    fn interior(&self, domain: &Domain, now: usize) -> Result<(), CommandError>;

    /// Computes all cells of these boxes from level `now`.
    fn sweep(&self, domain: &Domain, now: usize, blocks: &[Block]) -> Result<(), CommandError>;

    /// Blocks until more can be queued.
    fn settle(&mut self) -> Result<(), CommandError>;

    /// Blocks until all that was begun is done.
    fn finish(&mut self) -> Result<(), CommandError>;

    /// Puts what was seen on the device into the trace, if that is watched; from now on it is not. After [`Levels::finish`].
    fn write_down(&mut self, _rank: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Shows all cells of a field as they are now.
    fn look(&self, level: usize, number: usize, see: impl FnOnce(&[Self::Real])) -> Result<(), CommandError>;
}

/// Arrays of the host, and its CPU.
pub(super) struct Host<T: Real>([Vec<Array<T>>; 2]);

impl<T: Real> Host<T> {
    /// The fields of these numbers at the start.
    pub(super) fn new(
        comm: &Communicator,
        domain: &Domain,
        fields: Range<u32>,
    ) -> Result<Self, CommandError> {
        let level = || -> Result<Vec<Array<T>>, CommandError> {
            let array = |field| -> Result<Array<T>, CommandError> {
                let array = Array::zeros(comm, &domain.extents)?;
                // Both levels: what lies beyond the grid is never written again.
                domain.fill(field, &mut array.write()?);
                Ok(array)
            };
            fields.clone().map(array).collect()
        };
        Ok(Self([level()?, level()?]))
    }

    /// The arrays of level `now`, each with that of the other level.
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
            // SAFETY: exchanges fill halo cells within the grid; these are owned cells of the domain of the
            // pattern that all arrays are bound with, or beyond the grid. Writing guards are taken of the
            // other level only, here and in `sweep`, until this level's turn comes after the wait.
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
            // Those that `Block::without` leaves at both ends of rows are of the same rows.
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

    fn look(&self, level: usize, number: usize, see: impl FnOnce(&[T])) -> Result<(), CommandError> {
        see(&self.0[level][number].read()?);
        Ok(())
    }
}
