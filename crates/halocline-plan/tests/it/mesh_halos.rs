//! Halos of meshes of any depth, compared with brute force.

use crate::simulated::{Random, deliver, resolve};
use halocline_plan::{Cells, Mesh, MeshError, MeshHalos, MeshPart, Partition, Shared, UnstructuredDomain};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Set = BTreeSet<u64>;

/// A mesh as sets of global numbers, for brute force.
struct Sets {
    /// Vertices, edges (as pairs) and facets of each element.
    vertices: Vec<Set>,
    edges: Vec<Set>,
    facets: Vec<BTreeSet<Set>>,
    owners: Vec<usize>,
}

fn pair(a: u64, b: u64) -> u64 {
    a.min(b) << 32 | a.max(b)
}

impl Sets {
    /// Of polygons.
    fn of_polygons(mesh: &Mesh, owners: &[usize]) -> Self {
        let corners = |e: usize| mesh.elements().get(e).iter().map(|&v| u64::from(v)).collect::<Vec<_>>();
        let around = |e: usize| {
            let c = corners(e);
            let ends = (0..c.len()).map(|at| (c[at], c[(at + 1) % c.len()])).filter(|(a, b)| a != b);
            ends.collect::<Vec<_>>()
        };
        let all = 0..mesh.elements().len();
        Self {
            vertices: all.clone().map(|e| corners(e).into_iter().collect()).collect(),
            edges: all.clone().map(|e| around(e).into_iter().map(|(a, b)| pair(a, b)).collect()).collect(),
            facets: all.map(|e| around(e).into_iter().map(|(a, b)| Set::from([a, b])).collect()).collect(),
            owners: owners.to_vec(),
        }
    }

    /// Of tetrahedra: all pairs are edges, all triples facets.
    fn of_tetrahedra(mesh: &Mesh, owners: &[usize]) -> Self {
        let mut sets = Self::of_polygons(mesh, owners);
        for (element, corners) in sets.vertices.iter().enumerate() {
            let pairs = corners.iter().flat_map(|&a| corners.iter().map(move |&b| (a, b)));
            sets.edges[element] = pairs.filter(|(a, b)| a < b).map(|(a, b)| pair(a, b)).collect();
            let without = |v: &u64| corners.iter().copied().filter(|other| other != v).collect();
            sets.facets[element] = corners.iter().map(without).collect();
        }
        sets
    }

    /// The distance of each element from those of `part`, up to `depth`.
    fn distances(&self, part: usize, depth: usize, shared: Shared) -> Vec<Option<usize>> {
        fn meet<T: Ord + Clone>(things: &[BTreeSet<T>]) -> BTreeMap<&T, Vec<usize>> {
            let mut around: BTreeMap<&T, Vec<usize>> = BTreeMap::new();
            for (element, things) in things.iter().enumerate() {
                things.iter().for_each(|thing| around.entry(thing).or_default().push(element));
            }
            around
        }
        fn neighbours<T: Ord + Clone>(things: &[BTreeSet<T>]) -> Vec<Vec<usize>> {
            let around = meet(things);
            things
                .iter()
                .map(|things| things.iter().flat_map(|thing| around[thing].clone()).collect())
                .collect()
        }
        let near = match shared {
            Shared::Vertex => neighbours(&self.vertices),
            Shared::Edge => neighbours(&self.edges),
            Shared::Facet => neighbours(&self.facets),
        };
        let mut distances: Vec<Option<usize>> =
            self.owners.iter().map(|&owner| (owner == part).then_some(0)).collect();
        for step in 1..=depth {
            let last: Vec<usize> =
                (0..near.len()).filter(|&element| distances[element] == Some(step - 1)).collect();
            for other in last.into_iter().flat_map(|element| &near[element]) {
                distances[*other] = distances[*other].or(Some(step));
            }
        }
        distances
    }

    /// The owner of each vertex, edge or facet.
    fn owners_of(&self, things: &[Set]) -> BTreeMap<u64, usize> {
        let mut owners = BTreeMap::new();
        for (things, &owner) in things.iter().zip(&self.owners) {
            for &thing in things {
                let lowest = owners.entry(thing).or_insert(owner);
                *lowest = owner.min(*lowest);
            }
        }
        owners
    }
}

