//! Fields in device memory, and the kernels that fill and check them.
//!
//! A kind of device is a [`Rig`]: its devices, and [`Kernels`] for the fields of a [`DeviceFixture`].

use crate::numbers::mix;
use crate::ring::DeviceMemory;
use crate::{Outcome, Trouble, fail};
use halocline::device::Priority;
use halocline::device::sim::{Kernel, World};
use halocline::{
    BindOptions, Communicator, Decomposed, Device, DeviceArray, DeviceError, DomainShape, Element, Error,
    Failure, Field, Halo, HaloExchange, Layout, Pattern, RegularGrid, Stream,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The kernels of a kind of device for the fields of a [`DeviceFixture`].
pub trait Kernels {
    /// Writes the owned cells of a step.
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError>;

    /// Reads the owned cells, as interior work does while an exchange is in flight.
    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError>;

    /// Reads all cells; [`Rig::check`] or a report of the world shows wrong ones.
    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError>;
}

/// The devices of this process, for ranks that are threads or processes.
pub trait Rig: Kernels + Sized + Sync + 'static {
    /// Number of random cases of a kind.
    const SEEDS: u64;

    /// Deadline of exchanges of random programs, where time is real.
    const DEADLINE: Option<Duration>;

    /// The one of this process.
    fn get() -> Result<&'static Self, Trouble>;

    /// One device or more, with access to each other's memory.
    fn devices(&self) -> &[Device];

    /// Memory of a device, so many bytes of each kind that there is.
    fn memories(&self, device: &Device, bytes: usize) -> Result<Vec<DeviceMemory>, DeviceError>;

    /// Whether ranks reach memory of each other's devices only once they have mapped it.
    fn is_apart(&self, comm: &Communicator) -> bool {
        comm.transport() != "thread"
    }

    /// Fails if a finished kernel has found a wrong cell.
    fn check(&self) -> Outcome;

    /// Delays a stream by the time that a case needs.
    fn delay(&self, stream: &Stream) -> Result<(), DeviceError>;
}

/// One field of one domain, in memory of a device.
pub struct Piece {
    array: DeviceArray<u64>,
    field: Field,
    number: u64,
    shape: Shape,
    /// Numbers of the first axis's cells, of those that have a list, on the host and on the device.
    ids: Option<(Vec<u64>, DeviceArray<u64>)>,
    located: OnceLock<Located>,
}

/// Addresses of the cells, for kernels that access them one by one.
struct Located {
    /// Owned cells: address and bytes of each row.
    rows: Vec<(u64, usize)>,
    /// All cells that are owned or filled: address, global number, whether owned.
    cells: Vec<(u64, u64, bool)>,
}

/// Which cells of all those of a field a domain's array has.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    /// Those of a regular grid.
    Grid {
        /// Of the whole grid.
        extents: &'a [usize],
        /// Axes that are periodic.
        periodic: &'a [bool],
        /// Cells of the array before and behind the owned ones along each axis, at least, whatever its halo is.
        margin: usize,
    },
    /// Those that are listed, each with some levels.
    List {
        /// Owned cells first.
        ids: &'a [u64],
        /// Cells of all domains.
        cells: usize,
        /// Elements of a cell.
        levels: usize,
    },
}

/// Where the cells of an array lie, and which of the global grid they are, for kernels of GPUs to find out by themselves.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Address of the first cell.
    pub base: u64,
    /// Number of axes; those behind them are of one cell.
    pub axes: u64,
    /// Of the array.
    pub extents: [u64; AXES],
    /// Cells of the halo before the owned ones.
    pub low: [u64; AXES],
    /// Number of owned cells.
    pub owned: [u64; AXES],
    /// The first owned cell in the global grid.
    pub first: [i64; AXES],
    /// Of the global grid.
    pub global: [i64; AXES],
    /// A bit for each axis: 1 where the grid is periodic along it.
    pub periodic: u64,
    /// The field.
    pub number: u64,
    /// Address of the numbers of the first axis's cells, where they are listed; else 0.
    pub ids: u64,
}

