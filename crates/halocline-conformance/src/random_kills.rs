//! Kills ranks at random points of many jobs. Every survivor must end soon, with an error that names the dead
//! rank, and leave nothing behind.
//!
//! `tools/kill-storm` runs it. A seed determines everything random; it is printed.

use crate::host::FINALIZED;
use crate::launchers::{Mpi, entries, shared_files, sweep};
use crate::numbers::Numbers;
use crate::processes::Ranks;
use crate::victim::{HERE, NAMED, SOCKET, TROUBLE, now, victim_of};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit of the survivors on a busy machine. More is a hang.
const QUICKLY: Duration = Duration::from_secs(20);

/// Where the victim dies: its scenario, a description, and the longest delay of the kill after the victim has reported that it is
/// there. In `life` it does not report: the delay counts from the start of its process.
type Scenario = (&'static str, &'static str, Duration);

const HALOS: [Scenario; 7] = [
    ("life", "anywhere, from its start", Duration::from_millis(150)),
    ("pattern", "in collective calls", Duration::from_millis(10)),
    ("bind", "while binding", Duration::from_millis(60)),
    ("free", "while exchanging", Duration::from_millis(3)),
    ("mappings", "while others have mapped its memory", Duration::from_millis(10)),
    ("mid", "in mid-exchange", Duration::ZERO),
    ("between", "between two exchanges", Duration::ZERO),
];

const PACKETS: [Scenario; 8] = [
    ("rounds", "in rounds between neighbours", Duration::from_millis(3)),
    ("rounds-before", "before it starts a round", Duration::ZERO),
    ("rounds-within", "in a round, its packets sent", Duration::ZERO),
    ("session", "in a session of rounds", Duration::from_millis(3)),
    ("sparse", "in sparse all-to-alls", Duration::from_millis(3)),
    ("sparse-before", "before it starts a sparse all-to-all", Duration::ZERO),
    ("sparse-within", "in a sparse all-to-all, before finish", Duration::ZERO),
    ("rolling", "while rows of windows travel", Duration::from_millis(5)),
];

/// The scenarios of halo exchanges or of packets.
fn scenarios(what: &str) -> &'static [Scenario] {
    match what {
        "packets" => &PACKETS,
        _ => &HALOS,
    }
}

/// Makes `kills` kills over `shm` or `mpi` in exchanges of `halos` or `packets`, determined by `seed`. Fails if any outcome is wrong.
pub fn main(transport: &str, what: &str, kills: &str, seed: Option<&str>) -> ExitCode {
    let drawn = || std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
    let (Ok(kills), Ok(seed)) = (kills.parse::<u64>(), seed.map_or_else(|| Ok(drawn()), str::parse)) else {
        eprintln!("kills and seed are whole numbers");
        return ExitCode::from(2);
    };
    let program = std::env::current_exe().expect("a program knows its path");
    let before = shared_files();
    let mut tally = Tally::default();
    let launchers = if transport == "mpi" { Mpi::all() } else { Vec::new() };
    if transport == "mpi" && launchers.is_empty() {
        return ExitCode::SUCCESS;
    }
    for turn in 0..kills {
        let seed = seed.wrapping_add(turn);
        let strike = match transport {
            "mpi" => {
                let launcher = &launchers[turn as usize % launchers.len()];
                under_mpirun(&program, launcher, scenarios(what), turn, seed)
            }
            _ => over_shm(&program, scenarios(what), seed),
        };
        strike.wrongs.iter().for_each(|wrong| println!("WRONG: {wrong}, seed {seed}\n{}", strike.output));
        tally.add(strike);
        if std::io::stderr().is_terminal() {
            // Progress is optional.
            let _ = write!(std::io::stderr(), "\r{} of {kills} ", turn + 1);
        }
    }
    println!("kill storm of {what} over {transport}, seed {seed}");
    let new: Vec<String> = shared_files().difference(&before).cloned().collect();
    print!("{}", tally.table(&new));
    ExitCode::from(u8::from(!tally.is_good()))
}

/// The outcome of one kill.
#[derive(Default)]
struct Strike {
    /// What it is counted under.
    kind: String,
    /// Time from the kill to each survivor's error.
    errors: Vec<Duration>,
    /// Survivors that the launcher ended before they could report.
    ended: usize,
    /// Time from the kill to the end of the last survivor.
    end: Duration,
    hung: usize,
    finalized: usize,
    /// Files and sockets of Halocline, and processes, that remain.
    left: Vec<String>,
    /// Files of the MPI library that remain.
    swept: usize,
    wrongs: Vec<String>,
    output: String,
}

