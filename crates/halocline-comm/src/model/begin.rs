//! Models of a begin beside a failure, and of memory that is released while other threads read it.

use super::check;
use crate::{BeginLock, MemoryHold};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// One bound object: its lock, whether it has failed, and the cell of the set in flight, which loom watches.
#[derive(Default)]
struct Object<L> {
    lock: L,
    failed: AtomicBool,
    in_flight: Set,
}

struct Set(UnsafeCell<u64>);

impl Default for Set {
    fn default() -> Self {
        Self(UnsafeCell::new(0))
    }
}

// SAFETY: loom checks every access.
unsafe impl Sync for Set {}
// SAFETY: loom checks every access.
unsafe impl Send for Set {}

impl Set {
    /// The number of changes.
    fn get(&self) -> u64 {
        // SAFETY: loom checks that no thread changes it.
        self.0.with(|set| unsafe { *set })
    }

    fn change(&self) {
        self.0.with_mut(|set| {
            // SAFETY: loom checks that no other thread accesses it.
            unsafe { *set += 1 }
        });
    }
}

/// How a begin and a failure exclude each other.
trait BeginOrFail: Default + Send + Sync + 'static {
    /// Calls `begin` with the right to begin, or not at all.
    fn begin(object: &Object<Self>, begin: impl FnOnce());
    /// After `failed`.
    fn close(&self);
    fn is_closed(&self) -> bool;
}

impl BeginOrFail for BeginLock {
    fn begin(object: &Object<Self>, begin: impl FnOnce()) {
        if let Some(_guard) = object.lock.try_lock() {
            begin();
        }
    }

    fn close(&self) {
        BeginLock::close(self);
    }

    fn is_closed(&self) -> bool {
        BeginLock::is_closed(self)
    }
}

/// A user begins exchanges while the object fails in one thread, and another reclaims the memory once it may.
fn begins_while_another_thread_reclaims<L: BeginOrFail>() {
    check(|| {
        let object = Arc::new(Object::<L>::default());
        let user = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                for _ in 0..2 {
                    L::begin(&object, || {
                        // As in a begin: it checks for a failure, which may come later.
                        if !object.failed.load(Ordering::Acquire) {
                            object.in_flight.change();
                        }
                    });
                }
            })
        };
        let reclaimer = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                if object.failed.load(Ordering::Acquire) && object.lock.is_closed() {
                    object.in_flight.change();
                }
            })
        };
        object.failed.store(true, Ordering::Release);
        object.lock.close();
        reclaimer.join().unwrap();
        user.join().unwrap();
        assert!(object.lock.is_closed(), "the lock is released");
    });
}

/// The set in flight is never changed by a begin and by a reclaim at once.
#[test]
fn a_begin_and_a_reclaim_exclude_each_other() {
    begins_while_another_thread_reclaims::<BeginLock>();
}

/// Two flags, each written by one side and then read by the other, instead of the one word of `BeginLock`.
#[derive(Default)]
struct TwoFlags(AtomicBool);

impl BeginOrFail for TwoFlags {
    fn begin(object: &Object<Self>, begin: impl FnOnce()) {
        if !object.lock.0.swap(true, Ordering::SeqCst) {
            begin();
            object.lock.0.store(false, Ordering::Release);
        }
    }

    fn close(&self) {}

    fn is_closed(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// Two flags without store-load order between them: the model finds that both sides miss each other.
#[test]
#[should_panic(expected = "Causality violation")]
fn two_flags_without_fences_let_a_begin_and_a_reclaim_meet() {
    begins_while_another_thread_reclaims::<TwoFlags>();
}

/// The memory of an exchange that is over is released once, before any wait returns and before the next exchange begins. While a
/// thread reads what is in flight, no other changes it. Two threads at a time: in the model two that pause can starve a third.
#[test]
fn memory_is_released_once_and_not_while_a_thread_reads() {
    #[derive(Default)]
    struct Bound {
        hold: MemoryHold,
        in_flight: Set,
    }
    impl Bound {
        fn wait(&self) {
            self.hold.release(1, thread::yield_now, || self.in_flight.change());
        }

        fn look(&self) {
            let seen = self.hold.while_held(1, thread::yield_now, || self.in_flight.get());
            assert!(seen.is_none_or(|changes| changes == 0), "it was released before");
        }
    }
    for other in [Bound::wait, Bound::look] {
        check(move || {
            let bound = Arc::new(Bound::default());
            let there = Arc::clone(&bound);
            let there = thread::spawn(move || other(&there));
            // This thread begins the next exchange, which no other thread reads or ends.
            bound.wait();
            assert_eq!(bound.in_flight.get(), 1);
            bound.in_flight.change();
            there.join().unwrap();
            bound.look();
            assert_eq!(bound.in_flight.get(), 2);
        });
    }
}
