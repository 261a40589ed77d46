//! Devices whose kernels wait for each other, as those of exchanges in one launch do, on no more room than they are promised.

use super::super::tests::op;
use super::*;
use crate::driver::{Signal, TablePart};
use halocline_plan::copy::{CopyOp, Loop};

/// What one device sends to another one: rows of so many bytes, so far apart at either end.
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

    fn room(&self, end: usize) -> usize {
        self.begins[end] + self.steps[end] * self.rows + 16
    }

    fn op(&self, from: usize, to: usize) -> CopyOp {
        let [source, target] = self.steps.map(|step| step as isize);
        let mut op = op(vec![Loop { count: self.rows, source, target }], None, self.bytes);
        (op.source_offset, op.target_offset) = (self.begins[0] as isize, self.begins[1] as isize);
        (op.source, op.target) = (from, to);
        op
    }

    /// The bytes that it moves, of memory at one end.
    fn of(&self, memory: &[u8], end: usize) -> Vec<u8> {
        let row = |row: usize| &memory[self.begins[end] + row * self.steps[end]..][..self.bytes];
        (0..self.rows).flat_map(|at| row(at).to_vec()).collect()
    }
}

/// Faces of one object, from each device to each other one that it sends to, with their memory at both ends.
struct Object {
    /// From, to.
    faces: Vec<(usize, usize, Face, Arena, Arena)>,
    /// Of each face, `ready` at the sender and `arrived` at the receiver, each 128 bytes from the next; then a guard for each device.
    words: Arena,
}

const LINE: usize = 128;

impl Object {
    fn new(numbers: &mut Numbers, devices: usize, most: usize) -> Self {
        let mut faces = Vec::new();
        for (from, to) in (0..devices).flat_map(|from| (0..devices).map(move |to| (from, to))) {
            for _ in 0..if from == to { 0 } else { numbers.below(3) } {
                let face = Face::new(numbers, most);
                let [source, target] = [0, 1].map(|end| Arena::new(face.room(end)));
                faces.push((from, to, face, source, target));
            }
        }
        let words = Arena::new(LINE * (2 * faces.len() + devices));
        Self { faces, words }
    }

    fn ready(&self, face: usize) -> Address {
        self.words.at(2 * LINE * face)
    }

    fn arrived(&self, face: usize) -> Address {
        self.words.at(2 * LINE * face + LINE)
    }

    /// A device's table, as an exchange in one launch has it.
    fn table(&self, device: usize, machine: (u32, &Tuning)) -> Table {
        let numbered = || self.faces.iter().enumerate();
        let (mut parts, mut ops) = (Vec::new(), Vec::new());
        let (mut signals, mut words) = (Vec::new(), Vec::new());
        for (number, (from, to, face, ..)) in numbered() {
            if *to == device {
                // Leave to write, and what has come.
                parts.push((Vec::new(), vec![self.ready(number)], None));
                parts.push((vec![Signal { address: self.arrived(number), lag: 0 }], Vec::new(), None));
            }
            if *from == device {
                let waits = vec![Signal { address: self.ready(number), lag: 0 }];
                parts.push((waits, vec![self.arrived(number)], Some(face.op(number, number))));
            }
        }
        for (waits, raises, op) in parts {
            signals.push(waits);
            words.push(raises);
            ops.push(op.into_iter().collect::<Vec<_>>());
        }
        let parts: Vec<TablePart<'_>> = (0..ops.len())
            .map(|at| TablePart {
                waits: &signals[at],
                ops: &ops[at],
                raises: &words[at],
                early: true,
                ..TablePart::default()
            })
            .collect();
        let [sources, targets]: [Vec<Address>; 2] = [
            self.faces.iter().map(|(.., source, _)| source.at(0)).collect(),
            self.faces.iter().map(|(.., target)| target.at(0)).collect(),
        ];
        let own: Vec<Range<Address>> =
            ops.iter().map(|ops| ops.first().map_or(0..0, |op| self.faces[op.source].3.range())).collect();
        let guard = Some(self.words.at(LINE * (2 * self.faces.len() + device)));
        let spec = TableSpec { parts: &parts, sources: &sources, targets: &targets, guard };
        let reach = |first: Address, bytes: usize| {
            let within =
                |arena: &Arena| arena.at(0) <= first && first + bytes as u64 <= arena.at(arena.bytes);
            let is_there = within(&self.words)
                || self.faces.iter().any(|(.., source, target)| within(source) || within(target));
            is_there.then_some(()).ok_or(DeviceError::NotReachable { address: first, bytes })
        };
        Table::new(&spec, &own, machine, reach)
    }
}

