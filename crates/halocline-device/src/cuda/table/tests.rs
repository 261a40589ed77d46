//! The bytes that a split table moves, decoded as the kernel decodes them.

use super::kernel::LAUNCHES;
use super::nest::{AWAITED, UNITS, WRITTEN, divisor};
use super::*;
use crate::driver::TablePart;
use halocline_plan::copy::{AxisLayout, CellLayout, End};
use halocline_plan::copy::{Indexed, Loop, copy_op};
use halocline_plan::{AxisMap, BoxCells, Cells, ElementType, Transfer};
use proptest::prelude::*;

fn divide(n: u32, multiplier: u32, shift: u8) -> u32 {
    (((u64::from(multiplier) * u64::from(n)) >> 32) as u32 + n) >> shift
}

#[test]
fn division_by_multiplication_is_exact() {
    let most = UNITS as u32 - 1;
    for by in (1..5000).chain([65535, 65536, 1 << 30, (1 << 30) + 1, most - 1, most]) {
        let (multiplier, shift) = divisor(by);
        for n in [0, 1, by - 1, by, by.saturating_add(1), by.saturating_mul(7), 1_000_003, most] {
            let n = n.min(most);
            assert_eq!(divide(n, multiplier, shift), n / by, "{n} / {by}");
        }
    }
}

#[test]
fn the_kernel_has_the_same_constants() {
    let constants = [
        format!("u32 THREADS = {THREADS};"),
        format!("u32 LOOPS = {};", nest::LOOPS),
        format!("u32 LINE = {};", nest::LINE / nest::WIDEST),
        format!("u32 RAISES = {RAISES};"),
        format!("u32 LANES = {};", MOST_BARE / THREADS as usize),
        format!("u8 WRITTEN = {WRITTEN}, AWAITED = {AWAITED};"),
        format!("u32 BASES = {};", Base::MOST),
        format!("i64 POISON = 1ll << {};", crate::driver::POISON.trailing_zeros()),
    ];
    for constant in constants {
        assert!(crate::cuda::COPY_KERNELS.contains(&format!("constexpr {constant}")), "{constant}");
    }
}

/// The meaning of a region's `log_unit` in the kernel: the type of an access.
#[test]
fn the_kernel_moves_units_as_their_codes_say() {
    let types = [(1, "u8"), (2, "unsigned short"), (4, "u32"), (8, "uint2"), (nest::WIDEST, "uint4")];
    let code = |bytes: u64, slot: Slot| {
        let (block, slot) = (64 + bytes, (slot, 0));
        let nest = Nest { source: 0, target: 0, loops: Vec::new(), block, ends: [0, 0], slot, signs: 0 };
        assert_eq!(nest.unit(), bytes);
        nest.region().log_unit
    };
    for (bytes, name) in types {
        let log_unit = code(bytes, Slot::None);
        let case = if bytes == nest::WIDEST { "default".to_owned() } else { format!("case {log_unit}") };
        let line = format!(
            "  {case}: return move_units<{name}, CELLS, GATED, KIND>(table, item, bases, epoch, shared);"
        );
        assert!(crate::cuda::COPY_KERNELS.contains(&line), "{line}");
    }
    for (slot, name, code_of, moves) in
        [(Slot::Written, "WRITTEN", WRITTEN, "write_slot"), (Slot::Awaited, "AWAITED", AWAITED, "read_slot")]
    {
        for (at, (bytes, unit)) in [(4, "u32"), (8, "uint2")].into_iter().enumerate() {
            assert_eq!(code(bytes, slot), code_of + at as u8);
            let case = if at == 0 { name.to_owned() } else { format!("{name} + {at}") };
            let line = format!("    case {case}: return {moves}<{unit}, CELLS");
            assert!(crate::cuda::COPY_KERNELS.contains(&line), "{line}");
        }
    }
    let plain = nest::WIDEST.trailing_zeros() as u8;
    assert!(plain < WRITTEN && WRITTEN + 1 < AWAITED, "codes that mean two things");
}

