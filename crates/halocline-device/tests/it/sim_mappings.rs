//! Memory of simulated devices that other processes map. Two live worlds act as two processes.

use halocline_device::remote::{Allocation, Export, Kind, Provider, Refusal};
use halocline_device::sim::{Live, Options, Report, World, find};
use halocline_device::{Device, DeviceError, Memory, Priority, TablePart, TableSpec};
use rustix::fd::OwnedFd;
use std::sync::Arc;

const BYTES: usize = 5000;

fn options() -> Options {
    Options { exports: true, ordered_threads: true, ..Options::default() }
}

fn process(seed: u64) -> (Live, Device, Arc<dyn Provider>) {
    let live = World::live(seed, &options()).unwrap();
    let device = live.world().device(0).unwrap();
    let provider = device.driver().provider().unwrap().expect("its memory can be exported");
    assert_eq!(device.driver().uuid(), Some(provider.device()));
    (live, device, provider)
}

fn write(device: &Device, address: u64, value: u8) {
    let (stream, pinned) = (device.stream(Priority::Normal).unwrap(), device.allocate_pinned(BYTES).unwrap());
    // SAFETY: nothing else uses the pinned memory, and the stream is synchronised before it goes. The callers give
    // memory that is open.
    unsafe {
        pinned.bytes_mut(0..BYTES).fill(value);
        stream.copy(address, pinned.at(0), BYTES).unwrap();
    }
    stream.synchronise().unwrap();
}

fn read(device: &Device, address: u64) -> Vec<u8> {
    let (stream, pinned) = (device.stream(Priority::Normal).unwrap(), device.allocate_pinned(BYTES).unwrap());
    // SAFETY: nothing else uses the pinned memory, and the stream is synchronised before it goes. The callers give
    // memory that is open.
    unsafe { stream.copy(pinned.at(0), address, BYTES) }.unwrap();
    stream.synchronise().unwrap();
    // SAFETY: the copy is over, and nothing else writes the memory.
    unsafe { pinned.bytes(0..BYTES) }.to_vec()
}

fn exported(provider: &Arc<dyn Provider>, memory: &Memory) -> (Allocation, Export) {
    let allocation = provider.find(memory.at(100), 8).expect("memory of the device");
    assert_eq!((allocation.base, allocation.bytes), (memory.at(0), BYTES as u64));
    let export = provider.export(&allocation).unwrap();
    (allocation, export)
}

#[test]
fn another_process_reads_and_writes_what_it_has_opened_until_it_closes_it() {
    let ((one, ours, exporter), (other, theirs, importer)) = (process(1), process(2));
    let memory = ours.allocate(BYTES).unwrap();
    write(&ours, memory.at(0), 7);
    let (allocation, export) = exported(&exporter, &memory);
    assert_ne!(exporter.device(), importer.device());
    let opened = importer.open(&allocation, export).unwrap();
    assert_eq!(read(&theirs, opened.address), [7; BYTES]);
    write(&theirs, opened.address, 9);
    assert_eq!(read(&ours, memory.at(0)), [9; BYTES]);
    // Opened memory is not exported again.
    assert_eq!(importer.find(opened.address, 8), None);
    let address = opened.address;
    // SAFETY: `importer` opened it, and the streams that used it are synchronised.
    unsafe { importer.close(opened) }.unwrap();
    assert!(matches!(theirs.place_of(address), Err(DeviceError::NotReachable { .. })));
    assert_eq!((one.reports(), other.reports()), (Vec::new(), Vec::new()));
    drop(memory);
    assert_eq!(exporter.export(&allocation).err(), Some(Refusal::BadHandle));
}

