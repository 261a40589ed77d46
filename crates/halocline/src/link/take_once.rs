//! A value from one of several equal messages.

use crate::lock::lock;
use std::sync::{Mutex, OnceLock};

/// Takes its value once. Of two threads that look at the same time, the second would take the message of another link.
pub(super) struct TakeOnce<T> {
    value: OnceLock<T>,
    taking: Mutex<()>,
}

impl<T> Default for TakeOnce<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), taking: Mutex::new(()) }
    }
}

impl<T> TakeOnce<T> {
    /// The value, taken now if it was not before. Waits only for another thread that takes it.
    pub(super) fn get_or_take(&self, take: impl FnOnce() -> Option<T>) -> Option<&T> {
        if self.value.get().is_none() {
            let _taking = lock(&self.taking);
            if self.value.get().is_none()
                && let Some(taken) = take()
            {
                self.value.get_or_init(|| taken);
            }
        }
        self.value.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Two links of one peer, a message for each; two threads look at the first link at the same time.
    #[test]
    fn threads_that_look_at_the_same_time_take_one_message() {
        let (first, second) = (TakeOnce::default(), TakeOnce::default());
        let inbox = Mutex::new(vec![2, 1]);
        let [is_inside, is_about] = [AtomicBool::new(false), AtomicBool::new(false)];
        let takers = AtomicUsize::new(0);
        let until = |flag: &AtomicBool| {
            while !flag.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        let take = || {
            takers.fetch_add(1, Ordering::AcqRel);
            is_inside.store(true, Ordering::Release);
            until(&is_about);
            // The other one comes in here, if it can.
            (0..1000)
                .take_while(|_| takers.load(Ordering::Acquire) < 2)
                .for_each(|_| std::thread::yield_now());
            inbox.lock().expect("no panic").pop()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| first.get_or_take(take).copied());
            until(&is_inside);
            is_about.store(true, Ordering::Release);
            assert_eq!(first.get_or_take(take), Some(&1));
        });
        assert_eq!(takers.into_inner(), 1);
        assert_eq!(second.get_or_take(|| inbox.lock().expect("no panic").pop()), Some(&2));
    }
}
