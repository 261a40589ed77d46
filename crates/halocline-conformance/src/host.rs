//! A program that uses MPI itself and passes one of its communicators to Halocline. `tests/it/mpi.rs` starts it.
//!
//! It loads the library named in its arguments, so this crate builds without MPI.

use crate::fixtures::{Grid, by};
use crate::{Outcome, Trouble, ensure, fail, run_all};
use halocline::{Array, CommError, Communicator, Error, HaloExchange, LinkChoice, LinkPath};
use halocline_comm::mpi::MpiError;
use halocline_comm::{Endpoint, Host, System};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::ffi::{c_char, c_int, c_void};
use std::process::ExitCode;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// Plays a scenario with the MPI library at a path.
pub fn main(scenario: &str, library: &str) -> ExitCode {
    let outcome = match scenario {
        "given" => Mpi::start(library, 3).and_then(|mpi| given(&mpi)),
        "funneled" => Mpi::start(library, 1).and_then(|mpi| funneled(&mpi)),
        "serialized" => Mpi::start(library, 2).and_then(|mpi| serialized(&mpi)),
        "aborts" => Mpi::start(library, 3).and_then(|mpi| aborts(&mpi)),
        "dropped" => Mpi::start(library, 3).and_then(|mpi| dropped_after_finalize(&mpi)),
        "finalized" => Mpi::start(library, 3).and_then(|mpi| finalized(&mpi)),
        "uninitialized" => Mpi::open(library).and_then(|mpi| uninitialized(&mpi)),
        "two" => two(library),
        "joining" => ends_while_a_thread_joins(),
        "exits" => exits(false),
        "exits-in-exchange" => exits(true),
        other => Err(Trouble::new(format!("there is no scenario {other:?}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

/// What a process says at its end if MPI was finalised.
pub const FINALIZED: &str = "MPI_Finalize was called";

/// Lets this process say [`FINALIZED`] after all else that happens at its end. Call it first of all.
pub fn say_at_exit_whether_mpi_is_finalized() {
    // SAFETY: the function has C linkage, lives as long as the process, and does not panic.
    unsafe { libc::atexit(say_whether_finalized) };
}

extern "C" fn say_whether_finalized() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let named = |path: &&str| ["/libmpi.so", "/libmpi_abi.so"].iter().any(|name| path.contains(name));
    let Some(path) = paths.find(named) else { return };
    // SAFETY: the library is loaded already, and this function of the MPI standard may be called at any
    // time.
    let finalized = unsafe {
        let library = Library::open(Some(path), RTLD_NOW | libc::RTLD_NOLOAD);
        let library = library.map(std::mem::ManuallyDrop::new);
        library.and_then(|library| {
            let ask: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> = library.get(b"MPI_Finalized")?;
            let mut finalized = 0;
            ask(&mut finalized);
            Ok(finalized != 0)
        })
    };
    match finalized {
        Ok(true) => println!("{FINALIZED}"),
        Ok(false) => {}
        Err(error) => println!("whether {path} is finalised is unknown: {error}"),
    }
}

/// The program's own MPI.
struct Mpi {
    library: Library,
    is_standard: bool,
}

impl Mpi {
    fn open(path: &str) -> Result<Self, Trouble> {
        // SAFETY: an MPI library, by the word of the test.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
        Ok(Self { library, is_standard: path.contains("libmpi_abi") })
    }

    /// Opens the library and initialises MPI with a thread level, 0 to 3.
    fn start(path: &str, level: usize) -> Result<Self, Trouble> {
        let mpi = Self::open(path)?;
        let levels = if mpi.is_standard { [0, 1024, 2048, 4096] } else { [0, 1, 2, 3] };
        let (level, mut provided) = (levels[level], 0);
        // SAFETY: this is the function of the MPI standard, and MPI is not initialised yet.
        let code = unsafe {
            let init: Symbol<InitThread> = mpi.library.get(b"MPI_Init_thread")?;
            init(std::ptr::null_mut(), std::ptr::null_mut(), level, &mut provided)
        };
        ensure!(code == 0 && provided == level, "MPI_Init_thread gives {code} and level {provided}");
        Ok(mpi)
    }

    /// `MPI_COMM_WORLD`, as a number.
    fn world(&self) -> usize {
        // SAFETY: only the address of the symbol is taken.
        match unsafe { self.library.get::<*mut c_void>(b"ompi_mpi_comm_world") } {
            Ok(world) => world.into_raw().expose_provenance(),
            Err(_) if self.is_standard => 0x101,
            Err(_) => 0x4400_0000,
        }
    }

    fn is_open_mpi(&self) -> bool {
        // SAFETY: only the address of the symbol is taken.
        unsafe { self.library.get::<*mut c_void>(b"ompi_mpi_comm_world") }.is_ok()
    }

    /// Takes one of MPICH's communicators for good, without messages.
    fn take_communicator(&self) -> Outcome {
        type Duplicate = unsafe extern "C" fn(usize, *mut usize) -> c_int;
        let comm_self = if self.is_standard { 0x102 } else { 0x4400_0001 };
        let mut duplicate = 0;
        // SAFETY: this is the function of the MPI standard, MPI is initialised, and this is its `MPI_COMM_SELF` in MPICH. Handles are
        // `int` or pointers: as arguments they travel in a register, and both fit into the `usize` at the address.
        let code = unsafe {
            let call: Symbol<Duplicate> = self.library.get(b"MPI_Comm_dup")?;
            call(comm_self, &mut duplicate)
        };
        ensure!(code == 0, "MPI_Comm_dup gives {code}");
        Ok(())
    }

    fn communicator(&self) -> Result<Communicator, CommError> {
        // SAFETY: a communicator of the library that is loaded.
        unsafe { Communicator::from_mpi(self.world(), None) }
    }

    /// Ends all ranks, sooner or later: MPICH asks its launcher to, and may come back.
    fn abort(&self) -> Outcome {
        // SAFETY: this is the function of the MPI standard, MPI is initialised, and this is its
        // `MPI_COMM_WORLD`: an `int` or a pointer, which travel alike in the register of the first argument.
        unsafe {
            let abort: Symbol<unsafe extern "C" fn(usize, c_int) -> c_int> =
                self.library.get(b"MPI_Abort")?;
            abort(self.world(), 5);
        }
        loop {
            std::thread::park();
        }
    }

    fn finalize(&self) -> Outcome {
        // SAFETY: this is the function of the MPI standard, and MPI is initialised.
        let code = unsafe {
            let finalize: Symbol<Finalize> = self.library.get(b"MPI_Finalize")?;
            finalize()
        };
        ensure!(code == 0, "MPI_Finalize gives {code}");
        Ok(())
    }
}

/// A host that never sleeps and reports when a thread waits.
struct Restless(Mutex<mpsc::Sender<()>>);

impl Host for Restless {
    fn now(&self) -> Duration {
        System.now()
    }

    fn park(&self, _: &AtomicU32, _: u32, _: Option<Duration>) {
        // The receiver takes the first report only.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }

    fn wake(&self, word: &AtomicU32) {
        System.wake(word);
    }
}

/// The library finalises MPI while a thread waits for other ranks to join, and asks MPI again and again whether they do. The process
/// ends after that thread: it has time to ask once too often.
fn ends_while_a_thread_joins() -> Outcome {
    static JOINS: OnceLock<Mutex<JoinHandle<()>>> = OnceLock::new();
    extern "C" fn outlive_it() {
        let thread = JOINS.get().expect("it was started");
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        while !thread.is_finished() {
            std::thread::yield_now();
        }
    }
    // Called after what the library does at the end, which is registered later.
    // SAFETY: the function takes no arguments, has C linkage, does not unwind, and stays loaded until the process ends.
    unsafe { libc::atexit(outlive_it) };
    let (waits, waiting) = mpsc::channel();
    let comm = Communicator::init_mpi(Some(false))?;
    let restless = Arc::new(Restless(Mutex::new(waits)));
    let is_first = comm.rank() == 0;
    let join = move || drop(is_first.then(|| Communicator::init_on("mpi", restless)));
    JOINS.get_or_init(|| Mutex::new(std::thread::spawn(join)));
    if is_first {
        waiting.recv().map_err(|_| Trouble::new("the second join ends before the others come"))?;
    }
    comm.barrier()?;
    Ok(())
}

/// The program's communicator serves as any other, again and again, more often than MPI has communicators: MPICH has 2,048, and most
/// are in use already. Open MPI has more than a test can use up.
fn given(mpi: &Mpi) -> Outcome {
    run_all(&mpi.communicator()?, "collectives")?;
    let in_use = if mpi.is_open_mpi() { 0 } else { 1900 };
    (0..in_use).try_for_each(|_| mpi.take_communicator())?;
    for _ in 0..200 {
        mpi.communicator()?.barrier()?;
    }
    mpi.finalize()
}

/// Below MPI_THREAD_MULTIPLE the thread that initialised MPI does everything; calls of other threads are refused.
fn funneled(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    run_all(&comm, "regular")?;
    run_all(&comm, "futures")?;
    let polled = comm.link().is_polled();
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| comm.all_gather(&[1])).join());
    match elsewhere {
        Ok(Err(CommError::Mpi(MpiError::Thread { .. }))) if polled => {}
        Ok(Ok(all)) if !polled => ensure!(all.len() == comm.size(), "{} contributions", all.len()),
        other => fail!("a collective call by another thread gives {other:?}"),
    }
    exchanged_elsewhere(&comm)?;
    scheduled_nowhere(&comm)?;
    drop(comm);
    mpi.finalize()
}

/// An exchange that a thread has begun which may not wait for it: that is refused, and nothing is lost.
fn exchanged_elsewhere(comm: &Communicator) -> Outcome {
    let pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(comm)?;
    let array = Array::<u64>::zeros(comm, &[4])?;
    array.write()?.fill(comm.rank() as u64 + 1);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &by(LinkChoice::Auto))?;
    let by_message = halo.links().any(|link| link.path == LinkPath::Message);
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| halo.exchange()?.wait()).join());
    match elsewhere {
        Ok(Ok(())) => {}
        Ok(Err(Error::Comm(CommError::Mpi(MpiError::Thread { .. })))) if by_message => halo.wait()?,
        other => fail!("an exchange by another thread gives {other:?}"),
    }
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let expected = [(rank + size - 1) % size + 1, rank + 1, rank + 1, (rank + 1) % size + 1];
    ensure!(*array.read()? == expected, "{:?} instead of {expected:?}", &*array.read()?);
    Ok(())
}

