//! Ranks as threads of one process on devices whose calls wait for streams, and hold those of other threads meanwhile. `HALOCLINE_SEEDS`
//! says how many random programs are run, `HALOCLINE_SEED` which is the first.

use halocline::Communicator;
use halocline_conformance::holding::Held;
use halocline_conformance::{Outcome, device_cases, run_cases};
use std::time::Duration;

fn run(ranks: usize, filter: &str) {
    let cases = device_cases::<Held>();
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        let ranks: Vec<_> = Communicator::threads(ranks)
            .into_iter()
            .map(|comm| scope.spawn(|| run_cases(&{ comm }, &cases, filter, Duration::from_secs(60))))
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    for outcome in ended {
        outcome.unwrap_or_else(|trouble| panic!("{trouble}"));
    }
}

#[test]
fn what_is_dropped_holds_no_rank_that_another_one_waits_for() {
    for ranks in [2, 3] {
        run(ranks, "scheduled::");
        run(ranks, "devices::");
    }
}
