//! Payloads of simulated devices in parts through the host, whose world reports accesses without order.

use super::*;
use crate::mappings::Mappings;
use crate::memory_resource::DeviceMemory;
use halocline_device::remote::Refusal;
use halocline_device::sim::{Live, Options, World};
use halocline_device::{Device, Priority};

const PART: usize = 30_000;

fn live() -> Live {
    World::live(11, &Options { exports: true, ..Options::default() }).unwrap()
}

/// A payload of some bytes, which a stream still copies to a device.
fn on_device(device: &Device, length: usize) -> Buffer {
    let (memory, staging) = (device.allocate(length).unwrap(), device.allocate_pinned(length).unwrap());
    let (stream, address) = (device.stream(Priority::Normal).unwrap(), memory.at(0));
    // SAFETY: fresh memory that nothing else uses, held by the payload.
    unsafe {
        staging.bytes_mut(0..length).copy_from_slice(&bytes(length));
        stream.copy(address, staging.at(0), length).unwrap();
    }
    // SAFETY: memory of the device, held by its owner; only the stream writes it.
    let payload = unsafe { Buffer::foreign_device(address, length, device, (memory, staging)) };
    payload.ready_after(&stream).unwrap()
}

fn read(payload: &Buffer, device: &Device) -> Vec<u8> {
    let stream = device.stream(Priority::Normal).unwrap();
    let target = device.allocate_pinned(payload.len()).unwrap();
    payload.order(&stream).unwrap();
    // SAFETY: both are memory that lives until the stream is synchronised.
    unsafe { stream.copy(target.at(0), payload.address(), payload.len()) }.unwrap();
    stream.synchronise().unwrap();
    // SAFETY: the copy is done.
    unsafe { target.bytes(0..payload.len()) }.to_vec()
}

/// The receiver has no device, although the sender believes so: it cannot map what the header names.
fn to_a_host(live: &Live, resource: impl Fn(&Communicator) -> Arc<dyn MemoryResource>) -> (Pair, Device) {
    let device = live.world().device(0).unwrap();
    let pair = Pair::in_parts(resource, PART);
    // The receiver's mappings know the device.
    PacketContext::new(pair.ends[1].comm(), Arc::new(DeviceMemory::new(&device))).unwrap();
    (pair, device)
}

