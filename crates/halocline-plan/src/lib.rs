//! Layer 0: which bytes move where, as pure data.
//!
//! A [`PatternPlan`] lists the cells that each domain sends to and receives from each other domain. It
//! contains no fields. A [`Layout`] locates the cells of one array in memory. The copy operations
//! ([`copy`]) that pack, unpack or move the bytes directly follow from both.
//!
//! Nothing in this crate does I/O, starts a thread, or touches memory other than the slices passed
//! to it.
#![forbid(unsafe_code)]

mod bisection;
mod boxes;
mod check;
pub mod copy;
mod decomposition;
pub mod directory;
mod domain;
mod element;
mod error;
mod grid;
mod layout;
mod mesh;
mod narrow;
mod order;
mod owned;
mod partition;
mod patches;
mod pattern;
mod per_axis;
mod redistribute;
mod reduce;
mod region;
mod regular;
mod unstructured;
pub mod wire;

pub use decomposition::Decomposition;
pub use domain::LocalBox;
pub use element::{ElementType, NamedElement, fits};
pub use error::{CellContent, LayoutError, PatternError, TooSmall};
pub use grid::{OwnedBox, RegularGrid};
pub use layout::Layout;
pub use mesh::{
    Elements, IconHalos, IcosahedralGrid, Mesh, MeshDomains, MeshEdges, MeshError, MeshHalos, MeshPart,
    Shared,
};
pub use narrow::DepthEnds;
pub use order::Order;
pub use owned::OwnedElements;
pub use partition::{Graph, Partition, PartitionError};
pub use patches::{
    Along, Corners, PatchBlock, PatchDecomposition, PatchError, PatchGrid, PatchSide, Pivot, Quantity, Seam,
    SeamKind, cubed_sphere_point,
};
pub use pattern::{AxisMap, BoxCells, Cells, DomainShape, PatternPlan, Peer, Run, Transfer};
pub use per_axis::PerAxis;
pub use redistribute::{RedistributeError, Redistribution, Side};
pub use reduce::ReduceOp;
pub use regular::{Halo, Neighbours};
pub use unstructured::{HaloCells, UnstructuredDomain, UnstructuredError};
