//! Patterns that the ranks of a communicator have agreed on.

use crate::agree::agree;
use crate::directory;
use crate::error::Error;
use halocline_comm::Communicator;
use halocline_plan::{Decomposition, Halo, UnstructuredDomain};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Which cells the domains of this rank exchange with which others. Made collectively, once; fields do
/// not appear in it. A clone is the same pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    id: u64,
    plan: Arc<halocline_plan::Pattern>,
}

impl Pattern {
    /// The pattern of a regular grid. Collective: all ranks give the same decomposition and halo, and
    /// communicate only to make sure of that and to agree on errors.
    pub fn regular(comm: &Communicator, decomposition: &Decomposition, halo: &Halo) -> Result<Self, Error> {
        let plan = if decomposition.ranks() == comm.size() {
            decomposition.pattern_of(comm.rank(), halo).map_err(Error::from)
        } else {
            Err(Error::Bind(format!(
                "the grid is decomposed for {} ranks, the communicator has {}; decompose it for as many",
                decomposition.ranks(),
                comm.size()
            )))
        };
        let same = same_grid(comm, decomposition, halo)?;
        Self::agreed(comm, plan.and_then(|plan| same.map(|()| plan)))
    }

    /// The pattern of domains given by global ids or owners. Collective. The owners of halo cells are
    /// found through a distributed directory: no rank holds more than its share of the ids.
    pub fn unstructured(comm: &Communicator, domains: &[UnstructuredDomain]) -> Result<Self, Error> {
        let plan = directory::unstructured(comm, domains);
        Self::agreed(comm, plan)
    }

    fn agreed(comm: &Communicator, plan: Result<halocline_plan::Pattern, Error>) -> Result<Self, Error> {
        let id = comm.begin();
        let checked = plan.and_then(|plan| plan.check().map(|()| plan).map_err(Error::from));
        Ok(Self { id, plan: Arc::new(agree(comm, checked)?) })
    }

    /// The pattern as pure data.
    pub fn plan(&self) -> &halocline_plan::Pattern {
        &self.plan
    }

    /// A number that is the same on all ranks and no other pattern's.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// Compares with rank 0. Ranks whose patterns do not fit would wait for each other in vain later on.
fn same_grid(
    comm: &Communicator,
    decomposition: &Decomposition,
    halo: &Halo,
) -> Result<Result<(), Error>, Error> {
    let mut hasher = DefaultHasher::new();
    (decomposition, halo).hash(&mut hasher);
    let mine = hasher.finish().to_le_bytes();
    let first = comm.broadcast(0, mine.to_vec())?;
    Ok(match first == mine {
        true => Ok(()),
        false => Err(Error::Bind(format!(
            "rank {} has another decomposition or halo than rank 0; all ranks must give the same",
            comm.rank()
        ))),
    })
}

/// `decomposition.pattern(&comm, halo)` for [`Pattern::regular`].
pub trait Decomposed {
    /// As [`Pattern::regular`].
    fn pattern(&self, comm: &Communicator, halo: impl std::borrow::Borrow<Halo>) -> Result<Pattern, Error>;
}

impl Decomposed for Decomposition {
    fn pattern(&self, comm: &Communicator, halo: impl std::borrow::Borrow<Halo>) -> Result<Pattern, Error> {
        Pattern::regular(comm, self, halo.borrow())
    }
}
