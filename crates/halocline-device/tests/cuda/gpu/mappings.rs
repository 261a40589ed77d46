//! Opens memory of one process in another: every kind, and invalid requests.

use super::kinds::{Foreign, PIECE, Scope, Sort, free, map_piece};
use super::raw::Raw;
use super::{Gpu, Rig};
use crate::suite::{Outcome, Rig as _};
use halocline_device::remote::{Allocation, DeviceId, Export, Kind, Opened, Provider, Refusal};
use halocline_device::{Address, Device, Priority, Stream, cuda};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Name of the process that opens memory.
pub const IMPORTER: &str = "child-importer";

const BYTES: usize = PIECE;

/// Fills memory with a value, or checks that it holds the value, through pinned memory.
fn write(device: &Device, stream: &Stream, address: Address, bytes: usize, value: u8) -> Outcome {
    let pinned = device.allocate_pinned(bytes)?;
    // SAFETY: nothing else uses the pinned memory, and the stream is synchronised before it goes. The callers give
    // memory that is open.
    unsafe {
        pinned.bytes_mut(0..bytes).fill(value);
        stream.copy(address, pinned.at(0), bytes)?;
    }
    stream.synchronise()
}

fn expect(device: &Device, stream: &Stream, address: Address, bytes: usize, value: u8) -> Outcome {
    let pinned = device.allocate_pinned(bytes)?;
    // SAFETY: nothing else uses the pinned memory, and the stream is synchronised before it goes. The callers give
    // memory that is open.
    unsafe { stream.copy(pinned.at(0), address, bytes) }?;
    stream.synchronise()?;
    // SAFETY: the copy is over, and nothing else writes the memory.
    let wrong = unsafe { pinned.bytes(0..bytes) }.iter().filter(|byte| **byte != value).count();
    assert_eq!(wrong, 0, "bytes at {address:#x} that are not {value}");
    Ok(())
}

/// The expectation of the other process.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    /// It finds 7 in the memory, writes 9, and closes it.
    Memory,
    /// The provider refuses it.
    Nothing,
}

/// Makes another process open the exported memory.
fn open_elsewhere(allocation: &Allocation, export: &Export, seen: Seen) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let inherit = |flags| {
        for fd in &export.descriptors {
            rustix::io::fcntl_setfd(fd, flags).expect("a descriptor");
        }
    };
    inherit(rustix::io::FdFlags::empty());
    let program = std::env::current_exe().expect("this test");
    let mut child = Command::new(program).arg(IMPORTER).stdin(Stdio::piped()).spawn().expect("it starts");
    inherit(rustix::io::FdFlags::CLOEXEC);
    let fds: Vec<String> = export.descriptors.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let Allocation { base, bytes, id, device, kind } = allocation;
    let (device, handle, fds) = (hex(&device.0), hex(&export.handle), fds.join(","));
    let line = format!("{} {base} {bytes} {id} {device} [{handle}] [{fds}] {}\n", *kind as u32, seen as u32);
    child.stdin.take().expect("piped").write_all(line.as_bytes()).expect("it listens");
    assert!(child.wait().expect("it ends").success(), "{kind}: the importer failed");
}