/// Addresses of a unit and its length, as the kernel computes them; `None` for a spare unit.
fn locate(region: &Region, unit: u32, cells: &[[u32; 2]]) -> Option<(u64, u64, usize)> {
    let mut rest = divide(unit, region.multiplier[0], region.shift[0]);
    let of_block = unit - rest * region.count[0];
    let (mut source, mut target) = (0, 0);
    for at in 1..usize::from(region.loops) {
        let mut step = rest;
        if at + 1 < usize::from(region.loops) {
            rest = divide(step, region.multiplier[at], region.shift[at]);
            step -= rest * region.count[at];
        }
        let [from, to] = match usize::from(region.cell_loop) == at {
            true => cells[region.cells as usize + step as usize],
            false => [step, step],
        };
        source += i64::from(from) * region.source_step[at - 1];
        target += i64::from(to) * region.target_step[at - 1];
    }
    let at = |base: u64, offset: i64| base.wrapping_add_signed(offset);
    let (source, target) = (at(region.source, source), at(region.target, target));
    let spare = u32::from(region.ends >> 4);
    let late = if spare == 0 { 0 } else { (target % 128 / 16) as u32 };
    let (of_block, last) = (of_block.checked_sub(late)?, region.count[0] - 1 - spare);
    let words = |which: u32, ends: u8| if of_block == which { 4 * u64::from(ends & 3) } else { 0 };
    let (head, tail) = (words(0, region.ends), words(last, region.ends >> 2));
    let begin = (u64::from(of_block) << region.log_unit) + head;
    let len = (1usize << region.log_unit) - (head + tail) as usize;
    (of_block <= last).then_some((source + begin, target + begin, len))
}

/// All (source, target, length) of a table, item by item, by target address.
fn moved(cut: &Cut) -> Vec<(u64, u64, usize)> {
    let mut all = Vec::new();
    for item in cut.pieces.iter().chain(&cut.later) {
        let region = &cut.regions[item.region];
        let units = item.first..item.first + item.units;
        all.extend(units.filter_map(|unit| locate(region, unit, &cut.cells)));
    }
    all
}

fn cut(ops: &[CopyOp], source: Address, target: Address) -> Cut {
    let parts = [TablePart { ops, ..TablePart::default() }];
    let spec = TableSpec { parts: &parts, sources: &[source], targets: &[target], ..TableSpec::default() };
    Cut::new(&spec, (4, &Tuning::HOPPER), |_, _| Ok(())).expect("within bounds")
}

/// Bytes by their addresses at both ends.
fn bytes(moves: impl IntoIterator<Item = (u64, u64, usize)>) -> Vec<(u64, u64)> {
    let each = |(s, t, len): (u64, u64, usize)| (0..len as u64).map(move |at| (t + at, s + at));
    let mut all: Vec<_> = moves.into_iter().flat_map(each).collect();
    all.sort_unstable();
    all
}

/// Checks that a table moves each byte of its operation once, by aligned accesses.
fn check(op: &CopyOp, source: Address, target: Address) {
    let cut = cut(std::slice::from_ref(op), source, target);
    let moves = moved(&cut);
    for &(s, t, len) in &moves {
        let by = if len.is_power_of_two() { len as u64 } else { 4 };
        assert!(s.is_multiple_of(by) && t.is_multiple_of(by), "{s:#x} {t:#x} by {len}");
    }
    let mut expected = Vec::new();
    op.for_each_block(|s, t, len| {
        expected.push((source.wrapping_add_signed(s as i64), target.wrapping_add_signed(t as i64), len));
    });
    assert!(bytes(moves) == bytes(expected), "{op:?} moves something else");
}

