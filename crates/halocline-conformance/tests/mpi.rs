//! The suite over MPI: every launcher that is here, every library that goes with it, ranks that share
//! memory, ranks that share none, and both at once.
//!
//! Launchers are `mpirun` in the path and those named in `HALOCLINE_TEST_MPIEXEC`, separated by colons.
//! Where there is none, the tests say so and pass. `HALOCLINE_CASES` names a part of the suite,
//! `HALOCLINE_TEST_RANKS` the numbers of ranks, separated by commas.

use halocline_conformance::victim::{HERE, victim_of};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const RANK: &str = env!("CARGO_BIN_EXE_halocline-conformance");

/// A launcher with a library that goes with it.
#[derive(Debug)]
struct Mpi {
    launcher: PathBuf,
    /// `None`: the one that ranks find by themselves.
    library: Option<PathBuf>,
    is_open_mpi: bool,
}

impl Mpi {
    /// All that are here.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        let named = std::env::var_os("HALOCLINE_TEST_MPIEXEC").unwrap_or_default();
        let named: Vec<PathBuf> =
            std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        for launcher in [PathBuf::from("mpirun")].into_iter().chain(named) {
            let Ok(version) = Command::new(&launcher).arg("--version").stdin(Stdio::null()).output() else {
                continue;
            };
            let is_open_mpi = String::from_utf8_lossy(&version.stdout).contains("Open MPI");
            // MPICH comes with two interfaces; ranks find the standard one by themselves.
            let old = launcher.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/libmpi.so.12"));
            let old = old.filter(|library| !is_open_mpi && library.exists());
            let libraries = [None].into_iter().chain(old.map(Some));
            all.extend(libraries.map(|library| Self { launcher: launcher.clone(), library, is_open_mpi }));
        }
        if all.is_empty() {
            println!("SKIPPED: no mpirun in the path and none in HALOCLINE_TEST_MPIEXEC");
        }
        all
    }

    /// Runs a program as so many ranks.
    fn run(&self, ranks: usize, environment: &[(&str, &str)], program: &Path, arguments: &[&str]) -> Output {
        self.command(ranks, environment, program, arguments).output().expect("the launcher starts")
    }

    fn command(
        &self,
        ranks: usize,
        environment: &[(&str, &str)],
        program: &Path,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new(&self.launcher);
        command.args(["-n", &ranks.to_string()]);
        if self.is_open_mpi {
            command.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
            // It refuses to run as root otherwise, as containers do.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.envs(self.library.iter().map(|path| ("HALOCLINE_MPI", path)));
        command.envs(environment.iter().copied()).arg(program).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// The library that ranks use.
    fn library(&self) -> String {
        let beside =
            self.launcher.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/libmpi_abi.so.1"));
        let own = if self.is_open_mpi { None } else { beside };
        let library = self.library.clone().or(own.filter(|path| path.exists()));
        library.map_or_else(|| "libmpi.so.40".to_owned(), |path| path.display().to_string())
    }

    /// Runs ranks of this crate's program that must succeed.
    fn must(&self, ranks: usize, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(ranks, environment, Path::new(RANK), arguments);
        let said = said(&output);
        assert!(output.status.success(), "{self:?}, {ranks} ranks, {environment:?}, {arguments:?}:\n{said}");
        said
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The numbers of ranks to try: few for each library, so that all of them together do not take long.
fn numbers(usual: &[usize]) -> Vec<usize> {
    match std::env::var("HALOCLINE_TEST_RANKS") {
        Ok(text) => text.split(',').map(|number| number.parse().expect("numbers of ranks")).collect(),
        Err(_) => usual.to_vec(),
    }
}

fn suite(usual: &[usize], environment: &[(&str, &str)]) {
    let filter = std::env::var("HALOCLINE_CASES").unwrap_or_default();
    for mpi in Mpi::all() {
        for &ranks in &numbers(usual) {
            mpi.must(ranks, environment, &["suite", &filter]);
        }
    }
}

#[test]
fn ranks_that_share_memory() {
    suite(&[2, 5], &[]);
}

#[test]
fn ranks_that_share_none() {
    suite(&[1, 3], &[("HALOCLINE_NODE_AWARE", "off")]);
}

#[test]
fn pairs_that_share_memory() {
    suite(&[3], &[("HALOCLINE_NODE_RANKS", "2")]);
}

#[test]
fn a_program_gives_its_own_communicator() {
    for mpi in Mpi::all() {
        for node_aware in ["on", "off"] {
            mpi.must(2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", "given", &mpi.library()]);
        }
    }
}

#[test]
fn one_thread_calls_mpi_where_no_more_may() {
    for mpi in Mpi::all() {
        mpi.must(3, &[("HALOCLINE_NODE_AWARE", "off")], &["host", "funneled", &mpi.library()]);
        mpi.must(3, &[("HALOCLINE_NODE_RANKS", "2")], &["host", "funneled", &mpi.library()]);
    }
}

#[test]
fn a_program_that_finalizes_mpi_first_is_told_so() {
    for mpi in Mpi::all() {
        for node_aware in ["on", "off"] {
            mpi.must(2, &[("HALOCLINE_NODE_AWARE", node_aware)], &["host", "finalized", &mpi.library()]);
        }
        mpi.must(1, &[], &["host", "uninitialized", &mpi.library()]);
    }
}

#[test]
fn the_wrong_library_and_two_libraries_are_told_by_name() {
    let all = Mpi::all();
    let open = all.iter().find(|mpi| mpi.is_open_mpi);
    let Some((open, mpich)) = open.zip(all.iter().find(|mpi| !mpi.is_open_mpi)) else {
        return println!("SKIPPED: this needs Open MPI and MPICH");
    };
    let both = format!("{}:{}", open.library(), mpich.library());
    let output = Command::new(RANK).args(["host", "two", &both]).stdin(Stdio::null()).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));

    let library = open.library();
    let output = mpich.run(2, &[("HALOCLINE_MPI", &library)], Path::new(RANK), &["suite", "none"]);
    let said = said(&output);
    assert!(!output.status.success() && said.contains("2 ranks were started, but libmpi.so.40"), "{said}");
}

/// How long a job may take to end once a rank was killed, on a machine that is busy with other tests.
const QUICKLY: Duration = Duration::from_secs(30);

/// The mark in the environment of the processes of one job.
const MARK: &str = "HALOCLINE_TEST_MARK";

#[test]
fn a_rank_that_is_killed_ends_the_job_and_nothing_stays() {
    let turns = std::env::var("HALOCLINE_KILLS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(2);
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
    for (mpi, turn) in Mpi::all().iter().flat_map(|mpi| (0..turns).map(move |turn| (mpi, turn))) {
        let scenario = ["free", "bind", "mid", "pattern"][turn as usize % 4];
        let node = [("HALOCLINE_NODE_AWARE", "off"), ("HALOCLINE_NODE_RANKS", "2")][turn as usize % 2];
        play(mpi, scenario, seed.wrapping_add(turn), node);
    }
}

/// Kills one of three ranks; survivors that are let live long enough name it.
fn play(mpi: &Mpi, scenario: &str, seed: u64, node: (&str, &str)) {
    const RANKS: usize = 3;
    let victim = victim_of(seed, RANKS);
    let about = format!("{mpi:?}, {scenario}, {node:?}, seed {seed}, rank {victim}");
    let mark = format!("{}-{seed}", std::process::id());
    let arguments = ["victim", scenario, &seed.to_string()];
    let mut command = mpi.command(RANKS, &[node, (MARK, &mark)], Path::new(RANK), &arguments);
    let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher starts");
    let lines = lines_of(&mut job);
    let mut said = Vec::new();
    let until = Instant::now() + QUICKLY;
    while !said.iter().any(|line: &String| line.contains(HERE)) {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => said.push(line),
            Err(_) => panic!("{about}: the victim never was there\n{}", said.join("\n")),
        }
    }
    let pid = marked(&mark).into_iter().find(|(_, rank)| *rank == Some(victim)).map(|(pid, _)| pid);
    let killed = kill_process(pid.expect("the victim runs"), Signal::KILL);
    let start = Instant::now();
    while job.try_wait().expect("it can be waited for").is_none() && start.elapsed() < QUICKLY {
        // A child's end wakes nobody here.
        std::thread::sleep(Duration::from_millis(5));
    }
    let (ended, left) = (job.try_wait().expect("it can be waited for"), gone_or_left(&mark, start));
    // A test that fails leaves no process behind; one that has ended cannot be killed.
    let _ = job.kill();
    left.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
    said.extend(lines);
    let output = said.join("\n");
    assert!(killed.is_ok() && ended.is_some(), "{about}: the job did not end\n{output}");
    assert!(ended.is_some_and(|status| !status.success()), "{about}: {ended:?}\n{output}");
    assert!(left.is_empty(), "{about}: processes {left:?} are left\n{output}");
    for named in said.iter().filter_map(|line| line.split_once("named ")).map(|(_, who)| who) {
        assert!(named.starts_with(&format!("{victim} died: ")), "{about}: another one is named\n{output}");
    }
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let ours = files.filter(|file| file.file_name().to_string_lossy().contains("halocline"));
    assert_eq!(ours.count(), 0, "{about}: files are left in /dev/shm");
}

/// The lines of a job's output, as they come.
fn lines_of(job: &mut Child) -> mpsc::Receiver<String> {
    let (out, err) = (job.stdout.take().expect("piped"), job.stderr.take().expect("piped"));
    let (sender, lines) = mpsc::channel();
    let other = sender.clone();
    // Nobody listens any more once the test has failed.
    std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line))
    });
    std::thread::spawn(move || {
        BufReader::new(err).lines().map_while(Result::ok).for_each(|line| _ = other.send(line))
    });
    lines
}

/// The processes of a job, with their ranks.
fn marked(mark: &str) -> Vec<(Pid, Option<usize>)> {
    let wanted = format!("{MARK}={mark}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let look = |process: std::fs::DirEntry| {
        let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        let mut variables =
            environment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
        variables.clone().find(|variable| *variable == wanted)?;
        let rank = variables.find_map(|variable| {
            let number =
                variable.strip_prefix("OMPI_COMM_WORLD_RANK=").or(variable.strip_prefix("PMI_RANK="));
            number?.parse().ok()
        });
        Some((pid, rank))
    };
    processes.filter_map(look).collect()
}

/// Waits for the processes of a job to go; those that do not in time.
fn gone_or_left(mark: &str, since: Instant) -> Vec<Pid> {
    loop {
        let left: Vec<Pid> = marked(mark).into_iter().map(|(pid, _)| pid).collect();
        if left.is_empty() || since.elapsed() > QUICKLY {
            return left;
        }
        // Processes that are no children of ours wake nobody here.
        std::thread::sleep(Duration::from_millis(5));
    }
}
