//! Copy operations on host memory.

use crate::streaming::Streamer;
use halocline_plan::copy::{CopyOp, Indexed, Loop};

/// Alignment, in bytes, of a message that [`pack_streaming`] writes; it also rounds its end up to this.
pub const MESSAGE_ALIGN: usize = 64;

/// Does the operations one after the other. `sources` and `targets` hold the address of element
/// (0, 0, …) of each field, or of the first byte of each message.
///
/// # Safety
/// Every operation must stay within memory that is valid for reads at its source and for writes at its
/// target; source and target blocks must not overlap; nobody else may write the sources or access the
/// targets meanwhile.
pub unsafe fn copy(ops: &[CopyOp], sources: &[*const u8], targets: &[*mut u8]) {
    for op in ops {
        let from = sources[op.source].wrapping_offset(op.source_offset);
        let to = targets[op.target].wrapping_offset(op.target_offset);
        // SAFETY: the caller's promise.
        unsafe { outer(op, &op.loops, from, to) };
    }
}

/// Walks the outer loops of an operation.
unsafe fn outer(op: &CopyOp, loops: &[Loop], from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy`.
    unsafe {
        match (loops, &op.cells) {
            ([], Some(cells)) => indexed(cells, op.block, from, to),
            ([], None) => block_of(from, to, op.block),
            ([last], None) => strided(*last, op.block, from, to),
            ([last, pair], None) if pair.count == 2 => pairs(*last, *pair, op.block, from, to),
            ([first, rest @ ..], _) => {
                for step in 0..first.count as isize {
                    let from = from.wrapping_offset(step * first.source);
                    outer(op, rest, from, to.wrapping_offset(step * first.target));
                }
            }
        }
    }
}

/// Calls `$with::<N>` for the block sizes that deserve a loop of their own, `$otherwise` else.
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

unsafe fn strided(l: Loop, block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy`; N is the block.
    by_block!(block, N => unsafe { strided_by::<N>(l, from, to) }, {
        let (mut from, mut to) = (from, to);
        for _ in 0..l.count {
            // SAFETY: as in `copy`.
            unsafe { block_of(from, to, block) };
            from = from.wrapping_offset(l.source);
            to = to.wrapping_offset(l.target);
        }
    });
}

