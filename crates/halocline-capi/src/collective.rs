//! Collective calls: what one rank passes wrongly is an error on all ranks.

use crate::status::Refusal;
use halocline::{Communicator, Error, agree};

/// Makes a collective call with the arguments that this rank has parsed. If a rank refuses its own, no rank makes the call: that
/// rank returns its refusal, the others `HALOCLINE_ERROR_ELSEWHERE`.
pub(crate) fn collective<A, T>(
    comm: &Communicator,
    name: &'static str,
    parsed: Result<A, Refusal>,
    run: impl FnOnce(&Communicator, A) -> Result<T, Error>,
) -> Result<T, Refusal> {
    let comm = comm.within(name);
    let (parsed, refusal) = match parsed {
        Ok(parsed) => (Ok(parsed), None),
        Err(refusal) => (Err(Error::RefusedArguments(refusal.message.clone())), Some(refusal)),
    };
    let outcome = agree(&comm, parsed).and_then(|parsed| run(&comm, parsed));
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(outcome?),
    }
}