/// Checks that a domain has the cells that brute force finds, in the documented order.
fn check_domain(
    domain: &UnstructuredDomain,
    owned: usize,
    (part, depth): (usize, usize),
    depths: &BTreeMap<u64, usize>,
    owners: &BTreeMap<u64, usize>,
) {
    let mut expected: Vec<(bool, usize, usize, u64)> = depths
        .iter()
        .map(|(&id, &depth)| match owners[&id] {
            owner if owner == part => (false, 0, owner, id),
            owner => (true, depth, owner, id),
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(domain.id(), part as u64);
    assert_eq!(domain.cells(), expected.iter().map(|cell| cell.3).collect::<Vec<_>>());
    assert_eq!(owned, expected.iter().filter(|cell| !cell.0).count());
    let end = |level: usize| expected.iter().filter(|cell| !cell.0 || cell.1 <= level).count();
    assert_eq!(domain.levels(), (0..=depth).map(end).collect::<Vec<_>>());
}

/// Checks the guarantees of [`MeshHalos`] for one part. `lonely` are vertices of no element.
fn check_halos(sets: &Sets, lonely: &Set, (part, depth): (usize, usize), shared: Shared, halos: &MeshHalos) {
    let distances = sets.distances(part, depth, shared);
    let here: Vec<(usize, usize)> =
        distances.iter().enumerate().filter_map(|(element, depth)| Some((element, (*depth)?))).collect();
    let element_depths = here.iter().map(|&(element, depth)| (element as u64, depth)).collect();
    let element_owners = sets.owners.iter().enumerate().map(|(element, &owner)| (element as u64, owner));
    let what = (part, depth);
    check_domain(halos.elements(), halos.owned_elements(), what, &element_depths, &element_owners.collect());

    let nearest = |things: &[Set]| {
        let mut depths: BTreeMap<u64, usize> = BTreeMap::new();
        for &(element, depth) in &here {
            for &thing in &things[element] {
                let nearest = depths.entry(thing).or_insert(depth);
                *nearest = depth.min(*nearest);
            }
        }
        depths
    };
    let (mut depths, mut owners) = (nearest(&sets.vertices), sets.owners_of(&sets.vertices));
    owners.extend(lonely.iter().map(|&vertex| (vertex, 0)));
    if part == 0 {
        depths.extend(lonely.iter().map(|&vertex| (vertex, 0)));
    }
    check_domain(halos.vertices(), halos.owned_vertices(), what, &depths, &owners);

    let edges = halos.edges().expect("edges");
    check_domain(edges.domain(), edges.owned(), what, &nearest(&sets.edges), &sets.owners_of(&sets.edges));
    let global = |local: u32| halos.vertices().cells()[local as usize];
    for (&id, &[a, b]) in edges.domain().cells().iter().zip(edges.vertices()) {
        assert_eq!(id, global(a) << 32 | global(b));
    }
    assert_eq!(edges.domain().cells().len(), edges.vertices().len());
    for (&id, corners) in halos.elements().cells().iter().zip(halos.local_elements().iter()) {
        let corners: Set = corners.iter().map(|&vertex| global(vertex)).collect();
        assert_eq!(corners, sets.vertices[id as usize]);
    }
    assert_eq!(halos.elements().cells().len(), halos.local_elements().len());
}

/// Checks that the domains of all parts make a pattern that fills every halo cell from its owner, with the
/// cells that a part sends for one depth contiguous.
fn check_pattern(domains: Vec<UnstructuredDomain>, parts_per_rank: usize, depth: usize) {
    let ranks: Vec<Vec<_>> = domains.chunks(parts_per_rank).map(<[_]>::to_vec).collect();
    let patterns: Vec<_> = resolve(&ranks).into_iter().map(|outcome| outcome.expect("a pattern")).collect();
    let written = deliver(&ranks, &patterns);
    let mut owner = BTreeMap::new();
    for domain in &domains {
        let owned = written[&domain.id()].iter().zip(domain.cells()).filter(|(from, _)| from.is_empty());
        owned.for_each(|(_, &id)| assert_eq!(owner.insert(id, domain.id()), None, "{id} has two owners"));
    }
    for (domain, cells) in &written {
        let domain = &domains[*domain as usize];
        for (&id, from) in domain.cells().iter().zip(cells).filter(|(_, from)| !from.is_empty()) {
            assert_eq!(from, &[(owner[&id], id)]);
        }
    }
    let all = patterns.iter().flat_map(|p| p.peers.iter().flat_map(|peer| &peer.receives).chain(&p.local));
    for transfer in all {
        assert!(matches!(&transfer.target, Cells::Runs(runs) if runs.len() <= depth + 1));
    }
}

fn check_all(mesh: &Mesh, sets: &Sets, partition: &Partition, depth: usize, shared: Shared) {
    let used: Set = sets.vertices.iter().flatten().copied().collect();
    let lonely: Set = (0..mesh.vertices() as u64).filter(|vertex| !used.contains(vertex)).collect();
    let parts = partition.ranks();
    let mut all = Vec::new();
    for part in 0..parts {
        let distances = sets.distances(part, depth, shared);
        let ends = distances.into_iter().flatten().max().unwrap_or(0);
        match mesh.halos(partition, part, depth, shared) {
            Ok(halos) => {
                assert!(ends == depth || ends == 0, "depth {depth} where the mesh ends at {ends}");
                check_halos(sets, &lonely, (part, depth), shared, &halos);
                all.push(halos);
            }
            Err(error) => {
                assert!(ends < depth);
                assert_eq!(error, MeshError::DepthBeyondMesh { part, depth, ends });
            }
        }
    }
    if all.len() == parts {
        for parts_per_rank in [1, 2, 3] {
            check_pattern(all.iter().map(|h| h.elements().clone()).collect(), parts_per_rank, depth);
            check_pattern(all.iter().map(|h| h.vertices().clone()).collect(), parts_per_rank, depth);
            let edges = all.iter().map(|h| h.edges().expect("edges").domain().clone());
            check_pattern(edges.collect(), parts_per_rank, depth);
        }
    }
}

const ALL: [Shared; 3] = [Shared::Vertex, Shared::Edge, Shared::Facet];

fn random_owners(seed: u64, elements: usize, parts: usize) -> Partition {
    let mut random = Random(seed);
    // Mostly in blocks, so that halos have some depth.
    let mut owner = 0;
    let owners = (0..elements).map(|_| {
        if random.below(4) == 0 {
            owner = random.below(parts);
        }
        owner
    });
    Partition::given(owners.collect(), parts).expect("a partition")
}

/// Polygons of one to five vertices, some degenerate, some vertices without an element.
fn random_mesh(seed: u64, vertices: usize, elements: usize) -> Mesh {
    let mut random = Random(seed);
    let (mut offsets, mut connectivity) = (vec![0], Vec::new());
    for element in 0..elements {
        let near = element * vertices / elements;
        for _ in 0..1 + random.below(5) {
            connectivity.push(((near + random.below(5)) % vertices) as u32);
        }
        offsets.push(connectivity.len());
    }
    Mesh::mixed(vertices, offsets, connectivity).expect("a mesh")
}

/// A box of cubes, each cut into six tetrahedra around its diagonal (H. W. Kuhn, "Some combinatorial
/// lemmas in topology", IBM J. Res. Dev. 4 (1960)), numbered at random.
fn tetrahedra(seed: u64, [l, m, n]: [usize; 3]) -> Mesh {
    let mut random = Random(seed);
    let mut names: Vec<u32> = (0..((l + 1) * (m + 1) * (n + 1)) as u32).collect();
    random.shuffle(&mut names);
    let vertex = |at: [usize; 3]| names[(at[0] * (m + 1) + at[1]) * (n + 1) + at[2]];
    let mut all = Vec::new();
    for (i, j, k) in (0..l).flat_map(|i| (0..m).flat_map(move |j| (0..n).map(move |k| (i, j, k)))) {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut at = [i, j, k];
            let mut corners = vec![vertex(at)];
            for axis in order {
                at[axis] += 1;
                corners.push(vertex(at));
            }
            random.shuffle(&mut corners);
            all.push(corners);
        }
    }
    random.shuffle(&mut all);
    Mesh::new(names.len(), 4, all.concat()).and_then(Mesh::solid).expect("a mesh")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn halos_of_polygons_are_those_of_brute_force(
        seed: u64,
        vertices in 1usize..40,
        elements in 0usize..40,
        parts in 1usize..6,
        depth in 0usize..4,
        shared in prop::sample::select(&ALL[..]),
    ) {
        let mesh = random_mesh(seed, vertices, elements);
        let partition = random_owners(seed ^ 1, elements, parts);
        check_all(&mesh, &Sets::of_polygons(&mesh, partition.owners()), &partition, depth, shared);
    }

    #[test]
    fn halos_of_tetrahedra_are_those_of_brute_force(
        seed: u64,
        sizes in prop::array::uniform3(1usize..4),
        parts in 1usize..5,
        depth in 0usize..3,
        shared in prop::sample::select(&ALL[..]),
    ) {
        let mesh = tetrahedra(seed, sizes);
        let partition = random_owners(seed ^ 1, mesh.elements().len(), parts);
        check_all(&mesh, &Sets::of_tetrahedra(&mesh, partition.owners()), &partition, depth, shared);
    }

    #[test]
    fn a_refined_part_has_the_halos_of_the_whole_refined_mesh(
        seed: u64,
        cells in (1usize..4, 1usize..4),
        segments in 1usize..5,
        parts in 1usize..4,
        depth in 0usize..6,
    ) {
        let coarse = rectangle(cells.0, cells.1);
        let partition = random_owners(seed, coarse.elements().len(), parts);
        // A single part makes the whole mesh, with global numbers.
        let single = Partition::block(coarse.elements().len(), 1).expect("a partition");
        let whole = coarse.refined_part(&single, 0, segments, 0).expect("a refinement");
        let whole_halos = whole.halos(0, Shared::Vertex).expect("no halo");
        let vertices = whole_halos.vertices().cells();
        let corners = whole_halos.local_elements().connectivity().iter();
        let fine = Mesh::new(vertices.len(), 3, corners.map(|&v| vertices[v as usize] as u32).collect());
        let fine = fine.expect("vertices are numbered without gaps");
        prop_assert_eq!(fine.elements().len(), coarse.elements().len() * segments * segments);
        let all = 0..fine.elements().len();
        prop_assert!(whole_halos.elements().cells().iter().copied().eq(all.clone().map(|e| e as u64)));

        let owners = all.map(|element| partition.owners()[element / (segments * segments)]);
        let fine_partition = Partition::given(owners.collect(), parts).expect("a partition");
        for (part, shared) in (0..parts).flat_map(|part| ALL.map(|shared| (part, shared))) {
            let refined = coarse.refined_part(&partition, part, segments, depth).expect("a refinement");
            let (here, expected) = (refined.halos(depth, shared), fine.halos(&fine_partition, part, depth, shared));
            match (here, expected) {
                (Ok(here), Ok(expected)) => {
                    prop_assert_eq!(here.elements(), expected.elements());
                    prop_assert_eq!(here.vertices(), expected.vertices());
                    prop_assert_eq!(here.edges(), expected.edges());
                    prop_assert_eq!(here.local_elements(), expected.local_elements());
                }
                (here, expected) => prop_assert_eq!(here.map(drop), expected.map(drop)),
            }
        }
    }
}

/// The numbers of one section of a mesh in Medit's format, line by line.
fn section(text: &str, name: &str) -> Vec<Vec<f64>> {
    let mut lines = text.lines().skip_while(|line| line.trim() != name).skip(1);
    let count = lines.next().and_then(|line| line.trim().parse().ok()).expect("how many lines there are");
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    lines.take(count).map(numbers).collect()
}

#[test]
fn halos_of_a_cylinder_of_tetrahedra_are_those_of_brute_force() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/sfepy/cylinder.mesh");
    let text = std::fs::read_to_string(path).expect("the mesh");
    let points: Vec<[f64; 3]> =
        section(&text, "Vertices").iter().map(|line| [line[0], line[1], line[2]]).collect();
    let corners: Vec<[u32; 4]> = section(&text, "Tetrahedra")
        .iter()
        .map(|line| std::array::from_fn(|at| line[at] as u32 - 1))
        .collect();
    assert_eq!((points.len(), corners.len()), (354, 1348));
    let centre = |corners: &[u32; 4]| {
        std::array::from_fn(|axis| corners.iter().map(|&v| points[v as usize][axis]).sum::<f64>() / 4.0)
    };
    let centres: Vec<[f64; 3]> = corners.iter().map(centre).collect();
    let mesh = Mesh::new(points.len(), 4, corners.concat()).and_then(Mesh::solid).expect("a mesh");
    for (parts, depth) in [(1, 1), (3, 3), (8, 0), (8, 1)] {
        let partition = Partition::bisection(&centres, None, parts).expect("a partition");
        let sets = Sets::of_tetrahedra(&mesh, partition.owners());
        for shared in ALL {
            check_all(&mesh, &sets, &partition, depth, shared);
        }
    }
}

