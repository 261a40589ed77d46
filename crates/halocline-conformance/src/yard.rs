//! Fields in memory of simulated devices, and the kernels that fill and check them.

use crate::numbers::mix;
use crate::{Outcome, Trouble};
use halocline::device::sim::{Kernel, World};
use halocline::{
    BindOptions, Communicator, Decomposed, Device, DeviceArray, DeviceError, DomainShape, Error, Failure,
    Field, Halo, HaloExchange, Pattern, RegularGrid, Stream,
};
use std::sync::Arc;

/// One field of one domain, in memory of a device.
pub struct Piece {
    array: DeviceArray<u64>,
    field: Field,
    number: u64,
    /// Owned cells: address and bytes of each row.
    rows: Vec<(u64, usize)>,
    /// All cells that are owned or filled: address, global number, whether owned.
    cells: Vec<(u64, u64, bool)>,
}

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
        let field = array.on_domain(domain);
        Ok(Self { array, field, number, rows, cells })
    }

    /// To be bound.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The array.
    pub fn array(&self) -> &DeviceArray<u64> {
        &self.array
    }

    /// Gives a stream a kernel that writes the owned cells of a step.
    pub fn produce(&self, world: &World, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let kernel = |kernel: Kernel, &(address, bytes): &(u64, usize)| kernel.writes(address, bytes);
        let kernel = self.rows.iter().fold(Kernel::new("produce"), kernel);
        let number = self.number;
        let owned: Vec<(u64, u64)> =
            self.cells.iter().filter(|(.., owned)| *owned).map(|&(address, id, _)| (address, id)).collect();
        world.launch(
            stream,
            kernel.body(move |memory| {
                owned.iter().for_each(|&(address, id)| memory.write(address, value(step, number, id)));
            }),
        )
    }

    /// Gives a stream a kernel that reads the owned cells, as interior work does while an exchange is in flight.
    pub fn read_owned(&self, world: &World, stream: &Stream) -> Result<(), DeviceError> {
        let kernel = |kernel: Kernel, &(address, bytes): &(u64, usize)| kernel.reads(address, bytes);
        world.launch(stream, self.rows.iter().fold(Kernel::new("interior"), kernel))
    }

    /// Gives a stream a kernel that reads all cells and finds a report if one is not what its owner wrote.
    pub fn consume(&self, world: &World, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let (first, last) = (self.cells[0].0, self.cells[self.cells.len() - 1].0);
        let kernel = Kernel::new("consume").reads(first, (last - first) as usize + 8);
        let (cells, number) = (self.cells.clone(), self.number);
        world.launch(
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

    /// [`Piece::produce`] of all pieces of some fields.
    pub fn produce(&self, world: &World, fields: &[usize], stream: &Stream, step: u64) -> Outcome {
        let pieces = fields.iter().flat_map(|&number| &self.pieces[number]);
        Ok(pieces.into_iter().try_for_each(|piece| piece.produce(world, stream, step))?)
    }

    /// [`Piece::consume`] of all pieces of some fields.
    pub fn consume(&self, world: &World, fields: &[usize], stream: &Stream, step: u64) -> Outcome {
        let pieces = fields.iter().flat_map(|&number| &self.pieces[number]);
        Ok(pieces.into_iter().try_for_each(|piece| piece.consume(world, stream, step))?)
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
