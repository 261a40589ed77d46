//! Small programs on simulated devices. Correct ones pass under thousands of seeds; each is detected if one
//! piece of ordering is left out. `cargo test -p halocline-device --test it sim_hazards:: -- --nocapture`
//! prints the number of seeds needed.

use halocline_device::sim::{Kernel, KernelMemory, Options, Report, World, explore, find, run};
use halocline_device::{
    Device, DeviceError, Memory, Priority, Signal, Slot, Stream, TablePart, TableSpec, ValueOp,
};
use halocline_plan::ElementType;
use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op};
use halocline_plan::{AxisMap, BoxCells, Cells, Transfer};

/// The piece of ordering that a program leaves out; `ALL` leaves out none.
pub(super) type Without = u32;
const ALL: Without = 0;

const SEEDS: u64 = 2000;
/// Number of seeds within which a hazard must show.
const ENOUGH: u64 = 50;
pub(super) const BYTES: usize = 256;

pub(super) type Program = fn(&World, Without) -> Result<(), DeviceError>;

/// Checks that the program passes as it is, and fails without any of its pieces of ordering.
pub(super) fn check(name: &str, pieces: &[&str], program: Program) {
    let options = Options::default();
    explore(0..SEEDS, &options, |world| program(world, ALL).expect("no call is refused"));
    for (at, piece) in pieces.iter().enumerate() {
        let broken = |world: &World| program(world, at as Without + 1).expect("no call is refused");
        let found = find(0..ENOUGH, &options, broken);
        let found = found.unwrap_or_else(|| panic!("{name} without {piece}: {ENOUGH} seeds find nothing"));
        println!("{name} without {piece}: seed {} of {ENOUGH}: {}", found.tried, found.run.reports[0]);
        assert!(found.plainest.steps <= found.run.steps * 2, "shrinking made it longer");
    }
}

pub(super) fn devices(world: &World) -> Result<[Device; 2], DeviceError> {
    let devices = [world.device(0)?, world.device(1)?];
    devices[0].enable_peer(&devices[1])?;
    devices[1].enable_peer(&devices[0])?;
    Ok(devices)
}

pub(super) fn produce(
    world: &World,
    stream: &Stream,
    memory: &Memory,
    value: u64,
) -> Result<(), DeviceError> {
    let (base, words) = (memory.at(0), memory.place().bytes as u64 / 8);
    let kernel = Kernel::new("produce").writes(base, memory.place().bytes);
    world.launch(stream, kernel.body(move |m| (0..words).for_each(|at| m.write(base + 8 * at, value + at))))
}

pub(super) fn consume(
    world: &World,
    stream: &Stream,
    memory: &Memory,
    value: u64,
) -> Result<(), DeviceError> {
    let (base, words) = (memory.at(0), memory.place().bytes as u64 / 8);
    let kernel = Kernel::new("consume").reads(base, memory.place().bytes);
    let check = move |m: &mut KernelMemory<'_>| {
        (0..words).for_each(|at| assert_eq!(m.read(base + 8 * at), value + at, "word {at}"));
    };
    world.launch(stream, kernel.body(check))
}

fn write(memory: &Memory, value: u64) -> [ValueOp; 1] {
    [ValueOp::Write { address: memory.at(0), value }]
}

fn wait(memory: &Memory, at_least: u64) -> [ValueOp; 1] {
    [ValueOp::Wait { address: memory.at(0), at_least }]
}

/// Producer kernel, event, copy on another stream, event, consumer.
fn pipeline(world: &World, without: Without) -> Result<(), DeviceError> {
    let device = world.device(0)?;
    let (user, inner) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let (field, message) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let events = device.events();
    for epoch in 0..3 {
        let (begun, done) = (events.take()?, events.take()?);
        produce(world, &user, &field, 1000 * epoch)?;
        user.record(&begun)?;
        if without != 1 {
            inner.wait(&begun)?;
        }
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe { inner.copy(message.at(0), field.at(0), BYTES) }?;
        inner.record(&done)?;
        if without != 2 {
            user.wait(&done)?;
        }
        consume(world, &user, &message, 1000 * epoch)?;
    }
    assert!(events.made() == 2 && events.idle() == 2, "{events:?}");
    user.synchronise()?;
    if without != 3 {
        inner.synchronise()?;
    }
    Ok(())
}

#[test]
fn producer_copy_consumer() {
    let pieces = ["the wait for the producer", "the wait for the copy"];
    check("producer, copy, consumer", &pieces, pipeline);
}

