//! Collective calls: what one rank passes wrongly is an error on all ranks.

use crate::pointer::OutPtr;
use crate::status::Refusal;
use halocline::{Communicator, Error, agree};

/// Makes a collective call with the arguments that this rank has parsed. If a rank refuses its own, no rank makes the call: that
/// rank returns its refusal, the others `HALOCLINE_ERROR_ELSEWHERE`.
pub(crate) fn collective<A, T>(
    comm: &Communicator,
    name: &'static str,
    parsed: Result<A, Refusal>,
    run: impl FnOnce(&Communicator, A) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let comm = comm.within(name);
    match parsed {
        Ok(parsed) => run(&comm, agree(&comm, Ok::<_, Error>(parsed))?),
        Err(refusal) => {
            // The refusal says more than the error of the agreement.
            let _ = agree(&comm, Err::<A, _>(refused(&refusal)));
            Err(refusal)
        }
    }
}

/// The error by which the other ranks learn of a refusal.
pub(crate) fn refused(refusal: &Refusal) -> Error {
    Error::RefusedArguments(refusal.message.clone())
}

/// As [`collective`], for a call that has one result. Its place is the first argument that is parsed.
pub(crate) fn collective_for<A, T>(
    comm: &Communicator,
    name: &'static str,
    (out, out_name): (OutPtr<'_, T>, &'static str),
    parse: impl FnOnce() -> Result<A, Refusal>,
    run: impl FnOnce(&Communicator, A) -> Result<T, Refusal>,
) -> Result<(), Refusal> {
    let parsed = out.checked(out_name).and_then(|place| Ok((place, parse()?)));
    collective(comm, name, parsed, |comm, (place, parsed)| {
        place.set(run(comm, parsed)?);
        Ok(())
    })
}
