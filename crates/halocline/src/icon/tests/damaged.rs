//! Files that are no grid files, contradict themselves, or were damaged.

use super::files::{Content, Values};
use super::{IconGrid, IconGridError, mesh, open};
use crate::IconPlace;
use halocline_plan::{MeshError, Partition};
use std::path::Path;

fn content() -> Content {
    super::content(&mesh(1))
}

fn block(ranks: usize) -> Partition {
    Partition::block(80, ranks).expect("a partition")
}

/// The error of reading the only part of a grid.
fn refused(content: &Content) -> IconGridError {
    let part = open(content.classic(1)).and_then(|grid| grid.part(&block(1), 0));
    part.expect_err("a damaged file")
}

#[test]
fn files_that_are_no_grids_are_refused() {
    let error = |path: &str| match IconGrid::open(path).expect_err("no grid") {
        error @ IconGridError::File { .. } => error.to_string(),
        other => panic!("{other}"),
    };
    let missing = error("no-such-file.nc");
    assert_eq!(
        missing,
        "cannot read no-such-file.nc: No such file or directory (os error 2); give a whole, undamaged grid file of ICON in NetCDF"
    );
    assert!(error("src").contains("it is no regular file"), "{}", error("src"));
    // A device without an end.
    assert!(error("/dev/zero").contains("it is no regular file"));
    assert!(error("Cargo.toml").contains("invalid NetCDF magic bytes"), "{}", error("Cargo.toml"));
    assert!(open(Vec::new()).is_err());

    let mut content = content();
    let size = content.dimensions.remove("vertex").expect("a dimension");
    content.dimensions.insert("vortex", size);
    content.variables.remove("cells_of_vertex");
    let error = open(content.classic(1)).expect_err("no dimension");
    assert!(matches!(error, IconGridError::NoDimension { dimension: "vertex", .. }));
    assert_eq!(error.to_string(), "grid.nc has no dimension vertex; give a grid file of ICON");
}

#[test]
fn missing_variables_are_named() {
    for name in ["vertex_of_cell", "edge_of_cell", "edge_vertices", "adjacent_cell_of_edge"] {
        let mut content = content();
        content.variables.remove(name);
        assert_eq!(
            refused(&content).to_string(),
            format!("grid.nc has no variable {name}; give a grid file that has it")
        );
    }
    let grid = open(content().classic(1)).expect("a grid");
    let error = grid.read("clat", &[0]).expect_err("no latitudes");
    assert_eq!(
        error,
        IconGridError::NoVariable { path: Path::new("grid.nc").into(), variable: "clat".into() }
    );
}

#[test]
fn variables_of_another_shape_or_type_are_named() {
    let mut content = content();
    let table = content.variables["vertex_of_cell"].clone();
    content.set("vertex_of_cell", &["cell", "nv"], table.values.clone());
    assert_eq!(
        refused(&content).to_string(),
        "vertex_of_cell of grid.nc has the shape [80, 3]; it must be [3, 80]"
    );
    assert!(matches!(refused(&content), IconGridError::Shape { .. }));
    content.set("vertex_of_cell", &["cell"], Values::Int(vec![1; 80]));
    assert_eq!(
        refused(&content).to_string(),
        "vertex_of_cell of grid.nc has the shape [80]; it must be [3, 80]"
    );
    content.set("vertex_of_cell", &["nv", "cell"], Values::Double(vec![1.0; 240]));
    assert_eq!(
        refused(&content).to_string(),
        "vertex_of_cell of grid.nc is of the type Double; it must hold integers"
    );
    assert!(matches!(refused(&content), IconGridError::Type { wanted: "integers", .. }));
    content.set("vertex_of_cell", &["nv", "cell"], Values::Text(vec![1; 240]));
    assert_eq!(
        refused(&content).to_string(),
        "vertex_of_cell of grid.nc is of the type Char; it must hold numbers"
    );
    content.set("vertex_of_cell", &["nv", "cell"], table.values);
    content.set("cells_of_vertex", &["edge", "vertex"], Values::Int(vec![1; 120 * 42]));
    assert_eq!(
        refused(&content).to_string(),
        "cells_of_vertex of grid.nc has the shape [120, 42]; it must be [1 to 64, 42]"
    );
    content.set("clon", &[], Values::Double(vec![1.0]));
    let grid = open(content.classic(1)).expect("a grid");
    let error = grid.read("clon", &[]).expect_err("a number");
    assert_eq!(error.to_string(), "clon of grid.nc has the shape []; it must be of one or two dimensions");
}

