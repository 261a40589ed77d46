//! The interface that the layers above build operations on: messages of any tag, waits, extensions, the progress thread, the transport itself.
//! Programs use [`Communicator`] alone.

#[cfg(test)]
mod tests;

use crate::borrowed::Borrowed;
use crate::call::{self, Call};
use crate::collective::Barrier;
use crate::communicator::Communicator;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Message, Tag};
use crate::progress::Serve;
use crate::segment::Segment;
use crate::thread::ThreadTransport;
use crate::transport::{PeerState, Post, Transport};
use crate::wait::{Late, Patience};
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A rank's end of the transport, for the layers that build operations on messages.
///
/// The crate `halocline` does not show it: receivers trust what a message of their operation says (layouts, memory, counters), so
/// a program that posts messages under the tag of another operation breaks that operation.
pub trait Endpoint: Sized {
    /// Capacity that a payload should have beyond its length: then no transport needs to move it.
    const SPARE: usize = crate::mpi::TRAILER;

    /// The most bytes of a [`Bulk`](crate::Bulk).
    const LONGEST_BULK: usize = crate::mpi::LONGEST;

    /// The communicator of this rank over its end of any transport.
    fn over(transport: Arc<dyn Transport>) -> Self;

    /// Threads that behave like processes: they reach each other's private segments by [`crate::mappings`] alone.
    fn threads_apart(size: usize, host: Arc<dyn Host>, is_private: fn(&Segment) -> bool) -> Vec<Self>;

    /// This rank's end of the transport.
    fn link(&self) -> &dyn Transport;

    /// The number of a new operation, the same on all ranks if all begin theirs in the same order.
    /// Numbers of different communicators of one group differ.
    fn begin(&self) -> u64;

