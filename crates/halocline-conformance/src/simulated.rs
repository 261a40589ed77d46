//! Ranks under the scheduler of a simulated world. Rank code, progress threads and streams take turns, one at a time, so a seed
//! replays exactly.

use crate::device_fixtures::{self, Kernels, Piece, Rig};
use crate::ring::DeviceMemory;
use crate::subject::forget_streams;
use crate::{Outcome, Trouble, fail};
use halocline::{Communicator, Device, DeviceError, Stream};
use halocline_comm::mappings::{Kind, Refusal};
use halocline_comm::{Endpoint, Host, Segment};
use halocline_device::sim::{Live, Options, World};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A world as the machine that ranks wait on, and how long its threads oversleep.
#[derive(Debug)]
struct Baton(World, Duration);

impl Host for Baton {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        self.0.park(word, expected, timeout.map(|timeout| timeout + self.1));
    }

    fn wake(&self, word: &AtomicU32) {
        self.0.wake(word);
    }

    /// As many on every machine, so that a seed replays exactly.
    fn cores(&self) -> usize {
        2
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
    run_ranks_late(world, count, Duration::ZERO, rank);
}

/// The same on a machine whose threads oversleep.
pub fn run_ranks_late(
    world: &World,
    count: usize,
    late: Duration,
    rank: impl Fn(&Communicator) -> Outcome + Sync,
) {
    run(world, Communicator::threads_on(count, Arc::new(Baton(world.clone(), late))), rank);
}

/// Ranks that pretend to be processes, for a world whose devices' memory can be mapped.
pub fn run_ranks_apart(world: &World, count: usize, rank: impl Fn(&Communicator) -> Outcome + Sync) {
    let is_private = |segment: &Segment| World::is_of_a_device(segment.base().addr().get() as u64);
    let host = Arc::new(Baton(world.clone(), Duration::ZERO));
    run(world, Communicator::threads_apart(count, host, is_private), rank);
}

fn run(world: &World, ends: Vec<Communicator>, rank: impl Fn(&Communicator) -> Outcome + Sync) {
    let count = ends.len();
    let ends: Vec<_> = ends.into_iter().map(|end| Mutex::new(Some(end))).collect();
    let ended = world.ranks(count, |number| {
        let end = ends[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropped with the thread: where one rank fails, the others do not hang.
        let comm = end.ok_or_else(|| Trouble::new("a rank began twice"))?;
        let ended = rank(&comm);
        forget_streams();
        ended
    });
    let troubles: Vec<String> =
        ended.into_iter().flatten().filter_map(Result::err).map(|trouble| trouble.to_string()).collect();
    assert!(troubles.is_empty(), "{}", troubles.join("; "));
}

/// Simulated devices beside a program whose ranks are whatever they are; those that are threads of it share them.
pub struct Simulation {
    live: Live,
    devices: Vec<Device>,
}

impl Kernels for Simulation {
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        self.live.world().produce(piece, stream, step)
    }

    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError> {
        self.live.world().read_owned(piece, stream)
    }

    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        self.live.world().consume(piece, stream, step)
    }
}

impl Rig for Simulation {
    const SEEDS: u64 = 4;
    const DEADLINE: Option<Duration> = None;

    fn get() -> Result<&'static Self, Trouble> {
        static THIS: OnceLock<Option<Simulation>> = OnceLock::new();
        let options =
            Options { devices: 2, depth: 1024, ordered_threads: true, exports: true, ..Options::default() };
        let make = || {
            let live = World::live(std::process::id().into(), &options).ok()?;
            let devices = device_fixtures::devices(live.world(), 2).ok()?;
            Some(Self { live, devices })
        };
        THIS.get_or_init(make).as_ref().ok_or_else(|| Trouble::new("no thread for the simulated devices"))
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memories(&self, device: &Device, bytes: usize) -> Result<Vec<DeviceMemory>, DeviceError> {
        let names = [("simulated memory", Some(Kind::Simulated)), ("private memory", None)];
        let given = |(name, kind): (_, Option<Kind>)| {
            let memory = Arc::new(device.allocate(bytes)?);
            if kind.is_none() {
                self.live.world().refuse_export(memory.at(0), Refusal::DefaultPool)?;
            }
            Ok(DeviceMemory { name, address: memory.at(0), owner: memory, kind })
        };
        names.into_iter().map(given).collect()
    }

    fn check(&self) -> Outcome {
        match self.live.world().reports().first() {
            None => Ok(()),
            Some(report) => fail!("{report}"),
        }
    }

    fn delay(&self, _: &Stream) -> Result<(), DeviceError> {
        // The scheduler lets any work take its time.
        Ok(())
    }
}
