//! What only the crate can see: which exchange a failure names, depending on when a rank learns of it, and what a reduce waits for.

use crate::bound::Bound;
use crate::lifecycle::Engine;
use crate::{
    Array, BindOptions, Cause, Communicator, Decomposed, Error, Failure, Halo, HaloExchange, LinkChoice,
    Pattern, PatternLinks, Pending, ReduceOp, RegularGrid,
};
use halocline_comm::Serve;
use std::sync::Arc;
use std::time::Duration;

const PATHS: [LinkChoice; 4] = [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// Ranks, each with what `make` gives it, for one thread to play all.
fn ranks<T: Send, const N: usize>(make: impl Fn(&Communicator) -> T + Sync) -> [(Communicator, T); N] {
    let made = std::thread::scope(|scope| {
        let make = &make;
        let ranks = Communicator::threads(N).into_iter().map(|comm| {
            scope.spawn(move || {
                let made = make(&comm);
                (comm, made)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Vec<_>>()
    });
    made.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
}

fn ring(comm: &Communicator) -> Pattern {
    let grid = RegularGrid::new([4]).periodic([true]);
    grid.decompose(2).unwrap().pattern(comm, Halo::uniform(1)).unwrap()
}

/// Rank 0 gives up soon, but not so soon that a busy machine makes it give up an exchange that both begin.
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
    let failed = failure(begin[1]());
    assert!(matches!(failed.cause, Cause::Deadline(None)), "{failed}");
    assert_eq!((failed.epoch, failed.rank), (2, 1), "{failed}");
    let text = failed.to_string();
    assert!(text.contains("exchange 2 failed") && text.contains("exchange 1 is complete"), "{text}");
}

#[test]
fn a_failure_that_is_learned_between_two_exchanges_is_the_second_ones() {
    for link in PATHS {
        let [(_, hasty), (_, late)] = &ranks(|comm| {
            let array = Array::<f64>::zeros(comm, &[4]).unwrap();
            HaloExchange::bind_with(comm, [(&ring(comm), &array)], &options(comm, link)).unwrap()
        });
        learned_between_exchanges([&|| hasty.exchange(), &|| late.exchange()], late.bound());
    }
}

#[test]
fn a_failure_that_is_learned_between_two_unbound_exchanges_is_the_second_ones() {
    for link in [LinkChoice::Mailbox, LinkChoice::Message] {
        let [(_, hasty), (_, late)] = &ranks(|comm| {
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
    let [(_, hasty), (_, late)] = &ranks(|comm| {
        let array = Array::<f64>::zeros(comm, &[4]).unwrap();
        HaloExchange::bind_with(comm, [(&ring(comm), &array)], &options(comm, LinkChoice::Auto)).unwrap()
    });
    failure(hasty.exchange().unwrap().wait());
    while late.bound().outcome(u64::MAX).is_none() {
        std::thread::yield_now();
    }
    let failed = failure(late.exchange());
    assert_eq!(failed.epoch, 1, "{failed}");
    assert!(
        failed.to_string().ends_with("; the halo is undefined; drop the object and bind again"),
        "{failed}"
    );
}

/// A closed line of three ranks with one cell each, on links whose reduces are combined in place or, by messages, not. Checked mode would
/// combine nothing in place.
fn line(comm: &Communicator, link: LinkChoice, deadline: Option<Duration>) -> (Array<f64>, HaloExchange) {
    let grid = RegularGrid::new([3]);
    let pattern = grid.decompose(3).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
    let array = Array::<f64>::zeros(comm, &[3]).unwrap();
    array.write().unwrap().copy_from_slice(&[1.0, 10.0, 100.0]);
    let options = BindOptions::default().link(link).deadline(deadline).checked(false);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options).unwrap();
    (array, halo)
}

/// The middle rank waits for its other neighbour, so that it has not combined the first one's halo, although it takes part. The
/// receiver's `keep_halo` decides whether its halo is kept.
#[test]
fn a_reduce_in_place_is_over_once_the_owner_has_combined() {
    for link in [LinkChoice::Push, LinkChoice::Pull] {
        let [(_, first), (_, middle), (_, last)] = &ranks(|comm| line(comm, link, None));
        let of_first = first.1.begin().reduce(ReduceOp::Sum).keep_halo(true).start().unwrap();
        let of_middle = middle.1.reduce(ReduceOp::Sum).unwrap();
        for _ in 0..100 {
            assert!(!of_first.is_ready().unwrap() && !of_middle.is_ready().unwrap(), "{link:?}");
        }
        let of_last = last.1.reduce(ReduceOp::Sum).unwrap();
        [&of_first, &of_middle, &of_last].into_iter().for_each(|pending| pending.wait().unwrap());
        let cells = |array: &Array<f64>| <[f64; 3]>::try_from(&array.read().unwrap()[..]).unwrap();
        // The outermost halo cells are outside the grid and stay.
        assert_eq!(cells(&first.0), [1.0, 11.0, 100.0], "{link:?}");
        assert_eq!(cells(&middle.0), [0.0, 111.0, 0.0], "{link:?}");
        assert_eq!(cells(&last.0), [0.0, 110.0, 100.0], "{link:?}");
    }
}

/// A rank that fails in a reduce keeps its fields until the owner has combined their halo.
#[test]
fn fields_are_given_back_once_the_owner_has_combined_their_halo() {
    for link in [LinkChoice::Push, LinkChoice::Pull] {
        let [(_, first), (_, middle), (_, last)] =
            &ranks(|comm| line(comm, link, (comm.rank() == 0).then_some(Duration::from_millis(1))));
        let of_first = first.1.reduce(ReduceOp::Sum).unwrap();
        let of_middle = middle.1.reduce(ReduceOp::Sum).unwrap();
        failure(of_first.wait());
        for _ in 0..100 {
            assert!(!of_middle.is_ready().unwrap() && !first.1.bound().reclaim(), "{link:?}");
        }
        let _of_last = last.1.reduce(ReduceOp::Sum).unwrap();
        while !first.1.bound().reclaim() {
            // It may find the failure of the first rank.
            let _ = of_middle.is_ready();
        }
    }
}

/// An owner that has failed and may still be combining tells no peer: that one would take its halo back.
#[test]
fn a_failure_is_reported_once_no_halo_is_combined_any_more() {
    let [_, (_, middle), (_, last)] =
        &ranks(|comm| line(comm, LinkChoice::Push, (comm.rank() == 1).then_some(Duration::from_millis(1))));
    let (owner, peer) = (middle.1.bound(), last.1.bound());
    let pending = middle.1.reduce(ReduceOp::Sum).unwrap();
    let mut is_combining = true;
    // As if this thread were combining now; a poll that is due afterwards happens below.
    owner.claimed(&owner.within.claim, || {
        if std::mem::take(&mut is_combining) {
            failure(pending.wait());
            owner.serve();
            // As a thread does that has looked for a failure before there was one.
            owner.links.iter().for_each(|link| owner.claimed(&link.claim, || owner.poll_link(link)));
            peer.serve();
            assert!(peer.life.failure().is_none());
        }
    });
    while peer.life.failure().is_none() {
        owner.claimed(&owner.within.claim, || owner.poll_within());
        peer.serve();
    }
}

/// A rank waits for an owner that waits for a third rank and whose own thread does nothing meanwhile: the progress thread of the owner
/// carries the reduce on, although the last contribution comes after it was asked.
#[test]
fn an_owner_that_computes_combines_when_the_last_contribution_comes() {
    let [(_, first), (_, middle), (_, last)] = &ranks(|comm| line(comm, LinkChoice::Push, None));
    let of_first = first.1.reduce(ReduceOp::Sum).unwrap();
    let _of_middle = middle.1.reduce(ReduceOp::Sum).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| of_first.wait());
        // The first rank sleeps once it has asked.
        let owner = middle.1.bound();
        while !owner.armed.load(std::sync::atomic::Ordering::Acquire) {
            std::thread::yield_now();
        }
        let _of_last = last.1.reduce(ReduceOp::Sum).unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// A rank that fails in its third reduce: that its halo was combined in the first one says nothing of the third.
#[test]
fn fields_are_not_given_back_because_of_an_earlier_reduce() {
    for _ in 0..20 {
        let objects: [_; 3] = ranks(|comm| {
            line(comm, LinkChoice::Push, (comm.rank() == 0).then_some(Duration::from_millis(100)))
        });
        for _ in 0..2 {
            let begun = objects.each_ref().map(|(_, (_, halo))| halo.reduce(ReduceOp::Sum).unwrap());
            // The owner first: the others have nothing to wait for then, however soon their deadline is.
            [1, 0, 2].into_iter().for_each(|rank| begun[rank].wait().unwrap());
        }
        let [(_, first), (_, middle), _] = &objects;
        failure(first.1.reduce(ReduceOp::Sum).unwrap().wait());
        // The owner may still begin the third reduce, as long as it does not know.
        assert!(!first.1.bound().reclaim() || middle.1.bound().life.failure().is_some());
    }
}