#[test]
fn false_claims_about_memory_are_refused() {
    let ((_one, ours, exporter), (other, _theirs, importer)) = (process(3), process(4));
    let memory = ours.allocate(BYTES).unwrap();
    let (allocation, _) = exported(&exporter, &memory);
    let export = || exporter.export(&allocation).unwrap();
    let refused = |allocation: &Allocation, export: Export| {
        assert_eq!(importer.open(allocation, export).err(), Some(Refusal::BadHandle), "{allocation:?}");
    };
    // Longer or shorter than it is.
    for bytes in [2 * BYTES as u64, BYTES as u64 + 4096, 1, u64::MAX] {
        refused(&Allocation { bytes, ..allocation }, export());
    }
    refused(&allocation, Export { handle: export().handle, descriptors: Vec::new() });
    for cut in [0, 3, 7] {
        refused(&allocation, Export { handle: vec![0; cut], ..export() });
    }
    // Memory that its owner could truncate, and something that is no memory.
    let file: OwnedFd = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 8192).unwrap();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for descriptor in [file, null] {
        refused(&allocation, Export { descriptors: vec![descriptor], ..export() });
    }
    // In its own world: memory that does not exist, or another one.
    for (base, id) in [(memory.at(8), allocation.id), (allocation.base, allocation.id + 1)] {
        let lie = Allocation { base, id, ..allocation };
        assert_eq!(exporter.open(&lie, export()).err(), Some(Refusal::BadHandle));
        assert_eq!(exporter.adopt(&lie), Err(Refusal::BadHandle));
    }
    let nowhere = Export { handle: u64::MAX.to_le_bytes().to_vec(), descriptors: Vec::new() };
    assert_eq!(exporter.open(&allocation, nowhere).err(), Some(Refusal::BadHandle));
    assert_eq!(other.world().mapping_calls().opens, 0);
    // The true claim is still accepted.
    let opened = importer.open(&allocation, export()).unwrap();
    // SAFETY: `importer` opened it, and nothing has used it.
    unsafe { importer.close(opened) }.unwrap();
}

#[test]
fn memory_can_be_private_and_devices_can_refuse() {
    let (live, device, provider) = process(5);
    let memory = device.allocate(BYTES).unwrap();
    let (allocation, export) = exported(&provider, &memory);
    live.world().refuse_export(memory.at(0), Refusal::NoHandleType).unwrap();
    assert_eq!(provider.export(&allocation).err(), Some(Refusal::NoHandleType));
    live.world().refuse_opens(&device, [Refusal::OutOfMemory]);
    assert_eq!(provider.open(&allocation, export).err(), Some(Refusal::OutOfMemory));
    let without = World::live(6, &Options::default()).unwrap();
    let device = without.world().device(0).unwrap();
    assert!(device.driver().provider().unwrap().is_none() && device.driver().uuid().is_none());
}

/// The reports of a program that misuses a mapping under a simulated schedule.
fn wrong(program: impl Fn(&World)) -> Vec<Report> {
    find(0..1, &options(), program).map_or(Vec::new(), |found| found.run.reports)
}

fn mapped(world: &World) -> (Device, Memory, Arc<dyn Provider>, halocline_device::remote::Opened) {
    let (ours, theirs) = (world.device(0).unwrap(), world.device(1).unwrap());
    let memory = ours.allocate(BYTES).unwrap();
    let (allocation, export) = exported(&ours.driver().provider().unwrap().unwrap(), &memory);
    let importer = theirs.driver().provider().unwrap().unwrap();
    let opened = importer.open(&allocation, export).unwrap();
    assert_ne!(opened.address, memory.at(0));
    assert_eq!((allocation.kind, importer.find(opened.address, 1)), (Kind::Simulated, None));
    (theirs, memory, importer, opened)
}

#[test]
fn a_mapping_is_reached_by_its_device_alone() {
    let program = |world: &World| {
        let (theirs, memory, importer, opened) = mapped(world);
        let ours = world.device(0).unwrap();
        let table = |device: &Device, word: u64| {
            let part = TablePart { raises: &[word], ..TablePart::default() };
            device
                .upload(&TableSpec { parts: &[part], sources: &[], targets: &[], ..TableSpec::default() })
                .map(drop)
        };
        assert_eq!(table(&theirs, opened.address), Ok(()));
        let refused = Err(DeviceError::NoPeerAccess { device: 1, peer: 0 });
        assert_eq!(table(&theirs, memory.at(0)), refused);
        ours.enable_peer(&theirs).unwrap();
        assert_eq!(table(&ours, opened.address), Err(DeviceError::NoPeerAccess { device: 0, peer: 1 }));
        // SAFETY: `importer` opened it, and the streams that used it are synchronised.
        unsafe { importer.close(opened) }.unwrap();
    };
    assert_eq!(wrong(program), []);
}

#[test]
fn closing_a_mapping_in_use_is_reported() {
    let program = |world: &World| {
        let (theirs, memory, importer, opened) = mapped(world);
        let (stream, source) = (theirs.stream(Priority::Normal).unwrap(), theirs.allocate(BYTES).unwrap());
        // SAFETY: nothing keeps it: the memory is closed under a copy, which the simulated device checks and does not
        // make.
        unsafe {
            stream.copy(opened.address, source.at(0), BYTES).unwrap();
            importer.close(opened).unwrap();
        }
        stream.synchronise().unwrap();
        drop(memory);
    };
    let reports = wrong(program);
    let is_it =
        |report: &Report| matches!(report, Report::FreedInUse { by, .. } if by.what == "close of a mapping");
    assert!(reports.iter().any(is_it), "{reports:?}");
}
