//! Devices whose kernels wait for each other, as in one-launch exchanges, with only the guaranteed number
//! of resident blocks.

use super::super::tests::op;
use super::*;
use crate::driver::{Signal, TablePart};
use halocline_plan::copy::{CopyOp, Loop};

/// Rows of bytes that one device sends to another, with a distance between rows at either end.
struct Face {
    rows: usize,
    bytes: usize,
    steps: [usize; 2],
    begins: [usize; 2],
}

impl Face {
    fn new(numbers: &mut Numbers, most: usize) -> Self {
        let unit = [4, 8, 16][numbers.below(3)];
        let longest = if numbers.one_in(4) { 100 } else { 40 };
        let bytes = unit * (1 + numbers.below(longest));
        let rows = numbers.below((most / bytes).max(1));
        let steps = [(); 2].map(|()| bytes + unit * numbers.below(3));
        let begins = [(); 2].map(|()| 4 * numbers.below(8));
        Self { rows, bytes, steps, begins }
    }

    fn arena_bytes(&self, end: usize) -> usize {
        self.begins[end] + self.steps[end] * self.rows + 16
    }

    fn op(&self, from: usize, to: usize) -> CopyOp {
        self.op_with(self.steps, self.begins, (from, to))
    }

    /// Packs into a slot, or unpacks from one.
    fn packs(&self, from: usize, to: usize) -> CopyOp {
        self.op_with([self.steps[0], self.bytes], [self.begins[0], 0], (from, to))
    }

    fn unpacks(&self, from: usize, to: usize) -> CopyOp {
        self.op_with([self.bytes, self.steps[1]], [0, self.begins[1]], (from, to))
    }

    fn op_with(&self, steps: [usize; 2], begins: [usize; 2], (from, to): (usize, usize)) -> CopyOp {
        let [source, target] = steps.map(|step| step as isize);
        let mut op = op(vec![Loop { count: self.rows, source, target }], None, self.bytes);
        (op.source_offset, op.target_offset) = (begins[0] as isize, begins[1] as isize);
        (op.source, op.target) = (from, to);
        op
    }

    /// Bytes of a slot.
    fn slot(&self) -> usize {
        (2 * self.rows * self.bytes).next_multiple_of(LINE)
    }

    /// The bytes of the rows, from the memory at one end.
    fn of(&self, memory: &[u8], end: usize) -> Vec<u8> {
        let row = |row: usize| &memory[self.begins[end] + row * self.steps[end]..][..self.bytes];
        (0..self.rows).flat_map(|at| row(at).to_vec()).collect()
    }
}

/// Faces of one object, from each device to each of its receivers, with the memory at both ends.
struct Object {
    /// Sender, receiver, face, memory at both ends.
    faces: Vec<(usize, usize, Face, Arena, Arena)>,
    /// For each face that uses the LL protocol, two slots at the receiver.
    slots: Vec<Option<Arena>>,
    /// For each face, the `granted` flag of the sender and the `arrived` flag of the receiver, each 128
    /// bytes from the next; then a guard for each device.
    words: Arena,
}

const LINE: usize = 128;

impl Object {
    fn new(numbers: &mut Numbers, devices: usize, most: usize) -> Self {
        let mut faces = Vec::new();
        for (from, to) in (0..devices).flat_map(|from| (0..devices).map(move |to| (from, to))) {
            for _ in 0..if from == to { 0 } else { numbers.below(3) } {
                let face = Face::new(numbers, most);
                let [source, target] = [0, 1].map(|end| Arena::new(face.arena_bytes(end)));
                faces.push((from, to, face, source, target));
            }
        }
        let words = Arena::new(LINE * (2 * faces.len() + devices));
        let slots = |(.., face, _, _): &(usize, usize, Face, Arena, Arena)| {
            numbers.one_in(2).then(|| Arena::new(2 * face.slot()))
        };
        let slots = faces.iter().map(slots).collect();
        Self { faces, slots, words }
    }