/// Exchanges of some objects between some devices, a stream each for each object; before each the device's fields are filled, and
/// behind it its halos are looked at. Kernels of others come and go.
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
        .flat_map(|object| (0..devices).map(move |device| object.table(device, (multiprocessors, tuning))))
        .collect();
    // So many blocks wait at most; beside them there is room, if for one block only.
    let waiting =
        |device: usize| tables.iter().skip(device).step_by(devices).map(|table| table.waiting).sum::<u32>();
    let room = (0..devices).map(|device| waiting(device) + 1 + numbers.below(2) as u32).collect();
    let (mut ops, mut calls) = (Vec::new(), Vec::new());
    let mut streams = Vec::new();
    // Launches of a stream follow each other, so that all may have the same counters.
    for table in 0..tables.len() {
        let (object, device, stream) = (table / devices, table % devices, streams.len() as u32);
        streams.push(device as u32);
        for epoch in 1..=epochs {
            for step in 0..3 {
                if numbers.one_in(4) {
                    ops.push((stream, Op::Busy(1 + numbers.below(5) as u32)));
                }
                calls.push((object, device, epoch, step == 2));
                ops.push((
                    stream,
                    if step == 1 { Op::Launch(table, epoch, SLOTS * epoch as usize) } else { Op::Call },
                ));
            }
        }
    }
    // A user's kernels beside them.
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
    let program = Program { tables: &tables, room, streams, ops };
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

#[test]
fn devices_that_wait_for_each_other_get_on_in_any_order_of_their_threads() {
    let Some(machine) = Machine::small() else { return };
    under_seeds(60, |seed| play(machine, seed, 6000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

#[test]
fn devices_that_wait_for_each_other_get_on_with_as_many_threads_as_on_gpus() {
    let Some(machine) = Machine::whole() else { return };
    under_seeds(4, |seed| play(machine, seed, 60_000).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

/// Without each of these lines the kernel is wrong under some seed: what the others do not find is not there.
#[test]
fn a_kernel_without_one_of_its_barriers_fences_and_looks_is_found_out() {
    let changes = [
        (
            "a barrier before a word is raised",
            "if (head.raises == 0) return;\n  __syncthreads();",
            "if (head.raises == 0) return;",
        ),
        (
            "the fence before the count",
            "if (threadIdx.x != 0) return;\n  fence_system();",
            "if (threadIdx.x != 0) return;",
        ),
        (
            "the fence after it",
            "table.done[head.part] = 0;\n    fence_system();",
            "table.done[head.part] = 0;",
        ),
        ("a barrier behind a wait", "  __syncthreads();\n  return good;", "  return good;"),
        (
            "a warp's barrier before it writes an item",
            "at = 1 + threadIdx.x / LANES;\n    __syncwarp();",
            "at = 1 + threadIdx.x / LANES;",
        ),
        ("a warp's barrier behind that", "ahead[1];\n    __syncwarp();", "ahead[1];"),
        (
            "a word of its own for the guard that a block sees first",
            "u32 well, good;",
            "u32 good;\n#define well good",
        ),
        (
            "the look for poison of parts that copy",
            "      well &= far < POISON || table.guard == nullptr;\n    }\n    well =",
            "    }\n    well =",
        ),
        (
            "the wait of early parts",
            "item.early && !may_store(table, item, epoch, good)",
            "item.early && false",
        ),
        ("the wait of parts that copy nothing", "reached = far >= 0;", "reached = true;"),
        ("the end of the count", "    table.done[head.part] = 0;", ""),
    ];
    for (what, from, to) in changes {
        let Some(machine) = Machine::new(64, |source| replaced(source, from, to)) else { return };
        let found = (0..100).find_map(|seed| {
            super::tables::play(&machine, seed, 4000)
                .and_then(|()| play(&machine, seed, 6000))
                .err()
                .map(|why| (seed, why))
        });
        let (seed, why) = found.unwrap_or_else(|| panic!("without {what} nothing is found"));
        println!("without {what}, seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}
