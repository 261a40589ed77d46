//! Cache of compiled kernels on disk, shared by all ranks and runs of a user.
//!
//! A file is named by a hash of its key (source, options, compiler, target). It contains the key, which
//! detects hash collisions, and a checksum, which detects truncated or changed files. Files are replaced
//! atomically, so concurrent readers and writers see whole files. Nothing here fails: a kernel that cannot
//! be read is compiled again, and one that cannot be written is not cached.

use crate::file;
use crate::variable::Variable;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 16] = b"halocline kernel";
/// Mode bits of a file that its group or others may write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// The cache directory: `HALOCLINE_CACHE`, else `halocline` in `XDG_CACHE_HOME` or in `~/.cache`. `None` if
/// no variable is set, or if `HALOCLINE_CACHE` is `off`.
pub fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    match Variable::read("HALOCLINE_CACHE") {
        Some(chosen) => chosen.path_or_off(),
        None => {
            let home = || absolute("HOME").map(|home| home.join(".cache"));
            absolute("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("halocline"))
        }
    }
}

pub(super) fn find(key: &str) -> Option<Vec<u8>> {
    find_in(&directory()?, key)
}

pub(super) fn keep(key: &str, code: &[u8]) {
    if let Some(directory) = directory() {
        // On failure the next process compiles again.
        let _ = keep_in(&directory, key, code);
    }
}

/// The content of a file that only this user can write; `None` if there is no such file.
fn read_ours(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    // Opening a pipe would block until it has a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = opened.metadata()?;
    let is_ours = about.uid() == rustix::process::geteuid().as_raw() || about.uid() == 0;
    if !about.is_file() || !is_ours || about.mode() & WRITTEN_BY_OTHERS != 0 {
        return Ok(None);
    }
    let mut file = Vec::new();
    opened.read_to_end(&mut file)?;
    Ok(Some(file))
}

fn find_in(directory: &Path, key: &str) -> Option<Vec<u8>> {
    // Never run code that another user could have written.
    let file = read_ours(&directory.join(file_name(key))).ok()??;
    let (content, checksum) = file.split_last_chunk::<8>()?;
    if hash(content).to_le_bytes() != *checksum {
        return None;
    }
    let rest = content.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (known, code) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (known == key.as_bytes() && !code.is_empty()).then(|| code.to_vec())
}

fn keep_in(directory: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    let mut file = [MAGIC, &(key.len() as u64).to_le_bytes()[..], key.as_bytes(), code].concat();
    file.extend_from_slice(&hash(&file).to_le_bytes());
    std::fs::create_dir_all(directory)?;
    // Not writable by others, whatever the umask allows: see [`read_ours`].
    file::write_aside(&directory.join(file_name(key)), 0o644, None, &[&file])
}

fn file_name(key: &str) -> String {
    format!("{:016x}.cubin", hash(key.as_bytes()))
}

/// FNV-1a (Fowler, Noll and Vo), 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A temporary directory of a test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("halocline-cache-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_cached_kernel_is_found_by_its_key_alone() {
        let scratch = Scratch::new("found");
        assert_eq!(find_in(&scratch.0, "a key"), None);
        keep_in(&scratch.0, "a key", b"code").expect("a directory of our own");
        assert_eq!(find_in(&scratch.0, "a key").as_deref(), Some(&b"code"[..]));
        assert_eq!(find_in(&scratch.0, "another"), None);
        // As if the hashes collided: the file of one key in the place of another.
        let place = |key: &str| scratch.0.join(file_name(key));
        std::fs::rename(place("a key"), place("another")).expect("there");
        assert_eq!(find_in(&scratch.0, "another"), None);
    }

    #[test]
    fn cut_and_changed_files_are_not_taken_and_are_replaced() {
        let scratch = Scratch::new("cut");
        keep_in(&scratch.0, "key", b"code").expect("a directory of our own");
        let path = scratch.0.join(file_name("key"));
        let whole = std::fs::read(&path).expect("there");
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("ours");
            assert_eq!(find_in(&scratch.0, "key"), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, changed).expect("ours");
            assert_eq!(find_in(&scratch.0, "key"), None, "byte {at}");
        }
        keep_in(&scratch.0, "key", b"new code").expect("ours");
        assert_eq!(find_in(&scratch.0, "key").as_deref(), Some(&b"new code"[..]));
    }

    #[test]
    fn files_that_others_may_write_are_not_taken() {
        let scratch = Scratch::new("mode");
        keep_in(&scratch.0, "key", b"code").expect("a directory of our own");
        let path = scratch.0.join(file_name("key"));
        let found_with = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
            find_in(&scratch.0, "key")
        };
        for mode in [0o664, 0o646, 0o666] {
            assert_eq!(found_with(mode), None, "{mode:o}");
        }
        for mode in [0o644, 0o600] {
            assert_eq!(found_with(mode).as_deref(), Some(&b"code"[..]), "{mode:o}");
        }
    }

    #[test]
    fn a_directory_or_a_pipe_in_place_of_a_file_does_not_block() {
        let scratch = Scratch::new("pipe");
        let path = scratch.0.join(file_name("key"));
        std::fs::create_dir_all(&path).expect("ours");
        assert_eq!(find_in(&scratch.0, "key"), None);
        std::fs::remove_dir(&path).expect("ours");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("ours");
        assert_eq!(find_in(&scratch.0, "key"), None);
    }

    #[test]
    fn many_writers_and_readers_see_whole_files_and_leave_nothing() {
        let scratch = Scratch::new("many");
        let code = vec![7; 100_000];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        keep_in(&scratch.0, "key", &code).expect("ours");
                        assert!(find_in(&scratch.0, "key").is_some_and(|found| found == code), "not whole");
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(&scratch.0).expect("there").count(), 1);
    }

    #[test]
    fn an_unusable_cache_directory_is_no_error() {
        let scratch = Scratch::new("file");
        std::fs::write(&scratch.0, "a file").expect("ours");
        assert!(keep_in(&scratch.0, "key", b"code").is_err());
        assert_eq!(find_in(&scratch.0, "key"), None);
        std::fs::remove_file(&scratch.0).expect("ours");
    }
}