/// Memory freed while a stream may still use it.
fn freed(world: &World, without: Without) -> Result<(), DeviceError> {
    let device = world.device(0)?;
    let stream = device.stream(Priority::Normal)?;
    let memory = device.allocate(BYTES)?;
    produce(world, &stream, &memory, 1)?;
    if without == ALL {
        stream.synchronise()?;
    }
    Ok(())
}

/// Two LL slots on the other device, written and unpacked by tables.
fn slots(world: &World, without: Without) -> Result<(), DeviceError> {
    let [here, there] = devices(world)?;
    let (sender, receiver) = (here.stream(Priority::Highest)?, there.stream(Priority::Highest)?);
    let (field, halo) = (here.allocate(BYTES)?, there.allocate(BYTES)?);
    let (slots, zeros) = (there.allocate(4 * BYTES)?, there.allocate_pinned(4 * BYTES)?);
    let words = here.allocate_pinned(16)?;
    let ops = [line(0, 0, BYTES)];
    let lag = if without == 1 { 3 } else { 2 };
    let waits = [Signal { address: words.at(0), lag }];
    let upload = |device: &Device, side, parity: usize| {
        let (slot, arrived, ready) = (slots.at(2 * BYTES * parity), [words.at(8)], [words.at(0)]);
        let early = TablePart { raises: &ready, ..TablePart::default() };
        if side == Slot::Written {
            let part =
                TablePart { waits: &waits, ops: &ops, raises: &arrived, slot: side, early: true, ..early };
            let (sources, targets) = ([field.at(0)], [slot]);
            let spec =
                TableSpec { parts: &[part], sources: &sources, targets: &targets, ..TableSpec::default() };
            return device.upload(&spec);
        }
        let part = TablePart { ops: &ops, slot: side, ..early };
        // Another part raises the flag that the slot is free.
        let apart = [early, TablePart { raises: &[], ..part }];
        let parts = if without == 2 { &apart[..] } else { std::slice::from_ref(&part) };
        device.upload(&TableSpec { parts, sources: &[slot], targets: &[halo.at(0)], ..TableSpec::default() })
    };
    // SAFETY: the streams are synchronised before the memory goes.
    unsafe { sender.copy(slots.at(0), zeros.at(0), 4 * BYTES) }?;
    sender.synchronise()?;
    let [writes, reads] = [(&here, Slot::Written), (&there, Slot::Awaited)]
        .map(|(device, flags)| [0, 1].map(|parity| upload(device, flags, parity)));
    for epoch in 1..=5u64 {
        produce(world, &sender, &field, epoch * 100)?;
        let at = epoch as usize % 2;
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe {
            sender.launch(writes[at].as_ref().map_err(Clone::clone)?, epoch)?;
            receiver.launch(reads[at].as_ref().map_err(Clone::clone)?, epoch)?;
        }
        consume(world, &receiver, &halo, epoch * 100)?;
    }
    sender.synchronise()?;
    receiver.synchronise()
}

#[test]
fn slots_of_the_ll_protocol() {
    check("slots", &["the wait for the slot", "the order of unpacking and its word"], slots);
}

#[test]
fn memory_freed_in_use() {
    check("memory freed", &["synchronisation"], freed);
}

/// Two mailbox slots on the other device; the flags lie in the memory of the side that polls them.
fn mailbox(world: &World, without: Without) -> Result<(), DeviceError> {
    let [here, there] = devices(world)?;
    let (sender, receiver) = (here.stream(Priority::Highest)?, there.stream(Priority::Highest)?);
    let (field, halo) = (here.allocate(BYTES)?, there.allocate(BYTES)?);
    let slots = [there.allocate(BYTES)?, there.allocate(BYTES)?];
    let (ready, arrived) = (here.allocate_pinned(8)?, there.allocate_pinned(8)?);
    for epoch in 1..=5u64 {
        let slot = &slots[epoch as usize % 2];
        produce(world, &sender, &field, epoch * 100)?;
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe {
            if without != 1 && epoch > 2 {
                sender.values(&wait(&ready, epoch - 2))?;
            }
            sender.copy(slot.at(0), field.at(0), BYTES)?;
            sender.values(&write(&arrived, epoch))?;
            if without != 2 {
                receiver.values(&wait(&arrived, epoch))?;
            } else {
                receiver.values(&wait(&arrived, epoch - 1))?;
            }
            receiver.copy(halo.at(0), slot.at(0), BYTES)?;
            if without != 3 {
                receiver.values(&write(&ready, epoch))?;
            } else {
                receiver.values(&write(&ready, epoch + 1))?;
            }
        }
        consume(world, &receiver, &halo, epoch * 100)?;
    }
    sender.synchronise()?;
    receiver.synchronise()
}

