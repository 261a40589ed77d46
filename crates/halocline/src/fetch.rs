//! Fetches of owned values, each before its halo cell is combined with it.
//!
//! It serves set-up steps, such as numbers that no two ranks have. So it takes messages on all paths: the halo goes to the owners, who
//! exchange each of its values for the owned one of before, and send it back.

use crate::agree::agree_on;
use crate::bind::{self, Via};
use crate::error::{Error, ReduceError};
use crate::exchange::HaloExchange;
use crate::link::{Direction, as_sources};
use crate::reduce::{Contribution, Reverse};
use crate::set::Set;
use halocline_comm::Communicator;
use halocline_device::host::{self, Combine, Source};
use halocline_plan::ReduceOp;
use halocline_plan::copy::CopyOp;
use std::collections::BTreeMap;

/// Messages by peer.
type Messages = BTreeMap<usize, Vec<u8>>;

impl HaloExchange {
    /// Combines halo cells with the owned cells that they copy, as [`HaloExchange::reduce`] does, and gives each halo cell the value that
    /// its owned cell had just before that. The halo cells of an owned cell follow in the order of their domains' numbers.
    ///
    /// With counts in the halo and 0 in the owned cells, a sum gives each halo cell the first of as many numbers that no other domain
    /// gets, and each owned cell the count of all. Of an object with several sets it takes the first; [`HaloExchange::alternative`] chooses
    /// another.
    ///
    /// Collective, blocks. It is meant for a program's start: the halo goes to the owners and back in messages, whatever the links are.
    /// What one rank refuses, all refuse, and no cell changes: the errors of [`HaloExchange::reduce`], [`Error::InFlight`] while an
    /// exchange of the object is in flight, and operations that differ between ranks. If the communicator fails meanwhile, some cells
    /// have changed and others have not.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, HaloExchange, ReduceOp, RegularGrid};
    ///
    /// let comm = Communicator::single();
    /// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
    /// let counts = Array::<i64>::zeros(&comm, &[5])?;
    /// // The left halo cell asks for 2 numbers of the last cell, the right one for 4 of the first.
    /// counts.write()?.copy_from_slice(&[2, 10, 20, 30, 4]);
    /// HaloExchange::bind(&comm, [(&pattern, &counts)])?.fetch_and_op(ReduceOp::Sum)?;
    /// assert_eq!(counts.read()?[..], [30, 14, 20, 32, 10]);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn fetch_and_op(&self, op: ReduceOp) -> Result<(), Error> {
        self.fetch_and_op_if(Ok(op))
    }

    /// As [`HaloExchange::fetch_and_op`], where a rank may bring an error instead of an operation: all ranks return it.
    #[doc(hidden)]
    pub fn fetch_and_op_if(&self, op: Result<ReduceOp, Error>) -> Result<(), Error> {
        let comm = &self.bound().life.comm.within("fetch_and_op");
        let prepared = op.and_then(|op| {
            let fetch = self.prepare_fetch(op)?;
            Ok(((fetch, op), vec![op.code(), u64::MAX - op.code()]))
        });
        let ((fetch, op), codes) = agree_on(comm, prepared, 2)?;
        let [least, greatest] = [codes[0], u64::MAX - codes[1]].map(ReduceOp::from_code);
        if let (Some(least), Some(greatest)) = (least, greatest)
            && least != greatest
        {
            return Err(ReduceError::Operations { ops: [least, greatest] }.into());
        }
        fetch.run(comm, op)
    }

    /// Checks everything, and takes the fields.
    fn prepare_fetch(&self, op: ReduceOp) -> Result<Fetch<'_>, Error> {
        if self.is_of_devices() {
            let instead = "copy its fields to host memory and bind those";
            return Err(Error::OfDevices { what: "fetched from", instead });
        }
        let (set, bound) = (self.set(0)?, self.bound());
        let reverse = bind::reverse(set, &bound.links, Via::Messages)?;
        reverse.check(op)?;
        set.local.check_reduction(op)?;
        let epoch = bound.epoch();
        match bound.final_outcome(epoch) {
            Some(outcome) => outcome?,
            None => return Err(Error::InFlight { epoch }),
        }
        let peers = |direction| {
            let links = bound.links.iter().filter(move |link| link.direction == direction);
            links.map(|link| Peer { rank: link.peer, part: link.part, bytes: set.parts[link.part].bytes })
        };
        let (owners, contributors) = (peers(Direction::Receive).collect(), peers(Direction::Send).collect());
        let ranks = bound.links.iter().map(|link| link.peer).collect();
        set.local.begin_flight()?;
        Ok(Fetch { set, reverse, owners, contributors, ranks })
    }
}

