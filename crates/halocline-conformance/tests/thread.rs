//! The suite over ranks that are threads, with fields in memory of the host and of simulated devices. `HALOCLINE_CASES` names a
//! part of it.

use halocline::Communicator;
use halocline_conformance::simulated::Simulation;
use halocline_conformance::watchdog::LIMIT;
use halocline_conformance::{Outcome, Trouble, run_all, run_fields_on_devices};

fn run(ranks: usize) {
    run_with(ranks, run_all);
}

fn run_on_devices(ranks: usize) {
    run_with(ranks, |comm, filter| run_fields_on_devices::<Simulation>(comm, filter, LIMIT));
}

fn run_with(ranks: usize, suite: fn(&Communicator, &str) -> Outcome) {
    let filter = std::env::var("HALOCLINE_CASES").unwrap_or_default();
    let ranks: Vec<_> = Communicator::threads(ranks)
        .into_iter()
        // The rank's communicator goes with its thread: where one fails, the others do not hang.
        .map(|comm| (comm, filter.clone()))
        .map(|(comm, filter)| std::thread::spawn(move || suite(&comm, &filter)))
        .collect();
    let ended: Vec<Outcome> = ranks
        .into_iter()
        .map(|rank| rank.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked"))))
        .collect();
    let troubles: Vec<String> = ended.into_iter().filter_map(Result::err).map(|t| t.to_string()).collect();
    assert!(troubles.is_empty(), "\n{}", troubles.join("\n"));
}

#[test]
fn one_rank() {
    run(1);
}

#[test]
fn two_ranks() {
    run(2);
}

#[test]
fn three_ranks() {
    run(3);
}

#[test]
fn four_ranks() {
    run(4);
}

#[test]
fn five_ranks() {
    run(5);
}

#[test]
fn eight_ranks() {
    run(8);
}

#[test]
fn one_rank_with_fields_on_a_device() {
    run_on_devices(1);
}

#[test]
fn two_ranks_with_fields_on_devices() {
    run_on_devices(2);
}
