//! Why a benchmark could not be made.

use crate::device::NoGpu;
use crate::info::plural;
use crate::plot::PlotError;
use crate::ranks::{RankError, RanksError, Shortage};
use crate::trace::TraceError;
use halocline::{CommError, LayoutError, PatternError};

/// A benchmark that could not be made, or that found wrong data.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The grid cannot be decomposed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Fields cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A collective call or an exchange failed.
    #[error(transparent)]
    Exchange(#[from] halocline::Error),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The ranks could not be brought up.
    #[error(transparent)]
    BringUp(#[from] RanksError),
    /// The plot cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no GPU to be used.
    #[error(transparent)]
    Device(#[from] NoGpu),
    /// The unbound form of fields on GPUs.
    #[error("`--unbound` measures fields of the host; leave it out, or `--device cuda`")]
    Unbound,
    /// A number of ranks that makes no sense.
    #[error("{}; give {wanted}", plural(*given, "rank"))]
    Ranks {
        /// What was asked for.
        given: usize,
        /// What would do.
        wanted: &'static str,
    },
    /// Another rank has gone while this one waited for it.
    #[error("a rank has ended early")]
    Gone,
    /// An exchange filled the halo with something else than the owned cells.
    #[error(
        "rank {rank}, link {link}, exchange {exchange}: {wrong} of {cells} values are wrong, the first at cell {cell} of field {field}"
    )]
    Wrong {
        /// The rank that found it.
        rank: usize,
        /// The link as asked for.
        link: String,
        /// Which of the exchanges of changing data.
        exchange: u64,
        /// Values that are wrong.
        wrong: usize,
        /// All values looked at.
        cells: usize,
        /// The global number of the first cell that is wrong.
        cell: u64,
        /// Its field.
        field: usize,
    },
    /// The regions do not lie within a rank's own memory.
    #[error("the copying pass would leave the memory of field {field}; use a grid with equal parts")]
    Pass {
        /// The field.
        field: usize,
    },
    /// The benchmark does not fit the memory.
    #[error(
        "the fields with their halos and what is known of their cells take {0}; use fewer cells, levels or fields"
    )]
    Short(Shortage),
    /// There is no memory for the fields.
    #[error("no memory for a field of {0} bytes")]
    Memory(usize),
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[source] std::io::Error),
}

impl BenchError {
    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Ranks { .. } | Self::Unbound | Self::Pattern(_) | Self::Layout(_) | Self::Short(_) => 2,
            Self::BringUp(error) => error.exit_code(),
            _ => 1,
        }
    }
}

impl RankError for BenchError {
    fn is_echo(&self) -> bool {
        match self {
            Self::Exchange(_) | Self::Comm(_) | Self::Gone => true,
            Self::Trace(error) => error.is_echo(),
            _ => false,
        }
    }
}
