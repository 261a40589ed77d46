//! Parts with so many accesses that each of their blocks executes several items. All flags are written
//! before the launch that waits for them, so the program also runs where launches are serialised, as under
//! a checker.

use super::operations::{blocks, scatter};
use super::{Outcome, Rig};
use halocline_device::{CopyTable, Memory, Priority, Signal, Stream, TablePart, TableSpec};
use halocline_plan::copy::CopyOp;

/// The copy of one part: the operation, and its blocks (source, target, length).
struct Copied {
    op: CopyOp,
    moves: Vec<(usize, usize, usize)>,
}

impl Copied {
    /// Rows of bytes: their start in source and target, and the distance between rows.
    fn rows(
        count: usize,
        bytes: usize,
        (from, to): (usize, usize),
        (source, target): (usize, usize),
    ) -> Self {
        let mut op = blocks(count, bytes, source as isize, target as isize);
        (op.source_offset, op.target_offset) = (from as isize, to as isize);
        Self { op, moves: (0..count).map(|row| (from + row * source, to + row * target, bytes)).collect() }
    }

    /// Permuted words, without runs.
    fn words(count: usize) -> Self {
        // The multiples of a prime that does not divide the count form a permutation.
        let order: Vec<u32> = (0..count).map(|at| (at * 777_767 % count) as u32).collect();
        let op = scatter(&order);
        Self { op, moves: order.iter().zip(0..).map(|(&to, at)| (8 * at, 8 * to as usize, 8)).collect() }
    }

    /// Bytes of either end, and one readable unit more.
    fn bytes(&self) -> usize {
        let end = self.moves.iter().map(|&(source, target, bytes)| source.max(target) + bytes).max();
        (end.unwrap_or(0) + 16).next_multiple_of(16)
    }
}

/// Memory as left by [`Rig::fill`].
fn filled(bytes: usize, value: u64) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|at| (value + at).to_le_bytes()).collect()
}

const FRESH: u64 = 0xEEEE_EEEE_0000_0000;
/// Concurrent launches of one table, and more launches than counters; each finds its counters reset.
const LAUNCHES: u64 = 18;

pub(super) fn carriers(rig: &dyn Rig) -> Outcome {
    let accesses = rig.accesses();
    let parts = [
        // Units of 16 bytes, of which the first and the last of a row leave out one and three words.
        Copied::rows(accesses / 63, 992, (4, 20), (1040, 1024)),
        Copied::words(accesses),
        // Words; bytes.
        Copied::rows(accesses / 250, 1000, (4, 8), (1004, 1012)),
        Copied::rows(accesses / 63, 63, (1, 0), (67, 65)),
        // No wait: one block per item.
        Copied::words(accesses),
    ];
    const WAITING: usize = 4;
    let begins: Vec<usize> = (0..parts.len()).map(|at| parts[..at].iter().map(Copied::bytes).sum()).collect();
    let bytes = parts.iter().map(Copied::bytes).sum();
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let (field, halo) = (device.allocate(bytes)?, device.allocate(bytes)?);
    let (found, raised) = (device.allocate_pinned(bytes)?, device.allocate_pinned(16 * parts.len())?);
    let (go, guard) = (device.allocate_pinned(16)?, device.allocate_pinned(8)?);
    let waits = [0, 8].map(|at| Signal { address: go.at(at), lag: 0 });
    let raises: Vec<[u64; 2]> =
        (0..parts.len()).map(|at| [raised.at(16 * at), raised.at(16 * at + 8)]).collect();
    let at = |memory: &Memory| begins.iter().map(|&begin| memory.at(begin)).collect::<Vec<_>>();
    let (sources, targets) = (at(&field), at(&halo));
    let numbered = |(part, at): (&Copied, usize)| {
        let mut op = part.op.clone();
        (op.source, op.target) = (at, at);
        [op]
    };
    let ops: Vec<[CopyOp; 1]> = parts.iter().zip(0..).map(numbered).collect();
    let launch = |stream: &Stream, table: &CopyTable, epoch: u64| -> Outcome {
        rig.fill(stream, &field, epoch << 32)?;
        // SAFETY: the stream is synchronised below, before the memory and the table go.
        unsafe { stream.launch(table, epoch) }
    };
    // The epoch that each part last copied, and raised.
    let look = |epochs: [u64; 5], when: &str| -> Outcome {
        // SAFETY: the stream is synchronised before the memory goes and before the host looks at it.
        unsafe { stream.copy(found.at(0), halo.at(0), bytes) }?;
        stream.synchronise()?;
        let mut expected = filled(bytes, FRESH);
        for (at, part) in parts.iter().enumerate() {
            let (begin, source) = (begins[at], filled(bytes, epochs[at] << 32));
            for &(from, to, bytes) in &part.moves {
                expected[begin + to..][..bytes].copy_from_slice(&source[begin + from..][..bytes]);
            }
        }
        // SAFETY: the stream is synchronised, so that nothing writes the bytes while the host reads them. Atomic
        // operations and tables alone write the words.
        unsafe {
            let words: Vec<u64> = (0..2 * parts.len()).map(|word| raised.load(8 * word)).collect();
            assert_eq!(words, epochs.map(|epoch| [epoch; 2]).concat(), "raised, {when}");
            let wrong = found.bytes(0..bytes).iter().zip(&expected).position(|(found, right)| found != right);
            let part = |at: usize| begins.iter().filter(|&&begin| begin <= at).count() - 1;
            assert!(wrong.is_none(), "{when}: byte {wrong:?} of {bytes}, part {:?}", wrong.map(part));
        }
        Ok(())
    };
    // The parts that may be read before their waits: each in turn, and once none.
    for early in [0, 1] {
        let parts: Vec<TablePart<'_>> = (0..parts.len())
            .map(|at| TablePart {
                waits: if at < WAITING { &waits } else { &[] },
                ops: &ops[at],
                raises: &raises[at],
                early: at % 2 == early,
                ..TablePart::default()
            })
            .collect();
        let table = device.upload(&TableSpec {
            parts: &parts,
            sources: &sources,
            targets: &targets,
            guard: Some(guard.at(0)),
            ..TableSpec::default()
        })?;
        // SAFETY: the stream is synchronised before the memory goes, and before the host writes words.
        let set = |memory: &Memory, value| unsafe {
            (0..memory.place().bytes).step_by(8).for_each(|at| memory.store(at, value));
        };
        set(&raised, 0);
        set(&guard, 0);
        set(&go, 100);
        rig.fill(&stream, &halo, FRESH)?;
        (1..=LAUNCHES).try_for_each(|epoch| launch(&stream, &table, epoch))?;
        look([LAUNCHES; 5], "all well")?;
        set(&guard, 1);
        launch(&stream, &table, 19)?;
        look([LAUNCHES; 5], "guarded")?;
        set(&guard, 0);
        launch(&stream, &table, 20)?;
        look([20; 5], "after the guard")?;
        // Waiting parts find poison, whatever the guard is.
        set(&go, 1 << 62);
        launch(&stream, &table, 21)?;
        look([20, 20, 20, 20, 21], "poisoned")?;
        set(&go, 100);
        launch(&stream, &table, 22)?;
        look([22; 5], "after poison")?;
    }
    Ok(())
}
