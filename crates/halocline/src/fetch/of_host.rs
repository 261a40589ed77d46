//! Fetches from fields in memory of the host.

use super::{Fetch, Messages, Peers};
use crate::bind::{self, Via};
use crate::bound::Bound;
use crate::error::Error;
use crate::link::as_sources;
use crate::reduce::{Contribution, Reverse};
use crate::set::Set;
use halocline_device::host::{self, Combine, Source};
use halocline_plan::ReduceOp;
use halocline_plan::copy::CopyOp;

/// Its fields are in flight as long as it exists.
pub(super) struct OfHost<'a> {
    set: &'a Set,
    op: ReduceOp,
    reverse: Reverse,
    peers: Peers,
    /// The rank at the other end of each link.
    ranks: Vec<usize>,
}

impl<'a> OfHost<'a> {
    /// Checks everything, and takes the fields.
    pub(super) fn new(bound: &Bound, set: &'a Set, op: ReduceOp) -> Result<Self, Error> {
        let reverse = bind::reverse(set, &bound.links, Via::Messages)?;
        reverse.check(op)?;
        set.local.check_reduction(op)?;
        let epoch = bound.epoch();
        match bound.final_outcome(epoch) {
            Some(outcome) => outcome?,
            None => return Err(Error::InFlight { epoch }),
        }
        let ranks = bound.links.iter().map(|link| link.peer).collect();
        let peers = Peers::new(set, &bound.links);
        set.local.begin_flight()?;
        Ok(Self { set, op, reverse, peers, ranks })
    }
}

impl Fetch for OfHost<'_> {
    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn pack(&self) -> Result<Vec<Vec<u8>>, Error> {
        let pack = |owner: &super::Peer| {
            let mut message = vec![0; owner.bytes];
            // SAFETY: `bind::reverse` has checked the operations against the fields, whose memory the set holds, and they fill a message
            // of this length. `begin_flight` keeps exchanges and guards away from the fields.
            unsafe {
                host::copy(
                    self.reverse.packs(owner.part),
                    as_sources(&self.set.bases),
                    &[message.as_mut_ptr()],
                );
            }
            message
        };
        Ok(self.peers.owners.iter().map(pack).collect())
    }

    fn combine(&self, messages: &mut Messages) -> Result<(), Error> {
        for Contribution { link, op: copy } in &self.reverse.contributions {
            let Some(combine) = Combine::of(self.op, copy.element, Source::Fetch) else { continue };
            let source = match link {
                None => self.set.bases[copy.source],
                Some(link) => match messages.get_mut(&self.ranks[*link]) {
                    Some(message) => message.as_mut_ptr(),
                    // Each link that sends leads to one of the contributors.
                    None => continue,
                },
            };
            // SAFETY: `bind::reverse` has checked the operations against the fields, whose memory the set holds. The message has the
            // length of the link's, and this thread alone knows it. `begin_flight` keeps exchanges and guards away from the fields.
            unsafe { combine.run(copy, source, self.set.bases[copy.target]) };
        }
        Ok(())
    }

    fn unpack(&self, messages: &Messages) -> Result<(), Error> {
        for owner in &self.peers.owners {
            let ops: Vec<CopyOp> = self.reverse.packs(owner.part).iter().map(CopyOp::reversed).collect();
            // SAFETY: these operations read what those of `pack` write, from a message of that length, and write what those read.
            // `begin_flight` keeps exchanges and guards away from the fields.
            unsafe { host::copy(&ops, &[messages[&owner.rank].as_ptr()], &self.set.bases) };
        }
        Ok(())
    }
}

impl Drop for OfHost<'_> {
    fn drop(&mut self) {
        self.set.local.end_flight();
    }
}
