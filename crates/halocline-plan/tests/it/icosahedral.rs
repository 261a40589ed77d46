//! Icosahedral grids, and the halos of ICON around their parts, compared with brute force.

use crate::simulated::{Random, deliver, resolve};
use halocline_plan::{
    Elements, IconHalos, IcosahedralGrid, Mesh, MeshError, MeshPart, Partition, UnstructuredDomain,
};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn corners(mesh: &Mesh, cell: usize) -> [u32; 3] {
    mesh.elements().get(cell).try_into().expect("a triangle")
}

/// Whether two cells share `count` vertices.
fn share(mesh: &Mesh, a: usize, b: usize, count: usize) -> bool {
    let others = corners(mesh, b);
    corners(mesh, a).iter().filter(|corner| others.contains(corner)).count() == count
}

fn edges_of(mesh: &Mesh, cell: usize) -> [u64; 3] {
    let [a, b, c] = corners(mesh, cell).map(u64::from);
    [(a, b), (b, c), (c, a)].map(|(a, b)| a.min(b) << 32 | a.max(b))
}

#[test]
fn each_bisection_makes_four_triangles_of_one_with_three_neighbours_each() {
    for bisections in 0..4 {
        let grid = IcosahedralGrid::new(bisections).expect("a grid");
        let (mesh, cells) = (grid.mesh(), 20 << (2 * bisections));
        assert_eq!((mesh.elements().len(), mesh.vertices()), (cells, cells / 2 + 2));
        assert_eq!(grid.points().len(), mesh.vertices());
        for cell in 0..cells {
            let neighbours = (0..cells).filter(|&other| share(mesh, cell, other, 2)).count();
            assert_eq!(neighbours, 3, "{cell} after {bisections}");
        }
        let mut degrees = vec![0; mesh.vertices()];
        mesh.elements().connectivity().iter().for_each(|&vertex| degrees[vertex as usize] += 1);
        assert_eq!(degrees.iter().filter(|&&degree| degree == 5).count(), 12);
        assert!(degrees.iter().all(|degree| matches!(degree, 5 | 6)));
    }
}

#[test]
fn triangles_are_counterclockwise_and_nearly_equal() {
    let grid = IcosahedralGrid::new(3).expect("a grid");
    let dot = |a: [f64; 3], b: [f64; 3]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let volumes = (0..grid.mesh().elements().len()).map(|cell| {
        let [a, b, c] = corners(grid.mesh(), cell).map(|vertex| grid.points()[vertex as usize]);
        dot(a, [b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]])
    });
    let volumes: Vec<f64> = volumes.collect();
    let (least, most) = volumes.iter().fold((1f64, 0f64), |(least, most), &v| (least.min(v), most.max(v)));
    assert!(least > 0.0 && most < 2.0 * least, "{least} to {most}");
    assert!(grid.points().iter().all(|&point| (dot(point, point) - 1.0).abs() < 1e-14));
    // The triangles of a face of the icosahedron lie in it.
    let coarse = IcosahedralGrid::new(0).expect("a grid");
    for cell in 0..volumes.len() {
        let middle = |grid: &IcosahedralGrid, cell: usize| {
            let points = corners(grid.mesh(), cell).map(|vertex| grid.points()[vertex as usize]);
            [0, 1, 2].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>())
        };
        let here = middle(&grid, cell);
        let nearest =
            (0..20).max_by(|&a, &b| dot(here, middle(&coarse, a)).total_cmp(&dot(here, middle(&coarse, b))));
        assert_eq!(nearest, Some(cell / 64));
    }
}

#[test]
fn more_bisections_than_numbers_count_are_refused() {
    let error = IcosahedralGrid::new(14).expect_err("2^28 triangles a face");
    assert_eq!(error, MeshError::Bisections { bisections: 14, most: 13 });
    let tetrahedron = Mesh::new(4, 4, vec![0, 1, 2, 3]).and_then(Mesh::solid).expect("a mesh");
    let one = Partition::block(1, 1).expect("a partition");
    assert_eq!(tetrahedron.icon_halos(&one, 0).expect_err("a solid"), MeshError::NoSurface);
}

#[test]
#[ignore = "run by the test below, in processes that may not have much memory"]
fn in_little_memory() {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    let made = match IcosahedralGrid::new(7) {
        Ok(grid) => grid.points().len() == (10 << 14) + 2,
        Err(error) => {
            assert_eq!(error, MeshError::Memory { vertices: (10 << 14) + 2 });
            false
        }
    };
    println!("grid made: {made}, in {}", size.trim());
}

