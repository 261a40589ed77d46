//! Communicators.

use crate::call::{call, call_for};
use crate::collective::{collective, collective_for};
use crate::log;
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr, OutStruct};
use crate::pointer::{OutPtr, array, array_mut, fill, text};
use crate::status::{Refusal, Status};
use halocline::comm::mappings::Mappings;
use halocline::comm::mpi;
use halocline::{CommError, Communicator, Reduce};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A communicator of C.
pub(crate) struct Comm {
    pub(crate) comm: Communicator,
    /// Identifies the ranks: equal for a communicator and its duplicates.
    pub(crate) group: u64,
}

impl Comm {
    /// The first communicator of a group.
    fn first(comm: Communicator) -> Self {
        static GROUPS: AtomicU64 = AtomicU64::new(0);
        Self { comm, group: GROUPS.fetch_add(1, Ordering::Relaxed) }
    }
}

/// `halocline_mpi_options`.
#[repr(C)]
pub(crate) struct MpiOptions {
    pub(crate) size: usize,
    pub(crate) node_aware: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for MpiOptions {
    const FIRST_SIZE: usize = 16;
    const NAME: &'static str = "halocline_mpi_options";
}

/// The communicator of this process.
#[unsafe(no_mangle)]
extern "C" fn halocline_init(comm: OutPtr<'_, Handle<Comm>>) -> Status {
    call_for(comm, "comm", || {
        log::listen()?;
        Handle::new(Comm::first(Communicator::init()?))
    })
}

/// The communicator of this process, by the name of the transport.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_init_by_name(
    transport: *const c_char,
    comm: OutPtr<'_, Handle<Comm>>,
) -> Status {
    call_for(comm, "comm", || {
        // SAFETY: the caller passes null or a string with a closing zero.
        let transport = unsafe { text(transport, "transport") }?;
        log::listen()?;
        Handle::new(Comm::first(Communicator::init_by_name(transport)?))
    })
}

/// Ranks that are threads of this process.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_comm_threads(size: usize, comms: *mut Handle<Comm>) -> Status {
    call(|| {
        if !(1..=MOST_THREADS).contains(&size) {
            return Err(Refusal::argument(format!("size is {size}; ask for 1 to {MOST_THREADS} threads")));
        }
        // SAFETY: the caller passes null or an array of that many handles.
        let places = unsafe { array_mut(comms, size, "comms") }?;
        log::listen()?;
        for (place, comm) in places.iter_mut().zip(Communicator::threads(size)) {
            place.write(Handle::new(Comm::first(comm))?);
        }
        Ok(())
    })
}

/// More threads than a process has.
const MOST_THREADS: usize = 1 << 15;

/// The ranks of an `MPI_Comm`.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_from_mpi(
    mpi_comm: usize,
    mpi_comm_bytes: usize,
    given: OptionsPtr<'_, MpiOptions>,
    comm: OutPtr<'_, Handle<Comm>>,
) -> Status {
    call_for(comm, "comm", || join(mpi::MpiCommHandle::C { value: mpi_comm, bytes: mpi_comm_bytes }, &given))
}

/// The ranks of an `MPI_Fint`.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_from_fortran(
    mpi_comm: i32,
    given: OptionsPtr<'_, MpiOptions>,
    comm: OutPtr<'_, Handle<Comm>>,
) -> Status {
    call_for(comm, "comm", || join(mpi::MpiCommHandle::Fortran(mpi_comm), &given))
}

/// Joins the ranks of a communicator of the program.
fn join(comm: mpi::MpiCommHandle, given: &OptionsPtr<'_, MpiOptions>) -> Result<Handle<Comm>, Refusal> {
    let node_aware = options::switch(given.optional()?.node_aware, "node_aware")?;
    log::listen()?;
    let handle = mpi::communicator(comm).map_err(CommError::from)?;
    // SAFETY: `communicator` has found the handle to be one of the loaded library, and the header forbids to finalise MPI during
    // the call.
    Handle::new(Comm::first(unsafe { Communicator::from_mpi(handle, node_aware) }?))
}

