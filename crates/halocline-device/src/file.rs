//! Atomic replacement of files.
//!
//! The new content goes to a temporary file beside the old one, which is then renamed: a reader sees the
//! old or the new content, and an error (a full disk) leaves the old file unchanged.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the content of a file, or creates it. A symbolic link stays, and its target is replaced.
/// Permissions are kept. Pipes and devices are written directly.
pub fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    match find(path)? {
        Found::Nothing(new) => write_aside(&new, 0o666, None, parts),
        Found::File(old, about) => write_aside(&old, 0o666, Some(about.permissions()), parts),
        Found::Special => write_all(&OpenOptions::new().write(true).open(path)?, parts),
    }
}

/// Checks that [`replace`] can write a file. Leaves no file behind. Never blocks.
pub fn check(path: &Path) -> io::Result<()> {
    let beside = match find(path)? {
        Found::Nothing(new) => new,
        Found::File(old, _) => old,
        Found::Special => return Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?),
    };
    Aside::make(&beside, 0o600).map(drop)
}

/// Replaces a file by one with this mode, less the umask, or with these permissions.
pub(crate) fn write_aside(
    path: &Path,
    mode: u32,
    permissions: Option<Permissions>,
    parts: &[&[u8]],
) -> io::Result<()> {
    let aside = Aside::make(path, mode)?;
    write_all(&aside.file, parts)?;
    if let Some(permissions) = permissions {
        aside.file.set_permissions(permissions)?;
    }
    // Some file systems report a full disk only here.
    aside.file.sync_data()?;
    aside.rename(path)
}

/// The kind of file at a path.
enum Found {
    /// Nothing; the path of the file to create.
    Nothing(PathBuf),
    /// A regular file, by its resolved path.
    File(PathBuf, Metadata),
    /// A pipe or a device.
    Special,
}

fn find(path: &Path) -> io::Result<Found> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    match path.metadata() {
        Ok(about) if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(about) if about.is_file() => Ok(Found::File(path.canonicalize()?, about)),
        Ok(_) => Ok(Found::Special),
        // The path of a directory that does not exist.
        Err(_) if path.as_os_str().as_bytes().ends_with(b"/") => Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.read_link() {
            // A dangling link: its target is created, and the link stays.
            Ok(target) => find(&path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => Ok(Found::Nothing(path.to_owned())),
        },
        Err(error) => Err(error),
    }
}

fn write_all(mut file: &File, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// A temporary file beside another one; removed when dropped.
struct Aside {
    file: File,
    path: PathBuf,
    is_renamed: bool,
}

impl Aside {
    fn make(path: &Path, mode: u32) -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        // Unique over processes and machines, because machines may share the directory.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let (now, number) = (since.unwrap_or_default().as_nanos(), MADE.fetch_add(1, Ordering::Relaxed));
        let name = format!(".halocline-{}-{now}-{number}", std::process::id());
        let aside = path.with_file_name(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside);
        let file = made.map_err(|error| match error.kind() {
            // The file may be writable although its directory is not.
            io::ErrorKind::PermissionDenied => {
                io::Error::new(error.kind(), format!("a file beside it cannot be made: {error}"))
            }
            _ => error,
        })?;
        Ok(Self { file, path: aside, is_renamed: false })
    }

    fn rename(mut self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_renamed
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_file_is_made_or_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for content in ["one", "another"] {
            check(&path).unwrap();
            replace(&path, &[&content.as_bytes()[..2], &content.as_bytes()[2..]]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(names(folder.path()), [path.as_path()]);
        }
    }

    #[test]
    fn a_check_leaves_no_file_and_changes_none() {
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("new")).unwrap();
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_reader_that_has_opened_the_old_file_goes_on_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, &[b"old"]).unwrap();
        let before = path.metadata().unwrap().ino();
        let opened = File::open(&path).unwrap();
        replace(&path, &[b"new one"]).unwrap();
        assert_eq!(std::io::read_to_string(opened).unwrap(), "old");
        assert_ne!(path.metadata().unwrap().ino(), before);
    }

    #[test]
    fn a_link_and_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        replace(&path, &[b"old"]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        symlink("a", &link).unwrap();
        replace(&link, &[b"new"]).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let early = folder.path().join("early");
        symlink("b", &early).unwrap();
        check(&early).unwrap();
        replace(&early, &[b"first"]).unwrap();
        assert!(early.is_symlink());
        assert_eq!(std::fs::read_to_string(folder.path().join("b")).unwrap(), "first");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn devices_are_written_directly() {
        let before = Path::new("/dev/full").metadata().unwrap().ino();
        check(Path::new("/dev/full")).unwrap();
        let error = replace(Path::new("/dev/full"), &[b"something"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        replace(Path::new("/dev/null"), &[b"something"]).unwrap();
        assert_eq!(Path::new("/dev/full").metadata().unwrap().ino(), before);
    }

    #[test]
    fn check_refuses_unwritable_paths() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            folder.path().to_owned(),
            folder.path().join("none/a"),
            folder.path().join("a/"),
            PathBuf::from("/dev/null/a"),
            PathBuf::new(),
        ] {
            assert!(check(&path).is_err(), "{}", path.display());
            assert!(replace(&path, &[b""]).is_err(), "{}", path.display());
        }
    }
}
