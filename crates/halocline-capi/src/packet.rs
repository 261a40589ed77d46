//! Packets: metadata and a payload, from one rank to another.

use crate::call::call;
use crate::keep_alive::{KeepAlive, Release};
use crate::object::Handle;
use crate::options::{self, Options, OptionsPtr, OutStruct};
use crate::pointer::array;
use crate::status::{Refusal, Status};
use halocline::comm::CommError;
use halocline::device::cuda;
use halocline::neighbors::Traffic;
use halocline::{Buffer, Error, MemoryKind, Packet, PacketError, Stream};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// `halocline_packet`.
#[repr(C)]
pub(crate) struct PacketOptions {
    pub(crate) size: usize,
    pub(crate) metadata: *const c_void,
    pub(crate) metadata_bytes: usize,
    pub(crate) payload: *const c_void,
    pub(crate) payload_bytes: usize,
    pub(crate) release: Release,
    pub(crate) context: *mut c_void,
    pub(crate) stream: Handle<Arc<Stream>>,
    pub(crate) has_payload: i32,
    pub(crate) space: i32,
    pub(crate) device: i32,
    pub(crate) reserved: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers, raw pointers and a function that may be null. The header asks
// for a function of that type or null.
unsafe impl Options for PacketOptions {
    const FIRST_SIZE: usize = 80;
    const NAME: &'static str = "halocline_packet";
}

/// `reserved` of a packet of the Fortran module that was given an array without a size or with gaps.
const UNUSABLE: i32 = 0x464f_5254;

/// The packet that a struct describes; `None` for null. Takes the payload: the program's function is called once, also if
/// this or a later step fails.
pub(crate) fn packet(given: &OptionsPtr<'_, PacketOptions>) -> Result<Option<Packet>, Refusal> {
    if given.is_null() {
        return Ok(None);
    }
    let given = given.required()?;
    // SAFETY: the header asks for a function that any thread may call once with the context.
    let keep = unsafe { KeepAlive::new(given.release, given.context) };
    keep.arm();
    if given.metadata_bytes > Packet::MOST_METADATA {
        return Err(Refusal::argument(format!(
            "the packet has {} bytes of metadata, and {} is the most; send them as its payload",
            given.metadata_bytes,
            Packet::MOST_METADATA
        )));
    }
    // SAFETY: by the contract of `OptionsPtr` and the header, `metadata` is null or has `metadata_bytes` bytes that may be read
    // until the call ends. Any bytes are a `u8`.
    let metadata = unsafe { array(given.metadata.cast::<u8>(), given.metadata_bytes, "metadata") }?.to_vec();
    match given.reserved {
        0 => {}
        UNUSABLE => {
            return Err(Refusal::argument(
                "the metadata or the payload of the packet is an array that is not contiguous, not allocated, or of assumed size; \
                 pass a contiguous array or section with bounds, such as a(1:n), or a copy",
            ));
        }
        _ => {
            return Err(Refusal::argument(
                "reserved of the packet is not 0; initialise the struct with HALOCLINE_PACKET_INIT",
            ));
        }
    }
    if !options::flag(given.has_payload, "has_payload")? {
        let is_empty = given.payload.is_null() && given.payload_bytes == 0 && given.stream.number() == 0;
        return match is_empty {
            true => Ok(Some(Packet::new(metadata, None))),
            false => Err(Refusal::argument(
                "the packet has a payload or its stream, and has_payload is 0; set has_payload to 1 to send it, or payload to NULL, \
                 payload_bytes to 0 and leave out the stream",
            )),
        };
    }
    // SAFETY: the header asks for null or memory of `payload_bytes` bytes, which stays valid and unchanged until the program's function is
    // called, when `keep` is dropped.
    let payload = unsafe { payload(&given, keep) }?;
    Ok(Some(Packet::new(metadata, Some(payload))))
}

/// # Safety
/// The payload is null or memory of `payload_bytes` bytes, which stays valid and unchanged until `keep` is dropped.
unsafe fn payload(given: &PacketOptions, keep: KeepAlive) -> Result<Buffer, Refusal> {
    let bytes = given.payload_bytes;
    let buffer = if let Some(ordinal) = options::gpu_of_memory(given.space, given.device, " of the packet")? {
        let device = cuda::device(ordinal)?;
        let address = given.payload.expose_provenance() as u64;
        // SAFETY: the caller promises memory that stays valid and unchanged until `keep` is dropped; the header asks for
        // memory of that GPU.
        unsafe { Buffer::foreign_device(address, bytes, &device, keep) }
    } else {
        // SAFETY: the caller promises null or memory of that many bytes, which stays valid until `keep` is dropped; the buffer takes
        // `keep` after the last use of this slice, whose bytes nothing reads. Any bytes are a `u8`.
        let data = unsafe { array(given.payload.cast::<u8>(), bytes, "payload") }?;
        // SAFETY: the caller promises memory that stays valid and unchanged until `keep` is dropped.
        unsafe { Buffer::foreign(NonNull::from(data).cast(), bytes, keep) }
    };
    match given.stream.number() {
        0 => Ok(buffer),
        // A stream may also write memory of the host.
        _ => Ok(buffer.ready_after(&*given.stream.pin()?)?),
    }
}

/// The packets for both sides. Both structs are read, so that both functions are called.
pub(crate) fn packets(
    left: &OptionsPtr<'_, PacketOptions>,
    right: &OptionsPtr<'_, PacketOptions>,
) -> Result<[Option<Packet>; 2], Refusal> {
    let (left, right) = (packet(left), packet(right));
    Ok([left?, right?])
}

/// `halocline_contents`.
#[repr(C)]
pub(crate) struct Contents {
    pub(crate) size: usize,
    pub(crate) metadata: *const c_void,
    pub(crate) metadata_bytes: usize,
    pub(crate) payload: *const c_void,
    pub(crate) payload_bytes: usize,
    pub(crate) has_payload: i32,
    pub(crate) space: i32,
    pub(crate) device: i32,
    pub(crate) reserved: i32,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers and raw pointers.
unsafe impl Options for Contents {
    const FIRST_SIZE: usize = 56;
    const NAME: &'static str = "halocline_contents";
}

/// The properties of a received packet.
#[unsafe(no_mangle)]
extern "C" fn halocline_packet_describe(
    received: Handle<Packet>,
    contents: OutStruct<'_, Contents>,
) -> Status {
    let describe = || {
        let packet = received.pin()?;
        let mut found = Contents::defaults();
        (found.metadata, found.metadata_bytes) = (packet.metadata.as_ptr().cast(), packet.metadata.len());
        if let Some(payload) = &packet.payload {
            found.has_payload = 1;
            found.payload = std::ptr::with_exposed_provenance(payload.address() as usize);
            found.payload_bytes = payload.len();
            found.space = i32::from(payload.kind() == MemoryKind::Device);
            found.device = payload.device().map_or(0, |device| device.ordinal() as i32);
        }
        Ok(found)
    };
    call(|| options::store(contents, describe))
}

/// Orders later work of a stream after the content of a received packet.
#[unsafe(no_mangle)]
extern "C" fn halocline_packet_order(received: Handle<Packet>, stream: Handle<Arc<Stream>>) -> Status {
    call(|| {
        let (packet, stream) = (received.pin()?, stream.pin()?);
        Ok(packet.payload.as_ref().map_or(Ok(()), |payload| payload.order(&stream))?)
    })
}

/// The refusal for an error of a packet.
pub(crate) fn of_packet(error: &PacketError) -> Refusal {
    match error {
        PacketError::Comm(comm) => of_comm(comm),
        PacketError::Device(device) => Error::from(device.clone()).into(),
        PacketError::Metadata { .. } => Refusal::argument(error.to_string()),
        PacketError::Memory { error: memory, .. } => {
            let status = if memory.is_shortage() { Status::MEMORY } else { Status::FAILED };
            Refusal::new(status, error.to_string())
        }
        _ => Refusal::new(Status::FAILED, error.to_string()),
    }
}

/// The refusal for an error between ranks.
pub(crate) fn of_comm(error: &CommError) -> Refusal {
    error.clone().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::device::{Priority, ValueOp, sim};

    #[test]
    fn a_payload_of_the_host_is_ready_once_its_stream_has_written_it() {
        let world = sim::World::live(0, &sim::Options::default()).unwrap();
        let device = world.world().device(0).unwrap();
        let stream = Arc::new(device.stream(Priority::Normal).unwrap());
        let flag = device.allocate_pinned(8).unwrap();
        // SAFETY: the word is pinned memory that lives until the stream has passed it.
        unsafe { stream.values(&[ValueOp::Wait { address: flag.at(0), at_least: 1 }]) }.unwrap();
        let bytes = [7u8; 3];
        let given = PacketOptions {
            payload: bytes.as_ptr().cast(),
            payload_bytes: bytes.len(),
            stream: Handle::new(Arc::clone(&stream)).unwrap(),
            has_payload: 1,
            ..PacketOptions::defaults()
        };
        // SAFETY: no function is called, and the bytes live as long as the payload.
        let payload = unsafe { payload(&given, KeepAlive::new(None, std::ptr::null_mut())) }.unwrap();
        assert!(!payload.is_ready().unwrap(), "the stream has not passed the flag");
        // SAFETY: only this store and the stream use the word.
        unsafe { flag.store(0, 1) };
        stream.synchronise().unwrap();
        assert!(payload.is_ready().unwrap());
    }
}

/// `halocline_traffic`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TrafficOfRank {
    pub(crate) packets: u64,
    pub(crate) metadata: u64,
    pub(crate) host: u64,
    pub(crate) pinned: u64,
    pub(crate) device: u64,
}

impl From<Traffic> for TrafficOfRank {
    fn from(of: Traffic) -> Self {
        let Traffic { packets, metadata, host, pinned, device } = of;
        Self { packets, metadata, host, pinned, device }
    }
}

/// `halocline_packet_statistics`.
#[repr(C)]
pub(crate) struct PacketStatistics {
    pub(crate) size: usize,
    pub(crate) rounds: u64,
    pub(crate) sent: TrafficOfRank,
    pub(crate) received: TrafficOfRank,
}

// SAFETY: `repr(C)`, begins with its size, and consists of integers.
unsafe impl Options for PacketStatistics {
    const FIRST_SIZE: usize = 96;
    const NAME: &'static str = "halocline_packet_statistics";
}
