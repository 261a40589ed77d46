//! Messages that a program sends by itself, and the links of an object.

use crate::call::{call, call_for};
use crate::exchange::NCCL;
use crate::object::Handle;
use crate::options;
use crate::pointer::{Capacity, OutArray, OutPtr, array, array_mut, store};
use crate::status::Status;
use halocline::{Direction, HaloExchange, LinkInfo, LinkPath, Stream};
use std::ffi::c_void;
use std::sync::Arc;

/// `halocline_link`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LinkOfRank {
    pub(crate) peer: usize,
    pub(crate) direction: i32,
    pub(crate) path: i32,
}

impl From<LinkInfo> for LinkOfRank {
    fn from(link: LinkInfo) -> Self {
        let direction = match link.direction {
            Direction::Send => 0,
            Direction::Receive => 1,
        };
        let path = match link.path {
            LinkPath::Push => 1,
            LinkPath::Pull => 2,
            LinkPath::Mailbox { .. } => 3,
            LinkPath::Message => 4,
            LinkPath::DeviceMailbox => 5,
            LinkPath::Ll => 6,
            LinkPath::Nccl => NCCL,
            _ => 0,
        };
        Self { peer: link.peer, direction, path }
    }
}

/// The links of this rank.
#[unsafe(no_mangle)]
extern "C" fn halocline_links(
    halo: Handle<HaloExchange>,
    links: OutArray<'_, LinkOfRank>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let all: Vec<LinkOfRank> = halo.pin()?.links().map(LinkOfRank::from).collect();
        store(&all, (links, capacity), count, "links")
    })
}

/// The length of a message.
#[unsafe(no_mangle)]
extern "C" fn halocline_message_bytes(
    halo: Handle<HaloExchange>,
    peer: usize,
    direction: i32,
    bytes: OutPtr<'_, usize>,
) -> Status {
    call_for(bytes, "bytes", || {
        let directions = [Direction::Send, Direction::Receive];
        let remedy = "pass HALOCLINE_SEND or HALOCLINE_RECEIVE";
        let direction = options::choice(direction, directions, "direction", remedy)?;
        Ok(halo.pin()?.message_bytes(peer, direction)?)
    })
}

/// Packs a message.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_pack(
    halo: Handle<HaloExchange>,
    peer: usize,
    message: *mut c_void,
    bytes: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or memory of that many bytes, which this call alone uses.
        let message = unsafe { array_mut(message.cast::<u8>(), bytes, "message") }?;
        // SAFETY: any bytes are bytes; the memory belongs to C, which has no memory without a value, and `pack` writes all of it.
        let message =
            unsafe { std::slice::from_raw_parts_mut(message.as_mut_ptr().cast::<u8>(), message.len()) };
        Ok(halo.pin()?.pack(peer, message)?)
    })
}

/// Unpacks a message.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_unpack(
    halo: Handle<HaloExchange>,
    peer: usize,
    message: *const c_void,
    bytes: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller passes null or memory of that many bytes.
        let message = unsafe { array(message.cast::<u8>(), bytes, "message") }?;
        Ok(halo.pin()?.unpack(peer, message)?)
    })
}

/// Packs a message in the order of a stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_pack_on(
    halo: Handle<HaloExchange>,
    peer: usize,
    message: *mut c_void,
    bytes: usize,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| {
        let (halo, stream) = (halo.pin()?, stream.pin()?);
        // SAFETY: the header asks for memory that stays valid until the stream has done it, and that the stream orders.
        Ok(unsafe { halo.pack_on(peer, message.addr() as u64, bytes, &stream) }?)
    })
}

/// Unpacks a message in the order of a stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn halocline_unpack_on(
    halo: Handle<HaloExchange>,
    peer: usize,
    message: *const c_void,
    bytes: usize,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| {
        let (halo, stream) = (halo.pin()?, stream.pin()?);
        // SAFETY: the header asks for memory that stays valid until the stream has done it, and that the stream orders.
        Ok(unsafe { halo.unpack_on(peer, message.addr() as u64, bytes, &stream) }?)
    })
}