fn loops(most: usize) -> impl Strategy<Value = Vec<halocline_plan::copy::Loop>> {
    let step = || prop_oneof![Just(8isize), Just(16), Just(24), Just(-40), Just(1008), 0..3000isize];
    let one = (1usize..4, step(), step());
    let make = |(count, source, target)| halocline_plan::copy::Loop { count, source, target };
    proptest::collection::vec(one.prop_map(make), 0..most)
}

/// An operation as [`copy_op`] makes them, with any loops; these tests use addresses only.
pub(super) fn op(loops: Vec<halocline_plan::copy::Loop>, cells: Option<Indexed>, block: usize) -> CopyOp {
    let whole = || Cells::Box(BoxCells { low: vec![0], extent: vec![1] });
    let transfer = Transfer {
        from: 0,
        to: 0,
        source: whole(),
        target: whole(),
        map: AxisMap::IDENTITY,
        is_negated: false,
    };
    let axes = vec![AxisLayout { stride: 1, origin: 0, extent: 1 }];
    let layout = CellLayout { element: ElementType::U8, units: 1, name: None, axes, extra: Vec::new() };
    let mut op = copy_op(&transfer, (End::Field(0), &layout), (End::Field(0), &layout));
    (op.loops, op.cells, op.block) = (loops, cells, block);
    op
}

fn block() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..50, 500usize..700, Just(8), Just(24), Just(1024)]
}

proptest! {
    #[test]
    fn a_table_moves_what_its_operations_say(
        loops in loops(6), block in block(), offsets in (0u64..64, 0u64..64)
    ) {
        check(&op(loops, None, block), (1 << 40) + offsets.0, (1 << 50) + offsets.1);
    }

    #[test]
    fn a_table_moves_the_listed_cells(
        outer in loops(2), inner in loops(3), block in block(), strides in (0usize..3, 0usize..3),
        runs in proptest::collection::vec((0u32..100, 0u32..100, 1u32..5), 1..15),
    ) {
        let run = |(source, target, len)| CellRun { source, target, len };
        let runs: Vec<CellRun> = runs.into_iter().map(run).collect();
        let stride = |extra: usize| (block + 8 * extra) as isize;
        let (source_stride, target_stride) = (stride(strides.0), stride(strides.1));
        let cells = Indexed { runs: runs.into(), source_stride, target_stride, inner };
        check(&op(outer, Some(cells), block), 1 << 40, 1 << 50);
    }
}

#[test]
fn what_is_beyond_31_bits_is_cut() {
    let far = halocline_plan::copy::Loop { count: 1 << 20, source: 1 << 16, target: 1 << 16 };
    // 2^20 blocks of 32 KiB without alignment: 2^35 units.
    let cut = cut(&[op(vec![far], None, 1 << 15)], (1 << 40) + 1, 1 << 50);
    let units: u128 = cut.units.iter().map(|&units| u128::from(units)).sum();
    assert_eq!(units, 1 << 35);
    assert!(cut.units.iter().all(|&units| u128::from(units) < UNITS), "{:?}", cut.units);
    let (last, item) = (cut.regions.len() - 1, cut.pieces.last().expect("there are pieces"));
    let end = (1u64 << 36) - (1 << 15) - 1;
    let (source, target, _) =
        locate(&cut.regions[last], item.first + item.units - 1, &[]).expect("no spare one");
    assert_eq!((item.region, source, target), (last, (1 << 40) + 1 + end, (1 << 50) + end));
}

