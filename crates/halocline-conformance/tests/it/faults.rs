//! Ranks that abort, stop for a while or run out of a resource, and foreign processes that connect to their sockets. `tools/kill-storm`
//! kills ranks. A failure prints its seed; `HALOCLINE_SEED` sets it.

use halocline_conformance::processes::{End, Ranks};
use halocline_conformance::random_kills::left_of;
use halocline_conformance::victim::{HERE, LATE, NAMED, RECLAIMED, victim_of};
use halocline_device::Variable;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, kill_process};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

const RANK: &str = env!("CARGO_BIN_EXE_halocline-conformance");

/// How long ranks may take to end, on a machine that is busy with other tests.
const QUICKLY: Duration = Duration::from_secs(20);

fn seed() -> u64 {
    match Variable::read("HALOCLINE_SEED") {
        Some(variable) => variable.number(0..=u64::MAX).expect("a seed"),
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64),
    }
}

/// A job that plays a scenario.
struct Play {
    ranks: Ranks,
    size: usize,
    victim: usize,
    about: String,
}

impl Play {
    fn start(scenario: &str, seed: u64, size: usize) -> Self {
        let victim = victim_of(seed, size);
        let about = format!("scenario {scenario}, HALOCLINE_SEED={seed}, rank {victim} of {size}");
        Self {
            ranks: Ranks::start(RANK, size, &["victim", scenario, &seed.to_string()]),
            size,
            victim,
            about,
        }
    }

    fn await_victim(&self) {
        assert!(self.ranks.await_line([self.victim], HERE, QUICKLY), "{}: it never was there", self.about);
    }

    fn signal(&self, signal: Signal) {
        let sent = kill_process(self.ranks.pid(self.victim), signal);
        assert!(sent.is_ok(), "{}: {sent:?}", self.about);
    }

    /// All others but the victim name it, and nothing is left. What all have said.
    fn end(mut self, how: &str) -> Vec<End> {
        let in_time = self.ranks.await_end(0..self.size, QUICKLY);
        let token = self.ranks.token();
        let ends = self.ranks.end();
        let output: String = ends.iter().map(|end| end.output.as_str()).collect();
        let about = self.about;
        assert!(in_time, "{about}: some ranks still run\n{output}");
        let names =
            |rank: usize, other: usize| ends[rank].output.contains(&format!("named {other} {how} at "));
        for (rank, End { status, .. }) in ends.iter().enumerate() {
            // If two deadlines pass at once, a rank may name a peer that waits for the victim.
            let between = |&other: &usize| ![rank, self.victim].contains(&other) && names(rank, other);
            let named = names(rank, self.victim)
                || how == "late" && (0..self.size).filter(between).any(|other| names(other, self.victim));
            let clean = status.code() == Some(NAMED.into());
            assert!(
                rank == self.victim || named && clean,
                "{about}: rank {rank} ended with {status}\n{output}"
            );
        }
        assert_eq!(left_of(&token), [""; 0], "{about}");
        ends
    }
}

#[test]
fn a_rank_that_aborts_is_named() {
    let seed = seed();
    for seed in (0..5).map(|turn| seed.wrapping_add(turn)) {
        Play::start("aborts", seed, 2 + seed as usize % 3).end("died");
    }
}

/// With exchanges given to streams, which wait for it.
#[test]
fn a_rank_killed_with_scheduled_exchanges_in_flight_is_named() {
    let seed = seed();
    for seed in (0..12).map(|turn| seed.wrapping_add(turn)) {
        let play = Play::start("scheduled", seed, 2 + seed as usize / 2 % 3);
        play.await_victim();
        std::thread::sleep(Duration::from_micros(seed % 7919));
        play.signal(Signal::KILL);
        let (victim, about) = (play.victim, play.about.clone());
        let ends = play.end("died");
        let mut others = ends.iter().enumerate().filter(|(rank, _)| *rank != victim);
        assert!(others.all(|(_, end)| end.output.contains(RECLAIMED)), "{about}: memory is not given back");
    }
}