#[inline(never)]
unsafe fn strided_by<const N: usize>(l: Loop, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..l.count {
        // SAFETY: as in `copy`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

/// Two blocks at every step.
unsafe fn pairs(l: Loop, pair: Loop, block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy`; N is the block.
    by_block!(block, N => unsafe { pairs_by::<N>(l, pair, from, to) }, {
        for step in 0..l.count as isize {
            let from = from.wrapping_offset(step * l.source);
            // SAFETY: as in `copy`.
            unsafe { strided(pair, block, from, to.wrapping_offset(step * l.target)) };
        }
    });
}

#[inline(never)]
unsafe fn pairs_by<const N: usize>(l: Loop, pair: Loop, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..l.count {
        // SAFETY: as in `copy`.
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
    // SAFETY: as in `copy`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, block) };
}

unsafe fn indexed(cells: &Indexed, block: usize, from: *const u8, to: *mut u8) {
    let side_by_side = cells.inner.is_empty()
        && (cells.source_stride, cells.target_stride) == (block as isize, block as isize);
    if side_by_side && block >= CACHE_LINE {
        // SAFETY: as in `copy`.
        unsafe { indexed_blocks(cells, block, from, to) };
    } else if cells.inner.is_empty() {
        by_block!(block, N => {
            // SAFETY: as in `copy`; N is the block.
            unsafe { indexed_by::<N>(cells, from, to) }
        }, {
            // SAFETY: as in `copy`.
            unsafe { indexed_blocks(cells, block, from, to) }
        });
    } else {
        for_each_cell(cells, |s, t| {
            // SAFETY: as in `copy`.
            unsafe { within_cell(&cells.inner, block, from.wrapping_offset(s), to.wrapping_offset(t)) }
        });
    }
}

/// The loops within one cell.
unsafe fn within_cell(loops: &[Loop], block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy`.
    unsafe {
        match loops {
            [] => block_of(from, to, block),
            [last] => strided(*last, block, from, to),
            [first, rest @ ..] => {
                for step in 0..first.count as isize {
                    let from = from.wrapping_offset(step * first.source);
                    within_cell(rest, block, from, to.wrapping_offset(step * first.target));
                }
            }
        }
    }
}

fn for_each_cell(cells: &Indexed, mut each: impl FnMut(isize, isize)) {
    for run in cells.runs.iter() {
        let (mut s, mut t) =
            (run.source as isize * cells.source_stride, run.target as isize * cells.target_stride);
        for _ in 0..run.len {
            each(s, t);
            s += cells.source_stride;
            t += cells.target_stride;
        }
    }
}

/// Cells of a small constant size.
#[inline(never)]
unsafe fn indexed_by<const N: usize>(cells: &Indexed, from: *const u8, to: *mut u8) {
    for_each_cell(cells, |s, t| {
        // SAFETY: as in `copy`.
        unsafe { std::ptr::copy_nonoverlapping(from.wrapping_offset(s), to.wrapping_offset(t), N) };
    });
}

const CACHE_LINE: usize = 64;
/// How many runs ahead the source is prefetched, and at most how many bytes of each.
const AHEAD: usize = 2;
const PREFETCH: usize = 1024;

/// Cells of a larger size; those that lie side by side at both ends go as one block.
unsafe fn indexed_blocks(cells: &Indexed, block: usize, from: *const u8, to: *mut u8) {
    let packed = (cells.source_stride, cells.target_stride) == (block as isize, block as isize);
    for (at, run) in cells.runs.iter().enumerate() {
        if let Some(next) = cells.runs.get(at + AHEAD) {
            let bytes = (next.len as usize * block).min(PREFETCH);
            prefetch(from.wrapping_offset(next.source as isize * cells.source_stride), bytes);
        }
        let mut from = from.wrapping_offset(run.source as isize * cells.source_stride);
        let mut to = to.wrapping_offset(run.target as isize * cells.target_stride);
        let (count, len) = if packed { (1, run.len as usize * block) } else { (run.len, block) };
        for _ in 0..count {
            // SAFETY: as in `copy`.
            unsafe { block_of(from, to, len) };
            from = from.wrapping_offset(cells.source_stride);
            to = to.wrapping_offset(cells.target_stride);
        }
    }
}

#[inline]
fn prefetch(from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..bytes).step_by(CACHE_LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = (from, bytes);
}

/// Packs into a message by non-temporal stores, which leave it in memory instead of this core's
/// caches. The operations must fill the message from its first byte without gaps, in order. What was
/// written is visible to whoever acquires a later release store of this thread.
///
/// # Safety
/// As for [`copy`]; the message must be aligned to [`MESSAGE_ALIGN`] and writable up to its length
/// rounded up to that.
pub unsafe fn pack_streaming(ops: &[CopyOp], sources: &[*const u8], message: *mut u8) {
    // SAFETY: the caller's promise.
    let mut out = unsafe { Streamer::new(message) };
    for op in ops {
        let from = sources[op.source].wrapping_offset(op.source_offset);
        // SAFETY: the caller's promise.
        unsafe { stream_outer(op, &op.loops, from, &mut out) };
    }
    // SAFETY: the caller's promise.
    unsafe { out.finish() };
}

unsafe fn stream_outer(op: &CopyOp, loops: &[Loop], from: *const u8, out: &mut Streamer) {
    // SAFETY: as in `pack_streaming`.
    unsafe {
        match (loops, &op.cells) {
            ([], Some(cells)) => stream_cells(cells, op.block, from, out),
            ([], None) => out.put(from, op.block),
            ([last], None) => stream_strided(*last, op.block, from, out),
            ([last, pair], None) if pair.count == 2 => stream_pairs(*last, *pair, op.block, from, out),
            ([first, rest @ ..], _) => {
                for step in 0..first.count as isize {
                    stream_outer(op, rest, from.wrapping_offset(step * first.source), out);
                }
            }
        }
    }
}

unsafe fn stream_strided(l: Loop, block: usize, from: *const u8, out: &mut Streamer) {
    // SAFETY: as in `pack_streaming`; N is the block.
    by_block!(block, N => unsafe { out.put_blocks::<N>(from, l.count, l.source) }, {
        for step in 0..l.count as isize {
            // SAFETY: as in `pack_streaming`.
            unsafe { out.put(from.wrapping_offset(step * l.source), block) };
        }
    });
}

unsafe fn stream_pairs(l: Loop, pair: Loop, block: usize, from: *const u8, out: &mut Streamer) {
    // SAFETY: as in `pack_streaming`; N is the block.
    by_block!(block, N => unsafe { out.put_pairs::<N>(from, (l.count, l.source), pair.source) }, {
        for step in 0..l.count as isize {
            // SAFETY: as in `pack_streaming`.
            unsafe { stream_strided(pair, block, from.wrapping_offset(step * l.source), out) };
        }
    });
}

unsafe fn stream_cells(cells: &Indexed, block: usize, from: *const u8, out: &mut Streamer) {
    for (at, run) in cells.runs.iter().enumerate() {
        if let Some(next) = cells.runs.get(at + AHEAD)
            && block >= CACHE_LINE
        {
            let next = from.wrapping_offset(next.source as isize * cells.source_stride);
            prefetch(next, block.min(PREFETCH));
        }
        let from = from.wrapping_offset(run.source as isize * cells.source_stride);
        let step = Loop { count: run.len as usize, source: cells.source_stride, target: 0 };
        if cells.inner.is_empty() {
            // SAFETY: as in `pack_streaming`.
            unsafe { stream_strided(step, block, from, out) };
        } else {
            for cell in 0..run.len as isize {
                let from = from.wrapping_offset(cell * cells.source_stride);
                // SAFETY: as in `pack_streaming`.
                unsafe { stream_within(&cells.inner, block, from, out) };
            }
        }
    }
}

unsafe fn stream_within(loops: &[Loop], block: usize, from: *const u8, out: &mut Streamer) {
    // SAFETY: as in `pack_streaming`.
    unsafe {
        match loops {
            [] => out.put(from, block),
            [last] => stream_strided(*last, block, from, out),
            [first, rest @ ..] => {
                for step in 0..first.count as isize {
                    stream_within(rest, block, from.wrapping_offset(step * first.source), out);
                }
            }
        }
    }
}
