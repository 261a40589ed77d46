//! Whether MPI accepts device pointers: by the user's choice, or by the library's report.

use super::abi::Abi;
use super::ffi::Api;
use crate::error::CommError;
use halocline_device::Variable;
use libloading::os::unix::Library;
use std::ffi::c_int;

/// The variable that decides whether memory of devices is passed to MPI: `auto` (if it reports that it accepts that), `on` (even if it
/// does not: some network layers accept memory that the library above them does not know), or `off`. Bind always tries it
/// first; an MPI that does not accept such memory may end the process then.
pub const DEVICE: &str = "HALOCLINE_MPI_DEVICE";

/// The user's choice, if any.
pub(super) fn chosen() -> Result<Option<bool>, CommError> {
    Ok(Variable::read(DEVICE).map_or(Ok(None), Variable::switch_or_auto)?)
}

/// Whether device pointers are passed to MPI in this process, or why not.
pub(super) fn decide(chosen: Option<bool>, said: Option<bool>) -> Result<(), String> {
    match chosen {
        None => match said {
            Some(true) => Ok(()),
            Some(false) => {
                Err(format!("this MPI reports that it accepts no device pointers; {DEVICE}=on tries it"))
            }
            None => Err(format!(
                "this MPI does not report whether it accepts device pointers; {DEVICE}=on tries it"
            )),
        },
        Some(true) => Ok(()),
        Some(false) => Err(format!("{DEVICE} is off")),
    }
}

/// The report of a library: by the extensions of Open MPI and MPICH, or by the memory kinds of MPI 4.1. `None`: no report.
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

/// Yes if any answer is yes, no if there are only other answers.
fn all(answers: &[Option<bool>]) -> Option<bool> {
    answers.iter().flatten().copied().reduce(|one, other| one || other)
}

/// Memory kinds are separated by commas, each with restrictors after colons. A kind that is not named is no answer: a program
/// may have to request it.
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
    fn one_yes_decides_and_no_report_is_no_answer() {
        assert_eq!(all(&[None, None, None]), None);
        assert_eq!(all(&[Some(false), None, None]), Some(false));
        assert_eq!(all(&[Some(false), Some(true), None]), Some(true));
        assert_eq!(all(&[None, Some(false), Some(true)]), Some(true));
    }

    #[test]
    fn memory_kinds_have_the_form_of_the_standard() {
        for kinds in ["mpi,system,cuda", "cuda:device,mpi", "system, cuda:host:device", "cuda"] {
            assert_eq!(has_cuda(kinds), Some(true), "{kinds}");
        }
        for kinds in ["", "mpi,system", "cuda:host", "rocm:device", "cudamanaged"] {
            assert_eq!(has_cuda(kinds), None, "{kinds}");
        }
    }
}
