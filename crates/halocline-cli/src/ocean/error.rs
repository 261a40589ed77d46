//! Why a run could not be made. (A run whose check fails is no such error: it ends with a report.)

use super::input::{InputError, PARTS};
use crate::device::NoGpu;
use crate::plot::PlotError;
use crate::ranks::{RankError, RanksError};
use crate::trace::TraceError;
use halocline::{CommError, MeshError, PartitionError};
use std::path::PathBuf;

/// An ocean run that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OceanError {
    /// A file of mesh or state is missing, damaged or inconsistent.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The mesh cannot be refined so far.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The partition cannot be made.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// No number of ranks for this mesh.
    #[error(
        "{ranks} ranks for the {nodes} nodes of the model's mesh; use at least one rank, and at most one for each node"
    )]
    Ranks {
        /// Ranks asked for.
        ranks: usize,
        /// Nodes of the mesh before refinement.
        nodes: usize,
    },
    /// More ranks than the file's partition has parts.
    #[error(
        "{ranks} ranks, but the file's partition has {PARTS} parts; use at most {PARTS} ranks or `--partition metis`"
    )]
    Parts {
        /// Ranks asked for.
        ranks: usize,
    },
    /// The plot is to be of another kind.
    #[error("the plot is to be written to {}, but it is a PNG image; give a name that ends in .png", path.display())]
    PlotKind {
        /// The file.
        path: PathBuf,
    },
    /// The plot could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The result could not be written.
    #[error("cannot write the temperature to {}: {source}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The ranks could not be brought up.
    #[error(transparent)]
    BringUp(#[from] RanksError),
    /// Rank 0 sent something that it never sends.
    #[error("rank 0 sent a plan of {bytes} bytes, {expected} were due; do all ranks run the same version?")]
    Plan {
        /// Bytes that came.
        bytes: usize,
        /// Bytes for this mesh.
        expected: usize,
    },
    /// The mesh and the velocities allow no time step that makes sense.
    #[error(
        "the longest stable time step is {step:e} s, which layer {layer} of node {node} allows: look at the velocities (u.npy, v.npy), \
         the level interfaces (aux3d.out) and the size of the triangles (nod2d.out) there"
    )]
    Step {
        /// The step, s.
        step: f64,
        /// The node of the refined mesh, from 1.
        node: u64,
        /// The layer, from 1.
        layer: u64,
    },
    /// There is no GPU to be used.
    #[error(transparent)]
    Device(#[from] NoGpu),
    /// The exchange failed.
    #[error(transparent)]
    Exchange(#[from] halocline::Error),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[source] std::io::Error),
}

impl OceanError {
    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Ranks { .. } | Self::Parts { .. } | Self::PlotKind { .. } => 2,
            Self::BringUp(error) => error.exit_code(),
            _ => 1,
        }
    }
}

impl RankError for OceanError {
    fn is_echo(&self) -> bool {
        match self {
            Self::Exchange(_) | Self::Comm(_) => true,
            Self::Trace(error) => error.is_echo(),
            _ => false,
        }
    }
}
