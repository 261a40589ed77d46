//! Payloads on simulated devices, whose world reports accesses without order.

use super::*;
use crate::memory_resource::{DeviceMemory, Limited, MemoryKind, PinnedMemory};
use halocline_device::sim::{Kernel, Live, Options, World};
use halocline_device::{Device, Priority, Stream};

fn live(exports: bool) -> Live {
    World::live(7, &Options { exports, ..Options::default() }).unwrap()
}

/// A payload on a device that a kernel of `stream` fills.
fn filled(live: &Live, memory: &dyn MemoryResource, stream: &Stream, byte: u8, bytes: usize) -> Buffer {
    let payload = memory.allocate(bytes).unwrap();
    let address = payload.address();
    let fill = Kernel::new("fill").writes(address, bytes);
    let fill = fill.body(move |memory| memory.bytes_mut(address, bytes).fill(byte));
    live.world().launch(stream, fill).unwrap();
    payload.ready_after(stream).unwrap()
}

/// The content of a payload, read in the order of a stream.
fn read(payload: &Buffer, device: &Device) -> Vec<u8> {
    let stream = device.stream(Priority::Normal).unwrap();
    let target = device.allocate_pinned(payload.len()).unwrap();
    payload.order(&stream).unwrap();
    // SAFETY: both are memory of the device and of the host that lives until the stream is synchronised.
    unsafe { stream.copy(target.at(0), payload.address(), payload.len()) }.unwrap();
    stream.synchronise().unwrap();
    // SAFETY: the copy is done.
    unsafe { target.bytes(0..payload.len()) }.to_vec()
}

/// Each rank sends payloads of its device to the next one, which has memory of the kind that `resource` makes.
fn pass(
    live: &Live,
    lengths: &[usize],
    resource: impl Fn(&Communicator, &Device) -> Arc<dyn MemoryResource> + Sync,
) {
    let size = 3;
    on_ranks(size, |comm| {
        let rank = comm.rank();
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        let device = live.world().device(rank as u32 % 2).unwrap();
        let memory = DeviceMemory::new(&device);
        let streams = [(); 2].map(|()| device.stream(Priority::Normal).unwrap());
        let received = resource(&comm, &device);
        for _ in 0..2 {
            let exchange = SparseAlltoall::new(&comm, &[last], &[next], Arc::clone(&received)).unwrap();
            for (number, &length) in lengths.iter().enumerate() {
                let byte = (10 * rank + number) as u8;
                let payload = filled(live, &memory, &streams[number % 2], byte, length);
                exchange.insert(next, Packet::new(vec![byte], Some(payload))).unwrap();
                // Payloads of the host may lie between those of devices.
                exchange.insert(next, packet(rank, next, number)).unwrap();
            }
            exchange.finish();
            exchange.wait().unwrap();
            let packets = exchange.extract(last).unwrap();
            assert_eq!(packets.len(), 2 * lengths.len());
            for (number, pair) in packets.chunks(2).enumerate() {
                let byte = (10 * last + number) as u8;
                let payload = pair[0].payload.as_ref().unwrap();
                assert_eq!((pair[0].metadata[0], payload.len()), (byte, lengths[number]));
                let found = match payload.kind() {
                    MemoryKind::Device => read(payload, &device),
                    _ => payload.to_vec().unwrap(),
                };
                assert!(found.iter().all(|found| *found == byte), "payload {number} of rank {last}");
                let expected = content(last, rank, number);
                let found = pair[1].payload.as_ref().map(|payload| match payload.kind() {
                    MemoryKind::Device => read(payload, &device),
                    _ => payload.to_vec().unwrap(),
                });
                assert!(found == expected, "packet {number} of rank {last}");
            }
            let statistics = exchange.statistics();
            assert_eq!(statistics.sent.device, lengths.iter().sum::<usize>() as u64);
            comm.barrier().unwrap();
        }
    });
    assert_eq!(live.reports().iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
}

const LENGTHS: [usize; 4] = [8, 70_000, 1000, 200_000];

#[test]
fn payloads_of_devices_arrive_on_devices_by_mappings_and_through_the_host() {
    for exports in [true, false] {
        pass(&live(exports), &LENGTHS, |_, device| Arc::new(DeviceMemory::new(device)));
    }
}

#[test]
fn payloads_of_devices_arrive_in_memory_of_the_host() {
    for exports in [true, false] {
        let live = live(exports);
        pass(&live, &LENGTHS, |comm, _| host(comm));
        pass(&live, &LENGTHS, |comm, device| Arc::new(PinnedMemory::of(comm, device)));
    }
}

#[test]
fn payloads_beyond_the_limit_of_a_device_are_spilled_to_the_host() {
    let live = live(true);
    pass(&live, &LENGTHS, |comm, device| {
        let limited = Limited::new(Arc::new(DeviceMemory::new(device)), 100_000);
        Arc::new(limited.with_patience(std::time::Duration::ZERO).spilling(host(comm)))
    });
}

/// The stream of the first payload waits until the second one is there.
#[test]
fn packets_keep_their_order_where_streams_finish_in_another_one() {
    use halocline_device::ValueOp;
    let live = live(true);
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let device = live.world().device(comm.rank() as u32).unwrap();
        let memory = DeviceMemory::new(&device);
        let streams = [(); 2].map(|()| device.stream(Priority::Normal).unwrap());
        let flag = device.allocate_pinned(8).unwrap();
        // SAFETY: the flag lives until the streams are synchronised.
        unsafe { streams[0].values(&[ValueOp::Wait { address: flag.at(0), at_least: 1 }]) }.unwrap();
        let exchange =
            SparseAlltoall::new(&comm, &[other], &[other], Arc::new(DeviceMemory::new(&device))).unwrap();
        for byte in [0u8, 1] {
            let payload = filled(&live, &memory, &streams[usize::from(byte)], byte, 5000);
            exchange.insert(other, Packet::new(vec![byte], Some(payload))).unwrap();
        }
        exchange.finish();
        streams[1].synchronise().unwrap();
        assert!(!exchange.is_complete().unwrap());
        comm.barrier().unwrap();
        // SAFETY: only the stream and this call access the flag.
        unsafe { flag.store(0, 1) };
        exchange.wait().unwrap();
        for (byte, packet) in (0u8..).zip(exchange.extract(other).unwrap()) {
            assert_eq!(packet.metadata, [byte]);
            assert!(read(&packet.payload.unwrap(), &device).iter().all(|found| *found == byte));
        }
        comm.barrier().unwrap();
    });
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

