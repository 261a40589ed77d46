//! Reads and checks the files of a FESOM mesh and model state.
//!
//! The result is consistent: all indices are in range, all numbers are finite, and every node belongs to a triangle. An [`InputError`]
//! names the file and the place of a fault.

mod fesom;
mod npy;
mod text;

pub use fesom::Fesom;

use std::borrow::Cow;
use std::path::PathBuf;

/// The place of the files.
#[derive(Debug, Clone)]
pub enum Source {
    /// In this binary: the `pi` mesh of FESOM2 with the yearly mean state of 1948.
    Embedded,
    /// In a directory.
    Directory(PathBuf),
    /// In memory.
    #[cfg(fuzzing)]
    #[cfg_attr(fuzzing, allow(dead_code, reason = "the mesh target constructs it, in a copy of this module"))]
    Given(Vec<(&'static str, Vec<u8>)>),
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../../../data/fesom-pi/", $name)).as_slice())),*]
    };
}

const EMBEDDED: &[(&str, &[u8])] = embedded![
    "nod2d.out",
    "elem2d.out",
    "aux3d.out",
    "nlevels.npy",
    "nlevels_nod2D.npy",
    "temp.npy",
    "u.npy",
    "v.npy",
];

impl Source {
    /// The content of the file `name`.
    pub fn read(&self, name: &'static str) -> Result<Cow<'static, [u8]>, InputError> {
        let missing = |path: PathBuf, source| InputError::Unreadable { path, source };
        match self {
            Self::Embedded => match EMBEDDED.iter().find(|(file, _)| *file == name) {
                Some((_, bytes)) => Ok(Cow::Borrowed(bytes)),
                None => Err(missing(name.into(), std::io::ErrorKind::NotFound.into())),
            },
            #[cfg(fuzzing)]
            Self::Given(files) => match files.iter().find(|(file, _)| *file == name) {
                Some((_, bytes)) => Ok(Cow::Owned(bytes.clone())),
                None => Err(missing(name.into(), std::io::ErrorKind::NotFound.into())),
            },
            Self::Directory(directory) => {
                let path = directory.join(name);
                std::fs::read(&path).map(Cow::Owned).map_err(|source| missing(path, source))
            }
        }
    }
}

/// A file that is missing, damaged or inconsistent.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read at all.
    #[error(
        "cannot read {}: {source}; give a directory with all files of the mesh and its state",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A text file ends too early.
    #[error(
        "{file} is cut short: it ends in line {line}, where {expected} is missing; copy or write the whole file \
         again"
    )]
    CutShort {
        /// The file.
        file: &'static str,
        /// Its last line, from 1.
        line: usize,
        /// The missing text.
        expected: String,
    },
    /// A text file has an unexpected value.
    #[error("{file}, line {line}: found {found:?}, expected {expected}; correct it there")]
    Text {
        /// The file.
        file: &'static str,
        /// The line, from 1.
        line: usize,
        /// The text in the file.
        found: String,
        /// The expected text.
        expected: String,
    },
    /// A `.npy` file has an unexpected value.
    #[error("{file}, byte {offset}: found {found}, expected {expected}; write the file again")]
    Npy {
        /// The file.
        file: &'static str,
        /// The first wrong byte, from 0.
        offset: usize,
        /// The text in the file.
        found: String,
        /// The expected text.
        expected: String,
    },
}
