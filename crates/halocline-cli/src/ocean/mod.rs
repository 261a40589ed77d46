//! `halocline run ocean`: a global ocean over several ranks.
//!
//! The files ([`input`]) have the mesh ([`mesh`]) and the state on it ([`state`]). [`model`] divides them among the ranks. Each rank makes
//! its part ([`domain`]) and steps through time ([`simulation`], [`physics`]; on a GPU [`device`], [`kernels`]). Rank 0 gathers the result,
//! repeats the run alone and compares ([`verify`]), draws maps ([`plot`]) and prints the report ([`report`]).

mod args;
mod device;
mod domain;
mod geometry;
mod input;
mod kernels;
mod mesh;
mod model;
mod physics;
mod plot;
mod report;
mod rigid_lid;
mod run;
mod simulation;
mod state;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use args::OceanArgs;
pub(crate) use input::InputError;
pub(crate) use model::{Exchanges, check_ranks, read, share_partition};
pub(crate) use run::run;
pub(crate) use state::Case;
