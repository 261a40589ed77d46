//! Copy operations that combine: each element of the target becomes a function of itself and of an element of the source.
//!
//! Elements are combined one after the other in the order of the operation, without atomics. Neither end has to be aligned.

use super::cells::{Offsets, STEPS, is_long, loop_of};
use super::{negated, steps};
use halocline_plan::copy::{CopyOp, Indexed, Loop};
use halocline_plan::{ElementType, ReduceOp};

/// How an operation combines the elements at its two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combine {
    op: ReduceOp,
    element: ElementType,
    source: Source,
}

/// How an operation changes the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It stays as it is.
    Keep,
    /// All its bytes become zero.
    Clear,
    /// It gets the target's previous value.
    Fetch,
}

/// [`Source`] as a number, for functions that are compiled for each.
const KEEP: u8 = 0;
const CLEAR: u8 = 1;
const FETCH: u8 = 2;

/// Calls `$each` with the function of two values that combines elements of an integer type, or of bool.
macro_rules! integers {
    ($op:expr, $element:expr, $each:ident, $($of:ident: $int:ty),*) => {
        match ($op, $element) {
            $(
                (ReduceOp::Sum, ElementType::$of) => $each!($int, |a, b| a.wrapping_add(b)),
                (ReduceOp::Product, ElementType::$of) => $each!($int, |a, b| a.wrapping_mul(b)),
                (ReduceOp::Min, ElementType::$of) => $each!($int, |a, b| a.min(b)),
                (ReduceOp::Max, ElementType::$of) => $each!($int, |a, b| a.max(b)),
                (ReduceOp::And, ElementType::$of) => $each!($int, |a, b| a & b),
                (ReduceOp::Or, ElementType::$of) => $each!($int, |a, b| a | b),
                (ReduceOp::Xor, ElementType::$of) => $each!($int, |a, b| a ^ b),
            )*
            (ReduceOp::Sum | ReduceOp::Xor, _) => $each!(u8, |a, b| ((a != 0) ^ (b != 0)).into()),
            (ReduceOp::Max | ReduceOp::Or, _) => $each!(u8, |a, b| ((a != 0) | (b != 0)).into()),
            _ => $each!(u8, |a, b| ((a != 0) & (b != 0)).into()),
        }
    };
}

/// Calls `$each` with the function of two values that combines elements of a floating-point or complex type.
macro_rules! floats {
    ($op:expr, $is_complex:expr, $each:ident, $float:ty) => {
        match ($op, $is_complex) {
            (ReduceOp::Sum, false) => $each!($float, |a, b| a + b),
            (ReduceOp::Product, false) => $each!($float, |a, b| a * b),
            // Where one is NaN, the comparison is false; the sum is NaN then.
            (ReduceOp::Min, false) => $each!($float, |a, b| if b < a {
                b
            } else if b >= a {
                a
            } else {
                a + b
            }),
            (_, false) => $each!($float, |a, b| if b > a {
                b
            } else if b <= a {
                a
            } else {
                a + b
            }),
            (ReduceOp::Sum, true) => $each!([$float; 2], |a, b| [a[0] + b[0], a[1] + b[1]]),
            (_, true) => {
                $each!([$float; 2], |a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])
            }
        }
    };
}

impl Combine {
    /// Combines by a reduction. `None` if the element type does not support it ([`ReduceOp::supports`]).
    pub fn of(op: ReduceOp, element: ElementType, source: Source) -> Option<Self> {
        op.supports(element).then_some(Self { op, element, source })
    }

    /// Copies, as [`ReduceOp::Replace`] of any element type does, and clears the source.
    pub fn take(element: ElementType) -> Self {
        Self { op: ReduceOp::Replace, element, source: Source::Clear }
    }

    /// Executes an operation: from the address of element (0, 0, …) of the source field, or of the first byte of a message, to
    /// that of the target.
    ///
    /// # Safety
    /// The operation stays within memory that is valid for reads at both ends, and for writes at the target and, unless
    /// it is kept, at the source. The ends do not overlap. The operation moves elements of the type that [`Combine::of`] was
    /// given. Meanwhile nothing else accesses memory that is written, or writes the source.
    pub unsafe fn run(self, op: &CopyOp, source: *mut u8, target: *mut u8) {
        // SAFETY: the caller promises for both ends what `by` requires.
        unsafe {
            match self.source {
                Source::Keep => self.by::<KEEP>(op, source, target),
                Source::Clear => self.by::<CLEAR>(op, source, target),
                Source::Fetch => self.by::<FETCH>(op, source, target),
            }
        }
    }

