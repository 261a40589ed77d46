//! Checked mode as users see it: what they do while an exchange is in flight. And what
//! holds without it, too: nobody touches fields that were not given to an exchange.

use halocline::{
    Array, BindOptions, Cause, Communicator, Decomposed, Error, Failure, Fault, Halo, HaloExchange,
    LinkChoice, Pattern, PatternLinks, RegularGrid,
};
use std::sync::{Arc, Barrier};

const PATHS: [LinkChoice; 4] = [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

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
fn ring(comm: &Communicator) -> Pattern {
    let grid = RegularGrid::new([2 * comm.size()]).periodic([true]);
    grid.decompose(comm.size()).unwrap().pattern(comm, Halo::uniform(1)).unwrap()
}

fn bound(comm: &Communicator, options: &BindOptions) -> (Array<f64>, HaloExchange) {
    let array = Array::zeros(comm, &[4]).unwrap();
    let halo = HaloExchange::bind_with(comm, [(&ring(comm), &array)], options).unwrap();
    (array, halo)
}

fn options(link: LinkChoice, name: &str) -> BindOptions {
    BindOptions::default().link(link).name(name).checked(true)
}

fn failure<T: std::fmt::Debug>(ended: Result<T, Error>) -> Arc<Failure> {
    match ended {
        Err(Error::Failed(failure)) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

/// Writes a cell as a user does who does not care for guards.
fn scribble(array: &Array<f64>, at: usize) {
    // SAFETY: the array has the cell. That an exchange may read it is the user's error that is looked for; in these
    // tests all copying is over.
    unsafe { array.base().as_ptr().cast::<f64>().add(at).write_volatile(99.0) };
}

#[test]
fn halo_cells_filled_from_within_a_rank_are_compared_too() {
    let comm = Communicator::single();
    let (array, halo) = bound(&comm, &options(LinkChoice::Auto, "t"));
    halo.exchange().unwrap().wait().unwrap();
    // Between a wait and the next begin the user may write whatever there is.
    scribble(&array, 0);
    let pending = halo.exchange().unwrap();
    scribble(&array, 0);
    let found = failure(pending.wait());
    assert_eq!((found.cause, found.epoch, found.link), (Cause::Check(Fault::HaloWritten), 2, None));
    let text = found.to_string();
    assert!(text.contains("within the rank: halo cells [-1..0] of field 0 of domain 0"), "{text}");
}

/// The memory of fields that were given to one exchange is looked at by its wait, too.
#[test]
fn fields_given_to_an_exchange_are_compared_until_its_wait() {
    for (cell, fault) in [(1, Fault::OwnedWritten), (3, Fault::HaloWritten)] {
        let comm = Communicator::single();
        let pattern = ring(&comm);
        let links = PatternLinks::new_with(&comm, &[&pattern], &options(LinkChoice::Auto, "t")).unwrap();
        let step = |array: &Array<f64>| links.exchange(&[(&pattern, array)]);
        let array = Array::<f64>::zeros(&comm, &[4]).unwrap();
        // Dropped in flight: held until somebody has waited.
        let pending = step(&Array::zeros(&comm, &[4]).unwrap()).unwrap();
        pending.wait().unwrap();
        let pending = step(&array).unwrap();
        scribble(&array, cell);
        assert_eq!(failure(pending.wait()).cause, Cause::Check(fault));
    }
}

#[test]
fn owned_cells_that_stay_within_a_rank_are_compared_too() {
    let comm = Communicator::single();
    let (array, halo) = bound(&comm, &options(LinkChoice::Auto, "t"));
    halo.exchange().unwrap().wait().unwrap();
    let pending = halo.exchange().unwrap();
    scribble(&array, 1);
    let found = failure(pending.wait());
    assert_eq!(found.cause, Cause::Check(Fault::OwnedWritten));
    let text = found.to_string();
    assert!(text.contains("within the rank: owned cells [0..1] of field 0 of domain 0"), "{text}");
    assert_eq!(*failure(pending.wait()), *found);
    assert_eq!(*failure(halo.exchange()), *found);
}

/// Ranks that exchange different sets of fields fail before anybody touches a field of the other set.
#[test]
fn fields_of_another_set_are_never_touched() {
    for (link, checked) in PATHS.into_iter().flat_map(|link| [false, true].map(|checked| (link, checked))) {
        let failed = Barrier::new(2);
        let ended = on_ranks(2, |comm| {
            let pattern = ring(comm);
            let arrays = [1.0, 10.0].map(|value| {
                let array = Array::<f64>::zeros(comm, &[4]).unwrap();
                array.write().unwrap().fill(value + comm.rank() as f64);
                array
            });
            let sets: [&[_]; 2] = [&[(&pattern, &*arrays[0])], &[(&pattern, &*arrays[1])]];
            let options = BindOptions::default().link(link).checked(checked);
            let halo = HaloExchange::bind_alternatives(comm, &sets, &options).unwrap();
            // Held all the time: this array is in no exchange of this rank.
            let guard = arrays[1 - comm.rank()].read().unwrap();
            let before = guard.to_vec();
            let ended = halo
                .begin()
                .set(comm.rank())
                .start()
                .unwrap()
                .wait()
                .and_then(|()| halo.begin().set(0).start()?.wait());
            failed.wait();
            assert_eq!(guard[..], before[..], "{link:?}");
            failure(ended)
        });
        for failure in &ended {
            assert_eq!(failure.cause, Cause::Check(Fault::OtherSet), "{link:?}: {failure}");
        }
        let text = ended.iter().map(|failure| failure.to_string()).collect::<String>();
        let says = [
            "rank 1 exchanges set 1 of the fields, rank 0 set 0",
            "rank 0 exchanges set 0 of the fields, rank 1 set 1",
        ];
        assert!(says.iter().any(|says| text.contains(says)), "{link:?}: {text}");
    }
}
