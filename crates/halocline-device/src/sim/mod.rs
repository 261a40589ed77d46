//! Simulated devices that detect missing ordering.
//!
//! A [`World`] holds devices, their streams and memories, and the threads of a program that uses them.
//! Exactly one task runs at a time: a host thread between two calls, or one step of the first operation of
//! a stream. Whenever a thread calls the world, a seed selects the next among all tasks that may legally
//! run. Time is virtual. So a seed replays exactly, and orders that hardware shows once a year appear
//! within a few seeds.
//!
//! Missing order shows in two ways. Bytes really move, in pieces, so data may be wrong. And every memory
//! access is compared with all earlier accesses to the same bytes by vector clocks: two conflicting
//! accesses without order are reported, even if the data happened to be right. Order comes from streams,
//! events, flags that are written and waited for, synchronisation with the host, and the program order of a
//! thread. Stream priorities order nothing.
//!
//! [`explore`] runs a program under many seeds and fails with the seed, the reports and the steps of the
//! plainest run that still fails; `HALOCLINE_SEED` runs that seed alone.

mod based;
mod call;
mod choice;
mod clock;
mod combined;
mod current;
mod driver;
mod explore;
mod graph;
mod kernel;
mod lists;
mod live;
mod memory;
mod messages;
mod places;
mod remote;
mod report;
mod shadow;
mod slots;
mod state;
mod stream;
mod threads;
mod timeline;

pub use explore::{Found, Run, chosen, explore, find, record, run};
pub use kernel::{Kernel, KernelMemory};
pub use live::Live;
pub use remote::Calls;
pub use report::{Bytes, Operation, Report};
pub use timeline::{Arrow, Span, Timeline, Word};

use crate::device::{Device, Stream};
use crate::driver::Address;
use crate::error::DeviceError;
use state::State;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Properties of a world.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of devices.
    pub devices: u32,
    /// Number of operations that a stream holds; a call that issues one more blocks.
    pub depth: usize,
    /// Number of steps after which a run counts as endless.
    pub steps: u64,
    /// Whether a host thread sees everything that earlier running threads did. True for programs whose
    /// threads synchronise by other means than the world's; missing order between threads is then not
    /// found. Otherwise starts and ends, parking and waking, and words order threads
    /// ([`crate::Memory::store`], [`crate::Memory::load`]).
    pub ordered_threads: bool,
    /// Whether other processes, and ranks that simulate processes, can map device memory.
    pub exports: bool,
    /// Number of devices, from the first one, with peer access to each other. The others access only their
    /// own memory, and no device accesses theirs, as with GPUs on different sockets.
    pub peers: u32,
    /// Number of hardware queues that the streams of each device share. Streams are assigned in order of
    /// creation, the default stream first. A waiting stream blocks later work of its queue. `None`: each
    /// stream has its own queue.
    pub queues: Option<u32>,
    /// Number of parts of copy tables that may wait on a device at once, each in a thread block. A part
    /// beyond that does not start before another one has ended. `None`: any number.
    pub waiting_blocks: Option<u32>,
    /// Whether idle returned streams are reused, as on GPUs, instead of creating new ones.
    pub keeps_streams: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: 2,
            depth: 64,
            steps: 1_000_000,
            ordered_threads: false,
            exports: false,
            peers: u32::MAX,
            queues: None,
            waiting_blocks: None,
            keeps_streams: false,
        }
    }
}

impl Options {
    /// Whether a device can access the memory of another.
    fn check_peers(&self, device: u32, peer: u32) -> Result<(), DeviceError> {
        match device == peer || device.max(peer) < self.peers {
            true => Ok(()),
            false => Err(DeviceError::NoPeerAccess { device, peer }),
        }
    }
}

/// Simulated devices, and the threads that use them. Clones refer to the same world. Made by [`run`],
/// [`find`] and [`explore`].
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

type Guard<'a> = MutexGuard<'a, State>;

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// A device, by its ordinal.
    pub fn device(&self, ordinal: u32) -> Result<Device, DeviceError> {
        let count = self.lock().options.devices;
        if ordinal >= count {
            return Err(DeviceError::NoDevice { device: ordinal, count });
        }
        Ok(Device::new(Arc::new(call::SimDriver::new(self.clone(), ordinal))))
    }

    /// Whether an address belongs to a simulated device of any world. No process has such addresses.
    pub fn is_of_a_device(address: Address) -> bool {
        address >= memory::DEVICES
    }

    fn machine(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Launches a kernel on a stream of this world. Fails if the stream's device cannot access what the
    /// kernel declares.
    pub fn launch(&self, stream: &Stream, kernel: Kernel) -> Result<(), DeviceError> {
        call::SimDriver::new(self.clone(), stream.device().ordinal()).launch_kernel(stream.raw(), kernel)
    }

    /// Makes a device fail: its streams stop, and every later call returns the failure.
    pub fn fail(&self, device: &Device, what: &str) {
        let lost = &mut self.lock().devices[device.ordinal() as usize].lost;
        lost.get_or_insert_with(|| what.to_owned());
    }

    /// The seed of this run, for programs that depend on it.
    pub fn seed(&self) -> u64 {
        self.lock().choices.seed()
    }

    /// Errors found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.clone()
    }

    fn lock(&self) -> Guard<'_> {
        // A panic while the lock is held ends the run anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    threads::panic_text().or(text).unwrap_or_else(|| "a panic without a text".to_owned())
}
