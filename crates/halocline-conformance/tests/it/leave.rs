//! Ranks that leave or panic at random moments: the others end with an error that names them, memory is freed, no rank hangs.

use halocline::{
    Array, BindOptions, Cause, CommError, Communicator, Decomposed, Error, Field, Halo, HaloExchange,
    LinkChoice, Pattern, PatternLinks, Pending, RegularGrid, UnstructuredDomain,
};
use halocline_comm::{Endpoint, Tag};
use halocline_conformance::fixtures::CHOICES;
use halocline_conformance::numbers::Numbers;
use halocline_conformance::watchdog::{LIMIT, Watchdog};
use halocline_conformance::{Outcome, Trouble, ensure, fail};

/// How the leaver goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    /// It drops everything between two exchanges.
    Between,
    /// It drops everything right after it has begun an exchange.
    InFlight,
    /// Its thread unwinds in mid-exchange.
    Panics,
}

#[derive(Debug, Clone, Copy)]
struct Play {
    ranks: usize,
    leaver: usize,
    step: u64,
    going: Going,
    link: LinkChoice,
    unbound: bool,
    periodic: bool,
}

#[test]
fn ranks_that_leave_at_random_moments() {
    let watchdog = Watchdog::new(LIMIT);
    let mut numbers = Numbers::new(2024);
    for turn in 0..150 {
        let ranks = 2 + numbers.below(3);
        let play = Play {
            ranks,
            leaver: numbers.below(ranks),
            step: numbers.below(8) as u64,
            going: [Going::Between, Going::InFlight, Going::Panics][numbers.below(3)],
            link: CHOICES[numbers.below(5)],
            unbound: numbers.one_in(3),
            periodic: numbers.one_in(2),
        };
        watchdog.begin(format!("turn {turn}: {play:?}"));
        let ranks = Communicator::threads(play.ranks);
        let ranks: Vec<_> =
            ranks.into_iter().map(|comm| std::thread::spawn(move || perform(comm, play))).collect();
        for (rank, thread) in ranks.into_iter().enumerate() {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(trouble)) => panic!("turn {turn}, {play:?}, rank {rank}: {trouble}"),
                Err(_) if rank == play.leaver && play.going == Going::Panics => {}
                Err(_) => panic!("turn {turn}, {play:?}: rank {rank} has panicked"),
            }
        }
    }
}

/// A rank may leave after its last exchange although others are still in theirs: each
/// rank has then done for them all that it had to.
#[test]
fn ranks_that_leave_when_they_have_finished() {
    let watchdog = Watchdog::new(LIMIT);
    let mut numbers = Numbers::new(77);
    for turn in 0..400 {
        let (ranks, owner, steps) = (2 + numbers.below(3), numbers.below(4), 1 + numbers.below(3));
        let link = CHOICES[numbers.below(5)];
        let about = format!("turn {turn}: {steps} steps on {ranks} ranks by {link:?}");
        watchdog.begin(about.clone());
        let threads: Vec<_> = Communicator::threads(ranks)
            .into_iter()
            .map(|comm| std::thread::spawn(move || last_exchange(&comm, owner % ranks, link, steps)))
            .collect();
        for (rank, thread) in threads.into_iter().enumerate() {
            let ended = thread.join().unwrap_or_else(|_| Err(Trouble::new("it has panicked")));
            assert!(ended.is_ok(), "{about}, rank {rank}: {ended:?}");
        }
    }
}

/// One rank owns a cell that all others want.
fn last_exchange(comm: &Communicator, owner: usize, link: LinkChoice, steps: usize) -> Outcome {
    let mine = comm.rank() == owner;
    let (owned, halo) = if mine { (vec![5], vec![]) } else { (vec![], vec![5]) };
    let domain = UnstructuredDomain::new(comm.rank() as u64, owned, halo);
    let pattern = Pattern::unstructured(comm, &[domain])?;
    let array = Array::<u64>::zeros(comm, &[1])?;
    let options = BindOptions::default().link(link);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
    for step in 1..=steps as u64 {
        array.write()?[0] = if mine { step } else { 0 };
        halo.exchange()?.wait()?;
        ensure!(array.read()?[0] == step, "the cell of step {step} has not come");
    }
    Ok(())
}

/// What is bound, or not.
enum Object {
    Bound(HaloExchange),
    Unbound(PatternLinks),
}

impl Object {
    fn exchange(&self, fields: &[(&Pattern, &Field)]) -> Result<Pending, Error> {
        match self {
            Self::Bound(halo) => halo.exchange(),
            Self::Unbound(links) => links.exchange(fields),
        }
    }

    fn reclaim(&self) -> bool {
        match self {
            Self::Bound(halo) => halo.reclaim(),
            Self::Unbound(links) => links.reclaim(),
        }
    }
}

fn perform(comm: Communicator, play: Play) -> Outcome {
    let grid = RegularGrid::new([3 * comm.size()]).periodic([play.periodic]);
    let pattern = grid.decompose(comm.size())?.pattern(&comm, Halo::uniform(1))?;
    let array = Array::<u64>::zeros(&comm, &[5])?;
    let fields: [(&Pattern, &Field); 1] = [(&pattern, &array)];
    let halo = match (play.unbound, play.link) {
        (false, link) => {
            let options = BindOptions::default().link(link);
            Object::Bound(HaloExchange::bind_with(&comm, fields, &options)?)
        }
        (true, LinkChoice::Message) => {
            let options = BindOptions::default().link(LinkChoice::Message);
            Object::Unbound(PatternLinks::new_with(&comm, &[&pattern], &options)?)
        }
        (true, _) => Object::Unbound(PatternLinks::new(&comm, &[&pattern])?),
    };
    let mut step = 0;
    let failed = loop {
        step += 1;
        let goes = comm.rank() == play.leaver && step > play.step;
        if goes && play.going == Going::Between {
            return Ok(());
        }
        let pending = match halo.exchange(&fields) {
            Ok(pending) => pending,
            Err(error) => break error,
        };
        match play.going {
            Going::InFlight if goes => return Ok(()),
            // As a panic of the user's would, but without its message.
            Going::Panics if goes => std::panic::resume_unwind(Box::new("the play says so")),
            _ => {}
        }
        if let Err(error) = pending.wait() {
            break error;
        }
    };
    ensure!(comm.rank() != play.leaver, "the leaver failed itself: {failed}");
    let Error::Failed(failure) = failed else { fail!("another error: {failed}") };
    ensure!(failure.culprit == play.leaver, "another rank: {failure}");
    let expected = if play.going == Going::Panics { Cause::Died } else { Cause::Dropped };
    // Its object may be gone before its communicator.
    ensure!([expected, Cause::Dropped].contains(&failure.cause), "another cause: {failure}");
    while !halo.reclaim() {
        std::thread::yield_now();
    }
    array.write()?.fill(1);
    missed(&comm, play)
}

/// A message that the leaver will never send, and a collective call without it.
fn missed(comm: &Communicator, play: Play) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 0 };
    for awaited in [comm.receive(Some(play.leaver), tag, "the leaver").map(drop), comm.barrier()] {
        match awaited {
            Err(CommError::Left { .. } | CommError::Died { .. }) => {}
            Err(other) => return Err(Trouble::new(format!("another error: {other}"))),
            Ok(()) => fail!("a call that needs the leaver succeeds"),
        }
    }
    Ok(())
}