#[test]
fn entries_that_are_no_numbers_of_the_grid_are_named() {
    let cases = [
        ("vertex_of_cell", 0, "entry 1 of cell 3 is 0, but there are 42 vertices"),
        ("vertex_of_cell", -5, "entry 1 of cell 3 is -5, but there are 42 vertices"),
        ("edge_of_cell", 121, "entry 1 of cell 3 is 121, but there are 120 edges"),
        ("edge_vertices", 43, "entry 1 of edge 3 is 43, but there are 42 vertices"),
        ("adjacent_cell_of_edge", 81, "entry 1 of edge 3 is 81, but there are 80 cells"),
        ("cells_of_vertex", i32::MAX, "entry 1 of vertex 3 is 2147483647, but there are 80 cells"),
    ];
    for (name, value, due) in cases {
        let mut content = content();
        content.ints(name)[2] = value;
        assert!(matches!(refused(&content), IconGridError::Entry { column: 3, entry: 1, .. }));
        assert_eq!(
            refused(&content).to_string(),
            format!("{name} of grid.nc: {due}, counted from 1; the file is damaged")
        );
    }
}

#[test]
fn tables_that_contradict_each_other_are_named() {
    let changed = |name: &str, change: &dyn Fn(&mut Vec<i32>)| {
        let mut content = content();
        change(content.ints(name));
        let error = refused(&content);
        let kind = match error {
            IconGridError::SameVertex { .. } => "same vertex",
            IconGridError::Contradiction { .. } => "contradiction",
            IconGridError::NoSide { .. } => "no side",
            other => panic!("{other}"),
        };
        (kind, error.to_string())
    };
    let (kind, text) = changed("vertex_of_cell", &|table| table[2] = table[82]);
    assert_eq!(kind, "same vertex", "{text}");
    assert!(text.starts_with("vertex_of_cell of grid.nc: cell 3 has the vertex "), "{text}");
    assert!(text.ends_with(" twice; the file is damaged"), "{text}");
    // Cell 3 lies in the north, vertex 12 is the south pole.
    let (kind, text) = changed("vertex_of_cell", &|table| table[2] = 12);
    assert_eq!(kind, "contradiction", "{text}");
    assert_eq!(
        text,
        "grid.nc: vertex_of_cell lists vertex 12 for cell 3, but cells_of_vertex does not list cell 3 for vertex 12; the file is damaged"
    );
    let (kind, text) = changed("cells_of_vertex", &|table| table[11 + 5 * 42] = 3);
    assert_eq!(kind, "contradiction", "{text}");
    assert_eq!(
        text,
        "grid.nc: cells_of_vertex lists cell 3 for vertex 12, but vertex_of_cell does not list vertex 12 for cell 3; the file is damaged"
    );
    let (kind, text) = changed("adjacent_cell_of_edge", &|table| table[4] = -1);
    assert_eq!(kind, "contradiction", "{text}");
    assert!(text.contains("edge_of_cell lists edge 5 for cell "), "{text}");
    assert!(text.contains("but adjacent_cell_of_edge does not list cell "), "{text}");
    // Edge 1 lies in the south.
    let (kind, text) = changed("adjacent_cell_of_edge", &|table| table[0] = 1);
    assert_ne!(kind, "same vertex", "{text}");
    assert!(text.contains("edge 1"), "{text}");
    let (kind, text) = changed("edge_of_cell", &|table| table[2] = table[82]);
    assert_eq!(kind, "no side", "{text}");
    assert!(text.starts_with("grid.nc: edge_of_cell lists edge "), "{text}");
    assert!(text.contains(" for cell 3, but its edge_vertices are no side of the cell"), "{text}");
    let (kind, text) = changed("edge_vertices", &|table| table[7] = table[127]);
    assert_ne!(kind, "same vertex", "{text}");
    assert!(text.contains("edge_of_cell lists edge 8 for cell "), "{text}");
}

#[test]
fn partitions_of_another_grid_are_refused() {
    let grid = open(content().classic(1)).expect("a grid");
    let other = Partition::block(81, 2).expect("a partition");
    let error = grid.part(&other, 0).expect_err("81 cells");
    assert_eq!(error, MeshError::PartitionLength { what: "elements", given: 81, needed: 80 }.into());
    let error = grid.part(&block(2), 2).expect_err("2 parts");
    assert_eq!(error, MeshError::Rank { rank: 2, ranks: 2 }.into());
}

/// A file with 80 cells that states another size of a dimension.
fn stating(dimension: &str, size: u64) -> Vec<u8> {
    let mut file = content().classic(5);
    // The length of the name, the name, zeros up to a multiple of 4 bytes, the size.
    let entry = [&(dimension.len() as u64).to_be_bytes(), dimension.as_bytes()].concat();
    let at = file.windows(entry.len()).position(|bytes| bytes == entry).expect("the dimension");
    let size_at = at + 8 + dimension.len().next_multiple_of(4);
    file[size_at..size_at + 8].copy_from_slice(&size.to_be_bytes());
    file
}

