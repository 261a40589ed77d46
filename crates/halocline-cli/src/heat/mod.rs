//! `halocline run heat`: the heat equation in a box, over several ranks.
//!
//! Each rank owns a block of the grid ([`domain`]) and steps through time ([`simulation`]) by sweeps of a 7-point stencil ([`stencil`]), on
//! the host ([`levels`]) or on a GPU ([`device`], [`kernels`]). It starts the exchange, computes the cells that need no halo, waits, and
//! computes the rest. With a halo of W cells an exchange serves W steps. After the run the parts of a step are timed alone ([`measure`]).
//! Rank 0 gathers the result, repeats the run alone and compares ([`verify`]).

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
