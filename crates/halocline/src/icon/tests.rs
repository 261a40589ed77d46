//! Grid files, compared with the meshes that they were made of.

mod damaged;
mod files;

use super::{IconGrid, IconGridError, IconGridPart, NetcdfFile};
use files::Content;
use halocline_plan::{IconHalos, IcosahedralGrid, Mesh, Partition};
use netcdf_reader::{BytesStorage, DynStorage, RangeRequestStorage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The grid of a file with these bytes.
fn open(bytes: Vec<u8>) -> Result<IconGrid, IconGridError> {
    open_storage(Arc::new(BytesStorage::new(bytes)))
}

fn open_storage(storage: DynStorage) -> Result<IconGrid, IconGridError> {
    IconGrid::of(NetcdfFile::of(Path::new("grid.nc"), storage)?)
}

fn mesh(bisections: usize) -> Mesh {
    IcosahedralGrid::new(bisections).expect("a grid").mesh().clone()
}

/// The grid file of a mesh.
fn content(mesh: &Mesh) -> Content {
    Content::of(mesh.vertices(), mesh.elements().connectivity().as_chunks().0)
}

fn metis(mesh: &Mesh, ranks: usize) -> Partition {
    Partition::metis(&mesh.element_graph(2).expect("a graph"), ranks).expect("a partition")
}

/// Some of the cells of a mesh, with their vertices numbered anew.
fn area(mesh: &Mesh, cells: Range<usize>) -> Mesh {
    let mut names = BTreeMap::new();
    let mut triangles = Vec::new();
    for &vertex in cells.flat_map(|cell| mesh.elements().get(cell)) {
        let next = names.len() as u32;
        triangles.push(*names.entry(vertex).or_insert(next));
    }
    Mesh::new(names.len(), 3, triangles).expect("a mesh")
}

/// Checks all parts of a grid whose file has the tables of `content`, against the halos of the whole mesh.
fn check_parts(grid: &IconGrid, content: &mut Content, mesh: &Mesh, partition: &Partition) {
    assert_eq!(&grid.mesh().expect("a mesh"), mesh);
    for part in 0..partition.ranks() {
        let due = mesh.icon_halos(partition, part).expect("halos");
        let read = grid.part(partition, part).expect("a part");
        assert_eq!(read.halos().cells(), due.cells());
        assert_eq!(read.halos().vertices(), due.vertices());
        assert_eq!(read.halos().local_cells(), due.local_cells());
        assert_eq!(read.halos().owned_cells(), due.owned_cells());
        check_edges(&read, &due, content);
    }
}

/// Checks the edges of a part: the same as those of the whole mesh, with the numbers of the file; and the tables.
fn check_edges(read: &IconGridPart, due: &IconHalos, content: &mut Content) {
    let (cells, vertices) = (due.cells().cells(), due.vertices().cells());
    let edges = read.halos().edges().domain().cells();
    let mut column = |name: &str, column: u64, rows: usize| -> Vec<i32> {
        let values = content.ints(name);
        let columns = values.len() / rows;
        (0..rows).map(|row| values[row * columns + column as usize]).collect()
    };
    let number = |id: u64| id as i32 + 1;
    let ends: Vec<Vec<i32>> = edges.iter().map(|&edge| column("edge_vertices", edge, 2)).collect();
    let name = |ends: &Vec<i32>| {
        let [from, to] = [ends[0], ends[1]].map(|end| end as u64 - 1);
        from.min(to) << 32 | from.max(to)
    };
    // The same edges in each level.
    let levels = due.edges().domain().levels();
    assert_eq!(read.halos().edges().domain().levels(), levels);
    let names: Vec<u64> = ends.iter().map(name).collect();
    for level in 0..levels.len() {
        let range = if level == 0 { 0..levels[0] } else { levels[level - 1]..levels[level] };
        let sorted = |names: &[u64]| BTreeSet::from_iter(names[range.clone()].to_vec());
        assert_eq!(sorted(&names), sorted(due.edges().domain().cells()));
    }
    assert!(edges[..levels[0]].is_sorted());

    for ((&edge, ends), (local, beside)) in
        edges.iter().zip(&ends).zip(read.edge_vertices().iter().zip(read.edge_cells()))
    {
        assert_eq!(local.map(|end| number(vertices[end as usize])).to_vec(), *ends);
        let is_here = |cell: i32| cell > 0 && cells.contains(&(cell as u64 - 1));
        let due = column("adjacent_cell_of_edge", edge, 2).into_iter();
        let due: Vec<i32> = due.map(|cell| if is_here(cell) { cell } else { 0 }).collect();
        assert_eq!(beside.map(|cell| cell.map_or(0, |cell| number(cells[cell as usize]))).to_vec(), due);
    }
    for (&cell, of_cell) in cells.iter().zip(read.cell_edges()) {
        let found = of_cell.map(|edge| number(edges[edge as usize])).to_vec();
        assert_eq!(found, column("edge_of_cell", cell, 3));
    }
}

#[test]
fn parts_of_a_file_have_the_halos_that_the_whole_mesh_has() {
    let mesh = mesh(2);
    let mut content = content(&mesh);
    for version in [1, 2, 5] {
        let grid = open(content.classic(version)).expect("a grid");
        assert_eq!([grid.cells(), grid.edges(), grid.vertices()], [320, 480, 162]);
        for ranks in [1, 4, 7] {
            check_parts(&grid, &mut content, &mesh, &metis(&mesh, ranks));
        }
        // The last part has no cell.
        let owners = (0..320).map(|cell| cell * 3 / 320).collect();
        check_parts(&grid, &mut content, &mesh, &Partition::given(owners, 4).expect("a partition"));
    }
}

#[test]
fn a_file_without_the_cells_of_vertices_has_the_same_parts() {
    let mesh = mesh(2);
    let mut content = content(&mesh);
    content.variables.remove("cells_of_vertex");
    let grid = open(content.classic(1)).expect("a grid");
    check_parts(&grid, &mut content, &mesh, &metis(&mesh, 5));
}

#[test]
fn a_limited_area_has_no_cells_beyond_its_border() {
    let mesh = area(&mesh(2), 0..120);
    let mut content = content(&mesh);
    for nothing in [-1, 0] {
        for name in ["adjacent_cell_of_edge", "cells_of_vertex"] {
            content.ints(name).iter_mut().filter(|entry| **entry <= 0).for_each(|entry| *entry = nothing);
        }
        let grid = open(content.classic(2)).expect("a grid");
        check_parts(&grid, &mut content, &mesh, &metis(&mesh, 3));
        let one = grid.part(&Partition::block(120, 1).expect("a partition"), 0).expect("a part");
        let open = one.edge_cells().iter().filter(|cells| cells.contains(&None)).count();
        assert_eq!(open, 2 * grid.edges() - 3 * grid.cells());
        assert!(open > 0);
    }
}

#[test]
fn a_file_in_netcdf_4_is_the_generated_grid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/icon/r2b2.nc");
    let (grid, mesh) = (IconGrid::open(path).expect("a grid"), mesh(3));
    assert_eq!(grid.mesh().expect("a mesh"), mesh);
    let partition = metis(&mesh, 4);
    for part in 0..4 {
        let (read, due) =
            (grid.part(&partition, part).expect("a part"), mesh.icon_halos(&partition, part).expect("halos"));
        assert_eq!((read.halos().cells(), read.halos().vertices()), (due.cells(), due.vertices()));
        assert_eq!(read.halos().edges().domain().levels(), due.edges().domain().levels());
    }
    let all: Vec<u64> = (0..642).collect();
    let points = IcosahedralGrid::new(3).expect("a grid");
    let [longitudes, latitudes] = ["vlon", "vlat"].map(|name| grid.read(name, &all).expect("positions"));
    for (point, (longitude, latitude)) in points.points().iter().zip(longitudes.iter().zip(&latitudes)) {
        let (sin, cos) = longitude.sin_cos();
        let read = [latitude.cos() * cos, latitude.cos() * sin, latitude.sin()];
        assert!(read.iter().zip(point).all(|(read, due)| (read - due).abs() < 1e-15));
    }
}