impl Strike {
    /// Reads the output of the ranks: which rank each error names, and when.
    fn read(&mut self, lines: &[String], victim: usize, killed: Duration) {
        for line in lines {
            self.finalized += usize::from(line.contains(FINALIZED));
            if line.contains(TROUBLE) {
                self.wrongs.push(line.clone());
            }
            let Some((_, said)) = line.split_once("named ") else { continue };
            let (about, _) = said.split_once(": ").unwrap_or((said, ""));
            let when = about.strip_prefix(&format!("{victim} died at "));
            match when.and_then(|nanoseconds| nanoseconds.parse().ok()) {
                Some(nanoseconds) => {
                    self.errors.push(Duration::from_nanos(nanoseconds).saturating_sub(killed));
                }
                None => self.wrongs.push(format!("rank {victim} was killed, {line:?} was said")),
            }
        }
        if self.finalized > 0 {
            self.wrongs.push("MPI_Finalize was called after a failure".to_owned());
        }
        self.output = lines.join("\n");
    }
}

/// Kills one of a few ranks of a job in a scenario and waits for the others to end.
fn over_shm(program: &Path, scenarios: &[Scenario], seed: u64) -> Strike {
    let mut numbers = Numbers::new(seed ^ 2);
    let size = 2 + numbers.below(4);
    let (scenario, kind, later) = scenarios[numbers.below(scenarios.len())];
    let victim = victim_of(seed, size);
    let mut strike = Strike { kind: kind.to_owned(), ..Strike::default() };
    let mut ranks = Ranks::start(program, size, &["victim", scenario, &seed.to_string()]);
    let token = ranks.token();
    if scenario != "life" && !ranks.await_line([victim], HERE, QUICKLY) {
        strike
            .wrongs
            .push(format!("{scenario}: the victim, rank {victim} of {size}, did not reach its place"));
    }
    std::thread::sleep(later * numbers.below(1000) as u32 / 1000);
    let killed = now();
    let kill = kill_process(ranks.pid(victim), Signal::KILL);
    let in_time = ranks.await_end(0..size, QUICKLY);
    strike.end = now() - killed;
    let ends = ranks.end();
    let lines: Vec<String> =
        ends.iter().flat_map(|end| end.output.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    strike.read(&lines, victim, killed);
    if let Err(errno) = kill {
        strike.wrongs.push(format!("{scenario}: rank {victim} of {size} cannot be killed: {errno}"));
    }
    if !in_time {
        strike.hung = 1;
        strike.wrongs.push(format!("{scenario}: of {size} ranks some still run after {QUICKLY:?}"));
    }
    for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        if end.status.code() != Some(NAMED.into()) {
            strike.wrongs.push(format!("{scenario}: rank {rank} of {size} ended with {}", end.status));
        }
    }
    strike.left = left_of(&token);
    strike
}