/// The most axes of a [`Shape`].
pub const AXES: usize = 3;

/// What a cell holds after a step.
fn value(step: u64, field: u64, cell: u64) -> u64 {
    mix(step ^ mix(field ^ mix(cell)))
}

impl Shape {
    /// The shape of a domain's array, without addresses, and the array's layout.
    fn new(domain: &DomainShape, numbers: Numbers<'_>, number: u64) -> Result<(Self, Layout), Trouble> {
        let mut this = Self { number, ..Self::default() };
        let mut put = |axis: usize, low: usize, owned: usize, high: usize| {
            this.axes = axis as u64 + 1;
            (this.extents[axis], this.low[axis]) = ((low + owned + high) as u64, low as u64);
            this.owned[axis] = owned as u64;
        };
        match (domain, numbers) {
            (DomainShape::Regular { first, owned, halo }, Numbers::Grid { extents, periodic, margin }) => {
                if owned.len() > AXES {
                    fail!("{} axes, the most are {AXES}", owned.len());
                }
                for axis in 0..owned.len() {
                    put(axis, halo[axis].0.max(margin), owned[axis], halo[axis].1.max(margin));
                }
                for axis in 0..owned.len() {
                    (this.first[axis], this.global[axis]) = (first[axis], extents[axis] as i64);
                    this.periodic |= u64::from(periodic[axis]) << axis;
                }
            }
            (DomainShape::Unstructured { owned, cells, .. }, Numbers::List { levels, cells: all, .. }) => {
                put(0, 0, *owned, *cells - *owned);
                put(1, 0, levels, 0);
                this.global = [all as i64, levels as i64, 0];
            }
            _ => fail!("a pattern and its numbers are of two kinds"),
        }
        let of =
            |values: &[u64]| values.iter().take(this.axes as usize).map(|&n| n as usize).collect::<Vec<_>>();
        let layout = Layout::c_order(u64::TYPE, &of(&this.extents))?;
        let layout = match numbers {
            Numbers::Grid { .. } => layout.with_origin(&of(&this.low)),
            Numbers::List { .. } => layout,
        };
        Ok((this, layout))
    }

    /// The global number of a cell of the array, whether it is one of the grid's, whether it is owned; as `locate` of the kernels.
    fn locate(&self, ids: Option<&[u64]>, cell: u64) -> (u64, bool, bool) {
        let (mut rest, mut id, mut scale, mut is_there, mut is_owned) = (cell, 0, 1, true, true);
        for axis in (0..self.axes as usize).rev() {
            let at = (rest % self.extents[axis]) as i64 - self.low[axis] as i64;
            rest /= self.extents[axis];
            let global = match ids {
                Some(ids) if axis == 0 => ids[at as usize] as i64,
                _ => self.first[axis] + at,
            };
            is_there &= self.periodic >> axis & 1 == 1 || (0..self.global[axis]).contains(&global);
            id += scale * global.rem_euclid(self.global[axis]) as u64;
            scale *= self.global[axis] as u64;
            is_owned &= (0..self.owned[axis] as i64).contains(&at);
        }
        (id, is_there, is_owned)
    }
}

impl Piece {
    /// Field `number` of a domain.
    pub fn new(
        device: &Device,
        (domain, shape): (u64, &DomainShape),
        numbers: Numbers<'_>,
        number: u64,
    ) -> Result<Self, Trouble> {
        let (mut shape, layout) = Shape::new(shape, numbers, number)?;
        let array = DeviceArray::with_layout(device, layout)?;
        shape.base = array.base().addr().get() as u64;
        let ids = match numbers {
            Numbers::Grid { .. } => None,
            Numbers::List { ids, .. } => {
                let there = DeviceArray::zeros(device, &[ids.len()])?;
                there.write(&device.stream(Priority::Normal)?, ids)?;
                shape.ids = there.base().addr().get() as u64;
                Some((ids.to_vec(), there))
            }
        };
        let field = array.on_domain(domain);
        Ok(Self { array, field, number, shape, ids, located: OnceLock::new() })
    }

