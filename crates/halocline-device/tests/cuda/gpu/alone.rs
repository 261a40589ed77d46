//! GPU-only tests.

use super::Rig;
use super::children::{fault, killed, queues};
use super::mappings;
use super::raw::Raw;
use crate::suite::operations::{blocks, line};
use crate::suite::{Outcome, Rig as _};
use halocline_device::{
    Address, DeviceError, MemorySpace, Priority, RawStream, Signal, TablePart, TableSpec, ValueOp,
};
use halocline_plan::ElementType;
use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op};
use halocline_plan::{AxisMap, Cells, Transfer};

type Program = fn(&Rig) -> Outcome;

pub const TESTS: &[(&str, Program)] = &[
    ("10,000 epochs of two ranks without the host waiting", many_epochs),
    ("a table is whole when its upload returns", uploads),
    ("more than 2^31 bytes and 65,535 blocks", large),
    ("more than 524,280 listed cells", many_cells),
    ("a GPU full of another kernel still does what is waited for", full),
    ("no memory is a refusal, and no harm", no_memory),
    ("streams of other libraries are borrowed, those of other contexts refused", borrowed),
    ("whichever context is current stays so", contexts),
    (
        "twelve streams that wait leave queues to one more, but not of the eight that CUDA has by itself",
        queues,
    ),
    ("a stream that was given back is used again, once it has done its work", used_again),
    ("streams are captured while others ask, allocate and free", captured),
    ("memory of pools is reached, and managed memory", pools),
    ("memory of cudaMalloc is mapped by another process", mappings::legacy),
    ("virtual memory is mapped by another process, side by side", mappings::virtual_memory),
    (
        "memory of an exportable pool is mapped by another process, that of the default one refused",
        mappings::pools,
    ),
    ("handles of nothing are refused", mappings::forged),
    ("lies about memory that is there are refused", mappings::lies),
    ("a killed process leaves the GPU usable", killed),
    ("a fault is said by every later call", fault),
];

/// Two ranks on one or two GPUs push and check, each by its own launches, far ahead of the GPU.
fn many_epochs(rig: &Rig) -> Outcome {
    const BYTES: usize = 64 << 10;
    let devices = rig.devices();
    let (mut fields, mut halos, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for device in devices {
        fields.push(device.allocate(BYTES)?);
        halos.push(device.allocate(BYTES)?);
        let (word, zeros) = (device.allocate(256)?, device.allocate_pinned(256)?);
        let stream = device.stream(Priority::Normal)?;
        // SAFETY: nothing else uses the memory before the stream is synchronised.
        unsafe { stream.copy(word.at(0), zeros.at(0), 256) }?;
        stream.synchronise()?;
        words.push(word);
    }
    rig.threads(&|rank| {
        let (device, peer) = (&devices[rank], 1 - rank);
        let stream = device.stream(Priority::Highest)?;
        let ops = [line(0, 0, BYTES)];
        // `granted` at offset 0 and `arrived` at offset 64 of the waiting side's words.
        let table = device.upload(&TableSpec {
            parts: &[TablePart {
                waits: &[],
                ops: &ops,
                raises: &[words[peer].at(64)],
                ..TablePart::default()
            }],
            sources: &[fields[rank].at(0)],
            targets: &[halos[peer].at(0)],
            ..TableSpec::default()
        })?;
        for epoch in 1..=10_000u64 {
            rig.fill(&stream, &fields[rank], epoch << 32 | rank as u64)?;
            // SAFETY: the streams are synchronised before the memory goes.
            unsafe {
                stream.values(&[
                    ValueOp::Write { address: words[peer].at(0), value: epoch },
                    ValueOp::Wait { address: words[rank].at(0), at_least: epoch },
                ])?;
                stream.launch(&table, epoch)?;
                stream.values(&[ValueOp::Wait { address: words[rank].at(64), at_least: epoch }])?;
            }
            rig.check(&stream, &halos[rank], epoch << 32 | peer as u64)?;
        }
        stream.synchronise()
    })
}

pub fn table<'a>(parts: &'a [TablePart<'a>], ends: &'a ([Address; 1], [Address; 1])) -> TableSpec<'a> {
    TableSpec { parts, sources: &ends.0, targets: &ends.1, ..TableSpec::default() }
}

