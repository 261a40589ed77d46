//! NCCL, loaded at run time: where it is, and the functions for messages between devices.

use super::gpu::CudaDriver;
use super::nvrtc::{candidates, load};
use super::one_line;
use crate::driver::{Driver, RawStream};
use crate::error::DeviceError;
use crate::messages::{Message, MessageLibrary, RawCommunicator, UniqueId};
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

mod aborts;

/// Names the only file to try.
const CHOICE: &str = "HALOCLINE_NCCL";
/// File names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The oldest version that is accepted: `ncclCommDestroy` of earlier ones does not wait for what the network still sends.
const OLDEST: (i32, i32, i32) = (2, 14, 0);

/// `ncclInProgress`, and `ncclUint8` among the types of elements.
const IN_PROGRESS: c_int = 7;
const BYTES: c_int = 1;

/// An installed NCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nccl {
    /// Major, minor and patch.
    pub version: (i32, i32, i32),
    /// Its path, or the name known to the system's loader.
    pub path: PathBuf,
}

/// Finds NCCL at the file named by `HALOCLINE_NCCL`, else in the places searched for NVRTC, and returns its
/// version. The error lists what was tried.
pub fn nccl() -> Result<Nccl, String> {
    let mut tried = Vec::new();
    for path in candidates(CHOICE, &NAMES) {
        match version(&path) {
            Ok(version) => return Ok(Nccl { version, path }),
            Err(why) if why.starts_with(&*path.to_string_lossy()) => tried.push(why),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    Err(format!("NCCL was not found ({}); name its file in {CHOICE}", tried.join("; ")))
}

fn version(path: &Path) -> Result<(i32, i32, i32), String> {
    let library = load(path)?;
    // SAFETY: `nccl.h` declares `ncclGetVersion` with this type.
    let found = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") };
    let get = found.map_err(|why| one_line(&why.to_string()))?;
    let mut code = 0;
    // SAFETY: NCCL writes one number to `code`. `library` keeps the function loaded.
    match unsafe { get(&mut code) } {
        0 => Ok(parts(code)),
        result => Err(format!("ncclGetVersion: error {result}")),
    }
}

/// Decodes NCCL's version number: since 2.9 the minor version has two digits.
fn parts(code: c_int) -> (i32, i32, i32) {
    let major = if code < 10_000 { 1000 } else { 10_000 };
    (code / major, code % major / 100, code % 100)
}

type Comm = *mut c_void;

/// The functions of NCCL. Each returns 0 if all is well.
struct Functions {
    version: (i32, i32, i32),
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> c_int,
    state: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int,
    destroy: unsafe extern "C" fn(Comm) -> c_int,
    abort: unsafe extern "C" fn(Comm) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(Comm) -> *const c_char,
    /// The code of these functions; it stays loaded.
    _library: Library,
}

impl Functions {
    /// Those of the NCCL of this process, which is loaded by the first call.
    fn of_process() -> Result<Arc<Self>, String> {
        static LOADED: OnceLock<Result<Arc<Functions>, String>> = OnceLock::new();
        LOADED.get_or_init(|| Self::load(&nccl()?).map(Arc::new)).clone()
    }

    fn load(found: &Nccl) -> Result<Self, String> {
        let (version, path) = (found.version, found.path.display());
        if version < OLDEST {
            let (major, minor, patch) = version;
            return Err(format!("{path} is NCCL {major}.{minor}.{patch}"));
        }
        let library = load(&found.path)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function has the signature of its field, as `nccl.h` declares it.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|why| format!("{path}: {}", one_line(&why.to_string())))?
            };
        }
        Ok(Self {
            version,
            unique_id: function!("ncclGetUniqueId"),
            join: function!("ncclCommInitRank"),
            state: function!("ncclCommGetAsyncError"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            send: function!("ncclSend"),
            receive: function!("ncclRecv"),
            destroy: function!("ncclCommDestroy"),
            abort: function!("ncclCommAbort"),
            error_string: function!("ncclGetErrorString"),
            last_error: function!("ncclGetLastError"),
            _library: library,
        })
    }

    fn text(&self, result: c_int) -> String {
        // SAFETY: NCCL returns a text of its own, for any number. Without a communicator it returns the process's last error, or null.
        let texts = unsafe { [(self.error_string)(result), (self.last_error)(std::ptr::null_mut())] };
        let texts = texts.into_iter().filter(|text| !text.is_null());
        // SAFETY: texts of NCCL end with a zero, and the last error is one in memory of the library.
        let texts = texts.map(|text| one_line(&unsafe { CStr::from_ptr(text) }.to_string_lossy()));
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        format!("{} ({result})", texts.join(": "))
    }
}

