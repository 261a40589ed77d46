//! Handles: 64-bit numbers that stand for objects, checked at each use.

#![cfg_attr(loom, allow(dead_code, reason = "the models use a part"))]

mod sync;
mod table;

#[cfg(all(test, loom))]
mod model;

#[cfg(not(loom))]
pub(crate) use table::Refused;
pub(crate) use table::{Pin, Table};
