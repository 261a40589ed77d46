//! Model checks of the protocols under loom: every interleaving, and every reordering that the memory
//! model allows, of a few threads. Run by `RUSTFLAGS="--cfg loom" cargo test -p halocline-comm --lib
//! --release`; loom reports a wait that nobody ends as a deadlock.

mod begin;
mod completion;

use crate::cursors::Cursors;
use crate::{Claim, Counter, Doorbell, Host, Seen, Wakers};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Parks on a condition variable; the words decide, as a futex does.
#[derive(Default)]
struct Parking {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Host for Parking {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn park(&self, word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        let _guard = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}

/// Every execution with at most this many preemptions. Without a bound the two epochs of a link take
/// more than minutes.
const PREEMPTIONS: usize = 4;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// One rank: what it waits for, and how it is woken.
#[derive(Default)]
struct Rank {
    counter: Counter,
    bell: Doorbell,
}

impl Rank {
    fn raise(&self, host: &Parking, epoch: u64) {
        self.counter.raise(epoch);
        self.bell.changed(host);
    }

    fn wait(&self, host: &Parking, epoch: u64) {
        while self.counter.look(epoch) != Seen::Reached {
            self.bell.sleep(host, None, || self.counter.look(epoch) == Seen::Reached);
        }
    }
}

/// Cells that only one side may touch at a time; loom reports any race on them.
struct Halo(UnsafeCell<u64>);

// SAFETY: loom checks every access to the cell and fails the test where two of them race.
unsafe impl Sync for Halo {}
// SAFETY: loom checks every access to the cell and fails the test where two of them race.
unsafe impl Send for Halo {}

/// A push link over two epochs: `ready` from the receiver, bytes and `arrived` from the sender.
#[test]
fn granted_and_arrived_order_the_bytes() {
    check(|| {
        let shared =
            Arc::new((Rank::default(), Rank::default(), Halo(UnsafeCell::new(0)), Parking::default()));
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (sender, receiver, halo, host) = &*shared;
                for epoch in 1..=2 {
                    sender.wait(host, epoch);
                    halo.0.with_mut(|cell| {
                        // SAFETY: the receiver has granted this epoch, which this side has waited for, and reads
                        // nothing before `arrived` of it.
                        unsafe { *cell = epoch }
                    });
                    receiver.raise(host, epoch);
                }
            })
        };
        let (sender_side, receiver, halo, host) = &*shared;
        for epoch in 1..=2 {
            sender_side.raise(host, epoch);
            receiver.wait(host, epoch);
            halo.0.with(|cell| {
                // SAFETY: this side has waited for `arrived` of this epoch, and the sender writes nothing before the
                // next one is granted.
                assert_eq!(unsafe { *cell }, epoch);
            });
        }
        sender.join().unwrap();
    });
}

/// A reduce whose sender combines the receiver's halo where it lies, over two epochs: the receiver's raise says that the halo is
/// complete, the sender's second word that it has combined it. Its first word came before.
#[test]
fn a_halo_is_combined_in_place_before_it_is_written_again() {
    const COMBINED: u64 = 2;
    check(|| {
        let shared =
            Arc::new((Rank::default(), Rank::default(), Halo(UnsafeCell::new(0)), Parking::default()));
        // As reduces before have left it.
        [1, 2].into_iter().for_each(|epoch| shared.1.counter.say(epoch, COMBINED));
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (sender, receiver, halo, host) = &*shared;
                for epoch in 1..=2 {
                    receiver.counter.say(epoch, 1);
                    receiver.raise(host, epoch);
                    sender.wait(host, epoch);
                    halo.0.with_mut(|cell| {
                        // SAFETY: the receiver has raised this epoch, which this side has waited for, and touches nothing before
                        // it was combined.
                        assert_eq!(std::mem::take(unsafe { &mut *cell }), epoch);
                    });
                    receiver.counter.say(epoch, COMBINED);
                    receiver.bell.changed(host);
                }
            })
        };
        let (sender_side, receiver, halo, host) = &*shared;
        for epoch in 1..=2 {
            halo.0.with_mut(|cell| {
                // SAFETY: the sender has combined the epoch before, which this side has waited for, and touches nothing before this
                // one is raised.
                assert_eq!(std::mem::replace(unsafe { &mut *cell }, epoch), 0);
            });
            sender_side.raise(host, epoch);
            // The word is that of two epochs before until this one is reached.
            let is_combined =
                || receiver.counter.look(epoch) == Seen::Reached && receiver.counter.about(epoch) == COMBINED;
            while !is_combined() {
                receiver.bell.sleep(host, None, is_combined);
            }
        }
        sender.join().unwrap();
    });
}

