//! Exchanges of device fields in the order of streams, on simulated devices.

use super::*;
use crate::field::{halocline_field_read, halocline_field_write};
use crate::message::{halocline_pack_on, halocline_unpack_on};
use crate::object::Handle;
use crate::pattern_links::{Links, halocline_pattern_links_schedule};
use crate::pending::{halocline_is_ready, halocline_schedule_wait, halocline_wait};
use halocline::device::{Priority, ValueOp, sim};
use halocline::{Communicator, Decomposed, DeviceArray, ElementType, Layout, PatternLinks, RegularGrid};

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

#[test]
fn nccl_carries_messages_between_the_fields_of_two_devices() {
    let options = sim::Options { ordered_threads: true, ..sim::Options::default() };
    let world = sim::World::live(0, &options).unwrap();
    let ranks = Communicator::threads(2).into_iter().map(|comm| {
        let device = world.world().device(comm.rank() as u32).unwrap();
        std::thread::spawn(move || exchanges_by_nccl(&device, &comm))
    });
    ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
}

fn exchanges_by_nccl(device: &halocline::Device, comm: &Communicator) {
    let grid = RegularGrid::new([8]).periodic([true]);
    let pattern = grid.decompose(2).unwrap().pattern(comm, 1).unwrap();
    let array = DeviceArray::<f64>::zeros(device, &[6]).unwrap();
    let stream = Arc::new(device.stream(Priority::Normal).unwrap());
    let options = BindOptions::default().link(LinkChoice::Nccl).streams([Arc::clone(&stream)]).inline(true);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options).unwrap();
    let paths = halo.links().map(|link| crate::message::LinkOfRank::from(link).path);
    assert_eq!(paths.collect::<Vec<_>>(), [NCCL; 2]);
    let own = 10.0 * comm.rank() as f64;
    array.write(&stream, &[-1.0, own, own + 1.0, own + 2.0, own + 3.0, -1.0]).unwrap();
    let halo = Handle::new(halo).unwrap();
    assert_eq!(halocline_exchange_and_wait(halo), Status::OK);
    let theirs = 10.0 - own;
    let found = array.read(&stream).unwrap();
    assert_eq!(found, [theirs + 3.0, own, own + 1.0, own + 2.0, own + 3.0, theirs]);
    comm.barrier().unwrap();
}

/// The message of the last call that failed.
fn message() -> String {
    // SAFETY: the message is a string that stays until the next call of this thread that fails.
    unsafe { std::ffi::CStr::from_ptr(crate::status::halocline_error_message()) }
        .to_string_lossy()
        .into_owned()
}

fn write(field: Handle<Field>, stream: Handle<Arc<Stream>>, bytes: &[u8]) -> Status {
    // SAFETY: the slice has so many bytes.
    unsafe { halocline_field_write(field, stream, bytes.as_ptr().cast(), bytes.len()) }
}

fn read(field: Handle<Field>, stream: Handle<Arc<Stream>>, bytes: &mut [u8]) -> Status {
    // SAFETY: the slice has so many bytes.
    unsafe { halocline_field_read(field, stream, bytes.as_mut_ptr().cast(), bytes.len()) }
}

#[test]
fn the_host_writes_and_reads_fields_of_a_device() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let device = world.world().device(0).unwrap();
    let stream = Handle::new(Arc::new(device.stream(Priority::Normal).unwrap())).unwrap();
    let whole = Field::allocate_on(&device, Layout::c_order(ElementType::U8, &[3, 4]).unwrap()).unwrap();
    // The columns 1 to 3 from right to left, without the last row: element (0, 0) is byte 3.
    let base = whole.base().map_addr(|first| first.saturating_add(3));
    let part = whole.view(base, Layout::strided(ElementType::U8, &[2, 3], &[4, -1]).unwrap()).unwrap();
    let (whole, part) = (Handle::new(whole).unwrap(), Handle::new(part).unwrap());

    assert_eq!(write(whole, stream, b"abcdefghijkl"), Status::OK);
    let mut found = [0; 7];
    assert_eq!(read(part, stream, &mut found), Status::OK);
    assert_eq!(&found, b"bcdefgh");
    assert_eq!(write(part, stream, b"BCDEFGH"), Status::OK);
    let mut found = [0; 12];
    assert_eq!(read(whole, stream, &mut found), Status::OK);
    assert_eq!(&found, b"aBCDEFGHijkl");

    assert_eq!(write(part, stream, b"BCD"), Status::ARGUMENT);
    assert!(message().contains("takes 7 bytes"), "{}", message());
    let elsewhere = world.world().device(1).unwrap().stream(Priority::Normal).unwrap();
    let elsewhere = Handle::new(Arc::new(elsewhere)).unwrap();
    assert_eq!(read(whole, elsewhere, &mut found), Status::ARGUMENT);
    assert!(message().contains("is of device 1"), "{}", message());
    let on_host = Layout::c_order(ElementType::U8, &[2]).unwrap();
    let on_host = Handle::new(Field::allocate(&Communicator::single(), on_host).unwrap()).unwrap();
    assert_eq!(write(on_host, stream, b"ab"), Status::ARGUMENT);
    assert!(message().contains("the field lies in host memory"), "{}", message());
}

#[test]
fn the_host_does_not_write_a_field_whose_exchange_its_stream_does_not_wait_for() {
    let world = sim::World::live(0, &sim::Options::default()).unwrap();
    let device = world.world().device(0).unwrap();
    let comm = Communicator::single();
    let ring = ring(&device, &comm);
    let field = Handle::new((*ring.array).clone()).unwrap();
    let beside = Handle::new(Arc::new(device.stream(Priority::Normal).unwrap())).unwrap();
    // The exchange cannot begin before the host opens the gate.
    let gate = device.allocate_pinned(8).unwrap();
    // SAFETY: only the stream and the store below access the word, which lives until the end of the test.
    unsafe { ring.stream.pin().unwrap().values(&[ValueOp::Wait { address: gate.at(0), at_least: 1 }]) }
        .unwrap();
    let mut pending = PendingExchange { exchange: 0, epoch: 0 };
    // SAFETY: the array has one handle.
    let begun =
        unsafe { halocline_schedule_exchange(ring.halo, 0, &ring.stream, 1, OutPtr::of(&mut pending)) };
    assert_eq!(begun, Status::OK);
    let mut bytes = [0; 48];
    assert_eq!(write(field, beside, &bytes), Status::BUSY);
    assert!(message().ends_with("is in flight; wait for it first"), "{}", message());
    assert_eq!(read(field, beside, &mut bytes), Status::BUSY);
    // SAFETY: the word is written here alone.
    unsafe { gate.store(0, 1) };
    assert_eq!(halocline_schedule_wait(pending, beside), Status::OK);
    assert_eq!(write(field, beside, &bytes), Status::OK);
}
