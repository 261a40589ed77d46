//! Programs without `unsafe` that write and read device arrays while exchanges are in flight. Each access is refused or ordered, so a
//! simulated device never reports a race.

use halocline::device::Priority;
use halocline::device::sim::{World, explore};
use halocline::{
    ArrayError, BindOptions, Communicator, Decomposed, Device, DeviceArray, ElementType, Error, Field, Halo,
    HaloExchange, Layout, LinkChoice, Pending, Redistribute, RegularGrid, Stream,
};
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::sync::Arc;

const OWNED: usize = 4;
const ALL: usize = OWNED + 2;
const LINKS: [LinkChoice; 6] = [
    LinkChoice::Push,
    LinkChoice::Pull,
    LinkChoice::DeviceMailbox,
    LinkChoice::Mailbox,
    LinkChoice::Message,
    LinkChoice::Nccl,
];

/// One domain of a ring on a device, with an object that exchanges it and two streams.
struct Part {
    array: DeviceArray<u64>,
    halo: HaloExchange,
    streams: [Stream; 2],
}

impl Part {
    fn new(comm: &Communicator, device: &Device, link: LinkChoice) -> Result<Self, Trouble> {
        let grid = RegularGrid::new([OWNED * comm.size()]).periodic([true]);
        let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))?;
        let array = DeviceArray::zeros(device, &[ALL])?;
        let options = BindOptions::default().link(link);
        let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
        let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
        Ok(Self { array, halo, streams })
    }

    fn refused(&self) -> Outcome {
        for stream in &self.streams {
            match (self.array.write(stream, &[7; ALL]), self.array.read(stream)) {
                (Err(Error::Array(ArrayError::InFlight)), Err(Error::Array(ArrayError::InFlight))) => {}
                other => fail!("copies of an array in flight: {other:?}"),
            }
        }
        Ok(())
    }
}

/// Rank 0 copies while its exchange waits for rank 1, which has not begun.
fn beside_an_exchange(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = world.device(comm.rank() as u32)?;
    let part = Part::new(comm, &device, link)?;
    let [stream, other] = &part.streams;
    let value = |rank: usize| 10 + rank as u64;
    part.array.write(stream, &[value(comm.rank()); ALL])?;
    comm.barrier()?;
    let pending = match comm.rank() {
        0 => {
            let pending = part.halo.exchange()?;
            part.refused()?;
            comm.barrier()?;
            pending
        }
        _ => {
            comm.barrier()?;
            part.halo.exchange()?
        }
    };
    // An exchange that a stream waits for is over once the array is copied in its order.
    pending.schedule_wait(stream)?;
    let cells = part.array.read(stream)?;
    let (own, theirs) = (value(comm.rank()), value(1 - comm.rank()));
    ensure!(cells == [theirs, own, own, own, own, theirs], "the halo is not there: {cells:?}");
    part.array.write(other, &[5; ALL])?;
    pending.wait()?;
    comm.barrier()?;
    Ok(())
}

#[test]
fn copies_beside_an_exchange_are_refused() {
    for link in LINKS {
        explore(0..20, &options(), |world| {
            run_ranks(world, 2, |comm| beside_an_exchange(world, comm, link));
        });
    }
}

/// One thread copies, another begins exchanges, both without a look at the other.
fn two_threads(world: &World, comm: &Communicator) -> Outcome {
    let device = world.device(0)?;
    let part = Arc::new(Part::new(comm, &device, LinkChoice::Auto)?);
    let copies = Arc::clone(&part);
    let copying = world.spawn("copies".to_owned(), move || {
        for round in 0..4 {
            match copies.array.write(&copies.streams[0], &[round; ALL]) {
                Ok(()) | Err(Error::Array(ArrayError::InFlight)) => {}
                other => panic!("a copy beside exchanges: {other:?}"),
            }
            match copies.array.read(&copies.streams[0]).map(|cells| cells.len()) {
                Ok(ALL) | Err(Error::Array(ArrayError::InFlight)) => {}
                other => panic!("a copy beside exchanges: {other:?}"),
            }
        }
    })?;
    for _ in 0..4 {
        match part.halo.exchange() {
            Ok(pending) => pending.wait()?,
            Err(Error::Borrowed { field: 0 }) => {}
            Err(other) => fail!("an exchange beside copies: {other}"),
        }
    }
    world.join(copying).map_err(|_| Trouble::new("the copies have failed"))
}

