//! Which exchange a failure names, where only the crate can see when a rank learns of it.

use crate::bound::Bound;
use crate::lifecycle::Engine;
use crate::{
    Array, BindOptions, Cause, Communicator, Decomposed, Error, Failure, Halo, HaloExchange, LinkChoice,
    Pattern, PatternLinks, Pending, RegularGrid,
};
use std::sync::Arc;
use std::time::Duration;

const PATHS: [LinkChoice; 4] = [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// Two ranks, each with what `make` gives it, for one thread to play both.
fn two_ranks<T: Send>(make: impl Fn(&Communicator) -> T + Sync) -> [(Communicator, T); 2] {
    let made = std::thread::scope(|scope| {
        let make = &make;
        let ranks = Communicator::threads(2).into_iter().map(|comm| {
            scope.spawn(move || {
                let made = make(&comm);
                (comm, made)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Vec<_>>()
    });
    made.try_into().unwrap_or_else(|_| unreachable!("two ranks"))
}

fn ring(comm: &Communicator) -> Pattern {
    let grid = RegularGrid::new([4]).periodic([true]);
    grid.decompose(2).unwrap().pattern(comm, Halo::uniform(1)).unwrap()
}

/// Rank 0 gives up soon.
fn options(comm: &Communicator, link: LinkChoice) -> BindOptions {
    let deadline = (comm.rank() == 0).then_some(Duration::from_millis(1));
    BindOptions::default().link(link).deadline(deadline)
}

fn failure<T: std::fmt::Debug>(ended: Result<T, Error>) -> Arc<Failure> {
    match ended {
        Err(Error::Failed(failure)) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

/// Both ranks exchange once; then rank 0 fails in an exchange that rank 1 never begins, and rank 1 learns of that while nothing
/// is in flight.
fn learned_between_exchanges(begin: [&dyn Fn() -> Result<Pending, Error>; 2], learner: &Bound) {
    let [hasty, late] = begin.map(|begin| begin().unwrap());
    [&hasty, &late].into_iter().for_each(|pending| pending.wait().unwrap());
    let failed = failure(begin[0]().unwrap().wait());
    assert_eq!((failed.epoch, failed.culprit), (2, 1), "{failed}");
    while learner.outcome(u64::MAX).is_none() {
        std::thread::yield_now();
    }
    assert!(late.wait().is_ok() && late.is_ready().unwrap());
    let told = failure(begin[1]());
    assert!(matches!(told.cause, Cause::Deadline(None)), "{told}");
    assert_eq!((told.epoch, told.rank), (2, 1), "{told}");
    let text = told.to_string();
    assert!(text.contains("exchange 2 failed") && text.contains("exchange 1 is complete"), "{text}");
}

#[test]
fn a_failure_that_is_learned_between_two_exchanges_is_the_second_ones() {
    for link in PATHS {
        let [(_, hasty), (_, late)] = &two_ranks(|comm| {
            let array = Array::<f64>::zeros(comm, &[4]).unwrap();
            HaloExchange::bind_with(comm, [(&ring(comm), &array)], &options(comm, link)).unwrap()
        });
        learned_between_exchanges([&|| hasty.exchange(), &|| late.exchange()], late.bound());
    }
}

#[test]
fn a_failure_that_is_learned_between_two_unbound_exchanges_is_the_second_ones() {
    for link in [LinkChoice::Mailbox, LinkChoice::Message] {
        let [(_, hasty), (_, late)] = &two_ranks(|comm| {
            let pattern = ring(comm);
            let links = PatternLinks::new_with(comm, &[&pattern], &options(comm, link)).unwrap();
            (links, pattern, Array::<f64>::zeros(comm, &[4]).unwrap())
        });
        let begin = |(links, pattern, array): &(PatternLinks, Pattern, Array<f64>)| {
            links.exchange(&[(pattern, array)])
        };
        learned_between_exchanges([&|| begin(hasty), &|| begin(late)], late.0.bound());
    }
}

/// A failure that is learned before the first exchange is the first one's.
#[test]
fn a_failure_before_the_first_exchange_is_the_first_ones() {
    let [(_, hasty), (_, late)] = &two_ranks(|comm| {
        let array = Array::<f64>::zeros(comm, &[4]).unwrap();
        HaloExchange::bind_with(comm, [(&ring(comm), &array)], &options(comm, LinkChoice::Auto)).unwrap()
    });
    failure(hasty.exchange().unwrap().wait());
    while late.bound().outcome(u64::MAX).is_none() {
        std::thread::yield_now();
    }
    let told = failure(late.exchange());
    assert_eq!(told.epoch, 1, "{told}");
    assert!(told.to_string().ends_with("; the halo is undefined; drop the object and bind again"), "{told}");
}
