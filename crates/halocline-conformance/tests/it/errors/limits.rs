//! A system that has no memory left. Each test lowers the limits of a process of its own.

use halocline::comm::shm::{Job, JobError};
use halocline::{Graph, Partition, PartitionError};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;

/// A process that runs one ignored test.
pub(super) fn process_of(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]);
    command
}

/// Runs it.
pub(super) fn passes(command: &mut Command) {
    let done = command.output().expect("this program starts");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{done:?}");
}

/// Allows so many bytes more than this process has, by a line of its status.
fn allow(resource: Resource, line: &str, bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let used = status.lines().find_map(|text| text.strip_prefix(line)?.strip_suffix("kB")).unwrap();
    let current = Some(1024 * used.trim().parse::<u64>().unwrap() + bytes);
    setrlimit(resource, Rlimit { current, ..getrlimit(resource) }).unwrap();
}

#[test]
fn a_job_whose_control_segment_cannot_be_mapped_is_refused() {
    passes(&mut process_of("errors::limits::a_job_in_little_memory"));
}

#[test]
#[ignore = "the test above runs it, in a process that may not have much memory"]
fn a_job_in_little_memory() {
    // The segment of so many ranks has half a megabyte.
    allow(Resource::As, "VmSize:", 1 << 18);
    let error = Job::create(Job::MAX_RANKS).err();
    assert!(matches!(&error, Some(JobError::Map(why)) if why.contains("map a peer's memfd")), "{error:?}");
}

#[test]
fn a_job_without_descriptors_names_the_call_that_failed() {
    passes(&mut process_of("errors::limits::a_job_without_a_descriptor"));
}

#[test]
#[ignore = "the test above runs it, in a process that may not open more files"]
fn a_job_without_a_descriptor() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..files }).unwrap();
    let error = Job::create(1).err();
    let what = "create the control memfd";
    assert_eq!(error, Some(JobError::System { what, errno: Errno::MFILE }));
}

#[test]
fn metis_without_memory_is_an_error() {
    passes(&mut process_of("errors::limits::metis_in_little_memory"));
}

#[test]
#[ignore = "the test above runs it, in a process that may not have much memory"]
fn metis_in_little_memory() {
    // A ring: both neighbours of each cell. Its copies for METIS take 16 bytes a cell, the work of METIS a multiple.
    let cells = 1u32 << 17;
    let offsets: Vec<usize> = (0..=cells as usize).map(|cell| 2 * cell).collect();
    let neighbours =
        (0..cells).flat_map(|cell| [(cell + cells - 1) % cells, (cell + 1) % cells]).collect::<Vec<_>>();
    let ring = Graph::new(&offsets, &neighbours).unwrap();
    allow(Resource::Data, "VmData:", 20 * u64::from(cells));
    let partition = Partition::metis(&ring, 2);
    assert!(matches!(partition, Err(PartitionError::Metis(_))), "{partition:?}");
}