/// Scheduled exchanges by messages that no thread carries on are not begun, which is no exchange; others are right.
fn scheduled_nowhere(comm: &Communicator) -> Outcome {
    run_all(comm, "scheduled")?;
    run_all(comm, "devices::random_patterns")?;
    let pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(comm)?;
    let array = Array::<u64>::zeros(comm, &[4])?;
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &by(LinkChoice::Auto))?;
    let by_message = halo.links().any(|link| link.path == LinkPath::Message);
    match halo.schedule_exchange(&[]) {
        Ok(pending) if !by_message => pending.wait()?,
        Err(Error::NotDriven) if by_message => halo.exchange()?.wait()?,
        other => fail!("a scheduled exchange gives {other:?}"),
    }
    ensure!(halo.pending().is_some_and(|pending| pending.epoch() == 1), "a refusal counts as an exchange");
    Ok(())
}

/// With MPI_THREAD_SERIALIZED every thread of the program may call, one at a time, and no thread of ours calls
/// MPI beside it.
fn serialized(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    run_all(&comm, "regular")?;
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| run_all(&comm, "flight")).join());
    match elsewhere {
        Ok(outcome) => outcome?,
        Err(_) => fail!("the other thread has panicked"),
    }
    scheduled_nowhere(&comm)?;
    let threads = std::fs::read_dir("/proc/self/task")?.flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    let polling: Vec<String> = names.filter(|name| name.trim() == "halocline-mpi").collect();
    ensure!(polling.is_empty(), "a thread polls MPI in the background");
    drop(comm);
    mpi.finalize()
}

