//! Random arrays.

use super::{Outcome, Rig};
use crate::arrays::{Case, boxes, runs};
use halocline_device::{Device, Memory, Priority, TablePart, TableSpec};
use halocline_plan::copy::{CopyOp, End};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Copies random arrays from one device to the other: directly, and through a packed message.
pub fn copies(rig: &dyn Rig) -> Outcome {
    let mut runner = TestRunner::deterministic();
    for number in 0..rig.cases() {
        let case = match number % 2 {
            0 => boxes().new_tree(&mut runner).map(|tree| tree.current()),
            _ => runs().new_tree(&mut runner).map(|tree| tree.current()),
        };
        one_copy(rig, &case.expect("a case"), number as usize % 16)?;
    }
    Ok(())
}

/// `askew` bytes before each array prevent accidental alignment.
fn one_copy(rig: &dyn Rig, case: &Case, askew: usize) -> Outcome {
    let [here, there] = rig.devices();
    let (sender, receiver) = (here.stream(Priority::Normal)?, there.stream(Priority::Normal)?);
    let expected = case.expected();
    let askew = askew * case.source.layout.element().size();
    let len = case.source.bytes.len().max(case.target.bytes.len()) + askew;
    let (source, target, message) = (here.allocate(len)?, there.allocate(len)?, there.allocate(len)?);
    let (out, into) = (here.allocate_pinned(len)?, there.allocate_pinned(len)?);
    let field = |memory: &Memory, base: usize| memory.at(askew + base);
    let (from, to) = (field(&source, case.source.base), field(&target, case.target.base));
    let upload = |ops: &[CopyOp], device: &Device, source, target| {
        let parts = [TablePart { waits: &[], ops, raises: &[], ..TablePart::default() }];
        device.upload(&TableSpec {
            parts: &parts,
            sources: &[source],
            targets: &[target],
            ..TableSpec::default()
        })
    };
    let direct = case.op(End::Field(0), End::Field(0));
    let (pack, unpack) =
        (case.op(End::Field(0), End::Message(0, askew)), case.op(End::Message(0, askew), End::Field(0)));
    let direct = upload(&[direct], here, from, to)?;
    let pack = upload(&[pack], here, from, message.at(0))?;
    let unpack = upload(&[unpack], there, message.at(0), to)?;
    // SAFETY: every stream is synchronised before anybody else goes on.
    unsafe {
        out.bytes_mut(askew..askew + case.source.bytes.len()).copy_from_slice(&case.source.bytes);
        sender.copy(source.at(0), out.at(0), len)?;
        sender.synchronise()?;
        for by_message in [false, true] {
            into.bytes_mut(askew..askew + case.target.bytes.len()).copy_from_slice(&case.target.bytes);
            receiver.copy(target.at(0), into.at(0), len)?;
            receiver.synchronise()?;
            if by_message {
                sender.launch(&pack, 1)?;
                sender.synchronise()?;
                receiver.launch(&unpack, 1)?;
            } else {
                sender.launch(&direct, 1)?;
                sender.synchronise()?;
            }
            receiver.copy(into.at(0), target.at(0), len)?;
            receiver.synchronise()?;
            let found = into.bytes(askew..askew + expected.bytes.len());
            assert!(found == expected.bytes, "by message: {by_message}; askew by {askew}; {case:?}");
        }
    }
    Ok(())
}