/// The functions for one GPU, which is the current one in each call.
#[derive(Clone)]
struct OfGpu {
    gpu: Arc<CudaDriver>,
    functions: Arc<Functions>,
}

/// A rank's part of a communicator. Calls that wait for other ranks are made by a thread of their own: NCCL's own threads for calls that
/// do not block would be started for each exchange.
struct Part {
    /// Null until the rank has joined.
    comm: AtomicPtr<c_void>,
    /// The result of the last call of such a thread; [`IN_PROGRESS`] meanwhile.
    result: AtomicI32,
    /// It is to be aborted once that call is over.
    is_given_up: AtomicBool,
    /// It was aborted.
    is_aborted: AtomicBool,
    /// Held during a grouped call: NCCL allows one at a time.
    calls: Mutex<()>,
}

/// NCCL for a GPU.
pub(super) fn messages(ordinal: u32) -> Result<Arc<dyn MessageLibrary>, DeviceError> {
    let functions =
        Functions::of_process().map_err(|why| DeviceError::NoMessages { device: ordinal, why })?;
    Ok(Arc::new(OfGpu { gpu: CudaDriver::open(ordinal)?, functions }))
}

impl OfGpu {
    fn call(&self, call: impl FnOnce(&Functions) -> c_int) -> c_int {
        let (mut call, mut result) = (Some(call), 0);
        self.gpu.within(&mut || result = call.take().map_or(0, |call| call(&self.functions)));
        result
    }

    /// The same for calls that allocate, which would end captures of other threads.
    fn call_beside_captures(&self, call: impl FnOnce(&Functions) -> c_int) -> c_int {
        let (mut call, mut result) = (Some(call), 0);
        self.gpu.within_beside_captures(&mut || result = call.take().map_or(0, |call| call(&self.functions)));
        result
    }

    fn check(&self, call: &'static str, result: c_int) -> Result<(), DeviceError> {
        match result {
            0 => Ok(()),
            result => {
                let what = self.functions.text(result);
                Err(DeviceError::Messages { device: self.gpu.ordinal(), call, what })
            }
        }
    }

    /// Makes a call that waits for other ranks, on a thread of its own.
    fn spawn(
        &self,
        part: &Arc<Part>,
        call: impl FnOnce(&Self, &Part) -> c_int + Send + 'static,
    ) -> Result<(), DeviceError> {
        part.result.store(IN_PROGRESS, Ordering::SeqCst);
        let (of_thread, part_of_thread) = (self.clone(), Arc::clone(part));
        let body = move || {
            let result = call(&of_thread, &part_of_thread);
            part_of_thread.result.store(result, Ordering::SeqCst);
            of_thread.abort_if_given_up(&part_of_thread);
        };
        match thread::Builder::new().name("halocline-nccl".to_owned()).spawn(body) {
            Ok(_ends_by_itself) => Ok(()),
            Err(error) => {
                part.result.store(0, Ordering::SeqCst);
                let (call, what) = ("a thread for NCCL", error.to_string());
                Err(DeviceError::Messages { device: self.gpu.ordinal(), call, what })
            }
        }
    }

