//! All integration tests of this crate that need no device, in one program, which links once.

mod arrays;
mod copy;
mod sim;
mod sim_hazards;
mod sim_mappings;
mod sim_messages;
mod sim_suite;
mod suite;
