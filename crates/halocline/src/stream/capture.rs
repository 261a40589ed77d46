//! Exchanges that are captured into CUDA graphs.
//!
//! A captured exchange is one launch, and a reduce two. They read their epoch from a counter on the device
//! ([`halocline_device::Epoch::Counted`]). So a graph may be launched any number of times, between exchanges that are begun by calls, here
//! and at the peers. The host does not know when that happens: it looks at the flags of the device ([`Scheduled::progress`]).
//!
//! The captured exchanges of a rank on a device follow one another in each graph, so that no two of them wait for peers at the same
//! time. One that overlaps with the user's work is captured on a stream of its own, which forks from the user's stream.

use super::watch::DRAIN;
use super::{Cut, Lane, Scheduled, Work};
use crate::error::Error;
use crate::exchange::Shared;
use crate::lock::{lock, lock_yielding};
use halocline_comm::Endpoint;
use halocline_device::{Capture, DeviceError, Event, RawStream, Stream};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The number of a captured exchange is its number among those of the object, plus this: above all epochs.
const CAPTURED: u64 = 1 << 63;

/// Whether the number is that of a captured exchange.
#[inline]
pub(crate) fn is_captured(epoch: u64) -> bool {
    epoch >= CAPTURED
}

/// A captured exchange.
#[derive(Clone)]
pub(crate) struct Captured {
    capture: Capture,
    /// Recorded after it, on this stream.
    done: Event,
    on: RawStream,
}

impl Captured {
    /// Orders later work of a stream under the same capture after it.
    fn precede(&self, stream: &Stream) -> Result<(), DeviceError> {
        if stream.raw() == self.on { Ok(()) } else { stream.wait(&self.done) }
    }
}

