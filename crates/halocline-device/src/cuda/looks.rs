//! Reads words of device memory: a stream copies the word to pinned memory, which the host polls. A copy to
//! pageable memory would make the driver wait and block calls of other threads, on which the stream's queue
//! may depend.

use super::api::{Api, code};
use crate::driver::Address;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of reads in progress.
const CELLS: usize = 64;
/// A read that takes longer returns nothing.
const PATIENCE: Duration = Duration::from_millis(2);
const PORTABLE: c_uint = 1;

/// Pinned cells that receive the words.
pub(super) struct Looks {
    base: usize,
    state: Mutex<State>,
}

struct State {
    free: Vec<usize>,
    /// Cells of timed-out reads, with the streams that may still write them.
    late: Vec<(usize, usize)>,
}

impl Looks {
    /// The context must be current.
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

    /// A word that any stream may write at any time, with no meaning.
    pub(super) fn scratch(&self) -> Address {
        self.cell(CELLS).expose_provenance() as Address
    }

    /// A free cell; `None` if an earlier read of this stream is unfinished, or no cell is free.
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

    /// The value of a word; `None` if that takes too long. Fails with the call and its result.
    ///
    /// # Safety
    /// The context is current. The stream lives and reaches the word, which stays valid until the stream is
    /// idle.
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
                // The device has failed, or the state is unknown: the cell is not used again.
                _ => {}
            }
            drop(state);
            std::thread::yield_now();
        }
        Err(result)
    }

    /// Frees the memory. No read is in progress.
    pub(super) fn close(&self, api: &Api) {
        // SAFETY: `new` allocated the memory. The caller is the drop of the `Primary`, after which no stream has work
        // that writes here.
        unsafe { (api.free_pinned)(std::ptr::with_exposed_provenance_mut(self.base)) };
    }
}