/// A rectangle of `n` x `m` squares, each cut into two triangles.
fn rectangle(n: usize, m: usize) -> Mesh {
    let vertex = |i: usize, j: usize| (i * (m + 1) + j) as u32;
    let mut corners = Vec::new();
    for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
        let [a, b, c, d] = [vertex(i, j), vertex(i, j + 1), vertex(i + 1, j), vertex(i + 1, j + 1)];
        corners.extend(if (i + j) % 2 == 0 { [a, b, d, a, d, c] } else { [a, b, c, b, d, c] });
    }
    Mesh::new((n + 1) * (m + 1), 3, corners).expect("a mesh")
}

/// The triangles of FESOM's `pi` mesh.
fn ocean() -> Mesh {
    let text = include_str!("../../../../data/fesom-pi/elem2d.out");
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u32>().expect("a number"));
    let elements = numbers.next().expect("the number of elements") as usize;
    let corners: Vec<u32> = numbers.map(|number| number - 1).collect();
    assert_eq!(corners.len(), 3 * elements);
    let vertices = corners.iter().max().expect("a vertex") + 1;
    Mesh::new(vertices as usize, 3, corners).expect("a mesh")
}

#[test]
fn halos_of_the_ocean_are_those_of_brute_force() {
    let mesh = ocean();
    let partition = Partition::metis(&mesh.element_graph(2).expect("a graph"), 5).expect("a partition");
    let sets = Sets::of_polygons(&mesh, partition.owners());
    for (depth, shared) in [(1, Shared::Vertex), (3, Shared::Edge), (4, Shared::Vertex)] {
        check_all(&mesh, &sets, &partition, depth, shared);
    }
}

