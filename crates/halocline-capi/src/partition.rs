//! Partitions: which rank owns each cell; and the graphs of meshes that partitioners cut.

use crate::call::{call, call_for};
use crate::mesh::AnyMesh;
use crate::object::Handle;
use crate::pointer::{
    Capacity, OutArray, OutPtr, array, array_mut, copied, entries, fill, optional_array, store,
};
use crate::status::{Refusal, Status};
use halocline::{Graph, Mesh, Partition};

/// Consecutive blocks of cells.
#[unsafe(no_mangle)]
extern "C" fn halocline_partition_block(
    cells: usize,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || Handle::new(Partition::block(cells, ranks)?))
}

/// A given rank for each cell.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_partition_given(
    owners: *const usize,
    cells: usize,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || {
        // SAFETY: the caller passes null or an element for each cell.
        let owners = unsafe { array(owners, cells, "owners") }?;
        Handle::new(Partition::given(copied(owners, "owners")?, ranks)?)
    })
}

/// A partition of a graph by METIS.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_partition_graph(
    cells: usize,
    offsets: *const usize,
    neighbours: *const u32,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || {
        // SAFETY: the caller passes null or one element more than there are cells.
        let offsets = unsafe { array(offsets, cells.saturating_add(1), "offsets") }?;
        // SAFETY: the caller passes null or as many elements as the last offset says.
        let neighbours = unsafe { array(neighbours, entries(offsets)?, "neighbours") }?;
        Handle::new(Partition::metis(&Graph::new(offsets, neighbours)?, ranks)?)
    })
}

/// A partition of the elements of a mesh by METIS.
#[unsafe(no_mangle)]
extern "C" fn halocline_partition_elements(
    mesh: Handle<AnyMesh>,
    common: usize,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || {
        let graph = mesh.pin()?.whole()?.element_graph(common)?;
        Handle::new(Partition::metis(&graph, ranks)?)
    })
}

/// A partition of the vertices of a mesh by METIS.
#[unsafe(no_mangle)]
extern "C" fn halocline_partition_vertices(
    mesh: Handle<AnyMesh>,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || {
        let graph = mesh.pin()?.whole()?.vertex_graph()?;
        Handle::new(Partition::metis(&graph, ranks)?)
    })
}

/// A partition by coordinates.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_partition_bisection(
    points: *const f64,
    cells: usize,
    dimensions: usize,
    weights: *const f64,
    ranks: usize,
    partition: OutPtr<'_, Handle<Partition>>,
) -> Status {
    call_for(partition, "partition", || {
        // SAFETY: the caller passes null or a weight for each cell.
        let weights = unsafe { optional_array(weights, cells, "weights") }?;
        macro_rules! bisected {
            ($axes:literal) => {{
                // SAFETY: the caller passes null or that many coordinates for each cell.
                let points = unsafe { array(points.cast::<[f64; $axes]>(), cells, "points") }?;
                Partition::bisection(points, weights, ranks)?
            }};
        }
        Handle::new(match dimensions {
            1 => bisected!(1),
            2 => bisected!(2),
            3 => bisected!(3),
            other => {
                return Err(Refusal::argument(format!(
                    "dimensions is {other}; points have 1, 2 or 3 coordinates"
                )));
            }
        })
    })
}

/// The graph of the vertices or elements of a mesh.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_mesh_graph(
    mesh: Handle<AnyMesh>,
    kind: i32,
    common: usize,
    offsets: *mut usize,
    neighbours: OutArray<'_, u32>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let graph = graph_of(mesh.pin()?.whole()?, kind, common)?;
        let ends = graph.offsets();
        if !offsets.is_null() {
            // SAFETY: the caller passes null or an array with one element more than there are cells.
            fill(unsafe { array_mut(offsets, ends.len(), "offsets") }?, ends.iter().copied());
        }
        store(graph.all_neighbours(), (neighbours, capacity), count, "neighbours")
    })
}

fn graph_of(mesh: &Mesh, kind: i32, common: usize) -> Result<Graph, Refusal> {
    match kind {
        0 => Ok(mesh.element_graph(common)?),
        1 => Ok(mesh.vertex_graph()?),
        other => Err(Refusal::argument(format!(
            "kind is {other}; pass HALOCLINE_ELEMENTS or HALOCLINE_VERTICES, which have graphs"
        ))),
    }
}

/// The number of cells of each rank of a partition.
#[unsafe(no_mangle)]
extern "C" fn halocline_partition_counts(
    partition: Handle<Partition>,
    counts: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let partition = partition.pin()?;
        // As many as the program has named ranks, which may have been few bytes.
        crate::pointer::check_room::<usize>(partition.ranks(), "counts")?;
        store(&partition.counts(), (counts, capacity), count, "counts")
    })
}

/// The rank of each cell of a partition.
#[unsafe(no_mangle)]
extern "C" fn halocline_partition_owners(
    partition: Handle<Partition>,
    owners: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(partition.pin()?.owners(), (owners, capacity), count, "owners"))
}