#[test]
fn a_grid_for_which_there_is_no_memory_is_an_error() {
    let run = |limit: &str| {
        let done = Command::new("sh")
            .args(["-c", &format!("ulimit -v {limit} && exec \"$0\" --exact icosahedral::in_little_memory --ignored --nocapture")])
            .arg(std::env::current_exe().expect("this program"))
            // Otherwise the thread of the test takes its memory at once.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{limit} kB: {done:?}");
        let (_, rest) = said.split_once("grid made: ").expect("an outcome");
        let (made, rest) = rest.split_once(", in ").expect("the size of the process");
        let kilobytes = rest.split_whitespace().next().and_then(|size| size.parse::<usize>().ok());
        (made == "true", kilobytes.expect("a number"))
    };
    let (made, before) = run("unlimited");
    assert!(made);
    // The points take 4 MB, the triangles as much, what makes the last of them 4.4 MB more.
    let outcomes: Vec<bool> = (1..12).map(|step| run(&(before + step * 2048).to_string()).0).collect();
    assert_eq!((outcomes.first(), outcomes.last()), (Some(&false), Some(&true)), "{outcomes:?}");
}

/// Level and owner of each cell, vertex or edge that is local, by global number.
type Local = BTreeMap<u64, (usize, usize)>;

/// ICON's rules, literally, over all pairs of cells: the local cells, vertices and edges.
fn brute_force(mesh: &Mesh, owners: &[usize], part: usize) -> [Local; 3] {
    let all = 0..owners.len();
    let own: Vec<usize> = all.clone().filter(|&cell| owners[cell] == part).collect();
    let others: Vec<usize> = all.clone().filter(|&cell| owners[cell] != part).collect();
    // Edges between own cells and others, and their ends.
    let edges =
        |cells: &[usize]| -> BTreeSet<u64> { cells.iter().flat_map(|&cell| edges_of(mesh, cell)).collect() };
    let cut: BTreeSet<u64> = edges(&own).intersection(&edges(&others)).copied().collect();
    let cut_vertices: BTreeSet<u64> = cut.iter().flat_map(|edge| [edge >> 32, edge & 0xffff_ffff]).collect();
    let at_line =
        |edge: u64| cut_vertices.contains(&(edge >> 32)) || cut_vertices.contains(&(edge & 0xffff_ffff));

    let mut cells = Local::new();
    for cell in all.clone() {
        let level = if owners[cell] == part {
            0
        } else if edges_of(mesh, cell).iter().any(|edge| cut.contains(edge)) {
            1
        } else if corners(mesh, cell).iter().any(|&corner| cut_vertices.contains(&corner.into())) {
            2
        } else {
            continue;
        };
        cells.insert(cell as u64, (level, owners[cell]));
    }
    let highest =
        |has: &dyn Fn(usize) -> bool| all.clone().filter(|&cell| has(cell)).map(|cell| owners[cell]).max();
    let (mut vertices, mut sides) = (Local::new(), Local::new());
    for cell in cells.keys().map(|&cell| cell as usize) {
        for vertex in corners(mesh, cell) {
            let owner = highest(&|cell| corners(mesh, cell).contains(&vertex)).expect("the cell");
            let level = match cut_vertices.contains(&vertex.into()) {
                _ if owner == part => 0,
                true => 1,
                false => 2,
            };
            vertices.insert(vertex.into(), (level, owner));
        }
        for edge in edges_of(mesh, cell) {
            let owner = highest(&|cell| edges_of(mesh, cell).contains(&edge)).expect("the cell");
            let level = match edge {
                _ if owner == part => 0,
                edge if cut.contains(&edge) => 1,
                edge if at_line(edge) => 2,
                _ => 3,
            };
            sides.insert(edge, (level, owner));
        }
    }
    [cells, vertices, sides]
}

fn check(domain: &UnstructuredDomain, owned: usize, part: usize, due: &Local, levels: usize) {
    let mut order: Vec<(usize, usize, u64)> =
        due.iter().map(|(&id, &(level, owner))| (level, owner, id)).collect();
    order.sort_unstable();
    assert_eq!(domain.id(), part as u64);
    assert_eq!(domain.cells(), order.iter().map(|cell| cell.2).collect::<Vec<_>>());
    assert_eq!(owned, order.iter().filter(|cell| cell.0 == 0).count());
    let end = |level: usize| order.iter().filter(|cell| cell.0 <= level).count();
    assert_eq!(domain.levels(), (0..=levels).map(end).collect::<Vec<_>>());
}

fn check_connectivity(mesh: &Mesh, halos: &IconHalos) {
    let global = |&local: &u32| halos.vertices().cells()[local as usize] as u32;
    let local: &Elements = halos.local_cells();
    assert_eq!(local.len(), halos.cells().cells().len());
    for (&id, vertices) in halos.cells().cells().iter().zip(local.iter()) {
        assert_eq!(vertices.iter().map(global).collect::<Vec<_>>(), corners(mesh, id as usize));
    }
    let edges = halos.edges();
    assert_eq!(edges.vertices().len(), edges.domain().cells().len());
    for (&id, ends) in edges.domain().cells().iter().zip(edges.vertices()) {
        assert_eq!(id, u64::from(global(&ends[0])) << 32 | u64::from(global(&ends[1])));
    }
}

