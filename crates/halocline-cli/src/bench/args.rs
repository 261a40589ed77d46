//! What `halocline bench` can be told.

use crate::device::Kind;
pub(super) use crate::options::{Dtype, Grid, Link, Order, name};
pub(super) use crate::ranks::Transport;
use crate::trace::TraceArgs;
use std::path::PathBuf;

/// Benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    Halo(HaloArgs),
    Latency(LatencyArgs),
}

impl Bench {
    /// Where to trace to, where that is possible.
    pub(crate) fn trace(&self) -> Option<&TraceArgs> {
        match self {
            Self::Halo(args) => Some(&args.trace),
            Self::Latency(_) => None,
        }
    }
}

/// Time halo exchanges beside a plain copy of the same regions
///
/// Every round measures, one after the other: a copying pass (the same regions within each rank's own
/// memory, all ranks at once), an empty exchange, and an exchange by each link asked for. Each is timed
/// alone, and with the reading of the halo after the owned cells were rewritten, which is what a model
/// pays. Figures are medians over the rounds of the medians over the iterations of the slowest rank's
/// time; where ranks share cores, of the time until the last is through. Each block is stamped with the
/// round trip of a cache line between two cores (near: below 250 ns). Before, exchanges of changing data
/// are verified, the whole halo.
///
/// With `--device cuda` fields lie in memory of GPUs and exchanges are scheduled on a stream: the figures are then means over
/// the iterations, one after the other without the host waiting (`alone`: medians of single ones that the host waits for),
/// and what is compared with is a device copy of as many bytes as the halo has. Beside it stand a copying pass of the same
/// regions by one launch, and an empty kernel.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HaloArgs {
    /// Owned cells of each rank; the whole is periodic
    #[arg(long, value_name = "NXxNYxNZ", default_value = "64x64x64")]
    pub(super) grid: Grid,
    /// Width of the halo
    #[arg(long, value_name = "W", default_value_t = 1)]
    pub(super) halo: usize,
    /// Unstructured: squares of cells with a halo one cell wide, instead of a grid
    #[arg(long, value_enum, conflicts_with_all = ["grid", "halo"])]
    pub(super) mesh: Option<MeshKind>,
    /// Cells along an edge of each rank's square of the mesh
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=16384), requires = "mesh")]
    pub(super) cells: u32,
    /// Levels of each cell of the mesh
    #[arg(long, value_name = "L", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536), requires = "mesh")]
    pub(super) levels: u32,
    /// Fields exchanged together
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) fields: u32,
    /// Element type
    #[arg(long, value_enum, default_value_t = Dtype::F64)]
    pub(super) dtype: Dtype,
    /// C order (the last axis, or the level, is contiguous) or Fortran order (the first axis, or the cell)
    #[arg(long, value_enum, default_value_t = Order::C)]
    pub(super) layout: Order,
    /// Memory that ranks share, or memory of the rank's own, as a user's array has it
    #[arg(long, value_enum, default_value_t = Memory::Shared)]
    pub(super) memory: Memory,
    /// Number of ranks [default: 2, or those of the job]
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,
    /// What ranks are: processes of this machine (shm), threads of this process, or processes that `mpirun`
    /// has started (mpi); auto takes processes, under `mpirun` its own
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(super) transport: Transport,
    /// Where fields lie: in memory of the host, or of GPUs, of which rank r takes number r modulo their count
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    pub(super) device: Kind,
    /// How links move their bytes; several, separated by commas, are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto")]
    pub(super) link: Vec<Link>,
    /// The unbound form, too: fields (of the host) given to each exchange, over links of the pattern
    #[arg(long)]
    pub(super) unbound: bool,
    /// Iterations of a block
    #[arg(long, value_name = "I", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) iters: u32,
    /// Rounds: every round measures one block of everything
    #[arg(long, value_name = "R", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    /// Draw the result (.png or .svg; may be given twice)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) trace: TraceArgs,
}

/// Table of latencies over message sizes, for every transport that works here
///
/// Two ranks. For each size: the round trip of a message of the communicator, and an exchange in which
/// both ranks send that many bytes to each other, in steady state; as in other tables of this kind, the
/// data stay the same. Beside them stands the round trip of a cache line between the two cores, measured
/// in the same run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LatencyArgs {
    /// What ranks are; several, separated by commas [default: shm,thread, under `mpirun` mpi]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) transport: Vec<Transport>,
    /// Largest size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = clap::value_parser!(u64).range(8..=1 << 30))]
    pub(super) max: u64,
    /// Rounds: every round measures every size once
    #[arg(long, value_name = "R", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    /// Draw the result (.png or .svg; may be given twice)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Vec<PathBuf>,
}

/// Kinds of unstructured mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MeshKind {
    /// Each rank owns a square of cells on a torus.
    Square,
}

/// Where fields lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Memory {
    /// Memory that the ranks of a machine share.
    Shared,
    /// Memory of the program's own allocator.
    Foreign,
    /// The same; each field begins 9 cache lines further into a page than the field before.
    Staggered,
}
