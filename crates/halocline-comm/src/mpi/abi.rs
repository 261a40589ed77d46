//! The three binary interfaces that MPI libraries have: constants and sizes, nothing else differs.
//!
//! | interface | libraries | handles are |
//! | --- | --- | --- |
//! | Open MPI | `libmpi.so.40` | pointers to objects of the library |
//! | MPICH | `libmpi.so.12`, `libmpich.so.12` (MPICH, Intel MPI, MVAPICH, Cray MPICH) | `int` |
//! | standard | `libmpi_abi.so` (MPI 5) | pointers, small numbers for the predefined ones |

use super::error::Unusable;
use super::handle::is_mapped;
use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::fmt;

/// Which of the interfaces a library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbiKind {
    /// That of Open MPI.
    OpenMpi,
    /// That of MPICH.
    Mpich,
    /// The standard one of MPI 5.
    Standard,
}

impl fmt::Display for AbiKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Standard => "standard",
        })
    }
}

/// `MPI_Status` of any interface: 20, 24 or 32 bytes; the library fills its part.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Status([c_int; 8]);

/// One interface. The associated values are those of its `mpi.h`.
pub(super) trait Abi: 'static {
    /// The type of handles: communicators, requests, datatypes.
    type Handle: Copy + Eq + Send + Sync + 'static;

    const ANY_SOURCE: c_int;
    const ANY_TAG: c_int;
    const COMM_TYPE_SHARED: c_int;
    /// `MPI_THREAD_SINGLE`, `FUNNELED`, `SERIALIZED`, `MULTIPLE`.
    const LEVELS: [c_int; 4];
    /// Places of `MPI_SOURCE` and `MPI_TAG` in a status, in `int`s.
    const STATUS_SOURCE: usize;
    const STATUS_TAG: usize;

    /// The predefined handles of a library that was opened.
    fn handles(library: &Library) -> Result<Handles<Self::Handle>, Unusable>;

    /// A communicator of the program, whose handle was given as a number.
    fn handle_of(raw: usize) -> Self::Handle;

    /// The inverse of [`Abi::handle_of`].
    fn number_of(handle: Self::Handle) -> usize;

    /// Whether handles of C are the integers of Fortran.
    const IS_INTEGER: bool;
    /// The functions that turn communicators of C into integers of Fortran, and back.
    const FORTRAN: [&'static str; 2];

    /// Refuses a handle that can be no communicator, without following it.
    fn check(handle: Self::Handle, handles: &Handles<Self::Handle>) -> Result<(), &'static str>;

    /// The sender of a received message.
    fn source(status: &Status) -> c_int {
        status.0[Self::STATUS_SOURCE]
    }

    /// The tag of a received message.
    fn tag(status: &Status) -> c_int {
        status.0[Self::STATUS_TAG]
    }
}

/// Predefined handles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handles<H> {
    pub comm_world: H,
    pub comm_self: H,
    pub comm_null: H,
    pub byte: H,
    pub info_null: H,
    pub errors_return: H,
    pub request_null: H,
    pub message_null: H,
}

/// A handle that is a pointer. Only the library dereferences it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Pointer(*mut c_void);

// SAFETY: the pointer is a name that only the MPI library follows; no code here does. Which thread calls the library is
// decided by the access rule of `Channel`, not by the owner of a handle.
unsafe impl Send for Pointer {}
// SAFETY: the pointer is a name that only the MPI library follows; no code here does. Which thread calls the library is
// decided by the access rule of `Channel`, not by the owner of a handle.
unsafe impl Sync for Pointer {}

impl Pointer {
    const fn number(number: usize) -> Self {
        Self(std::ptr::without_provenance_mut(number))
    }

    #[cfg(test)]
    pub(super) const fn null() -> Self {
        Self::number(0)
    }
}

/// Open MPI: predefined handles are addresses of its symbols.
///
/// They are looked up as the library itself finds them: an executable that is linked with it may have copies of its objects (copy
/// relocations). Then the library uses the copies, and never initialises its own.
pub(super) struct OpenMpi;

impl Abi for OpenMpi {
    type Handle = Pointer;
    const ANY_SOURCE: c_int = -1;
    const ANY_TAG: c_int = -1;
    const COMM_TYPE_SHARED: c_int = 0;
    const LEVELS: [c_int; 4] = [0, 1, 2, 3];
    const STATUS_SOURCE: usize = 0;
    const STATUS_TAG: usize = 1;