#[test]
fn parts_leave_a_device_one_after_the_other() {
    let live = live();
    let (pair, device) = to_a_host(&live, |comm| Arc::new(HostMemory::of(comm)));
    for length in [1, PART, PART + 1, 7 * PART + 5] {
        let send = send(Some(on_device(&device, length))).to_device(device.driver().uuid());
        let payload = pair.pass(send).unwrap().payload.unwrap();
        assert!(payload.bytes() == Some(&bytes(length)[..]), "{length} bytes");
    }
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

#[test]
fn a_refusal_waits_for_the_copies_of_the_sender() {
    let live = live();
    let limited = |comm: &Communicator| -> Arc<dyn MemoryResource> {
        Arc::new(Limited::new(Arc::new(HostMemory::of(comm)), 4 * PART))
    };
    let (pair, device) = to_a_host(&live, limited);
    let send = send(Some(on_device(&device, 5 * PART))).to_device(device.driver().uuid());
    let [sender, receiver] = *pair.pass(send).unwrap_err();
    assert!(matches!(sender, Some(PacketError::Refused { bytes: 150_000, .. })), "{sender:?}");
    assert!(matches!(receiver, Some(PacketError::Memory { bytes: 150_000, .. })), "{receiver:?}");
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

#[test]
fn parts_arrive_on_a_device_one_after_the_other() {
    let live = live();
    let device = live.world().device(0).unwrap();
    let pair = Pair::in_parts(
        |comm| match comm.rank() {
            0 => Arc::new(Private),
            _ => Arc::new(DeviceMemory::new(&device)),
        },
        PART,
    );
    for length in [PART + 1, 7 * PART + 5] {
        let payload = pair.pass(send(Some(bytes(length).into()))).unwrap().payload.unwrap();
        assert_eq!(payload.kind(), MemoryKind::Device);
        assert!(read(&payload, &device) == bytes(length), "{length} bytes");
    }
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

/// A stream still uses the memory that it allocates.
struct InUse(Device);

impl MemoryResource for InUse {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.0)
    }

    fn allocate(&self, length: usize) -> Result<Buffer, MemoryError> {
        Ok(on_device(&self.0, length))
    }

    fn statistics(&self) -> MemoryStatistics {
        DeviceMemory::new(&self.0).statistics()
    }
}

#[test]
fn memory_that_a_stream_still_uses_is_written_afterwards() {
    let live = live();
    let device = live.world().device(0).unwrap();
    let pair = Pair::in_parts(|_| Arc::new(InUse(device.clone())), PART);
    for length in [1, PART, 7 * PART + 5] {
        let content: Vec<u8> = bytes(length).iter().map(|byte| !byte).collect();
        for payload in [Buffer::from(content.clone()), host_memory(&pair.ends[0], &content)] {
            let payload = pair.pass(send(Some(payload))).unwrap().payload.unwrap();
            assert!(read(&payload, &device) == content, "{length} bytes");
        }
    }
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

/// Host memory that the receiver can map.
fn host_memory(context: &PacketContext, content: &[u8]) -> Buffer {
    let mut buffer = HostMemory::of(context.comm()).allocate(content.len()).unwrap();
    buffer.bytes_mut().unwrap().copy_from_slice(content);
    buffer
}

/// The second part is longer than announced while the device copies the first one.
#[test]
fn a_part_of_another_length_is_refused_once_the_copies_are_over() {
    let live = live();
    let device = live.world().device(0).unwrap();
    let pair = Pair::new(|_| Arc::new(DeviceMemory::new(&device)));
    let [from, to] = &pair.ends;
    let (mut header, path) = (Vec::new(), header::Path::Parts { part: PART as u64 });
    let payload = Some(3 * PART as u64);
    header::Header { kind: 0, sequence: 9, words: [0; 4], payload, path }.write(&[], &mut header);
    from.comm().send(1, TAG.header(), header).unwrap();
    for length in [PART, PART + 1] {
        from.comm().send(1, TAG.payload(9), vec![7; length]).unwrap();
    }
    let mut receive = PacketReceive::next(to, 0, TAG).unwrap().unwrap();
    let error = (0..).find_map(|_| receive.poll(to).err()).unwrap();
    let is_length =
        matches!(error, PacketError::Length { from: 0, announced, found } if found == announced + 1);
    assert!(is_length && receive.is_taken(), "{error}");
    while !receive.is_over() {
        receive.poll(to).unwrap();
    }
    drop(receive);
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

/// Memory of the program that no process can map, for instance of a stream-ordered pool.
#[test]
fn a_payload_that_nobody_can_map_leaves_through_memory_of_its_device() {
    let live = live();
    let device = live.world().device(0).unwrap();
    let pair = Pair::new(|_| Arc::new(DeviceMemory::new(&device)));
    let payload = on_device(&device, 70_000);
    live.world().refuse_export(payload.address(), Refusal::Private).unwrap();
    let payload = pair.pass(send(Some(payload)).to_device(device.driver().uuid())).unwrap().payload.unwrap();
    assert!(payload.kind() == MemoryKind::Device && read(&payload, &device) == bytes(70_000));
    assert_eq!(Mappings::of(pair.ends[0].comm()).stats().staged, 1);
    assert_eq!(pair.ends[0].copier(&device).unwrap().allocations(), [1, 0]);
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}

/// The sender knows the device that the receiver had before.
#[test]
fn a_payload_mapped_for_another_device_of_the_receiver_arrives_through_the_host() {
    let live = live();
    let [former, device] = [0, 1].map(|at| live.world().device(at).unwrap());
    let pair = Pair::new(|_| Arc::new(DeviceMemory::new(&device)));
    let [_, to] = &pair.ends;
    // It maps memory for both.
    let _former = PacketContext::new(to.comm(), Arc::new(DeviceMemory::new(&former))).unwrap();
    for (mapped_for, through_host) in [(&device, false), (&former, true)] {
        let packet = send(Some(on_device(&device, 70_000))).to_device(mapped_for.driver().uuid());
        let payload = pair.pass(packet).unwrap().payload.unwrap();
        assert!(payload.device() == Some(&device) && read(&payload, &device) == bytes(70_000));
        assert_eq!(to.copier(&device).unwrap().allocations()[1] > 0, through_host);
    }
    assert!(live.reports().is_empty(), "{:?}", live.reports());
}
