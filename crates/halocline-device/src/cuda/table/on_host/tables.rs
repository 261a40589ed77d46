//! Random tables on one device, launched by several streams, compared with a plain copy.

use super::*;
use crate::driver::{Announced, Signal, TablePart};
use halocline_plan::ElementType;
use halocline_plan::copy::{CellRun, CopyOp, Indexed, Loop};

/// A part of a table under construction.
#[derive(Default)]
struct Draft {
    ops: Vec<CopyOp>,
    source: usize,
    target: usize,
    waits: Vec<usize>,
    lags: Vec<u64>,
    raises: usize,
    early: bool,
    /// Whether the receiver expects it, if that announces something.
    expected: Option<bool>,
}

const EPOCHS: u64 = 40;

/// Steps of loops around a block without overlap, each loop around the previous ones, and the total bytes.
fn steps(numbers: &mut Numbers, counts: &[usize], block: usize, unit: usize) -> (Vec<isize>, usize) {
    let mut step = block.next_multiple_of(unit) + unit * numbers.below(3);
    let of = |&count: &usize| {
        let own = step;
        step = step * count + unit * numbers.below(2);
        own as isize
    };
    let steps = counts.iter().map(of).collect();
    (steps, step)
}

/// A random operation, and the bytes of its source and target.
fn operation(numbers: &mut Numbers, most: usize) -> (CopyOp, usize, usize) {
    let unit = [1, 2, 4, 4, 8, 16][numbers.below(6)];
    let long = if numbers.one_in(2) { 6 } else { 200 };
    let block = match numbers.below(4) {
        0 => 1 + numbers.below(16),
        _ => unit * (1 + numbers.below(long)),
    };
    let mut left = most / block.max(16);
    let mut counts = Vec::new();
    for _ in 0..numbers.below(5) {
        let count = 1 + numbers.below(left.clamp(1, 24));
        left /= count;
        counts.push(count);
    }
    // The list has a random position among the loops.
    let listed = (!counts.is_empty() && numbers.one_in(3)).then(|| numbers.below(counts.len()));
    let mut ends = [(); 2].map(|()| {
        let mut order: Vec<usize> = (0..counts.len()).collect();
        numbers.shuffle(&mut order);
        let ordered: Vec<usize> = order.iter().map(|&at| counts[at]).collect();
        let (ordered, bytes) = steps(numbers, &ordered, block, unit);
        let mut of = vec![0; counts.len()];
        order.iter().zip(ordered).for_each(|(&at, step)| of[at] = step);
        (of, 0, bytes)
    });
    // Some loops run backwards in the source, or have a step of 0.
    for (at, &count) in counts.iter().enumerate().filter(|(at, _)| Some(*at) != listed) {
        let (steps, first, _) = &mut ends[0];
        match numbers.below(8) {
            0 => {
                *first += steps[at] * (count as isize - 1);
                steps[at] = -steps[at];
            }
            1 => steps[at] = 0,
            _ => {}
        }
    }
    let [source, target] = ends;
    let plain = |at: usize| Loop { count: counts[at], source: source.0[at], target: target.0[at] };
    let mut op = super::super::tests::op(Vec::new(), None, block);
    op.loops = (0..listed.unwrap_or(counts.len())).map(plain).collect();
    op.cells = listed.map(|at| {
        let mut cells: Vec<u32> = (0..counts[at] as u32).collect();
        numbers.shuffle(&mut cells);
        let runs: Vec<CellRun> = match numbers.below(2) {
            0 => cells.iter().zip(0..).map(|(&target, source)| CellRun { source, target, len: 1 }).collect(),
            _ => {
                let half = counts[at] as u32 / 2;
                let runs = [(half, 0, counts[at] as u32 - half), (0, counts[at] as u32 - half, half)];
                runs.into_iter().map(|(source, target, len)| CellRun { source, target, len }).collect()
            }
        };
        Indexed {
            runs: runs.into(),
            source_stride: source.0[at],
            target_stride: target.0[at],
            inner: (at + 1..counts.len()).map(plain).collect(),
        }
    });
    (op.source_offset, op.target_offset) = (source.1, target.1);
    (op, source.2, target.2)
}

