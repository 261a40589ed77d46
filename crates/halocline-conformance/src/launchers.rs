//! The MPI launchers of this machine, each with every library that works with it.
//!
//! Launchers are `mpirun` in `PATH` and those named in `HALOCLINE_TEST_MPIEXEC`, separated by colons.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// A launcher with a library that goes with it.
#[derive(Debug, Clone)]
pub struct Mpi {
    /// The command.
    pub launcher: PathBuf,
    /// `None`: the one that ranks find by themselves.
    pub library: Option<PathBuf>,
    /// Whether it is Open MPI's.
    pub is_open_mpi: bool,
    /// Whether its options let the other ranks live when one has died.
    pub lets_live: bool,
}

impl Mpi {
    /// All launchers of this machine.
    pub fn all() -> Vec<Self> {
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
            all.extend(libraries.map(|library| Self {
                launcher: launcher.clone(),
                library,
                is_open_mpi,
                lets_live: false,
            }));
        }
        if all.is_empty() {
            eprintln!("SKIPPED: no mpirun in the path and none in HALOCLINE_TEST_MPIEXEC");
        }
        all
    }

    /// Its name, for tests.
    pub fn short_name(&self) -> &'static str {
        match (self.is_open_mpi, &self.library) {
            (true, _) => "openmpi",
            (false, None) => "mpich-abi",
            (false, Some(_)) => "mpich",
        }
    }

    /// Its name, for tables.
    pub fn name(&self) -> String {
        let library = self.library();
        let library =
            Path::new(&library).file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        format!("{} ({library})", if self.is_open_mpi { "Open MPI" } else { "MPICH" })
    }

    /// Runs a program as so many ranks; under MPICH one job at a time: eight ranks of it use 42 MB of shared memory, and a
    /// container has 64 by default.
    pub fn run(
        &self,
        ranks: usize,
        environment: &[(&str, &str)],
        program: &Path,
        arguments: &[&str],
    ) -> Output {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = (!self.is_open_mpi).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let before = shared_files();
        let output = self.command(ranks, environment, program, arguments).output();
        sweep(&before);
        output.expect("the launcher starts")
    }

    /// The command that runs a program as so many ranks.
    pub fn command(
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
        if self.lets_live {
            command.arg(if self.is_open_mpi { "--enable-recovery" } else { "-disable-auto-cleanup" });
        }
        command.envs(self.library.iter().map(|path| ("HALOCLINE_MPI", path)));
        command.envs(environment.iter().copied()).arg(program).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// The library that ranks use.
    pub fn library(&self) -> String {
        let beside =
            self.launcher.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/libmpi_abi.so.1"));
        let own = if self.is_open_mpi { None } else { beside };
        let library = self.library.clone().or(own.filter(|path| path.exists()));
        library.map_or_else(|| "libmpi.so.40".to_owned(), |path| path.display().to_string())
    }
}

/// Removes the files of MPICH that are new in shared memory and that no process has mapped; how many. It leaves one behind
/// for each job whose ranks are killed, and has no memory for the next job once they fill what a container has of it.
pub(crate) fn sweep(before: &BTreeSet<String>) -> usize {
    let new: Vec<String> =
        shared_files().difference(before).filter(|name| name.starts_with("mpich_shm_")).cloned().collect();
    if new.is_empty() {
        return 0;
    }
    // A process that is just gone has mapped nothing.
    let maps =
        entries("/proc").into_iter().filter_map(|process| std::fs::read_to_string(process.join("maps")).ok());
    let maps: String = maps.collect();
    // Another job may have removed it already.
    let removed = |name: &&String| {
        !maps.contains(*name) && std::fs::remove_file(Path::new("/dev/shm").join(name)).is_ok()
    };
    new.iter().filter(removed).count()
}

/// The files in shared memory.
pub(crate) fn shared_files() -> BTreeSet<String> {
    entries("/dev/shm")
        .iter()
        .filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()))
        .collect()
}

pub(crate) fn entries(folder: &str) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The output of a program.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
