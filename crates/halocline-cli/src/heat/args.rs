//! What `halocline run heat` can be told.

use crate::device::Kind;
use crate::options::{Grid, Link, Periodic, Switch};
use crate::ranks::RanksArgs;
use crate::trace::TraceArgs;

/// Let heat spread in a box, over several ranks, and compute while halos are exchanged
///
/// Each step is a 7-point stencil on a regular 3-D grid, on each field. A rank begins the exchange, computes
/// the cells that need no halo, waits, and computes the rest. With a halo of W cells it exchanges every W
/// steps only, and computes cells of the halo again meanwhile. Beyond borders that are not periodic the
/// temperature is fixed. The result is compared with a run on one rank and must be equal to the last bit.
/// The last line on standard output is a JSON object with the figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HeatArgs {
    /// Cells of the whole grid
    #[arg(long, value_name = "NXxNYxNZ", default_value = "128x128x128")]
    pub(super) grid: Grid,
    /// Periodic axes: none, all, names such as x,y, or a digit an axis, such as 110
    #[arg(long, value_name = "AXES", default_value = "none")]
    pub(super) periodic: Periodic,
    /// Width of the halo: steps from one exchange to the next
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) halo: u32,
    /// Blocks along each axis instead of those that cut the fewest faces
    #[arg(long, value_name = "AxBxC")]
    pub(super) decomposition: Option<Grid>,
    /// Fields, each with its own temperature, exchanged together
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) fields: u32,
    /// Element type
    #[arg(long, value_enum, default_value_t = Dtype::F64)]
    pub(super) dtype: Dtype,
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Where fields lie and who computes: the CPU, or GPUs, of which rank r takes number r modulo their count
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    pub(super) device: Kind,
    /// Time steps
    #[arg(long, value_name = "S", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: u32,
    /// Whether to compute the interior while the halos are exchanged, or after
    #[arg(long, value_enum, value_name = "on|off", default_value_t = Switch::On)]
    pub(super) overlap: Switch,
    /// How links move their bytes
    #[arg(long, value_enum, default_value_t = Link::Auto)]
    pub(super) link: Link,
    /// Rounds in which exchange, interior and step are timed alone after the run; 0: none
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
