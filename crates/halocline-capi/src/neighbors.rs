//! Packets between neighbours on a line or a ring: single rounds.

use crate::call::{call, call_for, callback};
use crate::comm::Comm;
use crate::memory_resource::{Resource, resource};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr, OutStruct};
use crate::packet::{PacketOptions, PacketStatistics, of_comm, of_packet, packets};
use crate::pointer::{CheckedOut, OutPtr, text};
use crate::status::{Refusal, Status};
use halocline::Packet;
use halocline::neighbors::{NeighborError, NeighborExchange, NeighborStatistics, Round, Sides, Topology};
use std::ffi::{CString, c_char, c_void};

/// The refusal for an error of a neighbour exchange.
pub(crate) fn of_neighbor(error: NeighborError) -> Refusal {
    use NeighborError as E;
    let status = match &error {
        E::Packet(packet) => return of_packet(packet),
        E::Comm(comm) => return of_comm(comm),
        // No wait makes a result come back that was taken.
        E::NoNeighbor { .. }
        | E::NotStarted { .. }
        | E::Taken { .. }
        | E::Finished { .. }
        | E::Metadata { .. } => Status::ARGUMENT,
        E::Busy { .. } | E::Ending { .. } | E::InFlight { .. } => Status::BUSY,
        E::Deadline { .. } => Status::DEADLINE,
        E::RefusedElsewhere { .. } => Status::ELSEWHERE,
        _ => Status::FAILED,
    };
    Refusal::new(status, error.to_string())
}

/// A callback of the program that receives the outcome of an operation.
pub(crate) type Done = Option<unsafe extern "C" fn(*mut c_void, Status, *const c_char)>;

/// Calls a callback of the program with an outcome.
///
/// # Safety
/// The result may be called once, by any thread: `done` may be called with `context` then.
pub(crate) unsafe fn teller(
    done: Done,
    context: *mut c_void,
) -> Result<impl FnOnce(Result<(), Refusal>) + Send + 'static, Refusal> {
    let done = done.ok_or_else(|| Refusal::argument("the callback is NULL; pass a function"))?;
    let context = context.expose_provenance();
    Ok(move |outcome: Result<(), Refusal>| {
        let (status, message) = match outcome {
            Ok(()) => (Status::OK, String::new()),
            Err(refusal) => (refusal.status, refusal.message),
        };
        let message = CString::new(message).unwrap_or_default();
        let context = std::ptr::with_exposed_provenance_mut(context);
        // SAFETY: the caller of `teller` promises that the function may be called once with the context, by any thread.
        callback(|| unsafe { done(context, status, message.as_ptr()) });
    })
}

/// The ranks as a line or a ring.
#[unsafe(no_mangle)]
extern "C" fn halocline_neighbors_create(
    comm: Handle<Comm>,
    ring: i32,
    memory: Handle<Resource>,
    neighbors: OutPtr<'_, Handle<NeighborExchange>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = (|| {
            let out = neighbors.checked("neighbors")?;
            let topology = if options::flag(ring, "ring")? { Topology::Ring } else { Topology::Line };
            Ok((out, topology, resource(memory, &comm.comm)?))
        })();
        let (out, topology, memory) =
            parsed.inspect_err(|refusal: &Refusal| NeighborExchange::refuse(&comm.comm, &refusal.message))?;
        let made = NeighborExchange::new(&comm.comm, topology, memory);
        out.set(Handle::new(made.map_err(of_neighbor)?)?);
        Ok(())
    })
}

/// The ranks of the neighbours.
#[unsafe(no_mangle)]
extern "C" fn halocline_neighbors_ranks(
    neighbors: Handle<NeighborExchange>,
    left: OutPtr<'_, i64>,
    right: OutPtr<'_, i64>,
) -> Status {
    call(|| {
        let (left, right) = (left.checked("left")?, right.checked("right")?);
        let ranks = neighbors.pin()?.neighbors().map(|rank| rank.map_or(-1, |rank| rank as i64));
        left.set(ranks.left);
        right.set(ranks.right);
        Ok(())
    })
}

