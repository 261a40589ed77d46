//! Why something could not be explained.

use super::traffic::MOST_RANKS;
use crate::ocean::OceanError;
use crate::plot::PlotError;
use crate::ranks::{RankError, RanksError, Shortage};
use halocline::{CommError, LayoutError, PatternError};

/// A pattern that could not be explained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    /// Axes that the grid does not have.
    #[error("{0}")]
    Periodic(String),
    /// The grid cannot be decomposed, or its halo cannot be filled.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The fields cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A map of too many ranks.
    #[error(
        "a map of {ranks} ranks; bytes between all ranks are added up for at most {MOST_RANKS}: leave `--plot` out"
    )]
    Map {
        /// Ranks asked for.
        ranks: usize,
    },
    /// Ranks that cannot be started here.
    #[error("{ranks} ranks to be started on this machine; give 1 to {most}, or leave `--transport` out")]
    Ranks {
        /// Ranks asked for.
        ranks: usize,
        /// The most.
        most: usize,
    },
    /// The fields do not fit the memory.
    #[error("the fields take {0}; leave `--transport` out")]
    Memory(Shortage),
    /// The ocean cannot be made.
    #[error(transparent)]
    Ocean(#[from] OceanError),
    /// The plot cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The ranks could not be brought up.
    #[error(transparent)]
    BringUp(#[from] RanksError),
    /// Fields could not be bound.
    #[error(transparent)]
    Exchange(#[from] halocline::Error),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A rank told something that no rank tells.
    #[error("rank {rank} told something else than its links; do all ranks run the same version?")]
    Told {
        /// The rank.
        rank: usize,
    },
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[source] std::io::Error),
}

impl ExplainError {
    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Periodic(_) | Self::Pattern(_) | Self::Layout(_) => 2,
            Self::Map { .. } | Self::Ranks { .. } | Self::Memory(_) => 2,
            Self::BringUp(error) => error.exit_code(),
            Self::Ocean(error) => error.exit_code(),
            _ => 1,
        }
    }
}

impl RankError for ExplainError {
    fn is_echo(&self) -> bool {
        match self {
            Self::Exchange(_) | Self::Comm(_) => true,
            Self::Ocean(error) => error.is_echo(),
            _ => false,
        }
    }
}
