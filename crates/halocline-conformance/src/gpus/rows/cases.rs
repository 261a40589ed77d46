//! The exchanges that are measured: fields of 8-byte elements on a grid that is split along its slowest axis.

use crate::Trouble;
use crate::device_fixtures::{DeviceFixture, Numbers};
use crate::numbers::Numbers as Random;
use halocline::{Communicator, Decomposed, Device, Halo, Pattern, RegularGrid, UnstructuredDomain};

/// One row of the table.
pub(super) struct Case {
    pub(super) name: &'static str,
    shape: Shape,
    fields: u64,
    /// What an exchange may take, us: inline, and by default.
    pub(super) bars: [Option<f64>; 2],
    /// Whether plain stores of as many bytes stand beside it.
    pub(super) has_stores: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// So many cells of each axis a rank, with a halo on all sides, from 26 neighbours: periodic.
    Cube { cells: usize, width: usize },
    /// The same arrays, of which only the faces across the slowest axis are exchanged.
    Faces { cells: usize, width: usize },
    /// Owned cells and levels of a rank, and halo cells, which lie behind the owned ones, grouped by their owners.
    Listed { owned: usize, halo: usize, levels: usize },
}

const LISTED: Shape = Shape::Listed { owned: 20_000, halo: 3_200, levels: 80 };

/// The rows, with the bars that they are to reach on two H200.
pub(super) const CASES: [Case; 7] = [
    Case::new("128^3, halo 1, 1 field", Shape::Cube { cells: 128, width: 1 }, 1, [Some(9.0), Some(15.0)]),
    Case::new("128^3, halo 1, 8 fields", Shape::Cube { cells: 128, width: 1 }, 8, [Some(18.0), Some(24.0)]),
    Case::new("128^3, halo 3, 8 fields", Shape::Cube { cells: 128, width: 3 }, 8, [Some(40.0), Some(46.0)]),
    Case::new("256^3, halo 3, 8 fields", Shape::Cube { cells: 256, width: 3 }, 8, [Some(160.0), Some(166.0)]),
    Case {
        has_stores: true,
        ..Case::new(
            "the same, slowest axis, faces",
            Shape::Faces { cells: 256, width: 3 },
            8,
            [Some(90.0), None],
        )
    },
    Case::new("unstructured, 80 levels, 1 field", LISTED, 1, [Some(15.0), None]),
    Case::new("unstructured, 80 levels, 8 fields", LISTED, 8, [Some(62.0), None]),
];

impl Case {
    const fn new(name: &'static str, shape: Shape, fields: u64, bars: [Option<f64>; 2]) -> Self {
        Self { name, shape, fields, bars, has_stores: false }
    }

    /// Fields of this rank, zeroed. Collective.
    pub(super) fn fixture(&self, comm: &Communicator, device: &Device) -> Result<DeviceFixture, Trouble> {
        self.shape.fixture(comm, device, self.fields)
    }
}

impl Shape {
    /// Fields of this rank, zeroed. Collective.
    pub(super) fn fixture(
        self,
        comm: &Communicator,
        device: &Device,
        fields: u64,
    ) -> Result<DeviceFixture, Trouble> {
        match self {
            Self::Cube { cells, width } => cube(comm, device, (cells, width), fields),
            Self::Faces { cells, width } => {
                let halo = Halo::per_axis([(width, width), (0, 0), (0, 0)]);
                slabs(comm, device, cells, halo, ([true, false, false], width), fields)
            }
            Self::Listed { owned, halo, levels } => {
                let ids = listed(comm.rank(), comm.size(), owned, halo);
                let (mine, others) = ids.split_at(owned);
                let domain = UnstructuredDomain::new(comm.rank() as u64, mine.to_vec(), others.to_vec());
                let pattern = Pattern::unstructured(comm, &[domain])?;
                let numbers = Numbers::List { ids: &ids, cells: comm.size() * owned, levels };
                DeviceFixture::of(pattern, numbers, fields, |_| device)
            }
        }
    }
}

/// A cube of so many cells along each axis for each rank, one behind the other along the slowest axis, periodic, with a halo of some
/// width on all sides. Collective.
pub fn cube(
    comm: &Communicator,
    device: &Device,
    (cells, width): (usize, usize),
    fields: u64,
) -> Result<DeviceFixture, Trouble> {
    slabs(comm, device, cells, Halo::uniform(width), ([true; 3], 0), fields)
}

/// A cube of cells for each rank, one behind the other along the slowest axis.
fn slabs(
    comm: &Communicator,
    device: &Device,
    cells: usize,
    halo: Halo,
    (periodic, margin): ([bool; 3], usize),
    fields: u64,
) -> Result<DeviceFixture, Trouble> {
    let extents = [cells * comm.size(), cells, cells];
    let grid = RegularGrid::new(extents).periodic(periodic);
    let pattern = grid.decompose_into([comm.size(), 1, 1], comm.size())?.pattern(comm, halo)?;
    DeviceFixture::of(
        pattern,
        Numbers::Grid { extents: &extents, periodic: &periodic, margin },
        fields,
        |_| device,
    )
}

/// A line of cells, so many a rank, of which each needs all of its neighbours': so many elements cross each way.
pub(super) fn line(comm: &Communicator, device: &Device, cells: usize) -> Result<DeviceFixture, Trouble> {
    let extents = [cells * comm.size()];
    let pattern = RegularGrid::new(extents).decompose(comm.size())?.pattern(comm, Halo::uniform(cells))?;
    let numbers = Numbers::Grid { extents: &extents, periodic: &[false], margin: 0 };
    DeviceFixture::of(pattern, numbers, 1, |_| device)
}

/// The numbers of a rank's cells: those that it owns, then those that it needs, which lie anywhere among those of the next and
/// the previous rank.
fn listed(rank: usize, ranks: usize, owned: usize, halo: usize) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..owned).map(|cell| (rank * owned + cell) as u64).collect();
    let mut owners = vec![(rank + 1) % ranks, (rank + ranks - 1) % ranks];
    owners.dedup();
    owners.retain(|&owner| owner != rank);
    for &owner in &owners {
        let mut cells: Vec<usize> = (0..owned).collect();
        Random::new((rank * ranks + owner) as u64).shuffle(&mut cells);
        let needed = cells.into_iter().take(halo / owners.len());
        ids.extend(needed.map(|cell| (owner * owned + cell) as u64));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn halo_cells_are_those_of_neighbours_grouped_by_owner() {
        for ranks in [2, 3, 4] {
            for rank in 0..ranks {
                let ids = listed(rank, ranks, 100, 30);
                assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (130, 130));
                let owners: Vec<u64> = ids.iter().map(|id| id / 100).collect();
                assert!(owners[..100].iter().all(|&owner| owner == rank as u64));
                let mut groups = owners[100..].to_vec();
                groups.dedup();
                assert_eq!(groups.len(), if ranks == 2 { 1 } else { 2 }, "{groups:?}");
                assert!(!groups.contains(&(rank as u64)));
            }
        }
    }
}
