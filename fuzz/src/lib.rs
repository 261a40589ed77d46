//! The fuzz targets, each a function of bytes, with seeds (initial inputs).

#[path = "../../crates/halocline-plan/tests/it/patches/agreement.rs"]
mod agreement;
mod bind;
#[allow(dead_code, reason = "the mesh reader uses some of it")]
#[path = "../../crates/halocline-cli/src/geometry.rs"]
mod geometry;
mod icon;
mod mesh;
mod messages;
mod ocean;
mod patches;
#[path = "../../crates/halocline-plan/tests/it/simulated/mod.rs"]
mod simulated;

pub use bind::bind;
pub use halocline::neighbors::fuzz::controls as neighbor_controls;
pub use halocline_cli::fuzz::csv as table_csv;
pub use halocline_comm::mappings::fuzz::messages as mappings;
pub use halocline_comm::mpi::fuzz::{introductions as mpi_introductions, messages as mpi_messages};
pub use halocline_comm::packet::fuzz::messages as packets;
pub use halocline_comm::shm::fuzz::{control as shm_control, frames as shm_frames, ring as shm_ring};
pub use halocline_comm::sparse::fuzz::controls as sparse_controls;
pub use halocline_program::fuzz::{library as program_library, manifest as program_manifest};
pub use halocline_table::fuzz::messages as table_messages;
pub use icon::icon_grid;
pub use mesh::mesh;
pub use messages::{collectives, directory, wire};
pub use patches::patches;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;

/// The variable with the folder into which a target writes its seeds before it runs.
const SEEDS: &str = "HALOCLINE_FUZZ_SEEDS";

/// Writes the seeds of a target into the folder that [`SEEDS`] names.
pub fn seed(target: &str) {
    let Some(folder) = std::env::var_os(SEEDS).map(PathBuf::from) else { return };
    for (number, seed) in seeds_of(target).iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed).expect("the folder is there");
    }
}

fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "icon_grid" => icon::seeds(),
        "mesh" => mesh::seeds(),
        "patches" => patches::seeds(),
        "wire" => messages::wire_seeds(),
        "directory" => messages::directory_seeds(),
        "collectives" => messages::collectives_seeds(),
        "shm_frames" => halocline_comm::shm::fuzz::connections(),
        "shm_ring" => halocline_comm::shm::fuzz::rings(),
        "shm_control" => vec![vec![0; 4096 + 128]],
        "mpi_messages" => halocline_comm::mpi::fuzz::sent(),
        "mpi_introductions" => halocline_comm::mpi::fuzz::introduced(),
        "packets" => halocline_comm::packet::fuzz::sent(),
        "neighbor_controls" => halocline::neighbors::fuzz::sent(),
        "sparse_controls" => halocline_comm::sparse::fuzz::sent(),
        "program_manifest" => halocline_program::fuzz::manifests(),
        "program_library" => halocline_program::fuzz::libraries(),
        "table_csv" => halocline_cli::fuzz::files(),
        "table_messages" => halocline_table::fuzz::sent(),
        "bind" => bind::seeds(),
        "mappings" => halocline_comm::mappings::fuzz::conversations(),
        other => panic!("there is no target {other}"),
    }
}

/// Runs a target; an allocation much larger than the input is a crash.
pub fn guarded(target: fn(&[u8]), bytes: &[u8]) {
    MOST.set((1 << 20) + 256 * bytes.len());
    target(bytes);
    MOST.set(usize::MAX);
}

struct Limited;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: every method calls the system's allocator with the same arguments, or ends the process.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST.get() {
            // The message may allocate.
            MOST.set(usize::MAX);
            eprintln!("an allocation of {} bytes", layout.size());
            std::process::abort();
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and the system's allocator gets the same arguments.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and the system's allocator gets the same arguments.
        unsafe { System.dealloc(base, layout) }
    }
}

#[global_allocator]
static LIMITED: Limited = Limited;
