//! Exchanges of device fields in the order of streams, on simulated devices.

use super::*;
use crate::message::{halocline_pack_on, halocline_unpack_on};
use crate::object::Handle;
use crate::pattern_links::halocline_pattern_links_schedule;
use halocline::device::{Priority, sim};
use halocline::{Communicator, Decomposed, DeviceArray, PatternLinks, RegularGrid};

/// A ring of four cells in device memory, bound, and a stream.
struct Ring {
    array: DeviceArray<f64>,
    halo: Handle<HaloExchange>,
    stream: Handle<Arc<Stream>>,
}

fn ring(device: &halocline::Device, comm: &Communicator) -> Ring {
    let grid = RegularGrid::new([4 * comm.size()]).periodic([true]);
    let pattern = grid.decompose(comm.size()).unwrap().pattern(comm, 1).unwrap();
    let array = DeviceArray::<f64>::zeros(device, &[6]).unwrap();
    let stream = Arc::new(device.stream(Priority::Normal).unwrap());
    let options = BindOptions::default().streams([Arc::clone(&stream)]);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options).unwrap();
    Ring { array, halo: Handle::new(halo).unwrap(), stream: Handle::new(stream).unwrap() }
}

#[test]
fn a_scheduled_exchange_runs_in_the_order_of_its_stream() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let ring = ring(&world.world().device(0).unwrap(), &Communicator::single());
    let stream = Arc::clone(&*ring.stream.pin().unwrap());
    let mut pending = PendingExchange { exchange: 0, epoch: 0 };
    for (step, streams) in [(1.0, Some(ring.stream)), (2.0, None)] {
        ring.array.write(&stream, &[-1.0, step, 1.0, 2.0, 10.0 * step, -1.0]).unwrap();
        let first = streams.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array has as many handles.
        let begun = unsafe {
            let count = usize::from(!first.is_null());
            halocline_schedule_exchange(ring.halo, 0, first, count, OutPtr::of(&mut pending))
        };
        assert_eq!(begun, Status::OK);
        assert_eq!(halocline_schedule_wait(pending, ring.stream), Status::OK);
        assert_eq!(ring.array.read(&stream).unwrap(), [10.0 * step, step, 1.0, 2.0, 10.0 * step, step]);
        let mut ready = -1;
        assert_eq!((halocline_is_ready(pending, OutPtr::of(&mut ready)), ready), (Status::OK, 1));
        assert_eq!(halocline_wait(pending), Status::OK);
    }
    let mut reclaimed = -1;
    assert_eq!((halocline_reclaim(ring.halo, OutPtr::of(&mut reclaimed)), reclaimed), (Status::OK, 1));
}

#[test]
fn a_scheduled_reduce_runs_in_the_order_of_its_stream() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let ring = ring(&world.world().device(0).unwrap(), &Communicator::single());
    let stream = Arc::clone(&*ring.stream.pin().unwrap());
    let mut pending = PendingExchange { exchange: 0, epoch: 0 };
    for (keep, streams) in [(0, Some(ring.stream)), (1, None)] {
        ring.array.write(&stream, &[0.5, 1.0, 2.0, 3.0, 4.0, 0.25]).unwrap();
        let first = streams.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (count, sum) = (usize::from(!first.is_null()), 0);
        // SAFETY: the array has as many handles.
        let begun = unsafe {
            halocline_schedule_reduce(ring.halo, 0, sum, keep, first, count, OutPtr::of(&mut pending))
        };
        assert_eq!(begun, Status::OK);
        assert_eq!(halocline_schedule_wait(pending, ring.stream), Status::OK);
        let halo = if keep == 1 { [0.5, 0.25] } else { [0.0, 0.0] };
        assert_eq!(ring.array.read(&stream).unwrap(), [halo[0], 1.25, 2.0, 3.0, 4.5, halo[1]]);
    }
    assert_eq!((halocline_wait(pending), pending.epoch), (Status::OK, 2));
}