/// The task of the other process.
pub fn importer() -> Outcome {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex")).collect()
    };
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let kinds = [Kind::Legacy, Kind::Vmm, Kind::Pool];
    let kind = kinds.into_iter().find(|kind| *kind as u64 == number(0)).expect("a kind");
    let device = DeviceId(bytes(words[4]).try_into().expect("16 bytes"));
    let allocation = Allocation { base: number(1), bytes: number(2), id: number(3), device, kind };
    let fds = words[6].trim_matches(['[', ']']).split(',').filter(|fd| !fd.is_empty());
    // SAFETY: this process inherited the descriptor from the test that started it, and nothing else here owns it.
    let own = |fd: &str| unsafe { OwnedFd::from_raw_fd(fd.parse().expect("a number")) };
    let export =
        Export { handle: bytes(words[5].trim_matches(['[', ']'])), descriptors: fds.map(own).collect() };
    // On another GPU, if there is one.
    let gpu = Gpu::new(1).or_else(|_| Gpu::new(0))?;
    let provider = cuda::provider(gpu.ordinal())?;
    let opened = provider.open(&allocation, export);
    if number(7) == Seen::Nothing as u64 {
        assert!(opened.is_err(), "{allocation:?}: {opened:?}");
        let device = Device::new(gpu.driver.clone());
        drop(device.allocate(BYTES)?);
        assert_eq!(device.failure(), None);
        return Ok(());
    }
    let opened = opened.expect("it opens");
    let Opened { address, .. } = opened;
    let device = Device::new(gpu.driver.clone());
    let stream = device.stream(Priority::Normal)?;
    expect(&device, &stream, address, allocation.bytes as usize, 7)?;
    write(&device, &stream, address, allocation.bytes as usize, 9)?;
    // SAFETY: `provider` opened it, and the streams that used it are idle.
    unsafe { provider.close(opened) }.expect("it closes");
    let closed = device.place_of(address);
    assert!(closed.is_err(), "still there: {closed:?}");
    Ok(())
}

/// Exports memory of one kind, lets another process change it, and checks it.
fn round(rig: &Rig, provider: &Arc<dyn Provider>, address: Address, bytes: usize, kind: Kind) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let allocation = provider.find(address + 100, bytes as u64 - 100).expect("memory of the device");
    assert_eq!((allocation.base, allocation.kind, allocation.device), (address, kind, provider.device()));
    assert!(allocation.bytes >= bytes as u64, "{allocation:?}");
    // In one call, without a current context.
    let still = || std::thread::scope(|threads| threads.spawn(|| provider.still(&allocation)).join());
    assert!(still().expect("it asks"), "{allocation:?}");
    for other in [
        Allocation { id: allocation.id + 1, ..allocation },
        Allocation { bytes: allocation.bytes + 1, ..allocation },
    ] {
        assert!(!provider.still(&other), "{other:?} instead of {allocation:?}");
    }
    let export = provider.export(&allocation).expect("it can be exported");
    write(device, &stream, address, allocation.bytes as usize, 7)?;
    open_elsewhere(&allocation, &export, Seen::Memory);
    expect(device, &stream, address, allocation.bytes as usize, 9)
}

pub fn legacy(rig: &Rig) -> Outcome {
    let (raw, [device, _]) = (Raw::new(), rig.devices());
    let _scope = Scope::new(&raw, 0);
    let provider = cuda::provider(0)?;
    let some_rounds = || {
        (0..5).try_for_each(|_| {
            let memory = device.allocate(BYTES)?;
            round(rig, &provider, memory.at(0), BYTES, Kind::Legacy)
        })
    };
    // The driver keeps internal memory after the first mappings only.
    some_rounds()?;
    let before = free(&raw, 0);
    some_rounds()?;
    assert_eq!(free(&raw, 0), before, "memory of this GPU is still held");
    // Two allocations in one block.
    let (one, two) = (device.allocate(4096)?, device.allocate(4096)?);
    round(rig, &provider, one.at(0), 4096, Kind::Legacy)?;
    let stream = device.stream(Priority::Normal)?;
    write(device, &stream, two.at(0), 4096, 3)?;
    round(rig, &provider, one.at(0), 4096, Kind::Legacy)?;
    expect(device, &stream, two.at(0), 4096, 3)?;
    round(rig, &provider, two.at(0), 4096, Kind::Legacy)
}

pub fn virtual_memory(rig: &Rig) -> Outcome {
    let raw = Raw::new();
    let _scope = Scope::new(&raw, 0);
    let provider = cuda::provider(0)?;
    // Three adjacent physical memories, then one that is not exportable.
    let base = raw.made_of("cuMemAddressReserve", [4 * BYTES, 0, 0, 0]) as Address;
    (0..4).for_each(|piece| map_piece(&raw, 0, base as usize + piece * BYTES, piece < 3));
    round(rig, &provider, base, BYTES, Kind::Vmm)?;
    round(rig, &provider, base, 3 * BYTES, Kind::Vmm)?;
    let (one, three) = (provider.find(base, 8), provider.find(base, 3 * BYTES as u64));
    assert!(one != three && one.is_some_and(|one| !one.conflicts(&three.expect("memory"))));
    let last = provider.find(base + 3 * BYTES as u64, 8).expect("memory");
    assert_eq!(provider.export(&last).err(), Some(Refusal::NoHandleType));
    raw.call("cuMemUnmap", base as usize, 4 * BYTES, 0);
    assert_eq!(provider.find(base, 8), None);
    assert!([one, three].into_iter().flatten().all(|freed| !provider.still(&freed)));
    raw.call("cuMemAddressFree", base as usize, 4 * BYTES, 0);
    Ok(())
}

