//! Packing with non-temporal stores: the message bypasses the caches of the packing core, so a reader on a
//! distant core need not fetch it from there.

use super::cells::{listed, loop_of};
use super::{ONCE, negated, outer_loop};
use halocline_plan::copy::{CopyOp, Indexed, Loop};
use std::mem::MaybeUninit;

/// Packs into a message with non-temporal stores, which bypass this core's caches. The operations must fill
/// the message in order, from its first byte, without gaps. A thread that acquires a later release store of
/// this thread sees the message.
///
/// # Safety
/// Every operation stays within memory that is valid for reads at its source, which nothing writes
/// meanwhile. The message is aligned to [`MESSAGE_ALIGN`](super::MESSAGE_ALIGN), is writable up to its
/// length rounded up to that, and overlaps no source. Nothing else accesses it meanwhile.
pub unsafe fn pack_streaming(ops: &[CopyOp], sources: &[*const u8], message: *mut u8) {
    // SAFETY: the caller promises that the message is aligned and writable in whole lines.
    let mut out = unsafe { Streamer::new(message) };
    for op in ops {
        let from = sources[op.source].wrapping_offset(op.source_offset);
        // SAFETY: the caller promises that the operation reads valid memory that nothing writes.
        unsafe {
            match op.is_negated {
                false => stream(&op.loops, op.cells.as_ref(), op.block, from, &mut out),
                true => stream_negated(op, from, &mut out),
            }
        };
    }
    // SAFETY: the caller promises that the message is writable in whole lines.
    unsafe { out.finish() };
}

/// Packs numbers that change their sign.
unsafe fn stream_negated(op: &CopyOp, from: *const u8, out: &mut Streamer) {
    let mut some = [0; STAGE / 64];
    op.for_each_block(|source, _, block| {
        let from = from.wrapping_offset(source - op.source_offset);
        for begin in (0..block).step_by(some.len()) {
            let part = &mut some[..(block - begin).min(STAGE / 64)];
            // SAFETY: these bytes are part of an operation that the caller of `pack_streaming` vouches for.
            unsafe { std::ptr::copy_nonoverlapping(from.add(begin), part.as_mut_ptr(), part.len()) };
            negated::change_signs(op.element, part);
            // SAFETY: these bytes are readable; the caller vouches for the message.
            unsafe { out.put(part.as_ptr(), part.len()) };
        }
    });
}

/// Iterates over loops as `nest` does.
unsafe fn stream(loops: &[Loop], cells: Option<&Indexed>, block: usize, from: *const u8, out: &mut Streamer) {
    // SAFETY: these bytes are part of an operation that the caller of `pack_streaming` vouches for.
    unsafe {
        match (loops, cells) {
            ([first, rest @ ..], _) => stream_loop(first, rest, cells, block, from, out),
            ([], Some(cells)) => stream_cells(cells, block, from, out),
            ([], None) => out.put(from, block),
        }
    }
}

/// Iterates over one loop and the loops within it. In a message, the stride of a loop is the number of
/// bytes of a step; it determines how many steps fit into the stage.
unsafe fn stream_loop(
    outer: &Loop,
    loops: &[Loop],
    cells: Option<&Indexed>,
    block: usize,
    mut from: *const u8,
    out: &mut Streamer,
) {
    let bytes = outer.target as usize;
    let mut left = outer.count;
    // A loop over empty blocks has steps without bytes.
    while left > 0 && bytes > 0 {
        let fit = (out.free_bytes(bytes) / bytes).min(left);
        // SAFETY: these bytes are part of an operation that the caller of `pack_streaming` vouches for.
        unsafe {
            if fit > 0 {
                let some = Loop { count: fit, ..*outer };
                out.append(fit * bytes, |to| outer_loop((&some, loops), cells, block, from, to, false));
            } else {
                stream(loops, cells, block, from, out);
            }
        }
        left -= fit.max(1);
        from = from.wrapping_offset(fit.max(1) as isize * outer.source);
    }
}