#[test]
fn copies_and_exchanges_of_two_threads_exclude_each_other() {
    explore(0..200, &options(), |world| run_ranks(world, 1, |comm| two_threads(world, comm)));
}

/// Two objects exchange the same array, one begun after the other without a wait; a redistribution writes it meanwhile.
fn of_two_objects(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = world.device(comm.rank() as u32)?;
    let part = Part::new(comm, &device, link)?;
    let decomposed = RegularGrid::new([OWNED * comm.size()]).periodic([true]).decompose(comm.size())?;
    let pattern = decomposed.clone().pattern(comm, Halo::uniform(1))?;
    let options = BindOptions::default().link(link);
    let other = HaloExchange::bind_with(comm, [(&pattern, &part.array)], &options)?;
    let source = DeviceArray::<u64>::zeros(&device, &[OWNED])?;
    let stream = &part.streams[0];
    source.write(stream, &[10 + comm.rank() as u64; OWNED])?;
    let (bare, with_halo) = (Halo::uniform(0), Halo::uniform(1));
    let moved = Redistribute::regular(comm, (&decomposed, &bare), (&decomposed, &with_halo))?;
    let moved = moved.bind_with(comm, [&source], [&part.array], &options)?;
    let pending = [part.halo.exchange()?, moved.exchange()?, other.exchange()?];
    pending[2].wait()?;
    let (own, theirs) = (10 + comm.rank() as u64, 11 - comm.rank() as u64);
    let cells = part.array.read(stream)?;
    ensure!(cells == [theirs, own, own, own, own, theirs], "not in the order of the begins: {cells:?}");
    pending.iter().try_for_each(Pending::wait)?;
    Ok(comm.barrier()?)
}

#[test]
fn exchanges_of_one_array_by_several_objects_run_in_the_order_of_their_begins() {
    for link in LINKS {
        explore(0..20, &options(), |world| run_ranks(world, 2, |comm| of_two_objects(world, comm, link)));
    }
}

/// Two threads begin exchanges of the same array by objects of their own. Each call is complete or refused, never a race.
fn of_two_threads(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = world.device(comm.rank() as u32)?;
    let part = Part::new(comm, &device, link)?;
    let pattern = RegularGrid::new([OWNED * comm.size()]).periodic([true]).decompose(comm.size())?;
    let pattern = pattern.pattern(comm, Halo::uniform(1))?;
    let options = BindOptions::default().link(link).deadline(Some(std::time::Duration::from_millis(5)));
    let halos: [_; 2] = [(); 2].map(|()| HaloExchange::bind_with(comm, [(&pattern, &part.array)], &options));
    let threads = halos.map(|halo| {
        world.spawn("beginner".to_owned(), move || {
            let Ok(halo) = halo else { return };
            for _ in 0..3 {
                // Ranks may begin the two in different orders, which fails at the deadline.
                let Ok(pending) = halo.exchange() else { return };
                let _ = pending.wait();
            }
        })
    });
    for thread in threads {
        world.join(thread?).map_err(|_| Trouble::new("a thread panicked"))?;
    }
    Ok(())
}

#[test]
fn threads_that_begin_exchanges_of_one_array_never_race() {
    for link in LINKS {
        explore(0..20, &options(), |world| run_ranks(world, 2, |comm| of_two_threads(world, comm, link)));
    }
}

/// Bytes of fields whose element type is known at run time only.
#[test]
fn bytes_of_another_number_or_of_the_host_are_refused() {
    explore(0..1, &options(), |world| {
        run_ranks(world, 1, |comm| -> Outcome {
            let stream = world.device(0)?.stream(Priority::Normal)?;
            let layout = Layout::strided(ElementType::U16, &[2, 3], &[8, -2])?;
            let field = Field::allocate_on(stream.device(), layout.clone())?;
            field.write_bytes(&stream, b"0123456789abcd")?;
            let mut found = [0; 14];
            field.read_bytes(&stream, &mut found)?;
            ensure!(&found == b"0123456789abcd", "{found:?}");
            match field.read_bytes(&stream, &mut found[1..]) {
                Err(Error::Array(ArrayError::Bytes { expected: 14, found: 13 })) => {}
                other => fail!("a buffer that is too short: {other:?}"),
            }
            match Field::allocate(comm, layout)?.write_bytes(&stream, &found) {
                Err(Error::Array(ArrayError::OnHost)) => Ok(()),
                other => fail!("a field of the host: {other:?}"),
            }
        });
    });
}