    /// As [`Communicator::within`], unless it is for the parts of another call already.
    fn or_within(&self, call: &'static str) -> Self;

    /// The same communicator for an object that may outlive the user's communicator: it does not keep the rank
    /// from leaving.
    fn detached(&self) -> Self;

    /// Begins a barrier that can be polled. Collective.
    fn start_barrier(&self) -> Barrier;

    /// Hands over a message; never waits for the receiver.
    fn send(&self, to: usize, tag: Tag, payload: Vec<u8>) -> Result<(), CommError> {
        self.link().post(to, tag, payload, &[])
    }

    /// The same for two messages. The first one arrives first.
    fn send_pair(&self, to: usize, pair: [Post; 2]) -> Result<(), CommError> {
        self.link().post_pair(to, pair)
    }

    /// The same from a buffer that the transport need not copy.
    fn send_borrowed(&self, to: usize, tag: Tag, payload: Borrowed) -> Result<(), CommError> {
        self.link().post_borrowed(to, tag, payload)
    }

    /// Posts a receive buffer for a message of `tag`, as long as `buffer`. A transport that can receives into it, and the
    /// message has no payload ([`crate::Message::in_place`]). Any other message has its payload as usual. Nothing else uses the
    /// buffer until it is dropped.
    fn post_receive(&self, from: usize, tag: Tag, buffer: Borrowed) {
        self.link().post_receive(from, tag, buffer);
    }

    /// Cancels the receives of these tags from a rank, or from all. A buffer that is being written to is dropped when its
    /// message is complete.
    fn cancel_receives(&self, from: Option<usize>, which: impl Fn(Tag) -> bool) {
        self.link().cancel_receives(from, &which);
    }

    /// Waits for a message of `tag`. `what` appears in errors and warnings. Fails when the sender is
    /// gone, and when any rank has died: the operation would lack that rank's part.
    fn receive(&self, from: Option<usize>, tag: Tag, what: &str) -> Result<Message, CommError> {
        self.wait_for(from, what, || Ok(self.link().inbox().take(tag, from)))
    }

    /// Whether a message of `tag` has arrived, and of how many bytes. Never blocks.
    fn probe(&self, from: Option<usize>, tag: Tag) -> Option<usize> {
        self.link().poll();
        self.link().inbox().probe(tag, from)
    }

    /// Waits until `poll` returns a value. It is called again whenever a message or a signal comes.
    /// `from`: the rank that is waited for; with `None`, `poll` itself notices that a rank has left.
    fn wait_for<T>(
        &self,
        from: Option<usize>,
        what: &str,
        poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError>;

    /// How long a wait polls a counter before it sleeps.
    fn spin(&self) -> Duration {
        Patience::of(self.link()).spin
    }

    /// Announces to a rank that this one waits for it outside of collective calls, for the warnings of that rank. An empty
    /// `what` ends the announcement. `operation`: a number of its own ([`Endpoint::begin`]).
    fn announce(&self, to: usize, operation: u64, what: String);

    /// Names ranks that are waited for, with the call in which each waits for this one, if it has announced that.
    fn describe_waits(&self, ranks: &[usize]) -> String {
        let describe = |&rank: &usize| match self.link().inbox().waits_in(rank) {
            None => format!("rank {rank}"),
            Some(call) => format!("rank {rank} (which waits in {call})"),
        };
        ranks.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    /// Whether `rank` has dropped its communicator. All its messages are in the inbox then.
    fn has_left(&self, rank: usize) -> bool {
        matches!(self.link().state(rank), PeerState::Left | PeerState::Ended)
    }

    /// Lets the progress thread serve `object` at every demand, as long as it is held elsewhere. Serves it once at the call: a peer that
    /// was faster may have demanded that before.
    fn register<T: Serve + 'static>(&self, object: &Arc<T>);

    /// Holds `object`, which was dropped in flight, until it is over.
    fn defer_drop(&self, object: Arc<dyn Serve>);

    /// The one `T` of this rank, made at first use: state that its objects of a kind share.
    fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T>;
}

impl Endpoint for Communicator {
    fn over(transport: Arc<dyn Transport>) -> Self {
        Self::over_transport(transport)
    }

    fn threads_apart(size: usize, host: Arc<dyn Host>, is_private: fn(&Segment) -> bool) -> Vec<Self> {
        Self::over_threads(ThreadTransport::group(size, host, Some(is_private)))
    }

    #[inline]
    fn link(&self) -> &dyn Transport {
        &*self.shared.link
    }

    fn begin(&self) -> u64 {
        self.next_operation()
    }

    fn or_within(&self, call: &'static str) -> Self {
        self.within(self.within.unwrap_or(call))
    }

    fn detached(&self) -> Self {
        Self { membership: None, ..self.clone() }
    }

    fn start_barrier(&self) -> Barrier {
        Barrier::start(self)
    }

    fn wait_for<T>(
        &self,
        from: Option<usize>,
        what: &str,
        poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.wait_as(None, from, what, poll)
    }

    fn announce(&self, to: usize, operation: u64, what: String) {
        Call::other(operation, what).announce(self, to);
    }

    fn register<T: Serve + 'static>(&self, object: &Arc<T>) {
        let rank = &self.shared.rank;
        let weak: Weak<T> = Arc::downgrade(object);
        rank.progress.register(&rank.transport, weak);
        object.serve();
    }

    fn defer_drop(&self, object: Arc<dyn Serve>) {
        let rank = &self.shared.rank;
        rank.progress.defer_drop(&rank.transport, object);
    }

    fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.shared.rank.extension()
    }
}

impl Communicator {
    /// Refuses operations that this thread may not begin, that the other ranks would take for an interrupted one, or that come
    /// after different ones.
    pub(crate) fn check(&self) -> Result<(), CommError> {
        self.link().check()?;
        call::check_reported(self)?;
        match self.shared.interrupted.get() {
            Some(what) => Err(CommError::OutOfStep { rank: self.rank(), what: what.clone() }),
            None => Ok(()),
        }
    }

    /// As [`Endpoint::wait_for`], within a collective call: ends if another rank makes another one in its place.
    pub(crate) fn wait_in<T>(
        &self,
        call: &Call,
        from: Option<usize>,
        what: &str,
        poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.wait_as(Some(call), from, what, poll)
    }