#[test]
fn mailbox_of_two_slots() {
    let pieces = ["the wait for ready", "the right epoch of arrived", "the right epoch of ready"];
    check("mailbox", &pieces, mailbox);
}

/// A run of bytes as a copy operation.
fn line(source: usize, target: usize, bytes: usize) -> CopyOp {
    let cells = || Cells::Box(BoxCells { low: vec![0], extent: vec![bytes] });
    let transfer = Transfer {
        from: 0,
        to: 0,
        source: cells(),
        target: cells(),
        map: AxisMap::IDENTITY,
        is_negated: false,
    };
    let layout = CellLayout {
        element: ElementType::U8,
        units: 1,
        name: None,
        axes: vec![AxisLayout { stride: 1, origin: 0, extent: bytes }],
        extra: Vec::new(),
    };
    copy_op(&transfer, (End::Field(source), &layout), (End::Field(target), &layout))
}

/// Two ranks, each a thread with a device, push halves of their field into each other's halo by copy tables
/// with flags, for five epochs.
fn ping_pong(world: &World, without: Without) -> Result<(), DeviceError> {
    let devices = devices(world)?;
    let allocate = |bytes| -> Result<Vec<Memory>, DeviceError> {
        devices.iter().map(|device| device.allocate(bytes)).collect()
    };
    let pinned = || -> Result<Vec<Memory>, DeviceError> {
        devices.iter().map(|device| device.allocate_pinned(8)).collect()
    };
    let (fields, halos) = (allocate(BYTES)?, allocate(BYTES)?);
    let (ready, arrived) = (pinned()?, pinned()?);
    let ended = world.ranks(2, |rank| -> Result<(), DeviceError> {
        let (device, peer) = (&devices[rank], 1 - rank);
        let (user, inner) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
        let events = device.events();
        let half = BYTES / 2;
        let ops = [line(0, 0, half), line(1, 1, half)];
        let waits = [Signal { address: ready[rank].at(0), lag: 0 }];
        let table = device.upload(&TableSpec {
            parts: &[TablePart {
                waits: &waits,
                ops: &ops,
                raises: &[arrived[peer].at(0)],
                early: true,
                ..TablePart::default()
            }],
            sources: &[fields[rank].at(0), fields[rank].at(half)],
            targets: &[halos[peer].at(0), halos[peer].at(half)],
            ..TableSpec::default()
        })?;
        for epoch in 1..=4u64 {
            let (given, done) = (events.take()?, events.take()?);
            produce(world, &user, &fields[rank], epoch * 100 + rank as u64)?;
            user.record(&given)?;
            if without != 1 {
                inner.wait(&given)?;
            }
            // SAFETY: the streams are synchronised before the memory goes.
            unsafe {
                let word = &ready[peer];
                inner.values(&write(word, if without == 2 { epoch + 1 } else { epoch }))?;
                inner.launch(&table, epoch)?;
                if without != 3 {
                    inner.values(&wait(&arrived[rank], epoch))?;
                }
            }
            inner.record(&done)?;
            if without != 4 {
                user.wait(&done)?;
            }
            consume(world, &user, &halos[rank], epoch * 100 + peer as u64)?;
        }
        user.synchronise()?;
        inner.synchronise()
    });
    ended.into_iter().flatten().collect()
}

#[test]
fn two_ranks_ping_pong() {
    let pieces = [
        "the wait for the producer",
        "the right epoch of ready",
        "the wait for arrived",
        "the wait for the exchange",
    ];
    check("ping-pong", &pieces, ping_pong);
}