/// Checks that each halo cell comes from its one owner.
fn check_pattern(domains: Vec<UnstructuredDomain>, all: usize) {
    let ranks: Vec<Vec<_>> = domains.iter().map(|domain| vec![domain.clone()]).collect();
    let patterns: Vec<_> = resolve(&ranks).into_iter().map(|outcome| outcome.expect("a pattern")).collect();
    let written = deliver(&ranks, &patterns);
    let mut owner = BTreeMap::new();
    for domain in &domains {
        for id in domain.owned() {
            assert_eq!(owner.insert(id, domain.id()), None, "{id} has two owners");
        }
    }
    assert_eq!(owner.len(), all);
    for domain in &domains {
        for (id, from) in domain.cells().iter().zip(&written[&domain.id()]).skip(domain.levels()[0]) {
            assert_eq!(from, &[(owner[id], *id)]);
        }
    }
}

fn check_all(mesh: &Mesh, partition: &Partition) {
    let halos: Vec<IconHalos> =
        (0..partition.ranks()).map(|part| mesh.icon_halos(partition, part).expect("halos")).collect();
    for (part, halos) in halos.iter().enumerate() {
        let [cells, vertices, edges] = brute_force(mesh, partition.owners(), part);
        check(halos.cells(), halos.owned_cells(), part, &cells, 2);
        check(halos.vertices(), halos.owned_vertices(), part, &vertices, 2);
        check(halos.edges().domain(), halos.edges().owned(), part, &edges, 3);
        check_connectivity(mesh, halos);
    }
    let cells = mesh.elements().len();
    check_pattern(halos.iter().map(|halos| halos.cells().clone()).collect(), cells);
    check_pattern(halos.iter().map(|halos| halos.vertices().clone()).collect(), mesh.vertices());
    let edges: BTreeSet<u64> = (0..cells).flat_map(|cell| edges_of(mesh, cell)).collect();
    check_pattern(halos.iter().map(|halos| halos.edges().domain().clone()).collect(), edges.len());
}

#[test]
fn halos_of_icon_are_those_of_brute_force() {
    let grid = IcosahedralGrid::new(2).expect("a grid");
    let graph = grid.mesh().element_graph(2).expect("a graph");
    for ranks in [1, 2, 3, 5, 8] {
        let metis = Partition::metis(&graph, ranks).expect("a partition");
        check_all(grid.mesh(), &metis);
        // Blocks of numbers, of which some touch in one vertex only.
        check_all(grid.mesh(), &Partition::block(320, ranks).expect("a partition"));
    }
}

#[test]
fn a_vertex_in_which_two_parts_meet_without_an_edge_is_on_level_2() {
    let mesh = Mesh::new(5, 3, vec![0, 1, 2, 2, 3, 4]).expect("a mesh");
    let partition = Partition::given(vec![0, 1], 2).expect("a partition");
    check_all(&mesh, &partition);
    let halos = mesh.icon_halos(&partition, 0).expect("halos");
    // No edge lies on the cutting line. Vertex 2 belongs to part 1.
    assert_eq!((halos.vertices().cells(), halos.vertices().levels()), (&[0, 1, 2][..], &[2, 2, 3][..]));
}

#[test]
fn halos_of_parts_without_shape_and_of_a_limited_area_are_those_of_brute_force() {
    let grid = IcosahedralGrid::new(1).expect("a grid");
    let mut random = Random(29);
    for ranks in 2..5 {
        // The last part may have no cell.
        let owners = (0..80).map(|_| random.below(ranks)).collect();
        check_all(grid.mesh(), &Partition::given(owners, ranks + 1).expect("a partition"));
    }
    // A quarter of the sphere, with borders. Its vertices are numbered anew.
    let mut names = BTreeMap::new();
    let mut triangles = Vec::new();
    for vertex in (0..20).flat_map(|cell| corners(grid.mesh(), cell)) {
        let next = names.len() as u32;
        triangles.push(*names.entry(vertex).or_insert(next));
    }
    let area = Mesh::new(names.len(), 3, triangles).expect("a mesh");
    let owners = (0..20).map(|_| random.below(3)).collect();
    check_all(&area, &Partition::given(owners, 3).expect("a partition"));
}

