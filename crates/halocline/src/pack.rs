//! The message of an exchange, packed into a buffer of the caller and unpacked from one: for programs that send
//! by themselves.

use crate::error::Error;
use crate::exchange::HaloExchange;
use crate::link::{Direction, Link, as_sources};
use crate::set::{Part, Set};
use crate::stream::Scheduled;
use halocline_device::{Address, Stream, host};
use halocline_plan::copy::CopyOp;
use std::ops::Range;
use std::sync::Arc;

impl HaloExchange {
    /// Bytes of the message that an exchange sends to a peer, or receives from it: the length of the buffers of
    /// [`HaloExchange::pack`] and [`HaloExchange::unpack`], or of [`HaloExchange::pack_on`] and [`HaloExchange::unpack_on`].
    /// Local, never blocks. Fails with [`Error::NoSuchPeer`], and [`Error::OfDevices`] of an object of host and device fields.
    pub fn message_bytes(&self, peer: usize, direction: Direction) -> Result<usize, Error> {
        match &self.scheduled {
            None => Ok(self.host_part(peer, direction)?.1.bytes),
            Some(scheduled) => Ok(self.device_part(scheduled, peer, direction)?.2.bytes),
        }
    }

    /// Packs the owned cells that `peer` needs into a message that the program sends by itself. It begins no exchange.
    /// For an object with several sets it packs the first; [`HaloExchange::alternative`] chooses another.
    ///
    /// The message has the transfers in the order of the pattern ([`crate::plan::PatternPlan::peers`]), for the first field of each
    /// domain, then for the second, and so on; patterns come in the order in which they were made. A transfer has the bytes of its
    /// cells without gaps, in the order of this rank's memory, negative strides reversed. Two boxes of the same shape
    /// and of short blocks (opposite faces) may alternate block by block, depending on the layouts at both ends. So a
    /// message is only for the peer's [`HaloExchange::unpack`] of the same object, or of another one of the same patterns and
    /// layouts.
    ///
    /// Fails with [`Error::OfDevices`], [`Error::NoSuchPeer`], [`Error::MessageLength`], [`Error::MessageInField`], and as [`HaloExchange::exchange`] does: while
    /// an exchange is in flight, or a guard of one of the arrays is held. Host memory only
    /// ([`HaloExchange::pack_on`]); never blocks.
    pub fn pack(&self, peer: usize, message: &mut [u8]) -> Result<(), Error> {
        let bytes = addresses(message);
        self.copied(peer, Direction::Send, bytes, |set, ops| {
            // SAFETY: `PeerView::part` has checked the operations against the fields, whose memory the set holds, and
            // they fill a message of the part's length, which `message` has. `begin_flight` keeps exchanges and guards
            // away from the fields.
            unsafe { host::copy(ops, as_sources(&set.bases), &[message.as_mut_ptr()]) };
        })
    }

    /// Unpacks a message that `peer` has packed with the same object into this rank's halo. As [`HaloExchange::pack`].
    pub fn unpack(&self, peer: usize, message: &[u8]) -> Result<(), Error> {
        self.copied(peer, Direction::Receive, addresses(message), |set, ops| {
            // SAFETY: `PeerView::part` has checked the operations against the fields, whose memory the set holds, and
            // they read a message of the part's length, which `message` has. `begin_flight` keeps exchanges and guards
            // away from the fields.
            unsafe { host::copy(ops, &[message.as_ptr()], &set.bases) };
        })
    }

    /// As [`HaloExchange::pack`], of device fields: packs into the `bytes` bytes from address `message` on, the same bytes
    /// that host fields of these layouts give. They lie in memory that the stream's device reaches: its own, pinned or
    /// registered memory of the host, or that of a device to which it has access.
    ///
    /// It takes its place in the order of the stream, which is of any of the object's devices, as a kernel would that reads the
    /// owned cells: after all that the stream was given before, which is to be what writes them. With an exchange of the same fields
    /// nothing but the stream orders it; a stream under capture takes it into its graph. What reads the message comes later in the stream, or waits for an event there.
    ///
    /// Blocks for no work of a device, unless the stream's queue is full ([`HaloExchange::schedule_exchange`]). The first call for a
    /// buffer makes a copy table, which waits for the device as a bind does; a few are kept for each peer and direction, so that later calls
    /// for one of some buffers that take turns are one launch, and allocate nothing. Calls for one buffer come after each
    /// other, whatever their streams. The object may be dropped meanwhile.
    ///
    /// Fails with [`Error::OfHost`] (host fields), [`Error::OfDevices`] (host and device fields), [`Error::NoSuchPeer`],
    /// [`Error::MessageLength`], [`Error::MessageInField`], [`Error::StreamDevice`], [`Error::MemoryMoved`], [`Error::Failed`] (an
    /// exchange of the object has), and [`Error::Device`]: of memory that the device does not reach, or not all of, that is
    /// [`NotReachable`](halocline_device::DeviceError::NotReachable), [`OutOfBounds`](halocline_device::DeviceError::OutOfBounds),
    /// [`NoPeerAccess`](halocline_device::DeviceError::NoPeerAccess) or [`NotShared`](halocline_device::DeviceError::NotShared).
    /// None of them is an end of the object.
    ///
    /// # Safety
    /// The `bytes` bytes at `message` stay valid until the stream has done it or, under capture, as long as the graph exists. Meanwhile
    /// nothing reads or writes them but what the stream, or an event of it, orders before or after.
    pub unsafe fn pack_on(
        &self,
        peer: usize,
        message: Address,
        bytes: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        // SAFETY: the caller keeps the contract of `pack_on`, which is that of `copied_on`.
        unsafe { self.copied_on(peer, Direction::Send, (message, bytes), stream) }
    }

