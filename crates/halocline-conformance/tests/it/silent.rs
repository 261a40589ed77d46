//! Ranks as threads on devices whose flags the host cannot read: late and departed ranks are detected all the same.

use halocline::Communicator;
use halocline_conformance::holding::{Held, silence};
use halocline_conformance::{Outcome, run_fields_on_devices};
use std::time::Duration;

fn deadlines_and_departed_ranks_are_detected(ranks: usize) {
    silence();
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        let rank = |comm: Communicator| {
            scope.spawn(move || run_fields_on_devices::<Held>(&comm, "failures::", Duration::from_secs(60)))
        };
        let ranks: Vec<_> = Communicator::threads(ranks).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    ended.into_iter().for_each(|outcome| outcome.unwrap_or_else(|trouble| panic!("{trouble}")));
}

#[test]
fn deadlines_and_departed_ranks_are_detected_without_reading_flags_on_2_ranks() {
    deadlines_and_departed_ranks_are_detected(2);
}

#[test]
fn deadlines_and_departed_ranks_are_detected_without_reading_flags_on_3_ranks() {
    deadlines_and_departed_ranks_are_detected(3);
}
