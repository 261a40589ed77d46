//! Copy operations on host memory.

mod cells;
mod combine;
mod lists;
mod negated;
mod streaming;

pub use combine::{Combine, Source};
pub use lists::find_list;
pub use streaming::pack_streaming;

use cells::listed;
use halocline_plan::copy::{CopyOp, Indexed, Loop};

/// Alignment, in bytes, of a message that [`pack_streaming`] writes; the length of its buffer is rounded up
/// to it, too.
pub const MESSAGE_ALIGN: usize = 64;

/// Executes the operations in order. `sources` and `targets` hold the address of element (0, 0, …) of each
/// field, or of the first byte of each message.
///
/// # Safety
/// Every operation stays within memory that is valid for reads at its source and for writes at its target.
/// Source and target blocks do not overlap. Meanwhile nothing else writes the sources or accesses the
/// targets.
pub unsafe fn copy(ops: &[CopyOp], sources: &[*const u8], targets: &[*mut u8]) {
    for op in ops {
        let from = sources[op.source].wrapping_offset(op.source_offset);
        let to = targets[op.target].wrapping_offset(op.target_offset);
        // SAFETY: the caller promises that the operation stays within valid memory, and that nothing else
        // accesses it in conflict.
        unsafe {
            match op.is_negated {
                false => nest(&op.loops, op.cells.as_ref(), op.block, from, to, false),
                true => negated::copy(op, from, to),
            }
        };
    }
}

/// Iterates over loops around blocks, or around listed cells of blocks, outermost first. `is_inner`: within another loop.
unsafe fn nest(
    loops: &[Loop],
    cells: Option<&Indexed>,
    block: usize,
    from: *const u8,
    to: *mut u8,
    is_inner: bool,
) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe {
        match (loops, cells) {
            ([first, rest @ ..], _) => outer_loop((first, rest), cells, block, from, to, is_inner),
            ([], Some(cells)) => listed(&ONCE, cells, &cells.runs, block, from, to),
            ([], None) => block_of(from, to, block),
        }
    }
}

/// Iterates over one loop and the loops within it.
unsafe fn outer_loop(
    (outer, loops): (&Loop, &[Loop]),
    cells: Option<&Indexed>,
    block: usize,
    from: *const u8,
    to: *mut u8,
    is_inner: bool,
) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe {
        match (loops, cells) {
            ([], Some(cells)) => listed(outer, cells, &cells.runs, block, from, to),
            ([], None) if is_inner && block <= SMALL && are_apart(outer) => ahead(*outer, block, from, to),
            ([], None) => strided(*outer, block, from, to),
            ([pair], None) if pair.count == 2 => pairs(*outer, *pair, block, from, to),
            ([few], None) if few.count <= FEW && block <= SMALL => {
                few_blocks(*outer, *few, block, from, to, is_inner)
            }
            ([long], None) if is_inner && (3..=FEW).contains(&outer.count) && block <= SMALL => {
                few_blocks(*long, *outer, block, from, to, is_inner);
            }
            _ => {
                for (from, to) in steps(outer, from, to) {
                    nest(loops, cells, block, from, to, true);
                }
            }
        }
    }
}

/// A loop of one step.
const ONCE: Loop = Loop { count: 1, source: 0, target: 0 };

/// The source and target address of each step of a loop.
fn steps(l: &Loop, from: *const u8, to: *mut u8) -> impl Iterator<Item = (*const u8, *mut u8)> {
    let Loop { count, source, target } = *l;
    (0..count as isize)
        .map(move |step| (from.wrapping_offset(step * source), to.wrapping_offset(step * target)))
}

/// Calls `$with::<N>` for block sizes with a specialised loop, `$otherwise` for the others.
macro_rules! by_block {
    ($block:expr, $n:ident => $with:expr, $otherwise:expr) => {
        match $block {
            1 => {
                const $n: usize = 1;
                $with
            }
            2 => {
                const $n: usize = 2;
                $with
            }
            4 => {
                const $n: usize = 4;
                $with
            }
            8 => {
                const $n: usize = 8;
                $with
            }
            12 => {
                const $n: usize = 12;
                $with
            }
            16 => {
                const $n: usize = 16;
                $with
            }
            24 => {
                const $n: usize = 24;
                $with
            }
            32 => {
                const $n: usize = 32;
                $with
            }
            _ => $otherwise,
        }
    };
}

use by_block;

unsafe fn strided(l: Loop, block: usize, from: *const u8, to: *mut u8) {
    if (l.source, l.target) == (block as isize, block as isize) {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        return unsafe { block_of(from, to, l.count * block) };
    }
    if (l.source, l.target) == (block as isize, -(block as isize)) {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        return unsafe { backwards(l, block, from, to) };
    }
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    by_block!(block, N => unsafe { strided_by::<N>(l, from, to) }, {
        for (from, to) in steps(&l, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { block_of(from, to, block) };
        }
    });
}