#[test]
fn a_depth_beyond_the_mesh_names_the_depth_at_which_it_ends() {
    let mesh = rectangle(1, 6);
    let partition = Partition::block(12, 3).expect("a partition");
    let beyond = |part, depth, ends| Err(MeshError::DepthBeyondMesh { part, depth, ends });
    let halos =
        |part, depth| mesh.halos(&partition, part, depth, Shared::Edge).map(|h| h.elements().cells().len());
    assert_eq!((halos(0, 8), halos(0, 9)), (Ok(12), beyond(0, 9, 8)));
    assert_eq!((halos(1, 4), halos(1, 1 << 16)), (Ok(12), beyond(1, 1 << 16, 4)));
    let says = beyond(1, 5, 4).expect_err("an error").to_string();
    assert!(says.contains("part 1") && says.contains("ends at depth 4"), "{says}");

    // A part without neighbours has no depth to exceed.
    let all = Partition::given(vec![1; 12], 3).expect("a partition");
    let halos = |part, depth| {
        mesh.halos(&all, part, depth, Shared::Vertex).map(|halos| halos.elements().cells().len())
    };
    assert_eq!((halos(1, 50), halos(0, 5), halos(2, 0)), (Ok(12), Ok(0), Ok(0)));
    assert_eq!(halos(1, usize::MAX), Err(MeshError::TooDeep { depth: usize::MAX, most: 1 << 16 }));
}