    /// Aborts a part that was given up, once no thread makes a call of it.
    fn abort_if_given_up(&self, part: &Part) {
        let is_idle = part.result.load(Ordering::SeqCst) != IN_PROGRESS;
        let comm = part.comm.load(Ordering::SeqCst);
        let is_due = part.is_given_up.load(Ordering::SeqCst) && is_idle && !comm.is_null();
        if is_due && !part.is_aborted.swap(true, Ordering::SeqCst) {
            let this = self.clone();
            let comm = comm.expose_provenance();
            aborts::run(move || {
                let comm = std::ptr::with_exposed_provenance_mut(comm);
                // SAFETY: `ncclCommInitRank` has made it, it ends once, and nothing uses it any more.
                let result = this.call_beside_captures(|nccl| unsafe { (nccl.abort)(comm) });
                if let Err(error) = this.check("ncclCommAbort", result) {
                    tracing::warn!("{error}");
                }
            });
        }
    }

    /// A grouped call.
    ///
    /// # Safety
    /// The contract of [`MessageLibrary::exchange`] holds for the part's communicator.
    unsafe fn grouped(&self, part: &Part, stream: RawStream, messages: &[Message]) -> c_int {
        let raw = std::ptr::with_exposed_provenance_mut::<c_void>(stream.0);
        let comm = part.comm.load(Ordering::SeqCst);
        let _alone = part.calls.lock().unwrap_or_else(PoisonError::into_inner);
        self.call(|nccl| {
            // SAFETY: begins a group of this thread, which ends below.
            let mut result = unsafe { (nccl.group_start)() };
            for message in messages {
                let &Message { peer, sends, address, bytes } = message;
                let pointer = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
                // SAFETY: the caller promises that communicator, stream and memory live, and that nothing else uses the memory.
                let given = unsafe {
                    match sends {
                        true => (nccl.send)(pointer, bytes, BYTES, peer as c_int, comm, raw),
                        false => (nccl.receive)(pointer, bytes, BYTES, peer as c_int, comm, raw),
                    }
                };
                result = if result == 0 { given } else { result };
            }
            // SAFETY: the group was begun above, in this thread.
            let ended = unsafe { (nccl.group_end)() };
            if result == 0 { ended } else { result }
        })
    }
}

/// The part that a handle stands for.
///
/// # Safety
/// `join` has returned the handle, which was neither aborted nor destroyed.
unsafe fn part<'a>(communicator: RawCommunicator) -> &'a Arc<Part> {
    // SAFETY: `join` has made the handle of a box, which only `take` takes back.
    unsafe { &*std::ptr::with_exposed_provenance::<Arc<Part>>(communicator.0) }
}

/// Takes the part out of a handle, at its end.
///
/// # Safety
/// `join` has returned the handle, which nothing uses any more.
unsafe fn take(communicator: RawCommunicator) -> Arc<Part> {
    let boxed = std::ptr::with_exposed_provenance_mut::<Arc<Part>>(communicator.0);
    // SAFETY: `join` has made the handle of a box, which is taken back here alone, once.
    *unsafe { Box::from_raw(boxed) }
}

// SAFETY: handles of the host's memory are those of `Part`, which a thread that is still in a call of NCCL holds.
unsafe impl MessageLibrary for OfGpu {
    fn name(&self) -> String {
        let (major, minor, patch) = self.functions.version;
        format!("NCCL {major}.{minor}.{patch}")
    }

