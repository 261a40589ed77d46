//! Arguments of `halocline explain`.

use super::patches::{PatchLayout, Values};
use crate::options::{Division, Dtype, Grid, Link, Order};
use crate::ranks::{RanksArgs, Transport};
use std::path::PathBuf;
use std::str::FromStr;

/// Show what an exchange moves between ranks
///
/// For a grid it plans one rank without starting any, even one of a million. With up to 4096 ranks it also adds up the bytes
/// between all ranks. With `--transport` it starts the ranks, binds fields and shows the path of each link. `explain ocean` does
/// that for the mesh of `run ocean`.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    pub(super) case: Option<Case>,
    #[command(flatten)]
    pub(super) grid: GridArgs,
}

/// Cases that are not a regular grid.
#[derive(Debug, Clone, clap::Subcommand)]
pub(super) enum Case {
    Ocean(OceanArgs),
}

/// A grid as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GridName {
    Regular(Grid),
    Patches(PatchLayout),
}

impl FromStr for GridName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with(|first: char| first.is_ascii_alphabetic()) {
            true => text.parse().map(Self::Patches),
            false => text.parse().map(Self::Regular),
        }
    }
}

/// A grid and its exchanged fields.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct GridArgs {
    /// Cells of a regular grid, one to four axes, such as 512x512x64; or a grid of patches: cubed:N (tiles of N x N cells), llc:N,
    /// latlon:ROWSxCOLUMNS, tripolar:ROWSxCOLUMNS, or tripolar:ROWSxCOLUMNS:cell (folded about cell centres instead of corners)
    #[arg(long, value_name = "GRID", required = true)]
    pub(super) grid: Option<GridName>,
    /// Number of ranks
    #[arg(long, value_name = "N", required = true, allow_negative_numbers = true)]
    pub(super) ranks: Option<usize>,
    /// The rank whose plan is shown
    #[arg(
        long,
        value_name = "R",
        default_value_t = 0,
        conflicts_with = "transport",
        allow_negative_numbers = true
    )]
    pub(super) rank: usize,
    /// Width of the halo
    #[arg(long, value_name = "W", default_value_t = 1, allow_negative_numbers = true)]
    pub(super) halo: usize,
    #[command(flatten)]
    pub(super) division: Division,
    /// What the fields hold on a grid of patches
    #[arg(long, value_enum, default_value_t = Values::Cells)]
    pub(super) quantity: Values,
    /// Draw the patches of a grid and the ranks that own them to this file (.png or .svg)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Draw the patches of a small grid with their halos, and the cell that each halo cell copies, to this file (.png or .svg)
    #[arg(long, value_name = "FILE")]
    pub(super) plot_halos: Option<PathBuf>,
    /// The component of a staggered vector that `--plot-halos` draws: 0 or 1 [default: 0]
    #[arg(long, value_name = "C", requires = "plot_halos", allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(..=1))]
    pub(super) component: Option<u8>,
    /// Fill halo cells behind corners at which three patches meet: through the side of this axis, 0 or 1, then into the third patch
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(..=1))]
    pub(super) corners: Option<u8>,
    /// Fields exchanged together
    #[arg(long, value_name = "F", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) fields: u32,
    /// Element type
    #[arg(long, value_enum, default_value_t = Dtype::F64)]
    pub(super) dtype: Dtype,
    /// C order (the last axis is contiguous) or Fortran order (the first)
    #[arg(long, value_enum, default_value_t = Order::C)]
    pub(super) layout: Order,
    /// Start the ranks, bind the fields, and show the paths of their links
    #[arg(long, value_enum)]
    pub(super) transport: Option<Transport>,
    /// Path of the links
    #[arg(long, value_enum, default_value_t = Link::Auto, requires = "transport")]
    pub(super) link: Link,
}

/// The ocean of `halocline run ocean`: its exchanges, their links and bytes
#[derive(Debug, Clone, clap::Args)]
pub(super) struct OceanArgs {
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Read mesh and state from this directory instead of the built-in data
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
}
