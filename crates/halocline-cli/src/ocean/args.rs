//! Arguments of `halocline run ocean`.

use crate::device::Kind;
use crate::ranks::RanksArgs;
use crate::trace::TraceArgs;
use std::path::PathBuf;

/// Transport the temperature of a global ocean by its currents, over several ranks
///
/// The model computes advection and diffusion of the temperature with the velocities of a FESOM ocean model, on its triangles and 47
/// layers. Every step exchanges fields on nodes and on triangles. The result must equal that of a run on one rank to the last bit, and heat
/// must be conserved. The last line on standard output is a JSON object with the figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OceanArgs {
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Where fields are and computations run: on the CPU, or on GPUs (rank r uses GPU r modulo their number)
    #[arg(long, value_enum, default_value_t = Kind::Cpu)]
    pub(super) device: Kind,
    /// Time steps
    #[arg(long, value_name = "S", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: u32,
    /// Read mesh and state from this directory instead of the built-in data
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// File for the maps (PNG)
    #[arg(long, value_name = "FILE.png", default_value = "ocean.png")]
    pub(super) plot: PathBuf,
    /// Draw no maps
    #[arg(long, conflicts_with = "plot")]
    pub(super) no_plot: bool,
    /// Write the temperature after the last step as a NumPy array, one row of layers for each node
    #[arg(long, value_name = "FILE.npy")]
    pub(super) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}
