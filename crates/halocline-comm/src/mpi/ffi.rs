//! The functions of MPI that are used, and no more, generic over the [`Abi`].
//!
//! The raw functions are in [`Functions`]. The methods of [`Api`] are thin: they turn codes into errors
//! and out-parameters into values. They stay `unsafe`, since only their caller, the engine or the
//! runtime, knows that MPI is up.

use super::abi::{Abi, Handles, Status};
use super::error::{MpiError, Unusable};
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// Addresses in the library.
        pub(super) struct Functions<H> {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            handle: std::marker::PhantomData<H>,
        }

        impl<H: 'static> Functions<H> {
            /// Looks them all up.
            fn of(library: &Library) -> Result<Self, Unusable> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the MPI standard declares the function with this type for a library whose handles are
                        // of type `H`. `library::inspect` has found that interface, and the library is never unloaded.
                        let found = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *found.map_err(|_| Unusable::Symbol($symbol))?
                    },)*
                    handle: std::marker::PhantomData,
                })
            }
        }
    };
}

/// `MPI_Comm_copy_attr_function`.
type CopyAttribute<H> = extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// `MPI_Comm_delete_attr_function`.
type DeleteAttribute<H> = extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;

functions! {
    initialized = "MPI_Initialized" (*mut c_int);
    finalized = "MPI_Finalized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    query_thread = "MPI_Query_thread" (*mut c_int);
    is_thread_main = "MPI_Is_thread_main" (*mut c_int);
    finalize = "MPI_Finalize" ();
    comm_rank = "MPI_Comm_rank" (H, *mut c_int);
    comm_size = "MPI_Comm_size" (H, *mut c_int);
    comm_test_inter = "MPI_Comm_test_inter" (H, *mut c_int);
    comm_idup = "MPI_Comm_idup" (H, *mut H, *mut H);
    comm_split_type = "MPI_Comm_split_type" (H, c_int, c_int, H, *mut H);
    comm_split = "MPI_Comm_split" (H, c_int, c_int, *mut H);
    comm_free = "MPI_Comm_free" (*mut H);
    comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H);
    comm_create_keyval = "MPI_Comm_create_keyval" (CopyAttribute<H>, DeleteAttribute<H>, *mut c_int, *mut c_void);
    comm_set_attr = "MPI_Comm_set_attr" (H, c_int, *mut c_void);
    allgather = "MPI_Allgather" (*const c_void, c_int, H, *mut c_void, c_int, H, H);
    isend = "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    improbe = "MPI_Improbe" (c_int, c_int, H, *mut c_int, *mut H, *mut Status);
    imrecv = "MPI_Imrecv" (*mut c_void, c_int, H, *mut H, *mut H);
    get_count = "MPI_Get_count" (*const Status, H, *mut c_int);
    test = "MPI_Test" (*mut H, *mut c_int, *mut Status);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    get_library_version = "MPI_Get_library_version" (*mut c_char, *mut c_int);
}

/// `MPI_Comm_get_info`, `MPI_Info_get_string` (of MPI 4) and `MPI_Info_free`.
type Infos<H> = (
    unsafe extern "C" fn(H, *mut H) -> c_int,
    unsafe extern "C" fn(H, *const c_char, *mut c_int, *mut c_char, *mut c_int) -> c_int,
    unsafe extern "C" fn(*mut H) -> c_int,
);

/// Functions that not every library has.
fn infos<H: 'static>(library: &Library) -> Option<Infos<H>> {
    // SAFETY: the MPI standard declares the functions with these types for a library whose handles are of type `H`.
    // `library::inspect` has found that interface, and the library is never unloaded.
    unsafe {
        let get = *library.get(b"MPI_Comm_get_info\0").ok()?;
        let read = *library.get(b"MPI_Info_get_string\0").ok()?;
        Some((get, read, *library.get(b"MPI_Info_free\0").ok()?))
    }
}

/// At least `MPI_MAX_LIBRARY_VERSION_STRING` and `MPI_MAX_ERROR_STRING` of every library.
const TEXT: usize = 8192;