/// A ring that holds two records: no record is read before it is whole, none is overwritten before it was read, and a receiver
/// that sleeps is woken.
#[test]
fn a_ring_hands_over_each_record_once() {
    const RECORDS: u64 = 3;
    const CAPACITY: u64 = 2;
    check(|| {
        let cells = [Halo(UnsafeCell::new(0)), Halo(UnsafeCell::new(0))];
        let shared = Arc::new((Cursors::default(), Doorbell::default(), cells, Parking::default()));
        let sender = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (cursors, bell, cells, host) = &*shared;
                let mut sent = 0;
                while sent < RECORDS && cursors.has_space(sent, 1, CAPACITY) {
                    cells[(sent % CAPACITY) as usize].0.with_mut(|cell| {
                        // SAFETY: the receiver has read what was here before.
                        unsafe { *cell = sent + 1 }
                    });
                    sent += 1;
                    cursors.publish(sent);
                    bell.changed(host);
                }
                // A full ring: the message takes another way.
                sent
            })
        };
        let (cursors, bell, cells, host) = &*shared;
        for read in 0..CAPACITY {
            while cursors.written() == read {
                bell.sleep(host, None, || cursors.written() != read);
            }
            cells[(read % CAPACITY) as usize].0.with(|cell| {
                // SAFETY: the record is published, and the sender does not overwrite it before it is freed.
                assert_eq!(unsafe { *cell }, read + 1);
            });
            cursors.free(read + 1);
        }
        assert!(sender.join().unwrap() >= CAPACITY);
    });
}

/// A poison releases a sleeper, and a close does.
#[test]
fn poison_and_close_end_a_wait() {
    for poison in [true, false] {
        check(move || {
            let shared = Arc::new((Rank::default(), Parking::default()));
            let waiter = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (rank, host) = &*shared;
                    loop {
                        match rank.counter.look(2) {
                            Seen::Below => {
                                rank.bell.sleep(host, None, || rank.counter.look(2) != Seen::Below)
                            }
                            seen => return seen,
                        }
                    }
                })
            };
            let (rank, host) = &*shared;
            rank.raise(host, 1);
            if poison {
                rank.counter.poison(7)
            } else {
                rank.counter.close(1)
            }
            rank.bell.changed(host);
            let expected = if poison { Seen::Poisoned(7) } else { Seen::Closed(1) };
            assert_eq!(waiter.join().unwrap(), expected);
        });
    }
}

/// The last raise before a close is never lost.
#[test]
fn a_close_does_not_hide_the_epoch_before_it() {
    check(|| {
        let counter = Arc::new(Counter::default());
        let writer = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                counter.raise(1);
                counter.close(1);
            })
        };
        assert!(matches!(counter.look(1), Seen::Reached | Seen::Below));
        writer.join().unwrap();
        assert_eq!(counter.look(1), Seen::Reached);
        assert_eq!(counter.look(2), Seen::Closed(1));
    });
}

/// A failure hides no reached epoch, and reports no epoch that was not reached.
#[test]
fn poison_and_close_hide_no_epoch_and_invent_none() {
    check(|| {
        let counter = Arc::new(Counter::default());
        let raiser = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                counter.raise(1);
                counter.close(1);
            })
        };
        let failer = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.poison(7))
        };
        assert_ne!(counter.look(2), Seen::Reached);
        raiser.join().unwrap();
        failer.join().unwrap();
        assert_eq!(counter.look(1), Seen::Reached);
        assert_eq!(counter.look(2), Seen::Poisoned(7));
    });
}

/// Two threads bring work to a claimed link: each piece is done, by one thread at a time, before
/// the last run ends, also if the holder releases the claim while the other thread comes again.
#[test]
fn a_claim_loses_no_request_and_admits_one_thread() {
    check(|| {
        let pieces: [AtomicBool; 3] = std::array::from_fn(|_| AtomicBool::new(false));
        let shared = Arc::new((Claim::default(), pieces, Halo(UnsafeCell::new(0))));
        let bring = |shared: &(Claim, [AtomicBool; 3], Halo), piece: usize| {
            shared.1[piece].store(true, Ordering::Relaxed);
            let mut owes = true;
            while owes {
                owes = false;
                shared.0.turn(
                    || owes = true,
                    || {
                        for piece in &shared.1 {
                            if piece.load(Ordering::Relaxed) {
                                piece.store(false, Ordering::Relaxed);
                                shared.2.0.with_mut(|done| {
                                    // SAFETY: a claim admits one thread at a time.
                                    unsafe { *done += 1 }
                                });
                            }
                        }
                    },
                );
            }
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (1..3).for_each(|piece| bring(&shared, piece)))
        };
        bring(&shared, 0);
        other.join().unwrap();
        shared.2.0.with(|done| {
            // SAFETY: both threads are joined.
            assert_eq!(unsafe { *done }, 3);
        });
    });
}

