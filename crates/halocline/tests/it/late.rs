//! Waits that take long, on a clock that the test moves: warnings name the waiting rank, the call and the rank that it waits for.

use halocline::comm::{Host, System};
use halocline::device::sim::{Options, World};
use halocline::{
    Array, BindOptions, Cause, CommError, Communicator, Decomposed, DeviceArray, Error, Field, Halo,
    HaloExchange, RegularGrid,
};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::yield_now;
use std::time::Duration;

/// A machine whose time passes as the test says, and which keeps the warnings.
#[derive(Default)]
struct Clock {
    now: AtomicU64,
    looks: AtomicU64,
    warnings: Mutex<Vec<(String, bool)>>,
}

impl Host for Clock {
    fn now(&self) -> Duration {
        self.looks.fetch_add(1, Ordering::SeqCst);
        // Spins end.
        Duration::from_nanos(self.now.fetch_add(1000, Ordering::SeqCst))
    }

    fn park(&self, word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
        // The clock may have moved.
        System.park(word, expected, Some(Duration::from_millis(1)));
    }

    fn wake(&self, word: &AtomicU32) {
        System.wake(word);
    }

    fn tell_late(&self, text: &str, again: bool) {
        self.warnings.lock().unwrap().push((text.to_owned(), again));
    }
}

impl Clock {
    /// Lets time pass, second by second, each of which the ranks see.
    fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.now.fetch_add(1_000_000_000, Ordering::SeqCst);
            let seen = self.looks.load(Ordering::SeqCst);
            while self.looks.load(Ordering::SeqCst) < seen + 20 && !is_so() {
                yield_now();
            }
        }
    }

    fn has_warned(&self, parts: &[&str]) -> bool {
        let warnings = self.warnings.lock().unwrap();
        warnings.iter().any(|(text, _)| parts.iter().all(|part| text.contains(part)))
    }
}

/// Longer than any warning takes, and shorter than for good.
const AT_LAST: Option<Duration> = Some(Duration::from_secs(300));

fn bound_to<A: Deref<Target = Field>>(
    comm: &Communicator,
    (name, deadline): (&str, Option<Duration>),
    make: impl FnOnce() -> Result<A, Error>,
) -> Result<(A, HaloExchange), Error> {
    let grid = RegularGrid::new([2 * comm.size()]).periodic([true]);
    let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))?;
    let array = make()?;
    let options = BindOptions::default().name(name).deadline(deadline);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &*array)], &options)?;
    Ok((array, halo))
}

fn bound(comm: &Communicator, name: &str) -> Result<(Array<f64>, HaloExchange), Error> {
    bound_to(comm, (name, AT_LAST), || Array::zeros(comm, &[4]))
}

