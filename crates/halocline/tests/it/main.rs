//! All integration tests of this crate, in one program: it links once.

mod checked;
mod element_types;
mod futures;
mod interrupted;
mod late;
mod refused_by_compiler;
mod text;
mod wakers;
