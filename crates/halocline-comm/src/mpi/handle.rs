//! Communicators of the program: `MPI_Comm`s of C and integers of Fortran, checked before MPI follows them.
//!
//! A wrong handle ends the process in most libraries, and one of another library is a pointer that may lie anywhere.

use super::abi::Abi;
use super::error::MpiError;
use super::ffi::Api;
use super::runtime;
use libloading::os::unix::Library;
use std::ffi::c_int;

/// A communicator as a program has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MpiCommHandle {
    /// An `MPI_Comm`: its value, and `sizeof(MPI_Comm)` of the `mpi.h` that the program was compiled with.
    C {
        /// The handle as a number.
        value: usize,
        /// Its size.
        bytes: usize,
    },
    /// An `MPI_Fint`: `comm%MPI_VAL` of `mpi_f08`, or the integer of the older modules.
    Fortran(c_int),
}

/// The number that [`Communicator::from_mpi`](crate::Communicator::from_mpi) takes. Refuses handles that are those of another MPI
/// library, null, or of no communicator. Fails if MPI is not initialised, or was finalised.
///
/// The caller's thread may call MPI, as in `from_mpi`.
pub fn communicator(comm: MpiCommHandle) -> Result<usize, MpiError> {
    runtime::get(true)?.number_of(comm)
}

/// `MPI_Comm_c2f` and `MPI_Comm_f2c`, where handles of C and Fortran differ.
pub(super) struct Fortran<H> {
    to: unsafe extern "C" fn(H) -> c_int,
    from: unsafe extern "C" fn(c_int) -> H,
}

impl<H: 'static> Fortran<H> {
    /// Looks them up; `None` if the library has no functions of these names.
    pub(super) fn of(library: &Library, names: [&str; 2]) -> Option<Self> {
        // SAFETY: the headers of the MPI libraries declare the functions with these types for handles of type `H`. The library
        // is never unloaded.
        unsafe {
            Some(Self {
                to: *library.get(names[0].as_bytes()).ok()?,
                from: *library.get(names[1].as_bytes()).ok()?,
            })
        }
    }
}

/// The number of a communicator of the program in a library of this interface.
///
/// # Safety
/// MPI is up ([`Api`]).
pub(super) unsafe fn number<A: Abi>(
    api: &Api<A>,
    fortran: Option<&Fortran<A::Handle>>,
    comm: MpiCommHandle,
) -> Result<usize, &'static str> {
    let handle = match (comm, fortran) {
        (MpiCommHandle::C { bytes, .. }, _) if bytes != size_of::<A::Handle>() => {
            return Err("its size is that of a handle of another MPI library");
        }
        (MpiCommHandle::C { value, .. }, _) => A::handle_of(value),
        // SAFETY: the caller promises that MPI is up; any integer may be looked up.
        (MpiCommHandle::Fortran(number), Some(fortran)) => unsafe { (fortran.from)(number) },
        (MpiCommHandle::Fortran(number), None) if A::IS_INTEGER => A::handle_of(number as usize),
        (MpiCommHandle::Fortran(_), None) => return Err("the library cannot convert handles of Fortran"),
    };
    A::check(handle, &api.handles)?;
    // Open MPI follows the pointer. One that is a communicator has a number, which leads back to it.
    if let (MpiCommHandle::C { .. }, Some(fortran)) = (comm, fortran) {
        // SAFETY: the caller promises that MPI is up, and `check` has found the pointer to lie in memory.
        let back = unsafe { (fortran.from)((fortran.to)(handle)) };
        if back != handle {
            return Err("the library has no communicator at that address");
        }
    }
    // SAFETY: the caller promises that MPI is up; the handle is one of a communicator, as far as MPI can check that.
    match unsafe { api.joins_two_groups(handle) } {
        Ok(false) => Ok(A::number_of(handle)),
        Ok(true) => Err(
            "it is an intercommunicator, whose two groups have no common ranks; pass what MPI_Intercomm_merge makes of it",
        ),
        Err(_) => Err("the library refuses it"),
    }
}

/// Whether the bytes at an address lie in memory of this process.
pub(super) fn is_mapped(address: usize, bytes: usize) -> bool {
    let page = rustix::param::page_size();
    let first = address & !(page - 1);
    let Some(end) = address.checked_add(bytes) else { return false };
    let pages = (end - first).div_ceil(page);
    let mut resident = vec![0u8; pages];
    // SAFETY: the call reads no memory of the range, and writes one byte for each of its pages to `resident`.
    unsafe { libc::mincore(first as *mut libc::c_void, pages * page, resident.as_mut_ptr().cast()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::super::abi::{AbiKind, Handles, Mpich, OpenMpi, Pointer, Standard};
    use super::*;

    fn handles<H: Copy>(handle: H, comm_null: H) -> Handles<H> {
        Handles {
            comm_world: handle,
            comm_self: handle,
            comm_null,
            byte: handle,
            info_null: handle,
            errors_return: handle,
            request_null: handle,
            message_null: handle,
        }
    }

    #[test]
    fn handles_of_another_library_are_refused_without_following_them() {
        let memory = [0u64; 128];
        let here = memory.as_ptr().addr();
        let open = |value: usize| {
            OpenMpi::check(OpenMpi::handle_of(value), &handles(Pointer::null(), Pointer::null()))
        };
        assert_eq!(open(here), Ok(()));
        for value in [0, 0x101, 0x4400_0001, here + 1, usize::MAX - 4095] {
            assert!(open(value).is_err(), "{value:#x}");
        }
        let mpich = |value: usize| Mpich::check(Mpich::handle_of(value), &handles(0x4400_0000, 0x0400_0000));
        assert_eq!((mpich(0x4400_0000), mpich(0x8400_0002)), (Ok(()), Ok(())));
        for value in [0, 0x0400_0000, 0x4c00_010d, 0x101] {
            assert!(mpich(value).is_err(), "{value:#x}");
        }
        let [world, null] = [0x101, 0x100].map(Standard::handle_of);
        let standard = |value: usize| Standard::check(Standard::handle_of(value), &handles(world, null));
        assert_eq!((standard(0x101), standard(here)), (Ok(()), Ok(())));
        for value in [0, 0x100, 0x247, 0x4400_0001] {
            assert!(standard(value).is_err(), "{value:#x}");
        }
    }

    #[test]
    fn the_error_names_the_handle_and_the_remedy() {
        let error = MpiError::NoCommunicator {
            handle: "the MPI_Comm 0x44000000".to_owned(),
            path: "libmpi.so.40".into(),
            kind: AbiKind::OpenMpi,
            why: "there is no memory at that address",
        };
        let text = error.to_string();
        assert!(
            text.starts_with("the MPI_Comm 0x44000000 is no communicator of the MPI library libmpi.so.40"),
            "{text}"
        );
        assert!(text.contains("from a program compiled with its mpi.h"), "{text}");
    }

    #[test]
    fn memory_is_mapped_up_to_its_end() {
        let memory = vec![0u8; 1 << 16];
        assert!(is_mapped(memory.as_ptr().addr(), memory.len()));
        assert!(!is_mapped(0, 8) && !is_mapped(usize::MAX - 8, 16));
    }
}
