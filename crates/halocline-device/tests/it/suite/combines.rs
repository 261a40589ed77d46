//! Parts that combine elements.

use super::operations::{blocks, line};
use super::{Outcome, Rig};
use halocline_device::{Combining, DeviceError, Priority, Signal, Slot, TablePart, TableSpec};
use halocline_plan::copy::{CopyOp, Gather};
use halocline_plan::{ElementType, ReduceOp};

const WORDS: usize = 600;
const BYTES: usize = 8 * WORDS;
/// Two of these wrap.
const HALF: u64 = u64::MAX / 2;

/// The same operation on 64-bit integers.
fn of_words(mut op: CopyOp, source: usize) -> CopyOp {
    (op.element, op.source) = (ElementType::U64, source);
    op
}

/// Words of a peer and of the owner's device are added to the owner's once the peer has raised its flag. Those of the peer are cleared,
/// which it waits for.
pub(super) fn sums(rig: &dyn Rig) -> Outcome {
    let [here, there] = rig.devices();
    let (owner, peer) = (here.stream(Priority::Highest)?, there.stream(Priority::Highest)?);
    let (own, near, far) = (here.allocate(BYTES)?, here.allocate(BYTES)?, there.allocate(BYTES)?);
    let words = here.allocate_pinned(16)?;
    let (granted, combined) = (words.at(0), words.at(8));
    let (waits, after) = ([Signal { address: granted, lag: 0 }], [Signal { address: combined, lag: 0 }]);
    // All words of one source; of the other only the first half, in two blocks.
    let ops = [
        of_words(line(0, 0, BYTES), 0),
        of_words(blocks(2, BYTES / 4, BYTES as isize / 4, BYTES as isize / 4), 1),
    ];
    let gathers: Vec<Gather> =
        Gather::all(&ops).into_iter().map(|gather| gather.clearing(|source| source == 1)).collect();
    let part = TablePart {
        waits: &waits,
        raises: &[combined],
        combines: Some(Combining { op: ReduceOp::Sum, gathers: &gathers }),
        ..TablePart::default()
    };
    let table = here.upload(&TableSpec {
        parts: &[part],
        sources: &[near.at(0), far.at(0)],
        targets: &[own.at(0)],
        ..TableSpec::default()
    })?;
    let part = TablePart { waits: &after, ..TablePart::default() };
    let cleared =
        there.upload(&TableSpec { parts: &[part], sources: &[], targets: &[], ..TableSpec::default() })?;
    let grants = there.upload(&TableSpec {
        parts: &[TablePart { raises: &[granted], ..TablePart::default() }],
        sources: &[],
        targets: &[],
        ..TableSpec::default()
    })?;
    let read = |memory: &halocline_device::Memory| -> Result<Vec<u64>, DeviceError> {
        let pinned = here.allocate_pinned(BYTES)?;
        // SAFETY: the stream is synchronised before the host reads, and before the memory goes.
        unsafe {
            owner.copy(pinned.at(0), memory.at(0), BYTES)?;
            owner.synchronise()?;
            let bytes = pinned.bytes(0..BYTES);
            Ok(bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
        }
    };
    for epoch in 1..=3 {
        rig.fill(&owner, &own, HALF)?;
        rig.fill(&owner, &near, 5)?;
        rig.fill(&peer, &far, HALF)?;
        rig.delay(&peer)?;
        // SAFETY: both streams are synchronised before the memory goes.
        unsafe {
            owner.launch(&table, epoch)?;
            peer.launch(&grants, epoch)?;
            peer.launch(&cleared, epoch)?;
        }
        owner.synchronise()?;
        peer.synchronise()?;
        for (at, found) in (0..).zip(read(&own)?) {
            let far = if at < WORDS as u64 / 2 { HALF + at } else { 0 };
            assert_eq!(found, (HALF + 5 + 2 * at).wrapping_add(far), "word {at} of epoch {epoch}");
        }
        for (at, found) in (0..).zip(read(&far)?) {
            let kept = if at < WORDS as u64 / 2 { 0 } else { HALF + at };
            assert_eq!(found, kept, "word {at} of epoch {epoch} at the peer");
        }
    }
    Ok(())
}

/// Elements without the operation, missing buffers, and tables that combine beside what they cannot do.
pub(super) fn refusals(rig: &dyn Rig) -> Outcome {
    let [device, _] = rig.devices();
    let memory = device.allocate(64)?;
    let mut op = CopyOp::of_bytes(0, 0, 16);
    op.element = ElementType::C128;
    let gathers = Gather::all(&[op]);
    let upload = |op: ReduceOp, parts: usize, buffers: &[u64]| {
        let combines = Some(Combining { op, gathers: &gathers });
        let written = [line(0, 0, 16)];
        let parts = [
            TablePart { combines, ..TablePart::default() },
            TablePart { ops: &written, slot: Slot::Written, ..TablePart::default() },
        ]
        .into_iter()
        .take(parts)
        .collect::<Vec<_>>();
        let spec = TableSpec { parts: &parts, sources: buffers, targets: buffers, ..TableSpec::default() };
        device.upload(&spec).map(drop).expect_err("it is refused")
    };
    let refused = upload(ReduceOp::Max, 1, &[memory.at(0)]);
    assert_eq!(refused, DeviceError::NoOperation { op: ReduceOp::Max, element: ElementType::C128 });
    assert_eq!(
        refused.to_string(),
        "elements of complex128 have no max; choose one of sum, product, replace"
    );
    assert!(matches!(upload(ReduceOp::Sum, 1, &[]), DeviceError::NoBuffer { index: 0, count: 0, .. }));
    let refused = upload(ReduceOp::Sum, 2, &[memory.at(0)]);
    assert_eq!(refused, DeviceError::CombinesApart { part: 0 });
    Ok(())
}