#[inline(never)]
unsafe fn strided_by<const N: usize>(l: Loop, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..l.count {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

/// Copies a row of blocks to one that runs backwards, across a seam that flips it.
unsafe fn backwards(l: Loop, block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    by_block!(block, N => unsafe { backwards_by::<N>(l.count, from, to) }, {
        for (from, to) in steps(&l, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { block_of(from, to, block) };
        }
    });
}

/// The strides are constants, so that the compiler turns vectors around.
#[inline(never)]
unsafe fn backwards_by<const N: usize>(count: usize, from: *const u8, to: *mut u8) {
    for at in 0..count {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at * N), to.sub(at * N), N) };
    }
}

/// Most steps of an inner loop that is worth turning around.
const FEW: usize = 8;
/// Steps of the outer loop that are taken together: their cache lines stay in the L1 cache meanwhile.
const ROWS: usize = 32;
/// Most bytes of a block whose copy costs less than a loop around it.
const SMALL: usize = 32;

/// Copies a loop of few steps within a long one, as of the columns of a narrow halo.
/// Within another loop, as of levels, the rows are often not in the cache: they are prefetched.
unsafe fn few_blocks(outer: Loop, few: Loop, block: usize, from: *const u8, to: *mut u8, is_inner: bool) {
    macro_rules! unrolled {
        ($($count:literal)*) => {
            match (block, few.count, is_inner) {
                $((4, $count, false) => unrolled_by::<4, $count, 0>(outer, few, from, to),
                (8, $count, false) => unrolled_by::<8, $count, 0>(outer, few, from, to),
                (4, $count, true) => unrolled_by::<4, $count, AHEAD>(outer, few, from, to),
                (8, $count, true) => unrolled_by::<8, $count, AHEAD>(outer, few, from, to),)*
                _ => by_columns(outer, few, block, from, to),
            }
        };
    }
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe { unrolled!(3 4 5 6 7 8) }
}

/// Steps ahead whose cache lines are prefetched.
const AHEAD: isize = 12;

/// Copies `K` blocks at every step, without a loop over them, and prefetches those of a later step.
#[inline(never)]
unsafe fn unrolled_by<const N: usize, const K: usize, const AHEAD: isize>(
    l: Loop,
    few: Loop,
    mut from: *const u8,
    mut to: *mut u8,
) {
    for _ in 0..l.count {
        if AHEAD > 0 {
            prefetch_both(from.wrapping_offset(AHEAD * l.source), to.wrapping_offset(AHEAD * l.target));
        }
        let mut blocks = [[0; N]; K];
        for (at, block) in (0..).zip(&mut blocks) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            *block = unsafe { from.wrapping_offset(at * few.source).cast::<[u8; N]>().read_unaligned() };
        }
        for (at, block) in (0..).zip(blocks) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { to.wrapping_offset(at * few.target).cast::<[u8; N]>().write_unaligned(block) };
        }
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

/// Whether the steps of a loop are on cache lines of their own, at both ends.
fn are_apart(l: &Loop) -> bool {
    l.source.unsigned_abs() >= 64 && l.target.unsigned_abs() >= 64
}

/// Copies a small block at every step, and prefetches those of a later step.
unsafe fn ahead(l: Loop, block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    by_block!(block, N => unsafe { unrolled_by::<N, 1, AHEAD>(l, ONCE, from, to) }, unsafe {
        strided(l, block, from, to)
    });
}

/// Prefetches a cache line to be read and one to be written.
#[inline(always)]
fn prefetch_both(from: *const u8, to: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing and never faults.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(from.cast());
            _mm_prefetch::<_MM_HINT_ET0>(to.cast_const().cast());
        }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = (from, to);
}

/// Copies loops of few steps within a long one: the long one becomes the inner one, since each
/// inner loop has a cost of its own.
unsafe fn by_columns(outer: Loop, few: Loop, block: usize, from: *const u8, to: *mut u8) {
    for begin in (0..outer.count).step_by(ROWS) {
        let rows = Loop { count: ROWS.min(outer.count - begin), ..outer };
        let from = from.wrapping_offset(begin as isize * outer.source);
        let to = to.wrapping_offset(begin as isize * outer.target);
        for (from, to) in steps(&few, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { strided(rows, block, from, to) };
        }
    }
}

/// Copies two blocks at every step.
unsafe fn pairs(l: Loop, pair: Loop, block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    by_block!(block, N => unsafe { pairs_by::<N>(l, pair, from, to) }, {
        for (from, to) in steps(&l, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { strided(pair, block, from, to) };
        }
    });
}

#[inline(never)]
unsafe fn pairs_by<const N: usize>(l: Loop, pair: Loop, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..l.count {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe {
            let first = from.cast::<[u8; N]>().read_unaligned();
            let second = from.wrapping_offset(pair.source).cast::<[u8; N]>().read_unaligned();
            to.cast::<[u8; N]>().write_unaligned(first);
            to.wrapping_offset(pair.target).cast::<[u8; N]>().write_unaligned(second);
        }
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

#[inline]
unsafe fn block_of(from: *const u8, to: *mut u8, block: usize) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, block) };
}
