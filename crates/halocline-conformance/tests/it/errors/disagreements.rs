//! Two ranks that make different calls, or of which one sends what it should not.

use super::provoked::{errors_of_two, on_two_ranks};
use halocline::neighbors::{NeighborError, NeighborExchange, Sides, Topology};
use halocline::{
    Array, BindError, BindOptions, Cause, Communicator, Decomposed, Error, Field, HaloExchange, HostMemory,
    LinkChoice, Pattern, PatternLinks, RegularGrid,
};
use halocline_comm::sparse::{SparseAlltoall, SparseError};
use halocline_conformance::tampered::tampered;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Rank 1 differs from rank 0: its error, after a check that rank 0 names it.
fn of_rank_1(errors: Vec<Option<Error>>) -> BindError {
    match <[_; 2]>::try_from(errors) {
        Ok([Some(Error::Elsewhere { rank: 1, .. }), Some(Error::Bind(error))]) => error,
        other => panic!("instead of an error of a bind on rank 1: {other:?}"),
    }
}

#[test]
fn binds_that_differ_in_their_sets_patterns_or_modes_are_refused() {
    let sets = errors_of_two(|comm| {
        let sets = [(); 2];
        HaloExchange::bind_alternatives(comm, &sets[comm.rank()..], &BindOptions::default()).map(drop)
    });
    assert!(matches!(of_rank_1(sets), BindError::SetCount { rank: 1, sets: 1, first: 2 }));
    let patterns = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        PatternLinks::new(comm, &[&pattern][comm.rank()..]).map(drop)
    });
    assert!(matches!(of_rank_1(patterns), BindError::Patterns { rank: 1 }));
    let modes = errors_of_two(|comm| {
        let options = BindOptions::default().checked(comm.rank() == 1);
        HaloExchange::bind_with(comm, (), &options).map(drop)
    });
    assert!(matches!(of_rank_1(modes), BindError::CheckedMode { rank: 1, checked: true }));
}

#[test]
fn ranks_that_bind_different_numbers_of_fields_are_told() {
    let errors = errors_of_two(|comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let array = Array::<u64>::zeros(comm, &[4])?;
        let fields: &[(&Pattern, &Field)] = &[(&pattern, &array)];
        HaloExchange::bind(comm, &fields[..comm.rank()]).map(drop)
    });
    let none = BindError::PatternNotBound { rank: 0, peer: 1, peer_fields: 1 };
    let one = BindError::RankFields { pattern: 0, rank: 1, fields: 1, peer: 0, peer_fields: 0 };
    for (error, expected) in errors.iter().zip([none, one]) {
        let Some(Error::Bind(found)) = error else { panic!("{error:?} instead of {expected:?}") };
        assert_eq!(found.to_string(), expected.to_string());
    }
}

#[test]
fn a_decomposition_for_more_ranks_is_refused() {
    let decomposition = RegularGrid::new([6]).decompose(3).unwrap();
    let error = decomposition.pattern(&Communicator::single(), 1).unwrap_err();
    assert!(matches!(error, Error::DecomposedFor { decomposed: 3, ranks: 1 }), "{error}");
}

#[test]
fn different_halos_on_two_ranks_are_refused() {
    let errors =
        errors_of_two(|comm| RegularGrid::new([8]).decompose(2)?.pattern(comm, comm.rank() + 1).map(drop));
    assert!(matches!(errors[0], Some(Error::Elsewhere { rank: 1, .. })), "{errors:?}");
    let is_named = matches!(errors[1], Some(Error::Differs { rank: 1, what: "decomposition or halo" }));
    assert!(is_named, "{errors:?}");
}

#[test]
fn neighbours_that_make_different_lines_are_told() {
    on_two_ranks(|comm| {
        let (own, other) = match comm.rank() {
            0 => (Topology::Ring, Topology::Line),
            _ => (Topology::Line, Topology::Ring),
        };
        let memory = Arc::new(HostMemory::of(&comm));
        let line = match own {
            Topology::Ring => NeighborExchange::ring(&comm, memory),
            Topology::Line => NeighborExchange::line(&comm, memory),
        };
        // Both find it: each says first what it has made.
        let error = line.unwrap().exchange(0, Sides::default()).unwrap_err();
        let (rank, from) = (comm.rank(), 1 - comm.rank());
        let expected = NeighborError::Topology { rank, own, from, other };
        assert_eq!(error.to_string(), expected.to_string());
        comm.barrier().unwrap();
    });
}

