//! `halocline run rolling`: rolling windows over a table that is sorted over the ranks.
//!
//! Each rank reads its part of a file ([`input`]): the bytes of a CSV file ([`csv`]) or the rows of a Parquet file ([`parquet`]).
//! `halocline-table` brings the rows of other ranks, and computes a statistic of each window ([`run`]). Rank 0 repeats the run alone and
//! compares ([`verify`]), and draws values and results over the key ([`axis`], [`picture`]).

mod args;
mod axis;
mod csv;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod input;
mod key;
mod parquet;
mod picture;
mod report;
mod run;
mod verify;

pub(crate) use args::RollingArgs;
pub(crate) use input::{Extent, TableInputError};
pub(crate) use run::run;