/// Staging through the host: a thread copies between two pinned buffers, between two flags.
fn staging(world: &World, without: Without) -> Result<(), DeviceError> {
    let [here, there] = devices(world)?;
    let (sender, receiver) = (here.stream(Priority::Normal)?, there.stream(Priority::Normal)?);
    let (field, halo) = (here.allocate(BYTES)?, there.allocate(BYTES)?);
    let (out, into) = (here.allocate_pinned(BYTES)?, there.allocate_pinned(BYTES)?);
    let (packed, staged) = (here.allocate_pinned(8)?, there.allocate_pinned(8)?);
    produce(world, &sender, &field, 7)?;
    // SAFETY: the streams are synchronised before the memory goes; who accesses what when is what this is about.
    unsafe {
        sender.copy(out.at(0), field.at(0), BYTES)?;
        sender.values(&write(&packed, 1))?;
        if without != 1 {
            receiver.values(&wait(&staged, 1))?;
        }
        receiver.copy(halo.at(0), into.at(0), BYTES)?;
        consume(world, &receiver, &halo, 7)?;
        while without != 2 && packed.load(0) < 1 {
            world.pause();
        }
        into.bytes_mut(0..BYTES).copy_from_slice(out.bytes(0..BYTES));
        staged.store(0, 1);
    }
    sender.synchronise()?;
    receiver.synchronise()
}

#[test]
fn staging_through_the_host() {
    check("staging", &["the wait for the host", "the host's wait"], staging);
}

#[test]
fn a_link_of_a_table_without_a_wait_is_reported() {
    // Two links in one table: a wait for one does not wait for the other.
    fn two_links(world: &World, without: Without) -> Result<(), DeviceError> {
        let device = world.device(0)?;
        let (inner, user) = (device.stream(Priority::Highest)?, device.stream(Priority::Normal)?);
        let (field, halo) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
        let words = [device.allocate_pinned(8)?, device.allocate_pinned(8)?];
        let half = BYTES / 2;
        let parts = [[line(0, 0, half)], [line(1, 1, half)]];
        let raises = [[words[0].at(0)], [words[1].at(0)]];
        let part = |at: usize| TablePart {
            waits: &[],
            ops: &parts[at],
            raises: &raises[at],
            ..TablePart::default()
        };
        let table = device.upload(&TableSpec {
            parts: &[part(0), part(1)],
            sources: &[field.at(0), field.at(half)],
            targets: &[halo.at(0), halo.at(half)],
            ..TableSpec::default()
        })?;
        produce(world, &inner, &field, 5)?;
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe {
            inner.launch(&table, 1)?;
            user.values(&wait(&words[0], 1))?;
            if without != 1 {
                user.values(&wait(&words[1], 1))?;
            }
        }
        consume(world, &user, &halo, 5)?;
        user.synchronise()?;
        inner.synchronise()
    }
    check("two links", &["the wait for the second"], two_links);
}

#[test]
fn waiting_for_an_unrecorded_event_is_reported() {
    let found = find(0..1, &Options::default(), |world| {
        let device = world.device(0).expect("there is one");
        let stream = device.stream(Priority::Normal).expect("a stream");
        let event = device.events().take().expect("an event");
        stream.wait(&event).expect("means nothing");
    });
    let reports = found.expect("reported").run.reports;
    assert!(matches!(reports[..], [Report::EventNotRecorded { .. }]), "{reports:?}");
}

/// As in the kernel, a part that has begun to wait may have read the guard already.
#[test]
fn a_guard_that_is_set_during_a_wait_comes_too_late_or_in_time() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let raised = std::sync::atomic::AtomicU64::new(0);
        let run = run(seed, &Options::default(), |world| {
            let device = world.device(0).expect("a device");
            let one = device.stream(Priority::Normal).expect("a stream");
            let words = device.allocate_pinned(24).expect("memory");
            let (from, to) = (device.allocate(8).expect("memory"), device.allocate(8).expect("memory"));
            let waits = [Signal { address: words.at(0), lag: 0 }];
            let part = TablePart {
                waits: &waits,
                ops: &[line(0, 0, 8)],
                raises: &[words.at(8)],
                ..TablePart::default()
            };
            let (sources, targets) = ([from.at(0)], [to.at(0)]);
            let guard = Some(words.at(16));
            let spec = TableSpec {
                parts: &[part],
                sources: &sources,
                targets: &targets,
                guard,
                ..TableSpec::default()
            };
            let table = device.upload(&spec).expect("a table");
            // SAFETY: the stream is synchronised before the memory goes.
            unsafe {
                one.launch(&table, 1).expect("it is given");
                (0..3).for_each(|_| world.pause());
                words.store(16, 1);
                words.store(0, 1);
                one.synchronise().expect("it ends");
                raised.store(words.load(8), std::sync::atomic::Ordering::Relaxed);
            }
        });
        assert!(run.reports.is_empty(), "seed {seed}: {:?}", run.reports);
        seen.insert(raised.into_inner());
    }
    assert_eq!(seen, [0, 1].into());
}
