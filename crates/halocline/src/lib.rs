//! Halo exchange of distributed arrays: bind once, exchange many times.
//!
//! ```
//! use halocline::{Array, Communicator, Decomposed, HaloExchange, RegularGrid};
//!
//! let comm = Communicator::init()?; // one rank here; four under `halocline launch -n 4 -- program`
//! let grid = RegularGrid::new((64, 64)).periodic((true, true));
//! let pattern = grid.pattern(&comm, 1)?;
//!
//! let domain = pattern.domain()?;
//! let t = Array::<f64>::zeros(&comm, &domain.extents())?;
//! t.write()?.fill(1.0);
//!
//! let halo = HaloExchange::bind(&comm, &[(&pattern, &t)])?;
//! halo.exchange()?.wait()?;
//! # Ok::<(), halocline::Error>(())
//! ```
//!
//! A [`Pattern`] says which cells each domain sends and receives. An [`Array`] or [`Field`] is memory with a [`Layout`]. A
//! [`HaloExchange`] binds them: it checks the fields, chooses a path to each peer and opens mappings. An exchange then copies
//! or sends the cells; it opens no memory.
//!
//! | to | use |
//! | --- | --- |
//! | compute while an exchange is in flight | [`HaloExchange::exchange`], [`Domain::interior`], [`Pending::owned`] |
//! | order exchanges by GPU streams | [`HaloExchange::schedule_exchange`], [`Pending::schedule_wait`] |
//! | wait in a task | `halo.begin().await` ([`Begin`]) |
//! | add halo cells to the owned cells that they copy | [`HaloExchange::reduce`] |
//! | swap time levels | [`HaloExchange::bind_alternatives`], [`Begin::set`] |
//! | exchange a narrower halo over the same links | [`HaloExchange::narrowed`] |
//! | exchange fields that are known only at the call | [`PatternLinks`] |
//! | send messages yourself | [`HaloExchange::pack`], [`HaloExchange::unpack`] |
//! | move fields between two decompositions | [`Redistribute`] |
//! | find the cells of each rank on a device | [`IndexLists`] |
//! | put a field together, or save it | [`Pattern::gather_to`], [`Pattern::save`] |
//!
//! With the feature `ndarray`, guards of arrays give views of that crate, and its arrays become [`Array`]s
//! (`Array::from_ndarray`).

mod agree;
mod begin;
mod bind;
mod binding;
mod bound;
mod check;
mod copied;
mod device_array;
mod directory;
mod domain;
mod error;
mod exchange;
mod explain;
mod fetch;
mod field;
mod future;
mod gather;
#[cfg(feature = "icon")]
mod icon;
mod index_lists;
mod lifecycle;
mod link;
mod lock;
pub mod neighbors;
mod npy;
mod options;
mod overlap;
mod owned;
mod pack;
mod patches;
mod pattern;
mod redistribute;
mod reduce;
mod set;
mod stream;
mod trace;
mod unbound;
#[cfg(feature = "ndarray")]
mod views;
#[cfg(feature = "zarr")]
mod zarr;

pub use agree::agree;
pub use begin::Begin;
pub use bind::BindError;
pub use binding::{FieldList, Parts, PatternField};
#[doc(hidden)]
pub use copied::CopiedExchange;
pub use device_array::DeviceArray;
pub use domain::Domain;
pub use error::{
    ArrayError, Cause, Difference, Error, FailedLink, Failure, Fault, IndexListError, ReduceError,
};
pub use exchange::{HaloExchange, Pending};
pub use explain::{LinkCounts, LinkInfo};
pub use field::{Array, Field, ReadGuard, WeakField, WriteGuard};
pub use future::Exchanging;
pub use gather::GatherError;
#[cfg(feature = "icon")]
pub use icon::{IconGrid, IconGridError, IconGridPart, IconPlace};
pub use index_lists::IndexLists;
pub use link::{Direction, LinkPath};
#[cfg(feature = "cuts")]
#[doc(hidden)]
pub use options::TestOptions;
pub use options::{BindOptions, LinkChoice, Ll};
pub use owned::OwnedGuard;
pub use pattern::{Decomposed, DomainName, Pattern};
pub use redistribute::Redistribute;
#[cfg(feature = "cuts")]
#[doc(hidden)]
pub use stream::Cut;
pub use unbound::PatternLinks;

