//! MPI in this process: opened once, initialised by this library unless the program does so, and then finalised at
//! the end of the process, unless a rank has failed.

use super::abi::{Abi, AbiKind, Mpich, OpenMpi, Standard};
use super::aware;
use super::channel;
use super::departure;
use super::engine::{Engine, Wire};
use super::error::{MpiError, ThreadLevel};
use super::ffi::Api;
use super::handle::{self, Fortran, MpiCommHandle};
use super::joining::Joining;
use super::launcher;
use super::library::{self, Opened};
use crate::error::CommError;
use crate::host::Host;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The MPI library of this process, behind its binary interface.
pub(super) trait Mpi: Send + Sync {
    /// Its description.
    fn about(&self) -> &About;

    /// Whether MPI was finalised.
    fn is_finalized(&self) -> bool;

    /// A duplicate of the program's communicator (given as a number), or of `MPI_COMM_WORLD`:
    /// the wire, this rank and the number of ranks. Collective over them; waits for the last of them, unless the host interrupts the
    /// wait. Hold the [`KeptUp`] until the wire has a channel: it keeps MPI up.
    fn connect(
        &'static self,
        program: Option<usize>,
        host: &dyn Host,
    ) -> Result<(Connected, KeptUp), CommError>;

    /// The number of a communicator of the program, for `connect`.
    fn number_of(&self, comm: MpiCommHandle) -> Result<usize, MpiError>;

    /// Finalises MPI, if this library has initialised it.
    fn finalize(&self);
}

/// A wire, this rank and the number of ranks.
pub(super) type Connected = (Box<dyn Wire>, usize, usize);

/// While it lives, this library does not finalise MPI at the end of the process.
pub(super) type KeptUp = RwLockReadGuard<'static, ()>;

/// Read by threads that call MPI without a channel, which [`channel::close_all`] would close; written by the one that finalises MPI.
static JOINING: RwLock<()> = RwLock::new(());

/// The process ends: no thread begins such a call any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for threads in calls that wait for other ranks.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Keeps MPI up, unless it was finalised or is about to be.
pub(super) fn keep_up<A: Abi>(api: &Api<A>) -> Result<KeptUp, MpiError> {
    let kept = JOINING.read().unwrap_or_else(PoisonError::into_inner);
    if ENDING.load(Ordering::Acquire) || api.is_finalized() { Err(MpiError::Finalized) } else { Ok(kept) }
}

/// Waits for threads in a call of MPI, then keeps all threads from joining. `None` if a thread stays in its call.
fn end_joining() -> Option<RwLockWriteGuard<'static, ()>> {
    ENDING.store(true, Ordering::Release);
    let start = Instant::now();
    loop {
        match JOINING.try_write() {
            Ok(alone) => return Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() > END_WITHIN => return None,
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(Duration::from_micros(100)),
        }
    }
}

/// The description of the library in use.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub path: PathBuf,
    pub kind: AbiKind,
    pub level: ThreadLevel,
    /// Whether this library has initialised it.
    pub ours: bool,
    /// The process that uses it. A forked child of it leaves MPI alone.
    pub process: u32,
    /// The thread that may call it, if only one may.
    pub only: Option<ThreadId>,
    /// Whether it reports that it accepts device pointers of CUDA.
    pub cuda: Option<bool>,
}

struct Runtime<A: Abi> {
    api: Api<A>,
    about: About,
    joining: Joining<A>,
    fortran: Option<Fortran<A::Handle>>,
}

/// Set once a rank has died: MPI_Finalize would wait for it.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The process ends without MPI_Finalize from now on.
pub(super) fn never_finalize() {
    FAILED.store(true, Ordering::Release);
}

/// The library of this process, initialised. `program`: the program has initialised it and passes one of
/// its communicators; otherwise this call initialises it if necessary. Blocks as MPI_Init does.
pub(super) fn get(program: bool) -> Result<&'static dyn Mpi, MpiError> {
    static MPI: Mutex<Option<&'static dyn Mpi>> = Mutex::new(None);
    let mut known = MPI.lock().unwrap_or_else(PoisonError::into_inner);
    let mpi = match *known {
        Some(mpi) => library::check_single().map(|()| mpi)?,
        None => *known.insert(start(library::open()?, program)?),
    };
    if mpi.is_finalized() {
        return Err(MpiError::Finalized);
    }
    Ok(mpi)
}

