//! The temperature in the memory of a GPU, computed on one stream. The host queues launches and exchanges, and waits for neither.

use super::domain::Domain;
use super::kernels::Kernels;
use super::levels::Levels;
use super::stencil::{Block, Real};
use crate::device::{Gpu, InFlight};
use crate::error::CommandError;
use halocline::device::{Address, Stream};
use halocline::{DeviceArray, DeviceError, Error, Field, HaloExchange, Pending};
use halocline_trace::device::{Moment, OPERATIONS, Stamps};
use std::ops::Range;
use std::sync::Arc;

/// The sweep kernels of a device.
pub(super) trait Sweeper {
    /// Queues the computation of all cells of these boxes (at least one cell) on a stream. It reads level `now` of each field and
    /// writes the other level.
    fn sweep(&self, stream: &Stream, now: usize, blocks: &[Block]) -> Result<(), DeviceError>;
}

/// Arrays in device memory.
pub(super) struct OnDevice<T: Real, S> {
    stream: Arc<Stream>,
    levels: [Vec<DeviceArray<T>>; 2],
    sweeper: S,
    in_flight: InFlight,
    /// Present if the user asked for a trace.
    stamps: Option<Stamps>,
}

impl<T: Real> OnDevice<T, Kernels> {
    /// The fields with these numbers in their initial state, on a GPU. Blocks until they are copied. `width`: steps from one exchange to
    /// the next. `traced`: the number of rounds to record for the trace.
    pub(super) fn new(
        gpu: Gpu,
        domain: &Domain,
        fields: Range<u32>,
        width: usize,
        traced: Option<usize>,
    ) -> Result<Self, Error> {
        let make = |stream: &Stream, levels: &[Vec<DeviceArray<T>>; 2]| {
            Kernels::load::<T>(stream, domain.extents, &addresses(levels))
        };
        let stamps = traced.map(|rounds| Stamps::on_gpu(&gpu.stream, rounds)).transpose()?;
        Self::with(gpu.stream, domain, fields, (width, stamps), make)
    }
}

/// The address of element (0, 0, 0) of each array of each level.
pub(super) fn addresses<T: Real>(levels: &[Vec<DeviceArray<T>>; 2]) -> [Vec<Address>; 2] {
    [0, 1]
        .map(|level: usize| levels[level].iter().map(|array| array.base().addr().get() as Address).collect())
}

impl<T: Real, S: Sweeper> OnDevice<T, S> {
    /// As [`OnDevice::new`], with the sweeper that `make` returns.
    pub(super) fn with(
        stream: Stream,
        domain: &Domain,
        fields: Range<u32>,
        (width, stamps): (usize, Option<Stamps>),
        make: impl FnOnce(&Stream, &[Vec<DeviceArray<T>>; 2]) -> Result<S, Error>,
    ) -> Result<Self, Error> {
        let mut start = vec![T::nearest(0.0); domain.extents.iter().product()];
        let mut levels = [Vec::new(), Vec::new()];
        for field in fields {
            domain.fill(field, &mut start);
            for level in &mut levels {
                let array = DeviceArray::zeros(stream.device(), &domain.extents)?;
                array.write(&stream, &start)?;
                level.push(array);
            }
        }
        let sweeper = make(&stream, &levels)?;
        let launches = width + 1 + stamps.as_ref().map_or(0, |_| OPERATIONS);
        Ok(Self { stream: Arc::new(stream), levels, sweeper, in_flight: InFlight::new(launches), stamps })
    }

    fn stamp(&self, moment: Moment) -> Result<(), Error> {
        self.stamps.as_ref().map_or(Ok(()), |stamps| stamps.at(moment, &self.stream))
    }

    #[cfg(test)]
    pub(super) fn stamped(&self) -> Result<Vec<[u64; 5]>, Error> {
        let rounds = self.stamps.as_ref().map_or(Ok(Vec::new()), |stamps| stamps.read(&self.stream))?;
        Ok(rounds.into_iter().map(|round| round.stamps).collect())
    }
}

impl<T: Real, S: Sweeper> Levels for OnDevice<T, S> {
    type Real = T;
    const QUEUES: bool = true;

    fn fields(&self) -> usize {
        self.levels[0].len()
    }

    fn field(&self, level: usize, number: usize) -> &Field {
        &self.levels[level][number]
    }

    fn begin(&self, halo: &HaloExchange, level: usize) -> Result<Pending, CommandError> {
        self.stamp(Moment::Begun)?;
        let pending = halo.begin().set(level).after(&[&self.stream]).schedule()?;
        self.stamps.as_ref().map_or(Ok(()), |stamps| stamps.observe(&pending))?;
        Ok(pending)
    }

    fn wait(&mut self, pending: Pending) -> Result<(), CommandError> {
        pending.schedule_wait(&self.stream)?;
        // The graph waits for its own exchanges.
        if !pending.is_captured() {
            self.in_flight.add(pending);
        }
        Ok(self.stamp(Moment::Waited)?)
    }

    fn interior(&self, domain: &Domain, now: usize) -> Result<(), CommandError> {
        self.sweep(domain, now, &[domain.interior()])?;
        Ok(self.stamp(Moment::Interior)?)
    }

    fn sweep(&self, _: &Domain, now: usize, blocks: &[Block]) -> Result<(), CommandError> {
        if blocks.iter().all(|block| block.cells() == 0) {
            return Ok(());
        }
        Ok(self.sweeper.sweep(&self.stream, now, blocks).map_err(Error::from)?)
    }

    fn settle(&mut self) -> Result<(), CommandError> {
        if let Some(stamps) = &mut self.stamps {
            stamps.next(&self.stream)?;
        }
        Ok(self.in_flight.settle()?)
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        // If a peer fails, this returns an error; the stream would wait forever.
        self.in_flight.finish()?;
        Ok(self.stream.synchronise().map_err(Error::from)?)
    }

    fn stream(&self) -> Option<Arc<Stream>> {
        Some(Arc::clone(&self.stream))
    }

    fn write_trace(&mut self, rank: usize) -> Result<(), Error> {
        self.stamps.take().map_or(Ok(()), |stamps| stamps.write_trace(rank, &self.stream))
    }

    fn read(&self, level: usize, number: usize, visit: impl FnOnce(&[T])) -> Result<(), CommandError> {
        visit(&self.levels[level][number].read(&self.stream)?);
        Ok(())
    }
}

impl<T: Real, S> Drop for OnDevice<T, S> {
    fn drop(&mut self) {
        // No memory is freed under a running kernel, also after an error. An earlier call has reported a failed device.
        let _ = self.stream.synchronise();
    }
}