    fn unique_id(&self) -> Result<UniqueId, DeviceError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: NCCL writes an identifier of its own size to `id`.
        let result = self.call(|nccl| unsafe { (nccl.unique_id)(&mut id) });
        self.check("ncclGetUniqueId", result).map(|()| id)
    }

    fn join(&self, id: &UniqueId, rank: u32, ranks: u32) -> Result<RawCommunicator, DeviceError> {
        let part = Arc::new(Part {
            comm: AtomicPtr::default(),
            result: AtomicI32::new(0),
            is_given_up: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            calls: Mutex::new(()),
        });
        let id = *id;
        self.spawn(&part, move |this, part| {
            let mut comm: Comm = std::ptr::null_mut();
            let result = this.call_beside_captures(|nccl| {
                // SAFETY: NCCL writes one handle to `comm`.
                unsafe { (nccl.join)(&mut comm, ranks as c_int, id, rank as c_int) }
            });
            if result == 0 {
                part.comm.store(comm, Ordering::SeqCst);
            }
            result
        })?;
        Ok(RawCommunicator(Box::into_raw(Box::new(part)).expose_provenance()))
    }

    unsafe fn is_ready(&self, communicator: RawCommunicator) -> Result<bool, DeviceError> {
        // SAFETY: the caller promises a communicator that is there.
        let part = unsafe { part(communicator) };
        match part.result.load(Ordering::SeqCst) {
            IN_PROGRESS => return Ok(false),
            result => self.check("connecting ranks by NCCL", result)?,
        }
        let (comm, mut state) = (part.comm.load(Ordering::SeqCst), 0);
        // SAFETY: the communicator lives; NCCL may be asked beside other calls. It writes one number to `state`.
        let result = self.call(|nccl| unsafe { (nccl.state)(comm, &mut state) });
        self.check("ncclCommGetAsyncError", result)?;
        self.check("a message of NCCL", state).map(|()| true)
    }

    unsafe fn exchange(
        &self,
        communicator: RawCommunicator,
        stream: RawStream,
        messages: &[Message],
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller promises a communicator that is there, and keeps the contract of the call.
        self.check("ncclSend, ncclRecv or ncclGroupEnd", unsafe {
            self.grouped(part(communicator), stream, messages)
        })
    }

    unsafe fn connect(
        &self,
        communicator: RawCommunicator,
        stream: RawStream,
        messages: &[Message],
    ) -> Result<(), DeviceError> {
        let messages = messages.to_vec();
        // SAFETY: the caller promises a communicator that is there. The contract of the call holds until the thread has made it.
        self.spawn(unsafe { part(communicator) }, move |this, part| unsafe {
            this.grouped(part, stream, &messages)
        })
    }

    unsafe fn abort(&self, communicator: RawCommunicator) {
        // SAFETY: the caller promises that nothing uses the handle any more.
        let part = unsafe { take(communicator) };
        part.is_given_up.store(true, Ordering::SeqCst);
        self.abort_if_given_up(&part);
    }

    unsafe fn destroy(&self, communicator: RawCommunicator) {
        // SAFETY: the caller promises that nothing uses the handle any more.
        let part = unsafe { take(communicator) };
        let comm = part.comm.load(Ordering::SeqCst);
        if part.result.load(Ordering::SeqCst) != 0 || comm.is_null() {
            part.is_given_up.store(true, Ordering::SeqCst);
            return self.abort_if_given_up(&part);
        }
        // SAFETY: the caller promises that nothing uses the communicator any more.
        let result = self.call_beside_captures(|nccl| unsafe { (nccl.destroy)(comm) });
        if let Err(error) = self.check("ncclCommDestroy", result) {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_coded_in_two_ways() {
        assert_eq!(parts(2708), (2, 7, 8));
        assert_eq!(parts(22_807), (2, 28, 7));
    }

    #[test]
    fn an_old_nccl_is_refused_before_it_is_loaded() {
        let old = Nccl { version: (2, 13, 4), path: PathBuf::from("/nowhere/libnccl.so.2") };
        let why = Functions::load(&old).err();
        assert_eq!(why.as_deref(), Some("/nowhere/libnccl.so.2 is NCCL 2.13.4"));
    }

    #[test]
    fn a_missing_nccl_lists_the_places_tried() {
        if let Err(why) = nccl() {
            assert!(why.contains("libnccl.so.2"), "{why}");
        }
    }
}
