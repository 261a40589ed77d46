//! Meshes, their domains and their partitions, compared with brute force.

use crate::simulated::{Random, deliver, resolve};
use halocline_plan::{Cells, Graph, Mesh, MeshDomains, MeshError, Partition, PartitionError, Shared};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::process::Command;

type Set = BTreeSet<usize>;

/// Elements of any shape between any vertices, some degenerate, some vertices without an element.
fn random_mesh(seed: u64, vertices: usize, elements: usize, arity: Option<usize>) -> Mesh {
    let mut random = Random(seed);
    let (mut offsets, mut connectivity) = (vec![0], Vec::new());
    for _ in 0..elements {
        let near = random.below(vertices);
        for _ in 0..arity.unwrap_or(1 + random.below(5)) {
            connectivity.push(((near + random.below(6)) % vertices) as u32);
        }
        offsets.push(connectivity.len());
    }
    match arity {
        Some(arity) => Mesh::new(vertices, arity, connectivity),
        None => Mesh::mixed(vertices, offsets, connectivity),
    }
    .expect("a mesh")
}

fn random_partition(seed: u64, cells: usize, ranks: usize) -> Partition {
    let mut random = Random(seed);
    Partition::given((0..cells).map(|_| random.below(ranks)).collect(), ranks).expect("a partition")
}

/// Element -> its vertices.
fn corner_sets(mesh: &Mesh) -> Vec<Set> {
    mesh.elements().iter().map(|corners| corners.iter().map(|&vertex| vertex as usize).collect()).collect()
}

fn ids(cells: &[u64]) -> Vec<usize> {
    cells.iter().map(|&id| id as usize).collect()
}

/// Checks the guarantees of [`MeshDomains`] for one rank.
fn check_domains(mesh: &Mesh, rank: usize, owners: (&[usize], &[usize]), domains: &MeshDomains) {
    let (vertex_owners, element_owners) = owners;
    let corners = corner_sets(mesh);
    let owned_vertices: Set = (0..mesh.vertices()).filter(|&v| vertex_owners[v] == rank).collect();
    let owned_elements: Set = (0..corners.len()).filter(|&e| element_owners[e] == rank).collect();
    let is_local = |element: &usize| {
        owned_elements.iter().any(|&owned| !corners[owned].is_disjoint(&corners[*element]))
            || !corners[*element].is_disjoint(&owned_vertices)
    };
    let elements: Set = (0..corners.len()).filter(is_local).collect();
    let vertices: Set =
        owned_vertices.iter().chain(elements.iter().flat_map(|&e| &corners[e])).copied().collect();

    let local = |here: &Set, owners: &[usize]| {
        let mut cells: Vec<usize> = here.iter().copied().collect();
        cells.sort_by_key(|&cell| (owners[cell] != rank, owners[cell], cell));
        cells
    };
    assert_eq!(ids(domains.vertices().cells()), local(&vertices, vertex_owners));
    assert_eq!(ids(domains.elements().cells()), local(&elements, element_owners));
    assert_eq!(domains.owned_vertices(), owned_vertices.len());
    assert_eq!(domains.owned_elements(), owned_elements.len());
    let local_elements: Vec<Vec<usize>> = domains
        .local_elements()
        .iter()
        .map(|local| local.iter().map(|&v| domains.vertices().cells()[v as usize] as usize).collect())
        .collect();
    let expected: Vec<Vec<usize>> = ids(domains.elements().cells())
        .into_iter()
        .map(|e| mesh.elements().get(e).iter().map(|&v| v as usize).collect())
        .collect();
    assert_eq!(local_elements, expected);
}

