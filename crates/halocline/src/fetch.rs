//! Fetches of owned values, each before its halo cell is combined with it.
//!
//! It serves set-up steps, such as numbers that no two ranks have. So it takes messages on all paths: the halo goes to the owners, who
//! exchange each of its values for the owned one of before, and send it back. Host fields and device fields of an object do so one after
//! the other.

mod of_devices;
mod of_host;

use crate::agree::agree_on;
use crate::error::{Error, ReduceError};
use crate::exchange::HaloExchange;
use crate::link::{Direction, Link};
use crate::set::Set;
use halocline_comm::Communicator;
use halocline_plan::ReduceOp;
use of_devices::OfDevices;
use of_host::OfHost;
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
    /// Collective, blocks. It is meant for a program's start: the halo goes to the owners and back in messages of the host, whatever the
    /// links are. Device fields are read after all earlier work of the producer streams ([`BindOptions::streams`](crate::BindOptions::streams)),
    /// which the call waits for, and combined on their devices.
    ///
    /// What one rank refuses, all refuse, and no cell changes: [`Error::Reduce`] for an operation that elements do not have and for fields
    /// that share owned cells, [`Error::InFlight`] while an exchange of the object is in flight, [`Error::Shared`] and [`Error::Borrowed`]
    /// for a field in use, [`Error::Device`], and operations that differ between ranks. If the communicator or a device fails meanwhile,
    /// some cells have changed and others have not.
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
            let fetches = self.prepare_fetch(op)?;
            Ok((fetches, vec![op.code(), u64::MAX - op.code()]))
        });
        let ((of_host, of_devices), codes) = agree_on(comm, prepared, 2)?;
        let [least, greatest] = [codes[0], u64::MAX - codes[1]].map(ReduceOp::from_code);
        if let (Some(least), Some(greatest)) = (least, greatest)
            && least != greatest
        {
            return Err(ReduceError::Operations { ops: [least, greatest] }.into());
        }
        // Others wait for both, whatever this rank finds.
        let ended = run(&of_host, comm);
        ended.and(of_devices.map_or(Ok(()), |of_devices| run(&of_devices, comm)))
    }

    /// Checks everything, and takes the fields.
    fn prepare_fetch(&self, op: ReduceOp) -> Result<(OfHost<'_>, Option<OfDevices<'_>>), Error> {
        let (set, bound) = (self.set(0)?, self.bound());
        // After the streams of device fields, whose exchanges may be over then.
        let of_devices = self.scheduled.as_ref();
        let of_devices = of_devices.map(|scheduled| OfDevices::new(scheduled, set.number, op)).transpose()?;
        Ok((OfHost::new(bound, set, op)?, of_devices))
    }
}

/// A fetch from the fields of one memory, which are taken as long as it exists.
trait Fetch {
    fn peers(&self) -> &Peers;

    /// The halo cells for each of their owners, in the order of [`Peers::owners`].
    fn pack(&self) -> Result<Vec<Vec<u8>>, Error>;

    /// Combines the messages of other ranks, and halo cells of this rank, with owned cells. Each contribution gets the owned cell's previous
    /// value. The messages are those of [`Peers::contributors`], as long as those say.
    fn combine(&self, messages: &mut Messages) -> Result<(), Error>;

    /// Stores the values that owners have sent back, which are as long as [`Peers::owners`] says.
    fn unpack(&self, messages: &Messages) -> Result<(), Error>;
}

/// The ranks that a fetch exchanges messages with.
struct Peers {
    /// The owners of this rank's halo cells.
    owners: Vec<Peer>,
    /// Ranks with halo cells that this rank owns.
    contributors: Vec<Peer>,
}

/// A rank at the other end of a link.
struct Peer {
    rank: usize,
    /// Of the link.
    part: usize,
    /// Of the link's message.
    bytes: usize,
}

impl Peers {
    fn new(set: &Set, links: &[Link]) -> Self {
        let peers = |direction| {
            let links = links.iter().filter(move |link| link.direction == direction);
            links.map(|link| Peer { rank: link.peer, part: link.part, bytes: set.parts[link.part].bytes })
        };
        let (owners, contributors) = (peers(Direction::Receive).collect(), peers(Direction::Send).collect());
        Self { owners, contributors }
    }
}

fn run(fetch: &impl Fetch, comm: &Communicator) -> Result<(), Error> {
    let Peers { owners, contributors } = fetch.peers();
    // An owner that gets no bytes refuses the message.
    let (packed, failed) = match fetch.pack() {
        Ok(packed) => (packed, None),
        Err(error) => (owners.iter().map(|_| Vec::new()).collect(), Some(error)),
    };
    let packed = owners.iter().map(|owner| owner.rank).zip(packed).collect();
    let mut contributions: Messages = comm.sparse_exchange(packed)?.into_iter().collect();
    let combined =
        check_lengths(contributors, &contributions).and_then(|()| fetch.combine(&mut contributions));
    // Others wait for it whatever this rank has found.
    let fetched: Messages = comm.sparse_exchange(contributions.into_iter().collect())?.into_iter().collect();
    failed.map_or(combined, Err)?;
    check_lengths(owners, &fetched)?;
    fetch.unpack(&fetched)
}

/// Refuses messages that are not as long as those of the links.
fn check_lengths(peers: &[Peer], messages: &Messages) -> Result<(), Error> {
    let found = |peer: &Peer| messages.get(&peer.rank).map_or(0, Vec::len);
    match peers.iter().find(|peer| !messages.contains_key(&peer.rank) || found(peer) != peer.bytes) {
        None => Ok(()),
        Some(peer) => Err(Error::MessageLength { peer: peer.rank, expected: peer.bytes, found: found(peer) }),
    }
}
