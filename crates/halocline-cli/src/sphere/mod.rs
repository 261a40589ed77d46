//! `halocline run sphere`: a field on a grid of the Earth, over several ranks.
//!
//! [`grid`] gives the cells of a cubed sphere, of an icosahedral or of a tripolar grid by their global numbers, or reads them. [`problem`] gives the
//! initial field and the exact solution. Each rank finds the cells of its arrays and their neighbours ([`domains`], [`patches`],
//! [`triangles`]), makes its [`part`] of the scheme and steps through time ([`simulation`]). Rank 0 gathers the result, measures mass and error ([`norms`]),
//! repeats the run without exchanges and compares ([`verify`]), draws globes ([`plot`]) and prints the report ([`report`]).

mod args;
mod choice;
mod domains;
mod error;
mod grid;
mod norms;
mod part;
mod patches;
mod plot;
mod problem;
mod report;
mod run;
mod simulation;
#[cfg(test)]
mod tests;
mod triangles;
mod verify;

pub(crate) use args::SphereArgs;
pub(crate) use error::SphereError;
pub(crate) use grid::NemoError;
pub(crate) use run::run;
