//! Messages between ranks, as the protocols need them.

use halocline_comm::{CommError, Communicator, Endpoint, Tag};

/// Messages of one exchange. Messages from one rank to another arrive in order; those of different exchanges never mix.
pub(crate) trait Links {
    /// Sends a message, without waiting for its receiver.
    fn send(&self, to: usize, message: Vec<u8>) -> Result<(), CommError>;

    /// The next message of a rank, if it has arrived. Never blocks.
    fn receive(&self, from: usize) -> Result<Option<Vec<u8>>, CommError>;

    /// Calls `step` until it says that it is over: again whenever a message may have arrived. Fails when a rank that `step` waits
    /// for has left, and when any rank has died.
    fn run<E: From<CommError>>(&self, step: impl FnMut() -> Result<Progress, E>) -> Result<(), E>;

    /// Discards messages that nothing waits for any more.
    fn finish(&self);
}

/// How far an exchange is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It is complete on this rank.
    Over,
    /// It waits for messages of these ranks.
    Waits(Vec<usize>),
}

/// Links over the messages of a communicator.
#[derive(Debug)]
pub(crate) struct MessageLinks<'a> {
    comm: &'a Communicator,
    tag: Tag,
}

const WHAT: &str = "the rows of a rolling window";

impl<'a> MessageLinks<'a> {
    /// Collective; does not communicate.
    pub(crate) fn begin(comm: &'a Communicator) -> Self {
        Self { comm, tag: Tag { operation: comm.begin(), round: 0 } }
    }
}

impl Links for MessageLinks<'_> {
    fn send(&self, to: usize, message: Vec<u8>) -> Result<(), CommError> {
        self.comm.send(to, self.tag, message)
    }

    fn receive(&self, from: usize) -> Result<Option<Vec<u8>>, CommError> {
        Ok(self.comm.link().inbox().take(self.tag, Some(from)).map(|message| message.payload))
    }

    fn run<E: From<CommError>>(&self, mut step: impl FnMut() -> Result<Progress, E>) -> Result<(), E> {
        let mut awaited: Vec<usize> = Vec::new();
        let mut failed = None;
        let waited = self.comm.wait_for(None, WHAT, || {
            // Asked before the step: what a rank sent is in the inbox before its leaving shows.
            let left = awaited.iter().copied().find(|&rank| self.comm.has_left(rank));
            match step() {
                Ok(Progress::Over) => return Ok(Some(())),
                Ok(Progress::Waits(ranks)) => awaited = ranks,
                Err(error) => {
                    failed = Some(error);
                    return Ok(Some(()));
                }
            }
            match left.filter(|rank| awaited.contains(rank)) {
                Some(rank) => Err(CommError::Left { rank, waiting: self.comm.rank(), what: WHAT.to_owned() }),
                None => Ok(None),
            }
        });
        match failed {
            Some(error) => Err(error),
            None => waited.map_err(|error| named(error, &awaited).into()),
        }
    }

    fn finish(&self) {
        self.comm.link().inbox().forget(self.tag.operation);
    }
}

/// A passed deadline names the ranks that were waited for.
fn named(error: CommError, awaited: &[usize]) -> CommError {
    match error {
        CommError::Deadline { waiting, after, what } => {
            let ranks: Vec<String> = awaited.iter().map(|rank| format!("rank {rank}")).collect();
            CommError::Deadline { waiting, after, what: format!("{what} from {}", ranks.join(", ")) }
        }
        other => other,
    }
}
