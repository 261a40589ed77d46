//! Whether MPI takes addresses of memory of a GPU: what the user says, what the library says of itself.

use super::abi::Abi;
use super::ffi::Api;
use crate::error::CommError;
use halocline_device::Variable;
use libloading::os::unix::Library;
use std::ffi::c_int;

/// The variable that says whether MPI is handed memory of devices: `auto` (if it says that it takes that), `on` (also if it says
/// nothing, or no: some transports take what the library above them does not know of), or `off`. What it is handed is tried first
/// in any case; one that takes no such memory may end the process then.
pub const DEVICE: &str = "HALOCLINE_MPI_DEVICE";

/// Whether MPI of this process takes device pointers, or why they are not given to it.
pub(super) fn decide(said: Option<bool>) -> Result<Result<(), String>, CommError> {
    let chosen = Variable::read(DEVICE).map_or(Ok(None), Variable::switch_or_auto)?;
    let decided = match chosen {
        None => match said {
            Some(true) => Ok(()),
            Some(false) => {
                Err(format!("this MPI says that it takes no device pointers; {DEVICE}=on tries it"))
            }
            None => {
                Err(format!("this MPI does not say whether it takes device pointers; {DEVICE}=on tries it"))
            }
        },
        Some(true) => Ok(()),
        Some(false) => Err(format!("{DEVICE} is off")),
    };
    Ok(decided)
}

/// What a library says: by the extensions of Open MPI and MPICH, or by the kinds of memory of MPI 4.1. `None`: nothing.
///
/// # Safety
/// The library is the one of `api`. MPI is up ([`Api`]).
pub(super) unsafe fn says<A: Abi>(library: &Library, api: &Api<A>) -> Option<bool> {
    // SAFETY: the headers of Open MPI and MPICH declare these functions with these types, and no other library has
    // functions of these names.
    let (open, mpich) = unsafe {
        let open = library.get::<unsafe extern "C" fn() -> c_int>(b"MPIX_Query_cuda_support\0");
        let mpich =
            library.get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(b"MPIX_GPU_query_support\0");
        (open, mpich)
    };
    // SAFETY: the caller promises that MPI is up, and keeps the library loaded.
    let open = open.ok().map(|ask| unsafe { ask() } != 0);
    let mpich = mpich.ok().and_then(|ask| {
        let mut supported = 0;
        // SAFETY: the caller promises that MPI is up, and keeps the library loaded. The function writes one number to
        // `supported`.
        let code = unsafe { ask(MPIX_GPU_SUPPORT_CUDA, &mut supported) };
        (code == 0).then_some(supported != 0)
    });
    // SAFETY: the caller promises that MPI is up.
    let kinds = unsafe { api.memory_kinds() };
    all(&[open, mpich, kinds.as_deref().and_then(has_cuda)])
}

const MPIX_GPU_SUPPORT_CUDA: c_int = 0;

/// Yes if any says so, no if none does but some say no.
fn all(answers: &[Option<bool>]) -> Option<bool> {
    answers.iter().flatten().copied().reduce(|one, other| one || other)
}

/// Kinds of memory are separated by commas, each with restrictors behind colons. One that is not named says nothing: a program
/// may have to ask for it.
fn has_cuda(kinds: &str) -> Option<bool> {
    let is_cuda = |kind: &str| {
        let mut words = kind.trim().split(':');
        let is_cuda = words.next() == Some("cuda");
        let mut restrictors = words.peekable();
        is_cuda && (restrictors.peek().is_none() || restrictors.any(|word| word == "device"))
    };
    kinds.split(',').any(is_cuda).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_says_yes_is_believed_and_silence_is_no_answer() {
        assert_eq!(all(&[None, None, None]), None);
        assert_eq!(all(&[Some(false), None, None]), Some(false));
        assert_eq!(all(&[Some(false), Some(true), None]), Some(true));
        assert_eq!(all(&[None, Some(false), Some(true)]), Some(true));
    }

    #[test]
    fn kinds_of_memory_as_the_standard_writes_them() {
        for kinds in ["mpi,system,cuda", "cuda:device,mpi", "system, cuda:host:device", "cuda"] {
            assert_eq!(has_cuda(kinds), Some(true), "{kinds}");
        }
        for kinds in ["", "mpi,system", "cuda:host", "rocm:device", "cudamanaged"] {
            assert_eq!(has_cuda(kinds), None, "{kinds}");
        }
    }
}
