//! Grid files of ICON, and icosahedral grids.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::mesh::{AnyMesh, Halos, IconTables};
use crate::object::Handle;
use crate::pointer::{Capacity, OutArray, OutPtr, array, path_text, store, text};
use crate::status::Status;
use halocline::{IconGrid, IcosahedralGrid, Partition};
use std::ffi::c_char;

/// Opens a grid file.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_icon_grid_open(
    comm: Handle<Comm>,
    path: *const c_char,
    grid: OutPtr<'_, Handle<IconGrid>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            // SAFETY: the caller passes null or a string that may be read until the call ends.
            let path = unsafe { path_text(path, "path") }?;
            Ok(IconGrid::open(path)?)
        };
        collective_for(&comm.comm, "icon_grid", (grid, "grid"), parse, |_, opened| Handle::new(opened))
    })
}

/// The numbers of cells, edges and vertices.
#[unsafe(no_mangle)]
extern "C" fn halocline_icon_grid_size(
    grid: Handle<IconGrid>,
    cells: OutPtr<'_, usize>,
    edges: OutPtr<'_, usize>,
    vertices: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let (cells, edges) = (cells.optional("cells")?, edges.optional("edges")?);
        let vertices = vertices.optional("vertices")?;
        let grid = grid.pin()?;
        cells.set(grid.cells());
        edges.set(grid.edges());
        vertices.set(grid.vertices());
        Ok(())
    })
}

/// All cells with their vertices.
#[unsafe(no_mangle)]
extern "C" fn halocline_icon_grid_mesh(grid: Handle<IconGrid>, mesh: OutPtr<'_, Handle<AnyMesh>>) -> Status {
    call_for(mesh, "mesh", || Handle::new(AnyMesh::Whole(grid.pin()?.mesh()?)))
}

/// The domains of a part of the grid.
#[unsafe(no_mangle)]
extern "C" fn halocline_icon_grid_part(
    comm: Handle<Comm>,
    grid: Handle<IconGrid>,
    partition: Handle<Partition>,
    part: usize,
    halos: OutPtr<'_, Handle<Halos>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            let read = grid.pin()?.part(&*partition.pin()?, part)?;
            let tables = IconTables {
                cell_edges: read.cell_edges().to_vec(),
                edge_cells: read.edge_cells().iter().map(|cells| cells.map(number_of)).collect(),
            };
            Ok(Halos::of_icon(read.halos(), read.edge_vertices(), Some(tables)))
        };
        collective_for(&comm.comm, "icon_part", (halos, "halos"), parse, |_, made| Handle::new(made))
    })
}

/// `HALOCLINE_NO_CELL` where no cell is.
fn number_of(cell: Option<u32>) -> u32 {
    cell.unwrap_or(u32::MAX)
}

/// Values of a variable.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_icon_grid_read(
    grid: Handle<IconGrid>,
    name: *const c_char,
    ids: *const u64,
    id_count: usize,
    values: OutArray<'_, f64>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or a string that may be read until the call ends.
        let name = unsafe { text(name, "name") }?;
        // SAFETY: the caller passes null or `id_count` elements that may be read until the call ends. Any bytes are a `u64`.
        let ids = unsafe { array(ids, id_count, "ids") }?;
        store(&grid.pin()?.read(name, ids)?, (values, capacity), count, "values")
    })
}

/// The local edges of the local cells.
#[unsafe(no_mangle)]
extern "C" fn halocline_icon_cell_edges(
    halos: Handle<Halos>,
    edges: OutArray<'_, [u32; 3]>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(&halos.pin()?.icon()?.cell_edges, (edges, capacity), count, "edges"))
}

/// The local cells beside the local edges.
#[unsafe(no_mangle)]
extern "C" fn halocline_icon_edge_cells(
    halos: Handle<Halos>,
    cells: OutArray<'_, [u32; 2]>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(&halos.pin()?.icon()?.edge_cells, (cells, capacity), count, "cells"))
}

/// An icosahedron whose edges are bisected.
#[unsafe(no_mangle)]
extern "C" fn halocline_icosahedral_grid(
    bisections: usize,
    mesh: OutPtr<'_, Handle<AnyMesh>>,
    points: OutArray<'_, [f64; 3]>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call_for(mesh, "mesh", || {
        let (made, vertices) = IcosahedralGrid::new(bisections)?.into_parts();
        store(&vertices, (points, capacity), count, "points")?;
        Handle::new(AnyMesh::Whole(made))
    })
}