fn start(opened: Opened, program: bool) -> Result<&'static dyn Mpi, MpiError> {
    match opened.kind {
        AbiKind::OpenMpi => Ok(Runtime::<OpenMpi>::start(opened, program)?),
        AbiKind::Mpich => Ok(Runtime::<Mpich>::start(opened, program)?),
        AbiKind::Standard => Ok(Runtime::<Standard>::start(opened, program)?),
    }
}

impl<A: Abi> Runtime<A> {
    fn start(opened: Opened, program: bool) -> Result<&'static Self, MpiError> {
        let Opened { library, path, kind, has_pmix } = opened;
        let unusable = |why| MpiError::Chosen { path: path.clone(), why, chosen: "it was loaded" };
        let api = Api::<A>::of(&library).map_err(unusable)?;
        // MPI libraries cannot be unloaded: they have threads, hooks and signal handlers.
        let library = std::mem::ManuallyDrop::new(library);
        if api.is_finalized() {
            return Err(MpiError::Finalized);
        }
        let ours = !api.is_initialized();
        if ours && program {
            return Err(MpiError::NotInitialized { path });
        }
        if ours {
            let launcher = launcher::started();
            let obstacle = launcher.and_then(|one| Some((one, one.by.obstacle(kind, has_pmix)?)));
            if let Some((started, obstacle)) = obstacle {
                return Err(started.mismatch(path, kind, obstacle));
            }
            // SAFETY: `api` has just said that nobody has initialised or finalised MPI, and the lock of `get` lets one
            // thread of the library do so. A program that initialises MPI itself does so before it calls this library.
            unsafe { api.init()? };
        }
        // SAFETY: MPI is initialised and was not finalised. A program that finalises MPI does not do so during a call of
        // this library.
        let level = ThreadLevel::from_place(unsafe { api.level()? });
        // SAFETY: MPI is initialised and was not finalised. A program that finalises MPI does not do so during a call of
        // this library.
        let is_main = unsafe { api.is_main_thread()? };
        if level <= ThreadLevel::Funneled && !is_main {
            return Err(MpiError::Thread { level });
        }
        let only = (level <= ThreadLevel::Funneled).then(|| std::thread::current().id());
        // SAFETY: MPI is up: it is initialised and was not finalised, a program that finalises MPI does not do so during a
        // call of this library, and the thread level lets this thread call it, as was checked above.
        unsafe { api.at_finalize(at_finalize::<A>)? };
        // SAFETY: MPI is up: it is initialised and was not finalised, a program that finalises MPI does not do so during a
        // call of this library, and the thread level lets this thread call it, as was checked above.
        let cuda = unsafe { aware::says(&library, &api) };
        let fortran = Fortran::of(&library, A::FORTRAN).filter(|_| !A::IS_INTEGER);
        let about = About { path, kind, level, ours, process: std::process::id(), only, cuda };
        tracing::debug!(?about, version = api.version(), "MPI");
        let runtime: &'static Self =
            Box::leak(Box::new(Self { api, about, joining: Joining::new(), fortran }));
        if ours {
            // SAFETY: `at_exit` takes no arguments, has C linkage, does not unwind, and stays loaded until the process
            // ends.
            unsafe { libc::atexit(at_exit) };
        }
        Ok(runtime)
    }
}

impl<A: Abi> Mpi for Runtime<A> {
    fn about(&self) -> &About {
        &self.about
    }

    fn is_finalized(&self) -> bool {
        self.api.is_finalized()
    }

    fn connect(
        &'static self,
        program: Option<usize>,
        host: &dyn Host,
    ) -> Result<(Connected, KeptUp), CommError> {
        if self.about.only.is_some_and(|only| only != std::thread::current().id()) {
            return Err(MpiError::Thread { level: self.about.level }.into());
        }
        let api = &self.api;
        let theirs = program.map_or(api.handles.comm_world, A::handle_of);
        // SAFETY: `get` has found MPI initialised, a program that finalises it does not do so during a call of this library,
        // and `only` lets this thread call it. `theirs` is `MPI_COMM_WORLD`, or the caller of `Communicator::from_mpi`
        // promises that it is a communicator of this library.
        let [comm, bulks] = unsafe { self.joining.duplicate_twice(api, theirs, host)? };
        let kept = keep_up(api)?;
        // SAFETY: MPI is up: `kept` keeps this library from finalising it, a program that finalises it does not do so during
        // a call of this library, and `only` lets this thread call it. The communicators were made here.
        unsafe {
            let (rank, size) = api.place(comm)?;
            let node = api.split_by_node(comm)?;
            let (_, on_node) = api.place(node)?;
            Ok(((Box::new(Engine::new(api, (comm, bulks), (node, on_node))), rank, size), kept))
        }
    }

