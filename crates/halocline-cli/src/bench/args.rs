//! Arguments of `halocline bench`.

use crate::device::Kind;
pub(super) use crate::options::{Dtype, Grid, Link, Order, name};
pub(super) use crate::ranks::Transport;
use crate::results::SaveArgs;
use crate::trace::TraceArgs;

/// Benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    Halo(HaloArgs),
    Latency(LatencyArgs),
}

impl Bench {
    /// `--trace`, if the benchmark has it.
    pub(crate) fn trace(&self) -> Option<&TraceArgs> {
        match self {
            Self::Halo(args) => Some(&args.trace),
            Self::Latency(_) => None,
        }
    }
}

/// Time halo exchanges beside a plain copy of the same regions
///
/// Every round measures one block of each: a copying pass (all ranks copy the same regions within their own memory), an empty exchange, and
/// an exchange over each path given by `--link`. Each is timed alone, and together with a read of the halo after the owned cells were
/// rewritten. The second figure is what a model pays. Figures are medians over the rounds. The figure of a round is the median over its
/// iterations of the slowest rank's time. If ranks share cores, it is the time until the last rank has finished. The round trip of a cache
/// line between the cores of ranks 0 and 1 is measured before each block. Exchanges of changing data are verified first.
///
/// With `--device cuda` fields are in GPU memory and exchanges are scheduled on a stream. Figures are then means over iterations in a row
/// without the host waiting (`alone`: medians of single exchanges that the host waits for). They are compared with a device copy of the
/// same number of bytes, a copying pass of the same regions in one launch, and an empty kernel.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HaloArgs {
    /// Owned cells of each rank, in a periodic grid
    #[arg(long, value_name = "NXxNYxNZ", default_value = "64x64x64")]
    pub(super) grid: Grid,
    /// Width of the halo
    #[arg(long, value_name = "W", default_value_t = 1)]
    pub(super) halo: usize,
    /// An unstructured mesh instead of a grid: each rank owns a square of cells with a halo of one cell
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
    /// Where the fields are allocated
    #[arg(long, value_enum, default_value_t = Memory::Shared)]
    pub(super) memory: Memory,
    /// Number of ranks [default: 2, or the size of the job]
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,
    /// How ranks run: processes of this machine (shm), threads of this process, or processes started by `mpirun` (mpi); auto is mpi
    /// under `mpirun` and shm otherwise
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(super) transport: Transport,
    /// Where the fields are: in host memory, or on GPUs (rank r uses GPU r modulo their number)
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    pub(super) device: Kind,
    /// Path of the links; several, separated by commas, are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto")]
    pub(super) link: Vec<Link>,
    /// Also measure the unbound form, which takes the host fields at each call
    #[arg(long)]
    pub(super) unbound: bool,
    /// Also measure, beside each exchange, the reduce of the same fields: the sum of halo cells into their owners, and a pass that
    /// does that within each rank's own memory. All rows then rewrite and read owned cells and halo
    #[arg(long)]
    pub(super) reduce: bool,
    /// Iterations of a block
    #[arg(long, value_name = "I", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) iters: u32,
    /// Rounds; each measures one block of everything
    #[arg(long, value_name = "R", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) save: SaveArgs,
    #[command(flatten)]
    pub(super) trace: TraceArgs,
}

/// Table of latencies over message sizes, for every transport that works here
///
/// Two ranks. For each size it measures the round trip of a message, and an exchange in which both ranks send that many bytes to each
/// other, in steady state. The data stay the same, as in OSU's tables. The round trip of a cache line between the two cores is measured in
/// the same run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LatencyArgs {
    /// Transports, separated by commas [default: shm,thread; under `mpirun` mpi]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) transport: Vec<Transport>,
    /// Largest size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = clap::value_parser!(u64).range(8..=1 << 30))]
    pub(super) max: u64,
    /// Rounds; each measures every size once
    #[arg(long, value_name = "R", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) save: SaveArgs,
}

/// Kinds of unstructured mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MeshKind {
    /// Each rank owns a square of cells on a torus.
    Square,
}

/// Where fields are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Memory {
    /// Shared memory that the library allocates.
    Shared,
    /// Memory that the benchmark allocates itself.
    Foreign,
    /// As `foreign`, but each field starts 9 cache lines further into its page than the field before.
    Staggered,
}