    fn located(&self) -> &Located {
        self.located.get_or_init(|| {
            let (mut rows, mut cells): (Vec<(u64, usize)>, _) = (Vec::new(), Vec::new());
            let ids = self.ids.as_ref().map(|(ids, _)| &ids[..]);
            let count: u64 = self.shape.extents.iter().take(self.shape.axes as usize).product();
            for number in 0..count {
                let (id, is_there, is_owned) = self.shape.locate(ids, number);
                let address = self.shape.base + 8 * number;
                if is_there {
                    cells.push((address, id, is_owned));
                }
                match rows.last_mut() {
                    Some((start, bytes)) if is_owned && *start + *bytes as u64 == address => *bytes += 8,
                    _ if is_owned => rows.push((address, 8)),
                    _ => {}
                }
            }
            Located { rows, cells }
        })
    }

    /// Where its cells lie.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// To be bound.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The array.
    pub fn array(&self) -> &DeviceArray<u64> {
        &self.array
    }
}

impl Kernels for World {
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let kernel = |kernel: Kernel, &(address, bytes): &(u64, usize)| kernel.writes(address, bytes);
        let kernel = piece.located().rows.iter().fold(Kernel::new("produce"), kernel);
        let number = piece.number;
        let owned: Vec<(u64, u64)> = piece
            .located()
            .cells
            .iter()
            .filter(|(.., owned)| *owned)
            .map(|&(address, id, _)| (address, id))
            .collect();
        self.launch(
            stream,
            kernel.body(move |memory| {
                owned.iter().for_each(|&(address, id)| memory.write(address, value(step, number, id)));
            }),
        )
    }

    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError> {
        let kernel = |kernel: Kernel, &(address, bytes): &(u64, usize)| kernel.reads(address, bytes);
        self.launch(stream, piece.located().rows.iter().fold(Kernel::new("interior"), kernel))
    }

    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let cells = piece.located().cells.clone();
        let (first, last) = (cells[0].0, cells[cells.len() - 1].0);
        let kernel = Kernel::new("consume").reads(first, (last - first) as usize + 8);
        let number = piece.number;
        self.launch(
            stream,
            kernel.body(move |memory| {
                for &(address, id, is_owned) in &cells {
                    let what = if is_owned { "owned" } else { "halo" };
                    let found = memory.read(address);
                    assert_eq!(
                        found,
                        value(step, number, id),
                        "step {step}: {what} cell {id} at {address:#x}"
                    );
                }
            }),
        )
    }
}

/// A grid with the pieces of one rank.
pub struct DeviceFixture {
    /// The pattern.
    pub pattern: Pattern,
    /// The pieces: for each field, one for each domain.
    pub pieces: Vec<Vec<Piece>>,
}

