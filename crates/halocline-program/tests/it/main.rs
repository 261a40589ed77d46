//! Programs compiled by the tests with the C compiler of the system.

mod cache;
mod calls;
mod checked;
mod files;
mod gpu;
mod random;
mod refused;
mod signatures;
mod source;
mod states;
mod streams;
