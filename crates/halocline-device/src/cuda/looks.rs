//! Looks at words of a device: copied to pinned memory by a stream, and asked for until they are there. A copy to other memory has the
//! driver wait by itself, and hold the calls of other threads meanwhile, on whom the stream's queue may depend.

use super::api::{Api, code};
use crate::driver::Address;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Looks that may be under way at once.
const CELLS: usize = 64;
/// A look that takes longer says nothing.
const PATIENCE: Duration = Duration::from_millis(2);
const PORTABLE: c_uint = 1;

/// Where words are copied to.
pub(super) struct Looks {
    base: usize,
    state: Mutex<State>,
}

struct State {
    free: Vec<usize>,
    /// With the streams that may still write them.
    late: Vec<(usize, usize)>,
}

impl Looks {
    /// The context is current.
    pub(super) fn new(api: &Api) -> Result<Self, c_int> {
        let mut base: *mut c_void = std::ptr::null_mut();
        let result = (api.allocate_pinned)(&mut base, (CELLS + 1) * size_of::<u64>(), PORTABLE);
        let state = State { free: (0..CELLS).collect(), late: Vec::new() };
        match result {
            code::SUCCESS => Ok(Self { base: base.expose_provenance(), state: Mutex::new(state) }),
            refused => Err(refused),
        }
    }

    fn cell(&self, cell: usize) -> *const AtomicU64 {
        std::ptr::with_exposed_provenance(self.base + cell * size_of::<u64>())
    }

    /// A word that any stream may write at any time, and that says nothing.
    pub(super) fn scratch(&self) -> Address {
        self.cell(CELLS).expose_provenance() as Address
    }

    /// A cell, unless an earlier look by this stream is not through, or there is none.
    fn take(&self, api: &Api, stream: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.late.iter().any(|&(of, _)| of == stream) {
            // SAFETY: `look` alone calls this, and its caller promises that the stream lives.
            if unsafe { (api.query)(stream) } == code::NOT_READY {
                return None;
            }
            let State { free, late } = &mut *state;
            free.extend(late.extract_if(.., |(of, _)| *of == stream).map(|(_, cell)| cell));
        }
        state.free.pop()
    }

    /// What a word is, or nothing if that takes too long; or the call that failed, and how.
    ///
    /// # Safety
    /// The context is current. The stream lives, and reaches the word, which stays valid until the stream is through.
    pub(super) unsafe fn look(
        &self,
        api: &Api,
        stream: usize,
        word: Address,
    ) -> Result<Option<u64>, (&'static str, c_int)> {
        let Some(cell) = self.take(api, stream) else { return Ok(None) };
        let target = self.cell(cell).expose_provenance() as Address;
        // SAFETY: the caller promises that the stream lives and reaches the word, which stays valid until the stream is
        // through. `take` has given the cell to this look alone; `late` keeps it from others until the stream is
        // through.
        let mut result = ("cuMemcpyAsync", unsafe { (api.copy)(target, word, size_of::<u64>(), stream) });
        let begin = Instant::now();
        while result.1 == code::SUCCESS {
            // SAFETY: the caller promises that the stream lives.
            result = ("cuStreamQuery", unsafe { (api.query)(stream) });
            let is_late = begin.elapsed() > PATIENCE;
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match result.1 {
                code::SUCCESS => {
                    // SAFETY: the cell lies in the pinned memory of `self`, at a multiple of 8 bytes. The stream is
                    // through with the copy, and `take` has given the cell to this look alone.
                    let value = unsafe { &*self.cell(cell) }.load(Ordering::Acquire);
                    state.free.push(cell);
                    return Ok(Some(value));
                }
                code::NOT_READY if is_late => {
                    state.late.push((stream, cell));
                    return Ok(None);
                }
                code::NOT_READY => result.1 = code::SUCCESS,
                // The device has failed, or nobody knows: the cell is not used again.
                _ => {}
            }
            drop(state);
            std::thread::yield_now();
        }
        Err(result)
    }

    /// Frees the memory. Nothing is under way any more.
    pub(super) fn close(&self, api: &Api) {
        // SAFETY: `new` allocated the memory. The caller is the drop of the `Primary`, after which no stream has work
        // that writes here.
        unsafe { (api.free_pinned)(std::ptr::with_exposed_provenance_mut(self.base)) };
    }
}