#[test]
fn a_row_that_begins_askew_is_moved_by_long_units_all_the_same() {
    let rows = halocline_plan::copy::Loop { count: 10, source: 1072, target: 1072 };
    let ops = [op(vec![rows], None, 1024)];
    let parts = [TablePart { ops: &ops, ..TablePart::default() }];
    let (source, target) = ((1 << 40) + 24, (1 << 50) + 24);
    let spec = TableSpec { parts: &parts, sources: &[source], targets: &[target], ..TableSpec::default() };
    let units = |cut: &Cut| (cut.units.clone(), cut.regions.iter().map(|r| r.log_unit).collect::<Vec<_>>());
    // 65 units of 16 bytes per row, with 8 bytes left out of the first and the last one; and 7 spare units,
    // as rows begin anywhere in a line.
    let whole = Cut::new(&spec, (4, &Tuning::HOPPER), |_, _| Ok(())).expect("within bounds");
    assert_eq!((units(&whole), whole.regions[0].ends), ((vec![720], vec![4]), 2 | 2 << 2 | 7 << 4));
    // 8 bytes, 63 units of 16 and 9 spare ones, 8 bytes, if no bytes beside the block may be read.
    let end = source + 9 * 1072 + 1024;
    let exact =
        |first: Address, bytes: usize| match first < source || first + bytes as u64 > end && first < target {
            true => Err(DeviceError::NotReachable { address: first, bytes }),
            false => Ok(()),
        };
    let split = Cut::new(&spec, (4, &Tuning::HOPPER), exact).expect("within bounds");
    assert_eq!(units(&split), (vec![10, 720, 10], vec![3, 4, 3]));
    assert_eq!(bytes(moved(&whole)), bytes(moved(&split)));
}

proptest! {
    #[test]
    fn blocks_that_begin_and_end_with_parts_of_long_units_are_moved(
        at in 0u64..32, block in 16usize..300, count in 1usize..10, gap in 0isize..4, far in 0u64..8
    ) {
        let step = (4 * block).next_multiple_of(16) as isize + 16 * gap;
        let rows = halocline_plan::copy::Loop { count, source: step, target: -step };
        check(&op(vec![rows], None, 4 * block), (1 << 40) + 4 * at, (1 << 50) + 4 * at + 16 * far);
    }
}

#[test]
fn parts_that_wait_or_raise_have_blocks_of_their_own() {
    let waits = [Signal { address: 64, lag: 0 }];
    let ops = |bytes: usize| [op(Vec::new(), None, bytes)];
    let (small, large, local) = (ops(32 << 10), ops(96 << 10), ops(1 << 20));
    let parts = [
        TablePart { ops: &local, ..TablePart::default() },
        TablePart { waits: &waits, ops: &large, ..TablePart::default() },
        TablePart::default(),
        TablePart { raises: &[128], ..TablePart::default() },
        TablePart { waits: &waits, raises: &[128], ..TablePart::default() },
        TablePart { waits: &waits, ops: &small, raises: &[128], early: true, ..TablePart::default() },
        TablePart { ops: &small, raises: &[128], ..TablePart::default() },
    ];
    let spec = TableSpec { parts: &parts, sources: &[1 << 40], targets: &[1 << 50], ..TableSpec::default() };
    let cut = Cut::new(&spec, (16, &Tuning::HOPPER), |_, _| Ok(())).expect("fine");
    // 3/4 and 1/4 of the 8 blocks that may wait; as many for parts that raise, beside copies within the rank.
    assert_eq!(cut.tied.iter().map(|tied| tied.blocks).collect::<Vec<_>>(), [6, 2, 4]);
    assert_eq!((cut.bare.len(), &cut.first[..]), (1, &[128][..]));
    assert_eq!((cut.pieces.len(), cut.blocks(), cut.waiting_blocks()), (12 + 22, 1 + 12 + 22, 1 + 8));
    let items = cut.items(0);
    let carriers: Vec<_> =
        items[..13].iter().map(|i| (i.part, i.blocks, i.waits, i.raises, i.early)).collect();
    let (large, small, raising) = ((0, 6, 1, 0, 0), (1, 2, 1, 1, 1), (2, 4, 0, 1, 0));
    let expected = [[large; 6].as_slice(), &[small; 2], &[raising; 4], &[(0, 0, 0, 0, 0)]].concat();
    assert_eq!(carriers, expected);
    assert_eq!(
        items[6..9].iter().map(|i| (i.awaited.flag, i.raised)).collect::<Vec<_>>(),
        [(64, 128), (64, 128), (0, 128)]
    );
    let (size, (bytes, arguments)) = (cut.size(), Cut::lay_out(vec![cut], 1 << 40));
    let argument = arguments[0];
    assert_eq!(bytes.len(), size);
    assert_eq!(argument.of_launch(LAUNCHES + 1).done, argument.done + 3 * 8);
}