/// What a rank needs of a mesh around a part, with its elements and vertices in any order: the cells of the part, and those up to two
/// steps over shared vertices away.
fn part_of(mesh: &Mesh, partition: &Partition, part: usize, random: &mut Random) -> MeshPart {
    let mut cells: BTreeSet<usize> =
        (0..partition.owners().len()).filter(|&cell| partition.owners()[cell] == part).collect();
    for _ in 0..2 {
        let vertices: BTreeSet<u32> = cells.iter().flat_map(|&cell| corners(mesh, cell)).collect();
        let touches = |cell: &usize| corners(mesh, *cell).iter().any(|corner| vertices.contains(corner));
        cells.extend((0..mesh.elements().len()).filter(touches));
    }
    let vertices: BTreeSet<u32> = cells.iter().flat_map(|&cell| corners(mesh, cell)).collect();
    let (mut cells, mut vertices) = (Vec::from_iter(cells), Vec::from_iter(vertices));
    random.shuffle(&mut cells);
    random.shuffle(&mut vertices);
    let local: BTreeMap<u32, u32> = vertices.iter().copied().zip(0..).collect();
    let connectivity =
        cells.iter().flat_map(|&cell| corners(mesh, cell)).map(|corner| local[&corner]).collect();
    let owners = cells.iter().map(|&cell| partition.owners()[cell]).collect();
    let owners = (Partition::given(owners, partition.ranks()).expect("a partition"), part);
    let here = Mesh::new(vertices.len(), 3, connectivity).expect("a mesh");
    let (vertices, cells) =
        (vertices.into_iter().map(u64::from).collect(), cells.into_iter().map(|cell| cell as u64).collect());
    MeshPart::new(here, vertices, cells, owners, 1).expect("a part")
}

#[test]
fn a_part_of_a_mesh_has_the_halos_that_the_whole_mesh_has() {
    let grid = IcosahedralGrid::new(2).expect("a grid");
    let mut random = Random(30);
    for ranks in [1, 3, 7] {
        // The last part has no cell.
        let owners = (0..320).map(|cell| cell * ranks / 320).collect();
        let partition = Partition::given(owners, ranks + 1).expect("a partition");
        for part in 0..=ranks {
            let whole = grid.mesh().icon_halos(&partition, part).expect("halos");
            let here = part_of(grid.mesh(), &partition, part, &mut random);
            assert_eq!(here.icon_halos().expect("halos"), whole, "part {part} of {ranks}");
        }
    }
}

#[test]
fn a_part_made_for_no_halo_has_none_of_icon() {
    let mesh = Mesh::new(3, 3, vec![0, 1, 2]).expect("a mesh");
    let one = Partition::block(1, 1).expect("a partition");
    let part = |vertices, depth| {
        MeshPart::new(mesh.clone(), vertices, vec![7], (one.clone(), 0), depth).expect("a part")
    };
    let error = part(vec![4, 5, 6], 0).icon_halos().expect_err("depth 0");
    assert_eq!(error, MeshError::DepthBeyondPart { depth: 1, holds: 0 });
    let error = part(vec![4, 1 << 32, 6], 1).icon_halos().expect_err("no number of an edge");
    assert_eq!(error, MeshError::EdgeVertex { id: 1 << 32 });
}

#[test]
fn edges_take_other_numbers_and_are_in_their_order() {
    let grid = IcosahedralGrid::new(1).expect("a grid");
    let partition =
        Partition::metis(&grid.mesh().element_graph(2).expect("a graph"), 3).expect("a partition");
    // Numbers in the opposite order.
    let renumbered = |id: u64| (1 << 40) - id;
    for part in 0..3 {
        let halos = grid.mesh().icon_halos(&partition, part).expect("halos");
        let ids: Vec<u64> = halos.edges().domain().cells().iter().map(|&id| renumbered(id)).collect();
        let [_, _, edges] = brute_force(grid.mesh(), partition.owners(), part);
        let due = edges.into_iter().map(|(id, place)| (renumbered(id), place)).collect();
        let other = halos.clone().with_edge_ids(&ids).expect("halos");
        check(other.edges().domain(), other.edges().owned(), part, &due, 3);
        for (&id, ends) in other.edges().domain().cells().iter().zip(other.edges().vertices()) {
            let [low, high] = ends.map(|end| other.vertices().cells()[end as usize]);
            assert_eq!(renumbered(id), low << 32 | high);
        }
        // Back to the former numbers.
        let ids: Vec<u64> = other.edges().domain().cells().iter().map(|&id| renumbered(id)).collect();
        assert_eq!(other.with_edge_ids(&ids).expect("halos"), halos);
    }
    let halos = grid.mesh().icon_halos(&partition, 0).expect("halos");
    let edges = halos.edges().domain().cells().len();
    let error = halos.clone().with_edge_ids(&[]).expect_err("no numbers");
    assert_eq!(error, MeshError::Count { what: "edges", given: 0, needed: edges });
    let error = halos.with_edge_ids(&vec![5; edges]).expect_err("one number");
    assert_eq!(error, MeshError::SameId { what: "edges", id: 5, first: 0, second: 1 });
}
