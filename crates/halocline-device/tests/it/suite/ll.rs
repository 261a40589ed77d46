//! LL slots, whose words carry their epoch.

use super::operations::{line, scatter};
use super::{Outcome, Rig};
use halocline_device::{
    CopyTable, Device, DeviceError, Memory, Priority, Signal, Slot, Stream, TablePart, TableSpec,
};
use halocline_plan::copy::CopyOp;

const WORDS: usize = 24;
const BYTES: usize = 8 * WORDS;
/// The second half begins one 4-byte word after the end of the first.
const MESSAGE: usize = BYTES + 4;
/// Distance between slots.
const SLOT: usize = (2 * MESSAGE).next_multiple_of(16);

/// Operations between a field and a message: half of the words permuted by lists, and half of the bytes in
/// order.
fn ops(packs: bool) -> [CopyOp; 2] {
    let half = WORDS as u32 / 2;
    // 5 is coprime to 12, and its own inverse modulo 12.
    let first = scatter(&(0..half).map(|at| at * 5 % half).collect::<Vec<_>>());
    let mut second = line(0, 0, BYTES / 2);
    let (field, message) = (BYTES as isize / 2, BYTES as isize / 2 + 4);
    (second.source_offset, second.target_offset) = if packs { (field, message) } else { (message, field) };
    [first, second]
}

/// A zeroed slot.
fn slots(device: &Device) -> Result<Memory, DeviceError> {
    let (slots, zeros) = (device.allocate(2 * SLOT)?, device.allocate_pinned(2 * SLOT)?);
    let stream = device.stream(Priority::Normal)?;
    // SAFETY: the stream is synchronised before the memory goes.
    unsafe { stream.copy(slots.at(0), zeros.at(0), 2 * SLOT) }?;
    stream.synchronise()?;
    Ok(slots)
}

/// The tables of one side, for even epochs and odd ones.
fn tables(
    device: &Device,
    (side, waits, raises): (Slot, &[Signal], u64),
    (field, slots): (&Memory, &Memory),
    guard: &Memory,
) -> Result<Vec<CopyTable>, DeviceError> {
    let ops = ops(side == Slot::Written);
    let table = |parity: usize| {
        let (field, slot) = ([field.at(0)], [slots.at(parity * SLOT)]);
        let (sources, targets) = if side == Slot::Written { (&field, &slot) } else { (&slot, &field) };
        let parts = [TablePart { waits, ops: &ops, raises: &[raises], slot: side, ..TablePart::default() }];
        device.upload(&TableSpec {
            parts: &parts,
            sources,
            targets,
            guard: Some(guard.at(0)),
            ..TableSpec::default()
        })
    };
    (0..2).map(table).collect()
}

/// The sender is up to two epochs ahead of the receiver and waits only for the slot; the receiver waits
/// only for the words.
pub(super) fn words(rig: &dyn Rig) -> Outcome {
    let [here, there] = rig.devices();
    let (sender, receiver) = (here.stream(Priority::Highest)?, there.stream(Priority::Highest)?);
    let (field, halo, slots) = (here.allocate(BYTES)?, there.allocate(BYTES)?, slots(there)?);
    let (words, guard) = (here.allocate_pinned(16)?, here.allocate_pinned(8)?);
    let (ready, arrived) = (words.at(0), words.at(8));
    let waits = [Signal { address: ready, lag: 2 }];
    let writes = tables(here, (Slot::Written, &waits, arrived), (&field, &slots), &guard)?;
    let reads = tables(there, (Slot::Awaited, &[], ready), (&halo, &slots), &guard)?;
    for epoch in 1..=20u64 {
        let launch = |stream: &Stream, tables: &[CopyTable]| {
            rig.delay(stream)?;
            // SAFETY: the streams are synchronised before the memory goes.
            unsafe { stream.launch(&tables[epoch as usize % 2], epoch) }
        };
        rig.fill(&sender, &field, epoch * 100)?;
        launch(&sender, &writes)?;
        launch(&receiver, &reads)?;
        rig.check(&receiver, &halo, epoch * 100)?;
    }
    sender.synchronise()?;
    receiver.synchronise()?;
    // SAFETY: the words lie in pinned memory that tables and atomic operations alone write.
    assert_eq!(unsafe { (words.load(0), words.load(8)) }, (20, 20));
    Ok(())
}