/// A library, ready to be called. Lives as long as the process: MPI libraries cannot be unloaded.
///
/// **MPI is up** for a thread while MPI is initialised and not finalised, and its thread level lets the thread call it now.
pub(super) struct Api<A: Abi> {
    functions: Functions<A::Handle>,
    infos: Option<Infos<A::Handle>>,
    pub(super) handles: Handles<A::Handle>,
}

/// A message that was matched and is to be received: its sender, tag, bytes and handle.
pub(super) struct Matched<H> {
    pub source: usize,
    pub tag: c_int,
    pub bytes: usize,
    pub message: H,
}

impl<A: Abi> Api<A> {
    /// Finds everything in a library of this interface.
    pub(super) fn of(library: &Library) -> Result<Self, Unusable> {
        let infos = infos(library);
        Ok(Self { functions: Functions::of(library)?, infos, handles: A::handles(library)? })
    }

    /// The version text of the library. Callable at any time.
    pub(super) fn version(&self) -> String {
        version(self.functions.get_library_version)
    }

    /// Whether a communicator joins two groups.
    ///
    /// # Safety
    /// MPI is up, and `comm` is a communicator of it.
    pub(super) unsafe fn joins_two_groups(&self, comm: A::Handle) -> Result<bool, MpiError> {
        let mut joins = 0;
        // SAFETY: the caller promises that MPI is up and that `comm` is a communicator. The function writes one number.
        self.check("MPI_Comm_test_inter", unsafe { (self.functions.comm_test_inter)(comm, &mut joins) })?;
        Ok(joins != 0)
    }

    /// Whether MPI was initialised. Callable at any time.
    pub(super) fn is_initialized(&self) -> bool {
        let mut flag = 0;
        // SAFETY: MPI allows this call at any time, by any thread, and writes one number to `flag`.
        unsafe { (self.functions.initialized)(&mut flag) };
        flag != 0
    }

    /// Whether MPI was finalised. Callable at any time.
    pub(super) fn is_finalized(&self) -> bool {
        let mut flag = 0;
        // SAFETY: MPI allows this call at any time, by any thread, and writes one number to `flag`.
        unsafe { (self.functions.finalized)(&mut flag) };
        flag != 0
    }

    /// Initialises MPI, asking for `MPI_THREAD_MULTIPLE`. Blocks until all ranks of the job do.
    ///
    /// # Safety
    /// MPI is neither initialised nor finalised, and no other thread does so meanwhile.
    pub(super) unsafe fn init(&self) -> Result<(), MpiError> {
        let mut provided = 0;
        // SAFETY: the caller promises that nobody has initialised or finalised MPI, or does so meanwhile. MPI 2 and
        // later allow null for the arguments, and write one number to `provided`.
        let code =
            unsafe { (self.functions.init_thread)(null_mut(), null_mut(), A::LEVELS[3], &mut provided) };
        self.check("MPI_Init_thread", code)
    }

    /// The thread level, as its place in [`Abi::LEVELS`].
    ///
    /// # Safety
    /// MPI is initialised and not finalised.
    pub(super) unsafe fn level(&self) -> Result<usize, MpiError> {
        let mut level = 0;
        // SAFETY: the caller promises that MPI is initialised and not finalised. Any thread may ask; MPI writes one
        // number to `level`.
        self.check("MPI_Query_thread", unsafe { (self.functions.query_thread)(&mut level) })?;
        Ok(A::LEVELS.iter().rposition(|&known| known <= level).unwrap_or(0))
    }

    /// Whether this thread has initialised MPI.
    ///
    /// # Safety
    /// MPI is initialised and not finalised.
    pub(super) unsafe fn is_main_thread(&self) -> Result<bool, MpiError> {
        let mut flag = 0;
        // SAFETY: the caller promises that MPI is initialised and not finalised. Any thread may ask; MPI writes one
        // number to `flag`.
        self.check("MPI_Is_thread_main", unsafe { (self.functions.is_thread_main)(&mut flag) })?;
        Ok(flag != 0)
    }

