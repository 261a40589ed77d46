//! Detects NCCL, for reports; nothing in this crate depends on it.

use super::nvrtc::{candidates, load};
use super::one_line;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

/// Names the only file to try.
const CHOICE: &str = "HALOCLINE_NCCL";
/// File names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_coded_in_two_ways() {
        assert_eq!(parts(2708), (2, 7, 8));
        assert_eq!(parts(22_807), (2, 28, 7));
    }

    #[test]
    fn a_missing_nccl_lists_the_places_tried() {
        if let Err(why) = nccl() {
            assert!(why.contains("libnccl.so.2"), "{why}");
        }
    }
}
