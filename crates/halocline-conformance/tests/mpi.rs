//! The suite over MPI: every launcher that is here, every library that goes with it, ranks that share
//! memory, ranks that share none, and both at once.
//!
//! Launchers are `mpirun` in the path and those named in `HALOCLINE_TEST_MPIEXEC`, separated by colons.
//! Where there is none, the tests say so and pass. `HALOCLINE_CASES` names a part of the suite,
//! `HALOCLINE_TEST_RANKS` the numbers of ranks, separated by commas.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
        let mut command = Command::new(&self.launcher);
        command.args(["-n", &ranks.to_string()]);
        if self.is_open_mpi {
            command.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
            // It refuses to run as root otherwise, as containers do.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.envs(self.library.iter().map(|path| ("HALOCLINE_MPI", path)));
        command.envs(environment.iter().copied()).arg(program).args(arguments);
        command.stdin(Stdio::null()).output().expect("the launcher starts")
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
