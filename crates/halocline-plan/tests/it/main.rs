//! All integration tests of this crate, in one program, which links once.

mod bisection;
mod check;
mod directory_messages;
mod icosahedral;
mod layout_errors;
mod mesh;
mod mesh_halos;
mod narrow;
mod order;
mod owned;
mod patches;
mod redistribute;
mod regular;
mod regular_errors;
mod regular_shapes;
mod safety_comments;
mod simulated;
mod unstructured;
