//! All integration tests of this crate, in one program: it links once.

mod bench;
mod cache;
mod case;
mod documents;
mod explain;
mod files;
mod full_disk;
mod heat;
mod launch;
mod limits;
mod ocean;
mod processes;
mod program;
mod rolling;
mod sphere;
mod terminal;
mod timeline;
mod trace;
mod variables;
