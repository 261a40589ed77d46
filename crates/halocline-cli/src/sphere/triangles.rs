//! The cells of the arrays of a mesh of triangles, with the halos and owners of ICON.

use super::domains::Domains;
use super::part::LocalCells;
use crate::error::CommandError;
use halocline::{Communicator, IconGrid, Mesh, Partition, Pattern, agree};
use std::collections::HashMap;

/// The domain of this rank: from the whole mesh, or from what it reads of the grid file. Collective.
pub(super) fn domains(
    comm: &Communicator,
    mesh: &Mesh,
    file: Option<&IconGrid>,
) -> Result<Domains, CommandError> {
    let partition = share_partition(comm, mesh)?;
    let halos = match file {
        Some(file) => agree(comm, file.part(&partition, comm.rank()))?.halos().clone(),
        None => agree(comm, mesh.icon_halos(&partition, comm.rank()))?,
    };
    let pattern = Pattern::unstructured(comm, &[halos.cells().clone()])?;
    let cells = halos.cells().cells();
    let ids = cells.iter().map(|&id| Some(id as u32)).collect();
    let owned = (0..halos.owned_cells() as u32).collect();
    let corners = mesh.elements().connectivity().as_chunks().0;
    let triangles: Vec<[u32; 3]> = cells.iter().map(|&id| corners[id as usize]).collect();
    Ok(Domains { pattern, cells: vec![LocalCells { ids, owned, neighbours: neighbours(&triangles) }] })
}

/// The owner of each triangle, computed by METIS on rank 0 for all ranks. Collective.
fn share_partition(comm: &Communicator, mesh: &Mesh) -> Result<Partition, CommandError> {
    let owners = || -> Result<Vec<usize>, halocline::Error> {
        // Neighbours share the two vertices of a side.
        Ok(Partition::metis(&mesh.element_graph(2)?, comm.size())?.owners().to_vec())
    };
    // The other ranks would wait for the owners of a rank 0 that has failed.
    let mine = agree(comm, if comm.rank() == 0 { owners() } else { Ok(Vec::new()) })?;
    Ok(Partition::given(comm.broadcast(0, mine)?, comm.size())?)
}

/// The local triangles across the sides of each local triangle. Side k goes from corner k to the next one.
fn neighbours(triangles: &[[u32; 3]]) -> Vec<[Option<u32>; 4]> {
    let ends = |corners: &[u32; 3], side: usize| {
        let (from, to) = (corners[side], corners[(side + 1) % 3]);
        (from.min(to), from.max(to))
    };
    let mut around: HashMap<(u32, u32), [Option<u32>; 2]> = HashMap::new();
    for (triangle, corners) in (0..).zip(triangles) {
        for side in 0..3 {
            let beside = around.entry(ends(corners, side)).or_default();
            beside[usize::from(beside[0].is_some())] = Some(triangle);
        }
    }
    let across = |(triangle, corners): (u32, &[u32; 3])| {
        let other = |side: usize| {
            let beside = around.get(&ends(corners, side)).copied().unwrap_or_default();
            if beside[0] == Some(triangle) { beside[1] } else { beside[0] }
        };
        [other(0), other(1), other(2), None]
    };
    (0..).zip(triangles).map(across).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::Error;

    #[test]
    fn all_ranks_hear_why_rank_0_has_no_partition() {
        let mesh = &Mesh::new(3, 3, vec![0, 1, 2]).unwrap();
        let errors = std::thread::scope(|scope| {
            let ranks = Communicator::threads(3).into_iter();
            let ranks: Vec<_> =
                ranks.map(|comm| scope.spawn(move || share_partition(&comm, mesh).unwrap_err())).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        let why = "3 ranks for 1 cells; use at most one rank for each cell";
        for (rank, error) in errors.iter().enumerate() {
            match (rank, error) {
                (0, CommandError::Exchange(error)) => assert_eq!(error.to_string(), why),
                (_, CommandError::Exchange(Error::Elsewhere { rank: 0, message })) => {
                    assert_eq!(message, why)
                }
                _ => panic!("rank {rank}: {error}"),
            }
        }
    }
}
