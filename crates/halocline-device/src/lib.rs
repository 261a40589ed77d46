//! Floor 1: memory and the execution of copy plans on it. Only host memory so far.
//!
//! Knows nothing of ranks: it is given pointers and [`halocline_plan::copy::CopyOp`]s.

mod element;
pub mod host;
mod stream;

pub use element::Element;
