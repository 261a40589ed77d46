//! `--device`: the memory and the processor of the fields, and the GPU of a rank.

use halocline::device::cuda;
use halocline::device::{Device, Event, EventPool, Graph, Priority, Stream};
use halocline::{Communicator, DeviceError, Error, Pending, agree};
use std::collections::VecDeque;
use std::sync::Arc;

/// The memory of the fields, and the processor that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Kind {
    /// In host memory; the CPU computes.
    #[default]
    Cpu,
    /// In GPU memory; the GPU computes. Rank r uses GPU r modulo their number.
    Cuda,
}

/// `--device cuda` where no GPU can be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "`--device cuda` needs a GPU, its driver and NVRTC; `halocline info` shows what is missing, or leave `--device` out: {0}"
)]
pub(crate) struct NoGpu(#[from] DeviceError);

/// Variables of CUDA, set unless they are set already. Streams share hardware queues, and a stream that waits blocks all others in its
/// queue: ask for the most queues. Kernels are loaded at once, not at their first launch: loading may wait for all streams, also for
/// streams that wait for the launch itself.
const ENVIRONMENT: [(&str, &str); 2] = [QUEUES, ("CUDA_MODULE_LOADING", "EAGER")];

const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// Variables for ranks that this process starts, besides its own: the number of queues, which a program cannot change once it has
/// initialised CUDA. Loading of kernels is left as it is, since other libraries have many kernels.
pub(crate) fn of_ranks() -> impl Iterator<Item = (&'static str, &'static str)> {
    [QUEUES].into_iter().filter(|(name, _)| std::env::var_os(name).is_none())
}

impl Kind {
    /// Sets the variables of CUDA. Call it while no other thread runs, before ranks start.
    pub(crate) fn set_environment(self) {
        let missing = ENVIRONMENT.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        for (name, value) in missing.filter(|_| self == Self::Cuda) {
            // SAFETY: no other thread runs, by the caller's promise.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// Checks that this machine has such devices, without opening any.
    pub(crate) fn find(self) -> Result<(), NoGpu> {
        if self == Self::Cpu {
            return Ok(());
        }
        match cuda::inventory()?.gpus.len() {
            0 => Err(DeviceError::NoDevice { device: 0, count: 0 }.into()),
            _ => Ok(cuda::Compiler::load().map(drop)?),
        }
    }

    /// The name, as the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// The GPU of a rank, and the stream that the rank computes on.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) stream: Stream,
    /// GPUs of this rank's machine.
    count: usize,
}

impl Gpu {
    /// Opens the GPU of this rank. Collective; blocks for a second or so.
    pub(crate) fn open(comm: &Communicator) -> Result<Self, Error> {
        let open = || -> Result<Self, DeviceError> {
            let count = cuda::inventory()?.gpus.len();
            let device = cuda::device((comm.rank() % count.max(1)) as u32)?;
            Ok(Self { stream: device.stream(Priority::Normal)?, count })
        };
        agree(comm, open())
    }

    pub(crate) fn device(&self) -> &Device {
        self.stream.device()
    }

    /// The GPU's name, and how ranks share the GPUs.
    pub(crate) fn describe(&self) -> String {
        let name = self.device().driver().name();
        match self.count {
            1 => format!("{name}, shared by all ranks"),
            count => format!("{name}, rank r on GPU r mod {count}"),
        }
    }
}

/// Operations of a stream that may be queued, about: half of those that CUDA takes before a call blocks.
const OPERATIONS: usize = 512;
/// Operations of an exchange, about.
const EXCHANGE: usize = 16;
/// Exchanges in flight, at most.
const MOST: usize = 16;

/// Exchanges in flight, few enough that no call blocks on a full stream. A call that blocked could hold a lock of the driver that a peer
/// on the same GPU needs.
#[derive(Debug)]
pub(crate) struct InFlight {
    pending: VecDeque<Pending>,
    most: usize,
}

impl InFlight {
    /// For exchanges with this number of launches between them.
    pub(crate) fn new(launches: usize) -> Self {
        let most = (OPERATIONS / (EXCHANGE + launches)).clamp(1, MOST);
        Self { pending: VecDeque::with_capacity(most), most }
    }

    /// Notes an exchange.
    pub(crate) fn add(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Blocks until another exchange may be started.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while self.pending.len() >= self.most
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.wait()?;
        }
        Ok(())
    }

    /// Blocks until all exchanges are complete.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.pending.drain(..).try_for_each(|pending| pending.wait())
    }
}

/// A graph and its launches in flight, few enough that no call blocks on a full stream: see [`InFlight`].
#[derive(Debug)]
pub(crate) struct Replays {
    graph: Graph,
    stream: Arc<Stream>,
    events: EventPool,
    /// Recorded after each launch.
    in_flight: VecDeque<Event>,
}

impl Replays {
    /// Launches in flight, at most.
    const MOST: usize = 64;

    pub(crate) fn new(graph: Graph, stream: Arc<Stream>) -> Self {
        let events = stream.device().events();
        Self { graph, stream, events, in_flight: VecDeque::with_capacity(Self::MOST) }
    }

    /// Launches the graph once more. Waits for an earlier launch if there are many.
    pub(crate) fn launch(&mut self) -> Result<(), DeviceError> {
        if self.in_flight.len() == Self::MOST
            && let Some(oldest) = self.in_flight.pop_front()
        {
            while !oldest.query()? {
                std::thread::yield_now();
            }
        }
        self.graph.launch(&self.stream)?;
        let event = self.events.take()?;
        self.stream.record(&event)?;
        self.in_flight.push_back(event);
        Ok(())
    }
}