/// The progress thread of these models: serves once its counter is reached.
fn progress(rank: &Rank, host: &Parking, served: &AtomicBool) {
    loop {
        let seen = rank.bell.demands();
        if rank.counter.look(1) == Seen::Reached {
            return served.store(true, Ordering::Relaxed);
        }
        rank.bell.await_demand(host, seen, None);
    }
}

/// A rank that arms progress and checks once more is served although it makes no further call.
#[test]
fn armed_progress_is_woken_by_a_change() {
    check(|| {
        let shared = Arc::new((Rank::default(), Parking::default(), AtomicBool::new(false)));
        let server = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || progress(&shared.0, &shared.1, &shared.2))
        };
        let peer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.raise(&shared.1, 1))
        };
        let (rank, host, served) = &*shared;
        rank.bell.arm();
        if rank.counter.look(1) == Seen::Reached {
            // Served by the caller itself; the progress thread need not be woken for it.
            rank.bell.demand(host);
        }
        peer.join().unwrap();
        server.join().unwrap();
        assert!(served.load(Ordering::Relaxed));
    });
}

/// A peer that is about to sleep demands progress of a rank that is not armed.
#[test]
fn a_demand_reaches_progress_that_is_not_armed() {
    check(|| {
        let shared = Arc::new((Rank::default(), Parking::default(), AtomicBool::new(false)));
        let server = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || progress(&shared.0, &shared.1, &shared.2))
        };
        let (rank, host, served) = &*shared;
        rank.raise(host, 1);
        rank.bell.demand(host);
        server.join().unwrap();
        assert!(served.load(Ordering::Relaxed));
    });
}

/// An executor of one task: it sleeps until the task is woken.
#[derive(Default)]
struct Executor {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Executor {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Executor {
    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// A counter, and the tasks that wait for it.
#[derive(Default)]
struct Awaited {
    counter: Counter,
    bell: Doorbell,
    wakers: Wakers,
    host: Parking,
}

impl Awaited {
    fn complete(&self, epoch: u64) {
        self.counter.raise(epoch);
        self.bell.changed(&self.host);
        while let Some(waker) = self.wakers.take(epoch) {
            waker.wake();
        }
    }

    fn is_over(&self) -> bool {
        self.counter.look(1) == Seen::Reached
    }
}

/// A task that enters while its epoch completes sees it, or is woken; also one that has moved to another
/// executor meanwhile.
#[test]
fn no_wake_is_lost_between_entering_and_completing() {
    for moves in [false, true] {
        check(move || {
            let shared = Arc::new(Awaited::default());
            let completer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.complete(1))
            };
            let [first, second] = [(); 2].map(|()| std::sync::Arc::new(Executor::default()));
            let mut executor = &first;
            let ticket = shared.wakers.enter(1, &Waker::from(std::sync::Arc::clone(executor)));
            if moves && !shared.is_over() {
                executor = &second;
                shared.wakers.renew(ticket, &Waker::from(std::sync::Arc::clone(executor)));
            }
            while !shared.is_over() {
                executor.sleep();
            }
            completer.join().unwrap();
            shared.wakers.leave(ticket);
            assert!(shared.wakers.is_empty());
        });
    }
}

/// A task that is cancelled while its epoch completes is taken once: by itself or by the completing thread.
#[test]
fn a_cancelled_task_is_taken_once() {
    check(|| {
        let shared = Arc::new(Awaited::default());
        let executor = std::sync::Arc::new(Executor::default());
        let ticket = shared.wakers.enter(1, &Waker::from(std::sync::Arc::clone(&executor)));
        let completer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.complete(1))
        };
        let left = shared.wakers.leave(ticket);
        completer.join().unwrap();
        assert!(shared.wakers.is_empty());
        assert_ne!(left, *executor.woken.lock().unwrap());
    });
}