/// A table ends with its counters: bytes that arrive late would reset what the first launch has counted.
fn uploads(rig: &Rig) -> Outcome {
    const BYTES: usize = 64 << 20;
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let (field, halo) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let raised = device.allocate_pinned(8)?;
    for count in [1, 10, 100, 1000, 3000] {
        let each = |at: usize| {
            let mut op = line(0, 0, 8192);
            (op.source_offset, op.target_offset) = (at as isize * 8192, at as isize * 8192);
            op
        };
        let ops: Vec<CopyOp> = (0..count).map(each).collect();
        let raises = [raised.at(0)];
        let parts = [TablePart { waits: &[], ops: &ops, raises: &raises, ..TablePart::default() }];
        for round in 0..40 {
            let table = device.upload(&table(&parts, &([field.at(0)], [halo.at(0)])))?;
            let epoch = 100 * count as u64 + round;
            // SAFETY: the stream is synchronised before the memory and the table go. Streams and atomic operations
            // alone write the word.
            let raised = unsafe {
                stream.launch(&table, epoch)?;
                stream.synchronise()?;
                raised.load(0)
            };
            assert_eq!(raised, epoch, "{count} operations, round {round}");
        }
    }
    Ok(())
}

fn large(rig: &Rig) -> Outcome {
    const BYTES: usize = 9 << 30;
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let (source, target) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let ends = ([source.at(0)], [target.at(0)]);
    let check = |op: CopyOp, value: u64| -> Outcome {
        let ops = [op];
        let parts = [TablePart { ops: &ops, ..TablePart::default() }];
        let table = device.upload(&table(&parts, &ends))?;
        rig.fill(&stream, &source, value)?;
        // SAFETY: the stream is synchronised before the table goes, and nothing else uses the memory meanwhile.
        unsafe { stream.launch(&table, 1) }?;
        rig.check(&stream, &target, value)?;
        stream.synchronise()
    };
    // One block; rows of 24 bytes; columns, that is, the same bytes permuted.
    check(line(0, 0, BYTES), 1)?;
    check(blocks(BYTES / 24, 24, 24, 24), 2)?;
    let rows = blocks(BYTES / 4096, 2048, 4096, 4096);
    let mut halves = [rows.clone(), rows];
    (halves[1].source_offset, halves[1].target_offset) = (2048, 2048);
    let parts = [
        TablePart { ops: &halves[..1], ..TablePart::default() },
        TablePart { ops: &halves[1..], ..TablePart::default() },
    ];
    let table = device.upload(&table(&parts, &ends))?;
    rig.fill(&stream, &source, 3)?;
    // SAFETY: the stream is synchronised before the table goes, and nothing else uses the memory meanwhile.
    unsafe { stream.launch(&table, 1) }?;
    rig.check(&stream, &target, 3)?;
    stream.synchronise()
}

/// Permutes cells and restores them, with lists of single cells of one and of nine words.
fn many_cells(rig: &Rig) -> Outcome {
    const CELLS: usize = 2_000_003;
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    for words in [1usize, 9] {
        let bytes = CELLS * words * 8;
        let (field, mixed, back) =
            (device.allocate(bytes)?, device.allocate(bytes)?, device.allocate(bytes)?);
        // A prime number of cells, so multiples of a number form a permutation.
        let order: Vec<u32> = (0..CELLS).map(|at| (at * 777_767 % CELLS) as u32).collect();
        let layout = CellLayout {
            element: ElementType::U64,
            units: 1,
            name: None,
            axes: vec![AxisLayout { stride: 8 * words as isize, origin: 0, extent: CELLS }],
            extra: if words == 1 { Vec::new() } else { vec![(words, 8)] },
        };
        let cells = |order: Vec<u32>| Cells::from_indices(order);
        let (straight, permuted) = (|| cells((0..CELLS as u32).collect()), || cells(order.clone()));
        let transfer = |source, target| Transfer {
            from: 0,
            to: 0,
            source,
            target,
            map: AxisMap::IDENTITY,
            is_negated: false,
        };
        let op = |transfer: &Transfer| copy_op(transfer, (End::Field(0), &layout), (End::Field(0), &layout));
        let ops = [[op(&transfer(straight(), permuted()))], [op(&transfer(permuted(), straight()))]];
        let parts = ops.each_ref().map(|ops| [TablePart { ops, ..TablePart::default() }]);
        let there = device.upload(&table(&parts[0], &([field.at(0)], [mixed.at(0)])))?;
        let again = device.upload(&table(&parts[1], &([mixed.at(0)], [back.at(0)])))?;
        rig.fill(&stream, &field, 5)?;
        // SAFETY: the stream is synchronised before the memory and the tables go, and nothing else uses the memory
        // meanwhile.
        unsafe {
            stream.launch(&there, 1)?;
            stream.launch(&again, 1)?;
        }
        rig.check(&stream, &back, 5)?;
        stream.synchronise()?;
    }
    Ok(())
}