    /// Addresses of a face's slot for a parity.
    fn slot(&self, face: usize, parity: usize) -> Range<Address> {
        let bytes = self.faces[face].2.slot();
        self.slots[face]
            .as_ref()
            .map_or(0..0, |slots| slots.at(bytes * parity)..slots.at(bytes * (parity + 1)))
    }

    fn granted(&self, face: usize) -> Address {
        self.words.at(2 * LINE * face)
    }

    fn arrived(&self, face: usize) -> Address {
        self.words.at(2 * LINE * face + LINE)
    }

    /// A device's table for one-launch exchanges.
    fn table(&self, device: usize, machine: (u32, &Tuning)) -> Table {
        let numbered = || self.faces.iter().enumerate();
        let (mut parts, mut ops) = (Vec::new(), Vec::new());
        let (mut signals, mut words, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let count = self.faces.len();
        for (number, (from, to, face, ..)) in numbered() {
            if self.slots[number].is_some() {
                if *to == device {
                    let op = face.unpacks(count + number, number);
                    parts.push((Vec::new(), vec![self.granted(number)], Some(op), Slot::Awaited));
                }
                if *from == device {
                    let waits = vec![Signal { address: self.granted(number), lag: 2 }];
                    let op = face.packs(number, count + number);
                    parts.push((waits, vec![self.arrived(number)], Some(op), Slot::Written));
                }
                continue;
            }
            if *to == device {
                // Grants, and arrivals.
                parts.push((Vec::new(), vec![self.granted(number)], None, Slot::None));
                let waits = vec![Signal { address: self.arrived(number), lag: 0 }];
                parts.push((waits, Vec::new(), None, Slot::None));
            }
            if *from == device {
                let waits = vec![Signal { address: self.granted(number), lag: 0 }];
                let op = Some(face.op(number, number));
                parts.push((waits, vec![self.arrived(number)], op, Slot::None));
            }
        }
        for (waits, raises, op, of_slot) in parts {
            signals.push(waits);
            words.push(raises);
            slots.push(of_slot);
            ops.push(op.into_iter().collect::<Vec<_>>());
        }
        let parts: Vec<TablePart<'_>> = (0..ops.len())
            .map(|at| TablePart {
                waits: &signals[at],
                ops: &ops[at],
                raises: &words[at],
                early: true,
                slot: slots[at],
                ..TablePart::default()
            })
            .collect();
        let slots = |parity: usize| (0..count).map(move |face| self.slot(face, parity));
        let ends = [0, 1].map(|parity| -> [Vec<Address>; 2] {
            let slots = || slots(parity).map(|slot| slot.start);
            let sources = self.faces.iter().map(|(.., source, _)| source.at(0));
            let targets = self.faces.iter().map(|(.., target)| target.at(0));
            [sources.chain(slots()).collect(), targets.chain(slots()).collect()]
        });
        let guard = Some(self.words.at(LINE * (2 * self.faces.len() + device)));
        let works = [0, 1].map(|parity| {
            let sources = self.faces.iter().map(|(.., source, _)| source.range());
            let all: Vec<Range<Address>> = sources.chain(slots(parity)).collect();
            let own = ops.iter().map(|ops| ops.first().map_or(0..0, |op| all[op.source].clone()));
            let [sources, targets] = &ends[parity];
            (TableSpec { parts: &parts, sources, targets, guard, ..TableSpec::default() }, own.collect())
        });
        let works = if self.slots.iter().any(Option::is_some) { &works[..] } else { &works[..1] };
        let reach = |first: Address, bytes: usize| {
            let within =
                |arena: &Arena| arena.at(0) <= first && first + bytes as u64 <= arena.at(arena.bytes);
            let is_there = within(&self.words)
                || self.slots.iter().flatten().any(within)
                || self.faces.iter().any(|(.., source, target)| within(source) || within(target));
            is_there.then_some(()).ok_or(DeviceError::NotReachable { address: first, bytes })
        };
        Table::new(works, machine, &Given::default(), reach)
    }
}

/// Runs exchanges of some objects between some devices, with one stream per object and device. Fields are
/// filled before each exchange, and halos are checked after it. Foreign kernels run in between.
pub(super) fn play(machine: &Machine, seed: u64, most: usize) -> Result<(), String> {
    let mut numbers = Numbers::new(!seed);
    let devices = 2 + numbers.below(2);
    let epochs = 2 + numbers.below(4) as u64;
    let objects: Vec<Object> =
        (0..1 + numbers.below(2)).map(|_| Object::new(&mut numbers, devices, most)).collect();
    let multiprocessors = [2, 4, 8][numbers.below(3)];
    let tuning = &any_tuning(&mut numbers);
    let tables: Vec<Table> = objects
        .iter()
        .flat_map(|object| (0..devices).map(move |device| (object, device)))
        .map(|(object, device)| object.table(device, (multiprocessors, tuning)))
        .collect();
    // The maximum number of waiting blocks, plus space for at least one block.
    let waiting = |device: usize| tables.chunks(devices).map(|tables| tables[device].waiting).sum::<u32>();
    let max_blocks = (0..devices).map(|device| waiting(device) + 1 + numbers.below(2) as u32).collect();
    let (mut ops, mut calls) = (Vec::new(), Vec::new());
    let mut streams = Vec::new();
    // Of each object and device; some give the epochs.
    let counters = Arena::new(8 * tables.len());
    let counter = |lane: usize| counters.at(8 * lane);
    let counted: Vec<bool> = tables.iter().map(|table| table.blocks > 0 && numbers.one_in(2)).collect();
    // Launches of one stream are sequential, so they may share counters.
    for (lane, &is_counted) in counted.iter().enumerate() {
        let (object, device, stream) = (lane / devices, lane % devices, streams.len() as u32);
        streams.push(device as u32);
        for epoch in 1..=epochs {
            for step in 0..3 {
                if numbers.one_in(4) {
                    ops.push((stream, Op::Busy(1 + numbers.below(5) as u32)));
                }
                calls.push((object, device, epoch, step == 2));
                // The last launch may leave the counting to a later one.
                let later = epoch == epochs && seed % 4 == 3;
                let counter = is_counted.then(|| (counter(lane), later));
                let launch = Op::Launch(lane, epoch, LAUNCHES * epoch as usize, counter);
                ops.push((stream, if step == 1 { launch } else { Op::Call }));
            }
        }
    }
    // Foreign kernels.
    for device in 0..devices as u32 {
        ops.extend((0..numbers.below(4)).map(|_| (streams.len() as u32, Op::Busy(1 + device))));
        streams.push(device);
    }
    let of_ops: Vec<usize> = ops
        .iter()
        .scan(0, |calls, (_, op)| {
            *calls += usize::from(!matches!(op, Op::Busy(_)));
            Some(*calls - usize::from(!matches!(op, Op::Busy(_))))
        })
        .collect();
    let fill = |object: usize, face: usize, epoch: u64, bytes: usize| {
        Numbers::new(epoch << 32 | (face as u64) << 8 | object as u64).bytes(bytes)
    };
    let program = Program { tables: &tables, max_blocks, streams, ops };
    program.run(machine, seed, &mut |op| {
        let (object, device, epoch, looks) = calls[of_ops[op]];
        for (number, (from, to, face, source, target)) in objects[object].faces.iter().enumerate() {
            let filled = fill(object, number, epoch, source.bytes);
            if *from == device && !looks {
                source.set(0, &filled);
            }
            if *to == device && looks && face.of(&target.get(), 1) != face.of(&filled, 0) {
                return Err(format!("epoch {epoch}: device {device} has not what device {from} has sent"));
            }
        }
        Ok(())
    })
}

/// A slot in which some words never arrive, until the guard is set.
fn unfilled(machine: &Machine, seed: u64) -> Result<(), String> {
    const EPOCH: u64 = 0x1_0000_0007;
    let mut numbers = Numbers::new(!seed);
    let bytes = [8, 4][numbers.below(2)] * (1 + numbers.below(500));
    let (slot, halo, words) = (Arena::new(2 * bytes), Arena::new(bytes), Arena::new(16));
    let (count, mut there) = (bytes / 4, 0);
    for word in 0..count {
        // A missing word may carry an earlier epoch, except in the last word.
        let is_there = word + 1 < count && numbers.below(count) > 1;
        there += usize::from(is_there);
        let flag = if is_there { EPOCH as u32 } else { numbers.below(7) as u32 };
        slot.set(8 * word, &(u64::from(flag) << 32 | 0x7777_7777).to_le_bytes());
    }
    let (ops, raises) = ([op(Vec::new(), None, bytes)], [words.at(8)]);
    let part = TablePart { ops: &ops, raises: &raises, slot: Slot::Awaited, ..TablePart::default() };
    let (parts, sources, targets) = ([part], [slot.at(0)], [halo.at(0)]);
    let spec = TableSpec {
        parts: &parts,
        sources: &sources,
        targets: &targets,
        guard: Some(words.at(0)),
        ..TableSpec::default()
    };
    let works = [(spec, vec![slot.range()])];
    let tables = [Table::new(&works, (4, &any_tuning(&mut numbers)), &Given::default(), |_, _| Ok(()))];
    let (max_blocks, streams) = (vec![tables[0].waiting + 1], vec![0, 0]);
    let ops = vec![(0, Op::Launch(0, EPOCH, 0, None)), (1, Op::Busy(1)), (1, Op::Write(words.at(0), 1))];
    Program { tables: &tables, max_blocks, streams, ops }.run(machine, seed, &mut |_| Ok(()))?;
    let found = halo.get();
    let copied = found.chunks(4).zip(0..).filter(|(bytes, _)| **bytes != [0; 4]);
    for (bytes, word) in copied {
        let flag = slot.word(word) >> 32;
        if bytes != [0x77; 4] || flag != EPOCH & 0xffff_ffff {
            return Err(format!("word {word} of {count}, {there} of them there, became {bytes:?}"));
        }
    }
    match words.word(1) {
        0 => Ok(()),
        _ => Err("a word is raised, although not all flags were there".to_owned()),
    }
}

#[test]
fn the_guard_ends_a_wait_for_missing_flags() {
    let Some(machine) = Machine::small() else { return };
    under_seeds(30, |seed| unfilled(machine, seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

#[test]
fn devices_that_wait_for_each_other_finish_in_any_thread_order() {
    let Some(machine) = Machine::small() else { return };
    under_seeds(60, |seed| play(machine, seed, 6000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

#[test]
fn devices_that_wait_for_each_other_finish_with_the_block_size_of_gpus() {
    let Some(machine) = Machine::whole() else { return };
    under_seeds(4, |seed| play(machine, seed, 60_000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

/// Runs the tests on the kernel after a change of its text that removes one piece of ordering. Some test
/// must fail under some seed; the tests could not detect the error otherwise.
fn is_found_out(what: &str, from: &str, to: &str) {
    let Some(machine) = Machine::new(64, |source| replaced(source, from, to)) else { return };
    let found = (0..400).find_map(|seed| {
        super::tables::play(&machine, seed, 4000)
            .and_then(|()| play(&machine, seed, 6000))
            .and_then(|()| unfilled(&machine, seed))
            .err()
            .map(|why| (seed, why))
    });
    let (seed, why) = found.unwrap_or_else(|| panic!("without {what} nothing is found"));
    println!("without {what}, seed {seed}: {}", why.lines().next().unwrap_or_default());
}

/// Defines a test for each piece of ordering: its name, the text in the kernel, the replacement.
macro_rules! pieces_of_order {
    ($($piece:ident: $from:literal => $to:literal,)+) => {
        mod a_kernel_is_found_out_without {
            $(
                #[test]
                fn $piece() {
                    super::is_found_out(stringify!($piece), $from, $to);
                }
            )+
        }
    };
}

pieces_of_order! {
    a_barrier_before_a_word_is_raised:
        "  if constexpr (KIND == SLOTS) may = __syncthreads_and(may);\n  else __syncthreads();"
        => "",
    the_fence_before_the_count:
        "if (threadIdx.x != 0) return;\n  fence_system();"
        => "if (threadIdx.x != 0) return;",
    the_fence_after_it:
        "table.done[head.part] = 0;\n    fence_system();"
        => "table.done[head.part] = 0;",
    a_barrier_behind_a_wait:
        "  __syncthreads();\n  return shared.good;"
        => "  return shared.good;",
    a_warp_s_barrier_before_it_writes_an_item:
        "at = HEADS + threadIdx.x / LANES;\n    __syncwarp();"
        => "at = HEADS + threadIdx.x / LANES;",
    a_warp_s_barrier_behind_that:
        "ahead[1];\n    __syncwarp();"
        => "ahead[1];",
    a_word_of_its_own_for_the_guard_that_a_block_sees_first:
        "u32 well, good;"
        => "u32 good;\n#define well good",
    the_barrier_before_the_epoch_of_a_counter_is_read:
        "shared.epoch = next_epoch((const u64 *)given);\n        __syncthreads();"
        => "shared.epoch = next_epoch((const u64 *)given);",
    the_work_of_odd_epochs:
        "if (table.odd != 0) first = epoch & 1;"
        => "",
    the_share_of_the_first_block_in_an_epoch:
        "blockIdx.x == 0 ? (1ull << BLOCKS) - (gridDim.x - 1) : 1ull"
        => "blockIdx.x == 0 ? 1ull << BLOCKS : 1ull",
    an_epoch_that_lasts_until_all_blocks_have_ended:
        "blockIdx.x == 0 ? (1ull << BLOCKS) - (gridDim.x - 1) : 1ull"
        => "blockIdx.x == 0 ? 1ull << BLOCKS : 0ull",
    launches_that_leave_the_counting_to_a_later_one:
        "threadIdx.x == 0 && (counter & 1) == 0"
        => "threadIdx.x == 0",
    the_look_for_poison_of_parts_that_copy:
        "      well &= ahead < POISON || table.guard == nullptr;\n    }\n    well ="
        => "    }\n    well =",
    the_wait_of_early_parts:
        "item.early && !may_store<KIND>(table, item, epoch, shared)"
        => "item.early && false",
    the_comparison_with_what_a_receiver_expects:
        "if (load_flag(announced.words + 1) != announced.sent) {"
        => "if (false) {",
    the_comparison_of_parts_that_wait_for_nothing:
        "head.waits != 0 || (KIND == BASED && head.announced != nullptr)"
        => "head.waits != 0",
    the_base_that_a_receiver_announces:
        "return number == ANNOUNCED ? shared.announced : bases->added[number];"
        => "return bases->added[number % BASES];",
    the_wait_of_parts_that_copy_nothing:
        "reached = ahead >= 0;"
        => "reached = true;",
    the_end_of_the_count:
        "    table.done[head.part] = 0;"
        => "",
    the_flag_of_a_word:
        "return (u32)(words[0] >> 32) == flag;"
        => "return true;",
    the_flag_of_the_first_of_two_words:
        "(u32)(words[0] >> 32) == flag && (u32)"
        => "(u32)",
    the_flag_of_the_second_one:
        " && (u32)(words[1] >> 32) == flag;"
        => ";",
    the_look_at_the_guard_of_parts_that_wait_for_flags:
        "if (looks % LANES == LANES - 1 && !__all_sync(~0u, is_well(table))) return false;"
        => "",
    what_that_says_of_a_block_with_one_item:
        "if constexpr (KIND == SLOTS) may = all;"
        => "",
    what_the_threads_of_a_block_say_of_it:
        "may = __syncthreads_and(may);"
        => "__syncthreads();",
}
