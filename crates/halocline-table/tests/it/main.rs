//! Rolling windows over several ranks, against one rank and against plain definitions.

mod cases;
mod faults;
mod golden;
mod plain;
mod splits;

use halocline_comm::Communicator;

/// Runs a function on each of `size` ranks, which are threads; its results in the order of ranks.
pub fn on_ranks<T: Send>(size: usize, run: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            Communicator::threads(size).into_iter().map(|comm| scope.spawn(|| run(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
