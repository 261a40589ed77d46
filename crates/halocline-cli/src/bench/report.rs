//! Tables for people and lines for programs.

pub(super) mod halo;
pub(super) mod latency;