    unsafe fn by<const CHANGE: u8>(self, op: &CopyOp, from: *mut u8, to: *mut u8) {
        use ElementType as E;
        macro_rules! each {
            ($value:ty, |$a:ident, $b:ident| $result:expr) => {
                // SAFETY: the caller of `run` promises that the operation moves such elements within valid memory. Any bytes
                // are a value: the types are integers and floating-point numbers.
                unsafe { traverse::<$value, CHANGE>(op, from, to, |$a: $value, $b: $value| -> $value { $result }) }
            };
        }
        match (self.op, self.element) {
            (ReduceOp::Replace, element) => match element.size() {
                2 => each!(u16, |_a, b| b),
                4 => each!(u32, |_a, b| b),
                8 => each!(u64, |_a, b| b),
                16 => each!(u128, |_a, b| b),
                _ => each!(u8, |_a, b| b),
            },
            (how, E::F32 | E::C64) => floats!(how, self.element == E::C64, each, f32),
            (how, E::F64 | E::C128) => floats!(how, self.element == E::C128, each, f64),
            (how, element) => integers!(
                how, element, each, I8: i8, U8: u8, I16: i16, U16: u16, I32: i32, U32: u32, I64: i64, U64: u64
            ),
        }
    }
}

/// Combines all elements of an operation.
#[inline(never)]
unsafe fn traverse<V: Copy, const CHANGE: u8>(
    op: &CopyOp,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    if op.is_negated {
        // SAFETY: the caller vouches for the operation.
        return unsafe { traverse_negated::<V, CHANGE>(op, from, to, apply) };
    }
    let (from, to) = (from.wrapping_offset(op.source_offset), to.wrapping_offset(op.target_offset));
    // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
    unsafe { nest::<V, CHANGE>(&op.loops, op.cells.as_ref(), op.block, from, to, apply) };
}

/// Combines all elements of an operation across a seam that changes their sign, there and back.
#[cold]
#[inline(never)]
unsafe fn traverse_negated<V: Copy, const CHANGE: u8>(
    op: &CopyOp,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    op.for_each_block(|source, target, block| {
        for at in 0..block / size_of::<V>() {
            let from = from.wrapping_offset(source).cast::<V>().wrapping_add(at);
            let to = to.wrapping_offset(target).cast::<V>().wrapping_add(at);
            // SAFETY: these elements are part of an operation that the caller of `run` vouches for. A `V` has as many bytes.
            unsafe {
                let change_signs = |value: *mut V| {
                    let bytes = std::slice::from_raw_parts_mut(value.cast::<u8>(), size_of::<V>());
                    negated::change_signs(op.element, bytes);
                };
                let mut contribution = from.read_unaligned();
                change_signs(&raw mut contribution);
                element::<V, CHANGE>(&raw mut contribution, to, apply);
                match CHANGE {
                    KEEP => {}
                    FETCH => {
                        change_signs(&raw mut contribution);
                        from.write_unaligned(contribution);
                    }
                    _ => from.write_unaligned(contribution),
                }
            }
        }
    });
}

/// Iterates over loops around blocks, or around listed cells of blocks, outermost first.
unsafe fn nest<V: Copy, const CHANGE: u8>(
    loops: &[Loop],
    cells: Option<&Indexed>,
    block: usize,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
    unsafe {
        match (loops, cells) {
            ([only], Some(cells)) if is_small::<V>(cells, block) && only.count >= STEPS => {
                in_steps::<V, CHANGE>(only, cells, from, to, apply);
            }
            ([], Some(cells)) => listed::<V, CHANGE>(cells, block, from, to, apply),
            ([], None) => elements::<V, CHANGE>(block, from, to, apply),
            ([only], None) => strided::<V, CHANGE>(only, block, from, to, apply),
            ([outer, pair], None) if pair.count == 2 && block == size_of::<V>() => {
                pairs::<V, CHANGE>(outer, pair, from, to, apply);
            }
            ([outer, rest @ ..], _) => {
                for (from, to) in steps(outer, from, to) {
                    nest::<V, CHANGE>(rest, cells, block, from.cast_mut(), to, apply);
                }
            }
        }
    }
}

/// Whether listed cells are single elements.
fn is_small<V>(cells: &Indexed, block: usize) -> bool {
    cells.inner.is_empty() && block == size_of::<V>()
}

