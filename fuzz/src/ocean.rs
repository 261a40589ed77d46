//! The mesh reader of the command, with the modules that it needs.

#![allow(dead_code, unused_imports, reason = "the program uses the rest")]

#[path = "../../crates/halocline-cli/src/ocean/geometry.rs"]
pub mod geometry;
#[path = "../../crates/halocline-cli/src/ocean/input/mod.rs"]
pub mod input;
