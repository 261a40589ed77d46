//! Each report provoked, and none where nothing is wrong.

mod reduced;

use super::cells::{Region, fill_pattern};
use super::*;
use crate::bound::Bound;
use crate::lifecycle::Engine;
use crate::{
    Array, BindOptions, Decomposed, Error, Failure, Field, Halo, HaloExchange, LinkChoice, Pattern,
    PatternLinks, Redistribute, RegularGrid, UnstructuredDomain,
};
use halocline_plan::ElementType;
use std::sync::Arc;

/// What is done to a halo that was filled, before it is compared: its region and the epoch.
pub(crate) type Sabotage = fn(&Region<'_>, u64);

const PATHS: [LinkChoice; 4] = [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

fn checked(link: LinkChoice, name: &str) -> BindOptions {
    BindOptions::default().link(link).name(name).checked(true)
}

/// Runs the same as each of so many ranks.
fn on_ranks<T: Send>(size: usize, work: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let ranks: Vec<_> =
            Communicator::threads(size).into_iter().map(|comm| scope.spawn(move || work(&comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// Two cells of a ring on each rank, one halo cell at each side.
struct Ring {
    array: Array<f64>,
    halo: HaloExchange,
}

impl Ring {
    fn pattern(comm: &Communicator) -> Pattern {
        let grid = RegularGrid::new([2 * comm.size()]).periodic([true]);
        grid.decompose(comm.size()).unwrap().pattern(comm, Halo::uniform(1)).unwrap()
    }

    fn new(comm: &Communicator, options: &BindOptions) -> Self {
        let array = Array::zeros(comm, &[4]).unwrap();
        let halo = HaloExchange::bind_with(comm, [(&Self::pattern(comm), &array)], options).unwrap();
        array.write().unwrap().copy_from_slice(&[-1.0, 1.5, 2.5, -1.0]);
        Self { array, halo }
    }

    fn step(&self) -> Result<(), Error> {
        self.halo.exchange()?.wait()
    }

    /// Exchanges until the object fails.
    fn until_failure(&self) -> Arc<Failure> {
        until_failure(|| self.step())
    }

    fn sabotage(&self, sabotage: Sabotage) {
        sabotage_link(self.halo.bound(), Direction::Receive, sabotage);
    }

    /// The memory, also in flight.
    fn cell(&self, at: usize) -> *mut f64 {
        self.array.base().as_ptr().cast::<f64>().wrapping_add(at)
    }
}

fn until_failure(step: impl Fn() -> Result<(), Error>) -> Arc<Failure> {
    loop {
        match step() {
            Ok(()) => {}
            Err(Error::Failed(failure)) => return failure,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Of the last link of this direction.
fn sabotage_link(bound: &Bound, direction: Direction, sabotage: Sabotage) {
    let links = bound.links.iter().filter(|link| link.direction == direction);
    let check = links.last().and_then(|link| link.check.as_ref());
    *lock(&check.expect("a link").sabotage) = Some(sabotage);
}

/// What is done to a filled halo, what it is found to be, and what is said of its cells then.
const WRONGS: [(Sabotage, Fault, &str); 2] = [
    // SAFETY: the exchange has filled the region, and nobody else uses it yet.
    (|region, epoch| unsafe { region.fill(epoch) }, Fault::NotWritten, "were not written from"),
    // SAFETY: the exchange has filled the region, which has a cell, and nobody else uses it yet.
    (|region, _| unsafe { region.spoil() }, Fault::Changed, "are not what"),
];

/// What both ranks say of an exchange that rank 1 was made to find wrong.
fn sabotaged(link: LinkChoice, sabotage: Sabotage) -> Vec<Arc<Failure>> {
    on_ranks(2, |comm| {
        let ring = Ring::new(comm, &checked(link, "t"));
        (0..3).for_each(|_| ring.step().unwrap());
        if comm.rank() == 1 {
            ring.sabotage(sabotage);
        }
        ring.until_failure()
    })
}

#[test]
fn a_halo_cell_that_was_not_written_is_named() {
    for link in PATHS {
        let failures = sabotaged(link, |region, epoch| {
            // SAFETY: the exchange has filled the region, and nobody else uses it yet.
            unsafe { region.fill(epoch) }
        });
        for failure in &failures {
            assert_eq!((failure.cause, failure.culprit), (Cause::Check(Fault::NotWritten), 1), "{failure}");
        }
        let text = failures[1].to_string();
        let found = "1 of the 1 halo cells [-1..0] of field 0 of domain 1 (pattern 0 of the bind) were not \
                     written from domain 0 of rank 0; the first is [-1]";
        assert!(text.contains("exchange 4 failed") && text.contains(found), "{link:?}: {text}");
        let text = failures[0].to_string();
        assert!(text.contains("rank 1 has found that halo cells were not written"), "{text}");
    }
}

#[test]
fn bytes_that_changed_under_way_are_named() {
    for link in PATHS {
        let failures = sabotaged(link, |region, _| {
            // SAFETY: the exchange has filled the region, which has a cell, and nobody else uses it yet.
            unsafe { region.spoil() }
        });
        for failure in &failures {
            assert_eq!((failure.cause, failure.culprit), (Cause::Check(Fault::Changed), 1), "{failure}");
        }
        let text = failures[1].to_string();
        let found = "halo cells [-1..0] of field 0 of domain 1 (pattern 0 of the bind) are not what domain 0 \
                     of rank 0 held";
        assert!(text.contains(found), "{link:?}: {text}");
    }
}

/// What is found of sabotage on rank 1, which that rank says of `cells`; rank 0 learns of it.
fn is_named(failures: &[Arc<Failure>], fault: Fault, cells: &[&str]) {
    for failure in failures {
        assert_eq!((failure.cause, failure.culprit), (Cause::Check(fault), 1), "{failure}");
    }
    let text = format!("rank 1 has found that {fault}");
    assert!(failures[0].to_string().contains(&text), "{}", failures[0]);
    let text = failures[1].to_string();
    for part in cells {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn cells_written_before_the_wait_are_named_although_all_bytes_have_gone() {
    let came = "halo cells [2..3] of field 0 of domain 0 (pattern 0 of the bind), which came from domain 1 of rank 1, were overwritten";
    let cells = [(1, Fault::OwnedWritten, "owned cells"), (3, Fault::HaloWritten, came)];
    for (link, (cell, fault, named)) in PATHS.into_iter().flat_map(|link| cells.map(|cell| (link, cell))) {
        let barrier = std::sync::Barrier::new(2);
        let ended = on_ranks(2, |comm| {
            let ring = Ring::new(comm, &checked(link, "t"));
            ring.step().unwrap();
            let pending = ring.halo.exchange().unwrap();
            barrier.wait();
            if comm.rank() == 0 {
                // The progress thread finishes it meanwhile.
                while ring.halo.bound().outcome(2).is_none() {
                    comm.link().own_bell().demand(comm.link().host());
                    std::thread::yield_now();
                }
                // SAFETY: the array has the cell, and all copying is over; the write is the error that is looked for.
                unsafe { ring.cell(cell).write_volatile(99.0) };
            }
            let ended = pending.wait();
            if comm.rank() == 0 {
                // Later waits return the same.
                assert_eq!(*until_failure(|| pending.wait()), *until_failure(|| ring.step()));
            }
            // The other rank has not begun another exchange, and keeps its object until here.
            barrier.wait();
            ended
        });
        let [found, other] = <[_; 2]>::try_from(ended).unwrap();
        let found = until_failure(|| found.clone());
        assert_eq!((found.cause, found.epoch), (Cause::Check(fault), 2), "{link:?}");
        assert!(found.to_string().contains(named), "{link:?}: {found}");
        assert!(other.is_ok(), "{link:?}: {other:?}");
    }
}

#[test]
fn an_owned_cell_that_is_not_sent_is_named_if_it_is_written_in_flight() {
    for link in PATHS {
        let barrier = std::sync::Barrier::new(2);
        let ended = on_ranks(2, |comm| {
            // Six cells on each rank: the two outermost are sent.
            let grid = RegularGrid::new([12]).periodic([true]);
            let pattern = grid.decompose(2).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
            let array = Array::<f64>::zeros(comm, &[8]).unwrap();
            let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &checked(link, "t")).unwrap();
            halo.exchange().unwrap().wait().unwrap();
            let pending = halo.exchange().unwrap();
            barrier.wait();
            if comm.rank() == 0 {
                let cell = array.base().as_ptr().cast::<f64>().wrapping_add(4);
                // SAFETY: the array has the cell, and no exchange accesses it; the write is the error that is looked for.
                unsafe { cell.write_volatile(99.0) };
            }
            let ended = pending.wait();
            barrier.wait();
            ended
        });
        let [found, other] = <[_; 2]>::try_from(ended).unwrap();
        let found = until_failure(|| found.clone());
        assert_eq!((found.cause, found.epoch), (Cause::Check(Fault::OwnedWritten), 2), "{link:?}");
        let named = "within the rank: owned cells of field 0 of domain 0 (pattern 0 of the bind) were written while the exchange \
                     was in flight, among elements 1..7 in the order of memory";
        assert!(found.to_string().contains(named), "{link:?}: {found}");
        // It may find out before its own wait.
        assert!(other.is_ok() || until_failure(|| other.clone()).culprit == 0, "{link:?}: {other:?}");
    }
}

#[test]
fn what_is_wrong_between_domains_of_a_rank_is_named() {
    for link in PATHS {
        for (sabotage, fault, said) in WRONGS {
            let failures = on_ranks(2, |comm| {
                // Two cells in each domain.
                let grid = RegularGrid::new([8]).periodic([true]).domains_per_rank(2);
                let pattern = grid.decompose(2).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
                let arrays = [(); 2].map(|()| Array::<f64>::zeros(comm, &[4]).unwrap());
                let domains: Vec<u64> = pattern.plan().domains.iter().map(|(domain, _)| *domain).collect();
                let fields = [0, 1].map(|at| arrays[at].on_domain(domains[at]));
                let fields = fields.each_ref().map(|field| (&pattern, field));
                let halo = HaloExchange::bind_with(comm, fields, &checked(link, "t")).unwrap();
                arrays.iter().for_each(|array| array.write().unwrap().fill(1.0));
                (0..3).for_each(|_| halo.exchange().unwrap().wait().unwrap());
                if comm.rank() == 1 {
                    *lock(&halo.bound().check.as_ref().unwrap().sabotage) = Some(sabotage);
                }
                until_failure(|| halo.exchange()?.wait())
            });
            is_named(&failures, fault, &["exchange 4 failed within the rank: ", said, "of rank 1"]);
        }
    }
}

#[test]
fn what_is_wrong_with_fields_given_to_an_exchange_is_named() {
    for link in [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message] {
        for (sabotage, fault, said) in WRONGS {
            let failures = on_ranks(2, |comm| {
                let patterns = [Ring::pattern(comm), Ring::pattern(comm)];
                let links = PatternLinks::new_with(comm, &patterns.each_ref(), &checked(link, "t")).unwrap();
                let arrays = [4, 4, 4].map(|cells| Array::<f64>::zeros(comm, &[cells]).unwrap());
                arrays.iter().for_each(|array| array.write().unwrap().fill(1.0));
                let [one, other] = &patterns;
                let step = |fields: &[(&Pattern, &Field)]| links.exchange(fields)?.wait();
                // Other fields each time, of one pattern or both.
                step(&[(one, &arrays[0])]).unwrap();
                step(&[(other, &arrays[1]), (one, &arrays[0]), (one, &arrays[2])]).unwrap();
                step(&[]).unwrap();
                if comm.rank() == 1 {
                    sabotage_link(links.bound(), Direction::Receive, sabotage);
                }
                until_failure(|| step(&[(other, &arrays[2]), (other, &arrays[1])]))
            });
            let of = "field 0 of domain 1 (pattern 0 of the bind)";
            is_named(&failures, fault, &["exchange 4 failed", "halo cells [-1..0]", of, said, "of rank 0"]);
        }
    }
}

#[test]
fn what_is_wrong_with_a_narrowed_halo_is_named() {
    for link in PATHS {
        for (sabotage, fault, said) in WRONGS {
            let failures = on_ranks(2, |comm| {
                let grid = RegularGrid::new([8]).periodic([true]);
                let pattern = grid.decompose(2).unwrap().pattern(comm, Halo::uniform(2)).unwrap();
                let array = Array::<f64>::zeros(comm, &[8]).unwrap();
                let wide = HaloExchange::bind_with(comm, [(&pattern, &array)], &checked(link, "t")).unwrap();
                let narrow = wide.narrowed(&Halo::uniform(1)).unwrap();
                let (rank, beyond) = (comm.rank() as f64, -5.0);
                array.write().unwrap().copy_from_slice(&[beyond, -1.0, rank, 2.0, 3.0, rank, -1.0, beyond]);
                narrow.exchange().unwrap().wait().unwrap();
                // What is not exchanged is neither filled nor missed.
                assert_eq!(array.read().unwrap()[..2], [beyond, 1.0 - rank]);
                assert_eq!(array.read().unwrap()[6..], [1.0 - rank, beyond]);
                wide.exchange().unwrap().wait().unwrap();
                assert_eq!(array.read().unwrap()[..2], [3.0, 1.0 - rank]);
                narrow.exchange().unwrap().wait().unwrap();
                if comm.rank() == 1 {
                    sabotage_link(wide.bound(), Direction::Receive, sabotage);
                }
                until_failure(|| narrow.exchange()?.wait())
            });
            is_named(&failures, fault, &["exchange 4 failed", "halo cells [-1..0]", said, "of rank 0"]);
        }
    }
}

#[test]
fn domains_of_a_redistribution_are_called_as_their_user_does() {
    for link in PATHS {
        let bound = |comm: &Communicator| {
            // What one rank has goes to the other.
            let me = comm.rank() as u64;
            let domain = |id: u64, cell: u64| [UnstructuredDomain::new(id + me, vec![cell], vec![])];
            let (from, to) = (domain(10, me), domain(20, 1 - me));
            let redistribute = Redistribute::unstructured(comm, &from, &to).unwrap();
            let [from, to] = [(); 2].map(|()| Array::<f64>::zeros(comm, &[1]).unwrap());
            let halo = redistribute.bind_with(comm, [&from], [&to], &checked(link, "t")).unwrap();
            (from, halo)
        };
        for (sabotage, fault, said) in WRONGS {
            let failures = on_ranks(2, |comm| {
                let (_from, halo) = bound(comm);
                if comm.rank() == 1 {
                    sabotage_link(halo.bound(), Direction::Receive, sabotage);
                }
                until_failure(|| halo.exchange()?.wait())
            });
            let (to, from) = ("of domain 21 of the second side (", "domain 10 of the first side of rank 0");
            is_named(&failures, fault, &[to, said, from]);
        }
        let ends = on_ranks(2, |comm| (comm.clone(), bound(comm)));
        let [(_, (cells, hasty)), (_, (_, late))] = &ends[..] else { unreachable!("two ranks") };
        let pending = hasty.exchange().unwrap();
        // SAFETY: the array has the cell. That the exchange may read it is the user's error that is looked for; in this
        // test it does not, since only this thread runs (and a link that waits for the other rank).
        unsafe { cells.base().as_ptr().cast::<f64>().write_volatile(7.0) };
        let _ = late.exchange().and_then(|pending| pending.wait());
        let text = pending.wait().unwrap_err().to_string();
        let named = "field 0 of domain 10 of the first side (pattern 0 of the bind), which go to domain 21 of the \
                     second side of rank 1, were written";
        assert!(text.contains(named), "{link:?}: {text}");
    }
}

#[test]
fn owned_cells_written_in_flight_are_named() {
    for link in PATHS {
        let ends = on_ranks(2, |comm| (comm.clone(), Ring::new(comm, &checked(link, "t"))));
        let [(_, hasty), (_, late)] = &ends[..] else { unreachable!("two ranks") };
        let pending = hasty.halo.exchange().unwrap();
        // SAFETY: the array has the cell. That the exchange may read it is the user's error that is looked for; in this
        // test it does not, since only this thread runs (and a link that waits for the other rank).
        unsafe { hasty.cell(1).write_volatile(7.0) };
        // Where the bytes were sent before, the other rank finds nothing.
        let found = late.step().and_then(|()| late.step());
        let failure = match pending.wait() {
            Err(Error::Failed(failure)) => failure,
            other => panic!("{link:?}: {other:?}"),
        };
        assert_eq!((failure.cause, failure.culprit), (Cause::Check(Fault::OwnedWritten), 0), "{failure}");
        let named = failure.link.map(|link| (link.peer, link.direction));
        assert_eq!(named, Some((1, Direction::Send)), "{failure}");
        let text = failure.to_string();
        let named = "owned cells [0..1] of field 0 of domain 0 (pattern 0 of the bind), which go to domain 1 of \
                     rank 1, were written while the exchange was in flight";
        assert!(text.contains(named), "{link:?}: {text}");
        assert!(matches!(found, Err(Error::Failed(_))), "{link:?}: {found:?}");
    }
}

#[test]
fn values_that_look_like_the_fill_pattern_are_no_fault() {
    for link in PATHS {
        on_ranks(3, |comm| {
            let ring = Ring::new(comm, &checked(link, "t"));
            for epoch in 1..6 {
                let value = fill_pattern(ElementType::F64, epoch);
                let value = f64::from_le_bytes(value[..8].try_into().unwrap());
                ring.array.write().unwrap().fill(value);
                ring.step().unwrap();
                assert!(ring.array.read().unwrap().iter().all(|cell| cell.to_bits() == value.to_bits()));
            }
        });
    }
}

#[test]
fn halo_cells_hold_the_fill_pattern_in_flight() {
    for link in PATHS {
        let ends = on_ranks(2, |comm| (comm.clone(), Ring::new(comm, &checked(link, "t"))));
        let [(_, here), (_, late)] = &ends[..] else { unreachable!("two ranks") };
        for _ in 0..3 {
            let pending = here.halo.exchange().unwrap();
            for at in [0, 3] {
                // SAFETY: the array has the cell, and nobody writes it: the other rank has not begun.
                assert!(unsafe { here.cell(at).read_volatile() }.is_nan(), "{link:?}: cell {at}");
            }
            late.step().unwrap();
            pending.wait().unwrap();
            assert_eq!(here.array.read().unwrap()[..], [2.5, 1.5, 2.5, 1.5]);
        }
    }
}

#[test]
fn different_sets_of_fields_are_named_on_both_ranks() {
    for link in PATHS {
        for lengths in [[4, 4], [4, 8]] {
            let failures = on_ranks(2, |comm| {
                let pattern = Ring::pattern(comm);
                // The second set has more to send.
                let small = Array::<f64>::zeros(comm, &[4]).unwrap();
                let large = Array::<f64>::zeros(comm, &[4, lengths[1]]).unwrap();
                let sets: [&[_]; 2] = [&[(&pattern, &*small)], &[(&pattern, &*large)]];
                let halo = HaloExchange::bind_alternatives(comm, &sets, &checked(link, "t")).unwrap();
                for set in [0, 1, 1, 0] {
                    halo.begin().set(set).start().unwrap().wait().unwrap();
                }
                let ended = halo.begin().set(comm.rank()).start().unwrap().wait();
                match ended.and_then(|()| halo.exchange()?.wait()) {
                    Err(Error::Failed(failure)) => failure,
                    other => panic!("{other:?}"),
                }
            });
            assert!(failures.iter().all(|failure| failure.cause == Cause::Check(Fault::OtherSet)));
            let reports: Vec<&String> =
                failures.iter().filter_map(|failure| failure.report.as_ref()).collect();
            assert!(!reports.is_empty());
            for report in reports {
                let (one, other) = ("rank 1 exchanges set 1", "rank 0 exchanges set 0");
                assert!(report.contains(one) || report.contains(other), "{report}");
            }
        }
    }
}

#[test]
fn ranks_that_differ_about_checking_are_refused() {
    let ended = on_ranks(3, |comm| {
        let array = Array::<f64>::zeros(comm, &[4]).unwrap();
        let options = BindOptions::default().checked(comm.rank() == 1);
        HaloExchange::bind_with(comm, [(&Ring::pattern(comm), &array)], &options).map(drop)
    });
    let texts: Vec<String> = ended.into_iter().map(|ended| ended.unwrap_err().to_string()).collect();
    let said = "rank 1 binds in checked mode, rank 0 binds without it; HALOCLINE_CHECK and the option must be \
                the same on all ranks";
    for (rank, text) in texts.iter().enumerate() {
        assert!(text.ends_with(said), "rank {rank}: {text}");
    }
}
