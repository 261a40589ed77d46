//! Floor 0: what moves where, as pure data.
//!
//! A [`Pattern`] says which cells each domain sends to and receives from which other domain; fields
//! do not appear in it. A [`Layout`] says where the cells of one array lie in memory. From both
//! come the copy operations ([`copy`]) that pack, unpack or move the bytes directly.
//!
//! Nothing here does I/O, starts a thread or touches memory that it was not given as a slice.
#![forbid(unsafe_code)]

pub mod copy;
mod element;
mod error;
mod layout;
mod pattern;

pub use element::ElementType;
pub use error::{LayoutError, PatternError};
pub use layout::Layout;
pub use pattern::{AxisMap, BoxCells, Cells, DomainShape, Pattern, Peer, Run, Transfer};