/// One rank aborts MPI while all exchange.
fn aborts(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    let pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(&comm)?;
    let array = Array::<u64>::zeros(&comm, &[4])?;
    let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
    for step in 0.. {
        halo.exchange()?.wait()?;
        if step == 100 && comm.rank() == 1 {
            mpi.abort()?;
        }
    }
    Ok(())
}

/// One rank ends while the others wait for it. It drops nothing, as programs in C and Python that end by an error.
fn exits(exchanges: bool) -> Outcome {
    let comm = Communicator::init()?;
    let pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(&comm)?;
    let array = Array::<u64>::zeros(&comm, &[4])?;
    let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
    halo.exchange()?.wait()?;
    if comm.rank() == 1 {
        std::process::exit(0);
    }
    let error = match exchanges {
        true => halo.exchange()?.wait().err().map(|error| error.to_string()),
        false => comm.barrier().err().map(|error| error.to_string()),
    };
    ensure!(error.as_ref().is_some_and(|error| error.contains("rank 1")), "{error:?}");
    Ok(())
}

/// Everything is still held when the program finalises MPI, and dropped afterwards.
fn dropped_after_finalize(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    let pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(&comm)?;
    let array = Array::<u64>::zeros(&comm, &[4])?;
    let halo = HaloExchange::bind(&comm, [(&pattern, &array)])?;
    let by_message = halo.links().any(|link| link.path == LinkPath::Message);
    halo.exchange()?.wait()?;
    mpi.finalize()?;
    if by_message {
        let late = halo.exchange().and_then(|pending| pending.wait());
        ensure!(late.is_err(), "an exchange over MPI after MPI_Finalize");
    }
    drop((halo, array, pattern, comm));
    Ok(())
}