    /// Unpacks what `peer` has packed into this rank's halo, as a kernel would that writes it: after what still reads the halo, and
    /// before what reads the cells that came. As [`HaloExchange::pack_on`].
    ///
    /// # Safety
    /// The `bytes` bytes at `message` stay valid until the stream has done it or, under capture, as long as the graph exists; they are
    /// elements of the fields' types. Meanwhile nothing reads or writes them but what the stream, or an event of it, orders before or after.
    pub unsafe fn unpack_on(
        &self,
        peer: usize,
        message: Address,
        bytes: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        // SAFETY: the caller keeps the contract of `unpack_on`, which is that of `copied_on`.
        unsafe { self.copied_on(peer, Direction::Receive, (message, bytes), stream) }
    }

    /// Calls `copy` with the operations between the fields of the first set, which are taken meanwhile, and a
    /// message.
    fn copied(
        &self,
        peer: usize,
        direction: Direction,
        message: Range<usize>,
        copy: impl FnOnce(&Set, &[CopyOp]),
    ) -> Result<(), Error> {
        if self.is_of_devices() {
            return Err(Error::OfDevices {
                what: "packed into or unpacked from messages without a stream",
                instead: "give the message and a stream to `pack_on` or `unpack_on`",
            });
        }
        let (link, part) = self.host_part(peer, direction)?;
        check_length(peer, part, message.len())?;
        let set = self.set(0)?;
        check_apart(peer, set, &message)?;
        let ops = set.message(link)?;
        let epoch = self.bound().epoch();
        match self.bound().final_outcome(epoch) {
            Some(outcome) => outcome?,
            None => return Err(Error::InFlight { epoch }),
        }
        set.local.begin_flight()?;
        copy(set, ops);
        set.local.end_flight();
        Ok(())
    }

    /// The same in the order of a stream.
    ///
    /// # Safety
    /// The bytes of `message` stay valid until the stream has done it. Until then nothing reads or writes them but
    /// what the stream, or an event of it, orders before or after.
    unsafe fn copied_on(
        &self,
        peer: usize,
        direction: Direction,
        message: (Address, usize),
        stream: &Stream,
    ) -> Result<(), Error> {
        let Some(scheduled) = &self.scheduled else {
            return Err(Error::OfHost {
                what: "packed into or unpacked from messages in the order of a stream",
                instead: "give a message in memory of the host to `pack` or `unpack`",
            });
        };
        let (set, link, part) = self.device_part(scheduled, peer, direction)?;
        check_length(peer, part, message.1)?;
        let first = message.0 as usize;
        check_apart(peer, set, &(first..first.saturating_add(message.1)))?;
        // SAFETY: the message has the part's length, as was checked. The caller promises that it stays valid until the
        // stream has done it, and that the stream orders all that uses it or the cells meanwhile.
        unsafe { scheduled.copy_message((set, self.object()), link, message, stream) }
    }

    fn host_part(&self, peer: usize, direction: Direction) -> Result<(&Link, &Part), Error> {
        let link = find(&self.bound().links, peer, direction)?;
        Ok((link, &self.set(0)?.parts[link.part]))
    }

    fn device_part<'a>(
        &self,
        scheduled: &'a Scheduled,
        peer: usize,
        direction: Direction,
    ) -> Result<(&'a Arc<Set>, &'a Link, &'a Part), Error> {
        if scheduled.has_host_fields {
            return Err(Error::OfDevices {
                what: "packed into or unpacked from messages together with host fields",
                instead: "bind the fields of each kind by themselves",
            });
        }
        let link = find(&scheduled.links, peer, direction)?;
        // Sets of host and device fields have the same numbers.
        let set = &scheduled.sets[self.set(0)?.number];
        Ok((set, link, &set.parts[link.part]))
    }
}

fn find(links: &[Link], peer: usize, direction: Direction) -> Result<&Link, Error> {
    let of_direction = || links.iter().filter(|link| link.direction == direction);
    of_direction().find(|link| link.peer == peer).ok_or_else(|| Error::NoSuchPeer {
        peer,
        direction,
        peers: of_direction().map(|link| link.peer).collect(),
    })
}

fn check_length(peer: usize, part: &Part, found: usize) -> Result<(), Error> {
    match part.bytes {
        expected if found != expected => Err(Error::MessageLength { peer, expected, found }),
        _ => Ok(()),
    }
}

fn addresses(message: &[u8]) -> Range<usize> {
    let first = message.as_ptr().addr();
    first..first + message.len()
}

/// Refuses a message within the fields that it is copied from or to.
fn check_apart(peer: usize, set: &Set, message: &Range<usize>) -> Result<(), Error> {
    let mut fields = set.local.fields.iter().zip(&set.bases);
    let shares = fields.position(|(field, base)| {
        let span = field.layout.span();
        let [first, end] = [span.start, span.end].map(|offset| base.addr().wrapping_add_signed(offset));
        first.max(message.start) < end.min(message.end)
    });
    shares.map_or(Ok(()), |field| Err(Error::MessageInField { peer, field }))
}