#[test]
fn values_are_those_of_the_listed_columns() {
    let mut content = content(&mesh(2));
    let grid = open(content.classic(1)).expect("a grid");
    // Any order, twice, and farther from each other than one read goes.
    let ids = [319, 0, 7, 7, 6, 300];
    assert_eq!(grid.read("clon", &ids).expect("values"), ids.map(|id| id as f64 / 4.0));
    assert!(grid.read("clon", &[]).expect("no values").is_empty());
    let table = content.ints("edge_of_cell").clone();
    let due: Vec<f64> =
        [9, 2].iter().flat_map(|&cell| [0, 1, 2].map(|row| table[row * 320 + cell].into())).collect();
    assert_eq!(grid.read("edge_of_cell", &[9, 2]).expect("values"), due);
    let error = grid.read("clon", &[319, 320]).expect_err("320 columns");
    assert!(matches!(error, IconGridError::NoColumn { id: 320, count: 320, .. }));
    assert_eq!(
        error.to_string(),
        "clon of grid.nc has 320 columns, counted from 0; there is no column 320 to read"
    );
}

/// The part of the bytes of a file that one of 16 ranks reads for its part of the grid.
fn share_of_part(file: Vec<u8>, mesh: &Mesh) -> f64 {
    let size = file.len() as f64;
    let read = Arc::new(AtomicU64::new(0));
    let counter = read.clone();
    let storage = RangeRequestStorage::new(file.len() as u64, move |offset, length| {
        counter.fetch_add(length as u64, Ordering::Relaxed);
        Ok(file[offset as usize..][..length].to_vec())
    });
    let grid = open_storage(Arc::new(storage)).expect("a grid");
    let partition = metis(mesh, 16);
    let before = read.load(Ordering::Relaxed);
    grid.part(&partition, 5).expect("a part");
    (read.load(Ordering::Relaxed) - before) as f64 / size
}

#[test]
fn a_part_reads_little_of_the_file() {
    let mesh = mesh(5);
    let mut content = content(&mesh);
    let share = share_of_part(content.classic(1), &mesh);
    assert!(share < 0.3, "{share} of the file");
    // `vertex_of_cell` is read in full three times: a fifth of the file each time.
    content.variables.remove("cells_of_vertex");
    let share = share_of_part(content.classic(1), &mesh);
    assert!(share > 0.4, "{share} of the file");
}

#[test]
fn a_part_does_not_look_at_other_columns() {
    let mesh = mesh(2);
    let mut content = content(&mesh);
    let partition = Partition::block(320, 4).expect("a partition");
    // Damage on the other side of the Earth.
    let table = content.ints("vertex_of_cell");
    table[319] = 1_000_000;
    let grid = open(content.classic(1)).expect("a grid");
    assert!(grid.part(&partition, 0).is_ok());
    let text = grid.part(&partition, 3).expect_err("damage here").to_string();
    assert_eq!(
        text,
        "vertex_of_cell of grid.nc: entry 1 of cell 320 is 1000000, but there are 162 vertices, counted from 1; the file is damaged"
    );
    assert_eq!(grid.mesh().expect_err("damage").to_string(), text);
}
