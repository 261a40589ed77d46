//! `halocline run ocean`: a real ocean over several ranks.
//!
//! From the files ([`input`]) come the mesh ([`mesh`]) and the state on it ([`state`]); each rank makes
//! its part of them ([`domain`]) and steps through time ([`simulation`], [`physics`]); rank 0 gathers
//! the result, repeats the run alone and compares ([`verify`]), draws ([`plot`]) and reports
//! ([`report`]).

mod args;
mod domain;
mod error;
mod geometry;
mod input;
mod mesh;
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
pub(crate) use run::run;