#[test]
fn a_part_beside_other_work_has_few_blocks() {
    let local = [op(Vec::new(), None, 1 << 20)];
    let of = |beside| {
        let parts = [TablePart { ops: &local, beside, ..TablePart::default() }];
        let spec =
            TableSpec { parts: &parts, sources: &[1 << 40], targets: &[1 << 50], ..TableSpec::default() };
        let cut = Cut::new(&spec, (16, &Tuning::HOPPER), |_, _| Ok(())).expect("fine");
        let (blocks, items) = (cut.blocks() as usize, cut.items(0));
        let mut done: Vec<(u32, u32)> = Vec::new();
        for first in 0..blocks {
            let mut at = first;
            loop {
                done.push((items[at].first, items[at].units));
                at = items[at].next as usize;
                if at == 0 {
                    break;
                }
            }
        }
        done.sort_unstable();
        (blocks, done)
    };
    let (alone, beside) = (of(false), of(true));
    assert_eq!((alone.0, beside.0), (alone.1.len(), 8));
    assert!(alone.0 > 8, "{alone:?}");
    assert_eq!(alone.1, beside.1);
}

#[test]
fn too_many_waiting_parts_are_refused() {
    let waits = [Signal { address: 64, lag: 0 }];
    let waiting = TablePart { waits: &waits, raises: &[128], ..TablePart::default() };
    let raising = TablePart { raises: &[128], ..TablePart::default() };
    let cut = |parts: &[TablePart<'_>]| {
        Cut::new(
            &TableSpec { parts, sources: &[], targets: &[], ..TableSpec::default() },
            (4, &Tuning::HOPPER),
            |_, _| Ok(()),
        )
    };
    let limit = MOST_BARE;
    let refused = Some(DeviceError::TooManyWaits { parts: limit + 1, limit });
    let only_raising = vec![raising; RAISES + limit + 1];
    assert_eq!(cut(&only_raising).expect("none keeps another waiting").bare.len(), limit + 1);
    assert_eq!(cut(&[&only_raising[1..], &[waiting]].concat()).err(), refused);
    assert_eq!(cut(&vec![waiting; limit + 1]).err(), refused);
    assert_eq!(cut(&vec![waiting; limit]).expect("so many are looked at").bare.len(), limit);
}

/// Slices of a GPU (MIG) have few multiprocessors.
#[test]
fn every_part_that_waits_has_a_block_however_few_multiprocessors_there_are() {
    let waits = [Signal { address: 64, lag: 0 }];
    let ops: Vec<_> = (0..26).map(|at| [op(Vec::new(), None, 8 << (at % 18))]).collect();
    let part = |ops| TablePart { waits: &waits, ops, raises: &[128], early: true, ..TablePart::default() };
    let parts: Vec<_> = ops.iter().map(|ops| part(&ops[..])).collect();
    for multiprocessors in [1, 2, 7, 14, 16, 132] {
        let spec =
            TableSpec { parts: &parts, sources: &[1 << 40], targets: &[1 << 50], ..TableSpec::default() };
        let cut = Cut::new(&spec, (multiprocessors, &Tuning::HOPPER), |_, _| Ok(())).expect("fine");
        assert!(cut.tied.len() == parts.len() && cut.tied.iter().all(|tied| tied.blocks > 0));
        let most = parts.len() as u32 + (multiprocessors / 2).max(1);
        assert!((26..=most).contains(&cut.waiting_blocks()), "{} of {most}", cut.waiting_blocks());
    }
}