    /// Ends MPI. Blocks until all ranks do.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and no other thread calls it from now on.
    pub(super) unsafe fn finalize(&self) -> Result<(), MpiError> {
        // SAFETY: the caller promises that MPI is up and called by nobody else from now on.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }

    /// Registers `callback` to be called at the beginning of `MPI_Finalize`.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    pub(super) unsafe fn at_finalize(&self, callback: DeleteAttribute<A::Handle>) -> Result<(), MpiError> {
        let mut key = 0;
        // SAFETY: the caller promises that MPI is up. Both functions are those of this program, have C linkage and do
        // not unwind. MPI writes one number to `key`.
        let code =
            unsafe { (self.functions.comm_create_keyval)(leave_out::<A>, callback, &mut key, null_mut()) };
        self.check("MPI_Comm_create_keyval", code)?;
        // SAFETY: the caller promises that MPI is up. `key` was made just now, and no function of it follows the value,
        // which is null.
        let code = unsafe { (self.functions.comm_set_attr)(self.handles.comm_self, key, null_mut()) };
        self.check("MPI_Comm_set_attr", code)
    }

    /// Rank and size.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it.
    pub(super) unsafe fn place(&self, comm: A::Handle) -> Result<(usize, usize), MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. MPI writes one number to `rank`.
        self.check("MPI_Comm_rank", unsafe { (self.functions.comm_rank)(comm, &mut rank) })?;
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. MPI writes one number to `size`.
        self.check("MPI_Comm_size", unsafe { (self.functions.comm_size)(comm, &mut size) })?;
        Ok((rank as usize, size as usize))
    }

    /// Begins to make a duplicate. Collective.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it. The duplicate's handle stays where it is, and is not
    /// read, until the request is done.
    pub(super) unsafe fn begin_duplicate(
        &self,
        comm: A::Handle,
        duplicate: &mut A::Handle,
    ) -> Result<A::Handle, MpiError> {
        let mut request = self.handles.request_null;
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it, and that `duplicate` stays where
        // it is until the request is done.
        let code = unsafe { (self.functions.comm_idup)(comm, duplicate, &mut request) };
        self.check("MPI_Comm_idup", code)?;
        Ok(request)
    }

    /// Makes errors of a communicator return instead of ending the process.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it.
    pub(super) unsafe fn return_errors(&self, comm: A::Handle) -> Result<(), MpiError> {
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. The handler is a predefined one.
        let code = unsafe { (self.functions.comm_set_errhandler)(comm, self.handles.errors_return) };
        self.check("MPI_Comm_set_errhandler", code)
    }

    /// The communicator of the ranks of `comm` on this node. Collective.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it.
    pub(super) unsafe fn split_by_node(&self, comm: A::Handle) -> Result<A::Handle, MpiError> {
        let mut node = comm;
        let (kind, info) = (A::COMM_TYPE_SHARED, self.handles.info_null);
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. MPI writes one handle to `node`.
        // Key 0 for all keeps the order of ranks.
        let code = unsafe { (self.functions.comm_split_type)(comm, kind, 0, info, &mut node) };
        self.check("MPI_Comm_split_type", code)?;
        Ok(node)
    }

    /// The communicator of the ranks of `comm` that give the same number, 0 or above. Collective.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it.
    pub(super) unsafe fn split(&self, comm: A::Handle, group: c_int) -> Result<A::Handle, MpiError> {
        let mut part = comm;
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. MPI writes one handle to `part`.
        let code = unsafe { (self.functions.comm_split)(comm, group, 0, &mut part) };
        self.check("MPI_Comm_split", code)?;
        Ok(part)
    }

    /// Frees a communicator. Collective: all ranks must do it.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it. Nothing is in flight on it, and nothing uses it
    /// afterwards.
    pub(super) unsafe fn free(&self, mut comm: A::Handle) -> Result<(), MpiError> {
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it on which nothing is under way, and
        // which nothing uses afterwards.
        self.check("MPI_Comm_free", unsafe { (self.functions.comm_free)(&mut comm) })
    }

    /// Gathers as many bytes from every rank of `comm`, at every rank. Collective, blocks.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it that has `size` ranks.
    pub(super) unsafe fn all_gather<const N: usize>(
        &self,
        comm: A::Handle,
        size: usize,
        mine: &[u8; N],
    ) -> Result<Vec<[u8; N]>, MpiError> {
        let mut all = vec![[0; N]; size];
        let (count, byte) = (N as c_int, self.handles.byte);
        let (from, to) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: the caller promises that MPI is up and that `comm` has `size` ranks. MPI reads the `N` bytes of
        // `mine` and writes `N` bytes for each rank to `all`, which has as many.
        let code = unsafe { (self.functions.allgather)(from, count, byte, to, count, byte, comm) };
        self.check("MPI_Allgather", code)?;
        Ok(all)
    }

    /// Begins to send.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it that has rank `to`. MPI can read `len` bytes at `first`,
    /// which stay as they are until the request is done.
    pub(super) unsafe fn send(
        &self,
        comm: A::Handle,
        to: usize,
        tag: c_int,
        (first, len): (*const u8, usize),
    ) -> Result<A::Handle, MpiError> {
        let mut request = self.handles.request_null;
        let (data, count) = (first.cast(), len as c_int);
        // SAFETY: the caller promises that MPI is up, that `comm` has rank `to`, and that the bytes stay as they are
        // until the request is done.
        let code = unsafe {
            (self.functions.isend)(data, count, self.handles.byte, to as c_int, tag, comm, &mut request)
        };
        self.check("MPI_Isend", code)?;
        Ok(request)
    }

    /// Begins to receive a message of a rank and a tag, wherever it is.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it that has rank `from`. MPI can write `len` bytes at
    /// `buffer`, which nothing else uses until the request is done.
    pub(super) unsafe fn receive_of(
        &self,
        comm: A::Handle,
        (from, tag): (usize, c_int),
        (buffer, len): (*mut u8, usize),
    ) -> Result<A::Handle, MpiError> {
        let mut request = self.handles.request_null;
        let (byte, count) = (self.handles.byte, len as c_int);
        // SAFETY: the caller promises that MPI is up, that `comm` has rank `from`, and that nothing else uses the `len`
        // bytes at `buffer` until the request is done.
        let code = unsafe {
            (self.functions.irecv)(buffer.cast(), count, byte, from as c_int, tag, comm, &mut request)
        };
        self.check("MPI_Irecv", code)?;
        Ok(request)
    }

    /// A message that has arrived and was not matched before, if there is one.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and `comm` a communicator of it. What is found must be received.
    pub(super) unsafe fn next(&self, comm: A::Handle) -> Result<Option<Matched<A::Handle>>, MpiError> {
        let (mut flag, mut message, mut status) = (0, self.handles.message_null, Status::default());
        // SAFETY: the caller promises that MPI is up and `comm` a communicator of it. MPI writes a flag, a handle and a
        // status, and `Status` has space for that of any interface.
        let code = unsafe {
            let any = (A::ANY_SOURCE, A::ANY_TAG);
            (self.functions.improbe)(any.0, any.1, comm, &mut flag, &mut message, &mut status)
        };
        self.check("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        let mut count = 0;
        // SAFETY: the call above has filled the status. MPI writes one number to `count`.
        let code = unsafe { (self.functions.get_count)(&status, self.handles.byte, &mut count) };
        self.check("MPI_Get_count", code)?;
        let source = usize::try_from(A::source(&status)).unwrap_or(usize::MAX);
        let bytes = usize::try_from(count).unwrap_or(0);
        Ok(Some(Matched { source, tag: A::tag(&status), bytes, message }))
    }

    /// Begins to receive a matched message.
    ///
    /// # Safety
    /// MPI is up ([`Api`]). [`Api::next`] has found the message. MPI can write `matched.bytes` bytes at `buffer`, which
    /// nothing else uses until the request is done.
    pub(super) unsafe fn receive(
        &self,
        matched: &mut Matched<A::Handle>,
        buffer: *mut u8,
    ) -> Result<A::Handle, MpiError> {
        let mut request = self.handles.request_null;
        let (count, byte) = (matched.bytes as c_int, self.handles.byte);
        // SAFETY: the caller promises that MPI is up, that the message was matched and not received yet, and that
        // nothing else uses the `matched.bytes` bytes at `buffer` until the request is done.
        let code = unsafe {
            (self.functions.imrecv)(buffer.cast(), count, byte, &mut matched.message, &mut request)
        };
        self.check("MPI_Imrecv", code)?;
        Ok(request)
    }

    /// Whether a request is done; MPI has freed it then.
    ///
    /// # Safety
    /// MPI is up ([`Api`]), and the request is one of it that was not done before.
    pub(super) unsafe fn is_done(&self, request: &mut A::Handle) -> Result<bool, MpiError> {
        let (mut flag, mut status) = (0, Status::default());
        // SAFETY: the caller promises that MPI is up and the request one that was not done before. MPI writes a flag
        // and a status, and `Status` has space for that of any interface.
        self.check("MPI_Test", unsafe { (self.functions.test)(request, &mut flag, &mut status) })?;
        Ok(flag != 0)
    }

    /// The memory kinds that the library reports (MPI 4.1), from the info object of `MPI_COMM_WORLD`.
    ///
    /// # Safety
    /// MPI is up ([`Api`]).
    pub(super) unsafe fn memory_kinds(&self) -> Option<String> {
        let (get, read, free) = self.infos?;
        let (mut info, mut text, mut len, mut found) =
            (self.handles.info_null, [0u8; TEXT], TEXT as c_int, 0);
        // SAFETY: the caller promises that MPI is up. `key` ends with a zero, and MPI writes at most `len` bytes to
        // `text`, which has as many. The object of `get` is given back once.
        unsafe {
            if get(self.handles.comm_world, &mut info) != 0 {
                return None;
            }
            let key = c"mpi_memory_alloc_kinds".as_ptr();
            let code = read(info, key, &mut len, text.as_mut_ptr().cast(), &mut found);
            free(&mut info);
            (code == 0 && found != 0).then(|| line(&text, len))
        }
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), MpiError> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut len) = ([0u8; TEXT], 0);
        // SAFETY: MPI writes at most `MPI_MAX_ERROR_STRING` characters to `text`, which has space for those of every
        // library, and one number to `len`. The library itself gave the code.
        let found = unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &mut len) };
        let text = if found == 0 { line(&text, len) } else { "no reason given".to_owned() };
        Err(MpiError::Call { call, code, text })
    }
}