/// What was sent and received so far.
#[unsafe(no_mangle)]
extern "C" fn halocline_neighbors_statistics(
    neighbors: Handle<NeighborExchange>,
    statistics: OutStruct<'_, PacketStatistics>,
) -> Status {
    let describe = || {
        let NeighborStatistics { rounds, sent, received } = neighbors.pin()?.statistics();
        let (sent, received) = (sent.into(), received.into());
        Ok(PacketStatistics { rounds, sent, received, ..PacketStatistics::defaults() })
    };
    call(|| options::store(statistics, describe))
}

/// Starts a round.
#[unsafe(no_mangle)]
extern "C" fn halocline_neighbors_start(
    neighbors: Handle<NeighborExchange>,
    id: u32,
    left: OptionsPtr<'_, PacketOptions>,
    right: OptionsPtr<'_, PacketOptions>,
    round: OutPtr<'_, Handle<Round>>,
) -> Status {
    call(|| {
        let [left, right] = packets(&left, &right)?;
        let out = round.checked("round")?;
        let started = neighbors.pin()?.start(id, Sides { left, right }).map_err(of_neighbor)?;
        out.set(Handle::new(started)?);
        Ok(())
    })
}

/// Where a call stores what came from both sides.
pub(crate) struct Came<'a> {
    left: CheckedOut<'a, Handle<Packet>>,
    right: CheckedOut<'a, Handle<Packet>>,
}

impl<'a> Came<'a> {
    pub(crate) fn new(
        left: OutPtr<'a, Handle<Packet>>,
        right: OutPtr<'a, Handle<Packet>>,
    ) -> Result<Self, Refusal> {
        Ok(Self { left: left.checked("from_left")?, right: right.checked("from_right")? })
    }

    pub(crate) fn set(self, packets: Sides<Option<Packet>>) -> Result<(), Refusal> {
        self.left.set(Handle::of_option(packets.left)?);
        self.right.set(Handle::of_option(packets.right)?);
        Ok(())
    }
}

/// Starts a round and waits for it.
#[unsafe(no_mangle)]
extern "C" fn halocline_neighbors_exchange(
    neighbors: Handle<NeighborExchange>,
    id: u32,
    left: OptionsPtr<'_, PacketOptions>,
    right: OptionsPtr<'_, PacketOptions>,
    from_left: OutPtr<'_, Handle<Packet>>,
    from_right: OutPtr<'_, Handle<Packet>>,
) -> Status {
    call(|| {
        let [left, right] = packets(&left, &right)?;
        let out = Came::new(from_left, from_right)?;
        out.set(neighbors.pin()?.exchange(id, Sides { left, right }).map_err(of_neighbor)?)
    })
}

/// Gives up.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_neighbors_abort(
    neighbors: Handle<NeighborExchange>,
    why: *const c_char,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or a string with a closing zero.
        let why = unsafe { text(why, "why") }?;
        neighbors.pin()?.abort(why);
        Ok(())
    })
}

/// Waits for a round and takes what came.
#[unsafe(no_mangle)]
extern "C" fn halocline_round_wait(
    round: Handle<Round>,
    from_left: OutPtr<'_, Handle<Packet>>,
    from_right: OutPtr<'_, Handle<Packet>>,
) -> Status {
    call(|| {
        let out = Came::new(from_left, from_right)?;
        let round = round.pin()?;
        round.wait_until_complete().map_err(of_neighbor)?;
        out.set(round.take().map_err(of_neighbor)?)
    })
}

/// Whether a round is over.
#[unsafe(no_mangle)]
extern "C" fn halocline_round_is_complete(round: Handle<Round>, complete: OutPtr<'_, i32>) -> Status {
    call_for(complete, "complete", || Ok(i32::from(round.pin()?.is_complete().map_err(of_neighbor)?)))
}

/// Calls a function when a round is over.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_round_on_completion(
    round: Handle<Round>,
    done: Done,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the header asks for a function that any thread may call once with the context.
        let tell = unsafe { teller(done, context) }?;
        round.pin()?.on_completion(move |outcome| tell(outcome.map_err(of_neighbor)));
        Ok(())
    })
}