/// Combines listed single elements, in each step of a loop. Their offsets are listed once for all steps, so that the loop takes few
/// instructions for each of them: most lie on a cache line of their own, and the processor overlaps as many misses as it has elements in
/// flight.
#[inline(never)]
unsafe fn in_steps<V: Copy, const CHANGE: u8>(
    l: &Loop,
    cells: &Indexed,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    let (mut offsets, mut runs) = (Offsets::new(), &cells.runs[..]);
    while !runs.is_empty() {
        let (sources, targets) = offsets.list(cells, size_of::<V>(), &mut runs);
        for (from, to) in steps(l, from, to) {
            for (&source, &target) in sources.iter().zip(targets) {
                let (from, to) = (from.wrapping_offset(source), to.wrapping_offset(target));
                // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
                unsafe { element::<V, CHANGE>(from.cast_mut().cast(), to.cast(), apply) };
            }
        }
        while let [run, rest @ ..] = runs
            && is_long(run, size_of::<V>())
        {
            let (each, source, target) = loop_of(run, cells);
            for (from, to) in steps(l, from.wrapping_offset(source), to.wrapping_offset(target)) {
                // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
                unsafe { strided::<V, CHANGE>(&each, size_of::<V>(), from.cast_mut(), to, apply) };
            }
            runs = rest;
        }
    }
}

unsafe fn listed<V: Copy, const CHANGE: u8>(
    cells: &Indexed,
    block: usize,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    for run in cells.runs.iter() {
        let (each, source, target) = loop_of(run, cells);
        let (from, to) = (from.wrapping_offset(source), to.wrapping_offset(target));
        // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
        unsafe {
            match &cells.inner[..] {
                [] => strided::<V, CHANGE>(&each, block, from, to, apply),
                inner => {
                    for (from, to) in steps(&each, from, to) {
                        nest::<V, CHANGE>(inner, None, block, from.cast_mut(), to, apply);
                    }
                }
            }
        }
    }
}

