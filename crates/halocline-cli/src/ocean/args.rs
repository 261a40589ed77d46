//! What `halocline run ocean` can be told.

use super::mesh::MOST_REFINEMENTS;
use std::path::PathBuf;

/// Carry the temperature of a global ocean by its currents, over several ranks
///
/// Advection and diffusion of the real temperature by the real velocities of a FESOM ocean model, on its
/// triangles and 47 layers. Fields on nodes and on triangles are exchanged every step. The result is
/// compared with a run on one rank and must be equal to the last bit; heat must be conserved. The last
/// line on standard output is a JSON object with the figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OceanArgs {
    /// Number of ranks [default: 4, or those of the job under `halocline launch` or `mpirun`]
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,
    /// What ranks are: processes of this machine (shm), threads of this process, or processes that `mpirun`
    /// has started (mpi); auto takes processes, under `mpirun` its own
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(super) transport: Transport,
    /// Whether MPI ranks of one machine share memory, or send each other messages, too
    #[arg(long, value_enum, value_name = "on|off")]
    pub(super) node_aware: Option<Switch>,
    /// Time steps
    #[arg(long, value_name = "S", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: u32,
    /// Split every triangle into four this many times
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(MOST_REFINEMENTS)))]
    pub(super) refine: u32,
    /// Who gets which nodes: by METIS, or the model's own partition from its file
    #[arg(long, value_enum, default_value_t = Partitioner::Metis)]
    pub(super) partition: Partitioner,
    /// Where to draw the maps (PNG)
    #[arg(long, value_name = "FILE.png", default_value = "ocean.png")]
    pub(super) plot: PathBuf,
    /// Draw nothing
    #[arg(long, conflicts_with = "plot")]
    pub(super) no_plot: bool,
    /// Read mesh and state from this directory instead of those within this program
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
}

/// What ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Transport {
    /// Processes.
    Auto,
    /// Threads of one process.
    Thread,
    /// Processes with shared memory.
    Shm,
    /// Processes that an MPI launcher has started.
    Mpi,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// Who gets which nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Partitioner {
    /// METIS, on the mesh that is computed on.
    Metis,
    /// The file of the mesh, made for 8 ranks; neighbouring parts are put together for fewer.
    File,
}
