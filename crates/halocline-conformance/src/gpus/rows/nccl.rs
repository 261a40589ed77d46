//! NCCL, loaded at run time: the functions that a hand-written exchange needs. Signatures are those of `nccl.h` 2.

use crate::{Trouble, fail};
use halocline::Communicator;
use halocline::device::{Address, Stream, cuda};
use halocline_comm::Reduce;
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// `ncclUniqueId`, which travels by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclUint64`.
const WORDS: c_int = 5;

type Handle = *mut c_void;

/// The functions. Each returns 0 if all is well.
struct Functions {
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The code of these functions; it stays loaded.
    _library: Library,
}

/// A communicator of NCCL with the ranks of ours, each with the GPU that is current in its thread.
pub(super) struct Nccl {
    functions: Arc<Functions>,
    handle: Handle,
    /// Major, minor and patch.
    pub(super) version: (i32, i32, i32),
}

/// Bytes for another rank, and where those that it sends are put; multiples of 8.
pub(super) struct Message {
    pub(super) peer: usize,
    pub(super) out: (Address, usize),
    pub(super) into: (Address, usize),
}

impl Nccl {
    /// Loads the library and makes a communicator. Collective: all ranks return the reason if NCCL is missing. Takes seconds. The calling
    /// thread has the rank's GPU as its current one, here and in all calls.
    pub(super) fn new(comm: &Communicator) -> Result<Result<Self, String>, Trouble> {
        let found = cuda::nccl().and_then(|found| Ok((Functions::load(&found.path)?, found.version)));
        if comm.all_reduce(&[u64::from(found.is_ok())], Reduce::Min)? != [1] {
            return Ok(Err(found.err().unwrap_or_else(|| "another rank has not found it".to_owned())));
        }
        let (functions, version) = found.map_err(Trouble::new)?;
        let mut id = UniqueId([0; 128]);
        let mut result = 0;
        if comm.rank() == 0 {
            // SAFETY: NCCL writes an id of its own size to `id`.
            result = unsafe { (functions.get_unique_id)(&mut id) };
        }
        let sent = [&result.to_le_bytes()[..], &id.0].concat();
        let sent = comm.broadcast(0, sent)?;
        let (Some(code), Some(bytes)) =
            (sent.first_chunk::<4>(), sent.get(4..).and_then(|id| id.first_chunk()))
        else {
            fail!("an id of {} bytes", sent.len());
        };
        id = UniqueId(*bytes);
        result = i32::from_le_bytes(*code);
        let mut handle = std::ptr::null_mut();
        if result == 0 {
            let (size, rank) = (comm.size() as c_int, comm.rank() as c_int);
            // SAFETY: all ranks call this, with the id that one of them has made.
            result = unsafe { (functions.init_rank)(&mut handle, size, id, rank) };
        }
        let why = functions.check("ncclCommInitRank", result).err();
        if comm.all_reduce(&[u64::from(why.is_none())], Reduce::Min)? != [1] {
            // What other ranks made is left: to destroy it may wait for the rank that has failed.
            return Ok(Err(
                why.unwrap_or_else(|| "another rank's communicator of NCCL has failed".to_owned())
            ));
        }
        Ok(Ok(Self { functions: Arc::new(functions), handle, version }))
    }

    /// Gives the stream all messages, as one group.
    pub(super) fn exchange(&self, messages: &[Message], stream: &Stream) -> Result<(), Trouble> {
        let nccl = &*self.functions;
        let raw = std::ptr::with_exposed_provenance_mut::<c_void>(stream.raw().0);
        let pointer = |address: Address| std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        // SAFETY: begins a group of this thread.
        nccl.check("ncclGroupStart", unsafe { (nccl.group_start)() }).map_err(Trouble::new)?;
        for message in messages {
            let ((out, sent), (into, received)) = (message.out, message.into);
            let peer = message.peer as c_int;
            // SAFETY: memory of the stream's GPU, of so many bytes, which nothing else uses in the order of the stream; the
            // communicator lives.
            let results = unsafe {
                [
                    (nccl.send)(pointer(out), sent / 8, WORDS, peer, self.handle, raw),
                    (nccl.receive)(pointer(into), received / 8, WORDS, peer, self.handle, raw),
                ]
            };
            nccl.check("ncclSend", results[0]).map_err(Trouble::new)?;
            nccl.check("ncclRecv", results[1]).map_err(Trouble::new)?;
        }
        // SAFETY: the group was begun above, in this thread.
        nccl.check("ncclGroupEnd", unsafe { (nccl.group_end)() }).map_err(Trouble::new)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: made by `init_rank`, and this is its end; streams are through with it.
        let result = unsafe { (self.functions.destroy)(self.handle) };
        if let Err(why) = self.functions.check("ncclCommDestroy", result) {
            eprintln!("{why}");
        }
    }
}

impl Functions {
    fn load(path: &std::path::Path) -> Result<Self, String> {
        // SAFETY: initialisers run while the library is loaded. It is NCCL, by a name that the user or the system has
        // chosen; both choose what code this process runs.
        let library = unsafe { Library::open(Some(path), RTLD_NOW) }.map_err(|why| why.to_string())?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function has the signature of its field, as NCCL's header declares it.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|why| why.to_string())?
            };
        }
        Ok(Self {
            get_unique_id: function!("ncclGetUniqueId"),
            init_rank: function!("ncclCommInitRank"),
            destroy: function!("ncclCommDestroy"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            send: function!("ncclSend"),
            receive: function!("ncclRecv"),
            error_string: function!("ncclGetErrorString"),
            _library: library,
        })
    }

    fn check(&self, call: &str, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: a text of NCCL's own, for any number.
        let text = unsafe { CStr::from_ptr((self.error_string)(result)) };
        Err(format!("{call}: {} ({result})", text.to_string_lossy()))
    }
}