/// Two ranks at work, while time passes until `is_reported`; then until both are through.
fn two_ranks<T: Send>(
    work: impl Fn(&Communicator) -> T + Sync,
    is_reported: impl Fn(&Clock) -> bool,
    over: &AtomicBool,
) -> Vec<T> {
    let clock = Arc::new(Clock::default());
    std::thread::scope(|scope| {
        let work = &work;
        let ranks = Communicator::threads_on(2, Arc::clone(&clock) as _);
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(move || work(&comm))).collect();
        clock.until(|| is_reported(&clock) || ranks.iter().all(|rank| rank.is_finished()));
        assert!(is_reported(&clock), "{:?}", clock.warnings.lock().unwrap());
        // The first warning of each wait goes to standard error if the program has no subscriber.
        let warnings = clock.warnings.lock().unwrap().clone();
        let first =
            |rank: usize| warnings.iter().find(|(text, _)| text.contains(&format!("rank {rank} has waited")));
        assert!((0..2).filter_map(first).all(|(_, again)| !again), "{warnings:?}");
        over.store(true, Ordering::SeqCst);
        clock.until(|| ranks.iter().all(|rank| rank.is_finished()));
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

#[test]
fn exchanges_in_opposite_orders_are_told_on_both_ranks() {
    let ended = two_ranks(
        |comm| {
            let objects = [bound(comm, "t")?, bound(comm, "u")?];
            objects[comm.rank()].1.exchange()?.wait()
        },
        |clock| {
            clock.has_warned(&[
                "rank 0 has waited 3",
                " in exchange 1 of \"t\" for rank 1 (which waits in exchange 1 of \"u\")",
            ]) && clock.has_warned(&[
                "rank 1 has",
                " in exchange 1 of \"u\" for rank 0 (which waits in exchange 1 of \"t\")",
            ])
        },
        &AtomicBool::default(),
    );
    assert!(ended.iter().all(|ended| matches!(ended, Err(Error::Failed(_)))), "{ended:?}");
}

#[test]
fn exchanges_in_opposite_orders_are_told_at_a_deadline() {
    let deadline = Duration::from_secs(20);
    let ended = two_ranks(
        |comm| {
            let bound = |name| bound_to(comm, (name, Some(deadline)), || Array::<f64>::zeros(comm, &[4]));
            let objects = [bound("t")?, bound("u")?];
            objects[comm.rank()].1.exchange()?.wait()
        },
        |clock| {
            // The first one to give up; then the other one may learn that it has gone.
            clock.has_warned(&[
                "rank 0 has waited 2",
                " in exchange 1 of \"t\" for rank 1 (which waits in exchange 1 of \"u\")",
            ]) || clock.has_warned(&[
                "rank 1 has waited 2",
                " in exchange 1 of \"u\" for rank 0 (which waits in exchange 1 of \"t\")",
            ])
        },
        &AtomicBool::default(),
    );
    let is_late = |ended: &Result<(), Error>| matches!(ended, Err(Error::Failed(failure)) if matches!(failure.cause, Cause::Deadline(_)));
    assert!(ended.iter().any(is_late) && ended.iter().all(Result::is_err), "{ended:?}");
}

#[test]
fn an_exchange_beside_a_collective_call_is_reported_on_both_ranks() {
    let ended = two_ranks(
        |comm| {
            let (_array, halo) = bound(comm, "t")?;
            match comm.rank() {
                0 => halo.exchange()?.wait(),
                _ => Ok(comm.with_deadline(AT_LAST).barrier()?),
            }
        },
        |clock| {
            clock.has_warned(&["rank 0 has", " in exchange 1 of \"t\" for rank 1 (which waits in barrier)"])
                && clock.has_warned(&[
                    "rank 1 has",
                    " for a barrier from rank 0 (which waits in exchange 1 of \"t\")",
                ])
        },
        &AtomicBool::default(),
    );
    assert!(matches!(ended[0], Err(Error::Failed(_))), "{ended:?}");
    assert!(
        matches!(ended[1], Err(Error::Comm(CommError::Deadline { .. } | CommError::Left { .. }))),
        "{ended:?}"
    );
}

/// Rank 1 comes to the exchange once rank 0 has warned.
fn comes_late(
    comm: &Communicator,
    halo: &HaloExchange,
    over: &AtomicBool,
    wait: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    if comm.rank() == 0 {
        return wait();
    }
    while !over.load(Ordering::SeqCst) {
        yield_now();
    }
    halo.exchange()?.wait()
}

#[test]
fn a_task_that_waits_for_a_late_rank_is_reported() {
    let over = AtomicBool::default();
    let ended = two_ranks(
        |comm| {
            let (_array, halo) = bound(comm, "t")?;
            comes_late(comm, &halo, &over, || smol::block_on(halo.begin().into_future()))
        },
        |clock| clock.has_warned(&["rank 0 has waited 3", " in exchange 1 of \"t\" for rank 1"]),
        &over,
    );
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn a_loop_on_is_ready_warns_about_a_late_rank() {
    let over = AtomicBool::default();
    let ended = two_ranks(
        |comm| {
            let (_array, halo) = bound(comm, "t")?;
            comes_late(comm, &halo, &over, || {
                let pending = halo.exchange()?;
                while !pending.is_ready()? {
                    yield_now();
                }
                Ok(())
            })
        },
        |clock| clock.has_warned(&["rank 0 has waited 3", " in exchange 1 of \"t\" for rank 1"]),
        &over,
    );
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn streams_that_wait_for_a_late_rank_are_told() {
    let over = AtomicBool::default();
    let live = World::live(7, &Options::default()).expect("a world");
    let world = live.world();
    let ended = two_ranks(
        |comm| {
            let device = world.device(comm.rank() as u32)?;
            let (_array, halo) = bound_to(comm, ("t", AT_LAST), || DeviceArray::<f64>::zeros(&device, &[4]))?;
            comes_late(comm, &halo, &over, || halo.exchange()?.wait())
        },
        |clock| {
            clock.has_warned(&["the streams of rank 0 have waited 3", " in exchange 1 of \"t\" for rank 1"])
        },
        &over,
    );
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}
