//! Exchanges between unstructured domains: by ids, by owners, by a mesh.

use crate::fixtures::{Cloud, DomainForm, Fixture, Piece, pattern_of, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure};
use halocline::{ElementType, Mesh, MeshDomains, Partition, UnstructuredDomain};

pub(crate) const CASES: &[Case] = &[
    Case { name: "unstructured::random_ids_owned_then_halo", run: owned_then_halo },
    Case { name: "unstructured::random_ids_in_any_order", run: by_indices },
    Case { name: "unstructured::owners_of_each_cell", run: by_owners },
    Case { name: "unstructured::several_domains_on_each_rank", run: several_domains },
    Case { name: "unstructured::nodes_and_triangles_in_one_bind", run: mesh_by_vertex },
    Case { name: "unstructured::a_mesh_partitioned_by_element", run: mesh_by_element },
    Case { name: "unstructured::metis_gives_every_rank_the_same", run: metis },
    Case { name: "unstructured::all_cells_on_one_rank", run: all_on_one },
    Case { name: "unstructured::ids_at_the_ends_of_64_bits", run: extreme_ids },
    Case { name: "unstructured::no_cells_at_all", run: no_cells },
];

/// A few steps by every path with one field.
fn every_path(comm: &Stage<'_>, pieces: &[Piece], kind: &Kind) -> Outcome {
    let pattern = pattern_of(comm, pieces)?;
    let subjects = subjects_of(comm, pieces, 0, (kind, comm.home()), |_| Form::default())?;
    Fixture::of(pattern, subjects).every_path(comm, 3)
}

fn cloud(comm: &Stage<'_>, form: DomainForm, domains_per_rank: usize) -> Outcome {
    for (seed, halo, coherence) in [(1, 10, 0), (2, 40, 90), (3, 0, 50)] {
        let cells = 30 * comm.size();
        let cloud = Cloud { seed, cells, domains_per_rank, halo, form, coherence };
        let pieces = cloud.pieces(comm.rank(), comm.size());
        every_path(comm, &pieces, &Kind::with_extra(ElementType::F64, &[2]))?;
    }
    Ok(())
}

fn owned_then_halo(comm: &Stage<'_>) -> Outcome {
    cloud(comm, DomainForm::OwnedThenHalo, 1)
}

fn by_indices(comm: &Stage<'_>) -> Outcome {
    cloud(comm, DomainForm::ByIndices, 1)
}

fn by_owners(comm: &Stage<'_>) -> Outcome {
    cloud(comm, DomainForm::ByOwners, 1)
}

fn several_domains(comm: &Stage<'_>) -> Outcome {
    cloud(comm, DomainForm::ByIndices, 3)?;
    cloud(comm, DomainForm::OwnedThenHalo, 2)?;
    cloud(comm, DomainForm::ByOwners, 2)
}

/// A rectangle of `n` x `m` squares, each cut into two triangles.
pub(super) fn rectangle(n: usize, m: usize) -> Result<Mesh, Trouble> {
    let vertex = |i: usize, j: usize| (i * (m + 1) + j) as u32;
    let mut corners = Vec::new();
    for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
        let [a, b, c, d] = [vertex(i, j), vertex(i, j + 1), vertex(i + 1, j), vertex(i + 1, j + 1)];
        corners.extend(if (i + j) % 2 == 0 { [a, b, d, a, d, c] } else { [a, b, c, b, d, c] });
    }
    Ok(Mesh::new((n + 1) * (m + 1), 3, corners)?)
}

/// Nodes with levels and triangles with two components, exchanged together, by every path.
fn mesh_case(comm: &Stage<'_>, domains: &MeshDomains) -> Outcome {
    let (nodes, triangles) = Piece::pair_of(domains);
    let (nodes, triangles) = ([nodes], [triangles]);
    let (node_pattern, triangle_pattern) = (pattern_of(comm, &nodes)?, pattern_of(comm, &triangles)?);
    let (levels, vectors) =
        (Kind::with_extra(ElementType::F64, &[4]), Kind::with_extra(ElementType::F32, &[2]));
    let mut fixture = Fixture::default();
    let on_nodes = |number| subjects_of(comm, &nodes, number, (&levels, comm.home()), |_| Form::default());
    fixture.add(&node_pattern, on_nodes(0)?);
    fixture.add(
        &triangle_pattern,
        subjects_of(comm, &triangles, 1, (&vectors, comm.home()), |_| Form::fortran())?,
    );
    fixture.add(&node_pattern, on_nodes(2)?);
    fixture.every_path(comm, 3)
}

fn mesh_by_vertex(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(6, 2 * comm.size())?;
    let mut numbers = Numbers::new(5);
    let owners = (0..mesh.vertices()).map(|_| numbers.below(comm.size())).collect();
    for partition in [Partition::block(mesh.vertices(), comm.size())?, Partition::given(owners, comm.size())?]
    {
        mesh_case(comm, &mesh.domains_by_vertex(&partition, comm.rank())?)?;
    }
    Ok(())
}

fn mesh_by_element(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(5, comm.size() + 3)?;
    let partition = Partition::block(mesh.elements().len(), comm.size())?;
    mesh_case(comm, &mesh.domains_by_element(&partition, comm.rank())?)
}

fn metis(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(9, 11)?;
    let partition = Partition::metis(&mesh.vertex_graph()?, comm.size())?;
    let owners: Vec<u8> = partition.owners().iter().map(|&owner| owner as u8).collect();
    for (rank, theirs) in comm.all_gather(&owners)?.into_iter().enumerate() {
        ensure!(theirs == owners, "rank {rank} has another partition");
    }
    mesh_case(comm, &mesh.domains_by_vertex(&partition, comm.rank())?)
}

fn all_on_one(comm: &Stage<'_>) -> Outcome {
    let last = comm.size() - 1;
    let ids: Vec<u64> = (0..50).map(|cell| 3 * cell).collect();
    let mine = comm.rank() == last;
    let number = comm.rank() as u64;
    let domain = match mine {
        true => UnstructuredDomain::new(number, ids, Vec::new()),
        false => UnstructuredDomain::new(number, Vec::new(), ids.into_iter().rev().step_by(2).collect()),
    };
    let piece = Piece::of_mesh(&domain, if mine { 50 } else { 0 });
    every_path(comm, &[piece], &Kind::plain(ElementType::U16))
}

fn extreme_ids(comm: &Stage<'_>) -> Outcome {
    let id = |rank: usize| match rank % 2 {
        0 => rank as u64,
        _ => u64::MAX - rank as u64 + 1,
    };
    let others: Vec<u64> = (0..comm.size()).filter(|&rank| rank != comm.rank()).map(id).collect();
    let domain = UnstructuredDomain::new(u64::MAX - comm.rank() as u64, vec![id(comm.rank())], others);
    every_path(comm, &[Piece::of_mesh(&domain, 1)], &Kind::plain(ElementType::C128))
}

fn no_cells(comm: &Stage<'_>) -> Outcome {
    let empty = UnstructuredDomain::new(comm.rank() as u64, Vec::new(), Vec::new());
    every_path(comm, &[Piece::of_mesh(&empty, 0)], &Kind::plain(ElementType::F64))?;
    every_path(comm, &[], &Kind::plain(ElementType::F64))
}
