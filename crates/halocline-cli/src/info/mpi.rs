//! The MPI libraries of this machine, each tried in a process of its own: a process cannot load two, and a library may end or
//! block its process.

use halocline_comm::mpi::{self, MpiError, Trial};
use halocline_device::Variable;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a library may take to initialise MPI for one rank.
const WITHIN: Duration = Duration::from_secs(20);

/// A library that was found.
#[derive(Debug)]
pub(super) struct Library {
    path: PathBuf,
    /// Version, interface, thread level and CUDA support, or why it is unusable.
    outcome: Result<Value, String>,
}

/// The libraries here.
#[derive(Debug)]
pub(super) struct Libraries {
    pub(super) found: Vec<Library>,
    /// Names that were searched for and not found.
    absent: Vec<PathBuf>,
}

/// All libraries that a program could load. Blocks until each was tried.
pub(super) fn gather() -> Libraries {
    let mut libraries = Libraries { found: Vec::new(), absent: Vec::new() };
    let Ok(program) = crate::start_again() else { return libraries };
    let mut seen = BTreeSet::new();
    let chosen = Variable::read("HALOCLINE_MPI").map(Variable::path);
    let mut stubs = Vec::new();
    for candidate in mpi::candidates() {
        let known = candidate.components().count() > 1;
        if known && !seen.insert(real(&candidate)) {
            continue;
        }
        let (path, outcome) = match attempt(&program, &candidate) {
            Ok(report) => (report["path"].as_str().map_or(candidate.clone(), PathBuf::from), Ok(report)),
            Err(why) if chosen.as_ref() != Some(&candidate) && is_absent(&why) => {
                if !libraries.absent.contains(&candidate) {
                    libraries.absent.push(candidate);
                }
                continue;
            }
            Err(why) => (candidate.clone(), Err(why)),
        };
        if known || seen.insert(real(&path)) {
            let is_stub =
                chosen.as_ref() != Some(&candidate) && outcome.as_ref().is_err_and(|why| is_stub(why));
            let list = if is_stub { &mut stubs } else { &mut libraries.found };
            list.push(Library { path, outcome });
        }
    }
    if !libraries.work() {
        libraries.found.append(&mut stubs);
    }
    libraries
}

/// Whether the file itself is not there. Of a file that it depends on, the loader says the name, too.
fn is_absent(why: &str) -> bool {
    why.starts_with("it cannot be loaded: cannot open shared object file: No such file")
}

/// Whether the file is something for the linker, which stands beside the library itself.
fn is_stub(why: &str) -> bool {
    ["file too short", "invalid ELF header"].iter().any(|what| why.ends_with(what))
}

impl Libraries {
    /// Whether one of them works.
    pub(super) fn work(&self) -> bool {
        self.found.iter().any(Library::works)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "works": self.work(),
            "libraries": self.found.iter().map(Library::to_json).collect::<Vec<_>>(),
            "absent": self.absent,
        })
    }

    /// A line of its own for each library, after one for all.
    pub(super) fn to_text(&self) -> Vec<String> {
        let first = match (self.work(), self.found.is_empty()) {
            (true, _) => "works under an MPI launcher, with the library that goes with it:".to_owned(),
            (false, true) => {
                let tried: Vec<String> = self.absent.iter().map(|path| path.display().to_string()).collect();
                format!(
                    "no library found; tried {}; install one, or give its path in HALOCLINE_MPI",
                    tried.join(", ")
                )
            }
            (false, false) => "does not work here:".to_owned(),
        };
        std::iter::once(first).chain(self.found.iter().map(|one| format!("  {}", one.to_text()))).collect()
    }
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

impl Library {
    /// Whether MPI can be initialised by it.
    fn works(&self) -> bool {
        self.outcome.is_ok()
    }

    fn to_json(&self) -> Value {
        match &self.outcome {
            Ok(report) => {
                let mut object = report.clone();
                object["works"] = json!(true);
                object
            }
            Err(why) => json!({"path": self.path, "works": false, "why": why}),
        }
    }

    fn to_text(&self) -> String {
        let path = self.path.display();
        match &self.outcome {
            Ok(report) => {
                let text = |key: &str| report[key].as_str().unwrap_or("unknown");
                let cuda = match report["cuda_aware"].as_bool() {
                    Some(true) => "CUDA-aware",
                    Some(false) => "not CUDA-aware",
                    None => "does not say whether it is CUDA-aware",
                };
                let (version, interface, level) = (text("version"), text("interface"), text("thread_level"));
                format!("{path}: {version}; {interface} interface, {level}, {cuda}")
            }
            Err(why) => format!("{path}: unusable: {why}"),
        }
    }
}

