//! Waits that their host ends: the thread comes back, what it waited for goes on.

use halocline::{
    Array, CommError, Communicator, Decomposed, Error, Halo, HaloExchange, LinkChoice, Reduce, RegularGrid,
};
use halocline_comm::{Host, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The machine, whose waits can be ended.
#[derive(Default)]
struct Interruptible(AtomicBool);

impl Host for Interruptible {
    fn now(&self) -> Duration {
        System.now()
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        System.park(word, expected, timeout);
    }

    fn wake(&self, word: &AtomicU32) {
        System.wake(word);
    }

    fn asks_after(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn bound(comm: &Communicator, link: LinkChoice) -> Result<(Array<f64>, HaloExchange), Error> {
    let grid = RegularGrid::new([8]).periodic([true]);
    let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))?;
    let array = Array::zeros(comm, &[6])?;
    array.write()?.fill(comm.rank() as f64);
    let options = halocline::BindOptions::default().link(link);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
    Ok((array, halo))
}

/// Rank 0 is interrupted while it waits for rank 1, which comes only then.
fn waits(link: LinkChoice) -> Result<(), Error> {
    let host = Arc::new(Interruptible::default());
    let mut ranks = Communicator::threads_on(2, Arc::clone(&host) as _);
    let (one, zero) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let (go, may_go) = mpsc::channel();
    let peer = std::thread::spawn(move || {
        let (array, halo) = bound(&one, link)?;
        may_go.recv().unwrap();
        halo.exchange()?.wait()?;
        one.barrier()?;
        Ok::<f64, Error>(array.read()?[0])
    });
    let (array, halo) = bound(&zero, link)?;
    let pending = halo.exchange()?;
    host.0.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        match pending.wait() {
            Err(Error::Comm(CommError::Interrupted { waiting: 0, what })) => assert_eq!(what, "exchange 1"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(halo.exchange(), Err(Error::InFlight { epoch: 1 })), "it goes on");
    host.0.store(false, Ordering::Relaxed);
    go.send(()).unwrap();
    pending.wait()?;
    zero.barrier()?;
    assert_eq!((array.read()?[0], peer.join().unwrap()?), (1.0, 0.0));
    Ok(())
}

#[test]
fn an_exchange_goes_on_when_its_wait_was_interrupted() -> Result<(), Error> {
    [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message].into_iter().try_for_each(waits)
}

#[test]
fn a_collective_call_is_interrupted() {
    let host = Arc::new(Interruptible::default());
    let mut ranks = Communicator::threads_on(2, Arc::clone(&host) as _);
    let (_one, zero) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    interrupt(&host, &zero);
}

/// Makes a barrier that only this rank calls, and interrupts it.
fn interrupt(host: &Interruptible, comm: &Communicator) {
    host.0.store(true, Ordering::Relaxed);
    match comm.barrier() {
        Err(CommError::Interrupted { waiting: 0, what }) => assert_eq!(what, "a barrier"),
        other => panic!("{other:?}"),
    }
    host.0.store(false, Ordering::Relaxed);
}

/// The other ranks took them for calls that the interrupted one belongs to, and reported malformed messages.
#[test]
fn collective_calls_after_an_interrupted_one_are_refused() -> Result<(), Error> {
    let host = Arc::new(Interruptible::default());
    let mut ranks = Communicator::threads_on(2, Arc::clone(&host) as _);
    let (one, zero) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let (zero_too, one_too) = (zero.duplicate()?, one.duplicate()?);
    interrupt(&host, &zero);
    type Call = fn(&Communicator) -> Result<(), CommError>;
    let calls: [Call; 5] = [
        |comm| comm.barrier(),
        |comm| comm.broadcast(0, vec![1]).map(drop),
        |comm| comm.all_reduce(&[1], Reduce::Sum).map(drop),
        |comm| comm.sparse_exchange(Vec::new()).map(drop),
        |comm| comm.duplicate().map(drop),
    ];
    for call in calls {
        match call(&zero) {
            Err(CommError::OutOfStep { rank: 0, what }) => assert_eq!(what, "a barrier"),
            other => panic!("{other:?}"),
        }
    }
    // A duplicate has its own calls.
    let there = std::thread::spawn(move || one_too.barrier());
    zero_too.barrier()?;
    there.join().unwrap()?;
    Ok(())
}
