//! Halos of meshes, several elements deep, on elements, vertices and edges.

use super::fixture::still_works;
use super::unstructured::rectangle;
use crate::fixtures::{Fixture, Piece, pattern_of, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{ElementType, Error, Mesh, MeshHalos, Partition, Shared, agree};

pub(crate) const CASES: &[Case] = &[
    Case { name: "meshes::triangles_several_deep_over_vertices_and_edges", run: triangles },
    Case { name: "meshes::tetrahedra_over_faces", run: tetrahedra },
    Case { name: "meshes::several_parts_on_each_rank", run: several_parts },
    Case { name: "meshes::ranks_without_an_element", run: empty_ranks },
    Case { name: "meshes::a_depth_beyond_the_mesh_on_some_ranks", run: beyond },
    Case { name: "meshes::partitioned_coarse_and_then_refined", run: refined },
];

/// Fields on elements, vertices and edges in one bind, by every path.
fn every_path(comm: &Stage<'_>, parts: &[MeshHalos<'_>]) -> Outcome {
    let [mut elements, mut vertices, mut edges] = [const { Vec::new() }; 3];
    for halos in parts {
        elements.push(Piece::of_mesh(halos.elements(), halos.owned_elements()));
        vertices.push(Piece::of_mesh(halos.vertices(), halos.owned_vertices()));
        let here = halos.edges()?;
        edges.push(Piece::of_mesh(here.domain(), here.owned()));
    }
    let mut fixture = Fixture::default();
    let kinds = [(ElementType::F64, 3), (ElementType::F32, 2), (ElementType::I16, 1)];
    for ((number, pieces), (element, levels)) in (0..).zip([elements, vertices, edges]).zip(kinds) {
        let kind = Kind::with_extra(element, &[levels]);
        let pattern = pattern_of(comm, &pieces)?;
        fixture.add(&pattern, subjects_of(comm, &pieces, number, (&kind, comm.home()), |_| Form::default())?);
    }
    fixture.every_path(comm, 2)
}

fn of_part(comm: &Stage<'_>, mesh: &Mesh, partition: &Partition, depth: usize, shared: Shared) -> Outcome {
    every_path(comm, &[mesh.halos(partition, comm.rank(), depth, shared)?])
}

fn triangles(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(4 * comm.size(), 4)?;
    let partition = Partition::block(mesh.elements().len(), comm.size())?;
    for (depth, shared) in [(0, Shared::Vertex), (1, Shared::Vertex), (3, Shared::Edge), (4, Shared::Vertex)]
    {
        of_part(comm, &mesh, &partition, depth, shared)?;
    }
    Ok(())
}

/// A row of cubes of 2 x 2 x `n`, each cut into six tetrahedra around its diagonal.
fn row_of_cubes(n: usize) -> Result<Mesh, Trouble> {
    let vertex = |at: [usize; 3]| ((at[2] * 3 + at[1]) * 3 + at[0]) as u32;
    let mut corners = Vec::new();
    for (i, j, k) in (0..2).flat_map(|i| (0..2).flat_map(move |j| (0..n).map(move |k| (i, j, k)))) {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut at = [i, j, k];
            corners.push(vertex(at));
            for axis in order {
                at[axis] += 1;
                corners.push(vertex(at));
            }
        }
    }
    Ok(Mesh::new(9 * (n + 1), 4, corners)?.solid()?)
}

fn tetrahedra(comm: &Stage<'_>) -> Outcome {
    let mesh = row_of_cubes(3 * comm.size())?;
    let partition = Partition::metis(&mesh.element_graph(3)?, comm.size())?;
    for (depth, shared) in [(1, Shared::Vertex), (2, Shared::Edge), (3, Shared::Facet)] {
        of_part(comm, &mesh, &partition, depth, shared)?;
    }
    Ok(())
}

fn several_parts(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(8, 3 * comm.size())?;
    let centre = |corners: &[u32]| {
        let columns = 3 * comm.size() as u32 + 1;
        let sum = |of: fn(u32, u32) -> u32| corners.iter().map(|&v| of(v, columns)).sum::<u32>();
        [sum(|v, n| v / n), sum(|v, n| v % n)].map(f64::from)
    };
    let centres: Vec<[f64; 2]> = mesh.elements().iter().map(centre).collect();
    for per_rank in [2, 3] {
        let partition = Partition::bisection(&centres, None, per_rank * comm.size())?;
        let parts = (0..per_rank).map(|at| at * comm.size() + comm.rank());
        let halos = parts.map(|part| mesh.halos(&partition, part, 2, Shared::Vertex));
        every_path(comm, &halos.collect::<Result<Vec<_>, _>>()?)?;
    }
    Ok(())
}

fn empty_ranks(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(3, 6)?;
    let mut numbers = Numbers::new(8);
    // The last of several ranks has nothing, then all but the first.
    for holders in [comm.size().saturating_sub(1).max(1), 1] {
        let owners = (0..mesh.elements().len()).map(|_| numbers.below(holders)).collect();
        of_part(comm, &mesh, &Partition::given(owners, comm.size())?, 1, Shared::Vertex)?;
    }
    Ok(())
}

fn beyond(comm: &Stage<'_>) -> Outcome {
    // A row of cells: from the middle the ends are nearer than from one end the other.
    let cells = 2 * comm.size() as u32;
    let mesh = Mesh::new(2 * comm.size() + 1, 2, (0..cells).flat_map(|cell| [cell, cell + 1]).collect())?;
    let partition = Partition::block(2 * comm.size(), comm.size())?;
    let farthest = |rank: usize| 2 * rank.max(comm.size() - 1 - rank);
    let halos = |depth| agree(comm, mesh.halos(&partition, comm.rank(), depth, Shared::Vertex));
    let everywhere = (0..comm.size()).map(farthest).min().unwrap_or(0);
    every_path(comm, &[halos(everywhere)?])?;
    if comm.size() > 1 {
        let Err(error) = halos(everywhere + 1) else { fail!("a depth beyond the mesh is accepted") };
        let text = error.to_string();
        ensure!(text.contains(&format!("ends at depth {everywhere}")), "{text}");
        ensure!((farthest(comm.rank()) > everywhere) == matches!(error, Error::Elsewhere { .. }), "{text}");
        still_works(comm)?;
    }
    if comm.size() > 2 {
        // Those without an element find nothing wrong with any depth.
        let two = Partition::given((0..cells).map(|cell| usize::from(cell > 0)).collect(), comm.size())?;
        let own = mesh.halos(&two, comm.rank(), cells as usize, Shared::Vertex);
        ensure!(own.is_ok() == (comm.rank() > 1), "{own:?}");
        let Err(error) = agree(comm, own) else { fail!("a depth beyond the mesh is accepted") };
        ensure!((comm.rank() > 1) == matches!(error, Error::Elsewhere { rank: 0, .. }), "{error}");
        still_works(comm)?;
    }
    Ok(())
}

fn refined(comm: &Stage<'_>) -> Outcome {
    let coarse = rectangle(2 * comm.size(), 2)?;
    let partition = Partition::block(coarse.elements().len(), comm.size())?;
    for (segments, depth) in [(3, 2), (2, 3)] {
        let part = coarse.refined_part(&partition, comm.rank(), segments, depth)?;
        every_path(comm, &[part.halos(depth, Shared::Vertex)?])?;
    }
    Ok(())
}