    fn number_of(&self, comm: MpiCommHandle) -> Result<usize, MpiError> {
        if self.about.only.is_some_and(|only| only != std::thread::current().id()) {
            return Err(MpiError::Thread { level: self.about.level });
        }
        let _kept_up = keep_up(&self.api)?;
        // SAFETY: MPI is up: `keep_up` keeps this library from finalising it, a program that finalises it does not do so during
        // a call of this library, and `only` lets this thread call it.
        let number = unsafe { handle::number(&self.api, self.fortran.as_ref(), comm) };
        number.map_err(|why| {
            let handle = match comm {
                MpiCommHandle::C { value, .. } => format!("the MPI_Comm {value:#x}"),
                MpiCommHandle::Fortran(number) => format!("the communicator {number} of Fortran"),
            };
            MpiError::NoCommunicator { handle, path: self.about.path.clone(), kind: self.about.kind, why }
        })
    }

    fn finalize(&self) {
        if !self.about.ours || self.about.process != std::process::id() || self.is_finalized() {
            return;
        }
        departure::end_all();
        if FAILED.load(Ordering::Acquire) {
            return;
        }
        // No thread may be in a call of MPI when MPI is finalised.
        let Some(_alone) = end_joining() else { return };
        // SAFETY: `about.ours` and `is_finalized` say that MPI is initialised, by this library, and not finalised;
        // nobody else finalises it.
        let is_main = unsafe { self.api.is_main_thread() };
        // With fewer threads than MPI_THREAD_SERIALIZED only the thread that initialised MPI finalises it.
        if self.about.only.is_some() && is_main == Ok(false) {
            return;
        }
        // Before MPI_Finalize, not in its callback: MPICH ignores its locks from there on, and aborts if other threads hold
        // one.
        channel::close_all();
        departure::break_all();
        // SAFETY: MPI is up: it is initialised and not finalised, and this thread may call it, as was checked above. No
        // other thread calls it from now on: `close_all` has closed every channel, and `end_joining` keeps threads
        // from joining.
        let outcome = unsafe { self.api.finalize() };
        if let Err(error) = outcome {
            tracing::warn!("{error}");
        }
    }
}

/// Called at the beginning of every MPI_Finalize, the last moment to use MPI.
extern "C" fn at_finalize<A: Abi>(
    _comm: A::Handle,
    _key: c_int,
    _value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    departure::end_all();
    channel::close_all();
    departure::break_all();
    0
}

extern "C" fn at_exit() {
    if let Ok(mpi) = get(false) {
        mpi.finalize();
    }
}

/// The result of initialising a library in a process that does nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The file that was loaded.
    pub path: PathBuf,
    /// Its interface.
    pub kind: AbiKind,
    /// Its version text.
    pub version: String,
    /// The level that it provides for MPI_THREAD_MULTIPLE.
    pub level: ThreadLevel,
    /// Whether it reports that it accepts device pointers of CUDA; `None` if it does not report that.
    pub cuda: Option<bool>,
}

/// Opens a library, initialises and finalises MPI. For a process that does nothing else: it may crash or
/// hang.
pub(super) fn try_out(path: &std::path::Path) -> Result<Trial, MpiError> {
    let chosen = |why| MpiError::Chosen { path: path.to_owned(), why, chosen: "on trial" };
    let opened = library::open_at(path).map_err(chosen)?;
    let trial = match opened.kind {
        AbiKind::OpenMpi => once(&Api::<OpenMpi>::of(&opened.library).map_err(chosen)?, &opened),
        AbiKind::Mpich => once(&Api::<Mpich>::of(&opened.library).map_err(chosen)?, &opened),
        AbiKind::Standard => once(&Api::<Standard>::of(&opened.library).map_err(chosen)?, &opened),
    };
    // It cannot be unloaded.
    std::mem::forget(opened.library);
    trial
}

fn once<A: Abi>(api: &Api<A>, opened: &Opened) -> Result<Trial, MpiError> {
    // SAFETY: MPI is up once `init` has returned: this process has just opened the library and does nothing else, so
    // that nobody else calls it.
    unsafe {
        api.init()?;
        let level = ThreadLevel::from_place(api.level()?);
        let cuda = aware::says(&opened.library, api);
        api.finalize()?;
        let path = library::loaded()?.unwrap_or_else(|| opened.path.clone());
        Ok(Trial { path, kind: opened.kind, version: api.version(), level, cuda })
    }
}
