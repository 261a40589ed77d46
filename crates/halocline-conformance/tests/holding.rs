//! Ranks as threads of one process on devices whose calls wait for streams, and hold those of other threads meanwhile. `HALOCLINE_SEEDS`
//! says how many random programs are run, `HALOCLINE_SEED` which is the first.

use halocline::Communicator;
use halocline_conformance::holding::Held;
use halocline_conformance::{Outcome, device_cases, run_cases, run_fields_on_devices};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn run(ranks: usize, rank: impl Fn(&Communicator) -> Outcome + Sync) {
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        let ranks: Vec<_> =
            Communicator::threads(ranks).into_iter().map(|comm| scope.spawn(|| rank(&{ comm }))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    ended.into_iter().for_each(|outcome| outcome.unwrap_or_else(|trouble| panic!("{trouble}")));
}

#[test]
fn what_is_dropped_holds_no_rank_that_another_one_waits_for() {
    for ranks in [2, 3] {
        run(ranks, |comm| {
            run_cases(comm, &device_cases::<Held>(), "scheduled::", LIMIT)?;
            run_cases(comm, &device_cases::<Held>(), "devices::", LIMIT)?;
            let topics = ["alternatives::", "flight::", "lifetimes::", "narrowed::"];
            topics.iter().try_for_each(|topic| run_fields_on_devices::<Held>(comm, topic, LIMIT))
        });
    }
}
