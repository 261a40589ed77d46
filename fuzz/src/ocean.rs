//! The mesh reader, which lives in a program, and what it needs.

#![allow(dead_code, unused_imports, reason = "the program uses the rest")]

#[path = "../../crates/halocline-cli/src/ocean/geometry.rs"]
pub mod geometry;
#[path = "../../crates/halocline-cli/src/ocean/input/mod.rs"]
pub mod input;
