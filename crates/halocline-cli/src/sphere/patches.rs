//! The cells of the arrays of a grid of patches. An exchange of their global numbers tells which cell lies at each place of a halo.

use super::domains::{Domains, Level};
use super::part::LocalCells;
use crate::error::CommandError;
use halocline::{Communicator, Decomposed, HaloExchange, PatchDecomposition, PatchGrid};
use std::ops::Range;

/// The domains of this rank. Collective.
pub(super) fn domains(comm: &Communicator, grid: &PatchGrid, width: usize) -> Result<Domains, CommandError> {
    let cut = grid.decompose(comm.size())?;
    let pattern = cut.pattern(comm, width)?;
    let numbers = Level::<i64>::new(comm, &pattern, -1)?;
    let mut blocks = Vec::new();
    for (domain, array) in pattern.domains().zip(&numbers.arrays) {
        let block = Block::new(&domain.extents(), &domain.owned());
        let mut array = array.write()?;
        for (place, id) in block.owned().zip(ids(&cut, domain.number())) {
            array[place] = id as i64;
        }
        blocks.push(block);
    }
    HaloExchange::bind(comm, numbers.bound_by(&pattern))?.exchange()?.wait()?;

    let mut cells = Vec::new();
    for ((block, array), domain) in blocks.into_iter().zip(&numbers.arrays).zip(pattern.domains()) {
        let found: Vec<Option<u32>> = array.read()?.iter().map(|&id| u32::try_from(id).ok()).collect();
        // The exchange has given cells that repeat others the numbers of those: they are no cells of their own.
        let owned = block.owned().zip(ids(&cut, domain.number()));
        let owned = owned.filter(|&(place, id)| found[place] == u32::try_from(id).ok());
        let owned = owned.map(|(place, _)| place as u32).collect();
        cells.push(block.cells(found, owned));
    }
    Ok(Domains { pattern, cells })
}

/// The global numbers of the cells of a domain, in row-major order.
fn ids(cut: &PatchDecomposition, domain: u64) -> impl Iterator<Item = usize> {
    let block = cut.block(domain);
    let extents = cut.grid().extents();
    block.into_iter().flat_map(move |block| {
        let before: usize = extents[..block.patch].iter().map(|[rows, columns]| rows * columns).sum();
        let [rows, columns] = [0, 1].map(|axis| block.first[axis]..block.first[axis] + block.extents[axis]);
        let row_of_patch = extents[block.patch][1];
        rows.flat_map(move |row| columns.clone().map(move |column| before + row * row_of_patch + column))
    })
}

/// The array of a domain: rows and columns, some of them owned.
struct Block {
    columns: usize,
    rows: usize,
    owned: [Range<usize>; 2],
}

impl Block {
    fn new(extents: &[usize], owned: &[Range<usize>]) -> Self {
        Self { rows: extents[0], columns: extents[1], owned: [owned[0].clone(), owned[1].clone()] }
    }

    /// The places of the owned cells, in row-major order.
    fn owned(&self) -> impl Iterator<Item = usize> {
        let [rows, columns] = self.owned.clone();
        let width = self.columns;
        rows.flat_map(move |row| columns.clone().map(move |column| row * width + column))
    }

    fn cells(&self, ids: Vec<Option<u32>>, owned: Vec<u32>) -> LocalCells {
        let neighbours = (0..ids.len()).map(|place| self.neighbours(&ids, place)).collect();
        LocalCells { neighbours, owned, ids }
    }

    /// The cells to the south, east, north and west of a cell that is owned or beside an owned one. Where three patches meet, the halo
    /// cells beside the corner are neighbours of each other.
    fn neighbours(&self, ids: &[Option<u32>], place: usize) -> [Option<u32>; 4] {
        let here = [place / self.columns, place % self.columns];
        if self.outside(here).iter().sum::<usize>() > 1 {
            return [None; 4];
        }
        let to = |axis: usize, is_high: bool| {
            let mut there = here;
            there[axis] = if is_high { here[axis] + 1 } else { here[axis].checked_sub(1)? };
            let place = self.place(ids, there);
            if place.is_none() && self.outside(there) == [1, 1] {
                // No cell lies behind the corner.
                let other = 1 - axis;
                let Range { start, end } = self.owned[other];
                there[other] = there[other].clamp(start, end - 1);
                return self.place(ids, there);
            }
            place
        };
        [to(0, false), to(1, true), to(0, true), to(1, false)]
    }

    /// How far a place lies outside the owned cells, along both axes.
    fn outside(&self, at: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| {
            let Range { start, end } = self.owned[axis];
            start.saturating_sub(at[axis]).max((at[axis] + 1).saturating_sub(end))
        })
    }

    /// A place, if the array has a cell there.
    fn place(&self, ids: &[Option<u32>], [row, column]: [usize; 2]) -> Option<u32> {
        let place = row * self.columns + column;
        let is_cell = row < self.rows && column < self.columns && ids[place].is_some();
        is_cell.then_some(place as u32)
    }
}
