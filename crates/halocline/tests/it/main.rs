//! All integration tests of this crate, in one program: it links once.

mod checked;
mod element_types;
mod examples;
mod futures;
mod gather;
mod index_lists;
mod interrupted;
mod late;
mod refused_by_compiler;
mod surface;
mod text;
mod views;
mod wakers;

use halocline::{Communicator, Error};

/// Runs `each` on every rank of a communicator of threads; the first error of a rank.
pub fn on_ranks(ranks: usize, each: impl Fn(&Communicator) -> Result<(), Error> + Sync) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let ranks = Communicator::threads(ranks).into_iter();
        let ranks: Vec<_> = ranks.map(|comm| scope.spawn(|| each(&{ comm }))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no rank panics"))
    })
}