/// A long kernel fills the GPU, a launch waits within it, and a stream operation releases it.
pub fn full(rig: &Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (user, inner) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let (field, halo) = (device.allocate(8 << 20)?, device.allocate(8 << 20)?);
    let word = device.allocate_pinned(8)?;
    let ops = [line(0, 0, 8 << 20)];
    let waits = [Signal { address: word.at(0), lag: 0 }];
    let parts = [TablePart { waits: &waits, ops: &ops, raises: &[], ..TablePart::default() }];
    let table = device.upload(&table(&parts, &([field.at(0)], [halo.at(0)])))?;
    for epoch in 1..=5 {
        rig.fill(&inner, &field, epoch)?;
        rig.gpu(&user).delay_all(&user, 3_000_000)?;
        // SAFETY: the streams are synchronised before the memory and the table go. Streams and atomic operations alone
        // write the word.
        unsafe {
            inner.launch(&table, epoch)?;
            user.values(&[ValueOp::Write { address: word.at(0), value: epoch }])?;
        }
        rig.check(&inner, &halo, epoch)?;
        inner.synchronise()?;
        user.synchronise()?;
    }
    Ok(())
}

pub fn no_memory(rig: &Rig) -> Outcome {
    let [device, _] = rig.devices();
    let space = MemorySpace::Device(0);
    let refused = device.allocate(1 << 46).err();
    assert_eq!(refused, Some(DeviceError::OutOfMemory { space, bytes: 1 << 46 }));
    assert_eq!(device.failure(), None);
    device.allocate(1 << 20).map(drop)
}

fn borrowed(rig: &Rig) -> Outcome {
    let (raw, [device, _]) = (Raw::new(), rig.devices());
    let primary = raw.made("cuDevicePrimaryCtxRetain", 0, 0);
    raw.call("cuCtxPushCurrent_v2", primary, 0, 0);
    let theirs = RawStream(raw.made("cuStreamCreate", 1, 0));
    let (field, halo) = (device.allocate(1 << 20)?, device.allocate(1 << 20)?);
    {
        // SAFETY: `cuStreamDestroy_v2` is called below, after the block in which the borrowed stream lives.
        let stream = unsafe { device.borrow_stream(theirs) }?;
        rig.fill(&stream, &field, 9)?;
        // SAFETY: the stream is synchronised before the memory goes, and nothing else uses the memory meanwhile.
        unsafe { stream.copy(halo.at(0), field.at(0), 1 << 20) }?;
        rig.check(&stream, &halo, 9)?;
        stream.synchronise()?;
    }
    // It still exists.
    raw.call("cuStreamSynchronize", theirs.0, 0, 0);
    raw.call("cuStreamDestroy_v2", theirs.0, 0, 0);
    raw.made("cuCtxPopCurrent_v2", 0, 0);
    let context = raw.made("cuCtxCreate_v2", 0, 0);
    let foreign = RawStream(raw.made("cuStreamCreate", 1, 0));
    // SAFETY: the stream lives until `cuStreamDestroy_v2` is called below; nothing is borrowed, for the device refuses
    // it.
    let refused = unsafe { device.borrow_stream(foreign) }.err();
    assert_eq!(refused, Some(DeviceError::OtherContext { stream: foreign.0, device: 0 }));
    raw.call("cuStreamDestroy_v2", foreign.0, 0, 0);
    raw.call("cuCtxDestroy_v2", context, 0, 0);
    raw.call("cuDevicePrimaryCtxRelease_v2", 0, 0, 0);
    Ok(())
}

/// A capture in global mode forbids unsafe calls of all threads, and such a call invalidates it. The
/// library's own calls (its progress thread queries events and streams, frees, reads words) do not affect
/// the capture.
fn captured(rig: &Rig) -> Outcome {
    const GLOBAL: usize = 0;
    let (raw, [device, _]) = (Raw::new(), rig.devices());
    let (captured, other) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let (event, word) = (device.events().take()?, device.allocate_pinned(8)?);
    other.record(&event)?;
    rig.gpu(&captured).empty(&captured)?;
    captured.synchronise()?;
    let ask = || -> Outcome {
        while !event.query()? || !other.query()? {
            std::thread::yield_now();
        }
        // SAFETY: the word lies in pinned memory that lives until `synchronise` below, and nothing writes it.
        assert_eq!(unsafe { other.peek(word.at(0)) }?, Some(0));
        other.synchronise()?;
        drop(device.allocate(1 << 20)?);
        drop(device.allocate_pinned(64)?);
        Ok(())
    };
    let mut outcome = Ok(());
    let mut capture = || {
        raw.call("cuStreamBeginCapture_v2", captured.raw().0, GLOBAL, 0);
        outcome = std::thread::scope(|scope| scope.spawn(ask).join().expect("no panic"))
            .and_then(|()| ask())
            .and_then(|()| rig.gpu(&captured).empty(&captured));
        let graph = raw.made_by("cuStreamEndCapture", captured.raw().0);
        raw.call("cuGraphDestroy", graph, 0, 0);
    };
    device.driver().within(&mut capture);
    outcome
}

