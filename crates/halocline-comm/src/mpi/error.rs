//! Errors of MPI.

use super::abi::AbiKind;
use std::ffi::c_int;
use std::fmt;
use std::path::PathBuf;

/// Why MPI cannot be used, or failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// No MPI library can be used.
    #[error(
        "no MPI library can be used, tried {}; install one (such as libopenmpi3), or give its path in HALOCLINE_MPI",
        list(tried)
    )]
    NotFound {
        /// The libraries that were tried, and why each cannot be used.
        tried: Vec<(PathBuf, Unusable)>,
    },
    /// The library in `HALOCLINE_MPI`, or the one that the process has loaded, cannot be used.
    #[error(
        "the MPI library {} {why} ({chosen}); use another one: name it in HALOCLINE_MPI, or link the program with it",
        path.display()
    )]
    Chosen {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        why: Unusable,
        /// Why no other was tried.
        chosen: &'static str,
    },
    /// The process has two MPI libraries, or would have.
    #[error(
        "one process cannot use two MPI libraries: {} and {}; {advice}",
        first.display(),
        second.display()
    )]
    Two {
        /// One of them: already loaded.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The remedy.
        advice: &'static str,
    },
    /// The library does not know the launcher that started the ranks.
    #[error(
        "{launched} ranks were started, but {} ({kind} interface) {obstacle}: it belongs to another MPI than \
         the launcher; {advice}",
        path.display()
    )]
    OtherLauncher {
        /// Ranks as the launcher says in the environment.
        launched: usize,
        /// The library.
        path: PathBuf,
        /// Its interface.
        kind: AbiKind,
        /// The observed conflict.
        obstacle: &'static str,
        /// The remedy.
        advice: &'static str,
    },
    /// A communicator of the program was given, but MPI is not initialised.
    #[error("MPI ({}) is not initialised; call MPI_Init before you pass a communicator", path.display())]
    NotInitialized {
        /// The library.
        path: PathBuf,
    },
    /// A handle of the program that is no communicator of the loaded library.
    #[error(
        "{handle} is no communicator of the MPI library {} ({kind} interface): {why}; pass a communicator that this library has \
         made, from a program compiled with its mpi.h",
        path.display()
    )]
    NoCommunicator {
        /// The handle.
        handle: String,
        /// The library.
        path: PathBuf,
        /// Its interface.
        kind: AbiKind,
        /// Why it is none.
        why: &'static str,
    },
    /// MPI was finalised.
    #[error("MPI was finalised; use and drop communicators before MPI_Finalize")]
    Finalized,
    /// The thread may not call MPI.
    #[error(
        "MPI was initialised with {level}, so that only the thread that did so may call it; initialise it \
         with MPI_THREAD_MULTIPLE, or make this call from that thread"
    )]
    Thread {
        /// The level that MPI provides.
        level: ThreadLevel,
    },
    /// A call failed.
    #[error(
        "{call} failed with code {code}: {text}; check that all ranks run, and that a program of MPI alone works \
         with this library"
    )]
    Call {
        /// The function.
        call: &'static str,
        /// Its error code.
        code: c_int,
        /// The library's text for the code.
        text: String,
    },
    /// A message that no rank of this library sends.
    #[error("rank {from} sent {what} over MPI; run the same version of Halocline on all ranks")]
    Malformed {
        /// The sender.
        from: usize,
        /// The malformed message.
        what: &'static str,
    },
}

halocline_plan::debug_as_text!(MpiError);

/// Why a library cannot be used. Continues a sentence that begins with the library.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It cannot be loaded.
    #[error("cannot be loaded: {0}")]
    Load(String),
    /// It lacks a function.
    #[error("has no {0}")]
    Symbol(&'static str),
    /// It has none of the binary interfaces that are known here.
    #[error("has none of the binary interfaces of Open MPI, MPICH and the MPI standard; it says it is {0:?}")]
    Interface(String),
}

halocline_plan::debug_as_text!(Unusable);

/// The thread level of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// One thread calls MPI, the one that has initialised it.
    Funneled,
    /// One thread at a time.
    Serialized,
    /// Any thread at any time.
    Multiple,
}

impl ThreadLevel {
    /// The level with this index.
    pub(super) fn from_place(place: usize) -> Self {
        [Self::Single, Self::Funneled, Self::Serialized, Self::Multiple][place.min(3)]
    }
}

impl fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "MPI_THREAD_SINGLE",
            Self::Funneled => "MPI_THREAD_FUNNELED",
            Self::Serialized => "MPI_THREAD_SERIALIZED",
            Self::Multiple => "MPI_THREAD_MULTIPLE",
        })
    }
}

fn list(tried: &[(PathBuf, Unusable)]) -> String {
    let each = tried.iter().map(|(path, why)| format!("{} ({why})", path.display()));
    each.collect::<Vec<_>>().join(", ")
}
