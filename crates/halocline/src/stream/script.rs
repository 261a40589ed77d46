//! What a lane's stream does in an exchange of one set: operations on flags, copy tables, messages.

use super::checks::Looks;
use crate::link::SLOTS;
use halocline_device::{Address, CopyTable, DeviceCommunicator, DeviceError, Message, Stream, ValueOp};
use std::sync::Arc;

/// The work of a lane's stream for an exchange of one set.
#[derive(Default)]
pub(crate) struct Script {
    /// Flags between lanes: the producers are done.
    pub(crate) given: Vec<Cue>,
    /// Flags that are set and waited for at first,
    pub(crate) before: Vec<Cue>,
    /// and how many of them, at the front, are set.
    pub(crate) raised: usize,
    /// The first table sets them, too: if the lane waits for nothing before it, that is enough.
    pub(crate) is_raised_by_table: bool,
    /// Pushes, pulls and packs.
    pub(crate) out: Option<CopyTable>,
    /// After that table, the messages of NCCL.
    pub(crate) messages: Option<Messages>,
    /// Waits for arriving bytes, and unpacks them.
    pub(crate) steps: Vec<Step>,
    /// Flags between lanes: this exchange is done.
    pub(crate) over: Vec<Cue>,
    /// The table of the last step reports that this lane is done.
    pub(crate) is_ended_by_table: bool,
    /// All waits are within launches, each with at most so many thread blocks that may wait: one launch for an exchange, two for a reduce.
    pub(crate) waiting_blocks: Option<u32>,
    /// In checked mode.
    pub(crate) looks: Option<Looks>,
    /// Of a reduce: the flags that it waits for.
    pub(crate) poisoned: Vec<Address>,
}

/// Waits, then unpacks.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) cues: Vec<Cue>,
    pub(crate) into: Option<CopyTable>,
}

impl Script {
    /// The tables, in order.
    pub(super) fn tables(&self) -> impl DoubleEndedIterator<Item = &CopyTable> {
        self.out.iter().chain(self.steps.iter().filter_map(|step| step.into.as_ref()))
    }

    /// Whether no table follows.
    pub(super) fn is_last(&self, table: &CopyTable) -> bool {
        self.tables().next_back().is_some_and(|last| std::ptr::eq(last, table))
    }

    /// The most stream operations on flags in one call.
    pub(crate) fn longest(&self) -> usize {
        let steps = self.steps.iter().map(|step| step.cues.len());
        steps.sum::<usize>().max(self.given.len() + self.before.len()) + self.over.len() + 1
    }
}

/// A stream operation on a flag.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cue {
    /// Sets the flag to the epoch.
    Write(Address),
    /// Sets a word to a value.
    Set(Address, u64),
    /// Waits until the flag, that of even or odd epochs, is at most so many epochs behind.
    Wait([Address; SLOTS as usize], u64),
    /// The same for a flag in pinned memory that this rank's host sets, and may have set already.
    WaitHost(Address, u64),
}

impl Cue {
    #[inline]
    pub(super) fn of(self, epoch: u64) -> ValueOp {
        match self {
            Cue::Write(address) => ValueOp::Write { address, value: epoch },
            Cue::Set(address, value) => ValueOp::Write { address, value },
            Cue::Wait(of_parity, lag) => {
                let address = of_parity[(epoch % SLOTS) as usize];
                ValueOp::Wait { address, at_least: epoch.saturating_sub(lag) }
            }
            Cue::WaitHost(address, lag) => ValueOp::Wait { address, at_least: epoch.saturating_sub(lag) },
        }
    }
}

/// The messages that NCCL carries in an exchange of one set, as one grouped call.
pub(crate) struct Messages {
    pub(crate) communicator: Arc<DeviceCommunicator>,
    pub(crate) list: Vec<Message>,
}

impl Messages {
    /// Gives them to a stream, after its earlier work.
    pub(crate) fn give(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: the object holds the buffers (`Parts::registered`) until its streams have finished. Each message has a buffer of its
        // own. The exchanges of an object follow one another, so that nothing else uses the buffers before the stream has unpacked them.
        unsafe { self.communicator.exchange(stream, &self.list) }
    }
}