fn contexts(rig: &Rig) -> Outcome {
    let (raw, [device, other]) = (Raw::new(), rig.devices());
    let before = raw.made("cuCtxGetCurrent", 0, 0);
    for device in [device, other] {
        let stream = device.stream(Priority::Normal)?;
        let memory = device.allocate(64)?;
        rig.fill(&stream, &memory, 1)?;
        stream.synchronise()?;
        assert_eq!(raw.made("cuCtxGetCurrent", 0, 0), before);
    }
    Ok(())
}

/// Memory that other libraries allocate by means other than `cuMemAlloc`.
fn pools(rig: &Rig) -> Outcome {
    const BYTES: usize = 1 << 20;
    let (raw, [device, _]) = (Raw::new(), rig.devices());
    let stream = device.stream(Priority::Normal)?;
    let primary = raw.made("cuDevicePrimaryCtxRetain", 0, 0);
    raw.call("cuCtxPushCurrent_v2", primary, 0, 0);
    let pooled = raw.made("cuMemAllocAsync", BYTES, stream.raw().0);
    let managed = raw.made("cuMemAllocManaged", BYTES, 1);
    let source = device.allocate(BYTES)?;
    let ops = [line(0, 0, BYTES)];
    let parts = [TablePart { ops: &ops, ..TablePart::default() }];
    for (memory, value) in [(pooled, 1), (managed, 2)] {
        let memory = memory as Address;
        let place = device.place_of(memory + 8)?;
        assert!(
            place.base <= memory && place.base + place.bytes as u64 >= memory + BYTES as u64,
            "{place:?}"
        );
        let there = device.upload(&table(&parts, &([source.at(0)], [memory])))?;
        let back = device.upload(&table(&parts, &([memory], [source.at(0)])))?;
        rig.fill(&stream, &source, value)?;
        // SAFETY: the stream is synchronised before the memory and the tables go, and nothing else uses the memory
        // meanwhile.
        unsafe {
            stream.launch(&there, 1)?;
            rig.fill(&stream, &source, 0)?;
            stream.launch(&back, 1)?;
        }
        rig.check(&stream, &source, value)?;
        stream.synchronise()?;
    }
    let before = device.place_of(pooled as Address)?;
    raw.call("cuMemFreeAsync", pooled, stream.raw().0, 0);
    stream.synchronise()?;
    let freed = device.place_of(pooled as Address);
    assert!(matches!(freed, Err(DeviceError::NotReachable { .. })), "{freed:?}");
    let freed = device.identity(pooled as Address);
    assert!(matches!(freed, Err(DeviceError::NotReachable { .. })), "{freed:?}");
    let again = raw.made("cuMemAllocAsync", BYTES, stream.raw().0);
    let now = device.place_of(again as Address)?;
    assert_ne!(now.id, before.id, "{again:#x} after {pooled:#x}");
    assert_eq!(device.identity(again as Address)?, now.id);
    raw.call("cuMemFreeAsync", again, stream.raw().0, 0);
    raw.call("cuMemFree_v2", managed, 0, 0);
    stream.synchronise()?;
    raw.made("cuCtxPopCurrent_v2", 0, 0);
    raw.call("cuDevicePrimaryCtxRelease_v2", 0, 0, 0);
    Ok(())
}

fn used_again(rig: &Rig) -> Outcome {
    let device = &rig.devices()[0];
    let (word, first) = (device.allocate_pinned(8)?, device.stream(Priority::Normal)?);
    let raw = first.raw();
    // SAFETY: the word lives until the stream is idle, for which the test waits below. Only atomic
    // operations write it.
    unsafe { first.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]) }?;
    drop(first);
    let busy: Vec<_> = (0..4).map(|_| device.stream(Priority::Normal)).collect::<Result<_, _>>()?;
    assert!(busy.iter().all(|stream| stream.raw() != raw), "a stream that waits is given again");
    // SAFETY: streams and atomic operations alone access the word.
    unsafe { word.store(0, 1) };
    // SAFETY: the library never destroys a stream of its own while its device is there; it keeps it for others.
    unsafe { device.borrow_stream(raw) }?.synchronise()?;
    // After those that other tests returned.
    let mut taken = Vec::new();
    while taken.len() < 1000 && taken.last() != Some(&raw) {
        let stream = device.stream(Priority::Normal)?;
        taken.push(stream.raw());
        std::mem::forget(stream);
    }
    assert_eq!(taken.last(), Some(&raw), "it was not given again");
    let made = device.stream(Priority::Highest)?.raw();
    assert_ne!(made, raw, "a stream of another priority");
    Ok(())
}