/// A communicator of the same ranks.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_duplicate(comm: Handle<Comm>, duplicate: OutPtr<'_, Handle<Comm>>) -> Status {
    call_for(duplicate, "duplicate", || {
        let comm = comm.pin()?;
        Handle::new(Comm { comm: comm.comm.duplicate()?, group: comm.group })
    })
}

/// Communicators of the ranks with the same color.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_split(
    comm: Handle<Comm>,
    color: i64,
    key: i64,
    part: OutPtr<'_, Handle<Comm>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let wrong = |_| Refusal::argument(format!("color is {color}; give 0 or more, or HALOCLINE_NO_COLOR"));
        let parse = || Ok(if color == -1 { None } else { Some(usize::try_from(color).map_err(wrong)?) });
        collective_for(&comm.comm, "split", (part, "part"), parse, |comm, color| {
            Handle::of_option(comm.split(color, key)?.map(Comm::first))
        })
    })
}

/// The same communicator with a deadline for collective calls.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_with_deadline(
    comm: Handle<Comm>,
    seconds: f64,
    limited: OutPtr<'_, Handle<Comm>>,
) -> Status {
    call_for(limited, "limited", || {
        let (comm, deadline) = (comm.pin()?, deadline(seconds)?);
        Handle::new(Comm { comm: comm.comm.with_deadline(deadline), group: comm.group })
    })
}

/// The deadline of collective calls.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_deadline(comm: Handle<Comm>, seconds: OutPtr<'_, f64>) -> Status {
    call_for(seconds, "seconds", || Ok(comm.pin()?.comm.deadline().map_or(0.0, |limit| limit.as_secs_f64())))
}

/// A deadline in seconds; 0 for none.
pub(crate) fn deadline(seconds: f64) -> Result<Option<Duration>, Refusal> {
    let wrong = || {
        Refusal::argument(format!(
            "the deadline is {seconds:?} s; give seconds above 0 and below 1e19, or 0 for none"
        ))
    };
    match seconds {
        0.0 => Ok(None),
        _ if seconds > 0.0 => Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// This rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_rank(comm: Handle<Comm>, rank: OutPtr<'_, usize>) -> Status {
    call_for(rank, "rank", || Ok(comm.pin()?.comm.rank()))
}

/// The number of ranks.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_size(comm: Handle<Comm>, size: OutPtr<'_, usize>) -> Status {
    call_for(size, "size", || Ok(comm.pin()?.comm.size()))
}

/// The name of the transport.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_transport(comm: Handle<Comm>, name: OutPtr<'_, *const c_char>) -> Status {
    call_for(name, "name", || {
        let name = match comm.pin()?.comm.transport() {
            "thread" => c"thread",
            "shm" => c"shm",
            "mpi" => c"mpi",
            _ => c"other",
        };
        Ok(name.as_ptr())
    })
}

/// `halocline_mapping_statistics`.
#[repr(C)]
pub(crate) struct MappingStatistics {
    pub(crate) size: usize,
    pub(crate) hits: u64,
    pub(crate) opens: u64,
    pub(crate) evictions: u64,
    pub(crate) staged: u64,
    pub(crate) entries: u64,
    pub(crate) pinned: u64,
    pub(crate) bytes_held: u64,
    pub(crate) mapped: u64,
    pub(crate) bytes_mapped: u64,
    pub(crate) messages: u64,
    pub(crate) malformed: u64,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for MappingStatistics {
    const FIRST_SIZE: usize = 96;
    const NAME: &'static str = "halocline_mapping_statistics";
}

/// Statistics of the mappings of this rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_mappings(
    comm: Handle<Comm>,
    statistics: OutStruct<'_, MappingStatistics>,
) -> Status {
    let describe = || {
        let found = Mappings::of(&comm.pin()?.comm).stats();
        Ok(MappingStatistics {
            hits: found.hits,
            opens: found.opens,
            evictions: found.evictions,
            staged: found.staged,
            entries: found.entries as u64,
            pinned: found.pinned as u64,
            bytes_held: found.bytes_held,
            mapped: found.mapped as u64,
            bytes_mapped: found.bytes_mapped,
            messages: found.messages,
            malformed: found.malformed,
            ..MappingStatistics::defaults()
        })
    };
    call(|| options::store(statistics, describe))
}