pub fn pools(rig: &Rig) -> Outcome {
    let provider = cuda::provider(0)?;
    let default = Foreign::new(0, Sort::DefaultPool, BYTES);
    let found = provider.find(default.address as Address, 8).expect("memory of the device");
    assert_eq!((found.kind, provider.export(&found).err()), (Kind::Pool, Some(Refusal::DefaultPool)));
    for _ in 0..3 {
        let memory = Foreign::new(0, Sort::Pool, BYTES);
        let address = memory.address as Address;
        round(rig, &provider, address, BYTES, Kind::Pool)?;
        let found = provider.find(address, 8).expect("memory of the device");
        drop(memory);
        assert_eq!(provider.find(address, 8), None);
        assert!(!provider.still(&found), "{found:?}");
    }
    Ok(())
}

/// Handles that are truncated, empty, or of something else.
pub fn forged(rig: &Rig) -> Outcome {
    let [device, _] = rig.devices();
    let provider = cuda::provider(0)?;
    let memory = device.allocate(BYTES)?;
    let allocation = provider.find(memory.at(0), 8).expect("memory of the device");
    for kind in [Kind::Legacy, Kind::Vmm, Kind::Pool] {
        for length in [0, 3, 8, 64, 80] {
            let file = std::fs::File::open("/dev/null").expect("a file");
            let export = Export { handle: vec![1; length], descriptors: vec![file.into()] };
            let opened = provider.open(&Allocation { kind, ..allocation }, export);
            assert!(opened.is_err(), "{kind}, {length} bytes: {opened:?}");
        }
    }
    assert_eq!(provider.adopt(&allocation), Ok(()));
    let other = Allocation { id: allocation.id + 1, ..allocation };
    assert_eq!(provider.adopt(&other), Err(Refusal::BadHandle));
    assert_eq!(device.failure(), None);
    let stream = device.stream(Priority::Normal)?;
    write(device, &stream, memory.at(0), BYTES, 1)?;
    expect(device, &stream, memory.at(0), BYTES, 1)
}

/// False claims about existing memory: a larger size, truncated or changed handles.
pub fn lies(rig: &Rig) -> Outcome {
    let provider = cuda::provider(0)?;
    let sorts = [Sort::Plain, Sort::Virtual { passed_on: true }, Sort::Pool];
    for sort in sorts {
        let memory = Foreign::new(0, sort, BYTES);
        let address = memory.address as Address;
        let allocation = provider.find(address, BYTES as u64).expect("memory of the device");
        let export = || provider.export(&allocation).expect("it can be exported");
        for bytes in [allocation.bytes + 1, 2 * allocation.bytes, 1 << 34] {
            open_elsewhere(&Allocation { bytes, ..allocation }, &export(), Seen::Nothing);
        }
        let mut cut = export();
        cut.handle.pop();
        open_elsewhere(&allocation, &cut, Seen::Nothing);
        open_elsewhere(&allocation, &Export { handle: Vec::new(), ..export() }, Seen::Nothing);
        if sort != Sort::Plain {
            open_elsewhere(&allocation, &Export { descriptors: Vec::new(), ..export() }, Seen::Nothing);
        }
        if let Sort::Virtual { .. } = sort {
            let longer = Export { handle: (allocation.bytes * 4).to_le_bytes().to_vec(), ..export() };
            open_elsewhere(&Allocation { bytes: allocation.bytes * 4, ..allocation }, &longer, Seen::Nothing);
        }
        // The true claim is still accepted.
        round(rig, &provider, address, allocation.bytes as usize, allocation.kind)?;
    }
    Ok(())
}
