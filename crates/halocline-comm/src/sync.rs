//! The atomics and the lock that the protocols use: loom's under its model checker, the standard ones otherwise.

#[cfg(loom)]
pub use loom::sync::{
    Mutex,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub use std::sync::{
    Mutex,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