#[test]
fn a_neighbour_that_drops_its_end_is_named() {
    on_two_ranks(|comm| {
        let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm))).unwrap();
        if comm.rank() == 1 {
            let error = line.exchange(7, Sides::default()).unwrap_err();
            assert!(matches!(error, NeighborError::Dropped { rank: 0, waiting: 1, id: 7 }), "{error}");
        }
        drop(line);
        comm.barrier().unwrap();
    });
}

#[test]
fn the_result_of_a_round_in_flight_cannot_be_taken() {
    let is_refused = Barrier::new(2);
    on_two_ranks(|comm| {
        let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm))).unwrap();
        let start = || line.start(3, Sides::default()).unwrap();
        // Rank 1 starts it once rank 0 was refused.
        let early = (comm.rank() == 0).then(start);
        if let Some(round) = &early {
            assert!(matches!(round.take(), Err(NeighborError::InFlight { id: 3 })));
        }
        is_refused.wait();
        early.unwrap_or_else(start).wait().unwrap();
    });
}

#[test]
fn the_deadline_of_a_round_names_the_neighbour_that_is_late() {
    // Rank 1 takes no part, but stays.
    let is_over = Barrier::new(2);
    on_two_ranks(|comm| {
        let late = comm.with_deadline(Some(Duration::from_millis(1)));
        if comm.rank() == 0 {
            let line = NeighborExchange::line(&late, Arc::new(HostMemory::of(&comm))).unwrap();
            let error = line.exchange(5, Sides::default()).unwrap_err();
            let is_named = |missing: &str| missing.contains("rank 1, its right neighbour");
            assert!(
                matches!(&error, NeighborError::Deadline { waiting: 0, id: 5, missing, .. } if is_named(missing)),
                "{error}"
            );
        }
        is_over.wait();
    });
}

#[test]
fn the_deadline_of_a_sparse_all_to_all_names_the_rank_that_is_late() {
    // Rank 1 takes no part, but stays.
    let is_over = Barrier::new(2);
    on_two_ranks(|comm| {
        let late = comm.with_deadline(Some(Duration::from_millis(1)));
        if comm.rank() == 0 {
            let exchange = SparseAlltoall::new(&late, &[1], &[], Arc::new(HostMemory::of(&comm))).unwrap();
            let error = exchange.finish_and_wait().unwrap_err();
            let is_named = |missing: &str| missing.contains("rank 1");
            assert!(
                matches!(&error, SparseError::Deadline { waiting: 0, missing, .. } if is_named(missing)),
                "{error}"
            );
        }
        is_over.wait();
    });
}

#[test]
fn an_exchange_whose_message_is_cut_short_fails() {
    let is_armed = Arc::new(AtomicBool::new(false));
    let errors = errors_of_two(|comm| {
        // Rank 1 cuts its first message after the bind, which is that of the exchange.
        let cut = (comm.rank() == 1).then(|| Arc::clone(&is_armed));
        let comm = &tampered(comm.duplicate()?, move |message| {
            if cut.as_ref().is_some_and(|is_armed| is_armed.swap(false, Ordering::Relaxed)) {
                message.payload.pop();
            }
            Ok(())
        });
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, 1)?;
        let array = Array::<u64>::zeros(comm, &[4])?;
        let options = BindOptions::default().link(LinkChoice::Message);
        let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
        comm.barrier()?;
        if comm.rank() == 1 {
            is_armed.store(true, Ordering::Relaxed);
        }
        halo.exchange()?.wait()
    });
    let Some(Error::Failed(failure)) = &errors[0] else { panic!("{errors:?}") };
    assert_eq!((failure.cause, failure.culprit, failure.epoch), (Cause::Malformed, 1, 1), "{failure}");
}