/// Makes all ranks fail if one fails.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_comm_agree(comm: Handle<Comm>, error: *const c_char) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parsed = if error.is_null() {
            Ok(())
        } else {
            // SAFETY: the caller passes null or a string with a closing zero.
            let message = unsafe { text(error, "error") };
            Err(match message {
                Ok("") => {
                    Refusal::argument("error is empty; say what has failed, or pass NULL if nothing has")
                }
                // The words of the program, whatever they mention.
                Ok(message) => Refusal { status: Status::ARGUMENT, message: message.to_owned() },
                Err(refusal) => refusal,
            })
        };
        collective(&comm.comm, "agree", parsed, |_, ()| Ok(()))
    })
}

/// Returns once all ranks have called it.
#[unsafe(no_mangle)]
extern "C" fn halocline_comm_barrier(comm: Handle<Comm>) -> Status {
    call(|| Ok(comm.pin()?.comm.barrier()?))
}

/// Bytes of one rank for all.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_comm_broadcast(
    comm: Handle<Comm>,
    root: usize,
    data: *mut c_void,
    bytes: usize,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        // SAFETY: the caller passes null or memory of that many bytes.
        let parsed = unsafe { array_mut(data.cast::<u8>(), bytes, "data") };
        collective(&comm.comm, "broadcast", parsed, |comm, data| {
            Ok(comm.broadcast_bytes(root, initialised(data))?)
        })
    })
}

/// Bytes of every rank for all.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_comm_all_gather(
    comm: Handle<Comm>,
    data: *const c_void,
    bytes: usize,
    gathered: *mut c_void,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let all = bytes.saturating_mul(comm.comm.size());
        // SAFETY: the caller passes null or memory of that many bytes.
        let data = unsafe { array(data.cast::<u8>(), bytes, "data") };
        // SAFETY: the caller passes null or memory of that many bytes for each rank.
        let parsed =
            data.and_then(|data| Ok((data, unsafe { array_mut(gathered.cast::<u8>(), all, "gathered") }?)));
        collective(&comm.comm, "all_gather", parsed, |comm, (data, gathered)| {
            let parts = comm.all_gather(data)?;
            if let Some(rank) = parts.iter().position(|part| part.len() != bytes) {
                return Err(Refusal::argument(format!(
                    "rank {rank} gives {} bytes, this rank {bytes}; pass the same number on all ranks",
                    parts[rank].len()
                )));
            }
            fill(gathered, parts.concat());
            Ok(())
        })
    })
}

/// The bytes of an array of C.
fn initialised(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    // SAFETY: the memory belongs to C, which has no memory without a value: the header asks for bytes to send here.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Combines numbers of all ranks, in place.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_comm_all_reduce(
    comm: Handle<Comm>,
    values: *mut c_void,
    count: usize,
    element: i32,
    operation: i32,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let operations = [Reduce::Sum, Reduce::Min, Reduce::Max];
        let remedy = "pass HALOCLINE_SUM, HALOCLINE_MIN or HALOCLINE_MAX";
        let op = options::choice(operation, operations, "operation", remedy);
        macro_rules! reduce {
            ($number:ty) => {{
                // SAFETY: the caller passes null or an array of that many numbers of the element type.
                let values = unsafe { array_mut(values.cast::<$number>(), count, "values") };
                let parsed = values.and_then(|values| Ok((values, op?)));
                collective(&comm.comm, "all_reduce", parsed, |comm, (values, op)| {
                    // SAFETY: the header asks for numbers here, and all bytes are a number.
                    let read = |value: &MaybeUninit<$number>| unsafe { value.assume_init_read() };
                    let own: Vec<$number> = values.iter().map(read).collect();
                    fill(values, comm.all_reduce(own, op)?);
                    Ok(())
                })
            }};
        }
        match element {
            8 => reduce!(i32),
            9 => reduce!(u32),
            10 => reduce!(f32),
            11 => reduce!(i64),
            12 => reduce!(u64),
            13 => reduce!(f64),
            other => {
                let refused: Result<(), _> = Err(Refusal::argument(format!(
                    "element is {other}; numbers of HALOCLINE_I32, _U32, _F32, _I64, _U64 and _F64 can be combined"
                )));
                collective(&comm.comm, "all_reduce", refused, |_, ()| Ok(()))
            }
        }
    })
}
