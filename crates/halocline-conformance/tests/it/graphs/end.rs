//! A rank whose fields are filled, exchanged and checked by kernels on a stream, so that graphs can hold these steps.

use halocline::device::sim::{Kernel, World};
use halocline::device::{Address, Graph, Priority};
use halocline::{
    BindOptions, Communicator, Cut, Decomposed, Device, DeviceArray, Error, Field, HaloExchange, Pattern,
    RegularGrid, Stream, TestOptions,
};
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::numbers::mix;
use halocline_conformance::{Outcome, Trouble};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Owned cells of a rank, between two halo cells.
pub(super) const OWNED: usize = 3;

#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) options: fn(BindOptions) -> BindOptions,
    pub(crate) inline: bool,
    pub(crate) cut: Option<Cut>,
}

pub(crate) const PUSH: Setting = Setting { options: |options| options, inline: true, cut: None };

/// One rank of a periodic line, on a device of its own, with some sets of one field each.
pub(crate) struct End {
    pub(super) world: World,
    pub(crate) device: Device,
    pub(crate) stream: Stream,
    rank: u64,
    cells: u64,
    pub(crate) pattern: Pattern,
    pub(crate) fields: Vec<DeviceArray<u64>>,
    /// The exchanges for which fields were filled, and those after which they were checked.
    pub(super) filled: Arc<AtomicU64>,
    pub(crate) checked: Arc<AtomicU64>,
}

pub(super) fn value(step: u64, cell: u64) -> u64 {
    mix(step ^ mix(cell))
}

impl End {
    pub(crate) fn new(world: &World, comm: &Communicator, fields: usize) -> Result<Self, Trouble> {
        Self::on(&devices(world, 2)?[comm.rank()], world, comm, fields)
    }

    /// On this device.
    pub(crate) fn on(
        device: &Device,
        world: &World,
        comm: &Communicator,
        fields: usize,
    ) -> Result<Self, Trouble> {
        let cells = OWNED * comm.size();
        let pattern = RegularGrid::new([cells]).periodic([true]).decompose(comm.size())?.pattern(comm, 1)?;
        let fields = (0..fields).map(|_| DeviceArray::zeros(device, &[OWNED + 2]));
        Ok(Self {
            world: world.clone(),
            stream: device.stream(Priority::Normal)?,
            fields: fields.collect::<Result<_, _>>()?,
            device: device.clone(),
            rank: comm.rank() as u64,
            cells: cells as u64,
            pattern,
            filled: Arc::default(),
            checked: Arc::default(),
        })
    }

    /// Binds each field as a set of its own.
    pub(super) fn bind(&self, comm: &Communicator, setting: Setting) -> Result<HaloExchange, Error> {
        self.bind_some(comm, setting, 0..self.fields.len())
    }

    pub(super) fn bind_some(
        &self,
        comm: &Communicator,
        setting: Setting,
        fields: Range<usize>,
    ) -> Result<HaloExchange, Error> {
        let sets: Vec<[(&Pattern, &Field); 1]> =
            self.fields[fields].iter().map(|field| [(&self.pattern, &**field)]).collect();
        let options = (setting.options)(BindOptions::default().inline(setting.inline));
        let options = options.for_tests(TestOptions { cut: setting.cut, ..TestOptions::default() });
        HaloExchange::bind_alternatives(comm, &sets, &options)
    }

    /// The global cell at a place of the array.
    pub(super) fn cell(&self, at: usize) -> u64 {
        (self.rank * OWNED as u64 + self.cells + at as u64 - 1) % self.cells
    }

    fn at(&self, field: usize, at: usize) -> Address {
        self.fields[field].address() + 8 * at as Address
    }

    /// Gives a stream new values of the owned cells. In a graph they are new at each launch.
    pub(crate) fn fill(&self, field: usize, stream: &Stream) -> Outcome {
        self.fill_by(field, stream, 1)
    }

    /// Fills a field with the values of the same step as the next one.
    pub(super) fn fill_again(&self, field: usize, stream: &Stream) -> Outcome {
        self.fill_by(field, stream, 0)
    }

    fn fill_by(&self, field: usize, stream: &Stream, steps: u64) -> Outcome {
        let owned: Vec<(Address, u64)> = (1..=OWNED).map(|at| (self.at(field, at), self.cell(at))).collect();
        let filled = Arc::clone(&self.filled);
        let kernel = Kernel::new("fill").writes(self.at(field, 1), 8 * OWNED).body(move |memory| {
            let step = filled.fetch_add(steps, Ordering::Relaxed);
            owned.iter().for_each(|&(at, cell)| memory.write(at, value(step, cell)));
        });
        Ok(self.world.launch(stream, kernel)?)
    }

    /// Gives a stream a check of all cells.
    pub(crate) fn check(&self, field: usize, stream: &Stream) -> Outcome {
        self.check_by(field, stream, 1)
    }

    /// Checks a field for the values of the same step as the next one.
    pub(super) fn check_again(&self, field: usize, stream: &Stream) -> Outcome {
        self.check_by(field, stream, 0)
    }

    fn check_by(&self, field: usize, stream: &Stream, steps: u64) -> Outcome {
        let all: Vec<(Address, u64)> = (0..OWNED + 2).map(|at| (self.at(field, at), self.cell(at))).collect();
        let checked = Arc::clone(&self.checked);
        let kernel = Kernel::new("check").reads(self.at(field, 0), 8 * (OWNED + 2)).body(move |memory| {
            let step = checked.fetch_add(steps, Ordering::Relaxed);
            for &(at, cell) in &all {
                assert_eq!(memory.read(at), value(step, cell), "step {step}, cell {cell}");
            }
        });
        Ok(self.world.launch(stream, kernel)?)
    }

    /// Fill, exchange, check.
    pub(super) fn step(&self, halo: &HaloExchange, set: usize) -> Outcome {
        self.fill(set, &self.stream)?;
        halo.begin().set(set).after(&[&self.stream]).schedule()?.schedule_wait(&self.stream)?;
        self.check(set, &self.stream)
    }

    pub(crate) fn capture(&self, work: impl FnOnce() -> Outcome) -> Result<Graph, Trouble> {
        // SAFETY: the simulated device finds memory that is freed before the last launch is over.
        unsafe { self.stream.capture_graph(work) }
    }
}
