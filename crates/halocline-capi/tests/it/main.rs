//! The C interface as programs use it: compiled by a C and a C++ compiler, linked with the shared library, run.

mod cases;
mod compiled;
mod documents;
mod fortran;
mod header;
mod install;
mod kokkos;
mod log;
mod misuse;
mod programs;
mod toolchain;
mod traces;

// The library's archive is built because this crate is linked.
use halocline_capi as _;
