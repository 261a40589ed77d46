//! Devices without hardware, which find missing order.
//!
//! A [`World`] holds devices, their streams and memories, and the threads of a program that uses them. Exactly one
//! of all that goes on at a time: a thread of the host between two calls, or a stream by one step of its first
//! operation. Whenever a thread calls the world, a seed chooses who is next, among all whose going on is legal. Time
//! is virtual. So a seed replays exactly, and orders that hardware shows once a year come within a few seeds.
//!
//! Two things show missing order. Bytes are really moved, in pieces, so that data may be wrong. And every access to
//! memory is compared with all earlier ones to the same bytes, by vector clocks: two that conflict are reported
//! unless something orders them, also where the data happened to be right. Order comes from streams, events, words
//! written and waited for, synchronisation with the host, and the program order of a thread. Priorities of streams
//! order nothing.
//!
//! [`explore`] runs a program under many seeds and fails with the seed, the reports and the steps of the plainest
//! run that still fails; `HALOCLINE_SEED` runs that seed alone.

mod choice;
mod clock;
mod driver;
mod explore;
mod kernel;
mod live;
mod memory;
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

/// What a world is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of devices.
    pub devices: u32,
    /// How many operations a stream takes before a call that gives it one more blocks.
    pub depth: usize,
    /// After how many steps a run counts as endless.
    pub steps: u64,
    /// Whether what one thread of the host did before it lost its turn is ordered before what the next does. True for
    /// programs whose threads synchronise by means of their own, which the world does not see; then missing order
    /// between threads is not found. Otherwise threads are ordered by start and end, parking and waking, and
    /// words ([`crate::Memory::store`], [`crate::Memory::load`]).
    pub ordered_threads: bool,
    /// Whether other processes, and ranks that pretend to be such, can map the devices' memory.
    pub exports: bool,
    /// How many devices can reach each other's memory, from the first one on. Those behind them reach only their own, and nobody
    /// reaches theirs, as GPUs on different sockets may have it.
    pub peers: u32,
    /// How many queues of the hardware the streams of each device share, assigned in turn as they are made, the default stream first,
    /// whatever was destroyed meanwhile: what a stream waits for holds all that later calls have given to others of its queue. None:
    /// each has its own.
    pub queues: Option<u32>,
    /// Whether streams that were given back are used again, once they have done their work, as those of GPUs are; otherwise each is
    /// made anew.
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
            keeps_streams: false,
        }
    }
}

impl Options {
    /// Whether a device can reach the memory of another.
    fn check_peers(&self, device: u32, peer: u32) -> Result<(), DeviceError> {
        match device == peer || device.max(peer) < self.peers {
            true => Ok(()),
            false => Err(DeviceError::NoPeerAccess { device, peer }),
        }
    }
}

/// Simulated devices, and the threads that use them. A clone is the same world. Made by [`run`], [`find`] and
/// [`explore`].
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
        Ok(Device::new(Arc::new(driver::SimDriver::new(self.clone(), ordinal))))
    }

    /// Whether an address could be one of a simulated device, of whatever world: no process has such addresses.
    pub fn is_of_a_device(address: Address) -> bool {
        address >= memory::DEVICES
    }

    fn machine(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Gives a kernel to a stream of this world. Refused if the stream's device cannot reach what it declares.
    pub fn launch(&self, stream: &Stream, kernel: Kernel) -> Result<(), DeviceError> {
        driver::SimDriver::new(self.clone(), stream.device().ordinal()).launch_kernel(stream.raw(), kernel)
    }

    /// From now on a stream counts as one whose work becomes part of a graph, or no longer. It does its work all the same: what asks
    /// refuses to give it any.
    pub fn capture(&self, stream: &Stream, captured: bool) -> Result<(), DeviceError> {
        let driver = driver::SimDriver::new(self.clone(), stream.device().ordinal());
        let mut state = self.lock();
        let index = driver.stream(&state, stream.raw())?;
        state.streams[index].captured = captured;
        Ok(())
    }

    /// A device fails, as if its hardware had: its streams stop, and every call says so from now on.
    pub fn fail(&self, device: &Device, what: &str) {
        let lost = &mut self.lock().devices[device.ordinal() as usize].lost;
        lost.get_or_insert_with(|| what.to_owned());
    }

    /// The seed of this run: for programs that follow from it, too.
    pub fn seed(&self) -> u64 {
        self.lock().choices.seed()
    }

    /// What was found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports.clone()
    }

    fn lock(&self) -> Guard<'_> {
        // Whoever panics while holding it leaves a run that is over anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    threads::panic_text().or(text).unwrap_or_else(|| "a panic without a text".to_owned())
}
