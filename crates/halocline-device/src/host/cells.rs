//! Listed cells: the loops that copy the cells of unstructured domains.

use super::{block_of, by_block, nest, steps, strided};
use halocline_plan::copy::{CellRun, Indexed, Loop};
use std::mem::MaybeUninit;

/// A run of cells as a loop, with its offsets at both ends.
pub(super) fn loop_of(run: &CellRun, cells: &Indexed) -> (Loop, isize, isize) {
    let each = Loop { count: run.len as usize, source: cells.source_stride, target: cells.target_stride };
    (each, run.source as isize * each.source, run.target as isize * each.target)
}

/// Copies the cells of `runs`, a subset of the runs of `cells`, in each step of a loop.
pub(super) unsafe fn listed(
    l: &Loop,
    cells: &Indexed,
    runs: &[CellRun],
    block: usize,
    from: *const u8,
    to: *mut u8,
) {
    if !cells.inner.is_empty() {
        for (from, to) in steps(l, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { nested_cells(cells, runs, block, from, to) };
        }
        return;
    }
    by_block!(block, N => {
        if l.count < STEPS {
            for (from, to) in steps(l, from, to) {
                // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
                unsafe { small_cells::<N>(cells, runs, from, to) };
            }
        } else {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { small_cells_in_steps::<N>(l, cells, runs, from, to) };
        }
    }, {
        for (from, to) in steps(l, from, to) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { large_cells(cells, runs, block, from, to) };
        }
    });
}

/// Copies cells with loops within them.
unsafe fn nested_cells(cells: &Indexed, runs: &[CellRun], block: usize, from: *const u8, to: *mut u8) {
    for run in runs {
        let (each, source, target) = loop_of(run, cells);
        for (from, to) in steps(&each, from.wrapping_offset(source), to.wrapping_offset(target)) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { nest(&cells.inner, None, block, from, to, false) };
        }
    }
}

/// Runs of at least this many bytes are copied one by one.
const LONG_RUN: usize = 128;
/// Number of cells that are copied without a branch in between.
const UNROLLED: usize = 4;

/// Whether a run of cells of so many bytes is worth a loop of its own.
pub(super) fn is_long(run: &CellRun, bytes: usize) -> bool {
    run.len as usize * bytes >= LONG_RUN
}

/// Copies cells of a small constant size.
#[inline(never)]
unsafe fn small_cells<const N: usize>(cells: &Indexed, mut runs: &[CellRun], from: *const u8, to: *mut u8) {
    let copy = |source: isize, target: isize| {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe { std::ptr::copy_nonoverlapping(from.wrapping_offset(source), to.wrapping_offset(target), N) };
    };
    while let [run, rest @ ..] = runs {
        if run.len == 1
            && let Some((some, rest)) = runs.split_first_chunk::<UNROLLED>()
            && some.iter().fold(0, |all, run| all | run.len) == 1
        {
            for run in some {
                let (_, source, target) = loop_of(run, cells);
                copy(source, target);
            }
            runs = rest;
            continue;
        }
        let (each, mut source, mut target) = loop_of(run, cells);
        if is_long(run, N) {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { strided(each, N, from.wrapping_offset(source), to.wrapping_offset(target)) };
        } else {
            for _ in 0..each.count {
                copy(source, target);
                source += each.source;
                target += each.target;
            }
        }
        runs = rest;
    }
}

/// Number of offsets listed at a time.
const BATCH: usize = 256;
/// Number of steps copied together: the offsets are read once for all of them.
pub(super) const STEPS: usize = 4;

/// Copies cells of a small constant size, in each step of a loop.
///
/// If the steps are levels far apart, most cells occupy one cache line each. Throughput then depends on how
/// many cache misses the processor overlaps, which is the number of cells whose instructions fit into the
/// reorder buffer. Therefore the offsets of the cells are listed once for all steps, and the copy loop
/// takes few instructions per cell.
#[inline(never)]
unsafe fn small_cells_in_steps<const N: usize>(
    l: &Loop,
    cells: &Indexed,
    mut runs: &[CellRun],
    from: *const u8,
    to: *mut u8,
) {
    let mut offsets = Offsets::new();
    while !runs.is_empty() {
        let (sources, targets) = offsets.list(cells, N, &mut runs);
        let mut done = 0;
        while done < l.count {
            let from = from.wrapping_offset(done as isize * l.source);
            let to = to.wrapping_offset(done as isize * l.target);
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            done += unsafe {
                match l.count - done {
                    STEPS.. => at_offsets::<N, STEPS>(sources, targets, l, from, to),
                    _ => at_offsets::<N, 1>(sources, targets, l, from, to),
                }
            };
        }
        while let [run, rest @ ..] = runs
            && is_long(run, N)
        {
            let (each, source, target) = loop_of(run, cells);
            for (from, to) in steps(l, from.wrapping_offset(source), to.wrapping_offset(target)) {
                // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
                unsafe { strided(each, N, from, to) };
            }
            runs = rest;
        }
    }
}