/// Tries a library in a child process.
fn attempt(program: &[OsString], library: &Path) -> Result<Value, String> {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(["info", "--try-mpi"]).arg(library);
    // The child is a single rank, even if an MPI launcher has started this process.
    let launchers =
        ["PMI", "HYD", "PRTE", "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_MCA_orte", "OMPI_MCA_ess"];
    for (key, _) in std::env::vars_os() {
        if launchers.iter().any(|prefix| key.to_string_lossy().starts_with(prefix)) {
            command.env_remove(key);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("it cannot be tried: {error}"))?;
    let text = read_all(&mut child);
    let status = match &text {
        // Fails only if it has just ended by itself.
        None => child.kill().and_then(|()| child.wait()),
        Some(_) => child.wait(),
    };
    let text = text.ok_or_else(|| format!("it did not initialise MPI within {WITHIN:?}"))?;
    // The library may have written lines of its own before.
    let report = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    match (report, status) {
        (Some(report), _) if report["error"].is_null() => Ok(report),
        (Some(report), _) => Err(report["error"].as_str().unwrap_or("it does not say why").to_owned()),
        (None, Ok(status)) => Err(format!("the process that tried it ended with {status}")),
        (None, Err(error)) => Err(error.to_string()),
    }
}

/// The output of a child process; `None` if it does not end in time.
fn read_all(child: &mut Child) -> Option<String> {
    let mut stdout = child.stdout.take()?;
    let (done, text) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // After a failure the text read so far is used; the receiver may have timed out.
        let _ = stdout.read_to_string(&mut text);
        let _ = done.send(text);
    });
    text.recv_timeout(WITHIN).ok()
}

/// The child's part: tries one library and says what it is, in one line.
pub(crate) fn try_out(library: &Path) -> Value {
    match mpi::try_out(library) {
        Ok(Trial { path, kind, version, level, cuda }) => json!({
            "path": path,
            "version": version,
            "interface": kind.to_string(),
            "thread_level": level.to_string(),
            "cuda_aware": cuda,
        }),
        Err(MpiError::Chosen { why, .. }) => json!({"error": format!("it {why}")}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_described_or_the_reason_why_it_is_unusable() {
        let report = json!({"path": "/opt/libmpi.so.12", "version": "MPICH 9", "interface": "MPICH",
            "thread_level": "MPI_THREAD_MULTIPLE", "cuda_aware": true});
        let good = Library { path: "/opt/libmpi.so.12".into(), outcome: Ok(report) };
        let text = good.to_text();
        let all = ["/opt/libmpi.so.12", "MPICH 9", "MPICH interface", "MPI_THREAD_MULTIPLE", "CUDA-aware"];
        assert!(all.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(good.to_json()["works"], json!(true));
        let bad = Library { path: "/opt/other".into(), outcome: Err("it has no MPI_Improbe".into()) };
        assert!(bad.to_text().contains("unusable: it has no MPI_Improbe") && !bad.works());
        assert_eq!(
            bad.to_json(),
            json!({"path": "/opt/other", "works": false, "why": "it has no MPI_Improbe"})
        );
    }

    #[test]
    fn only_a_file_that_is_not_there_is_left_out() {
        let why = |library: &Path| try_out(library)["error"].as_str().unwrap_or_default().to_owned();
        assert!(
            is_absent(&why(Path::new("libno-such-mpi.so.7"))),
            "{}",
            why(Path::new("libno-such-mpi.so.7"))
        );
        assert!(!is_absent(
            "it cannot be loaded: libhwloc.so.15: cannot open shared object file: No such file or directory"
        ));
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("short.so", "INPUT"), ("script.so", &*" ".repeat(5000))] {
            let stub = folder.path().join(name);
            std::fs::write(&stub, text).unwrap();
            assert!(is_stub(&why(&stub)) && !is_absent(&why(&stub)), "{}", why(&stub));
        }
        let none =
            Libraries { found: Vec::new(), absent: vec!["libmpi.so.12".into(), "libmpi.so.40".into()] };
        let text = none.to_text().concat();
        assert!(text.starts_with("no library found; tried libmpi.so.12, libmpi.so.40; "), "{text}");
    }

    #[test]
    fn a_file_that_is_no_mpi_library_is_told_so() {
        assert_eq!(try_out(Path::new("libc.so.6")), json!({"error": "it has no MPI_Init_thread"}));
        let report = try_out(Path::new("/nowhere/libmpi.so.12"));
        assert!(
            report["error"].as_str().unwrap_or_default().starts_with("it cannot be loaded: "),
            "{report}"
        );
    }
}
