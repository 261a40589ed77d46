//! What a bind can be told.

use crate::check;
use crate::error::Error;
use halocline_comm::CommError;
use halocline_comm::mappings::Limits;
use halocline_device::{Bytes, Stream, Variable, VariableError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How links are to move their bytes. Of fields in memory of devices, devices do that themselves; `Mailbox` and `Message` are staged
/// through the host. `Auto` is what memory allows there: `Push`, or words
/// with flags where a message is small ([`Flags`]); where the receiver's field is out of reach `DeviceMailbox`, where its device is `Mailbox`, between
/// nodes `Message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkChoice {
    /// The fastest of the paths that the memory allows, measured when binding.
    #[default]
    Auto,
    /// Direct: senders write into the receivers' halos. Refused where memory is out of reach.
    Push,
    /// Direct: receivers read the senders' owned cells. Refused where memory is out of reach.
    Pull,
    /// Between devices: through buffers of the receivers in memory of their devices. Refused where that is out of reach. For fields of the
    /// host the same as `Mailbox`.
    DeviceMailbox,
    /// Through buffers of the receivers in shared memory. Refused between ranks that share none.
    Mailbox,
    /// Through messages of the transport. Always possible.
    Message,
}

/// The choice as the command and Python spell it.
impl fmt::Display for LinkChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Push => "push",
            Self::Pull => "pull",
            Self::DeviceMailbox => "device-mailbox",
            Self::Mailbox => "mailbox",
            Self::Message => "message",
        })
    }
}

/// Which messages between devices go as words with flags ([`crate::LinkPath::Flags`]): the sender waits for no leave of the receiver's halo, the receiver
/// for nothing but the words. They take twice the bytes and an unpacking, so it is for the smallest ones. Of fields of elements of 4 bytes
/// or a multiple, at such addresses; with [`LinkChoice::Auto`], of ranks whose fields lie on one device, and where kernels may wait
/// ([`BindOptions::stream_waits`](field@BindOptions::stream_waits)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flags {
    /// Those of up to as many bytes as was found to pay: a value of the device, built-in 2 KiB, between GPUs that reach each other over NVLink and
    /// that no other rank uses. In the environment `HALOCLINE_FLAGS` may
    /// say otherwise for objects bound so: a number of bytes, or `off`.
    #[default]
    Auto,
    /// Those of at most so many bytes, and of 1 MiB.
    UpTo(usize),
    /// None.
    Never,
}

impl Flags {
    /// Slots are for messages of so many bytes at most.
    pub(crate) const MOST: usize = 1 << 20;

    /// What is asked for, here or in the environment.
    fn wanted(self) -> Result<Self, VariableError> {
        match (self, Variable::read("HALOCLINE_FLAGS")) {
            (Self::Auto, Some(variable)) => Ok(match variable.bytes()? {
                Bytes::Auto => Self::Auto,
                Bytes::None => Self::Never,
                Bytes::Number(bytes) => Self::UpTo(bytes),
            }),
            (asked, _) => Ok(asked),
        }
    }
}

impl LinkChoice {
    pub(crate) const fn code(self) -> u64 {
        self as u64
    }
}

/// Options of [`crate::HaloExchange::bind_with`].
#[derive(Debug, Clone, Default)]
pub struct BindOptions {
    /// How links are to move their bytes; the same on all ranks.
    pub link: LinkChoice,
    /// How long a wait may take before the object fails. None by default: a wait ends when a peer comes
    /// or is proven gone; after 30 s a warning says whom it waits for: through `tracing`, or on standard error where
    /// the program has no subscriber.
    pub deadline: Option<Duration>,
    /// What the object is called in traces and reports; otherwise by its fields. For people alone: ranks may
    /// differ.
    pub name: Option<String>,
    /// Whether each exchange proves that it did what it should, at any cost; the same on all ranks. By
    /// default what `HALOCLINE_CHECK` says, 1 or 0. It finds halo cells that were not written, bytes that
    /// have changed on their way, owned cells that were written before the wait had returned, halo cells that were overwritten
    /// after they had come, and ranks that exchange different sets: a
    /// [`crate::Fault`], which fails the object. While an exchange is in flight halo cells hold poison, which is NaN for numbers
    /// with a fraction.
    ///
    /// It does not look at fields in memory of devices: the bind warns of it, and [`crate::HaloExchange::explain`] says so.
    pub checked: Option<bool>,
    /// The streams whose work comes before an exchange of device fields, where [`crate::HaloExchange::exchange`] is
    /// not told: those that write owned cells or read the halo. By default each device's default stream. Ranks of one process that
    /// share a device give streams of their own here, which do not synchronise with the default stream (`cudaStreamNonBlocking`): that
    /// one is the same for all of them, and what one rank has it wait for holds the exchanges of the others, until the deadline.
    pub streams: Vec<Arc<Stream>>,
    /// Scheduled exchanges run on the streams given to them, not beside them: less latency where nothing is to
    /// overlap.
    pub inline: bool,
    /// Streams wait for peers, never kernels; so does `HALOCLINE_STREAM_WAITS=1` in the environment. By default, between GPUs that each serve
    /// one rank, an exchange is one kernel, some microseconds less. Its blocks that wait leave half of the multiprocessors free, two fifths where it is `inline`, those of all objects of a process a fifth (objects beyond that have streams wait); a kernel that needs all of a GPU at once (a cooperative launch)
    /// begins only once they have gone.
    pub stream_waits: bool,
    /// Which messages between devices go as words with flags. Between two ranks it is the smaller of what both say, and never if one says so.
    pub flags: Flags,
    /// For tests: an order that is left out.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    pub cut: Option<crate::stream::Cut>,
    /// For tests: as if no other rank used this rank's devices.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    pub alone: bool,
    /// For tests: bytes of a chunk.
    #[cfg(feature = "cuts")]
    #[doc(hidden)]
    pub chunk: Option<usize>,
}

impl BindOptions {
    /// Whether exchanges are checked: as [`BindOptions::checked`] says, or else `HALOCLINE_CHECK` in the environment, which is `on` or `off`
    /// (or `1` and `0`; anything else is an error).
    pub fn is_checked(&self) -> Result<bool, Error> {
        Ok(check::wanted(self)?)
    }

    /// Bytes of staged messages that are worth a message of their own, if a test says.
    pub(crate) fn chunk(&self) -> Option<usize> {
        #[cfg(feature = "cuts")]
        return self.chunk;
        #[cfg(not(feature = "cuts"))]
        None
    }

    /// These, and what the environment says where they do not. Every bind refuses a variable that has garbage, whether or not
    /// it has fields that the variable is about.
    pub(crate) fn with_environment(&self) -> Result<Self, CommError> {
        Limits::from_environment()?;
        Ok(Self {
            checked: Some(check::wanted(self)?),
            flags: self.flags.wanted()?,
            stream_waits: self.stream_waits()?,
            ..self.clone()
        })
    }

    /// Whether streams are to wait, as asked for here or in the environment.
    fn stream_waits(&self) -> Result<bool, VariableError> {
        let said = Variable::read("HALOCLINE_STREAM_WAITS").map_or(Ok(false), Variable::switch)?;
        Ok(said || self.stream_waits)
    }

    pub(crate) fn is_alone(&self) -> bool {
        #[cfg(feature = "cuts")]
        return self.alone;
        #[cfg(not(feature = "cuts"))]
        false
    }

    pub(crate) fn cut(&self) -> Option<crate::stream::Cut> {
        #[cfg(feature = "cuts")]
        return self.cut;
        #[cfg(not(feature = "cuts"))]
        None
    }
}
