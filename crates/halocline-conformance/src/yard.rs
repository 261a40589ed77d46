//! Fields in memory of devices, and the kernels that fill and check them.
//!
//! A kind of device is a [`Rig`]: its devices, and [`Kernels`] for the fields of a [`Yard`].

use crate::numbers::mix;
use crate::ring::Given;
use crate::{Outcome, Trouble};
use halocline::device::sim::{Kernel, World};
use halocline::{
    BindOptions, Communicator, Decomposed, Device, DeviceArray, DeviceError, DomainShape, Error, Failure,
    Field, Halo, HaloExchange, Pattern, RegularGrid, Stream,
};
use std::sync::Arc;

/// What a kind of device does with the fields of a [`Yard`]: work that streams are given.
pub trait Kernels {
    /// Writes the owned cells of a step.
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError>;

    /// Reads the owned cells, as interior work does while an exchange is in flight.
    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError>;

    /// Reads all cells; one that is not what its owner wrote is found by [`Rig::check`], or is a report of the world.
    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError>;
}

/// The devices of this process, on which cases run whatever its ranks are.
pub trait Rig: Kernels + Sized + Sync + 'static {
    /// How many random cases of a kind are worth their time here.
    const SEEDS: u64;

    /// The one of this process.
    fn get() -> Result<&'static Self, Trouble>;

    /// One device or more, with access to each other's memory.
    fn devices(&self) -> &[Device];

    /// Memory of a device, so many bytes of each kind that there is.
    fn given(&self, device: &Device, bytes: usize) -> Result<Vec<Given>, DeviceError>;

    /// Whether ranks reach memory of each other's devices only once they have mapped it.
    fn is_apart(&self, comm: &Communicator) -> bool {
        comm.transport() != "thread"
    }

    /// Fails if a kernel that is over has found anything wrong.
    fn check(&self) -> Outcome;

    /// Takes away from a stream as much time as a case is to be tried with.
    fn delay(&self, stream: &Stream) -> Result<(), DeviceError>;
}

/// One field of one domain, in memory of a device.
pub struct Piece {
    array: DeviceArray<u64>,
    field: Field,
    number: u64,
    /// Owned cells: address and bytes of each row.
    rows: Vec<(u64, usize)>,
    /// All cells that are owned or filled: address, global number, whether owned.
    cells: Vec<(u64, u64, bool)>,
    shape: Shape,
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
    /// 1 where the grid is periodic, in all directions.
    pub periodic: u64,
    /// The field.
    pub number: u64,
}

/// Axes that a [`Shape`] has room for.
pub const AXES: usize = 3;

/// What a cell holds after a step.
fn value(step: u64, field: u64, cell: u64) -> u64 {
    mix(step ^ mix(field ^ mix(cell)))
}

impl Piece {
    /// Field `number` of a domain of a grid with these extents, periodic in all directions or in none.
    pub fn new(
        device: &Device,
        (domain, shape): (u64, &DomainShape),
        (extents, periodic): (&[usize], bool),
        number: u64,
    ) -> Result<Self, Trouble> {
        let DomainShape::Regular { first, owned, halo } = shape else {
            return Err(Trouble::new("a regular pattern has an unstructured domain"));
        };
        let array = DeviceArray::zeros(device, &shape.extents())?;
        let base = array.base().addr().get() as u64;
        let dims = shape.extents();
        let count: usize = dims.iter().product();
        let (mut rows, mut cells): (Vec<(u64, usize)>, _) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (mut rest, mut id, mut scale, mut is_owned, mut is_there) = (number, 0, 1, true, true);
            for axis in (0..dims.len()).rev() {
                let at = (rest % dims[axis]) as i64 - halo[axis].0 as i64;
                rest /= dims[axis];
                is_there &= periodic || (0..extents[axis] as i64).contains(&(first[axis] + at));
                id += scale * (first[axis] + at).rem_euclid(extents[axis] as i64) as u64;
                scale *= extents[axis] as u64;
                is_owned &= (0..owned[axis] as i64).contains(&at);
            }
            let address = base + 8 * number as u64;
            if is_there {
                cells.push((address, id, is_owned));
            }
            match rows.last_mut() {
                Some((start, bytes)) if is_owned && *start + *bytes as u64 == address => *bytes += 8,
                _ if is_owned => rows.push((address, 8)),
                _ => {}
            }
        }
        if dims.len() > AXES {
            return Err(Trouble::new(format!("{} axes, there is room for {AXES}", dims.len())));
        }
        let mut geometry =
            Shape { base, axes: dims.len() as u64, periodic: periodic.into(), number, ..Shape::default() };
        for axis in 0..dims.len() {
            geometry.extents[axis] = dims[axis] as u64;
            geometry.low[axis] = halo[axis].0 as u64;
            geometry.owned[axis] = owned[axis] as u64;
            geometry.first[axis] = first[axis];
            geometry.global[axis] = extents[axis] as i64;
        }
        let field = array.on_domain(domain);
        Ok(Self { array, field, number, rows, cells, shape: geometry })
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
        let kernel = piece.rows.iter().fold(Kernel::new("produce"), kernel);
        let number = piece.number;
        let owned: Vec<(u64, u64)> =
            piece.cells.iter().filter(|(.., owned)| *owned).map(|&(address, id, _)| (address, id)).collect();
        self.launch(
            stream,
            kernel.body(move |memory| {
                owned.iter().for_each(|&(address, id)| memory.write(address, value(step, number, id)));
            }),
        )
    }

    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError> {
        let kernel = |kernel: Kernel, &(address, bytes): &(u64, usize)| kernel.reads(address, bytes);
        self.launch(stream, piece.rows.iter().fold(Kernel::new("interior"), kernel))
    }

    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let (first, last) = (piece.cells[0].0, piece.cells[piece.cells.len() - 1].0);
        let kernel = Kernel::new("consume").reads(first, (last - first) as usize + 8);
        let (cells, number) = (piece.cells.clone(), piece.number);
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
pub struct Yard {
    /// The pattern.
    pub pattern: Pattern,
    /// The pieces: for each field, one for each domain.
    pub pieces: Vec<Vec<Piece>>,
}

impl Yard {
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
        Self::of(pattern, (extents, true), fields, place)
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
        Self::of(pattern, (&[extent], false), fields, |_| device)
    }

    fn of<'a>(
        pattern: Pattern,
        grid: (&[usize], bool),
        fields: u64,
        mut place: impl FnMut(usize) -> &'a Device,
    ) -> Result<Self, Trouble> {
        let mut pieces = Vec::new();
        for number in 0..fields {
            let of_domains = pattern.plan().domains.iter().enumerate();
            pieces.push(
                of_domains
                    .map(|(at, (domain, shape))| Piece::new(place(at), (*domain, shape), grid, number))
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

/// Schedules exchanges one after the other until the object fails, as it must.
pub fn until_failure(halo: &HaloExchange, stream: &Stream) -> Result<Arc<Failure>, Trouble> {
    loop {
        match halo.schedule_exchange(&[stream]).and_then(|pending| pending.wait()) {
            Ok(()) => {}
            Err(Error::Failed(failure)) => return Ok(failure),
            Err(error) => return Err(error.into()),
        }
    }
}
