//! Exchanges of host fields, and cases of device fields, under simulated schedules of ranks and progress threads. `HALOCLINE_SEED` runs
//! one seed only.

use halocline::{Array, BindOptions, Communicator, Decomposed, Halo, HaloExchange, LinkChoice, RegularGrid};
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::stage::Stage;
use halocline_conformance::{Case, Outcome, cases, cases_of_fields, ensure};
use halocline_device::sim::{Options, World, explore, run};

const OWNED: usize = 3;

/// Each rank exchanges the ends of its part of a ring of cells, by one way for all links; every other time it
/// does not wait before it looks whether the exchange is ready.
fn ring(comm: &Communicator, link: LinkChoice) -> Outcome {
    let total = OWNED * comm.size();
    let grid = RegularGrid::new([total]).periodic([true]);
    let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))?;
    let array = Array::<u64>::zeros(comm, &[OWNED + 2])?;
    let options = BindOptions::default().link(link);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
    let first = OWNED * comm.rank();
    for step in 1..=4u64 {
        let value = |cell: usize| step * 1000 + (cell % total) as u64;
        (0..OWNED).for_each(|at| {
            if let Ok(mut cells) = array.write() {
                cells[at + 1] = value(first + at);
            }
        });
        let pending = halo.exchange()?;
        if step % 2 == 0 {
            pending.is_ready()?;
        }
        pending.wait()?;
        let cells = array.read()?;
        let found = [cells[0], cells[OWNED + 1]];
        let expected = [value(first + total - 1), value(first + OWNED)];
        ensure!(found == expected, "step {step}: the halo is {found:?} instead of {expected:?}");
    }
    Ok(())
}

const LINKS: [LinkChoice; 5] =
    [LinkChoice::Auto, LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

#[test]
fn an_exchange_between_two_to_four_ranks_replays_exactly() {
    for ranks in 2..=4 {
        for link in LINKS {
            let program = |world: &World| run_ranks(world, ranks, |comm| ring(comm, link));
            for seed in 0..6 {
                let (one, two) = (run(seed, &options(), program), run(seed, &options(), program));
                assert!(one.reports.is_empty(), "{ranks} ranks, {link:?}, seed {seed}: {:?}", one.reports);
                let traces = [(one.trace, one.steps), (two.trace, two.steps)];
                assert_eq!(traces[0], traces[1], "{ranks} ranks, {link:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn exchanges_are_right_in_any_order_of_ranks_and_progress() {
    for link in LINKS {
        explore(0..60, &options(), |world| run_ranks(world, 3, |comm| ring(comm, link)));
    }
}

/// Cases that start threads of their own, which no world knows, whose tasks park their thread by themselves, or that have a world
/// of their own.
const OUTSIDE: [&str; 9] = [
    "threads::",
    "two_threads",
    "of_all_threads",
    "futures::",
    "scheduled::",
    "reduce::scheduled_and_awaited",
    "devices::",
    "unbound_device_fields::",
    "mapped::",
];

#[test]
fn cases_of_the_suite_pass_under_seeds() {
    let inside = |case: &&Case| !OUTSIDE.iter().any(|part| case.name.contains(part));
    // Another seed, hence another kind of schedule, for each.
    for (case, seed) in cases().iter().filter(inside).zip(0..) {
        println!("{}", case.name);
        explore(seed..seed + 1, &options(), |world| {
            run_ranks(world, 2, |comm| (case.run)(&Stage::on_host(comm)))
        });
    }
}

/// Topics whose cases pass with fields on devices of the world, too, each under schedules of its own.
const ON_DEVICES: [&str; 3] = ["packing::", "narrowed::", "alternatives::"];

#[test]
fn cases_of_device_fields_pass_under_seeds() {
    let is_chosen = |case: &&Case| ON_DEVICES.iter().any(|topic| case.name.starts_with(topic));
    let all = cases_of_fields();
    for (case, seed) in all.iter().filter(is_chosen).zip((0..).step_by(4)) {
        println!("{}", case.name);
        explore(seed..seed + 4, &Options { steps: 10_000_000, depth: 4096, ..options() }, |world| {
            run_ranks(world, 2, |comm| {
                // As long as a stage lives: a world for each run.
                let devices = Box::leak(Box::new(devices(world, 2)?));
                (case.run)(&Stage::on_device(comm, &devices[comm.rank()]))
            });
        });
    }
}
