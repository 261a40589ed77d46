//! Ranks as threads of one process on devices whose calls wait for streams and block calls of other threads. `HALOCLINE_SEEDS` is the
//! number of random programs, `HALOCLINE_SEED` the first one.

use halocline::Communicator;
use halocline::device::{Memory, Priority, ValueOp};
use halocline_conformance::device_fixtures::Rig;
use halocline_conformance::holding::Held;
use halocline_conformance::{Outcome, device_cases, run_cases, run_fields_on_devices};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn run(ranks: usize, rank: impl Fn(&Communicator) -> Outcome + Sync) {
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        let ranks: Vec<_> =
            Communicator::threads(ranks).into_iter().map(|comm| scope.spawn(|| rank(&{ comm }))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    ended.into_iter().for_each(|outcome| outcome.unwrap_or_else(|trouble| panic!("{trouble}")));
}

fn a_drop_does_not_block_a_rank_that_another_one_waits_for(ranks: usize) {
    run(ranks, |comm| {
        run_cases(comm, &device_cases::<Held>(), "scheduled::", LIMIT)?;
        run_cases(comm, &device_cases::<Held>(), "devices::", LIMIT)?;
        let topics = ["alternatives::", "flight::", "lifetimes::", "narrowed::"];
        topics.iter().try_for_each(|topic| run_fields_on_devices::<Held>(comm, topic, LIMIT))
    });
}

#[test]
fn a_drop_does_not_block_one_of_2_ranks() {
    a_drop_does_not_block_a_rank_that_another_one_waits_for(2);
}

#[test]
fn a_drop_does_not_block_one_of_3_ranks() {
    a_drop_does_not_block_a_rank_that_another_one_waits_for(3);
}

const CHILD: &str = "HALOCLINE_TEST_OF_ENDS";

/// What a program still has when its functions for the end are called, and when that began.
static LEFT: Mutex<Option<Memory>> = Mutex::new(None);
static ENDING: OnceLock<Instant> = OnceLock::new();

/// Called behind the library's own function for the end.
extern "C" fn last() {
    let took = ENDING.get().expect("it ends").elapsed();
    let device = &Held::get().expect("devices").devices()[0];
    let left = LEFT.lock().expect("not poisoned").take().expect("it is left");
    let base = left.at(0);
    drop(left);
    drop(device.begin_waiting());
    let is_there = device.place_of(base).is_ok();
    println!("through after {} ms, there: {is_there}", took.as_millis());
}

/// What the child does: its device waits for a flag that is never written while a free is pending.
fn end_with_a_stuck_stream() -> Outcome {
    // SAFETY: a function without arguments.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    let rig = Held::get()?;
    let device = &rig.devices()[0];
    let (word, stream) = (device.allocate_pinned(8)?, device.stream(Priority::Normal)?);
    let (freed, left) = (device.allocate(64)?, device.allocate(64)?);
    *LEFT.lock().expect("not poisoned") = Some(left);
    // SAFETY: the word is there until the process has ended.
    unsafe { stream.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]) }?;
    drop(freed);
    while !rig.is_held() {
        std::thread::yield_now();
    }
    ENDING.get_or_init(Instant::now);
    std::process::exit(0);
}

/// Nothing is freed any more and nothing hangs: neither the end of the process nor a drop after that of the library.
#[test]
fn a_process_ends_at_once_although_a_stream_never_does() {
    if std::env::var_os(CHILD).is_some() {
        return end_with_a_stuck_stream().unwrap_or_else(|trouble| panic!("{trouble}"));
    }
    let name = "holding::a_process_ends_at_once_although_a_stream_never_does";
    let me = std::env::current_exe().expect("a path");
    let mut command = Command::new(me);
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let began = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if began.elapsed() > LIMIT {
            child.kill().expect("it is there");
            break;
        }
        // Nothing signals the end of a child here.
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = child.wait_with_output().expect("it has ended");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    let took = said.split("through after ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let took = Duration::from_millis(took.unwrap_or_else(|| panic!("it did not get through: {said}")));
    assert!(took < Duration::from_secs(5) && said.contains("there: true"), "{said}");
}
