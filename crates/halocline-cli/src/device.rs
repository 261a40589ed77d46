//! `--device`: where fields lie and who computes on them, and the GPU of a rank.

use halocline::device::cuda;
use halocline::device::{Device, Priority, Stream};
use halocline::{Communicator, DeviceError, Error, Pending, agree};
use std::collections::VecDeque;

/// Where fields lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Kind {
    /// In memory of the host, whose CPUs compute.
    #[default]
    Cpu,
    /// In memory of GPUs, which compute; rank r takes GPU r modulo their number.
    Cuda,
}

/// GPUs were asked for, and there are none to be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "`--device cuda` needs a GPU, its driver and NVRTC (`halocline info` tells what there is; leave `--device` out where there is none): {0}"
)]
pub(crate) struct NoGpu(#[from] DeviceError);

/// What the environment says to CUDA, unless it says otherwise already. Streams share queues of the hardware, and one that waits
/// holds up all in its queue: as many queues as there can be. Kernels are loaded when they are found, not when they are first
/// launched: loading may wait for all streams, also for those that wait for what is launched next.
const ENVIRONMENT: [(&str, &str); 2] = [QUEUES, ("CUDA_MODULE_LOADING", "EAGER")];

const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// What ranks that are started find in the environment besides what this process has: queues, which a program that starts CUDA by
/// another library, or threads, could not ask for any more. (Kernels of such libraries are many: they load them as they like.)
pub(crate) fn of_ranks() -> impl Iterator<Item = (&'static str, &'static str)> {
    [QUEUES].into_iter().filter(|(name, _)| std::env::var_os(name).is_none())
}

impl Kind {
    /// Tells CUDA what it is to read in the environment. Call it where no other thread runs, before ranks are brought up.
    pub(crate) fn set_environment(self) {
        let missing = ENVIRONMENT.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        for (name, value) in missing.filter(|_| self == Self::Cuda) {
            // SAFETY: no other thread runs, by the caller's promise.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// Finds out whether there are such devices, without opening any.
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

    /// Which GPU, and how ranks share them, in words.
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

/// Exchanges that were given to streams: so few that a call never blocks for a full stream. (One that did would hold what a peer
/// on the same GPU needs to go on.)
#[derive(Debug)]
pub(crate) struct InFlight {
    pending: VecDeque<Pending>,
    most: usize,
}

impl InFlight {
    /// For exchanges with so many launches between them.
    pub(crate) fn new(launches: usize) -> Self {
        let most = (OPERATIONS / (EXCHANGE + launches)).clamp(1, MOST);
        Self { pending: VecDeque::with_capacity(most), most }
    }

    /// Notes an exchange.
    pub(crate) fn add(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Blocks until another one may be given.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while self.pending.len() >= self.most
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.wait()?;
        }
        Ok(())
    }

    /// Blocks until all are over.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.pending.drain(..).try_for_each(|pending| pending.wait())
    }
}
