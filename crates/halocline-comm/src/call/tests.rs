//! Waits that take long, and calls that do not match, on a clock that the test moves.

use super::*;
use crate::sync::AtomicU32;
use crate::{Communicator, Host, Reduce, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A host whose clock the test moves, and which records the warnings.
#[derive(Default)]
struct Clock {
    now: AtomicU64,
    looks: AtomicU64,
    warnings: Mutex<Vec<(String, bool)>>,
}

impl Clock {
    /// Moves the clock second by second; the ranks see each second.
    fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.now.fetch_add(1_000_000_000, Ordering::SeqCst);
            let seen = self.looks.load(Ordering::SeqCst);
            while self.looks.load(Ordering::SeqCst) < seen + 20 && !is_so() {
                std::thread::yield_now();
            }
        }
    }

    fn warnings(&self) -> Vec<(String, bool)> {
        self.warnings.lock().unwrap().clone()
    }
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

type Work = fn(&Communicator) -> Result<(), CommError>;

/// The results of two ranks. Meanwhile `watch` moves the clock and sees their communicators.
fn two_ranks(work: [Work; 2], watch: impl Fn(&Clock, &[Communicator])) -> Vec<Result<(), CommError>> {
    let clock = Arc::new(Clock::default());
    let comms = Communicator::threads_on(2, Arc::clone(&clock) as Arc<dyn Host>);
    let watched: Vec<Communicator> = comms.iter().map(Communicator::detached).collect();
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            comms.into_iter().zip(work).map(|(comm, work)| scope.spawn(move || work(&comm))).collect();
        watch(&clock, &watched);
        clock.until(|| ranks.iter().all(|rank| rank.is_finished()));
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Whether the other rank has announced to this one that it waits for it.
fn is_awaited(comm: &Communicator) -> bool {
    comm.link().inbox().waits_in(1 - comm.rank()).is_some()
}

fn barrier(comm: &Communicator) -> Result<(), CommError> {
    comm.barrier()
}

fn reduce(comm: &Communicator) -> Result<(), CommError> {
    comm.all_reduce(1, Reduce::Sum).map(drop)
}

fn broadcast(comm: &Communicator) -> Result<(), CommError> {
    comm.broadcast(0, 7u8).map(drop)
}

const LATE: u64 = 7;

/// Enters the barrier once the test sends a message.
fn late_barrier(comm: &Communicator) -> Result<(), CommError> {
    while comm.probe(None, Tag { operation: LATE, round: 0 }).is_none() {
        std::thread::yield_now();
    }
    comm.barrier()
}

#[test]
fn a_malformed_report_of_different_calls_names_its_sender() {
    let comms = Communicator::threads(2);
    comms[1].send(0, mismatch_tag(&comms[1]), vec![1]).unwrap();
    let error = comms[0].barrier().unwrap_err();
    assert!(matches!(error, CommError::Malformed { from: 1, .. }), "{error}");
}

#[test]
fn a_long_wait_warns_with_the_late_rank_and_the_call() {
    let ended = two_ranks([barrier, late_barrier], |clock, comms| {
        clock.until(|| is_awaited(&comms[1]));
        assert_eq!(clock.warnings(), [], "30 s have not passed");
        clock.until(|| clock.warnings().len() >= 2);
        assert_eq!(comms[1].link().inbox().waits_in(0).as_deref(), Some("barrier"));
        comms[0].send(1, Tag { operation: LATE, round: 0 }, Vec::new()).unwrap();
        let warnings = clock.warnings();
        assert!(warnings.iter().all(|(text, _)| text.starts_with("rank 0 has waited ")), "{warnings:?}");
        assert!(
            warnings.iter().all(|(text, _)| text.ends_with(" s for a barrier from rank 1")),
            "{warnings:?}"
        );
        // The second warning is marked as a repetition.
        assert_eq!((warnings[0].1, warnings[1].1), (false, true));
        // The wait is over.
        clock.until(|| !is_awaited(&comms[1]));
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Neither rank sends a message: each waits for the other. The announcement of one tells both.
#[test]
fn different_calls_that_both_begin_with_a_wait_fail_on_both_ranks() {
    let split: Work = |comm| comm.split(Some(0), 0).map(drop);
    for (calls, wanted) in [
        ([reduce as Work, broadcast], "rank 0 is in all_reduce, rank 1 in broadcast"),
        ([split, barrier], "rank 0 is in split, rank 1 in barrier"),
    ] {
        for ended in two_ranks(calls, |_, _| {}) {
            let text = ended.unwrap_err().to_string();
            assert!(text.contains(wanted), "{text}");
        }
    }
}

/// One rank has made one more duplicate: their calls have different numbers.
#[test]
fn calls_out_of_step_warn_on_both_ranks_with_the_call_of_the_other() {
    let out_of_step: Work = |comm| {
        comm.duplicate()?;
        comm.within("bind").all_reduce(1, Reduce::Sum).map(drop)
    };
    let patient: Work = |comm| comm.with_deadline(Some(Duration::from_secs(300))).barrier();
    let ended = two_ranks([out_of_step, patient], |clock, _| {
        clock.until(|| {
            let text = clock.warnings().into_iter().map(|(text, _)| text).collect::<String>();
            text.contains("for an all-reduce of bind from rank 1 (which waits in barrier)")
                && text.contains("for a barrier from rank 0 (which waits in bind)")
        });
    });
    assert!(matches!(ended[1], Err(CommError::Deadline { waiting: 1, .. })), "{ended:?}");
    assert!(matches!(ended[0], Err(CommError::Left { rank: 1, .. })), "{ended:?}");
}

/// After different calls a communicator fails all later calls on every rank.
#[test]
fn a_communicator_stays_failed_after_different_calls() {
    let one: Work = |comm| {
        let first = comm.broadcast(0, 7u8).unwrap_err();
        assert_eq!(comm.barrier().unwrap_err().to_string(), first.to_string());
        Err(first)
    };
    let ended = two_ranks([one, barrier], |_, _| {});
    for ended in ended {
        let text = ended.unwrap_err().to_string();
        assert!(text.contains("rank 0 is in broadcast, rank 1 in barrier"), "{text}");
    }
}

#[test]
fn different_parts_of_one_call_are_named() {
    let error = mismatch([(3, "bind\u{1f}broadcast"), (1, "bind\u{1f}all_reduce")]);
    let text = error.to_string();
    assert!(text.contains("rank 1 is in bind, all_reduce, rank 3 in bind, broadcast"), "{text}");
    assert_eq!(read(&write([(0, "bind\u{1f}broadcast"), (1, "barrier")])).unwrap().to_string(), {
        mismatch([(1, "barrier"), (0, "bind")]).to_string()
    });
}

#[test]
fn a_message_without_the_name_of_a_call_is_refused() {
    for bad in [&[][..], &[9], b"barrier\x08"] {
        assert_eq!(split(bad), None);
    }
    assert_eq!(split(b"databarrier\x07"), Some((&b"data"[..], "barrier".to_owned())));
    assert!(read(&[1, 2, 3]).is_none());
}
