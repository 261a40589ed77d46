//! `halocline run heat`: heat in a box, over several ranks, while halos are exchanged.
//!
//! Each rank owns a block of the grid ([`domain`]) and steps through time ([`simulation`]) by sweeps of a
//! 7-point stencil ([`stencil`]): the exchange begins, cells that need no halo are computed meanwhile,
//! the rest after the wait, on the host ([`levels`]) or on a GPU ([`device`], [`kernels`]). With a halo of W cells an exchange serves W steps. Afterwards the parts of a
//! step are timed alone ([`measure`]), and rank 0 gathers the result, repeats the run alone and compares
//! ([`verify`]).

mod args;
mod device;
mod domain;
mod kernels;
mod levels;
mod measure;
mod report;
mod run;
mod simulation;
mod stencil;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use args::HeatArgs;
pub(crate) use run::run;