/// Combines two elements at each step of a loop.
#[inline(always)]
unsafe fn pairs<V: Copy, const CHANGE: u8>(
    l: &Loop,
    pair: &Loop,
    mut from: *mut u8,
    mut to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    for _ in 0..l.count {
        let second = (from.wrapping_offset(pair.source), to.wrapping_offset(pair.target));
        // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
        unsafe {
            element::<V, CHANGE>(from.cast(), to.cast(), apply);
            element::<V, CHANGE>(second.0.cast(), second.1.cast(), apply);
        }
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

/// Combines a block at each step of a loop.
#[inline(always)]
unsafe fn strided<V: Copy, const CHANGE: u8>(
    l: &Loop,
    block: usize,
    mut from: *mut u8,
    mut to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    let is_dense = (l.source, l.target) == (block as isize, block as isize);
    let (count, block) = if is_dense { (1, l.count * block) } else { (l.count, block) };
    for _ in 0..count {
        // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
        unsafe {
            if block == size_of::<V>() {
                element::<V, CHANGE>(from.cast(), to.cast(), apply);
            } else {
                elements::<V, CHANGE>(block, from, to, apply);
            }
        }
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

/// Combines the elements of a contiguous block.
#[inline(always)]
unsafe fn elements<V: Copy, const CHANGE: u8>(
    bytes: usize,
    from: *mut u8,
    to: *mut u8,
    apply: impl Fn(V, V) -> V + Copy,
) {
    let (from, to) = (from.cast::<V>(), to.cast::<V>());
    for at in 0..bytes / size_of::<V>() {
        // SAFETY: these elements are part of an operation that the caller of `run` vouches for.
        unsafe { element::<V, CHANGE>(from.wrapping_add(at), to.wrapping_add(at), apply) };
    }
}

#[inline(always)]
unsafe fn element<V: Copy, const CHANGE: u8>(from: *mut V, to: *mut V, apply: impl Fn(V, V) -> V) {
    // SAFETY: the element is part of an operation that the caller of `run` vouches for, and needs no alignment. All bytes zero are
    // a value of `V`, which is made of integers or floating-point numbers.
    unsafe {
        let before = to.read_unaligned();
        to.write_unaligned(apply(before, from.read_unaligned()));
        match CHANGE {
            CLEAR => from.write_unaligned(std::mem::zeroed()),
            FETCH => from.write_unaligned(before),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::copy::{AxisLayout, CellLayout, End, copy_op};
    use halocline_plan::{AxisMap, BoxCells, Cells, Transfer};

    /// Combines a row of three elements into another one.
    fn combined<T: Copy>(
        op: ReduceOp,
        element: ElementType,
        source: [T; 3],
        target: [T; 3],
    ) -> Option<[T; 3]> {
        let combine = Combine::of(op, element, Source::Keep)?;
        let cells = Cells::Box(BoxCells { low: vec![0], extent: vec![3] });
        let transfer = Transfer {
            from: 0,
            to: 1,
            source: cells.clone(),
            target: cells,
            map: AxisMap::IDENTITY,
            is_negated: false,
        };
        let axis = AxisLayout { stride: size_of::<T>() as isize, origin: 0, extent: 3 };
        let layout = CellLayout { element, units: 1, name: None, axes: vec![axis], extra: vec![] };
        let op = copy_op(&transfer, (End::Field(0), &layout), (End::Field(0), &layout));
        let (mut source, mut target) = (source, target);
        // SAFETY: the operation moves three elements between the two arrays, which this thread alone knows.
        unsafe { combine.run(&op, source.as_mut_ptr().cast(), target.as_mut_ptr().cast()) };
        Some(target)
    }

    #[test]
    fn integers_wrap_and_are_signed_where_their_type_is() {
        use ReduceOp::{Max, Min, Product, Sum};
        let signed = |op| combined(op, ElementType::I8, [-1_i8, 100, 3], [2, 100, -5]);
        assert_eq!(signed(Sum), Some([1, -56, -2]));
        assert_eq!(signed(Product), Some([-2, 16, -15]));
        assert_eq!((signed(Min), signed(Max)), (Some([-1, 100, -5]), Some([2, 100, 3])));
        let unsigned = |op| combined(op, ElementType::U64, [u64::MAX, 6, 1], [2, 3, 1]);
        assert_eq!((unsigned(Sum), unsigned(Min)), (Some([1, 9, 2]), Some([2, 3, 1])));
        assert_eq!(unsigned(ReduceOp::Xor), Some([u64::MAX - 2, 5, 0]));
        assert_eq!(
            (unsigned(ReduceOp::And), unsigned(ReduceOp::Or)),
            (Some([2, 2, 1]), Some([u64::MAX, 7, 1]))
        );
    }

    #[test]
    fn a_bool_is_one_bit_whatever_byte_says_true() {
        let all = |op| combined(op, ElementType::Bool, [0_u8, 2, 7], [1, 0, 4]);
        assert_eq!((all(ReduceOp::Sum), all(ReduceOp::Xor)), (Some([1, 1, 0]), Some([1, 1, 0])));
        assert_eq!((all(ReduceOp::Product), all(ReduceOp::And)), (Some([0, 0, 1]), Some([0, 0, 1])));
        assert_eq!((all(ReduceOp::Min), all(ReduceOp::Max)), (Some([0, 0, 1]), Some([1, 1, 1])));
        assert_eq!((all(ReduceOp::Or), all(ReduceOp::Replace)), (Some([1, 1, 1]), Some([0, 2, 7])));
    }

    #[test]
    fn a_nan_on_either_side_is_the_minimum_and_the_maximum() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            let found = combined(op, ElementType::F64, [f64::NAN, 1.0, 0.0], [1.0, f64::NAN, -0.0]);
            let found = found.expect("supported");
            assert!(found[0].is_nan() && found[1].is_nan() && found[2].is_sign_negative(), "{op}: {found:?}");
        }
        assert_eq!(
            combined(ReduceOp::Min, ElementType::F32, [1.0_f32, 3.0, -1.0], [2.0, 2.0, 0.5]),
            Some([1.0, 2.0, -1.0])
        );
    }

    #[test]
    fn complex_numbers_are_added_and_multiplied_but_not_compared() {
        let all =
            |op| combined(op, ElementType::C128, [[1.0, 2.0]; 3], [[3.0_f64, -1.0], [0.0, 1.0], [0.0, 0.0]]);
        assert_eq!(all(ReduceOp::Sum), Some([[4.0, 1.0], [1.0, 3.0], [1.0, 2.0]]));
        assert_eq!(all(ReduceOp::Product), Some([[5.0, 5.0], [-2.0, 1.0], [0.0, 0.0]]));
        assert_eq!((all(ReduceOp::Min), all(ReduceOp::Or)), (None, None));
    }
}