impl Scheduled {
    /// The capture that streams take part in: all of the same one, or none.
    pub(crate) fn capture_of<'a>(
        &self,
        streams: impl Iterator<Item = &'a Stream>,
    ) -> Result<Option<Capture>, Error> {
        let mut first = None;
        for (at, stream) in streams.enumerate() {
            let own = self.check_stream(at, stream)?;
            if *first.get_or_insert(own) != own {
                return Err(Error::OtherCapture { stream: at });
            }
        }
        Ok(first.flatten())
    }

    /// Captures an exchange: [`Scheduled::begin`]. The graph keeps `object`.
    pub(super) fn capture<'a>(
        &'a self,
        (work, object): (Work<'_>, &Arc<Shared>),
        capture: Capture,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<u64, Error> {
        let mut begin = self.enter();
        self.check_failure()?;
        self.check_memories(work).inspect_err(|error| self.end_by_device(error.to_string()))?;
        self.check_guards(work)?;
        let [lane] = &self.lanes[..] else { return Err(self.not_capturable()) };
        let waits_within = lane.scripts.iter().all(|script| script.waiting_blocks.is_some())
            && work.script(lane).waiting_blocks.is_some();
        if !waits_within || self.has_host_fields || self.checks.is_some() {
            return Err(self.not_capturable());
        }
        let stream = match self.inline {
            true => self.chosen(0, streams.clone()),
            false => lane.shared.fork()?,
        };
        if !self.inline && stream.capture()?.is_some_and(|other| other != capture) {
            let why = "another graph that holds exchanges of this rank is being captured";
            return Err(Error::NotCapturable { why });
        }
        lane.count(self.epoch())?;
        // A failure before this found no graph, and has not set the guard.
        fence(Ordering::SeqCst);
        self.check_failure()?;
        self.keep_with(&mut begin.kept, object, (lane, capture))?;
        if let Work::Given(given) = work {
            // SAFETY: the streams of this call take part in the capture, as they were asked just now.
            unsafe { lane.device.driver().keep_with_graph(capture, Arc::clone(given) as _) }?;
            self.remember_captured(given);
        }
        // From here on the capture changes: whatever fails now fails in CUDA, which ends the capture.
        let events = &lane.shared.captured_events;
        for given in streams.filter(|given| given.raw() != stream.raw()) {
            let event = events.take()?;
            given.record(&event)?;
            stream.wait(&event)?;
        }
        let mut last = lock_yielding(&lane.shared.last_captured, self.comm.link().host());
        if let Some(last) = last.as_ref().filter(|last| last.capture == capture) {
            last.precede(stream)?;
        }
        lane.capture(stream, work, self.epoch() + 1, self.is_cut(Cut::Epoch))?;
        let done = events.take()?;
        stream.record(&done)?;
        let captured = Captured { capture, done, on: stream.raw() };
        *last = Some(captured.clone());
        begin.captured = Some(captured);
        drop(last);
        drop(begin);
        let number = CAPTURED + 1 + self.captures.fetch_add(1, Ordering::AcqRel);
        self.hold_frees();
        self.be_watched();
        Ok(number)
    }

    /// Makes a graph under capture keep the object, once. `kept` is the capture that was the last to do so.
    pub(super) fn keep_with(
        &self,
        kept: &mut Option<Capture>,
        object: &Arc<Shared>,
        (lane, capture): (&Lane, Capture),
    ) -> Result<(), Error> {
        if *kept != Some(capture) {
            let object = Arc::clone(object) as Arc<dyn Any + Send + Sync>;
            // SAFETY: the streams of this call take part in the capture, as they were asked just now.
            unsafe { lane.device.driver().keep_with_graph(capture, object) }?;
            *kept = Some(capture);
        }
        Ok(())
    }

    /// Why the exchanges of this object cannot be captured.
    fn not_capturable(&self) -> Error {
        let checked = self.checks.is_some().then_some("it is bound in checked mode; bind it without");
        let host = checked.or(self.has_host_fields.then_some("it has fields in host memory, too"));
        let blocks = "one of its sets needs more thread blocks that wait than the device has";
        Error::NotCapturable { why: host.or(self.apart).unwrap_or(blocks) }
    }

    /// Orders later work of a stream after a captured exchange: [`Scheduled::schedule_wait`].
    pub(super) fn wait_captured(&self, stream: &Stream, capture: Option<Capture>) -> Result<(), Error> {
        self.check_failure()?;
        let begin = self.enter();
        // It comes after all earlier ones of the object.
        match begin.captured.as_ref().filter(|last| Some(last.capture) == capture) {
            Some(last) if !self.is_cut(Cut::Consumer) => Ok(last.precede(stream)?),
            Some(_) => Ok(()),
            None => Err(Error::OtherCapture { stream: 0 }),
        }
    }

    /// The number of the exchange that was captured last; `None` if there is none.
    pub(crate) fn last_captured(&self) -> Option<u64> {
        let captures = self.captures.load(Ordering::Acquire);
        (captures > 0).then_some(CAPTURED + captures)
    }

    /// How far the device is, as it counts: without graphs, the exchanges that calls have begun and those that are over. A device that does
    /// not tell soon counts as done; it is looked at again.
    pub(super) fn progress(&self) -> Progress {
        let done = self.look();
        let Some(lane) = self.counting_lane() else { return Progress { begun: self.epoch(), done } };
        let (begun, _) = lane.begun();
        Progress { begun, done: lane.counted().map_or(begun, |counted| counted.epochs()).min(begun) }
    }

    /// Whether no exchange is in flight: none that a call has begun, and none of a graph, as far as the device tells.
    pub(super) fn is_all_over(&self) -> bool {
        self.look() >= self.epoch() && self.counting_lane().is_none_or(|lane| lane.is_counted())
    }

    /// The flags of an epoch, by the number of their [`super::FlagSet`], as the device counts; with graphs, of the last one begun.
    pub(super) fn number_at(&self, epoch: u64) -> usize {
        match self.counting_lane() {
            Some(lane) => lane.begun().1,
            None => self.number_of(epoch),
        }
    }

    /// After a failure, whether no launch of a graph copies any more. A launch that began before the guard was set shows by now, if
    /// none does at two looks some time apart: a block shows within microseconds. Later launches copy nothing.
    pub(super) fn are_graphs_over(&self) -> bool {
        let Some(lane) = self.counting_lane() else { return true };
        let (begun, now) = (lane.begun().0, self.comm.link().host().now());
        let is_counted = lane.is_counted();
        let mut last = lock(&self.last_begun);
        let since = match *last {
            Some((epoch, since)) if epoch == begun => since,
            _ => last.insert((begun, now)).1,
        };
        is_counted && now.saturating_sub(since) >= DRAIN
    }

    /// The lane of an object of which graphs hold exchanges: it has no other.
    fn counting_lane(&self) -> Option<&Lane> {
        self.lanes.first().filter(|lane| lane.is_counting())
    }
}

/// How far a device is.
pub(super) struct Progress {
    /// The last epoch that has begun.
    pub(super) begun: u64,
    /// The last one that is over.
    pub(super) done: u64,
}
