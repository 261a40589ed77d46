//! The domains of a rank: the pattern of the grid, and the cells of its arrays.

use super::grid::{Grid, Topology};
use super::part::LocalCells;
use super::{patches, triangles};
use crate::error::CommandError;
use halocline::{Array, Communicator, Element, Field, Pattern};

/// The domains of one rank.
pub(super) struct Domains {
    pub(super) pattern: Pattern,
    /// The cells of each domain, in the order of the pattern.
    pub(super) cells: Vec<LocalCells>,
}

impl Domains {
    /// The domains of this rank, with halos of this width. Collective.
    pub(super) fn new(comm: &Communicator, grid: &dyn Grid, width: usize) -> Result<Self, CommandError> {
        match grid.topology()? {
            Topology::Patches(patches) => patches::domains(comm, &patches, width),
            Topology::Triangles { mesh, file } => triangles::domains(comm, mesh, file),
        }
    }
}

/// A field: an array for each domain of a rank.
pub(super) struct Level<T: Element> {
    pub(super) arrays: Vec<Array<T>>,
    /// The same arrays, each with the number of its domain.
    pub(super) fields: Vec<Field>,
}

impl<T: Element> Level<T> {
    /// Arrays of this value.
    pub(super) fn new(comm: &Communicator, pattern: &Pattern, value: T) -> Result<Self, CommandError> {
        let (mut arrays, mut fields) = (Vec::new(), Vec::new());
        for domain in pattern.domains() {
            let array = Array::<T>::zeros(comm, &domain.extents())?;
            array.write()?.fill(value);
            fields.push(array.on_domain(domain.number()));
            arrays.push(array);
        }
        Ok(Self { arrays, fields })
    }

    /// The fields with their pattern, to be bound.
    pub(super) fn bound_by<'a>(&'a self, pattern: &'a Pattern) -> Vec<(&'a Pattern, &'a Field)> {
        self.fields.iter().map(|field| (pattern, field)).collect()
    }
}
