//! The cache of programs, with builds by the C compiler in processes that the tests start, stop and kill.

mod cold;
mod contents;
mod disks;
mod each_call;
mod random_kills;
mod ranks;
mod slots;

use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, CacheError, Entry, Key};
use halocline_program::{Program, ProgramError};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a build makes: a function that returns this number.
pub fn key(number: u32) -> Key {
    Key::of("value").part("source", source(number)).part("compiler", "cc").finish()
}

fn source(number: u32) -> String {
    format!("int value(void) {{ return {number}; }}\n")
}

const MANIFEST: &str = r#"{"format": 1, "program": "value", "interface": "c", "returns": "status", "arguments": [], "parameters": []}"#;

/// Compiles the program of a number.
pub fn compile(folder: &BuildFolder, number: u32) -> Result<Built, String> {
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).map_err(|error| error.to_string());
    write("value.c", &source(number))?;
    write("libvalue.so.json", MANIFEST)?;
    let mut command = folder.command("cc");
    let output = command.args(["-shared", "-fPIC", "value.c", "-o", "libvalue.so"]).output();
    let output = output.expect("these tests need a C compiler, `cc`");
    match output.status.success() {
        true => Ok(Built::new("libvalue.so").with("libvalue.so.json")),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Loads the library of an entry, and calls it.
pub fn value(entry: &Entry) -> Result<i32, ProgramError> {
    // SAFETY: the manifest was written with the source.
    let program = unsafe { Program::load(entry.library()) }?;
    match program.call(&[]) {
        Ok(()) => Ok(0),
        Err(ProgramError::Status { status, .. }) => Ok(status),
        Err(error) => Err(error),
    }
}

/// A process that gets the program of a number, and builds it if need be.
pub struct Getter {
    command: Command,
    said: PathBuf,
}

/// The variables that tell [`child`] what to do.
const FOLDER: &str = "HALOCLINE_TEST_FOLDER";
const NUMBER: &str = "HALOCLINE_TEST_NUMBER";
const JOBS: &str = "HALOCLINE_TEST_JOBS";
const TIMEOUT: &str = "HALOCLINE_TEST_TIMEOUT";
/// Each build adds its process to this file.
const LOG: &str = "HALOCLINE_TEST_LOG";
/// A build reads this pipe to its end first.
const HOLD: &str = "HALOCLINE_TEST_HOLD";
/// Where the process writes why it failed.
const SAID: &str = "HALOCLINE_TEST_SAID";
const FILE_LIMIT: &str = "HALOCLINE_TEST_FILE_LIMIT";

impl Getter {
    pub fn new(scratch: &Path, cache: &Path, number: u32) -> Self {
        static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let started = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let said = scratch.join(format!("said-{}-{started}", std::process::id()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cache::child", "--ignored", "--quiet"]).stdout(Stdio::null());
        command.env_remove("MAKEFLAGS").env(FOLDER, cache).env(NUMBER, number.to_string());
        command.env(LOG, scratch.join("log")).env(SAID, &said);
        Self { command, said }
    }

    pub fn with(mut self, variable: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(variable, value);
        self
    }

    pub fn start(mut self) -> Started {
        Started { child: self.command.stderr(Stdio::piped()).spawn().unwrap(), said: self.said }
    }
}

pub struct Started {
    pub child: Child,
    said: PathBuf,
}

impl Started {
    /// Waits for its end; the error of the cache, if it got none.
    pub fn end(self) -> Result<(), String> {
        let output = self.child.wait_with_output().unwrap();
        match fs::read_to_string(&self.said) {
            Ok(said) => Err(said),
            Err(_) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Ok(())
            }
        }
    }
}

/// The processes that have built, in order.
pub fn builders(scratch: &Path) -> Vec<u32> {
    let log = fs::read_to_string(scratch.join("log")).unwrap_or_default();
    log.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn child() {
    let variable = |name: &str| std::env::var(name).ok();
    let number = variable(NUMBER).expect("another test runs this one").parse().unwrap();
    if let Some(limit) = variable(FILE_LIMIT) {
        let limit = rustix::process::Rlimit { current: limit.parse().ok(), maximum: None };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        // Writes beyond the limit are errors then, not signals.
        // SAFETY: the signal is ignored from now on, and no handler of the process is called for it.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
    let mut options = BuildOptions::default();
    if let Some(jobs) = variable(JOBS) {
        options = options.jobs(jobs.parse().unwrap());
    }
    if let Some(timeout) = variable(TIMEOUT) {
        options = options.timeout(Duration::from_millis(timeout.parse().unwrap()));
    }
    let cache = Cache::at(variable(FOLDER).unwrap());
    let got = cache.get_or_build(&key(number), &options, |folder| {
        log_build();
        compile(folder, number)
    });
    match got {
        Ok(entry) => assert_eq!(value(&entry).unwrap(), number as i32),
        Err(error) => fs::write(variable(SAID).unwrap(), error.to_string()).unwrap(),
    }
}

/// Notes a build of this process, and waits if it is to be held.
pub fn log_build() {
    let log = std::env::var(LOG).unwrap();
    let mut log = fs::File::options().append(true).create(true).open(log).unwrap();
    log.write_all(format!("{}\n", std::process::id()).as_bytes()).unwrap();
    if let Ok(pipe) = std::env::var(HOLD) {
        fs::read(pipe).unwrap();
    }
}

/// A pipe that holds builds until it is released.
pub struct Hold {
    pub path: PathBuf,
}

impl Hold {
    pub fn new(scratch: &Path) -> Self {
        let path = scratch.join("hold");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        Self { path }
    }

    /// Returns once a build reads the pipe. The build goes on when the file is dropped.
    pub fn reached(&self) -> fs::File {
        fs::File::options().write(true).open(&self.path).unwrap()
    }
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// What a folder of the cache contains.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Gets a program in this process.
pub fn get(cache: &Cache, number: u32) -> Result<Entry, CacheError> {
    cache.get_or_build(&key(number), &BuildOptions::default(), |folder| compile(folder, number))
}
