//! Folders that cannot be written, and disks that are full.

use super::{FILE_LIMIT, Getter, compile, get, key, names, value};
use halocline_program::cache::{BuildFolder, BuildOptions, Cache, CacheError};
use std::fs;
use std::path::{Path, PathBuf};

/// A small file system in memory, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`, with a line that says so, where this process may not mount one.
    fn mount(folder: &Path, options: &str) -> Option<Self> {
        let folder = folder.join("disk");
        fs::create_dir_all(&folder).unwrap();
        match mount("tmpfs", &folder, "tmpfs", 0, options) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                println!("== SKIPPED: a disk of its own: this process may not mount one ({error})");
                None
            }
        }
    }

    fn make_read_only(&self) {
        mount("tmpfs", &self.0, "tmpfs", libc::MS_REMOUNT | libc::MS_RDONLY, "").unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero.
        assert_eq!(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }, 0);
    }
}

fn mount(
    source: &str,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> std::io::Result<()> {
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (source, target, kind) = (text(source), text(target.to_str().unwrap()), text(kind));
    let options = text(options);
    // SAFETY: all texts end with a zero.
    let mounted = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if mounted == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn is_read_only(refused: &CacheError) -> bool {
    matches!(refused, CacheError::ReadOnly { .. })
        && refused.to_string().contains("set HALOCLINE_CACHE to a folder that this user can write")
}

#[test]
fn a_read_only_disk_serves_its_entries_and_refuses_builds() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(scratch.path(), "size=4m") else { return };
    let cache = Cache::at(disk.0.join("cache"));
    get(&cache, 1).unwrap();
    disk.make_read_only();
    assert_eq!(value(&get(&cache, 1).unwrap()).unwrap(), 1);
    for refused in [get(&cache, 2), get(&Cache::at(disk.0.join("other")), 2)] {
        assert!(is_read_only(&refused.unwrap_err()));
    }
    assert_eq!(cache.verify().unwrap().entries.len(), 1);
}

#[test]
fn a_folder_without_write_permission_serves_its_entries_and_refuses_builds() {
    let scratch = tempfile::tempdir().unwrap();
    // Permissions do not bind root: `/proc` lets nobody create files.
    let refused = get(&Cache::at("/proc/halocline"), 2).unwrap_err();
    assert!(matches!(refused, CacheError::ReadOnly { .. } | CacheError::File { .. }), "{refused}");
    if rustix::process::geteuid().is_root() {
        println!("== SKIPPED: a folder without write permission: root writes it all the same");
        return;
    }
    let cache = Cache::at(scratch.path().join("cache"));
    get(&cache, 1).unwrap();
    let claims = cache.folder().join("claims");
    fs::set_permissions(&claims, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    assert_eq!(value(&get(&cache, 1).unwrap()).unwrap(), 1);
    assert!(is_read_only(&get(&cache, 2).unwrap_err()));
}

#[test]
fn a_file_in_the_place_of_the_folder_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    fs::write(cache.folder(), "a file").unwrap();
    assert!(cache.get(&key(1)).unwrap().is_none());
    let error = get(&cache, 1).unwrap_err();
    assert!(matches!(error, CacheError::File { what: "create", .. }), "{error}");
}

#[test]
fn a_full_disk_is_an_error_that_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(scratch.path(), "size=512k") else { return };
    let cache = Cache::at(disk.0.join("cache"));
    get(&cache, 1).unwrap();
    let before = rustix::fs::statvfs(&disk.0).unwrap().f_bfree;
    // The build itself fits, and the entry beside it does not.
    let build = |folder: &BuildFolder| {
        fs::write(folder.path().join("table"), vec![1; 300 << 10]).unwrap();
        compile(folder, 2).map(|built| built.with("table"))
    };
    let error = cache.get_or_build(&key(2), &BuildOptions::default(), build).unwrap_err();
    assert!(matches!(error, CacheError::Full { .. }), "{error}");
    assert!(error.to_string().contains("free space with `halocline cache clear`"), "{error}");
    for folder in ["builds", "claims", "trash"] {
        assert_eq!(names(&cache.folder().join(folder)), [""; 0], "{folder}");
    }
    assert_eq!(rustix::fs::statvfs(&disk.0).unwrap().f_bfree, before);
    // A disk without any space left: not even a claim fits.
    let filler = disk.0.join("filler");
    let filled = fs::write(&filler, vec![1; 1 << 20]).unwrap_err();
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    let error = get(&cache, 3).unwrap_err();
    let is_typed = matches!(error, CacheError::Full { .. } | CacheError::Build { .. });
    assert!(is_typed, "{error}");
    assert_eq!(value(&get(&cache, 1).unwrap()).unwrap(), 1);
    fs::remove_file(&filler).unwrap();
    assert_eq!(value(&get(&cache, 3).unwrap()).unwrap(), 3);
    assert_eq!(cache.verify().unwrap().entries.len(), 2);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_that_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("cache");
    // A shared library has more bytes: the compiler fails, or the copy.
    let error = Getter::new(scratch.path(), &folder, 1).with(FILE_LIMIT, "2000").start().end().unwrap_err();
    assert!(error.starts_with("the build of program value failed") || error.contains("is full"), "{error}");
    for name in ["builds", "claims", "trash", "entries"] {
        assert_eq!(names(&folder.join(name)), [""; 0], "{name}");
    }
    get(&Cache::at(&folder), 1).unwrap();
}
