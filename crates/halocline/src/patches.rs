//! Patterns of grids of patches.

use crate::agree::agree;
use crate::error::Error;
use crate::pattern::{Decomposed, Kind, Pattern, same_everywhere};
use halocline_comm::Communicator;
use halocline_plan::{Halo, PatchDecomposition, PatchGrid, PatternError, Quantity};
use std::sync::Arc;

/// What a pattern of patches was made of.
#[derive(Debug)]
pub(crate) struct Patches {
    pub(crate) decomposition: PatchDecomposition,
    pub(crate) quantity: Quantity,
    /// Of the arrays.
    pub(crate) around: Halo,
    /// What is filled of it.
    filled: Halo,
}

impl Patches {
    pub(crate) fn narrowed(&self, to: &Halo) -> Result<Self, PatternError> {
        let Self { decomposition, quantity, around, filled } = self;
        let (decomposition, quantity, around) = (decomposition.clone(), quantity.clone(), around.clone());
        Ok(Self { filled: filled.narrowed(to, 2)?, decomposition, quantity, around })
    }
}

impl Pattern {
    /// The pattern of a quantity on a grid of patches. Collective: all ranks give the same arguments. They communicate only to
    /// check that and to agree on errors. Blocks until all ranks have called it.
    ///
    /// Vectors have two fields for each domain: bind those of component c with [`Pattern::component`]. A domain's array holds
    /// the values of its cells, those of the last faces of its patch, and the halo. Among the values held are copies of
    /// values that another patch owns ([`PatchDecomposition::pattern_of`]): an exchange fills them, too.
    ///
    /// Fails with [`Error::DecomposedFor`] for a decomposition for another number of ranks, [`Error::Pattern`] for a halo or a
    /// quantity that the grid cannot have, [`Error::Differs`] if a rank gives other arguments than rank 0; and with
    /// [`Error::Elsewhere`] on the other ranks.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Error, Halo, HaloExchange, PatchGrid, Pattern, Quantity};
    ///
    /// let comm = Communicator::init()?;
    /// let tiles = PatchGrid::cubed_sphere(48)?.decompose_into(&[[1, 1]; 6], comm.size())?;
    /// let wind = Pattern::patches(&comm, &tiles, &Quantity::c_grid(), &Halo::uniform(3))?;
    /// let mut fields = Vec::new();
    /// for component in [0, 1] {
    ///     let pattern = wind.component(component)?;
    ///     for domain in pattern.domains() {
    ///         let array = Array::<f64>::zeros(&comm, &domain.extents())?;
    ///         fields.push((pattern.clone(), array.on_domain(domain.number())));
    ///     }
    /// }
    /// let halo = HaloExchange::bind(&comm, fields.iter().map(|(p, f)| (p, f)).collect::<Vec<_>>())?;
    /// halo.exchange()?.wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn patches(
        comm: &Communicator,
        decomposition: &PatchDecomposition,
        quantity: &Quantity,
        halo: &Halo,
    ) -> Result<Self, Error> {
        let (decomposition, quantity) = (decomposition.clone(), quantity.clone());
        let (around, filled) = (halo.clone(), halo.clone());
        Self::patches_within(&comm.within("pattern"), Patches { decomposition, quantity, around, filled })
    }

    pub(crate) fn patches_within(comm: &Communicator, patches: Patches) -> Result<Self, Error> {
        let Patches { decomposition, quantity, around, filled } = &patches;
        let plan = match decomposition.ranks() {
            ranks if ranks == comm.size() => {
                decomposition.narrowed_pattern_of(comm.rank(), quantity, around, filled).map_err(Error::from)
            }
            decomposed => Err(Error::DecomposedFor { decomposed, ranks: comm.size() }),
        };
        let arguments = (decomposition, quantity, around, filled);
        let same = same_everywhere(comm, arguments, "decomposition, quantity or halo")?;
        let plan = plan.and_then(|plan| same.map(|()| plan));
        Self::agreed(comm, plan, Kind::Patches(Arc::new(patches)))
    }
}

impl Decomposed for PatchDecomposition {
    fn pattern(&self, comm: &Communicator, halo: impl Into<Halo>) -> Result<Pattern, Error> {
        Pattern::patches(comm, self, &Quantity::cells(), &halo.into())
    }
}

impl Decomposed for PatchGrid {
    fn pattern(&self, comm: &Communicator, halo: impl Into<Halo>) -> Result<Pattern, Error> {
        let decomposition = self.decompose(comm.size()).map_err(Error::from);
        agree(&comm.within("pattern"), decomposition)?.pattern(comm, halo)
    }
}