#[test]
fn wrong_words_and_buffers_are_refused() {
    let cut = |parts: &[TablePart<'_>], guard| {
        Cut::new(
            &TableSpec { parts, sources: &[], targets: &[0], guard, ..TableSpec::default() },
            (4, &Tuning::HOPPER),
            |_, _| Ok(()),
        )
        .err()
    };
    let raises = TablePart { raises: &[12], ..TablePart::default() };
    assert_eq!(cut(&[raises], None), Some(DeviceError::Misaligned { address: 12 }));
    assert_eq!(cut(&[], Some(4)), Some(DeviceError::Misaligned { address: 4 }));
    let mut signs = op(Vec::new(), None, 8);
    (signs.element, signs.is_negated) = (ElementType::F64, true);
    let spec = |target| {
        let parts = [TablePart { ops: std::slice::from_ref(&signs), ..TablePart::default() }];
        let spec = TableSpec { parts: &parts, sources: &[0], targets: &[target], ..TableSpec::default() };
        Cut::new(&spec, (4, &Tuning::HOPPER), |_, _| Ok(())).err()
    };
    assert_eq!(spec(16), None);
    let misaligned = spec(12).expect("it is refused");
    assert_eq!(misaligned, DeviceError::MisalignedSigns { address: 12, bytes: 8 });
    assert_eq!(
        misaligned.to_string(),
        "elements that change their signs begin at 0xc, but their numbers have 8 bytes; give fields whose addresses and strides \
         are multiples of that"
    );
    let ops = [op(Vec::new(), None, 8)];
    let none = DeviceError::NoBuffer { side: "source", index: 0, count: 0 };
    assert_eq!(cut(&[TablePart { ops: &ops, ..TablePart::default() }], None), Some(none));
}

