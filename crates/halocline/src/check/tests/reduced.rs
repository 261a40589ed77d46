//! The checks of reduces.

use super::*;
use crate::ReduceOp;

/// Two ranks, driven by this thread: the first one begins, the other one is late.
fn two(link: LinkChoice) -> [(Communicator, Ring); 2] {
    let ends = on_ranks(2, |comm| (comm.clone(), Ring::new(comm, &checked(link, "t"))));
    ends.try_into().unwrap_or_else(|_| unreachable!("two ranks"))
}

fn reduce(halo: &HaloExchange) -> Result<(), Error> {
    halo.reduce(ReduceOp::Sum)?.wait()
}

/// The failure of the first rank, which is its own, after the other one has reduced, too.
fn found(pending: &crate::Pending, late: &HaloExchange, fault: Fault) -> String {
    // It may have sent its own halo before.
    let learned = reduce(late).and_then(|()| reduce(late));
    let failure = match pending.wait() {
        Err(Error::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!((failure.cause, failure.culprit, failure.epoch), (Cause::Check(fault), 0, 1), "{failure}");
    assert!(matches!(learned, Err(Error::Failed(_))), "{learned:?}");
    failure.to_string()
}

#[test]
fn checked_reduces_have_the_same_result() {
    for link in PATHS {
        let arrays = on_ranks(3, |comm| {
            let ring = Ring::new(comm, &checked(link, "t"));
            for keeps in [true, false, true] {
                ring.array.write().unwrap().copy_from_slice(&[1.0, 10.0, 20.0, 2.0]);
                ring.halo.begin().reduce(ReduceOp::Sum).keep_halo(keeps).start().unwrap().wait().unwrap();
                let halo = if keeps { [1.0, 2.0] } else { [0.0; 2] };
                assert_eq!(
                    ring.array.read().unwrap()[..],
                    [halo[0], 12.0, 21.0, halo[1]],
                    "{link:?}, {keeps}"
                );
                ring.step().unwrap();
            }
            ring.array.read().unwrap().to_vec()
        });
        assert_eq!(arrays, [(); 3].map(|()| vec![21.0, 12.0, 21.0, 12.0]));
    }
}

#[test]
fn a_halo_cell_that_is_written_before_it_is_packed_is_named() {
    for link in PATHS {
        let [(_, hasty), (_, late)] = &two(link);
        let pending = hasty.halo.reduce(ReduceOp::Sum).unwrap();
        // SAFETY: the array has the cell. That the reduce may read it is the user's error that is looked for; in this test it does not,
        // since the other rank has not begun.
        unsafe { hasty.cell(0).write_volatile(7.0) };
        let text = found(&pending, &late.halo, Fault::HaloWritten);
        let named = "halo cells [-1..0] of field 0 of domain 0 (pattern 0 of the bind), which domain 1 of rank 1 owns, were written after \
                     the reduce had begun";
        assert!(text.contains(named), "{link:?}: {text}");
    }
}

#[test]
fn an_owned_cell_that_is_written_before_it_is_combined_is_named() {
    for link in PATHS {
        let [(_, hasty), (_, late)] = &two(link);
        let pending = hasty.halo.reduce(ReduceOp::Sum).unwrap();
        // SAFETY: the array has the cell. That the reduce may change it is the user's error that is looked for; in this test it does not,
        // since the other rank has not begun.
        unsafe { hasty.cell(1).write_volatile(7.0) };
        let text = found(&pending, &late.halo, Fault::OwnedWritten);
        let named = "owned cells of field 0 of domain 0 (pattern 0 of the bind) were written while the reduce was in flight";
        assert!(text.contains(named), "{link:?}: {text}");
    }
}

#[test]
fn a_halo_cell_of_the_rank_itself_that_is_written_before_it_is_combined_is_named() {
    for link in PATHS {
        let ends = on_ranks(2, |comm| {
            // Two cells in each domain.
            let grid = RegularGrid::new([8]).periodic([true]).domains_per_rank(2);
            let pattern = grid.decompose(2).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
            let arrays = [(); 2].map(|()| Array::<f64>::zeros(comm, &[4]).unwrap());
            let domains: Vec<u64> = pattern.plan().domains.iter().map(|(domain, _)| *domain).collect();
            let fields = [0, 1].map(|at| arrays[at].on_domain(domains[at]));
            let fields = fields.each_ref().map(|field| (&pattern, field));
            (comm.clone(), HaloExchange::bind_with(comm, fields, &checked(link, "t")).unwrap(), arrays)
        });
        let [(_, hasty, arrays), (_, late, _)] = &ends[..] else { unreachable!("two ranks") };
        let pending = hasty.reduce(ReduceOp::Sum).unwrap();
        // SAFETY: the array has the cell. That the reduce may read it is the user's error that is looked for; in this test it does not,
        // since the other rank has not begun.
        unsafe { arrays[0].base().as_ptr().cast::<f64>().wrapping_add(3).write_volatile(7.0) };
        let text = found(&pending, late, Fault::HaloWritten);
        let named = "halo cells [2..3] of field 0 of domain 0 (pattern 0 of the bind), which domain 1 of rank 0 owns, were written after";
        assert!(text.contains(named), "{link:?}: {text}");
    }
}

#[test]
fn cells_written_before_the_wait_are_named_although_all_are_combined() {
    let halo = "halo cells [2..3] of field 0 of domain 0 (pattern 0 of the bind), which domain 1 of rank 1 owns, were written";
    let cells = [(1, Fault::OwnedWritten, "owned cells"), (3, Fault::HaloWritten, halo)];
    for (link, (cell, fault, named)) in PATHS.into_iter().flat_map(|link| cells.map(|cell| (link, cell))) {
        let barrier = std::sync::Barrier::new(2);
        let ended = on_ranks(2, |comm| {
            let ring = Ring::new(comm, &checked(link, "t"));
            let pending = ring.halo.reduce(ReduceOp::Sum).unwrap();
            barrier.wait();
            if comm.rank() == 0 {
                // The progress thread finishes it meanwhile.
                while ring.halo.bound().outcome(1).is_none() {
                    comm.link().own_bell().demand(comm.link().host());
                    std::thread::yield_now();
                }
                // SAFETY: the array has the cell, and all combining is over; the write is the error that is looked for.
                unsafe { ring.cell(cell).write_volatile(99.0) };
            }
            let ended = pending.wait();
            // The other rank has not begun another reduce, and keeps its object until here.
            barrier.wait();
            ended
        });
        let [found, other] = <[_; 2]>::try_from(ended).unwrap();
        let found = until_failure(|| found.clone());
        assert_eq!((found.cause, found.epoch), (Cause::Check(fault), 1), "{link:?}");
        assert!(found.to_string().contains(named), "{link:?}: {found}");
        assert!(other.is_ok(), "{link:?}: {other:?}");
    }
}

#[test]
fn contributions_that_changed_under_way_are_named() {
    for link in PATHS {
        let failures = on_ranks(2, |comm| {
            let ring = Ring::new(comm, &checked(link, "t"));
            (0..3).for_each(|_| reduce(&ring.halo).unwrap());
            if comm.rank() == 1 {
                // SAFETY: the halo has arrived, and nobody else uses the bytes, which are one cell.
                sabotage_link(ring.halo.bound(), Direction::Send, |region, _| unsafe { region.spoil() });
            }
            until_failure(|| reduce(&ring.halo))
        });
        let named =
            "the halo of domain 0 of rank 0 is not what that rank has packed: bytes have changed on the way";
        is_named(&failures, Fault::ChangedOnTheWay, &["exchange 4 failed", named]);
    }
}