/// A missing word is awaited until the guard is set; then no flag is raised.
pub(super) fn guarded(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let (field, halo, slots) = (device.allocate(BYTES)?, device.allocate(BYTES)?, slots(device)?);
    let (words, guard) = (device.allocate_pinned(16)?, device.allocate_pinned(8)?);
    let writes = tables(device, (Slot::Written, &[], words.at(8)), (&field, &slots), &guard)?;
    let reads = tables(device, (Slot::Awaited, &[], words.at(0)), (&halo, &slots), &guard)?;
    // SAFETY: the stream is synchronised before the memory goes, and before the host looks at what it has copied.
    unsafe {
        rig.fill(&stream, &field, 500)?;
        stream.launch(&writes[1], 1)?;
        stream.launch(&reads[1], 1)?;
        stream.synchronise()?;
        assert_eq!((words.load(0), words.load(8)), (1, 1));
        // Words of epoch 1 do not satisfy epoch 3.
        stream.launch(&reads[1], 3)?;
        for _ in 0..10 {
            rig.pause();
            assert_eq!((words.load(0), stream.query()?), (1, false));
        }
        guard.store(0, 1);
        stream.synchronise()?;
        assert_eq!(words.load(0), 1);
        rig.fill(&stream, &field, 600)?;
        stream.launch(&writes[1], 3)?;
        stream.synchronise()?;
        assert_eq!(words.load(8), 1);
        rig.check(&stream, &halo, 500)?;
        guard.store(0, 0);
        stream.launch(&writes[1], 3)?;
        stream.launch(&reads[1], 3)?;
        rig.check(&stream, &halo, 600)?;
        stream.synchronise()?;
        assert_eq!((words.load(0), words.load(8)), (3, 3));
    }
    Ok(())
}

/// Refuses blocks that are not 4-byte words, slots not aligned to 16 bytes, and ranges outside the slot.
pub(super) fn refusals(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let (field, slot) = (device.allocate(64)?, device.allocate(128)?);
    let refused = |op: CopyOp, (source, target): (u64, u64), slot| {
        let ops = [op];
        let parts = [TablePart { ops: &ops, slot, ..TablePart::default() }];
        let table =
            TableSpec { parts: &parts, sources: &[source], targets: &[target], ..TableSpec::default() };
        device.upload(&table).err()
    };
    let (from, to) = (field.at(0), slot.at(0));
    let none = |source_address, target_address, block| {
        Some(DeviceError::LlAlignment { source_address, target_address, block })
    };
    for (slot, (source, target)) in [(Slot::Written, (from, to)), (Slot::Awaited, (to, from))] {
        assert_eq!(refused(line(0, 0, 64), (source, target), slot), None);
        assert_eq!(refused(line(0, 0, 6), (source, target), slot), none(source, target, 6));
        let (source, target) =
            if slot == Slot::Written { (source + 2, target) } else { (source, target + 2) };
        assert_eq!(refused(line(0, 0, 4), (source, target), slot), none(source, target, 4));
    }
    assert_eq!(refused(line(0, 0, 8), (from, to + 8), Slot::Written), none(from, to + 8, 8));
    let mut beyond = line(0, 0, 8);
    beyond.target_offset = 60;
    let found = refused(beyond, (from, to), Slot::Written);
    let is_out = |error: &DeviceError| {
        matches!(error, DeviceError::OutOfBounds { .. } | DeviceError::NotReachable { .. })
    };
    assert!(found.as_ref().is_some_and(is_out), "{found:?}");
    Ok(())
}
