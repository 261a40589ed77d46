//! Patterns.

use crate::call::call;
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::options::OptionsPtr;
use crate::pointer::OutPtr;
use crate::status::{Refusal, Status};
use halocline::{Communicator, Decomposition, Pattern};

/// A pattern of C, with the communicator that it was made with.
pub(crate) struct BoundPattern {
    pub(crate) pattern: Pattern,
    pub(crate) comm: Communicator,
    group: u64,
}

impl BoundPattern {
    pub(crate) fn new(pattern: Pattern, comm: &Comm) -> Self {
        Self { pattern, comm: comm.comm.clone(), group: comm.group }
    }

    /// The pattern of one component of its vectors.
    pub(crate) fn component(&self, component: usize) -> Result<Self, Refusal> {
        let pattern = self.pattern.component(component)?;
        Ok(Self { pattern, comm: self.comm.clone(), group: self.group })
    }

    /// Refuses a communicator that is not of the pattern's group.
    pub(crate) fn check(&self, comm: &Comm) -> Result<(), Refusal> {
        if self.group == comm.group {
            return Ok(());
        }
        Err(Refusal::argument(
            "the pattern was made with another communicator; use that one, or a duplicate of it",
        ))
    }
}

/// The pattern of a regular grid.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_regular(
    comm: Handle<Comm>,
    decomposition: Handle<Decomposition>,
    halo: OptionsPtr<'_, HaloWidths>,
    pattern: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || Ok((decomposition.pin()?, grid::halo(&halo)?));
        collective_for(&comm.comm, "pattern", (pattern, "pattern"), parse, |within, (decomposition, halo)| {
            Handle::new(BoundPattern::new(Pattern::regular(within, &decomposition, &halo)?, &comm))
        })
    })
}

/// The pattern that fills a narrower halo.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_narrowed(
    pattern: Handle<BoundPattern>,
    to: OptionsPtr<'_, HaloWidths>,
    narrowed: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let (comm, group) = (pattern.comm.clone(), pattern.group);
        let parse = || grid::halo(&to);
        collective_for(&pattern.comm, "narrowed", (narrowed, "narrowed"), parse, |within, to| {
            Handle::new(BoundPattern { pattern: pattern.pattern.narrowed(within, &to)?, comm, group })
        })
    })
}