/// A rank that maps the victim's memory, or whose memory the victim maps, does not wait for it.
#[test]
fn a_rank_killed_while_its_memory_is_mapped_is_named() {
    let seed = seed();
    for seed in (0..6).map(|turn| seed.wrapping_add(turn)) {
        let play = Play::start("mappings", seed, 2 + seed as usize % 3);
        play.await_victim();
        std::thread::sleep(Duration::from_micros(seed % 7919));
        play.signal(Signal::KILL);
        play.end("died");
    }
}

/// While the rows of rolling windows travel.
#[test]
fn a_rank_killed_while_rows_of_windows_travel_is_named() {
    let seed = seed();
    for seed in (0..8).map(|turn| seed.wrapping_add(turn)) {
        let play = Play::start("rolling", seed, 2 + seed as usize % 4);
        play.await_victim();
        std::thread::sleep(Duration::from_micros(seed % 7919));
        play.signal(Signal::KILL);
        play.end("died");
    }
}

/// Stops the victim, by itself or anywhere in an exchange, until all others have said that it is late.
#[test]
fn a_rank_killed_while_others_exchange_packets_with_it_is_named() {
    let seed = seed();
    let scenarios = ["rounds", "rounds-within", "session", "sparse", "sparse-within"];
    for (turn, scenario) in scenarios.into_iter().cycle().take(15).enumerate() {
        let play = Play::start(scenario, seed.wrapping_add(turn as u64), 2 + turn % 4);
        play.await_victim();
        std::thread::sleep(Duration::from_micros(seed % 2999));
        play.signal(Signal::KILL);
        play.end("died");
    }
}

fn stop_for_a_while(scenario: &str, seed: u64) {
    // Where one is only late, a rank that waits for its neighbours is late, too, and ranks further away may
    // blame that one. With so few ranks all are its neighbours.
    let play = Play::start(scenario, seed, 2 + seed as usize / 2 % 2);
    play.await_victim();
    if scenario == "stopped-anywhere" {
        std::thread::sleep(Duration::from_micros(seed % 7919));
        play.signal(Signal::STOP);
    }
    let others = (0..play.size).filter(|&rank| rank != play.victim);
    let late = play.ranks.await_line(others, LATE, QUICKLY);
    play.signal(Signal::CONT);
    let (victim, about) = (play.victim, play.about.clone());
    let ends = play.end("late");
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    assert!(late && ends.iter().all(|end| end.output.contains(RECLAIMED)), "{about}\n{output}");
    let own = &ends[victim];
    // A rank that is stopped while another of its threads copies may find its own deadline passed.
    let typed = own.output.contains(" late at ") && own.status.code() == Some(NAMED.into());
    assert!(typed, "{about}: the late one ended with {}\n{output}", own.status);
}

/// Until it goes on, the others hold the memory that it may touch; it learns by an error of its own.
#[test]
fn a_rank_stopped_between_exchanges_longer_than_a_deadline() {
    let seed = seed();
    (0..4).for_each(|turn| stop_for_a_while("stopped", seed.wrapping_add(turn)));
}

/// As likely as not in the middle of its copying, which it finishes late, into memory that is still held.
#[test]
fn a_rank_stopped_anywhere_longer_than_a_deadline() {
    let seed = seed();
    (0..6).for_each(|turn| stop_for_a_while("stopped-anywhere", seed.wrapping_add(turn)));
}