#[test]
fn edges_and_facets_of_solids_are_those_of_vtk() {
    // Two hexahedra side by side, a prism on one, a pyramid on the other, a tetrahedron at the prism's end.
    let (offsets, corners) = (
        [0, 8, 16, 22, 27, 31],
        [
            0, 1, 4, 3, 6, 7, 10, 9, 1, 2, 5, 4, 7, 8, 11, 10, 6, 7, 12, 9, 10, 13, 7, 8, 11, 10, 14, 6, 7,
            12, 15,
        ],
    );
    let mesh = Mesh::mixed(16, offsets.to_vec(), corners.to_vec()).and_then(Mesh::solid).expect("a mesh");
    let near = |shared| {
        let near_one = |element: usize| {
            let owners = (0..5).map(|other| usize::from(other != element)).collect();
            let partition = Partition::given(owners, 2).expect("a partition");
            let halos = mesh.halos(&partition, 0, 1, shared).expect("neighbours");
            halos.elements().cells()[1..].to_vec()
        };
        (0..5).map(near_one).collect::<Vec<_>>()
    };
    assert_eq!(near(Shared::Facet), [vec![1, 2], vec![0, 3], vec![0, 4], vec![1], vec![2]]);
    assert_eq!(
        near(Shared::Edge),
        [vec![1, 2, 3, 4], vec![0, 2, 3], vec![0, 1, 3, 4], vec![0, 1, 2], vec![0, 2]]
    );
    assert_eq!(near(Shared::Vertex)[3], [0, 1, 2, 4]);
    let all = Partition::block(5, 1).expect("a partition");
    let edges = mesh.halos(&all, 0, 0, Shared::Vertex).and_then(|halos| halos.edges()).expect("edges");
    // 20 of the hexahedra, 5 more of the prism, 4 of the pyramid, 3 of the tetrahedron.
    assert_eq!(edges.domain().cells().len(), 32);

    let mixed = Mesh::mixed(4, vec![0, 4, 7], vec![0, 1, 2, 3, 0, 1, 2]).expect("a mesh");
    assert_eq!(mixed.solid(), Err(MeshError::Solid { element: 1, vertices: 3 }));
}