    fn wait_as<T>(
        &self,
        call: Option<&Call>,
        from: Option<usize>,
        what: &str,
        mut poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.check()?;
        let patience = Patience { deadline: self.deadline, ..Patience::of(self.link()) };
        let (mut departures, mut announced) = (0, false);
        // A mismatch found before this thread went to sleep.
        let failed = Cell::new(None);
        let mismatch = || call.and_then(|call| call.check(self).err());
        // A rank that has left may have done so because of different calls, which it has reported before.
        let cause = |error: CommError| mismatch().unwrap_or_else(|| self.root_cause(error, what));
        let ended = patience.wait(
            self.link(),
            || {
                let before = self.link().departures();
                match poll() {
                    Ok(None) => {}
                    Ok(Some(found)) => return Some(Ok(found)),
                    Err(error) => return Some(Err(cause(error))),
                }
                if let Some(error) = failed.take() {
                    return Some(Err(error));
                }
                if before == departures {
                    return None;
                }
                // All messages of a departed rank were in the inbox before its departure showed, so
                // this last look decides.
                departures = before;
                let gone = self.link().check().err().or_else(|| self.departed(from, what))?;
                Some(poll().and_then(|found| found.ok_or(gone)).map_err(cause))
            },
            || failed.set(mismatch()),
            || Duration::MAX,
            |late| match late {
                Late::Announce => {
                    call?.announce(self, from?);
                    announced = true;
                    None
                }
                Late::Warn { after, again } => {
                    self.warn(from, what, after, again);
                    None
                }
                Late::Deadline(after) => Some(Err(self.deadline_passed(from, what, after))),
                Late::Interrupted => Some(Err(self.interrupted(what))),
            },
        );
        if let (true, Some(call), Some(rank)) = (announced, call, from) {
            call.retract(self, rank);
        }
        ended
    }

    /// Warns of a wait that takes long.
    fn warn(&self, from: Option<usize>, what: &str, after: Duration, again: bool) {
        let awaited = match from {
            None => "other ranks".to_owned(),
            Some(rank) => self.describe_waits(&[rank]),
        };
        let (rank, after) = (self.rank(), after.as_secs());
        let what = self.described(what);
        let text = format!("rank {rank} has waited {after} s for {what} from {awaited}");
        self.link().host().tell_late(&text, again);
    }

    fn deadline_passed(&self, from: Option<usize>, what: &str, after: Duration) -> CommError {
        let from = from.map_or(String::new(), |rank| format!(" from {}", self.describe_waits(&[rank])));
        CommError::Deadline { waiting: self.rank(), after, what: format!("{}{from}", self.described(what)) }
    }

    /// Notes that this wait was interrupted, so that this rank begins no further operation.
    fn interrupted(&self, what: &str) -> CommError {
        let what = self.shared.interrupted.get_or_init(|| self.described(what)).clone();
        CommError::Interrupted { waiting: self.rank(), what }
    }

    /// Describes a wait: its subject, and the function of the library that it is a part of.
    fn described(&self, what: &str) -> String {
        self.within.map_or_else(|| what.to_owned(), |call| format!("{what} of {call}"))
    }

    /// A rank that leaves because another has died is not the one to name.
    fn root_cause(&self, error: CommError, what: &str) -> CommError {
        match error {
            CommError::Left { .. } => self.departed(None, what).unwrap_or(error),
            other => other,
        }
    }

    /// The error for a rank that is gone, if `from` has left or any rank has died.
    pub(crate) fn departed(&self, from: Option<usize>, what: &str) -> Option<CommError> {
        let (waiting, what) = (self.rank(), self.described(what));
        let others = || (0..self.size()).filter(|&rank| rank != waiting);
        if let Some(rank) = others().find(|&rank| self.link().state(rank) == PeerState::Dead) {
            let absence = self.link().absence_of(rank);
            return Some(absence.unwrap_or(CommError::Died { rank, waiting, what }));
        }
        let rank = match from {
            Some(rank) => Some(rank).filter(|&rank| self.has_left(rank)),
            // No rank is left that could send.
            None => others().next().filter(|_| others().all(|rank| self.has_left(rank))),
        };
        // The others have gone with this rank, or give up because of it.
        rank.map(|rank| self.link().ended().unwrap_or(CommError::Left { rank, waiting, what }))
    }
}
