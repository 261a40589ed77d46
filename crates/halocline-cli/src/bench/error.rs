//! Why a benchmark could not be made.

use crate::launch::LaunchError;
use crate::plot::PlotError;
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
    /// The ranks' processes could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The plot cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A number of ranks that makes no sense.
    #[error("{given} ranks; give {wanted}")]
    Ranks {
        /// What was asked for.
        given: usize,
        /// What would do.
        wanted: &'static str,
    },
    /// The job has another size.
    #[error("`--ranks {asked}`, but the job has {size} ranks; leave `--ranks` out")]
    JobSize {
        /// Ranks asked for.
        asked: usize,
        /// Ranks of the job.
        size: usize,
    },
    /// Threads were asked for in a job of processes.
    #[error("`--transport thread`, but this process is a rank of a job; start it without `halocline launch`")]
    ThreadsInJob,
    /// A rank's thread could not be started or pinned.
    #[error("cannot start the thread of rank {rank}")]
    Thread {
        /// The rank.
        rank: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A rank's thread has panicked: a fault of this program.
    #[error("rank {rank} panicked")]
    Panicked {
        /// The rank.
        rank: usize,
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
            Self::Ranks { .. } | Self::JobSize { .. } | Self::ThreadsInJob | Self::Pattern(_) => 2,
            Self::Launch(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Whether the error may be no more than the echo of another rank's.
    pub(super) fn is_echo(&self) -> bool {
        matches!(self, Self::Exchange(_) | Self::Comm(_) | Self::Gone)
    }
}
