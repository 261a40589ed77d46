//! The C interface. `include/halocline.h` is its reference; this crate has the implementation.
//!
//! Each exported function has the name and the signature that the header gives it, and runs in `call::call` or `call::call_for`:
//! it returns a status, stores the message of an error for its thread, and never unwinds. Objects lie in one table of the process
//! (`handle`); C holds their handles, which the table checks.
//!
//! # Safety of the exported functions
//!
//! A caller passes pointers that are null or valid for the access that the header describes, and functions that may be
//! called with the context given beside them. Parameters of the types `OutPtr`, `OutArray` and `Capacity` (`pointer`), and `OptionsPtr`
//! and `OutStruct` (`options`), carry this promise.
//! Everything else is checked: null pointers where a value is needed, misaligned pointers, handles that are null, freed, of
//! another kind or made up, and sizes of option structs.

mod handle;

#[cfg(not(loom))]
mod allocator;
#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod cells;
#[cfg(not(loom))]
mod collective;
#[cfg(not(loom))]
mod comm;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod exchange;
#[cfg(not(loom))]
mod field;
#[cfg(not(loom))]
mod grid;
#[cfg(not(loom))]
mod icon;
#[cfg(not(loom))]
mod index_lists;
#[cfg(not(loom))]
mod keep_alive;
#[cfg(not(loom))]
mod layout;
#[cfg(all(test, not(loom)))]
mod layout_tests;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
mod memory_resource;
#[cfg(not(loom))]
mod mesh;
#[cfg(not(loom))]
mod message;
#[cfg(not(loom))]
mod neighbors;
#[cfg(not(loom))]
mod object;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod packet;
#[cfg(not(loom))]
mod partition;
#[cfg(not(loom))]
mod patches;
#[cfg(not(loom))]
mod pattern;
#[cfg(not(loom))]
mod pattern_links;
#[cfg(not(loom))]
mod pending;
#[cfg(not(loom))]
mod pointer;
#[cfg(not(loom))]
mod program;
#[cfg(not(loom))]
mod redistribute;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod sparse;
#[cfg(not(loom))]
mod status;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod trace;
#[cfg(not(loom))]
mod version;
