//! All integration tests of this crate, in one program: it links once.

mod checked;
mod futures;
mod interrupted;
mod text;
mod wakers;