/// Kills one of three ranks under an MPI launcher. Every other time the launcher lets the others live.
fn under_mpirun(program: &Path, mpi: &Mpi, scenarios: &[Scenario], turn: u64, seed: u64) -> Strike {
    const RANKS: usize = 3;
    let before = shared_files();
    let mut numbers = Numbers::new(seed ^ 2);
    let lets_live = numbers.one_in(2);
    let mpi = Mpi { lets_live, ..mpi.clone() };
    // Ranks connected by MPI alone do not detect a death, and a wait inside MPI cannot be ended. So survivors share
    // memory with the victim, which has joined.
    let nodes = if lets_live { 1 } else { 3 };
    let scenarios: Vec<&Scenario> =
        scenarios.iter().filter(|(scenario, ..)| !lets_live || *scenario != "life").collect();
    let &(scenario, _, later) = scenarios[numbers.below(scenarios.len())];
    // Ranks connected by MPI alone map no memory.
    let nodes = if scenario == "mappings" { 1 } else { nodes };
    let node =
        [("HALOCLINE_NODE_AWARE", "on"), ("HALOCLINE_NODE_AWARE", "off"), ("HALOCLINE_NODE_RANKS", "2")]
            [numbers.below(nodes)];
    let victim = victim_of(seed, RANKS);
    let kind = format!("{}, {}", mpi.name(), if lets_live { "others let live" } else { "others ended" });
    let mut strike = Strike { kind, ..Strike::default() };
    let about = format!("{mpi:?}, {scenario}, {node:?}, rank {victim}");
    let mark = format!("{}-{turn}", std::process::id());
    let arguments = ["victim", scenario, &seed.to_string()];
    let mut command = mpi.command(RANKS, &[node, (MARK, &mark)], program, &arguments);
    let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
    let lines = lines_of(&mut job);
    let mut said: Vec<String> = Vec::new();
    let until = Instant::now() + QUICKLY;
    while scenario != "life" && !said.iter().any(|line| line.contains(HERE)) {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => said.push(line),
            Err(_) => {
                strike.wrongs.push(format!("{about}: the victim did not reach its place"));
                break;
            }
        }
    }
    let process = loop {
        let found = marked(&mark).into_iter().find(|(_, rank)| *rank == Some(victim));
        match found {
            Some((process, _)) => break Some(process),
            None if Instant::now() > until => break None,
            // The launcher has not started it yet; nothing signals the start.
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    std::thread::sleep(later * 4 * numbers.below(1000) as u32 / 1000);
    let killed = now();
    if let Err(errno) =
        process.map_or(Err(rustix::io::Errno::SRCH), |process| kill_process(process, Signal::KILL))
    {
        strike.wrongs.push(format!("{about}: the victim cannot be killed: {errno}"));
    }
    let status = end_of(&mut job, Instant::now() + QUICKLY);
    strike.end = now() - killed;
    let left = gone_or_left(&mark, Instant::now() + QUICKLY);
    // The launcher waits for its ranks; it has ended, or is ended now.
    let _ = job.kill();
    let _ = job.wait();
    strike.left = left.iter().map(|process| format!("process {process}")).collect();
    left.iter().for_each(|process| _ = kill_process(*process, Signal::KILL));
    said.extend(lines);
    let known = strike.wrongs.len();
    strike.read(&said, victim, killed);
    for wrong in &mut strike.wrongs[known..] {
        *wrong = format!("{about}: {wrong}");
    }
    if !lets_live {
        // A rank connected by MPI alone does not detect the death, but may see a peer leave because of it, or MPI fail, which names no
        // rank.
        let by_mpi = node.1 != "on";
        let is_known = |wrong: &String| {
            wrong.contains("has left the communicator") || by_mpi && wrong.contains("failed with code")
        };
        strike.wrongs.retain(|wrong| !(wrong.contains(TROUBLE) && is_known(wrong)));
    }
    let open = std::fs::read_to_string("/proc/net/unix").expect("a list of sockets");
    let sockets = said.iter().filter_map(|line| Some(line.split_once(SOCKET)?.1));
    strike.left.extend(sockets.filter(|name| open.contains(*name)).map(|name| format!("socket {name}")));
    strike.swept = sweep(&before);
    strike.ended = (RANKS - 1).saturating_sub(strike.errors.len());
    match status {
        None => {
            strike.hung = 1;
            strike.wrongs.push(format!("{about}: the job is still there after {QUICKLY:?}"));
        }
        Some(true) if !lets_live => {
            strike.wrongs.push(format!("{about}: the job ended as if nothing had happened"))
        }
        Some(_) => {}
    }
    // MPICH's launcher often ends by itself when it is to let the others live, and they with it.
    if lets_live && mpi.is_open_mpi && strike.ended > 0 {
        strike.wrongs.push(format!("{about}: {} survivors have said nothing", strike.ended));
    }
    strike
}

/// The mark in the environment of the processes of one job.
const MARK: &str = "HALOCLINE_TEST_MARK";

/// The lines of a job's output, as they come.
fn lines_of(job: &mut Child) -> mpsc::Receiver<String> {
    let (out, err) = (job.stdout.take().expect("piped"), job.stderr.take().expect("piped"));
    let (sender, lines) = mpsc::channel();
    let other = sender.clone();
    // The receiver is dropped once the kill has been evaluated.
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
    });
    std::thread::spawn(move || {
        BufReader::new(err).lines().map_while(Result::ok).for_each(|line| _ = other.send(line));
    });
    lines
}

