//! Why a run could not be made. (A run whose check fails is no such error: it ends with a report.)

use crate::device::NoGpu;
use crate::ranks::{RankError, RanksError, Shortage};
use crate::trace::TraceError;
use halocline::{CommError, PatternError};

/// A heat run that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeatError {
    /// Not a grid of three axes.
    #[error("`--grid {grid}` has {axes} axes; heat spreads in three, such as 128x128x128")]
    Axes {
        /// The grid.
        grid: String,
        /// Its axes.
        axes: usize,
    },
    /// Axes that the grid does not have.
    #[error("{0}")]
    Periodic(String),
    /// The grid cannot be decomposed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The fields do not fit the memory.
    #[error(
        "{fields} fields of {cells} cells, twice each, with their halos take {shortage}; use a smaller grid"
    )]
    Memory {
        /// Number of fields.
        fields: u32,
        /// Cells of the grid.
        cells: usize,
        /// What they need and what there is.
        shortage: Shortage,
    },
    /// A field does not fit the memory of the host, through which it comes to a GPU.
    #[error("a field of {cells} cells, on its way to the GPUs, takes {shortage}; use a smaller grid")]
    Staging {
        /// Cells of the grid.
        cells: usize,
        /// What it needs and what there is.
        shortage: Shortage,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The ranks could not be brought up.
    #[error(transparent)]
    BringUp(#[from] RanksError),
    /// There is no GPU to be used.
    #[error(transparent)]
    Device(#[from] NoGpu),
    /// An exchange failed.
    #[error(transparent)]
    Exchange(#[from] halocline::Error),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[source] std::io::Error),
}

impl HeatError {
    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Axes { .. } | Self::Periodic(_) | Self::Pattern(_) => 2,
            Self::Memory { .. } | Self::Staging { .. } => 2,
            Self::BringUp(error) => error.exit_code(),
            _ => 1,
        }
    }
}

impl RankError for HeatError {
    fn is_echo(&self) -> bool {
        match self {
            Self::Exchange(_) | Self::Comm(_) => true,
            Self::Trace(error) => error.is_echo(),
            _ => false,
        }
    }
}
