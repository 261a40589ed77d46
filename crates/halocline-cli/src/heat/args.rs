//! Arguments of `halocline run heat`.

use crate::device::Kind;
use crate::options::{Division, Grid, Link, Switch};
use crate::ranks::RanksArgs;
use crate::trace::TraceArgs;

/// Solve the heat equation in a box, over several ranks, and overlap exchanges with computation
///
/// Each step applies a 7-point stencil to each field on a regular 3-D grid. A rank starts the exchange, computes the cells that need no
/// halo, waits, and computes the rest. With a halo of W cells it exchanges every W steps, and computes halo cells itself in between.
/// Beyond borders that are not periodic the temperature is fixed. The result must equal that of a run on one rank to the last bit. The last
/// line on standard output is a JSON object with the figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HeatArgs {
    /// Cells of the whole grid
    #[arg(long, value_name = "NXxNYxNZ", default_value = "128x128x128")]
    pub(super) grid: Grid,
    /// Width of the halo: steps from one exchange to the next
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) halo: u32,
    #[command(flatten)]
    pub(super) division: Division,
    /// Fields, each with its own temperature, exchanged together
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) fields: u32,
    /// Element type
    #[arg(long, value_enum, default_value_t = Dtype::F64)]
    pub(super) dtype: Dtype,
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Where fields are and computations run: on the CPU, or on GPUs (rank r uses GPU r modulo their number)
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    pub(super) device: Kind,
    /// Time steps
    #[arg(long, value_name = "S", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: u32,
    /// Capture two rounds into a CUDA graph, which the host launches again and again. Needs `--device cuda`
    #[arg(long)]
    pub(super) graph: bool,
    /// Whether to compute the interior while the halos are exchanged, or afterwards
    #[arg(long, value_enum, value_name = "on|off", default_value_t = Switch::On)]
    pub(super) overlap: Switch,
    /// Path of the links
    #[arg(long, value_enum, default_value_t = Link::Auto)]
    pub(super) link: Link,
    /// Rounds after the run that time exchange, interior and step separately; 0 for none
    #[arg(long, value_name = "R", default_value_t = 7, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(super) rounds: u32,
    /// Do not compare with a run on one rank
    #[arg(long)]
    pub(super) no_check: bool,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

/// Element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Dtype {
    F64,
    F32,
}

impl Dtype {
    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
        }
    }
}