/// Packs listed cells, as many runs at a time as fit into the stage.
unsafe fn stream_cells(cells: &Indexed, block: usize, from: *const u8, out: &mut Streamer) {
    let bytes = cells.target_stride as usize;
    let mut runs = &cells.runs[..];
    while let [first, rest @ ..] = runs
        && bytes > 0
    {
        let (each, source, target) = loop_of(first, cells);
        let most = out.free_bytes(each.count * bytes) / bytes;
        let (mut fit, mut count) = (0, 0);
        while let Some(run) = runs.get(fit)
            && count + run.len as usize <= most
        {
            count += run.len as usize;
            fit += 1;
        }
        // SAFETY: these bytes are part of an operation that the caller of `pack_streaming` vouches for.
        unsafe {
            if fit > 0 {
                let copy = |to: *mut u8| {
                    listed(&ONCE, cells, &runs[..fit], block, from, to.wrapping_offset(-target));
                };
                out.append(count * bytes, copy);
            } else {
                stream_loop(&each, &cells.inner, None, block, from.wrapping_offset(source), out);
            }
        }
        runs = if fit > 0 { &runs[fit..] } else { rest };
    }
}

/// Bytes gathered before they are written out: a small part of the L1 cache.
const STAGE: usize = 16384;
const LINE: usize = 64;

/// Writes a message sequentially, in whole cache lines.
struct Streamer {
    stage: Stage,
    filled: usize,
    out: *mut u8,
}

#[repr(align(64))]
struct Stage([MaybeUninit<u8>; STAGE]);

impl Streamer {
    /// # Safety
    /// `out` must be aligned to 64 bytes and writable for all that is put, rounded up to 64 bytes.
    unsafe fn new(out: *mut u8) -> Self {
        Self { stage: Stage([MaybeUninit::uninit(); STAGE]), filled: 0, out }
    }

    /// Free bytes in the stage: at least `wanted`, or nearly the whole stage if that is less.
    fn free_bytes(&mut self, wanted: usize) -> usize {
        if STAGE - self.filled < wanted {
            // SAFETY: the caller of `new` promised that `out` is aligned and has space for all that was put.
            unsafe { self.write_lines() };
        }
        STAGE - self.filled
    }

    /// Appends `bytes` bytes, which `write` writes to the address passed.
    ///
    /// # Safety
    /// `write` must write all of them; [`Self::free_bytes`] must have returned at least as many.
    unsafe fn append(&mut self, bytes: usize, write: impl FnOnce(*mut u8)) {
        write(self.end());
        self.filled += bytes;
    }

    /// Appends contiguous bytes.
    ///
    /// # Safety
    /// `len` bytes must be readable.
    unsafe fn put(&mut self, mut from: *const u8, mut len: usize) {
        while len > 0 {
            if self.filled == STAGE {
                // SAFETY: the promise of `new`.
                unsafe { self.write_lines() };
            }
            let now = len.min(STAGE - self.filled);
            // SAFETY: `now` bytes fit behind `filled`; the caller vouches for the source.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.end(), now);
                from = from.add(now);
            }
            self.filled += now;
            len -= now;
        }
    }

    /// Writes the rest, and orders everything before later stores of this thread.
    ///
    /// # Safety
    /// The promise of `new`.
    unsafe fn finish(&mut self) {
        let end = self.filled.next_multiple_of(LINE);
        self.stage.0[self.filled..end].fill(MaybeUninit::new(0));
        self.filled = end;
        // SAFETY: the promise of `new`, which covers the last line's rest.
        unsafe { self.write_lines() };
        fence();
    }

    fn end(&mut self) -> *mut u8 {
        self.stage.0.as_mut_ptr().wrapping_add(self.filled).cast()
    }

    /// Writes the whole lines and keeps the rest.
    unsafe fn write_lines(&mut self) {
        let whole = self.filled / LINE * LINE;
        // SAFETY: `out` is aligned and writable for all that was put (promise of `new`); `whole` bytes
        // of the stage are filled.
        unsafe {
            stream_lines(self.stage.0.as_ptr().cast(), self.out, whole);
            self.out = self.out.add(whole);
        }
        self.stage.0.copy_within(whole..self.filled, 0);
        self.filled -= whole;
    }
}

/// # Safety
/// Both ends are aligned to 64 bytes and valid for `len`, a multiple of 64.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
    for at in (0..len).step_by(16) {
        // SAFETY: the caller's promise; SSE2 belongs to x86-64.
        unsafe { _mm_stream_si128(to.add(at).cast::<__m128i>(), _mm_load_si128(from.add(at).cast())) };
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn fence() {
    // A release store does not order non-temporal stores before it; this does.
    // SAFETY: SSE belongs to x86-64.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// # Safety
/// Both ends are valid for `len`.
#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; stage and message never overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn fence() {}