/// `MPI_Get_library_version`, the same in every interface.
type GetLibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// The version text of a library of any interface. Callable at any time.
pub(super) fn version_of(library: &Library) -> Result<String, Unusable> {
    // SAFETY: the MPI standard declares the function with this type, in which no handle occurs.
    let get = unsafe { library.get::<GetLibraryVersion>(b"MPI_Get_library_version\0") };
    Ok(version(*get.map_err(|_| Unusable::Symbol("MPI_Get_library_version"))?))
}

fn version(get: GetLibraryVersion) -> String {
    let (mut text, mut len) = ([0u8; TEXT], 0);
    // SAFETY: MPI allows this call at any time. It writes at most `MPI_MAX_LIBRARY_VERSION_STRING` characters to
    // `text`, which has space for those of every library, and one number to `len`.
    let code = unsafe { get(text.as_mut_ptr().cast(), &mut len) };
    if code == 0 { line(&text, len) } else { format!("unknown (error {code})") }
}

/// The attribute is of one communicator, not of its duplicates.
extern "C" fn leave_out<A: Abi>(
    _comm: A::Handle,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _copy: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes the address of its flag, an `int`.
    unsafe { *flag = 0 };
    0
}

/// The first line of a text that a library has written.
fn line(text: &[u8], len: c_int) -> String {
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let text = String::from_utf8_lossy(&text[..len]);
    let first = text.trim_matches(['\0', '\n', ' ']).lines().next().unwrap_or_default();
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}
