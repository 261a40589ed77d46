//! Compilers, and the shared library that programs are linked with.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// The folder of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The archive that cargo built last.
pub(crate) fn archive() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libhalocline_capi") && name.ends_with(".a")
    };
    let files = [&*deps, deps.parent().unwrap()].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let archives = files.map(|file| file.unwrap().path()).filter(is_archive);
    archives.max_by_key(|path| modified(path)).expect("cargo builds the archive with this test")
}

/// When a file was modified, or the file of a folder that was modified last.
fn modified(path: &Path) -> u128 {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| modified(&entry.unwrap().path()));
        return entries.max().unwrap_or_default();
    }
    fs::metadata(path).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// The folder with `libhalocline.so`, linked once for an archive.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let archive = archive();
        let tool = here().join("../../tools/capi-library");
        let folder = made_once("library-", &[&archive], |new| {
            succeeds(Command::new(tool).arg(&archive).arg(new));
        });
        remove_old(&folder, |path| is_named(path, OWN));
        folder
    })
}

/// The folder that the first test makes of these files and folders. Tests of other processes wait for it, then use it.
pub(crate) fn made_once(prefix: &str, files: &[&Path], make: impl FnOnce(&Path)) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let newest = files.iter().map(|file| modified(file)).max().unwrap();
    let folder = all.join(format!("{prefix}{newest}"));
    let lock = File::create(all.join("made-once.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // Not this one: another process may use it already.
    remove_old(all, |path| path != folder && is_named(path, prefix));
    if !folder.exists() {
        let new = all.join("made-once.new");
        // A test that failed may have left it.
        let _ = fs::remove_dir_all(&new);
        fs::create_dir(&new).unwrap();
        make(&new);
        fs::rename(&new, &folder).unwrap();
    }
    folder
}

fn is_named(path: &Path, begin: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
}

/// Removes those files and folders that no test has changed for an hour.
fn remove_old(folder: &Path, is_meant: impl Fn(&Path) -> bool) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let age = entry.metadata().and_then(|of| of.modified()).ok().and_then(|time| time.elapsed().ok());
        let is_old = age.is_some_and(|age| age > Duration::from_secs(3600));
        let path = entry.path();
        if is_old && is_meant(&path) {
            // The test of another process may be removing it, too.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// The names of files of one test begin so.
const OWN: &str = "own-";

/// A path for a file of this test alone, in the folder of the library.
pub(crate) fn own_file(name: &str) -> PathBuf {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    library().join(format!("{OWN}{}-{number}-{name}", std::process::id()))
}

/// Runs a command that has to succeed, and returns what it prints.
pub(crate) fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ends with {status}\n{out}\n{err}");
    out.into_owned()
}

/// A compiler and the language that it compiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) command: &'static str,
    pub(crate) standard: &'static str,
    pub(crate) language: &'static str,
}

pub(crate) const C: Compiler = Compiler { command: "cc", standard: "-std=c11", language: "c" };
pub(crate) const CPP: Compiler = Compiler { command: "c++", standard: "-std=c++17", language: "c++" };
pub(crate) const CLANG: Compiler = Compiler { command: "clang", standard: "-std=c11", language: "c" };
pub(crate) const CLANGPP: Compiler = Compiler { command: "clang++", standard: "-std=c++17", language: "c++" };
pub(crate) const MPICC: Compiler = Compiler { command: "mpicc", ..C };
pub(crate) const MPICXX: Compiler = Compiler { command: "mpicxx", ..CPP };

impl Compiler {
    /// Whether it is installed; says aloud if it is not.
    pub(crate) fn is_here(self) -> bool {
        let found =
            Command::new(self.command).arg("--version").output().is_ok_and(|output| output.status.success());
        if !found {
            eprintln!("== SKIPPED: no {} here", self.command);
        }
        found
    }

    /// A command that compiles with all warnings as errors.
    pub(crate) fn compile(self) -> Command {
        let mut command = Command::new(self.command);
        command.args([
            self.standard,
            "-D_GNU_SOURCE",
            "-O0",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-x",
            self.language,
        ]);
        command.arg("-I").arg(here().join("include"));
        command
    }

    /// Compiles a program of `tests/c` or `tests/cpp` and links it with the shared library.
    pub(crate) fn program(self, name: &str) -> PathBuf {
        self.program_with(name, &[])
    }

    /// The same with more flags.
    pub(crate) fn program_with(self, name: &str, flags: &[&str]) -> PathBuf {
        let library = library();
        let program = own_file(name);
        let mut command = self.compile();
        let (folder, extension) = if self.language == "c" { ("tests/c", "c") } else { ("tests/cpp", "cpp") };
        command.arg(here().join(folder).join(name).with_extension(extension));
        command
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(library)
            .args(["-lhalocline", "-lpthread", "-ldl"])
            .args(flags);
        command.arg(format!("-Wl,-rpath,{}", library.display()));
        succeeds(&mut command);
        program
    }
}
