//! A program that uses MPI by itself, and gives one of its communicators to us: `tests/mpi.rs` starts it.
//!
//! It loads the library named in its arguments, so that this crate needs no MPI to build.

use crate::{Outcome, Trouble, ensure, fail, run_all};
use halocline::comm::mpi::MpiError;
use halocline::{CommError, Communicator};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::ffi::{c_char, c_int, c_void};
use std::process::ExitCode;

type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// Plays a scenario with the MPI library at a path.
pub fn main(scenario: &str, library: &str) -> ExitCode {
    let outcome = match scenario {
        "given" => Mpi::start(library, 3).and_then(|mpi| given(&mpi)),
        "funneled" => Mpi::start(library, 1).and_then(|mpi| funneled(&mpi)),
        "finalized" => Mpi::start(library, 3).and_then(|mpi| finalized(&mpi)),
        "uninitialized" => Mpi::open(library).and_then(|mpi| uninitialized(&mpi)),
        "two" => two(library),
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

    fn communicator(&self) -> Result<Communicator, CommError> {
        // SAFETY: a communicator of the library that is loaded.
        unsafe { Communicator::from_mpi(self.world(), None) }
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

/// The program's communicator serves as any other, again and again, more often than MPI has communicators.
fn given(mpi: &Mpi) -> Outcome {
    run_all(&mpi.communicator()?, "collectives")?;
    for _ in 0..1100 {
        mpi.communicator()?.barrier()?;
    }
    mpi.finalize()
}

/// Below MPI_THREAD_MULTIPLE the thread that initialised MPI does everything, others are told so.
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
    drop(comm);
    mpi.finalize()
}

/// After the program's MPI_Finalize there are errors, and no calls of MPI.
fn finalized(mpi: &Mpi) -> Outcome {
    let comm = mpi.communicator()?;
    comm.barrier()?;
    mpi.finalize()?;
    let is_told = |error| matches!(error, CommError::Mpi(MpiError::Finalized));
    let polled = comm.link().is_polled();
    ensure!(!polled || comm.barrier().is_err_and(is_told), "a barrier after MPI_Finalize");
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
