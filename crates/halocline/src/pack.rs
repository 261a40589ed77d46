//! For those who send by themselves: the message of an exchange, packed into their buffers and unpacked from
//! them.

use crate::bind;
use crate::error::Error;
use crate::exchange::HaloExchange;
use crate::link::{Direction, Link, Way, as_sources};
use crate::set::{Part, Set};
use halocline_device::host;
use halocline_plan::copy::CopyOp;

impl HaloExchange {
    /// Bytes of the message that an exchange sends to a peer, or receives from it: the length of the buffers of
    /// [`HaloExchange::pack`] and [`HaloExchange::unpack`]. Local, never blocks. Fails with [`Error::OfDevices`], [`Error::NoSuchPeer`].
    pub fn message_bytes(&self, peer: usize, direction: Direction) -> Result<usize, Error> {
        Ok(self.part_of(peer, direction)?.1.bytes)
    }

    /// Packs the owned cells that `peer` needs into a message, for those who send it by themselves. No exchange
    /// is begun. Of an object with several sets it packs the first ([`HaloExchange::alternative`]).
    ///
    /// The bytes: one transfer after the other, as the pattern lists them ([`crate::plan::Pattern::peers`]),
    /// for the first field of each domain, then for the second, and so on; patterns in the order in which they
    /// were made. Within a transfer the bytes of the cells, without gaps, in the order of this rank's memory,
    /// downward strides turned upwards. Two boxes of one shape and of short blocks (opposite faces) go block by
    /// block in turn; whether they do depends on the layouts at both ends, so that a message is for the peer's
    /// [`HaloExchange::unpack`] of the same object.
    ///
    /// Fails with [`Error::OfDevices`], [`Error::NoSuchPeer`], [`Error::MessageLength`], and as [`HaloExchange::exchange`] does: while
    /// an exchange is in flight, or a guard of one of the arrays is held. Host memory only; never blocks.
    pub fn pack(&self, peer: usize, message: &mut [u8]) -> Result<(), Error> {
        self.copied(peer, Direction::Send, message.len(), |set, ops| {
            // SAFETY: the operations were checked against the fields, and fill a message of the part's length;
            // the fields are taken, so that no exchange and no guard touches them.
            unsafe { host::copy(ops, as_sources(&set.bases), &[message.as_mut_ptr()]) };
        })
    }

    /// Unpacks what `peer` has packed with the same object into this rank's halo. As [`HaloExchange::pack`].
    pub fn unpack(&self, peer: usize, message: &[u8]) -> Result<(), Error> {
        self.copied(peer, Direction::Receive, message.len(), |set, ops| {
            // SAFETY: as in `pack`.
            unsafe { host::copy(ops, &[message.as_ptr()], &set.bases) };
        })
    }

    /// Calls `copy` with the operations between the fields of the first set, which are taken meanwhile, and a
    /// message.
    fn copied(
        &self,
        peer: usize,
        direction: Direction,
        found: usize,
        copy: impl FnOnce(&Set, &[CopyOp]),
    ) -> Result<(), Error> {
        let (link, part) = self.part_of(peer, direction)?;
        if found != part.bytes {
            return Err(Error::MessageLength { peer, expected: part.bytes, found });
        }
        let set = self.set(0)?;
        let ops = match link.way {
            Way::Mailbox { .. } | Way::Message => &part.ops,
            Way::Push | Way::Pull => match part.packing.get() {
                Some(ops) => ops,
                None => {
                    let ops = bind::packing(set, peer, direction)?;
                    part.packing.get_or_init(|| ops)
                }
            },
        };
        let epoch = self.bound().epoch();
        match self.bound().outcome(epoch) {
            Some(outcome) => outcome?,
            None => return Err(Error::InFlight { epoch }),
        }
        set.local.begin_flight()?;
        copy(set, ops);
        set.local.end_flight();
        Ok(())
    }

    fn part_of(&self, peer: usize, direction: Direction) -> Result<(&Link, &Part), Error> {
        if self.is_of_devices() {
            return Err(Error::OfDevices {
                what: "packed into or unpacked from messages of the host",
                instead: "let it exchange, or bind the host fields by themselves",
            });
        }
        let mut links = self.bound().links.iter();
        match links.find(|link| (link.peer, link.direction) == (peer, direction)) {
            Some(link) => Ok((link, &self.set(0)?.parts[link.part])),
            None => {
                let of = |link: &&Link| link.direction == direction;
                let peers = self.bound().links.iter().filter(of).map(|link| link.peer).collect();
                Err(Error::NoSuchPeer { peer, direction, peers })
            }
        }
    }
}
