//! Ranks under the scheduler of a simulated world: one baton passes between rank code, progress threads and streams,
//! so that a seed replays exactly.

use crate::{Outcome, Trouble};
use halocline::Communicator;
use halocline::comm::Host;
use halocline_device::sim::{Options, World};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A world as the machine that ranks wait on.
#[derive(Debug)]
struct Baton(World);

impl Host for Baton {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        self.0.park(word, expected, timeout);
    }

    fn wake(&self, word: &AtomicU32) {
        self.0.wake(word);
    }

    fn yield_now(&self) {
        self.0.pause();
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        self.0.spawn(name, body)
    }

    fn join(&self, thread: JoinHandle<()>) -> std::thread::Result<()> {
        self.0.join(thread)
    }
}

/// A world for [`run_ranks`]: ranks synchronise through counters that it does not see.
pub fn options() -> Options {
    Options { ordered_threads: true, ..Options::default() }
}

/// Ranks as threads of a world. Collective calls, waits and progress all take place under its seed. Panics with what
/// ranks say went wrong, which is then a report of the run.
pub fn run_ranks(world: &World, count: usize, rank: impl Fn(&Communicator) -> Outcome + Sync) {
    run_ranks_on(world, count, |host| host, rank);
}

/// The same on a machine that is made of the world's.
pub fn run_ranks_on(
    world: &World,
    count: usize,
    machine: impl Fn(Arc<dyn Host>) -> Arc<dyn Host>,
    rank: impl Fn(&Communicator) -> Outcome + Sync,
) {
    let ends = Communicator::threads_on(count, machine(Arc::new(Baton(world.clone()))));
    let ends: Vec<_> = ends.into_iter().map(|end| Mutex::new(Some(end))).collect();
    let ended = world.ranks(count, |number| {
        let end = ends[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropped with the thread: where one rank fails, the others do not hang.
        let comm = end.ok_or_else(|| Trouble::new("a rank began twice"))?;
        rank(&comm)
    });
    let troubles: Vec<String> =
        ended.into_iter().flatten().filter_map(Result::err).map(|trouble| trouble.to_string()).collect();
    assert!(troubles.is_empty(), "{}", troubles.join("; "));
}
