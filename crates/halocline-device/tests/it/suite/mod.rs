//! Conformance programs for every kind of device: small programs on two devices, correct under any timing.

mod carriers;
mod combines;
mod copies;
mod ll;
mod memory;
pub mod operations;

use halocline_device::{
    Device, DeviceError, Memory, Priority, Signal, Stream, TablePart, TableSpec, ValueOp,
};
use halocline_plan::copy::CopyOp;
use operations::line;

pub type Outcome = Result<(), DeviceError>;

/// A kind of device, with the kernels that the programs need.
pub trait Rig: Sync {
    /// Two devices with peer access, or one device twice.
    fn devices(&self) -> &[Device; 2];
    /// Launches a kernel that writes `value + i` to the 64-bit word i of the memory.
    fn fill(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome;
    /// Launches a kernel that checks that word i is `value + i`.
    fn check(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome;
    /// May launch a slow kernel.
    fn delay(&self, stream: &Stream) -> Outcome;
    /// Yields, in a loop that polls a word.
    fn pause(&self);
    /// Runs two threads to their ends.
    fn threads(&self, body: &(dyn Fn(usize) -> Outcome + Sync)) -> Outcome;
    /// Number of random cases.
    fn cases(&self) -> u32;
    /// Number of accesses of a part for which each of its blocks executes several items; at least 250.
    fn accesses(&self) -> usize;
}

type Program = fn(&dyn Rig) -> Outcome;

/// All programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("producer, copy, consumer", pipeline),
    ("mailbox of two slots between two devices", mailbox),
    ("two ranks push by copy tables with counters", ping_pong),
    ("staging through the host", staging),
    ("two links in one table", two_links),
    ("a waiting part blocks no other part", independent_parts),
    ("parts wait behind their epoch, but not below 0", lag),
    ("a wait uses the record of an event at the time of the call", event_meaning),
    ("words compare cyclically", cyclic_words),
    ("a guard keeps a table from copying and raising", guard),
    ("carriers of a part do many items each, or copy and raise nothing", carriers::carriers),
    ("words of slots carry their epoch", ll::words),
    ("a guard ends a wait for words of a slot", ll::guarded),
    ("copies other than words of 4 bytes into a slot are refused", ll::refusals),
    ("tables copy what their operations say", copies::copies),
    ("elements of several sources are added, then cleared", combines::sums),
    ("combinations that cannot be are refused", combines::refusals),
    ("bad calls are refused by name", refusals),
    ("memory is never taken for other memory", memory::identities),
    ("registered memory is reached like pinned memory", memory::registered),
    ("events come back to their pool", event_pool),
];

const BYTES: usize = 256;

fn write(memory: &Memory, value: u64) -> [ValueOp; 1] {
    [ValueOp::Write { address: memory.at(0), value }]
}

fn wait(memory: &Memory, at_least: u64) -> [ValueOp; 1] {
    [ValueOp::Wait { address: memory.at(0), at_least }]
}

fn pipeline(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (user, inner) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let (field, message) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let events = device.events();
    for epoch in 0..20 {
        let (begun, done) = (events.take()?, events.take()?);
        rig.delay(&user)?;
        rig.fill(&user, &field, 1000 * epoch)?;
        user.record(&begun)?;
        inner.wait(&begun)?;
        rig.delay(&inner)?;
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe { inner.copy(message.at(0), field.at(0), BYTES) }?;
        inner.record(&done)?;
        user.wait(&done)?;
        rig.check(&user, &message, 1000 * epoch)?;
    }
    assert!(events.made() == 2 && events.idle() == 2, "{events:?}");
    user.synchronise()?;
    inner.synchronise()
}

/// The `granted` and `arrived` flags lie in the memory of the side that polls them.
fn mailbox(rig: &dyn Rig) -> Outcome {
    let [here, there] = rig.devices();
    let (sender, receiver) = (here.stream(Priority::Highest)?, there.stream(Priority::Highest)?);
    let (field, halo) = (here.allocate(BYTES)?, there.allocate(BYTES)?);
    let slots = [there.allocate(BYTES)?, there.allocate(BYTES)?];
    let (ready, arrived) = (here.allocate_pinned(8)?, there.allocate_pinned(8)?);
    for epoch in 1..=20u64 {
        let slot = &slots[epoch as usize % 2];
        rig.delay(&sender)?;
        rig.fill(&sender, &field, epoch * 100)?;
        // SAFETY: the streams are synchronised before the memory goes.
        unsafe {
            if epoch > 2 {
                sender.values(&wait(&ready, epoch - 2))?;
            }
            sender.copy(slot.at(0), field.at(0), BYTES)?;
            sender.values(&write(&arrived, epoch))?;
            rig.delay(&receiver)?;
            receiver.values(&wait(&arrived, epoch))?;
            receiver.copy(halo.at(0), slot.at(0), BYTES)?;
            receiver.values(&write(&ready, epoch))?;
        }
        rig.check(&receiver, &halo, epoch * 100)?;
    }
    sender.synchronise()?;
    receiver.synchronise()
}

/// Each rank pushes both halves of its field into the other's halo, and waits within the launch.
fn ping_pong(rig: &dyn Rig) -> Outcome {
    let devices = rig.devices();
    let allocate = |bytes| -> Result<Vec<Memory>, DeviceError> {
        devices.iter().map(|device| device.allocate(bytes)).collect()
    };
    let pinned = || -> Result<Vec<Memory>, DeviceError> {
        devices.iter().map(|device| device.allocate_pinned(8)).collect()
    };
    let (fields, halos) = (allocate(BYTES)?, allocate(BYTES)?);
    let (ready, arrived) = (pinned()?, pinned()?);
    rig.threads(&|rank| {
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
        for epoch in 1..=10u64 {
            let (given, done) = (events.take()?, events.take()?);
            rig.delay(&user)?;
            rig.fill(&user, &fields[rank], epoch * 100 + rank as u64)?;
            user.record(&given)?;
            inner.wait(&given)?;
            // SAFETY: the streams are synchronised before the memory goes.
            unsafe {
                inner.values(&write(&ready[peer], epoch))?;
                inner.launch(&table, epoch)?;
                inner.values(&wait(&arrived[rank], epoch))?;
            }
            inner.record(&done)?;
            user.wait(&done)?;
            rig.check(&user, &halos[rank], epoch * 100 + peer as u64)?;
        }
        user.synchronise()?;
        inner.synchronise()
    })
}

/// A thread copies between two pinned buffers, between two flags.
fn staging(rig: &dyn Rig) -> Outcome {
    let [here, there] = rig.devices();
    let (sender, receiver) = (here.stream(Priority::Normal)?, there.stream(Priority::Normal)?);
    let (field, halo) = (here.allocate(BYTES)?, there.allocate(BYTES)?);
    let (out, into) = (here.allocate_pinned(BYTES)?, there.allocate_pinned(BYTES)?);
    let (packed, staged) = (here.allocate_pinned(8)?, there.allocate_pinned(8)?);
    rig.delay(&sender)?;
    rig.fill(&sender, &field, 7)?;
    // SAFETY: the streams are synchronised before the memory goes; words order who accesses what.
    unsafe {
        sender.copy(out.at(0), field.at(0), BYTES)?;
        sender.values(&write(&packed, 1))?;
        receiver.values(&wait(&staged, 1))?;
        receiver.copy(halo.at(0), into.at(0), BYTES)?;
        rig.check(&receiver, &halo, 7)?;
        while packed.load(0) < 1 {
            rig.pause();
        }
        into.bytes_mut(0..BYTES).copy_from_slice(out.bytes(0..BYTES));
        staged.store(0, 1);
    }
    sender.synchronise()?;
    receiver.synchronise()
}

fn two_links(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (inner, user) = (device.stream(Priority::Highest)?, device.stream(Priority::Normal)?);
    let (field, halo) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let words = [device.allocate_pinned(8)?, device.allocate_pinned(8)?];
    let half = BYTES / 2;
    let parts = [[line(0, 0, half)], [line(1, 1, half)]];
    let raises = [[words[0].at(0)], [words[1].at(0)]];
    let part =
        |at: usize| TablePart { waits: &[], ops: &parts[at], raises: &raises[at], ..TablePart::default() };
    let table = device.upload(&TableSpec {
        parts: &[part(0), part(1)],
        sources: &[field.at(0), field.at(half)],
        targets: &[halo.at(0), halo.at(half)],
        ..TableSpec::default()
    })?;
    rig.delay(&inner)?;
    rig.fill(&inner, &field, 5)?;
    // SAFETY: the streams are synchronised before the memory goes.
    unsafe {
        inner.launch(&table, 1)?;
        user.values(&wait(&words[0], 1))?;
        user.values(&wait(&words[1], 1))?;
    }
    rig.check(&user, &halo, 5)?;
    user.synchronise()?;
    inner.synchronise()
}

/// The first 39 of 40 parts wait for flags that the host raises only after it has seen the last part's
/// flag.
fn independent_parts(rig: &dyn Rig) -> Outcome {
    const PARTS: usize = 40;
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let (field, halo) = (device.allocate(PARTS * BYTES)?, device.allocate(PARTS * BYTES)?);
    let (go, arrived) = (device.allocate_pinned(8)?, device.allocate_pinned(8 * PARTS)?);
    let waits = [Signal { address: go.at(0), lag: 0 }];
    let ops: Vec<[CopyOp; 1]> = (0..PARTS).map(|part| [line(part, part, BYTES)]).collect();
    let raises: Vec<[u64; 1]> = (0..PARTS).map(|part| [arrived.at(8 * part)]).collect();
    let parts: Vec<TablePart<'_>> = (0..PARTS)
        .map(|part| TablePart {
            waits: if part + 1 < PARTS { &waits } else { &[] },
            ops: &ops[part],
            raises: &raises[part],
            ..TablePart::default()
        })
        .collect();
    let at = |memory: &Memory| (0..PARTS).map(|part| memory.at(part * BYTES)).collect::<Vec<_>>();
    let (sources, targets) = (at(&field), at(&halo));
    let table = device.upload(&TableSpec {
        parts: &parts,
        sources: &sources,
        targets: &targets,
        ..TableSpec::default()
    })?;
    for epoch in 1..=3 {
        rig.fill(&stream, &field, epoch)?;
        // SAFETY: the stream is synchronised before the memory goes.
        unsafe {
            stream.launch(&table, epoch)?;
            while arrived.load(8 * (PARTS - 1)) < epoch {
                rig.pause();
            }
            for part in 0..PARTS - 1 {
                assert!(arrived.load(8 * part) < epoch, "part {part} has not waited");
            }
            go.store(0, epoch);
        }
        rig.check(&stream, &halo, epoch)?;
        stream.synchronise()?;
        for part in 0..PARTS {
            // SAFETY: the words lie in pinned memory that tables and atomic operations alone write.
            assert_eq!(unsafe { arrived.load(8 * part) }, epoch, "part {part}");
        }
    }
    Ok(())
}

fn lag(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let (word, raised) = (device.allocate_pinned(8)?, device.allocate_pinned(8)?);
    let waits = [Signal { address: word.at(0), lag: 2 }];
    let parts = [TablePart { waits: &waits, ops: &[], raises: &[raised.at(0)], ..TablePart::default() }];
    let table =
        device.upload(&TableSpec { parts: &parts, sources: &[], targets: &[], ..TableSpec::default() })?;
    // SAFETY: the stream is synchronised before the memory goes.
    unsafe {
        // 1 - 2 and 2 - 2 are 0; 3 - 2 is not reached yet.
        stream.launch(&table, 1)?;
        stream.launch(&table, 2)?;
        stream.synchronise()?;
        assert_eq!(raised.load(0), 2);
        stream.launch(&table, 3)?;
        for _ in 0..10 {
            rig.pause();
            assert_eq!((raised.load(0), stream.query()?), (2, false));
        }
        word.store(0, 1);
        stream.synchronise()?;
        assert_eq!(raised.load(0), 3);
    }
    Ok(())
}

fn event_meaning(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (one, two) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let word = device.allocate_pinned(8)?;
    let event = device.events().take()?;
    one.record(&event)?;
    two.wait(&event)?;
    // SAFETY: both streams are synchronised before the memory goes. The second record of the event does not hold the
    // stream that waits for the first.
    unsafe {
        one.values(&wait(&word, 1))?;
        one.record(&event)?;
        two.values(&write(&word, 1))?;
    }
    two.synchronise()?;
    one.synchronise()?;
    assert_eq!(event.query(), Ok(true));
    Ok(())
}

fn cyclic_words(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let (word, raised) = (device.allocate_pinned(8)?, device.allocate_pinned(8)?);
    let waits = [Signal { address: word.at(0), lag: 0 }];
    let parts = [TablePart { waits: &waits, ops: &[], raises: &[raised.at(0)], ..TablePart::default() }];
    let table =
        device.upload(&TableSpec { parts: &parts, sources: &[], targets: &[], ..TableSpec::default() })?;
    // SAFETY: the stream is synchronised before the memory goes.
    unsafe {
        word.store(0, 2);
        stream.values(&wait(&word, u64::MAX))?;
        stream.launch(&table, u64::MAX - 1)?;
        stream.synchronise()?;
        assert_eq!(raised.load(0), u64::MAX - 1);
    }
    Ok(())
}

fn guard(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    let (words, go) = (device.allocate_pinned(24)?, device.allocate_pinned(8)?);
    let (field, halo) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
    let ops = [line(0, 0, BYTES)];
    let waits = [Signal { address: go.at(0), lag: 0 }];
    for waits in [&[][..], &waits] {
        let (first, second) = ([words.at(0)], [words.at(8)]);
        let parts = [
            TablePart { waits, ops: &ops, raises: &first, ..TablePart::default() },
            TablePart { waits, ops: &[], raises: &second, ..TablePart::default() },
        ];
        let table = device.upload(&TableSpec {
            parts: &parts,
            sources: &[field.at(0)],
            targets: &[halo.at(0)],
            guard: Some(words.at(16)),
            ..TableSpec::default()
        })?;
        // SAFETY: the stream is synchronised before the memory goes, and before the host writes words.
        unsafe {
            (0..3).for_each(|word| words.store(8 * word, 0));
            go.store(0, 3);
            rig.fill(&stream, &field, 50)?;
            stream.launch(&table, 1)?;
            rig.fill(&stream, &field, 60)?;
            stream.synchronise()?;
            assert_eq!((words.load(0), words.load(8)), (1, 1));
            words.store(16, 1);
            stream.launch(&table, 2)?;
            rig.check(&stream, &halo, 50)?;
            stream.synchronise()?;
            assert_eq!((words.load(0), words.load(8)), (1, 1));
            words.store(16, 0);
            stream.launch(&table, 3)?;
            rig.check(&stream, &halo, 60)?;
            stream.synchronise()?;
            assert_eq!((words.load(0), words.load(8)), (3, 3));
            if !waits.is_empty() {
                // Poison is visible by itself: a part that read the guard earlier has not seen it set.
                go.store(0, 1 << 62);
                rig.fill(&stream, &field, 70)?;
                stream.launch(&table, 4)?;
                rig.check(&stream, &halo, 60)?;
                stream.synchronise()?;
                assert_eq!((words.load(0), words.load(8)), (3, 3));
            }
        }
    }
    Ok(())
}

fn refusals(rig: &dyn Rig) -> Outcome {
    let [device, other] = rig.devices();
    let stream = device.stream(Priority::Normal)?;
    // SAFETY: the first handle is of a stream that lives; 0 is the default stream.
    unsafe {
        assert!(device.borrow_stream(stream.raw()).is_ok());
        assert!(device.borrow_stream(halocline_device::RawStream(0)).is_ok());
    }
    let near = device.allocate(64)?;
    let on_stack = [0u8; 16];
    let host = on_stack.as_ptr().expose_provenance() as u64;
    let refused = |outcome: Outcome| outcome.expect_err("refused");
    let beyond = DeviceError::OutOfBounds { address: near.at(8), bytes: 64, base: near.at(0), len: 64 };
    // SAFETY: the device refuses all of these, so that nothing is accessed.
    unsafe {
        let word = |address| refused(stream.values(&[ValueOp::Write { address, value: 1 }]));
        assert_eq!(word(near.at(4)), DeviceError::Misaligned { address: near.at(4) });
        assert_eq!(word(host), DeviceError::NotReachable { address: host, bytes: 8 });
        assert_eq!(refused(stream.copy(near.at(0), near.at(8), 64)), beyond);
        assert_eq!(
            refused(stream.copy(host, near.at(0), 8)),
            DeviceError::NotReachable { address: host, bytes: 8 }
        );
    }
    let ops = [line(0, 0, 64)];
    let table = |sources: &[u64], targets: &[u64]| {
        let parts = [TablePart { waits: &[], ops: &ops, raises: &[], ..TablePart::default() }];
        device.upload(&TableSpec { parts: &parts, sources, targets, ..TableSpec::default() }).map(drop)
    };
    assert_eq!(refused(table(&[near.at(8)], &[near.at(0)])), beyond);
    assert_eq!(
        refused(table(&[near.at(0)], &[host])),
        DeviceError::NotReachable { address: host, bytes: 64 }
    );
    assert_eq!(
        refused(table(&[near.at(0)], &[])),
        DeviceError::NoBuffer { side: "target", index: 0, count: 0 }
    );
    if device.ordinal() != other.ordinal() {
        let theirs = other.stream(Priority::Normal)?;
        // SAFETY: `theirs` lives until the end of the test.
        let borrowed = unsafe { device.borrow_stream(theirs.raw()) }.err();
        let actual = other.ordinal();
        assert!(
            matches!(borrowed, Some(DeviceError::OtherDevice { actual: a, .. }) if a == actual),
            "{borrowed:?}"
        );
        let event = other.events().take()?;
        let recorded = refused(stream.record(&event));
        assert!(matches!(recorded, DeviceError::OtherDevice { what: "event", .. }), "{recorded:?}");
    }
    // The refused calls had no effect.
    rig.fill(&stream, &near, 1)?;
    rig.check(&stream, &near, 1)?;
    stream.synchronise()
}

fn event_pool(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (one, two) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let pool = device.events();
    for _ in 0..10 {
        let (a, b) = (pool.take()?, pool.take()?);
        one.record(&a)?;
        two.wait(&a)?;
        two.record(&b)?;
        one.wait(&b)?;
    }
    assert_eq!((pool.made(), pool.idle()), (2, 2));
    pool.reserve(4)?;
    let taken = [pool.take()?, pool.take()?, pool.take()?, pool.take()?];
    assert_eq!((pool.made(), pool.idle()), (4, 0));
    drop(taken);
    one.synchronise()?;
    two.synchronise()
}