#[test]
fn a_file_that_states_more_than_it_has_is_refused() {
    for size in [1u64 << 31, 1 << 32, 1 << 40, u64::MAX] {
        let error = open(stating("cell", size)).expect_err("it has 80 cells");
        if size >= 1 << 32 {
            assert!(matches!(error, IconGridError::TooLarge { size: found, .. } if found == size), "{error}");
            continue;
        }
        assert!(matches!(error, IconGridError::Values { .. }), "{error}");
        let text = error.to_string();
        let begin = "cannot read vertex_of_cell of grid.nc: it has 6442450944 values, more than fit into ";
        assert!(text.starts_with(begin) && text.ends_with("; the file is damaged or cut off"), "{text}");
    }
}

#[test]
fn more_edges_or_vertices_than_three_for_each_cell_are_refused() {
    for (dimension, place) in [("edge", IconPlace::Edge), ("vertex", IconPlace::Vertex)] {
        for size in [241, 1_000_000_000, u32::MAX] {
            let error =
                open(stating(dimension, size.into())).expect_err("80 cells have 240 sides and corners");
            let path = Path::new("grid.nc").into();
            assert_eq!(error, IconGridError::TooMany { path, place, count: size, cells: 80 });
        }
        assert!(open(stating(dimension, 240)).is_ok(), "separate triangles have as many");
    }
    assert_eq!(
        open(stating("vertex", 1_000_000_000)).expect_err("80 cells").to_string(),
        "grid.nc has 80 cells and 1000000000 vertices, but a cell has 3, so there are at most 240; the file is damaged"
    );
}

/// Reads all that a file has. Must not panic, whatever the bytes.
fn read_all(bytes: Vec<u8>, variables: &[&str]) -> Result<(), IconGridError> {
    let grid = open(bytes)?;
    // As large as the file says; a partition of another size is refused.
    let parts = Partition::block(grid.cells().clamp(3, 2000), 3).expect("a partition");
    let mut results = vec![
        grid.mesh().map(drop),
        grid.part(&parts, 0).map(drop),
        grid.part(&parts, 2).map(drop),
        grid.read("edge_vertices", &[0, 41, 5]).map(drop),
    ];
    results.extend(variables.iter().map(|name| grid.read(name, &[0, 41, 5]).map(drop)));
    results.into_iter().collect()
}

/// A grid file, and its variables beside the tables.
struct Seed {
    name: &'static str,
    file: Vec<u8>,
    variables: &'static [&'static str],
}

fn seeds() -> [Seed; 3] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/icon/r2b2.nc");
    let content = content();
    let variables = &["clon", "clat", "vlon", "vlat", "elon", "elat", "cell_area"][..];
    [
        Seed { name: "classic", file: content.classic(1), variables: &variables[..1] },
        Seed { name: "64-bit data", file: content.classic(5), variables: &variables[..1] },
        Seed { name: "NetCDF-4", file: std::fs::read(path).expect("the data"), variables },
    ]
}

#[test]
fn files_that_end_early_are_refused() {
    for Seed { name, file, variables } in seeds() {
        assert_eq!(read_all(file.clone(), variables), Ok(()), "{name}");
        for end in (0..40).map(|at| file.len() * at / 40) {
            let error = read_all(file[..end].to_vec(), variables).expect_err("a file that ends early");
            assert!(!matches!(error, IconGridError::Mesh(_)), "{name}, {end}: {error}");
        }
    }
}

/// Whatever is read from it.
#[test]
fn a_netcdf_4_file_that_is_shorter_than_it_states_is_refused() {
    let [.., Seed { file, .. }] = seeds();
    for end in [file.len() - 1, file.len() * 9 / 10, 64] {
        let error = open(file[..end].to_vec()).expect_err("a file that is cut off");
        let text = error.to_string();
        assert!(text.contains(&format!("has {end}: it is cut off")), "{text}");
    }
    assert!(open(file).is_ok());
}

#[test]
fn damaged_files_do_not_panic() {
    const ROUNDS: usize = 200;
    let mut random = 29u64;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % end
    };
    for Seed { name, file, variables } in seeds() {
        let mut errors = 0;
        for _ in 0..ROUNDS {
            let mut damaged = file.clone();
            for _ in 0..1 + below(4) {
                // Half of the changes are near the beginning, where much of the structure is.
                let range = if below(2) == 0 { file.len() } else { 1024 };
                let at = below(range);
                damaged[at] = [0, 1, 0x7f, 0x80, 0xff, damaged[at] ^ (1 << below(8))][below(6)];
            }
            errors += usize::from(read_all(damaged, variables).is_err());
        }
        assert!(errors > ROUNDS / 4, "{name}: {errors} of {ROUNDS} files were refused");
    }
}
