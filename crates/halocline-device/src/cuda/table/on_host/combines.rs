//! Random tables that combine, compared with the host's combination to the bit.

use super::*;
use crate::driver::{Combining, Signal, TablePart};
use crate::host::{Combine, Source};
use halocline_plan::copy::{CopyOp, Gather, Loop};
use halocline_plan::{ElementType, ReduceOp};

const ELEMENTS: [ElementType; 17] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::U8,
    ElementType::I16,
    ElementType::U16,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::I32,
    ElementType::U32,
    ElementType::F32,
    ElementType::I64,
    ElementType::U64,
    ElementType::F64,
    ElementType::C64,
    ElementType::C128,
    ElementType::Opaque(12),
    ElementType::Opaque(16),
];

const EXTENT: [usize; 3] = [9, 5, 24];

/// A box of a field whose axes have these strides.
fn box_of(numbers: &mut Numbers, element: ElementType, strides: [[isize; 3]; 2]) -> CopyOp {
    let size: [usize; 3] = EXTENT.map(|extent| 1 + numbers.below(extent));
    let mut op = CopyOp::of_bytes(0, 0, element.size());
    op.element = element;
    let mut low = || [0, 1, 2].map(|axis| numbers.below(EXTENT[axis] - size[axis] + 1) as isize);
    let offset = |low: [isize; 3], strides: [isize; 3]| (0..3).map(|axis| low[axis] * strides[axis]).sum();
    (op.source_offset, op.target_offset) = (offset(low(), strides[0]), offset(low(), strides[1]));
    let steps = |axis: usize| Loop { count: size[axis], source: strides[0][axis], target: strides[1][axis] };
    op.loops = (0..3).map(steps).collect();
    op
}

/// Random bytes, with small exponents where they are floating-point numbers, so that sums depend on the order and none is a NaN.
fn values(numbers: &mut Numbers, element: ElementType, bytes: usize) -> Vec<u8> {
    let mut all = numbers.bytes(bytes.next_multiple_of(16));
    let bits = match element {
        ElementType::F32 | ElementType::C64 => 4,
        ElementType::F64 | ElementType::C128 => 8,
        _ => return all,
    };
    for number in all.chunks_mut(bits) {
        let (value, sign) = (f64::from(number[0]) + 1.0 / 3.0, if number[1] & 1 == 0 { 1.0 } else { -1.0 });
        let value = sign * value * 2_f64.powi(i32::from(number[1] >> 3) - 16);
        match bits {
            4 => number.copy_from_slice(&(value as f32).to_le_bytes()),
            _ => number.copy_from_slice(&value.to_le_bytes()),
        }
    }
    all
}

/// One launch, after a flag, of a table that combines several boxes of two fields with a third, and clears some of them.
fn play(machine: &Machine, seed: u64) -> Result<(), String> {
    let mut numbers = Numbers::new(seed);
    let element = ELEMENTS[numbers.below(ELEMENTS.len())];
    let ops: Vec<ReduceOp> = ReduceOp::ALL.into_iter().filter(|op| op.supports(element)).collect();
    let op = ops[numbers.below(ops.len())];
    let size = element.size() as isize;
    // Fields in C order or the reverse, some of whose elements lie at odd addresses.
    let odd = if numbers.one_in(4) { 1 } else { 0 };
    let [a, b, c] = EXTENT.map(|extent| extent as isize);
    let orders = [[b * c * size, c * size, size], [size, a * size, a * b * size + odd]];
    let strides = [orders[numbers.below(2)], orders[numbers.below(2)]];
    let bytes = (a * b * c * (size + 1)) as usize + 16;
    let sources = [(); 2].map(|()| Arena::of(&values(&mut numbers, element, bytes)));
    let (first, end) = (numbers.below(2) * odd as usize, 3 * bytes.next_multiple_of(16));
    // Target and sources are parts of one arena, since the kernel reads the target, too.
    let all = Arena::new(end + 64);
    let at = [0, 1, 2].map(|part| part * bytes.next_multiple_of(16));
    all.set(at[0], &sources[0].get());
    all.set(at[1], &sources[1].get());
    all.set(at[2], &values(&mut numbers, element, bytes));
    let boxes: Vec<CopyOp> = (0..1 + numbers.below(5))
        .map(|_| {
            let mut op = box_of(&mut numbers, element, strides);
            op.source = numbers.below(2);
            op.is_negated = element.sign_distance().is_some() && numbers.one_in(3);
            op
        })
        .collect();
    // Sources of which no other box has the bytes.
    let clears = numbers.one_in(2);
    let is_cleared = |source: usize| clears && boxes.iter().filter(|op| op.source == source).count() == 1;
    let gathers: Vec<Gather> =
        Gather::all(&boxes).into_iter().map(|gather| gather.clearing(is_cleared)).collect();
    let words = Arena::new(64);
    let waits = [Signal { address: words.at(8), lag: 0 }];
    let raises = [words.at(16), words.at(24)];
    let combines = Some(Combining { op, gathers: &gathers });
    let parts = [TablePart { waits: &waits, raises: &raises, combines, ..TablePart::default() }];
    let froms = [all.at(at[0]), all.at(at[1])];
    let tos = [all.at(at[2] + first)];
    let spec = TableSpec { parts: &parts, sources: &froms, targets: &tos, ..TableSpec::default() };
    let tuning = any_tuning(&mut numbers);
    let multiprocessors = [1, 3, 16][numbers.below(3)];
    let table = Table::new(
        &[(spec, vec![all.range()])],
        (multiprocessors, &tuning),
        &Given::default(),
        |_, _| Ok(()),
    );
    let mut expected = all.get();
    let combine = Combine::of(op, element, Source::Keep).expect("supported");
    for op in &boxes {
        let mut source = expected[at[op.source]..].to_vec();
        // SAFETY: the box lies within the field at both ends, and this thread alone knows them.
        unsafe { combine.run(op, source.as_mut_ptr(), expected[at[2] + first..].as_mut_ptr()) };
        if is_cleared(op.source) {
            op.for_each_block(|from, _, bytes| {
                let from = at[op.source] + from as usize;
                expected[from..from + bytes].fill(0);
            });
        }
    }
    let max_blocks = vec![table.waiting + 1];
    let ops = vec![(0, Op::Launch(0, 5, 0, None)), (1, Op::Busy(1)), (1, Op::Write(words.at(8), 5))];
    let program = Program { tables: &[table], max_blocks, streams: vec![0; 2], ops };
    program.run(machine, seed, &mut |_| Ok(()))?;
    if all.get() != expected {
        return Err(format!("{op} of {element}: the result is not the host's"));
    }
    match (words.word(2), words.word(3)) {
        (5, 5) => Ok(()),
        raised => Err(format!("the raised flags are {raised:?}")),
    }
}

#[test]
fn elements_are_combined_as_on_the_host_in_any_order_of_threads() {
    let Some(machine) = Machine::small() else { return };
    under_seeds(120, |seed| play(machine, seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}

#[test]
fn elements_are_combined_with_as_many_threads_as_on_gpus() {
    let Some(machine) = Machine::whole() else { return };
    under_seeds(8, |seed| play(machine, seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
}
