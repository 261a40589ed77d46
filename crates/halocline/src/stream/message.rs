//! The message of an exchange, packed or unpacked in the order of a user's stream, for programs that send by themselves.
//!
//! A copy table contains addresses: there is one for each buffer, kept for the next call with that buffer.

use super::{Begin, Scheduled, Work};
use crate::error::Error;
use crate::exchange::Shared;
use crate::link::{Direction, Link};
use crate::set::Set;
use halocline_device::{Address, CopyTable, DeviceError, Event, Place, Stream, TablePart, TableSpec};
use std::sync::{Arc, TryLockError};

/// Tables that are kept for one link, set and device: the program may alternate between as many buffers.
const KEPT: usize = 4;

/// A table between the fields of a set and a buffer, and its last launch.
pub(super) struct Kept {
    /// The set, the link, the lane.
    of: (usize, usize, usize),
    /// The address of the buffer, and its allocation.
    buffer: (Address, u64),
    table: CopyTable,
    last: Option<Event>,
    /// Graphs hold launches of it.
    is_captured: bool,
}

impl Kept {
    /// Whether no launch of it runs any more. On a failed device none does.
    fn is_over(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.query().unwrap_or(true))
    }

    /// Launches it after its earlier launches, on any stream: the event of the last one shows that all are over.
    ///
    /// # Safety
    /// The memory of the table stays valid until the launch is over, and the stream orders what uses it meanwhile.
    /// `self` is kept until then.
    unsafe fn launch(&mut self, stream: &Stream, last: Event, is_capturing: bool) -> Result<(), DeviceError> {
        if is_capturing {
            self.is_captured = true;
            // SAFETY: the caller keeps the table and its memory as long as the graph exists, and has the stream order what uses that
            // meanwhile.
            return unsafe { stream.launch(&self.table, 0) };
        }
        if let Some(before) = &self.last
            && !before.query()?
        {
            stream.wait(before)?;
        }
        // SAFETY: the caller keeps the table and its memory until the launch is over, and has the stream order what
        // uses that meanwhile.
        unsafe { stream.launch(&self.table, 0) }?;
        if let Err(error) = stream.record(&last) {
            // Without an event the launch is waited for. If that fails, the device has failed, and nothing runs there.
            return Err(stream.synchronise().err().unwrap_or(error));
        }
        self.last = Some(last);
        Ok(())
    }
}

impl Scheduled {
    /// Packs or unpacks the message of a link and a set, after all earlier work of the stream. A graph under capture keeps `object`.
    ///
    /// # Safety
    /// The message has as many bytes as the part of the link. It stays valid until the stream has done it. Meanwhile
    /// nobody uses it otherwise, or the cells concerned.
    pub(crate) unsafe fn copy_message(
        &self,
        (set, object): (&Set, &Arc<Shared>),
        link: &Link,
        (message, bytes): (Address, usize),
        stream: &Stream,
    ) -> Result<(), Error> {
        let capture = self.check_stream(0, stream)?;
        let Some(lane) = self.lane_of(stream).filter(|_| bytes > 0) else { return Ok(()) };
        let of = (set.number, link.part, lane);
        // Another allocation with other bounds may be there by now.
        let id = self.lanes[lane].device.identity(message).map_err(|error| match error {
            DeviceError::NotReachable { address, .. } => DeviceError::NotReachable { address, bytes },
            other => other,
        })?;
        let buffer = (message, id);
        let mut made = None;
        loop {
            let mut begin = self.enter();
            // Under the lock: a failed object gives its fields back only while no thread is here.
            self.check_failure()?;
            self.check_memories(Work::Set(&self.sets[set.number]))?;
            let Begin { messages, .. } = &mut *begin;
            let there = messages.iter().position(|kept| (kept.of, kept.buffer) == (of, buffer));
            let at = match (there, made.take()) {
                (Some(at), _) => at,
                (None, Some(table)) => {
                    let of_link = messages.iter().filter(|kept| kept.of == of).count();
                    let is_spare = |kept: &Kept| kept.of == of && kept.is_over() && !kept.is_captured;
                    if of_link >= KEPT
                        && let Some(oldest) = messages.iter().position(is_spare)
                    {
                        messages.remove(oldest);
                    }
                    messages.push(Kept { of, buffer, table, last: None, is_captured: false });
                    messages.len() - 1
                }
                (None, None) => {
                    // Making a table may wait for the device, and other threads may begin exchanges meanwhile.
                    drop(begin);
                    made = Some(self.table_of(set, link, (message, bytes), lane)?);
                    continue;
                }
            };
            if let Some(capture) = capture {
                self.keep_with(&mut begin.kept, object, (&self.lanes[lane], capture))?;
            }
            let last = self.lanes[lane].shared.events.take()?;
            // SAFETY: the object holds its fields and its tables until they are over (`Scheduled::is_quiet` waits for
            // `is_packed`). The caller promises that the message stays valid until then, and that nobody uses it or the
            // cells meanwhile.
            return Ok(unsafe { begin.messages[at].launch(stream, last, capture.is_some()) }?);
        }
    }

    fn table_of(
        &self,
        set: &Set,
        link: &Link,
        (message, bytes): (Address, usize),
        lane: usize,
    ) -> Result<CopyTable, Error> {
        let device = &self.lanes[lane].device;
        let Place { base, bytes: len, .. } = device.place_of(message)?;
        if (message - base).checked_add(bytes as Address).is_none_or(|end| end > len as Address) {
            return Err(DeviceError::OutOfBounds { address: message, bytes, base, len }.into());
        }
        let fields: Vec<Address> = set.bases.iter().map(|base| base.addr() as Address).collect();
        let (sources, targets) = match link.direction {
            Direction::Send => (&fields[..], &[message][..]),
            Direction::Receive => (&[message][..], &fields[..]),
        };
        let parts = [TablePart { ops: set.message(link)?, ..TablePart::default() }];
        let table = TableSpec { parts: &parts, sources, targets, ..TableSpec::default() };
        Ok(device.upload(&table)?)
    }

    /// Whether no message is being packed or unpacked any more, and no check looks at the cells. False while a thread gives work to
    /// the streams.
    pub(super) fn is_packed(&self) -> bool {
        if self.may_be_looking() {
            return false;
        }
        match self.begin.try_lock() {
            Ok(begin) => begin.messages.iter().all(Kept::is_over),
            Err(TryLockError::Poisoned(begin)) => begin.get_ref().messages.iter().all(Kept::is_over),
            Err(TryLockError::WouldBlock) => false,
        }
    }
}