/// Buffer for the offsets of a batch of cells at both ends.
pub(super) struct Offsets {
    sources: [MaybeUninit<isize>; BATCH],
    targets: [MaybeUninit<isize>; BATCH],
}

impl Offsets {
    pub(super) fn new() -> Self {
        Self { sources: [MaybeUninit::uninit(); BATCH], targets: [MaybeUninit::uninit(); BATCH] }
    }

    /// Lists the offsets of the first cells, of so many bytes, at both ends, up to the next long run or the capacity. Leaves
    /// the remaining runs in `runs`.
    #[inline(never)]
    pub(super) fn list(
        &mut self,
        cells: &Indexed,
        bytes: usize,
        runs: &mut &[CellRun],
    ) -> (&[isize], &[isize]) {
        // A run that is not long fits.
        const { assert!(LONG_RUN <= BATCH) };
        let mut count = 0;
        while let [run, rest @ ..] = *runs {
            let (each, mut source, mut target) = loop_of(run, cells);
            if is_long(run, bytes) || count + each.count > BATCH {
                break;
            }
            for at in count..count + each.count {
                self.sources[at].write(source);
                self.targets[at].write(target);
                source += each.source;
                target += each.target;
            }
            count += each.count;
            *runs = rest;
        }
        let (sources, targets) = (self.sources.as_ptr().cast(), self.targets.as_ptr().cast());
        // SAFETY: the loop has written the first `count` offsets of both arrays, which are borrowed as
        // long as the slices.
        unsafe { (std::slice::from_raw_parts(sources, count), std::slice::from_raw_parts(targets, count)) }
    }
}

/// Copies blocks of `N` bytes at these offsets, in the first `S` steps of a loop. Returns `S`.
#[inline(never)]
unsafe fn at_offsets<const N: usize, const S: usize>(
    sources: &[isize],
    targets: &[isize],
    l: &Loop,
    from: *const u8,
    to: *mut u8,
) -> usize {
    let from: [*const u8; S] = std::array::from_fn(|step| from.wrapping_offset(step as isize * l.source));
    let to: [*mut u8; S] = std::array::from_fn(|step| to.wrapping_offset(step as isize * l.target));
    let copy = |source: isize, target: isize, step: usize| {
        let (from, to) = (from[step].wrapping_offset(source), to[step].wrapping_offset(target));
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
    };
    let (sources, last_sources) = sources.as_chunks::<UNROLLED>();
    let (targets, last_targets) = targets.as_chunks::<UNROLLED>();
    for (&sources, &targets) in sources.iter().zip(targets) {
        let neighbours = targets.as_chunks::<2>().0.iter().all(|two| two[1] == two[0] + N as isize);
        for step in 0..S {
            if N == 8 && neighbours {
                for at in (0..UNROLLED).step_by(2) {
                    let two = [sources[at], sources[at + 1]].map(|source| from[step].wrapping_offset(source));
                    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
                    unsafe { two_words(two, to[step].wrapping_offset(targets[at])) };
                }
            } else {
                for at in 0..UNROLLED {
                    copy(sources[at], targets[at], step);
                }
            }
        }
    }
    for (&source, &target) in last_sources.iter().zip(last_targets) {
        for step in 0..S {
            copy(source, target, step);
        }
    }
    S
}

/// Copies two blocks of 8 bytes to one place. One store instead of two makes mailboxes 10 to 30 % faster.
#[inline(always)]
unsafe fn two_words(from: [*const u8; 2], to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for; SSE2 belongs to
    // x86-64, and these instructions need no alignment.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_mm_load_sd, _mm_loadh_pd, _mm_storeu_pd};
            _mm_storeu_pd(to.cast(), _mm_loadh_pd(_mm_load_sd(from[0].cast()), from[1].cast()));
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        for (at, from) in from.into_iter().enumerate() {
            std::ptr::copy_nonoverlapping(from, to.wrapping_add(8 * at), 8);
        }
    }
}

const CACHE_LINE: usize = 64;
/// Number of runs to prefetch ahead.
const AHEAD: usize = 2;
const PREFETCH: usize = 1024;

/// Copies cells of a larger size; cells that are contiguous at both ends are copied as one block.
#[inline(never)]
unsafe fn large_cells(cells: &Indexed, runs: &[CellRun], block: usize, from: *const u8, to: *mut u8) {
    let contiguous = (cells.source_stride, cells.target_stride) == (block as isize, block as isize);
    for (at, run) in runs.iter().enumerate() {
        if let Some(next) = runs.get(at + AHEAD) {
            let (each, source, _) = loop_of(next, cells);
            prefetch(from.wrapping_offset(source), (each.count * block).min(PREFETCH));
        }
        let (each, source, target) = loop_of(run, cells);
        let (mut from, mut to) = (from.wrapping_offset(source), to.wrapping_offset(target));
        let (count, len) = if contiguous { (1, each.count * block) } else { (each.count, block) };
        for _ in 0..count {
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { block_of(from, to, len) };
            from = from.wrapping_offset(each.source);
            to = to.wrapping_offset(each.target);
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