impl DeviceFixture {
    /// A periodic grid with `fields` fields, of which each rank owns so many domains; `place` gives the device of a domain,
    /// counted within its rank. Collective.
    pub fn new<'a>(
        comm: &Communicator,
        extents: &[usize],
        (domains, width, fields): (usize, usize, u64),
        place: impl FnMut(usize) -> &'a Device,
    ) -> Result<Self, Trouble> {
        let grid = RegularGrid::new(extents).periodic(vec![true; extents.len()]).domains_per_rank(domains);
        let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(width))?;
        let periodic = vec![true; extents.len()];
        Self::of(pattern, Numbers::Grid { extents, periodic: &periodic, margin: 0 }, fields, place)
    }

    /// A line with closed ends, whose domains have a halo at the low end alone: data go one way. Collective.
    pub fn one_way(
        comm: &Communicator,
        extent: usize,
        fields: u64,
        device: &Device,
    ) -> Result<Self, Trouble> {
        let pattern =
            RegularGrid::new([extent]).decompose(comm.size())?.pattern(comm, Halo::per_axis([(1, 0)]))?;
        let numbers = Numbers::Grid { extents: &[extent], periodic: &[false], margin: 0 };
        Self::of(pattern, numbers, fields, |_| device)
    }

    /// The pieces of a pattern's domains on this rank; of numbers that are listed there is one domain.
    pub fn of<'a>(
        pattern: Pattern,
        numbers: Numbers<'_>,
        fields: u64,
        mut place: impl FnMut(usize) -> &'a Device,
    ) -> Result<Self, Trouble> {
        let mut pieces = Vec::new();
        for number in 0..fields {
            let of_domains = pattern.plan().domains.iter().enumerate();
            pieces.push(
                of_domains
                    .map(|(at, (domain, shape))| Piece::new(place(at), (*domain, shape), numbers, number))
                    .collect::<Result<_, _>>()?,
            );
        }
        Ok(Self { pattern, pieces })
    }

    /// Binds sets of fields, given by their numbers. Collective.
    pub fn bind(
        &self,
        comm: &Communicator,
        sets: &[&[usize]],
        options: &BindOptions,
    ) -> Result<HaloExchange, halocline::Error> {
        let of_set = |set: &&[usize]| -> Vec<(&Pattern, &Field)> {
            let pieces = set.iter().flat_map(|&number| &self.pieces[number]);
            pieces.map(|piece| (&self.pattern, piece.field())).collect()
        };
        let sets: Vec<Vec<(&Pattern, &Field)>> = sets.iter().map(of_set).collect();
        let sets: Vec<&[(&Pattern, &Field)]> = sets.iter().map(Vec::as_slice).collect();
        HaloExchange::bind_alternatives(comm, &sets, options)
    }

    /// All pieces of some fields.
    pub fn pieces(&self, fields: &[usize]) -> impl Iterator<Item = &Piece> {
        fields.iter().flat_map(|&number| &self.pieces[number])
    }

    /// [`Kernels::produce`] of all pieces of some fields.
    pub fn produce(&self, on: &impl Kernels, fields: &[usize], stream: &Stream, step: u64) -> Outcome {
        Ok(self.pieces(fields).try_for_each(|piece| on.produce(piece, stream, step))?)
    }

    /// [`Kernels::consume`] of all pieces of some fields.
    pub fn consume(&self, on: &impl Kernels, fields: &[usize], stream: &Stream, step: u64) -> Outcome {
        Ok(self.pieces(fields).try_for_each(|piece| on.consume(piece, stream, step))?)
    }
}

/// All devices of a world, with access to each other's memory.
pub fn devices(world: &World, count: u32) -> Result<Vec<Device>, DeviceError> {
    let devices: Vec<Device> = (0..count).map(|number| world.device(number)).collect::<Result<_, _>>()?;
    for device in &devices {
        devices
            .iter()
            .filter(|peer| peer.ordinal() != device.ordinal())
            .try_for_each(|peer| device.enable_peer(peer))?;
    }
    Ok(devices)
}

/// Schedules exchanges until the object fails, and returns the failure.
pub fn until_failure(halo: &HaloExchange, stream: &Stream) -> Result<Arc<Failure>, Trouble> {
    let mut last = 0;
    loop {
        match halo.schedule_exchange(&[stream]).and_then(|pending| pending.wait().map(|()| pending.epoch())) {
            Ok(epoch) => last = epoch,
            Err(Error::Failed(failure)) if failure.epoch <= last => {
                fail!("exchange {last} has ended well: {failure}");
            }
            Err(Error::Failed(failure)) => return Ok(failure),
            Err(error) => return Err(error.into()),
        }
    }
}
