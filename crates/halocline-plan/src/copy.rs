//! Copy operations.
