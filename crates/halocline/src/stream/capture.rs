//! Exchanges that are captured into CUDA graphs.
//!
//! A captured exchange is one launch, which has its epoch from a counter on the device ([`halocline_device::Epoch::Counted`]). So a graph may be
//! launched any number of times, between exchanges that are begun by calls, here and at the peers. The host does not know when that
//! happens: it looks at the flags of the device ([`Scheduled::progress`]).
//!
//! An exchange that overlaps with the user's work is captured on a stream of its own, which forks from the user's stream.

use super::watch::DRAIN;
use super::{Cut, Lane, Scheduled};
use crate::error::Error;
use crate::exchange::Shared;
use crate::lock::lock;
use crate::set::Set;
use halocline_comm::Endpoint;
use halocline_device::{Capture, Event, RawStream, Stream};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of a captured exchange is its number among those of the object, plus this: above all epochs.
const CAPTURED: u64 = 1 << 63;

/// Whether the number is that of a captured exchange.
#[inline]
pub(crate) fn is_captured(epoch: u64) -> bool {
    epoch >= CAPTURED
}

/// The latest captured exchange of an object.
pub(super) struct Captured {
    capture: Capture,
    /// Recorded after it, on this stream.
    done: Event,
    on: RawStream,
}

impl Captured {
    /// Orders later work of a stream under the same capture after it.
    fn precede(&self, stream: &Stream) -> Result<(), Error> {
        if stream.raw() != self.on {
            stream.wait(&self.done)?;
        }
        Ok(())
    }
}

impl Scheduled {
    /// The capture that streams take part in: all of the same one, or none.
    pub(super) fn capture_of<'a>(
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

    /// Captures an exchange of a set: [`Scheduled::begin`]. The graph keeps `object`.
    pub(super) fn capture<'a>(
        &'a self,
        (set, object): (&Arc<Set>, &Arc<Shared>),
        capture: Capture,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<u64, Error> {
        let set = set.number;
        self.check_failure()?;
        let [lane] = &self.lanes[..] else { return Err(self.not_capturable()) };
        let is_one_launch = lane.scripts.iter().all(|script| script.one_launch.is_some());
        if !is_one_launch || self.has_host_fields {
            return Err(self.not_capturable());
        }
        let stream = if self.inline { self.chosen(0, streams.clone()) } else { lane.fork()? };
        let mut given = streams.filter(|given| given.raw() != stream.raw());
        given.try_for_each(|given| {
            let event = lane.shared.events.take()?;
            given.record(&event)?;
            stream.wait(&event)
        })?;
        self.follow_captured(set, capture, stream)?;
        let mut begin = self.enter();
        self.check_failure()?;
        self.check_memories(set).inspect_err(|error| self.end_by_device(error.to_string()))?;
        self.sets[set].local.check_guards()?;
        lane.count(self.epoch())?;
        if begin.captured.as_ref().is_none_or(|last| last.capture != capture) {
            let kept = Arc::clone(object) as Arc<dyn Any + Send + Sync>;
            // SAFETY: the streams take part in the capture, as they were asked just now.
            unsafe { lane.device.driver().keep_with_graph(capture, kept) }?;
            begin.captured = None;
        }
        if let Some(last) = &begin.captured {
            last.precede(stream)?;
        }
        lane.shared.budget.capture(lane.scripts[set].one_launch.unwrap_or(0));
        lane.capture(stream, set, self.epoch() + 1, self.is_cut(Cut::Epoch))?;
        let done = lane.shared.events.take()?;
        stream.record(&done)?;
        begin.captured = Some(Captured { capture, done, on: stream.raw() });
        begin.captures += 1;
        let number = CAPTURED + begin.captures;
        self.latest.store(number, Ordering::Release);
        drop(begin);
        self.hold_frees();
        self.be_watched();
        Ok(number)
    }

    /// Why the exchanges of this object cannot be captured.
    fn not_capturable(&self) -> Error {
        let host = self.has_host_fields.then_some("it has fields in host memory, too");
        let why = host
            .or(self.apart)
            .unwrap_or("one of its sets needs more thread blocks that wait than the device has");
        Error::NotCapturable { why }
    }

    /// Orders a stream after the captured exchanges of other objects that use memories of a set. Holds no lock of this object: two objects
    /// may do this at the same time.
    fn follow_captured(&self, set: usize, capture: Capture, stream: &Stream) -> Result<(), Error> {
        if !self.shares.load(Ordering::Acquire) {
            return Ok(());
        }
        for (memory, _) in &self.sets[set].local.memories {
            let users = memory.device.as_ref().map(|home| home.users()).unwrap_or_default();
            for user in users.iter().filter(|user| !std::ptr::eq(Arc::as_ptr(user), self)) {
                let begin = user.enter();
                if let Some(last) = begin.captured.as_ref().filter(|last| last.capture == capture) {
                    last.precede(stream)?;
                }
            }
        }
        Ok(())
    }

    /// Orders later work of a stream after a captured exchange: [`Scheduled::schedule_wait`].
    pub(super) fn wait_captured(&self, stream: &Stream, capture: Option<Capture>) -> Result<(), Error> {
        self.check_failure()?;
        let begin = self.enter();
        // It comes after all earlier ones of the object.
        match begin.captured.as_ref().filter(|last| Some(last.capture) == capture) {
            Some(last) if !self.is_cut(Cut::Consumer) => last.precede(stream),
            Some(_) => Ok(()),
            None => Err(Error::OtherCapture { stream: 0 }),
        }
    }

    /// The number of the latest exchange that a call has begun or captured; 0 if there is none.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// How far the device is, as it counts: without graphs, the exchanges that calls have begun and those that are over.
    pub(super) fn progress(&self) -> Progress {
        let done = self.look();
        let Some(lane) = self.counting_lane() else { return Progress { begun: self.epoch(), done } };
        let (begun, _) = lane.begun(self.sets.len());
        // A device that does not tell is looked at again.
        Progress { begun, done: lane.counted().unwrap_or(begun).min(begun) }
    }

    /// The set of an epoch, as the device counts; with graphs, of the last one begun.
    pub(super) fn set_at(&self, epoch: u64) -> usize {
        match self.counting_lane() {
            Some(lane) => lane.begun(self.sets.len()).1,
            None => self.set_of(epoch),
        }
    }

    /// After a failure, whether no launch of a graph copies any more. A launch that began before the guard was set has told so by now if the
    /// device says the same at two looks some time apart: telling takes microseconds. Later launches copy nothing.
    pub(super) fn has_settled(&self) -> bool {
        if !self.is_counting() {
            return true;
        }
        let (Progress { begun, done }, now) = (self.progress(), self.comm.link().host().now());
        let mut settled = lock(&self.settled);
        if settled.0 != begun {
            *settled = (begun, now);
        }
        done == begun && now.saturating_sub(settled.1) >= DRAIN
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
