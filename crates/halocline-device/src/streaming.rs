//! Packing with non-temporal stores: the message goes to memory without passing through the packer's
//! caches, so that a reader on a far core does not have to fetch it from there.

/// Bytes gathered before they are written out: a small part of the L1 cache.
const STAGE: usize = 8192;
const LINE: usize = 64;

/// Writes a message from its begin to its end, in whole cache lines.
pub(crate) struct Streamer {
    stage: Stage,
    filled: usize,
    out: *mut u8,
}

#[repr(align(64))]
struct Stage([u8; STAGE]);

impl Streamer {
    /// # Safety
    /// `out` must be aligned to 64 bytes and writable for all that is put, rounded up to 64 bytes.
    pub(crate) unsafe fn new(out: *mut u8) -> Self {
        Self { stage: Stage([0; STAGE]), filled: 0, out }
    }

    /// Appends `count` blocks of `N` bytes, `stride` apart.
    ///
    /// # Safety
    /// All blocks must be readable; `N` is at most 64.
    #[inline]
    pub(crate) unsafe fn put_blocks<const N: usize>(
        &mut self,
        mut from: *const u8,
        count: usize,
        stride: isize,
    ) {
        let mut left = count;
        while left > 0 {
            if STAGE - self.filled < N {
                // SAFETY: the promise of `new`.
                unsafe { self.write_lines() };
            }
            let now = left.min((STAGE - self.filled) / N);
            // SAFETY: `now` blocks fit behind `filled`; the caller vouches for the sources.
            unsafe {
                let mut to = self.stage.0.as_mut_ptr().add(self.filled);
                for _ in 0..now {
                    std::ptr::copy_nonoverlapping(from, to, N);
                    from = from.wrapping_offset(stride);
                    to = to.wrapping_add(N);
                }
            }
            self.filled += now * N;
            left -= now;
        }
    }

    /// Appends `count` pairs of blocks of `N` bytes, `stride` apart; the second of a pair lies `second`
    /// behind the first.
    ///
    /// # Safety
    /// All blocks must be readable; `N` is at most 64.
    #[inline]
    pub(crate) unsafe fn put_pairs<const N: usize>(
        &mut self,
        mut from: *const u8,
        (count, stride): (usize, isize),
        second: isize,
    ) {
        let mut left = count;
        while left > 0 {
            if STAGE - self.filled < 2 * N {
                // SAFETY: the promise of `new`.
                unsafe { self.write_lines() };
            }
            let now = left.min((STAGE - self.filled) / (2 * N));
            // SAFETY: `now` pairs fit behind `filled`; the caller vouches for the sources.
            unsafe {
                let mut to = self.stage.0.as_mut_ptr().add(self.filled);
                for _ in 0..now {
                    std::ptr::copy_nonoverlapping(from, to, N);
                    std::ptr::copy_nonoverlapping(from.wrapping_offset(second), to.add(N), N);
                    from = from.wrapping_offset(stride);
                    to = to.wrapping_add(2 * N);
                }
            }
            self.filled += now * 2 * N;
            left -= now;
        }
    }

    /// Appends contiguous bytes.
    ///
    /// # Safety
    /// `len` bytes must be readable.
    pub(crate) unsafe fn put(&mut self, mut from: *const u8, mut len: usize) {
        while len > 0 {
            if self.filled == STAGE {
                // SAFETY: the promise of `new`.
                unsafe { self.write_lines() };
            }
            let now = len.min(STAGE - self.filled);
            // SAFETY: `now` bytes fit behind `filled`; the caller vouches for the source.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.stage.0.as_mut_ptr().add(self.filled), now);
                from = from.add(now);
            }
            self.filled += now;
            len -= now;
        }
    }

    /// Writes what is left, and orders all of it before later stores of this thread.
    ///
    /// # Safety
    /// The promise of `new`.
    pub(crate) unsafe fn finish(mut self) {
        self.filled = self.filled.next_multiple_of(LINE);
        // SAFETY: the promise of `new`, which covers the last line's rest.
        unsafe { self.write_lines() };
        fence();
    }

    /// Writes the whole lines and keeps the rest.
    unsafe fn write_lines(&mut self) {
        let whole = self.filled / LINE * LINE;
        // SAFETY: `out` is aligned and writable for all that was put (promise of `new`); `whole` bytes
        // of the stage are filled.
        unsafe {
            stream_lines(self.stage.0.as_ptr(), self.out, whole);
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