/// No rank is killed here: one has no descriptor left, for memory, for its peers' memory or for sockets. All
/// end with an error, none waits.
#[test]
fn starved_of_descriptors() {
    let (seed, mut missing) = (seed(), 0);
    for seed in (0..12).map(|turn| seed.wrapping_add(turn)) {
        let play = Play::start("starved", seed, 2 + (seed / 12 % 3) as usize);
        let (victim, about) = (play.victim, play.about.clone());
        let ends = play.end("starved");
        let said = &ends[victim].output;
        assert_eq!(ends[victim].status.code(), Some(NAMED.into()), "{about}: {said}");
        // Peers that cannot connect to it leave, and it says that.
        let (is_limit, is_named) = (said.contains("open files"), said.contains("`ulimit -n`"));
        assert!(is_limit == is_named && !said.contains("`ulimit -v`"), "{about}: {said}");
        missing += usize::from(said.contains(" is missing: ") && is_named);
    }
    assert!(missing > 0, "HALOCLINE_SEED={seed}: no victim lacked a descriptor of a peer's memory");
}

/// One rank has no address space left for its peers' memory. It says so, and does not blame a limit of open files.
#[test]
fn starved_of_memory() {
    let seed = seed();
    for (seed, size) in [(seed, 2), (seed.wrapping_add(1), 3)] {
        let play = Play::start("starved-of-memory", seed, size);
        let (victim, about) = (play.victim, play.about.clone());
        let ends = play.end("starved");
        let said = &ends[victim].output;
        assert_eq!(ends[victim].status.code(), Some(NAMED.into()), "{about}: {said}");
        let is_true = said.contains("`ulimit -v`") && said.contains("`vm.max_map_count`");
        assert!(is_true && said.contains("memory 2 of 2 in the offer of rank "), "{about}: {said}");
        assert!(!said.contains("open files"), "{about}: {said}");
    }
}

/// How a frame begins, and the tag of the first one of a connection.
const MAGIC: u32 = 0x4c41_4831;
const HELLO: u64 = u64::MAX;

fn frame(len: u64, payload: &[u8]) -> Vec<u8> {
    let words = [HELLO, HELLO, len];
    let header = [MAGIC.to_le_bytes(), 0u32.to_le_bytes()].concat();
    [header, words.iter().flat_map(|word| word.to_le_bytes()).collect(), payload.to_vec()].concat()
}

/// A process of the same user that is no rank is shut out at once, whatever it says and however much it knows,
/// and the ranks do not even notice.
#[test]
fn foreign_connections_are_refused() {
    let seed = seed();
    let play = Play::start("free", seed, 3);
    play.await_victim();
    let token = play.ranks.token();
    let hello = |token: &str| frame(40, &[&1u64.to_le_bytes()[..], token.as_bytes()].concat());
    let words: [(&str, Vec<u8>); 6] = [
        ("says nothing", Vec::new()),
        (
            "says garbage",
            (0..100_000u32).flat_map(|at| (at.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect(),
        ),
        ("stops in the middle", hello(&token)[..20].to_vec()),
        ("does not know the token", hello(&"0".repeat(32))),
        ("knows the token and says that it is rank 1", hello(&token)),
        ("announces more than a memory holds", frame(1 << 50, &[7; 5000])),
    ];
    for rank in 0..play.size {
        let address = SocketAddr::from_abstract_name(format!("halocline-{token}-{rank}")).expect("a name");
        for (what, words) in &words {
            let mut stranger = UnixStream::connect_addr(&address).expect("a rank listens");
            stranger.set_nonblocking(true).expect("a socket");
            // It may be shut out before it has said all.
            let _ = stranger.write_all(words);
            let mut poll = [PollFd::new(&stranger, PollFlags::RDHUP)];
            let limit = Timespec { tv_sec: QUICKLY.as_secs() as i64, tv_nsec: 0 };
            let shut = rustix::event::poll(&mut poll, Some(&limit));
            assert_eq!(shut, Ok(1), "rank {rank} keeps a stranger that {what}");
            let read = stranger.read(&mut [0; 8]).map_err(|error| error.kind());
            let nothing = matches!(read, Ok(0) | Err(std::io::ErrorKind::ConnectionReset));
            assert!(nothing, "rank {rank} answers a stranger that {what}: {read:?}");
        }
    }
    // They exchange undisturbed and still detect a death.
    play.signal(Signal::KILL);
    play.end("died");
}
