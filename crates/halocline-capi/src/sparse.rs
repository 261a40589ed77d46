//! The sparse all-to-all of packets.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::memory_resource::{Resource, resource};
use crate::neighbors::{Done, teller};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr, OutStruct};
use crate::packet::{PacketOptions, PacketStatistics, of_comm, of_packet, packet};
use crate::pointer::{Capacity, OutArray, OutPtr, array, checked_array, optional_array, store};
use crate::status::{Refusal, Status};
use halocline::Packet;
use halocline::sparse::{SparseAlltoall, SparseError, SparseStatistics};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// A sparse all-to-all of C.
pub(crate) struct Sparse {
    operation: SparseAlltoall,
    /// Packets that were extracted, whose number C knows, by their source.
    extracted: Mutex<BTreeMap<usize, Vec<Packet>>>,
}

fn of_sparse(error: SparseError) -> Refusal {
    use SparseError as E;
    let status = match &error {
        E::Packet(packet) => return of_packet(packet),
        E::Comm(comm) => return of_comm(comm),
        E::Itself { .. } | E::Duplicate { .. } | E::NoSuchPeer { .. } | E::NotNamed { .. } => {
            Status::ARGUMENT
        }
        E::Finished { .. } | E::NotFinished => Status::ARGUMENT,
        E::NotComplete { .. } => Status::BUSY,
        E::Deadline { .. } => Status::DEADLINE,
        E::RefusedElsewhere { .. } => Status::ELSEWHERE,
        _ => Status::FAILED,
    };
    Refusal::new(status, error.to_string())
}

/// Begins the operation.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_sparse_create(
    comm: Handle<Comm>,
    sources: *const usize,
    source_count: usize,
    destinations: *const usize,
    destination_count: usize,
    memory: Handle<Resource>,
    sparse: OutPtr<'_, Handle<Sparse>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            if sources.is_null() && source_count != 0 {
                return Err(Refusal::argument(format!(
                    "sources is NULL, which asks for their discovery, and source_count is {source_count}; pass 0, or the array"
                )));
            }
            // SAFETY: the caller passes null or an array of that many ranks.
            let sources = unsafe { optional_array(sources, source_count, "sources") }?;
            // SAFETY: the caller passes null or an array of that many ranks.
            let destinations = unsafe { array(destinations, destination_count, "destinations") }?;
            Ok((sources, destinations, resource(memory, &comm.comm)?))
        };
        // Two names, so that ranks that pass sources and ranks that discover theirs make calls that differ.
        let name = if sources.is_null() {
            "sparse_alltoall (discovers sources)"
        } else {
            "sparse_alltoall (given sources)"
        };
        let out = (sparse, "sparse");
        collective_for(&comm.comm, name, out, parse, |comm, (sources, destinations, memory)| {
            let begun = match sources {
                Some(sources) => SparseAlltoall::new(comm, sources, destinations, memory),
                None => SparseAlltoall::discover(comm, destinations, memory),
            };
            Handle::new(Sparse { operation: begun.map_err(of_sparse)?, extracted: Mutex::default() })
        })
    })
}

/// Adds a packet.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_insert(
    sparse: Handle<Sparse>,
    destination: usize,
    given: OptionsPtr<'_, PacketOptions>,
) -> Status {
    call(|| {
        let packet = packet(&given)?.ok_or_else(|| crate::pointer::null("packet"))?;
        sparse.pin()?.operation.insert(destination, packet).map_err(of_sparse)
    })
}

/// This rank inserts no more packets.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_finish(sparse: Handle<Sparse>) -> Status {
    call(|| {
        sparse.pin()?.operation.finish();
        Ok(())
    })
}

/// Waits until all packets are here.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_wait(sparse: Handle<Sparse>) -> Status {
    call(|| sparse.pin()?.operation.wait().map_err(of_sparse))
}

/// Finishes and waits.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_finish_and_wait(sparse: Handle<Sparse>) -> Status {
    call(|| sparse.pin()?.operation.finish_and_wait().map_err(of_sparse))
}

/// Whether a wait would return at once.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_is_complete(sparse: Handle<Sparse>, complete: OutPtr<'_, i32>) -> Status {
    call_for(complete, "complete", || {
        Ok(i32::from(sparse.pin()?.operation.is_complete().map_err(of_sparse)?))
    })
}

/// Calls a function when the operation is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_sparse_on_completion(
    sparse: Handle<Sparse>,
    done: Done,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the header asks for a function that any thread may call once with the context.
        let tell = unsafe { teller(done, context) }?;
        sparse.pin()?.operation.on_completion(move |outcome| tell(outcome.map_err(of_sparse)));
        Ok(())
    })
}

/// The ranks that send to this one.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_sources(
    sparse: Handle<Sparse>,
    sources: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(sparse.pin()?.operation.sources(), (sources, capacity), count, "sources"))
}

/// The ranks to which this one sends.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_destinations(
    sparse: Handle<Sparse>,
    destinations: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(sparse.pin()?.operation.destinations(), (destinations, capacity), count, "destinations"))
}

/// What was sent and received so far.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_statistics(
    sparse: Handle<Sparse>,
    statistics: OutStruct<'_, PacketStatistics>,
) -> Status {
    let describe = || {
        let SparseStatistics { sent, received } = sparse.pin()?.operation.statistics();
        let (sent, received) = (sent.into(), received.into());
        Ok(PacketStatistics { sent, received, ..PacketStatistics::defaults() })
    };
    call(|| options::store(statistics, describe))
}

/// The packets of a source.
#[unsafe(no_mangle)]
extern "C" fn halocline_sparse_extract(
    sparse: Handle<Sparse>,
    source: usize,
    packets: OutArray<'_, Handle<Packet>>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let sparse = sparse.pin()?;
        let mut extracted = sparse.extracted.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = match extracted.entry(source) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(sparse.operation.extract(source).map_err(of_sparse)?),
        };
        // The packets stay if an argument is refused, or if the call stores only their number.
        if let Some(array) = checked_array(of_source.len(), (packets, capacity), count, "packets")? {
            let handles = std::mem::take(of_source).into_iter().map(Handle::new);
            let handles = handles.collect::<Result<Vec<_>, _>>()?;
            array.set(&handles);
        }
        Ok(())
    })
}