/// The sender begins with the device of the last operation, before it hears of another one.
#[test]
fn payloads_arrive_at_a_rank_whose_device_changes_between_operations() {
    let live = live(true);
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let devices = [0, 1].map(|at| live.world().device(at).unwrap());
        for turn in 0..6 {
            // Its own device, the other one, memory of the host.
            let device = &devices[(comm.rank() + turn) % 2];
            let received: Arc<dyn MemoryResource> = match turn % 3 {
                2 => host(&comm),
                _ => Arc::new(DeviceMemory::new(device)),
            };
            let memory = DeviceMemory::new(device);
            let stream = device.stream(Priority::Normal).unwrap();
            let exchange = SparseAlltoall::new(&comm, &[other], &[other], received).unwrap();
            let byte = (10 * turn + comm.rank()) as u8;
            let payload = filled(&live, &memory, &stream, byte, 100_000);
            exchange.insert(other, Packet::new(vec![byte], Some(payload))).unwrap();
            exchange.finish();
            exchange.wait().unwrap();
            let payload = exchange.extract(other).unwrap().remove(0).payload.unwrap();
            let found = match payload.kind() {
                MemoryKind::Device => read(&payload, device),
                _ => payload.to_vec().unwrap(),
            };
            let expected = (10 * turn + other) as u8;
            assert!(found.iter().all(|found| *found == expected), "turn {turn}");
            comm.barrier().unwrap();
        }
    });
    assert_eq!(live.reports().iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
}

/// The stream of the payload waits until the test lets it go on.
#[test]
fn a_refused_payload_is_kept_until_its_stream_has_written_it() {
    use halocline_device::ValueOp;
    let live = live(true);
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let device = live.world().device(comm.rank() as u32).unwrap();
        let stream = device.stream(Priority::Normal).unwrap();
        let flag = device.allocate_pinned(8).unwrap();
        // SAFETY: the flag lives until the stream is synchronised.
        unsafe { stream.values(&[ValueOp::Wait { address: flag.at(0), at_least: 1 }]) }.unwrap();
        let held = Arc::new(());
        let memory = device.allocate(1000).unwrap();
        let address = memory.at(0);
        let fill = Kernel::new("fill").writes(address, 1000);
        let fill = fill.body(move |memory| memory.bytes_mut(address, 1000).fill(1));
        live.world().launch(&stream, fill).unwrap();
        // SAFETY: memory of the device, held by its owner; only the stream writes it.
        let payload = unsafe { Buffer::foreign_device(address, 1000, &device, (memory, Arc::clone(&held))) };
        let payload = payload.ready_after(&stream).unwrap();
        let exchange = SparseAlltoall::new(&comm, &[other], &[other], host(&comm)).unwrap();
        exchange.finish();
        let refused = exchange.insert(other, Packet::new(Vec::new(), Some(payload)));
        assert!(matches!(refused, Err(SparseError::Finished { .. })));
        comm.barrier().unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        // SAFETY: only the stream and this call access the flag.
        unsafe { flag.store(0, 1) };
        exchange.wait().unwrap();
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
        stream.synchronise().unwrap();
        comm.barrier().unwrap();
    });
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}