/// Makes the elements numbers that change their sign, if they are aligned at the target.
fn change_signs(numbers: &mut Numbers, op: &mut CopyOp) {
    let element = [ElementType::F16, ElementType::F32, ElementType::F64][numbers.below(3)];
    let steps = op.loops.iter().fold(op.block | op.target_offset as usize, |all, l| all | l.target as usize);
    if steps.is_multiple_of(element.size()) {
        (op.element, op.is_negated) = (element, true);
    }
}

/// How the awaited flags are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    /// Raised step by step.
    Raised,
    /// Raised step by step until the guard is set and poison is written.
    Guarded,
    /// Poison only.
    Poisoned,
}

/// Random parts, whose sources and targets have memory of their own, each beside bytes that must not be
/// touched.
struct Fixture {
    sources: Vec<Arena>,
    targets: Vec<Arena>,
    words: Arena,
    drafts: Vec<Draft>,
    table: Table,
    waiting: usize,
}

impl Fixture {
    fn new(numbers: &mut Numbers, most: usize, guarded: bool) -> Self {
        let (mut sources, mut targets, mut drafts) = (Vec::new(), Vec::new(), Vec::new());
        let waiting = 1 + numbers.below(4);
        for _ in 0..1 + numbers.below(6) {
            let mut draft = Draft { early: numbers.one_in(2), ..Draft::default() };
            let (mut from, mut to) = (32 + numbers.below(64), 32 + numbers.below(64));
            for _ in 0..if numbers.one_in(4) { 0 } else { 1 + numbers.below(3) } {
                let (mut op, source, target) = operation(numbers, most);
                (op.source, op.target) = (sources.len(), targets.len());
                // Often equal at both ends, as with the same layout everywhere.
                if numbers.one_in(2) {
                    to += (from % 16 + 16 - to % 16) % 16;
                }
                if op.cells.is_none() && numbers.one_in(3) {
                    to = to.next_multiple_of(8);
                    change_signs(numbers, &mut op);
                }
                op.source_offset += from as isize;
                op.target_offset += to as isize;
                (from, to) = (from + source + numbers.below(20), to + target + numbers.below(20));
                draft.ops.push(op);
            }
            (draft.source, draft.target) = (sources.len(), targets.len());
            sources.push(Arena::of(&numbers.bytes(from + 32)));
            targets.push(Arena::of(&numbers.bytes(to + 32)));
            if numbers.one_in(2) {
                draft.waits = (0..1 + numbers.below(3)).map(|_| numbers.below(waiting)).collect();
                draft.lags = draft.waits.iter().map(|_| numbers.below(3) as u64).collect();
            }
            draft.raises = if numbers.one_in(3) { 0 } else { 1 + numbers.below(3) };
            drafts.push(draft);
        }
        // Some tables count from bases, and one receiver may announce its own.
        let is_based = numbers.one_in(2);
        if let Some(draft) = drafts.iter_mut().find(|draft| !draft.ops.is_empty() && draft.raises > 0)
            && is_based
        {
            draft.expected = Some(!numbers.one_in(4));
        }
        // The guard, the awaited flags, the raised flags; an announcement, and the word that says that it differs.
        let at_end = 8 * (1 + waiting + 3 * drafts.len());
        let words = Arena::new(at_end + 24);
        let announced = Announced { address: words.at(at_end), sent: 7, differs: words.at(at_end + 16) };
        let signals: Vec<Vec<Signal>> = drafts
            .iter()
            .map(|draft| {
                let waits = draft.waits.iter().zip(&draft.lags);
                waits.map(|(&word, &lag)| Signal { address: words.at(8 + 8 * word), lag }).collect()
            })
            .collect();
        let raises: Vec<Vec<Address>> = (0..)
            .zip(&drafts)
            .map(|(part, draft)| {
                (0..draft.raises).map(|at| words.at(8 * (1 + waiting + 3 * part + at))).collect()
            })
            .collect();
        let parts: Vec<TablePart<'_>> = (0..drafts.len())
            .map(|at| TablePart {
                waits: &signals[at],
                ops: &drafts[at].ops,
                raises: &raises[at],
                early: drafts[at].early,
                beside: at % 3 != 0,
                announced: drafts[at].expected.map(|_| announced),
                follows: is_based && at % 2 == 1,
                ..TablePart::default()
            })
            .collect();
        let mut given = Given::default();
        let mut bases = Vec::new();
        let mut places = |arenas: &[Arena]| -> Vec<Address> {
            let mut place = |arena: &Arena| {
                if !is_based || numbers.one_in(4) {
                    return arena.at(0);
                }
                // Somewhere in it, as element (0, 0, …) of a field is.
                let within = numbers.below(arena.bytes) as u64;
                let base = arena.at(0) + within;
                let bytes = -(within as i64)..(arena.bytes as u64 - within) as i64;
                bases.push(Base { residue: base % Base::LINE, bytes });
                given.bases.push(base);
                bases[bases.len() - 1].address(bases.len() - 1) - within
            };
            arenas.iter().map(&mut place).collect()
        };
        let (froms, mut tos) = (places(&sources), places(&targets));
        if let Some(draft) = drafts.iter().find(|draft| draft.expected.is_some()) {
            tos[draft.target] = Base::ANNOUNCED;
            given.message = targets[draft.target].at(0);
            words.set(at_end, &given.message.to_le_bytes());
            words.set(at_end + 8, &(if draft.expected == Some(true) { 7u64 } else { 8 }).to_le_bytes());
        }
        let guard = guarded.then(|| words.at(0));
        let spec = TableSpec { parts: &parts, sources: &froms, targets: &tos, guard, bases: &bases };
        let all: Vec<Range<Address>> =
            [&words].into_iter().chain(&sources).chain(&targets).map(Arena::range).collect();
        let reach = |first: Address, bytes: usize| {
            let end = first + bytes as u64;
            let is_there = all.iter().any(|range| range.start <= first && end <= range.end);
            is_there.then_some(()).ok_or(DeviceError::NotReachable { address: first, bytes })
        };
        let ranges: Vec<Range<Address>> = sources.iter().map(Arena::range).collect();
        let multiprocessors = [1, 2, 4, 8, 16][numbers.below(5)];
        let table = Table::new(&[(spec, ranges)], (multiprocessors, &any_tuning(numbers)), &given, reach);
        Self { sources, targets, words, drafts, table, waiting }
    }

