//! Ranks that are killed or stopped: the others end by themselves, quickly, with an error that names the
//! right rank, and nothing is left behind. What is drawn follows from a seed, which a failure prints;
//! `HALOCLINE_SEED` sets it.

mod processes;

use halocline_conformance::numbers::Numbers;
use halocline_conformance::victim::{HERE, NAMED, victim_of};
use processes::{End, Ranks};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// How long the survivors may take, on a machine that is busy with other tests.
const QUICKLY: Duration = Duration::from_secs(15);

fn seed() -> u64 {
    match std::env::var("HALOCLINE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64),
    }
}

/// Plays a scenario and does `signal` to the victim up to `later` after it said that it is there.
fn play(scenario: &str, seed: u64, signal: Signal, later: Duration) {
    let mut numbers = Numbers::new(seed ^ 2);
    // Where one is only late, whoever waits for those that wait for it is late, too, and may be blamed by
    // those further away: so few that all are its neighbours.
    let size = 2 + numbers.below(if signal == Signal::KILL { 4 } else { 2 });
    let victim = victim_of(seed, size);
    let about = format!("scenario {scenario}, HALOCLINE_SEED={seed}, rank {victim} of {size}");
    let mut ranks = Ranks::start(size, &["victim", scenario, &seed.to_string()]);
    let token = ranks.token();
    let here = ranks.await_line(victim, HERE, QUICKLY);
    std::thread::sleep(later * numbers.below(1000) as u32 / 1000);
    let signalled = kill_process(ranks.pid(victim), signal);
    let start = Instant::now();
    let survivors = || (0..size).filter(|&rank| rank != victim);
    let in_time = ranks.await_end(survivors(), QUICKLY);
    let took = start.elapsed();
    let ends = ranks.end();
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    assert!(here && signalled.is_ok(), "{about}: the victim never was there, {signalled:?}\n{output}");
    assert!(in_time, "{about}: the others are still there after {took:?}\n{output}");
    let how = if signal == Signal::KILL { "died" } else { "late" };
    for rank in survivors() {
        let End { status, output: said } = &ends[rank];
        let named = said.contains(&format!("named {victim} {how}: "));
        let clean = status.code() == Some(NAMED.into());
        assert!(named && clean, "{about}: rank {rank} ended with {status}\n{output}");
    }
    nothing_is_left(&token, &about);
}

/// No process of the job, no socket, no file in shared memory.
fn nothing_is_left(token: &str, about: &str) {
    let entries = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in entries("/dev/shm").map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        assert!(!file.contains(token) && !file.contains("halocline"), "{about}: {file} is left in /dev/shm");
    }
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("a list of sockets");
    assert!(!sockets.contains(token), "{about}: a socket is left");
    for process in entries("/proc") {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let ours = environment.windows(token.len()).any(|window| window == token.as_bytes());
        assert!(!ours, "{about}: process {:?} is left", process.file_name());
    }
}

fn ten_times(scenario: &str, later: Duration) {
    let seed = seed();
    for turn in 0..10 {
        // With a seed given, the first turn is the one that failed.
        play(scenario, seed.wrapping_add(turn), Signal::KILL, later);
    }
}

#[test]
fn killed_between_two_exchanges() {
    ten_times("between", Duration::ZERO);
}

#[test]
fn killed_in_mid_exchange() {
    ten_times("mid", Duration::ZERO);
}

#[test]
fn killed_anywhere_while_exchanging() {
    ten_times("free", Duration::from_millis(3));
}

#[test]
fn killed_during_bind() {
    ten_times("bind", Duration::from_millis(60));
}

#[test]
fn killed_during_a_pattern_or_collective_call() {
    ten_times("pattern", Duration::from_millis(10));
}

/// No rank is killed here: one has no descriptor left, for memory, for its peers' memory or for sockets. All
/// end with an error, none waits.
#[test]
fn starved_of_descriptors() {
    let seed = seed();
    for seed in (0..12).map(|turn| seed.wrapping_add(turn)) {
        let size = 2 + (seed / 12 % 3) as usize;
        let mut ranks = Ranks::start(size, &["victim", "starved", &seed.to_string()]);
        let token = ranks.token();
        let in_time = ranks.await_end(0..size, QUICKLY);
        let ends = ranks.end();
        let output: String = ends.iter().map(|end| end.output.as_str()).collect();
        let about = format!("HALOCLINE_SEED={seed}, {size} ranks");
        let all_well = in_time && ends.iter().all(|end| end.status.code() == Some(NAMED.into()));
        assert!(all_well, "{about}, in time: {in_time}\n{output}");
        nothing_is_left(&token, &about);
    }
}

#[test]
fn stopped_with_a_deadline() {
    play("stopped", seed(), Signal::STOP, Duration::ZERO);
}