#[test]
fn fields_of_a_device_are_given_to_each_exchange() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let device = world.world().device(0).unwrap();
    let comm = Comm { comm: Communicator::single(), group: 1 };
    let grid = RegularGrid::new([4]).periodic([true]);
    let pattern = grid.decompose(1).unwrap().pattern(&comm.comm, 1).unwrap();
    let stream = Arc::new(device.stream(Priority::Normal).unwrap());
    let streams = [Handle::new(Arc::clone(&stream)).unwrap()];
    let links = PatternLinks::on_device(&comm.comm, &[&pattern], &device, &BindOptions::default()).unwrap();
    let patterns = [Handle::new(BoundPattern::new(pattern, &comm)).unwrap()];
    let links = Handle::new(Links { links, comm }).unwrap();
    let mut pending = PendingExchange { exchange: 0, epoch: 0 };
    for step in [1.0, 2.0] {
        // Another array each time.
        let array = DeviceArray::<f64>::zeros(&device, &[6]).unwrap();
        array.write(&stream, &[-1.0, step, 1.0, 2.0, 10.0 * step, -1.0]).unwrap();
        let field = Handle::new((*array).clone()).unwrap();
        let bindings = [Binding { pattern: patterns[0], field }];
        // SAFETY: the arrays have as many elements.
        let begun = unsafe {
            halocline_pattern_links_schedule(
                links,
                bindings.as_ptr(),
                1,
                streams.as_ptr(),
                1,
                OutPtr::of(&mut pending),
            )
        };
        assert_eq!(begun, Status::OK);
        assert_eq!(halocline_schedule_wait(pending, streams[0]), Status::OK);
        assert_eq!(array.read(&stream).unwrap(), [10.0 * step, step, 1.0, 2.0, 10.0 * step, step]);
        assert_eq!(halocline_wait(pending), Status::OK);
    }
    let never = PendingExchange { epoch: pending.epoch + 1, ..pending };
    assert_eq!(halocline_wait(never), Status::ARGUMENT);
}

#[test]
fn wrong_streams_are_refused_and_take_no_epoch() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let ring = ring(&world.world().device(0).unwrap(), &Communicator::single());
    let elsewhere = world.world().device(1).unwrap().stream(Priority::Normal).unwrap();
    let elsewhere = Handle::new(Arc::new(elsewhere)).unwrap();
    let mut pending = PendingExchange { exchange: 0, epoch: 0 };
    let begin = |streams: &[Handle<Arc<Stream>>], pending: &mut PendingExchange| {
        // SAFETY: the array has as many handles.
        unsafe {
            halocline_schedule_exchange(ring.halo, 0, streams.as_ptr(), streams.len(), OutPtr::of(pending))
        }
    };
    assert_eq!(begin(&[elsewhere], &mut pending), Status::ARGUMENT);
    assert_eq!(begin(&[ring.stream, Handle::from_number(0)], &mut pending), Status::HANDLE);
    assert_eq!(begin(&[ring.stream; 5], &mut pending), Status::OK);
    assert_eq!(pending.epoch, 1);
    assert_eq!(halocline_schedule_wait(pending, elsewhere), Status::ARGUMENT);
    assert_eq!(halocline_wait(pending), Status::OK);
}

#[test]
fn messages_of_device_fields_are_packed_and_unpacked_on_a_stream() {
    let world =
        sim::World::live(0, &sim::Options { ordered_threads: true, ..sim::Options::default() }).unwrap();
    let device = world.world().device(0).unwrap();
    let ranks = Communicator::threads(3).into_iter().map(|comm| {
        let device = device.clone();
        std::thread::spawn(move || packs_and_unpacks(&device, &comm))
    });
    ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
}

/// Packs what the next rank needs, and unpacks it as what comes from the last one.
fn packs_and_unpacks(device: &halocline::Device, comm: &Communicator) {
    let (ring, rank) = (ring(device, comm), comm.rank());
    let stream = Arc::clone(&*ring.stream.pin().unwrap());
    ring.array.write(&stream, &[-1.0, 0.0, 1.0, 2.0, 7.0, -1.0]).unwrap();
    let message = DeviceArray::<f64>::zeros(device, &[1]).unwrap();
    let (at, bytes) = (std::ptr::with_exposed_provenance_mut(message.address() as usize), size_of::<f64>());
    let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
    // SAFETY: the message has that many bytes, and stays until the reads below, which the stream orders after its work.
    let (packed, unpacked) = unsafe {
        (
            halocline_pack_on(ring.halo, next, at, bytes, ring.stream),
            halocline_unpack_on(ring.halo, last, at, bytes, ring.stream),
        )
    };
    assert_eq!((packed, unpacked), (Status::OK, Status::OK));
    assert_eq!(message.read(&stream).unwrap(), [7.0]);
    assert_eq!(ring.array.read(&stream).unwrap(), [7.0, 0.0, 1.0, 2.0, 7.0, -1.0]);
    // SAFETY: the call is refused before it uses the message.
    let short = unsafe { halocline_pack_on(ring.halo, next, at, 4, ring.stream) };
    assert_eq!(short, Status::ARGUMENT);
    comm.barrier().unwrap();
}