/// A rank at the other end of a link.
struct Peer {
    rank: usize,
    /// Of the link.
    part: usize,
    /// Of the link's message.
    bytes: usize,
}

/// A fetch. Its fields are in flight as long as it exists.
struct Fetch<'a> {
    set: &'a Set,
    reverse: Reverse,
    /// The owners of this rank's halo cells.
    owners: Vec<Peer>,
    /// Ranks with halo cells that this rank owns.
    contributors: Vec<Peer>,
    /// The rank at the other end of each link.
    ranks: Vec<usize>,
}

impl Fetch<'_> {
    fn run(&self, comm: &Communicator, op: ReduceOp) -> Result<(), Error> {
        let mut contributions: Messages = comm.sparse_exchange(self.pack())?.into_iter().collect();
        let combined = self.combine(op, &mut contributions);
        // Others wait for it whatever this rank has found.
        let fetched: Messages =
            comm.sparse_exchange(contributions.into_iter().collect())?.into_iter().collect();
        combined.and_then(|()| self.unpack(&fetched))
    }

    /// The halo cells for each of their owners.
    fn pack(&self) -> Vec<(usize, Vec<u8>)> {
        let pack = |owner: &Peer| {
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
            (owner.rank, message)
        };
        self.owners.iter().map(pack).collect()
    }

    /// Combines the messages of other ranks, and halo cells of this rank, with owned cells. Each contribution gets the
    /// owned cell's previous value.
    fn combine(&self, op: ReduceOp, messages: &mut Messages) -> Result<(), Error> {
        check_lengths(&self.contributors, messages)?;
        for Contribution { link, op: copy } in &self.reverse.contributions {
            let Some(combine) = Combine::of(op, copy.element, Source::Fetch) else { continue };
            let source = match link {
                None => self.set.bases[copy.source],
                Some(link) => match messages.get_mut(&self.ranks[*link]) {
                    Some(message) => message.as_mut_ptr(),
                    // Each link that sends leads to one of `contributors`.
                    None => continue,
                },
            };
            // SAFETY: `bind::reverse` has checked the operations against the fields, whose memory the set holds. The message has the
            // length of the link's, and this thread alone knows it. `begin_flight` keeps exchanges and guards away from the fields.
            unsafe { combine.run(copy, source, self.set.bases[copy.target]) };
        }
        Ok(())
    }

    /// Stores the values that owners have sent back.
    fn unpack(&self, messages: &Messages) -> Result<(), Error> {
        check_lengths(&self.owners, messages)?;
        for owner in &self.owners {
            let ops: Vec<CopyOp> = self.reverse.packs(owner.part).iter().map(CopyOp::reversed).collect();
            // SAFETY: these operations read what those of `pack` write, from a message of that length, and write what those read.
            // `begin_flight` keeps exchanges and guards away from the fields.
            unsafe { host::copy(&ops, &[messages[&owner.rank].as_ptr()], &self.set.bases) };
        }
        Ok(())
    }
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        self.set.local.end_flight();
    }
}

/// Refuses messages that are not as long as those of the links.
fn check_lengths(peers: &[Peer], messages: &Messages) -> Result<(), Error> {
    let found = |peer: &Peer| messages.get(&peer.rank).map_or(0, Vec::len);
    match peers.iter().find(|peer| !messages.contains_key(&peer.rank) || found(peer) != peer.bytes) {
        None => Ok(()),
        Some(peer) => Err(Error::MessageLength { peer: peer.rank, expected: peer.bytes, found: found(peer) }),
    }
}