/// After the program's MPI_Finalize there are errors, and no calls of MPI.
fn finalized(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    comm.barrier()?;
    mpi.finalize()?;
    let is_told = |error| matches!(error, CommError::Mpi(MpiError::Finalized));
    // A rank alone needs no MPI. Ranks that share memory do not need it either, but have ended with it.
    ensure!(comm.size() == 1 || comm.barrier().is_err_and(is_told), "a barrier after MPI_Finalize");
    drop(comm);
    ensure!(mpi.communicator().is_err_and(is_told), "a communicator after MPI_Finalize");
    Ok(())
}

fn uninitialized(mpi: &Mpi) -> Outcome {
    match mpi.communicator() {
        Err(CommError::Mpi(MpiError::NotInitialized { .. })) => Ok(()),
        other => fail!("a communicator before MPI_Init: {other:?}"),
    }
}

/// Two libraries, separated by a colon, in one process.
fn two(libraries: &str) -> Outcome {
    let paths: Vec<&str> = libraries.split(':').collect();
    // SAFETY: MPI libraries, by the word of the test; neither is used.
    let opened: Result<Vec<_>, _> =
        paths.iter().map(|path| unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }).collect();
    let error = Communicator::init_mpi(None).err();
    let Some(CommError::Mpi(MpiError::Two { .. })) = &error else {
        fail!("two libraries give {error:?}");
    };
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    ensure!(paths.iter().all(|path| text.contains(path)), "not both are named: {text}");
    // They cannot be unloaded.
    std::mem::forget(opened);
    Ok(())
}