pub use halocline_comm::memory_resource::{
    Buffer, DeviceMemory, HostMemory, Limited, MemoryAccount, MemoryError, MemoryKind, MemoryResource,
    MemoryStatistics, PinnedMemory,
};
pub use halocline_comm::packet::{Packet, PacketError};
pub use halocline_comm::sparse;
pub use halocline_comm::{CommError, Communicator, Reduce};
/// Structs as elements of arrays:
///
/// ```
/// use halocline::{Array, Communicator, Element};
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Water {
///     temperature: f64,
///     velocity: [f32; 2],
/// }
///
/// let water = Array::<Water>::zeros(&Communicator::single(), &[8, 8])?;
/// water.write()?[0] = Water { temperature: 4.0, velocity: [0.1, 0.0] };
/// # Ok::<(), halocline::Error>(())
/// ```
pub use halocline_derive::Element;
pub use halocline_device::{Bool, Device, DeviceError, Element, Stream};
pub use halocline_plan::{
    Along, CellContent, Corners, Decomposition, DomainShape, ElementType, Elements, Graph, Halo, IconHalos,
    IcosahedralGrid, Layout, LayoutError, LocalBox, Mesh, MeshDomains, MeshEdges, MeshError, MeshHalos,
    MeshPart, NamedElement, Neighbours, Partition, PartitionError, PatchBlock, PatchDecomposition,
    PatchError, PatchGrid, PatchSide, PatternError, PerAxis, Pivot, Quantity, RedistributeError, ReduceOp,
    RegularGrid, Seam, SeamKind, Shared, Side, TooSmall, UnstructuredDomain, UnstructuredError,
    cubed_sphere_point,
};

/// Communicators and their jobs. A [`Communicator`] here has what programs need: rank, size, barrier, duplicates and splits, small
/// collectives.
///
/// `Host`, `System`, `Segment`, `SEGMENT_ALIGN`, [`mappings`](comm::mappings), [`mpi`](comm::mpi) and [`shm`](comm::shm) are the
/// interface for transports, launchers and language bindings; other programs need none of them. The traits that a transport
/// implements are `halocline_comm::Transport` and `halocline_comm::Endpoint`. A program that posts messages there can break the
/// operations of this crate.
pub mod comm {
    pub use halocline_comm::{
        CommError, Communicator, Host, Reduce, SEGMENT_ALIGN, Segment, System, mappings, mpi, shm,
    };
}
/// Devices, their memory and their streams.
pub use halocline_device as device;
/// Plans as pure data.
pub use halocline_plan as plan;

/// Compiles and runs the Rust programs of the README and the guide.
#[cfg(doctest)]
mod documents {
    macro_rules! pages {
        ($($name:ident: $path:literal,)*) => { $(#[doc = include_str!(concat!("../../../", $path))] struct $name;)* };
    }
    pages! {
        Readme: "README.md",
        Start: "docs/start.md",
        RegularGrids: "docs/regular-grids.md",
        Meshes: "docs/meshes.md",
        Patches: "docs/patches.md",
        CubedSphere: "docs/cubed-sphere.md",
        Tripolar: "docs/tripolar.md",
        Poles: "docs/poles.md",
        LatLonCap: "docs/lat-lon-cap.md",
        IconGrids: "docs/icon-grids.md",
        Overlap: "docs/overlap.md",
        Assembling: "docs/assembling.md",
        Options: "docs/options.md",
        Neighbors: "docs/neighbors.md",
        SparseAlltoall: "docs/sparse-alltoall.md",
        Clusters: "docs/clusters.md",
        Gpus: "docs/gpus.md",
        Troubleshooting: "docs/troubleshooting.md",
    }
}