#[test]
fn waiting_blocks_take_items_in_turn() {
    let waits = [Signal { address: 64, lag: 0 }];
    let ops = [op(Vec::new(), None, 16 * 4096 * 7)];
    let parts = [TablePart { waits: &waits, ops: &ops, early: true, ..TablePart::default() }];
    let spec = TableSpec { parts: &parts, sources: &[1 << 40], targets: &[1 << 50], ..TableSpec::default() };
    let cut = Cut::new(&spec, (6, &Tuning::HOPPER), |_, _| Ok(())).expect("fine");
    let items = cut.items(0);
    assert_eq!((cut.blocks(), items.len()), (3, 7));
    assert_eq!(items.iter().map(|item| item.next).collect::<Vec<_>>(), [3, 4, 5, 6, 0, 0, 0]);
    assert_eq!(items.iter().map(|item| item.waits).collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(
        items.iter().map(|item| item.first).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6].map(|at| at * 4096)
    );
    assert_eq!(items.iter().map(|item| item.early).collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn tuning_constants_control_how_a_table_is_split() {
    let waits = [Signal { address: 64, lag: 0 }];
    let ops = [op(Vec::new(), None, 16 * 4096 * 8)];
    let tied = TablePart { waits: &waits, ops: &ops, early: true, ..TablePart::default() };
    let free = TablePart { ops: &ops, ..TablePart::default() };
    let cut = |parts: &[TablePart<'_>], tuning: Tuning| {
        let spec = TableSpec { parts, sources: &[1 << 40], targets: &[1 << 50], ..TableSpec::default() };
        let cut = Cut::new(&spec, (8, &tuning), |_, _| Ok(())).expect("fine");
        (cut.waiting_blocks(), cut.pieces.len() + cut.later.len())
    };
    let usual = Tuning::HOPPER;
    assert_eq!(cut(&[tied], usual), (4, 8));
    assert_eq!(cut(&[tied], Tuning { waiting: 25, ..usual }), (2, 8));
    assert_eq!(cut(&[tied], Tuning { item: 2048, ..usual }), (4, 16));
    assert_eq!(cut(&[free], usual), (0, 16));
    assert_eq!(cut(&[free], Tuning { items: 4, ..usual }), (0, 32));
    assert_eq!(cut(&[tied], Tuning { alone: 65_536, ..usual }), (1, 8));
}

#[test]
fn a_part_with_a_slot_has_few_blocks_that_wait_and_a_slot_of_twice_the_bytes() {
    let rows = [Loop { count: 3, source: 32, target: 24 }];
    let (packs, waits) = (op(rows.to_vec(), None, 24), [Signal { address: 64, lag: 2 }]);
    let mut unpacks = packs.clone();
    unpacks.source_offset = 4;
    let (field, slots) = (1 << 40, 1 << 50);
    let cut = |op: &CopyOp, slot, waits: &[Signal], (source, target)| {
        let ops = std::slice::from_ref(op);
        let parts = [TablePart { waits, ops, raises: &[128], early: true, slot, ..TablePart::default() }];
        let mut reached = Vec::new();
        let spec =
            TableSpec { parts: &parts, sources: &[source], targets: &[target], ..TableSpec::default() };
        let reach = |first, bytes| {
            reached.push((first, bytes));
            Ok(())
        };
        (Cut::new(&spec, (8, &Tuning::HOPPER), reach), reached)
    };
    let (written, reached) = cut(&packs, Slot::Written, &waits, (field, slots));
    let written = written.expect("fine");
    assert_eq!(reached[2..], [(field, 88), (slots, 144)]);
    let region = written.regions[0];
    assert_eq!((region.log_unit, region.source_step[0], region.target_step[0]), (WRITTEN + 1, 32, 48));
    assert_eq!((written.units[0], written.waiting_blocks(), written.has_ll), (9, 1, true));
    // A part that reads a slot waits there, regardless of other waits, and never reads early.
    let (awaited, reached) = cut(&unpacks, Slot::Awaited, &[], (slots, field));
    let awaited = awaited.expect("fine");
    assert_eq!(reached[1..], [(slots + 8, 176), (field, 72)]);
    let region = awaited.regions[0];
    assert_eq!((region.log_unit, region.source, region.source_step[0]), (AWAITED, slots + 8, 64));
    assert_eq!((awaited.units[0], awaited.waiting_blocks(), awaited.items(0)[0].early), (18, 1, 0));
    let (plain, _) = cut(&packs, Slot::None, &[], (field, slots));
    assert!(plain.is_ok_and(|plain| !plain.has_ll && plain.waiting_blocks() == 0));
}

/// A link without cells raises the flag of the slot, whose address differs between even and odd epochs.
#[test]
fn flags_that_differ_between_even_and_odd_epochs_are_raised_by_the_work_of_the_epoch() {
    let words = [1u64 << 40, (1 << 40) + 8];
    let raises = words.map(|word| [word]);
    let parts = [0, 1].map(|parity| {
        [
            TablePart { raises: &[1 << 41], ..TablePart::default() },
            TablePart { raises: &raises[parity], ..TablePart::default() },
        ]
    });
    let works = [0, 1].map(|parity: usize| TableSpec {
        parts: &parts[parity],
        sources: &[],
        targets: &[],
        ..TableSpec::default()
    });
    let cut = |at| Cut::of_work((&works, at), (132, &Tuning::HOPPER), |_, _| Ok(())).expect("all is reached");
    let cuts: Vec<Cut> = (0..2).map(cut).collect();
    assert_eq!((&cuts[0].first, &cuts[0].raises), (&vec![1 << 41], &vec![words[0]]));
    assert_eq!((&cuts[1].first, &cuts[1].raises), (&vec![1 << 41], &vec![words[1]]));
    let (_, arguments) = Cut::lay_out(cuts, 1 << 42);
    assert!(arguments[0].has_odd() && arguments[0].first_count == 1 && arguments[0].bare == 1);
}
