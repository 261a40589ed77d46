//! Model checks of the table under loom. Run by `RUSTFLAGS="--cfg loom" cargo test -p halocline-capi --lib --release model`.

use super::{Pin, Table};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

/// Counts its drops; loom reports a use that is not ordered with the drop.
struct Object {
    drops: Arc<AtomicUsize>,
    value: loom::cell::UnsafeCell<u32>,
}

// SAFETY: the model accesses `value` only by reads of the threads that have it pinned, and by the drop, which loom checks
// to be ordered after them.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a drop has the object alone.
        self.value.with_mut(|value| unsafe { *value = 0 });
    }
}

fn object(drops: &Arc<AtomicUsize>) -> Object {
    Object { drops: Arc::clone(drops), value: loom::cell::UnsafeCell::new(7) }
}

/// Reads the object as a call does. False if the handle was refused.
fn reads(pin: Option<Pin<'_, Object>>) -> bool {
    let Some(pin) = pin else { return false };
    // SAFETY: the object is pinned, so no thread writes it.
    pin.get().expect("pinned").value.with(|value| assert_eq!(unsafe { *value }, 7));
    true
}

#[test]
fn an_object_is_dropped_once_and_after_every_use() {
    loom::model(|| {
        let (table, drops) = (Arc::new(Table::new()), Arc::new(AtomicUsize::new(0)));
        let handle = table.insert(1, object(&drops)).expect("a free slot");
        let users: Vec<_> = (0..2)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || reads(table.pin(handle)))
            })
            .collect();
        assert!(table.remove(handle));
        for user in users {
            user.join().expect("no panic");
        }
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert!(!reads(table.pin(handle)));
    });
}

#[test]
fn of_two_threads_that_free_a_handle_one_succeeds() {
    loom::model(|| {
        let (table, drops) = (Arc::new(Table::new()), Arc::new(AtomicUsize::new(0)));
        let handle = table.insert(1, object(&drops)).expect("a free slot");
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.remove(handle))
        };
        let own = table.remove(handle);
        assert!(own != other.join().expect("no panic"));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_stale_handle_is_refused_while_its_slot_gets_another_object() {
    loom::model(|| {
        let (table, drops) = (Arc::new(Table::new()), Arc::new(AtomicUsize::new(0)));
        let stale = table.insert(1, object(&drops)).expect("a free slot");
        assert!(table.remove(stale));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || assert!(!reads(table.pin(stale)) && !table.remove(stale)))
        };
        let fresh = table.insert(1, object(&drops)).expect("a free slot");
        other.join().expect("no panic");
        assert!(reads(table.pin(fresh)));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_handle_that_is_passed_on_without_order_names_a_whole_object() {
    loom::model(|| {
        let (table, drops) = (Arc::new(Table::new()), Arc::new(AtomicUsize::new(0)));
        let passed = Arc::new(AtomicU64::new(0));
        // Makes the slots: loom does not know that the `OnceLock` which has them orders their making.
        table.insert(1, object(&drops)).expect("a free slot");
        let other = {
            let (table, passed) = (Arc::clone(&table), Arc::clone(&passed));
            thread::spawn(move || {
                let handle = passed.load(Ordering::Relaxed);
                // A slot that is seen as vacant still is no error: the program has passed its handle on without order.
                handle != 0 && reads(table.pin(handle))
            })
        };
        passed.store(table.insert(1, object(&drops)).expect("a free slot"), Ordering::Relaxed);
        other.join().expect("no panic");
    });
}