/// Whether a job ended well; `None` if it has not ended in time.
fn end_of(job: &mut Child, until: Instant) -> Option<bool> {
    loop {
        if let Some(status) = job.try_wait().expect("it can be waited for") {
            return Some(status.success());
        }
        if Instant::now() > until {
            return None;
        }
        // Nothing signals the end of a child here.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes of a job, with their ranks.
fn marked(mark: &str) -> Vec<(Pid, Option<usize>)> {
    let wanted = format!("{MARK}={mark}");
    let look = |process: PathBuf| {
        let pid = Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?)?;
        let environment = std::fs::read(process.join("environ")).ok()?;
        let variables =
            || environment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
        variables().find(|variable| *variable == wanted)?;
        let rank = variables().find_map(|variable| {
            let number =
                variable.strip_prefix("OMPI_COMM_WORLD_RANK=").or(variable.strip_prefix("PMI_RANK="));
            number?.parse().ok()
        });
        Some((pid, rank))
    };
    entries("/proc").into_iter().filter_map(look).collect()
}

/// Waits for the processes of a job to go; those that do not in time.
fn gone_or_left(mark: &str, until: Instant) -> Vec<Pid> {
    loop {
        let left: Vec<Pid> = marked(mark).into_iter().map(|(pid, _)| pid).collect();
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        // Nothing signals the end of processes that are not children.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is left of a job that is over: processes, sockets, files in shared memory.
pub fn left_of(token: &str) -> Vec<String> {
    let mut left: Vec<String> = shared_files()
        .into_iter()
        .filter(|name| name.contains(token) || name.contains("halocline"))
        .collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("a list of sockets");
    left.extend(
        sockets.lines().filter(|socket| socket.contains(token)).map(|socket| format!("socket {socket}")),
    );
    for process in entries("/proc") {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        if environment.windows(token.len()).any(|window| window == token.as_bytes()) {
            left.push(format!("process {}", process.display()));
        }
    }
    left
}

/// All kills so far.
#[derive(Default)]
struct Tally {
    strikes: Vec<Strike>,
}

impl Tally {
    fn add(&mut self, strike: Strike) {
        self.strikes.push(strike);
    }

    fn is_good(&self) -> bool {
        self.strikes.iter().all(|strike| strike.wrongs.is_empty() && strike.left.is_empty())
    }

    /// The table, with the files in shared memory that were not there before.
    fn table(&self, new: &[String]) -> String {
        let mut kinds: BTreeMap<&str, Vec<&Strike>> = BTreeMap::new();
        self.strikes.iter().for_each(|strike| kinds.entry(&strike.kind).or_default().push(strike));
        let all: Vec<&Strike> = self.strikes.iter().collect();
        let mut rows = vec![
            ["killed", "kills", "survivors", "typed error", "median ms", "worst ms", "all gone ms"]
                .map(str::to_owned),
        ];
        rows.extend(kinds.iter().map(|(kind, strikes)| row(kind, strikes)));
        rows.push(row("all", &all));
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let line = |row: &[String; 7]| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, &width))| match at {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut text = line(&rows[0]) + &format!("| {} |\n", rule.join(" | "));
        text.extend(rows[1..].iter().map(line));
        let sum = |of: fn(&Strike) -> usize| self.strikes.iter().map(of).sum::<usize>();
        let (ours, theirs): (Vec<&String>, Vec<&String>) =
            new.iter().partition(|name| name.contains("halocline"));
        let figures = [
            ("survivors that the launcher ended", sum(|strike| strike.ended)),
            ("hangs", sum(|strike| strike.hung)),
            ("MPI_Finalize after a failure", sum(|strike| strike.finalized)),
            (
                "processes, sockets and files of ours that were left",
                sum(|strike| strike.left.len()) + ours.len(),
            ),
            ("other wrongs", self.strikes.iter().filter(|strike| !strike.wrongs.is_empty()).count()),
            ("files that MPICH left in /dev/shm, removed", sum(|strike| strike.swept)),
            ("other files in /dev/shm that are new, but not ours", theirs.len()),
        ];
        text.push('\n');
        text.extend(figures.iter().map(|(what, count)| format!("{what}: {count}\n")));
        text.extend(
            self.strikes.iter().flat_map(|strike| &strike.left).map(|left| format!("left: {left}\n")),
        );
        text.extend(theirs.iter().map(|name| format!("not ours: {name}\n")));
        // Once more, without what was said, where it is seen.
        let wrongs = self.strikes.iter().flat_map(|strike| &strike.wrongs);
        text.extend(wrongs.map(|wrong| format!("WRONG: {wrong}\n")));
        text
    }
}

fn row(kind: &str, strikes: &[&Strike]) -> [String; 7] {
    let mut errors: Vec<Duration> = strikes.iter().flat_map(|strike| &strike.errors).copied().collect();
    errors.sort_unstable();
    let ended: usize = strikes.iter().map(|strike| strike.ended).sum();
    let ms = |time: Option<&Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", 1e3 * time.as_secs_f64()))
    };
    [
        kind.to_owned(),
        strikes.len().to_string(),
        (errors.len() + ended).to_string(),
        errors.len().to_string(),
        ms(errors.get(errors.len() / 2)),
        ms(errors.last()),
        ms(strikes.iter().map(|strike| &strike.end).max()),
    ]
}
