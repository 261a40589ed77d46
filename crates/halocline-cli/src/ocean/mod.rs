//! `halocline run ocean`: a real ocean over several ranks.
//!
//! From the files ([`input`]) come the mesh ([`mesh`]) and the state on it ([`state`]), which are cut for
//! the ranks ([`model`]); each rank makes its part of them ([`domain`]) and steps through time ([`simulation`], [`physics`]; on a GPU [`device`], [`kernels`]); rank 0 gathers
//! the result, repeats the run alone and compares ([`verify`]), draws ([`plot`]) and reports
//! ([`report`]).

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

pub(crate) use args::{ModelArgs, OceanArgs};
pub(crate) use input::InputError;
pub(crate) use model::{Exchanges, Model};
pub(crate) use run::run;
