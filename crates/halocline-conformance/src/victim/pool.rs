//! A pool of the program, which finds out who writes to its memory after it was given back.

use crate::Trouble;
use halocline::{Buffer, MemoryAccount, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long memory of an exchange that is over may be in use.
const PATIENCE: Duration = Duration::from_secs(10);

/// What idle blocks are filled with.
const IDLE: u8 = 0xA5;

pub(super) struct Pool {
    account: Arc<MemoryAccount>,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A block that is in use, until the pool has it back.
struct Block {
    memory: Vec<u8>,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Wakes a thread.
struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.fill(IDLE);
        let memory = std::mem::take(&mut self.memory);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { account: MemoryAccount::new(MemoryKind::Host), idle: Arc::default() }
    }

    /// An error if memory does not come back soon, or was written after it was given back.
    pub(super) fn check(&self) -> Result<(), Trouble> {
        let (begin, woken) = (Instant::now(), Waker::from(Arc::new(Woken(std::thread::current()))));
        loop {
            // A dropped operation tells its peers, and ends, in the progress thread.
            self.account.watch(&woken);
            let in_use = self.account.statistics().in_use;
            if in_use == 0 {
                break;
            }
            let Some(left) = PATIENCE.checked_sub(begin.elapsed()) else {
                return Err(Trouble::new(format!("{in_use} bytes of the pool are still in use")));
            };
            std::thread::park_timeout(left);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match idle.iter().all(|block| is_idle(block)) {
            true => Ok(()),
            false => Err(Trouble::new("memory of the pool was written after it was given back")),
        }
    }
}

fn is_idle(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == IDLE)
}

impl MemoryResource for Pool {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        self.account.count(bytes, || {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let fitting = idle.iter().position(|block| block.len() == bytes);
            let mut memory =
                fitting.map_or_else(|| vec![IDLE; bytes.max(1)], |place| idle.swap_remove(place));
            if !is_idle(&memory) {
                let why = "its memory was written after it was given back".to_owned();
                return Err(MemoryError::Faulty { asked: bytes, why });
            }
            let first = NonNull::from(&mut memory[0]);
            let block = Block { memory, idle: Arc::clone(&self.idle) };
            // SAFETY: the block keeps the bytes, at their address and for this buffer alone, until the buffer drops it.
            Ok(unsafe { Buffer::foreign_mut(first, bytes, block) })
        })
    }

    fn watch(&self, waker: &Waker) {
        self.account.watch(waker);
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}
