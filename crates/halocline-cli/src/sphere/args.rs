//! Arguments of `halocline run sphere`.

use super::choice::{Days, GridChoice};
use crate::ranks::RanksArgs;
use crate::trace::TraceArgs;
use std::path::PathBuf;

/// Carry a bell around the Earth, or spread heat across the fold of a tripolar grid, over several ranks
///
/// On the cubed sphere and on the icosahedral grid, a rotation as of a solid body carries a cosine bell around the Earth in 12 days. On the
/// tripolar grid, heat spreads across the fold. Mass must be conserved, and the result must equal that of a run without exchanges to the
/// last bit. The last line on standard output is a JSON object with the figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SphereArgs {
    /// The grid: cubed:N has six tiles of N x N cells, icosahedral:L has 20 x 4^L triangles, icosahedral:FILE is a global grid file of
    /// ICON (NetCDF), tripolar:ROWSxCOLUMNS is folded in the north, tripolar:FILE is that of a NetCDF file of NEMO
    #[arg(long, value_name = "GRID", default_value = "cubed:48")]
    pub(super) grid: GridChoice,
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Simulated time, days
    #[arg(long, value_name = "D", default_value = "12", allow_negative_numbers = true)]
    pub(super) days: Days,
    /// Angle between the path of the bell and the equator, degrees [default: 45]
    #[arg(long, value_name = "DEGREES", allow_negative_numbers = true)]
    pub(super) angle: Option<f64>,
    /// File for the globes (PNG)
    #[arg(long, value_name = "FILE.png", default_value = "sphere.png")]
    pub(super) plot: PathBuf,
    /// Draw no globes
    #[arg(long, conflicts_with = "plot")]
    pub(super) no_plot: bool,
    /// Do not compare with a run without exchanges
    #[arg(long)]
    pub(super) no_check: bool,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}