    fn handles(library: &Library) -> Result<Handles<Pointer>, Unusable> {
        let global = Library::this();
        let address = |symbol: &'static str| {
            let find = |place: &Library| {
                // SAFETY: only the address of the symbol is taken; nothing is read through it.
                unsafe { place.get::<*mut c_void>(symbol.as_bytes()) }.map(|found| found.into_raw())
            };
            let found = find(&global).or_else(|_| find(library));
            Ok(Pointer(found.map_err(|_| Unusable::Symbol(symbol))?))
        };
        Ok(Handles {
            comm_world: address("ompi_mpi_comm_world")?,
            comm_self: address("ompi_mpi_comm_self")?,
            comm_null: address("ompi_mpi_comm_null")?,
            byte: address("ompi_mpi_byte")?,
            info_null: address("ompi_mpi_info_null")?,
            errors_return: address("ompi_mpi_errors_return")?,
            request_null: address("ompi_request_null")?,
            message_null: address("ompi_message_null")?,
        })
    }

    fn handle_of(raw: usize) -> Pointer {
        Pointer(std::ptr::with_exposed_provenance_mut(raw))
    }

    fn number_of(handle: Pointer) -> usize {
        handle.0.expose_provenance()
    }

    const IS_INTEGER: bool = false;
    const FORTRAN: [&'static str; 2] = ["MPI_Comm_c2f\0", "MPI_Comm_f2c\0"];

    fn check(handle: Pointer, handles: &Handles<Pointer>) -> Result<(), &'static str> {
        match handle.0.addr() {
            0 => Err(NULL),
            _ if handle == handles.comm_null => Err(NULL),
            small if small < SMALL => Err("it is a handle of the standard interface of MPI 5"),
            address if !address.is_multiple_of(align_of::<usize>()) => {
                Err("it is no address of a communicator")
            }
            address if !is_mapped(address, OBJECT) => Err("there is no memory at that address"),
            _ => Ok(()),
        }
    }
}

/// Fewer bytes than an object of a communicator has.
const OBJECT: usize = 256;
/// Predefined handles of the standard interface are smaller.
const SMALL: usize = 4096;
const NULL: &str = "it is null (MPI_COMM_NULL)";

/// MPICH and libraries with its interface.
pub(super) struct Mpich;

impl Abi for Mpich {
    type Handle = c_int;
    const ANY_SOURCE: c_int = -2;
    const ANY_TAG: c_int = -1;
    const COMM_TYPE_SHARED: c_int = 1;
    const LEVELS: [c_int; 4] = [0, 1, 2, 3];
    const STATUS_SOURCE: usize = 2;
    const STATUS_TAG: usize = 3;

    fn handles(_library: &Library) -> Result<Handles<c_int>, Unusable> {
        Ok(Handles {
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            comm_null: 0x0400_0000,
            byte: 0x4c00_010d,
            info_null: 0x1c00_0000,
            errors_return: 0x5400_0001,
            request_null: 0x2c00_0000,
            message_null: 0x2c00_0000,
        })
    }

    fn handle_of(raw: usize) -> c_int {
        // A handle is 32 bits; callers that widen it may extend its sign.
        raw as u32 as c_int
    }

    fn number_of(handle: c_int) -> usize {
        handle as usize
    }

    const IS_INTEGER: bool = true;
    const FORTRAN: [&'static str; 2] = ["MPI_Comm_c2f\0", "MPI_Comm_f2c\0"];

    fn check(handle: c_int, handles: &Handles<c_int>) -> Result<(), &'static str> {
        // The upper two bits say how a handle is stored (0: it is null), the next four what it stands for.
        let (stored, kind) = (handle as u32 >> 30, handle as u32 >> 26 & 15);
        const COMMUNICATOR: u32 = 1;
        match (stored, kind) {
            _ if handle == handles.comm_null => Err(NULL),
            (1.., COMMUNICATOR) => Ok(()),
            _ => Err("it is a handle of another MPI library, or of another object than a communicator"),
        }
    }
}

/// The standard interface of MPI 5.
pub(super) struct Standard;

impl Abi for Standard {
    type Handle = Pointer;
    const ANY_SOURCE: c_int = -1;
    const ANY_TAG: c_int = -2;
    const COMM_TYPE_SHARED: c_int = 221;
    const LEVELS: [c_int; 4] = [0, 1024, 2048, 4096];
    const STATUS_SOURCE: usize = 0;
    const STATUS_TAG: usize = 1;

    fn handles(_library: &Library) -> Result<Handles<Pointer>, Unusable> {
        Ok(Handles {
            comm_world: Pointer::number(0x101),
            comm_self: Pointer::number(0x102),
            comm_null: Pointer::number(0x100),
            byte: Pointer::number(0x247),
            info_null: Pointer::number(0x130),
            errors_return: Pointer::number(0x143),
            request_null: Pointer::number(0x180),
            message_null: Pointer::number(0x128),
        })
    }

    fn handle_of(raw: usize) -> Pointer {
        Pointer(std::ptr::with_exposed_provenance_mut(raw))
    }

    fn number_of(handle: Pointer) -> usize {
        handle.0.expose_provenance()
    }

    const IS_INTEGER: bool = false;
    const FORTRAN: [&'static str; 2] = ["MPI_Comm_toint\0", "MPI_Comm_fromint\0"];

    fn check(handle: Pointer, handles: &Handles<Pointer>) -> Result<(), &'static str> {
        match handle {
            _ if handle.0.is_null() || handle == handles.comm_null => Err(NULL),
            _ if handle == handles.comm_world || handle == handles.comm_self => Ok(()),
            Pointer(small) if small.addr() < SMALL => {
                Err("it is a handle of another object than a communicator")
            }
            Pointer(other) if is_mapped(other.addr(), 1) => Ok(()),
            _ => Err("it is a handle of another MPI library"),
        }
    }
}