#[test]
fn a_part_that_does_not_fit_itself_is_refused() {
    let partition = || Partition::given(vec![0, 1], 2).expect("a partition");
    let part = |vertices: &[u64], elements: &[u64], which| {
        let mesh = Mesh::new(4, 3, vec![0, 1, 2, 2, 1, 3]).expect("a mesh");
        MeshPart::new(mesh, vertices.to_vec(), elements.to_vec(), (partition(), which), 1)
    };
    let good = part(&[9, 7, 8, 1 << 40], &[5, 3], 1).expect("a part of a mesh");
    assert_eq!(good.halos(1, Shared::Edge).expect("halos").elements().cells(), [3, 5]);
    assert_eq!(
        good.halos(1, Shared::Edge).expect("halos").edges(),
        Err(MeshError::EdgeVertex { id: 1 << 40 })
    );
    assert_eq!(good.halos(2, Shared::Edge).map(drop), Err(MeshError::DepthBeyondPart { depth: 2, holds: 1 }));
    assert_eq!(part(&[1, 2, 3, 4], &[5, 3], 2), Err(MeshError::Rank { rank: 2, ranks: 2 }));
    let count = |what, given, needed| Err(MeshError::Count { what, given, needed });
    assert_eq!(part(&[1, 2, 3], &[5, 3], 0), count("vertices", 3, 4));
    assert_eq!(part(&[1, 2, 3, 4], &[5], 0), count("elements", 1, 2));
    let same = MeshError::SameId { what: "vertices", id: 2, first: 1, second: 3 };
    assert_eq!(part(&[1, 2, 3, 2], &[5, 3], 0), Err(same));
    let mesh = Mesh::new(5, 3, vec![0, 1, 2, 2, 1, 3]).expect("a mesh");
    let lonely = MeshPart::new(mesh, (0..5).collect(), vec![0, 1], (partition(), 0), 1);
    assert_eq!(lonely, Err(MeshError::LonelyVertex { vertex: 4 }));
}

#[test]
fn only_triangles_are_refined() {
    let refined = |arity, corners: &[u32], segments| {
        let mesh = Mesh::new(4, arity, corners.to_vec()).expect("a mesh");
        let partition = Partition::block(mesh.elements().len(), 1).expect("a partition");
        mesh.refined_part(&partition, 0, segments, 1).map(drop)
    };
    assert_eq!(refined(4, &[0, 1, 2, 3], 2), Err(MeshError::NoTriangle { element: 0 }));
    assert_eq!(refined(3, &[0, 1, 2, 2, 3, 2], 2), Err(MeshError::NoTriangle { element: 1 }));
    assert_eq!(refined(3, &[0, 1, 2], 0), Err(MeshError::Segments { segments: 0 }));
    assert_eq!(refined(3, &[0, 1, 2], 1 << 17), Err(MeshError::Segments { segments: 1 << 17 }));
}