/// Checks that the domains of all ranks make a pattern that fills every halo cell from its owner, one
/// block of halo cells for each peer.
fn check_pattern(owners: &[usize], domains: Vec<halocline_plan::UnstructuredDomain>) {
    let ranks: Vec<_> = domains.into_iter().map(|domain| vec![domain]).collect();
    let patterns: Vec<_> = resolve(&ranks).into_iter().map(|outcome| outcome.expect("a pattern")).collect();
    for (&rank, cells) in &deliver(&ranks, &patterns) {
        for (local, written) in cells.iter().enumerate() {
            let id = ranks[rank as usize][0].cells()[local];
            let owner = owners[id as usize] as u64;
            let expected = if owner == rank { vec![] } else { vec![(owner, id)] };
            assert_eq!(written, &expected);
        }
    }
    let receives = patterns.iter().flat_map(|pattern| &pattern.peers).flat_map(|peer| &peer.receives);
    for transfer in receives {
        assert!(matches!(&transfer.target, Cells::Runs(runs) if runs.len() == 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn domains_hold_what_they_promise_and_make_patterns(
        seed: u64,
        vertices in 1usize..40,
        elements in 0usize..40,
        arity in prop_oneof![Just(None), (1usize..5).prop_map(Some)],
        ranks in 1usize..6,
        by_vertex: bool,
    ) {
        let mesh = random_mesh(seed, vertices, elements, arity);
        let corners = corner_sets(&mesh);
        let partition = random_partition(seed ^ 1, if by_vertex { vertices } else { elements }, ranks);
        let given = partition.owners();
        let lowest = |owners: &mut dyn Iterator<Item = usize>| owners.min().unwrap_or(0);
        let other: Vec<usize> = if by_vertex {
            corners.iter().map(|c| lowest(&mut c.iter().map(|&v| given[v]))).collect()
        } else {
            let around = |v| (0..elements).filter(|&e| corners[e].contains(&v)).map(|e| given[e]).collect();
            (0..vertices).map(|v| lowest(&mut Vec::into_iter(around(v)))).collect()
        };
        let (vertex_owners, element_owners) = if by_vertex { (given, &*other) } else { (&*other, given) };
        let domains: Vec<MeshDomains> = (0..ranks)
            .map(|rank| {
                let domains = match by_vertex {
                    true => mesh.domains_by_vertex(&partition, rank),
                    false => mesh.domains_by_element(&partition, rank),
                };
                domains.expect("a partition of this mesh")
            })
            .collect();
        for (rank, domains) in domains.iter().enumerate() {
            check_domains(&mesh, rank, (vertex_owners, element_owners), domains);
        }
        check_pattern(vertex_owners, domains.iter().map(|d| d.vertices().clone()).collect());
        check_pattern(element_owners, domains.iter().map(|d| d.elements().clone()).collect());
    }

    #[test]
    fn graphs_join_what_shares_vertices(
        seed: u64,
        vertices in 1usize..30,
        elements in 0usize..30,
        common in 0usize..4,
    ) {
        let mesh = random_mesh(seed, vertices, elements, None);
        let corners = corner_sets(&mesh);
        let graph = mesh.vertex_graph().expect("a graph");
        prop_assert_eq!(graph.len(), vertices);
        for a in 0..vertices {
            let joined = |&b: &usize| a != b && corners.iter().any(|c| c.contains(&a) && c.contains(&b));
            let expected: Vec<u32> = (0..vertices).filter(joined).map(|b| b as u32).collect();
            prop_assert_eq!(graph.neighbours(a), expected);
        }
        let graph = mesh.element_graph(common).expect("a graph");
        prop_assert_eq!(graph.len(), elements);
        for a in 0..elements {
            let shares = |&b: &usize| {
                a != b && corners[a].intersection(&corners[b]).count() >= common.max(1)
            };
            let expected: Vec<u32> = (0..elements).filter(shares).map(|b| b as u32).collect();
            prop_assert_eq!(graph.neighbours(a), expected);
        }
    }
}

#[test]
#[ignore = "run by the test below, in a process that may not have much memory"]
fn in_little_memory() {
    let mesh = Mesh::new(1 << 31, 3, vec![0, 1, 2]).expect("a mesh");
    let partition = Partition::given(vec![0], 1).expect("a partition");
    let none = MeshError::Memory { vertices: 1 << 31 };
    assert_eq!(mesh.vertex_graph().err(), Some(none.clone()));
    assert_eq!(mesh.element_graph(1).err(), Some(none.clone()));
    assert_eq!(mesh.domains_by_element(&partition, 0).err(), Some(none.clone()));
    assert_eq!(mesh.halos(&partition, 0, 1, Shared::Vertex).err(), Some(none));
}

#[test]
fn a_failed_allocation_is_an_error() {
    let done = Command::new("sh")
        .args(["-c", "ulimit -v 4194304 && exec \"$0\" --exact mesh::in_little_memory --ignored"])
        .arg(std::env::current_exe().expect("this program"))
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{done:?}");
}

#[test]
fn an_invalid_mesh_is_refused() {
    let corners = vec![0, 1, 2, 2, 1, 3];
    let vertex = MeshError::Vertex { element: 1, position: 2, vertex: 3, vertices: 3 };
    assert_eq!(Mesh::new(3, 3, corners.clone()), Err(vertex.clone()));
    assert_eq!(
        vertex.to_string(),
        "vertex 2 of element 1 is 3, but the mesh has 3 vertices, counted from 0; correct the connectivity, or the number of vertices"
    );
    assert!(Mesh::new(4, 3, corners.clone()).is_ok());
    assert_eq!(Mesh::new(4, 4, corners.clone()), Err(MeshError::Arity { arity: 4, entries: 6 }));
    for entries in [corners.clone(), vec![]] {
        assert_eq!(Mesh::new(4, 0, entries), Err(MeshError::NoVertices));
    }
    let too_many = MeshError::TooLarge { what: "vertices", count: usize::MAX };
    assert_eq!(Mesh::new(usize::MAX, 3, vec![]), Err(too_many));

    let mixed = |offsets: &[usize]| Mesh::mixed(4, offsets.to_vec(), corners.clone()).map(drop);
    assert_eq!(mixed(&[0, 4, 6]), Ok(()));
    for offsets in [&[][..], &[0], &[0, 7], &[1, 6], &[0, 4, 3, 6]] {
        assert_eq!(mixed(offsets), Err(MeshError::Offsets { entries: 6 }), "{offsets:?}");
    }
    assert_eq!(mixed(&[0, 3, 3, 6]), Err(MeshError::EmptyElement { element: 1 }));
}

#[test]
fn a_partition_of_another_mesh_is_refused() {
    let mesh = Mesh::new(4, 3, vec![0, 1, 2, 2, 1, 3]).expect("a mesh");
    let partition = Partition::block(3, 2).expect("a partition");
    let length = |what, needed| Err(MeshError::PartitionLength { what, given: 3, needed });
    assert_eq!(mesh.domains_by_vertex(&partition, 0), length("vertices", 4));
    assert_eq!(mesh.domains_by_element(&partition, 0), length("elements", 2));
    let partition = Partition::block(4, 2).expect("a partition");
    let rank = Err(MeshError::Rank { rank: 2, ranks: 2 });
    assert_eq!(mesh.domains_by_vertex(&partition, 2), rank);
}

#[test]
fn blocks_differ_by_one_cell_at_most() {
    let owners = |cells, ranks| Partition::block(cells, ranks).map(|p| p.owners().to_vec());
    assert_eq!(owners(7, 3), Ok(vec![0, 0, 0, 1, 1, 2, 2]));
    assert_eq!(owners(2, 2), Ok(vec![0, 1]));
    assert_eq!(owners(5, 0), Err(PartitionError::NoRanks));
    let more = PartitionError::MoreRanksThanCells { ranks: 3, cells: 2 };
    assert_eq!(owners(2, 3), Err(more.clone()));
    assert_eq!(more.to_string(), "3 ranks for 2 cells; use at most one rank for each cell");
}

#[test]
fn a_given_partition_may_leave_ranks_empty_but_not_name_unknown_ranks() {
    let partition = Partition::given(vec![2, 0, 2], 4).expect("a partition");
    assert_eq!(partition.counts(), [1, 0, 2, 0]);
    let owner = PartitionError::Owner { cell: 1, owner: 4, ranks: 4 };
    assert_eq!(Partition::given(vec![0, 4], 4), Err(owner));
    let (most, ranks) = (u32::MAX as usize, 1 << 32);
    assert!(Partition::given(vec![], most).is_ok());
    assert_eq!(Partition::given(vec![], ranks), Err(PartitionError::TooManyRanks { ranks }));
}

#[test]
fn a_partition_of_more_cells_than_memory_holds_is_refused() {
    let cells = usize::MAX / 8;
    assert_eq!(Partition::block(cells, 1), Err(PartitionError::Memory { cells }));
}

#[test]
fn an_invalid_graph_is_refused() {
    assert_eq!(Graph::new(&[0, 2], &[0]), Err(PartitionError::Offsets { neighbours: 1 }));
    assert_eq!(Graph::new(&[], &[]), Err(PartitionError::Offsets { neighbours: 0 }));
    let neighbour = PartitionError::Neighbour { cell: 0, neighbour: 2, cells: 2 };
    assert_eq!(Graph::new(&[0, 1, 2], &[2, 0]), Err(neighbour));
    let one_way = PartitionError::OneWay { cell: 1, neighbour: 2 };
    assert_eq!(Graph::new(&[0, 1, 3, 3], &[1, 0, 2]), Err(one_way));
    // Self-loops and repeated neighbours are ignored.
    let graph = Graph::new(&[0, 3, 4], &[1, 0, 1, 0]).expect("a graph");
    assert_eq!(
        (graph.neighbours(0), graph.neighbours(1), graph.neighbours(2)),
        (&[1][..], &[0][..], &[][..])
    );
}

#[cfg(feature = "metis")]
mod metis {
    use super::*;

    /// Two triangles in each square of a grid.
    fn triangles(side: u32) -> Mesh {
        let vertex = |i, j| i * (side + 1) + j;
        let square = |i, j| {
            let [a, b, c, d] = [vertex(i, j), vertex(i + 1, j), vertex(i + 1, j + 1), vertex(i, j + 1)];
            [a, b, c, a, c, d]
        };
        let connectivity = (0..side * side).flat_map(|at| square(at / side, at % side)).collect();
        Mesh::new((side as usize + 1).pow(2), 3, connectivity).expect("a mesh")
    }

    fn cut(graph: &Graph, partition: &Partition) -> usize {
        let owners = partition.owners();
        let crossing =
            |a: usize| graph.neighbours(a).iter().filter(|&&b| owners[b as usize] != owners[a]).count();
        (0..graph.len()).map(crossing).sum::<usize>() / 2
    }

    #[test]
    fn parts_are_balanced_and_cut_less_than_blocks() {
        let mesh = triangles(30);
        for graph in [mesh.vertex_graph(), mesh.element_graph(2)] {
            let graph = graph.expect("a graph");
            for ranks in [2, 3, 4, 5, 8] {
                let partition = Partition::metis(&graph, ranks).expect("a partition");
                let (even, counts) = (graph.len() as f64 / ranks as f64, partition.counts());
                assert!(counts.iter().all(|&n| (n as f64 / even - 1.0).abs() < 0.1), "{counts:?}");
                let blocks = Partition::block(graph.len(), ranks).expect("a partition");
                let (ours, theirs) = (cut(&graph, &partition), cut(&graph, &blocks));
                assert!(ours <= theirs, "{ranks} ranks: {ours} edges cut, {theirs} by blocks");
            }
        }
    }

    #[test]
    fn threads_that_partition_at_the_same_time_get_the_same() {
        let graph = triangles(40).vertex_graph().expect("a graph");
        let expected = Partition::metis(&graph, 5);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Partition::metis(&graph, 5))).collect();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), expected);
            }
        });
        assert!(expected.is_ok());
    }

    #[test]
    fn inputs_that_metis_rejects_are_handled() {
        let graph = triangles(1).vertex_graph().expect("a graph");
        assert_eq!(Partition::metis(&graph, 1), Partition::block(4, 1));
        let more = PartitionError::MoreRanksThanCells { ranks: 5, cells: 4 };
        assert_eq!(Partition::metis(&graph, 5), Err(more));
        assert_eq!(Partition::metis(&graph, 0), Err(PartitionError::NoRanks));
        let isolated = Graph::new(&[0; 5], &[]).expect("a graph");
        assert_eq!(Partition::metis(&isolated, 3), Partition::block(4, 3));
        let empty = Graph::new(&[0], &[]).expect("a graph");
        let more = PartitionError::MoreRanksThanCells { ranks: 1, cells: 0 };
        assert_eq!(Partition::metis(&empty, 1), Err(more));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn small_and_disconnected_graphs_are_partitioned(
            seed: u64,
            vertices in 1usize..40,
            elements in 0usize..30,
            ranks in 1usize..40,
        ) {
            let graph = random_mesh(seed, vertices, elements, None).vertex_graph().expect("a graph");
            let ranks = ranks.min(vertices);
            let partition = Partition::metis(&graph, ranks).expect("a partition");
            prop_assert_eq!(partition.owners().len(), vertices);
            prop_assert_eq!(partition.ranks(), ranks);
        }
    }
}
