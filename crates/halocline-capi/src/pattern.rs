//! Patterns.

use crate::call::call;
use crate::collective::collective;
use crate::comm::Comm;
use crate::grid::{self, HaloWidths};
use crate::object::Handle;
use crate::pointer::Out;
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
unsafe extern "C" fn halocline_pattern_regular(
    comm: Handle<Comm>,
    decomposition: Handle<Decomposition>,
    halo: *const HaloWidths,
    pattern: *mut Handle<BoundPattern>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(pattern, "pattern") }?;
            // SAFETY: the caller passes null or a valid struct.
            Ok((out, decomposition.pin()?, unsafe { grid::halo(halo) }?))
        })();
        let (out, pattern) =
            collective(&comm.comm, "pattern", parsed, |comm, (out, decomposition, halo)| {
                Ok((out, Pattern::regular(comm, &decomposition, &halo)?))
            })?;
        out.set(Handle::new(BoundPattern::new(pattern, &comm))?);
        Ok(())
    })
}

/// The pattern that fills a narrower halo.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pattern_narrowed(
    pattern: Handle<BoundPattern>,
    to: *const HaloWidths,
    narrowed: *mut Handle<BoundPattern>,
) -> Status {
    call(|| {
        let pattern = pattern.pin()?;
        let parsed = (|| {
            // SAFETY: the caller passes null or a valid pointer to a handle.
            let out = unsafe { Out::new(narrowed, "narrowed") }?;
            // SAFETY: the caller passes null or a valid struct.
            Ok((out, unsafe { grid::halo(to) }?))
        })();
        let comm = &pattern.comm;
        let (out, narrower) = collective(comm, "narrowed", parsed, |comm, (out, to)| {
            Ok((out, pattern.pattern.narrowed(comm, &to)?))
        })?;
        let (comm, group) = (comm.clone(), pattern.group);
        out.set(Handle::new(BoundPattern { pattern: narrower, comm, group })?);
        Ok(())
    })
}
