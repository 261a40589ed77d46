//! Device memory that several objects exchange: the streams of each exchange wait for the earlier exchanges of the other objects.
//! Unlike other begins, such a begin allocates: lists of its memories and of their users.

use super::{Begin, IN_FLIGHT, Scheduled, Work};
use crate::error::Error;
use crate::field::{Memory, OnDevice};
use crate::lifecycle::Engine;
use halocline_comm::Endpoint;
use halocline_device::{DeviceError, Stream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// Memories that other objects exchange, too, held for a begin.
#[derive(Default)]
pub(super) struct Shared<'a> {
    #[expect(dead_code, reason = "held for their drop")]
    guards: Vec<MutexGuard<'a, ()>>,
    /// The other objects. With the last handle an object ends: dropped after the guards.
    others: Vec<Arc<Scheduled>>,
}

impl Scheduled {
    /// As [`Scheduled::enter`], for an exchange. Orders it after the exchanges in flight of other objects that use its
    /// memories. Until the first value is dropped, no other object begins an exchange of those memories.
    pub(super) fn enter_after_others<'a>(
        &'a self,
        work: Work<'a>,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<(Shared<'a>, MutexGuard<'a, Begin>), Error> {
        loop {
            let shares = self.shares.load(Ordering::Acquire);
            let shared = if shares { self.follow_others(work, streams.clone())? } else { Shared::default() };
            let begin = self.enter();
            // An object that was bound meanwhile has waited in `precede` for this lock, or finds this exchange there.
            if shares || !self.shares.load(Ordering::Acquire) {
                return Ok((shared, begin));
            }
        }
    }

    fn follow_others<'a>(
        &'a self,
        work: Work<'a>,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<Shared<'a>, Error> {
        let link = self.comm.link();
        let memories = self.memories(work);
        let home =
            |(memory, field): &'a (Arc<Memory>, usize)| Some((memory, memory.device.as_ref()?, *field));
        let mut homes: Vec<(&Arc<Memory>, &OnDevice, usize)> = memories.iter().filter_map(home).collect();
        // In one order on all threads.
        homes.sort_by_key(|(memory, ..)| Arc::as_ptr(memory));
        let guards = homes.iter().map(|(_, home, _)| home.enter(link.host())).collect();
        let mut shared = Shared { guards, others: Vec::new() };
        for (memory, home, field) in homes {
            let Some(lane) = self.lanes.iter().position(|lane| lane.device == home.device) else { continue };
            let stream = self.chosen(lane, streams.clone());
            let first = shared.others.len();
            shared.others.extend(home.users());
            for user in shared.others[first..].iter().filter(|user| !std::ptr::eq(Arc::as_ptr(user), self)) {
                if !user.precede(memory, stream)? {
                    return Err(Error::Shared { field });
                }
            }
        }
        Ok(shared)
    }

    /// Orders later work of a stream after the exchanges of a memory by this object. False if the object has failed and a peer may
    /// still write to the memory.
    fn precede(&self, memory: &Arc<Memory>, stream: &Stream) -> Result<bool, DeviceError> {
        let begin = self.enter();
        if self.life().failure().is_some() || begin.is_broken {
            drop(begin);
            return Ok(!self.is_in_flight_with(memory));
        }
        if let Some(lane) = self.lane_of(stream) {
            self.follow_looks(lane, stream)?;
        }
        let uses = |epoch: &u64| self.is_used(*epoch, memory);
        let last = (self.completed() + 1..=self.epoch()).rev().find(uses);
        let Some((epoch, lane)) = last.zip(self.lane_of(stream)) else { return Ok(true) };
        let flight = &begin.flights[(epoch % IN_FLIGHT) as usize][lane];
        flight.as_ref().map_or(Ok(()), |flight| flight.precede(stream)).map(|()| true)
    }
}
