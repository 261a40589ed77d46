//! A file that a run will write at its end, opened, or found impossible to open, before it begins.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// How often a file that others make and remove meanwhile is tried again.
const ATTEMPTS: usize = 64;

/// The file of a trace or a plot. What was there before stays until it is written; a file that was not there
/// goes again if nothing is.
pub(crate) struct Target {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Target {
    /// Opens the file for writing, or makes it. Several processes may do so at once: each rank of a job looks.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut attempts = 1..ATTEMPTS;
        loop {
            let there = OpenOptions::new().write(true).open(path);
            let made = match there {
                Ok(file) => return Ok(Self { path: path.to_owned(), file, is_new: false }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    OpenOptions::new().write(true).create_new(true).open(path)
                }
                Err(error) => return Err(error),
            };
            match made {
                Ok(file) => return Ok(Self { path: path.to_owned(), file, is_new: true }),
                // Another one has made it in between.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces what is in the file.
    pub(crate) fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.file.set_len(0).or_else(ignore_special_files)?;
        self.file.rewind().or_else(ignore_special_files)?;
        let mut out = BufWriter::new(&self.file);
        parts.iter().try_for_each(|part| out.write_all(part))?;
        out.flush()?;
        drop(out);
        self.is_new = false;
        Ok(())
    }
}

/// Pipes and devices have no length and no place.
fn ignore_special_files(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ESPIPE) => Ok(()),
        _ => Err(error),
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Made by us, and nothing was written.
        if self.is_new
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}