    /// The targets after all parts that copy have copied.
    fn copied(&self, copies: impl Fn(&Draft) -> bool) -> Vec<Vec<u8>> {
        let mut targets: Vec<Vec<u8>> = self.targets.iter().map(Arena::get).collect();
        for draft in self.drafts.iter().filter(|draft| copies(draft)) {
            let (source, target) = (self.sources[draft.source].get(), &mut targets[draft.target]);
            for op in &draft.ops {
                op.for_each_block(|from, to, bytes| {
                    let target = &mut target[to as usize..][..bytes];
                    target.copy_from_slice(&source[from as usize..][..bytes]);
                    let distance = op.sign_distance().unwrap_or(bytes + 1);
                    target.iter_mut().skip(distance - 1).step_by(distance).for_each(|byte| *byte ^= 0x80);
                });
            }
        }
        targets
    }
}

/// Launches of one table, possibly concurrent, while other streams raise the awaited flags.
pub(super) fn play(machine: &Machine, seed: u64, most: usize) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let words = [Words::Raised, Words::Raised, Words::Guarded, Words::Poisoned][numbers.below(4)];
    let guarded = words != Words::Raised || numbers.one_in(2);
    let fixture = Fixture::new(&mut numbers, most, guarded);
    let Fixture { table, waiting, .. } = &fixture;
    let launches = 1 + numbers.below(4);
    let streams = 1 + numbers.below(3) as u32;
    let max_blocks = table.waiting * launches as u32 + 1 + numbers.below(3) as u32;
    let mut ops = Vec::new();
    let mut last = vec![0; streams as usize];
    for launch in 0..launches {
        let stream = numbers.below(streams as usize);
        // Beyond all lags: 0 reaches none.
        let epoch = 3 + numbers.below(EPOCHS as usize - 2) as u64;
        last[stream] = epoch;
        if numbers.one_in(4) {
            ops.push((stream as u32, Op::Busy(1 + numbers.below(6) as u32)));
        }
        ops.push((stream as u32, Op::Launch(0, epoch, launch, None)));
    }
    // A stream for each flag, in steps.
    let raised = |word: usize| fixture.words.at(8 + 8 * word);
    for word in (0..*waiting).filter(|_| words != Words::Poisoned) {
        for value in [1 + numbers.below(EPOCHS as usize) as u64, EPOCHS] {
            ops.push((streams + word as u32, Op::Busy(1)));
            ops.push((streams + word as u32, Op::Write(raised(word), value)));
        }
    }
    let ender = streams + *waiting as u32;
    if words != Words::Raised {
        ops.push((ender, Op::Busy(1)));
        ops.push((ender, Op::Write(fixture.words.at(0), 1)));
        // The library rewrites poison repeatedly, because a flag may be raised after it. Here the raising
        // streams write it.
        let poisoner = |word: usize| if words == Words::Poisoned { ender } else { streams + word as u32 };
        ops.extend((0..*waiting).map(|word| (poisoner(word), Op::Write(raised(word), 1 << 62))));
    }
    let before: Vec<Vec<u8>> = fixture.targets.iter().map(Arena::get).collect();
    let expected = fixture.copied(|draft| draft.expected != Some(false));
    let program = Program {
        tables: std::slice::from_ref(table),
        max_blocks: vec![max_blocks],
        streams: vec![0; ender as usize + 1],
        ops,
    };
    program.run(machine, seed, &mut |_| Ok(()))?;
    for (at, draft) in fixture.drafts.iter().enumerate() {
        let found = fixture.targets[draft.target].get();
        let is_refused = draft.expected == Some(false);
        let is_held = words == Words::Poisoned && !draft.waits.is_empty() || is_refused;
        let right = match words {
            _ if is_held => found == before[draft.target],
            Words::Raised => found == expected[draft.target],
            _ => {
                let both = before[draft.target].iter().zip(&expected[draft.target]);
                found.iter().zip(both).all(|(found, (old, new))| found == old || found == new)
            }
        };
        if !right {
            return Err(format!("part {at}: what it has copied is wrong"));
        }
        let first = 1 + waiting + 3 * at;
        let is_raised = (first..first + draft.raises).any(|word| fixture.words.word(word) != 0);
        if is_raised && is_held {
            return Err(format!("part {at} has raised a flag, although it was poisoned, or not expected"));
        }
        let [address, differs] = [0, 2].map(|word| 1 + waiting + 3 * fixture.drafts.len() + word);
        let said = fixture.words.word(differs);
        if words == Words::Raised && (said != 0) != fixture.drafts.iter().any(|d| d.expected == Some(false))
            || said != 0 && said != fixture.words.at(8 * address)
        {
            return Err(format!("{said:#x} says whether a message was expected"));
        }
    }
    Ok(())
}

#[test]
fn random_tables_copy_and_raise_in_any_order_of_their_threads() {
    let Some(machine) = Machine::small() else { return };
    under_seeds(150, |seed| play(machine, seed, 4000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

#[test]
fn random_tables_copy_and_raise_with_as_many_threads_as_on_gpus() {
    let Some(machine) = Machine::whole() else { return };
    under_seeds(12, |seed| {
        play(machine, seed, 60_000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"))
    });
}
