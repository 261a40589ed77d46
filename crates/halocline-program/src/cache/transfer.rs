//! Entries as messages, for ranks whose cache folders are not shared.

use super::CacheError;
use super::entry::{Entry, Record};
use super::key::Hash;
use super::layout::{Layout, create};
use super::publish::{BuildFolder, place};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

/// The bytes of an entry: its record, then its files in the order of the record; each with its length.
pub(super) fn pack(entry: &Entry) -> Result<Vec<u8>, CacheError> {
    let failed = |error| CacheError::file("read", entry.folder())(error);
    let mut packed = Vec::new();
    put(&mut packed, &serde_json::to_vec(entry.record()).map_err(io::Error::from).map_err(failed)?);
    for path in entry.files() {
        put(&mut packed, &fs::read(path).map_err(failed)?);
    }
    Ok(packed)
}

fn put(packed: &mut Vec<u8>, bytes: &[u8]) {
    packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    packed.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<8>()?;
    let (bytes, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *rest = tail;
    Some(bytes)
}

/// The record and the files of a message; `None` if it is not whole.
fn unpack(mut rest: &[u8], key: Hash) -> Option<(Record, Vec<&[u8]>)> {
    let record: Record = serde_json::from_slice(take(&mut rest)?).ok()?;
    // The checks of a record that is read from a file.
    Record::read(&record.to_bytes().ok()?, key).ok()?;
    let files: Vec<&[u8]> = record.files.iter().map(|_| take(&mut rest)).collect::<Option<_>>()?;
    let is_whole = record
        .files
        .iter()
        .zip(&files)
        .all(|(file, bytes)| bytes.len() as u64 == file.bytes && Hash::of(bytes) == file.hash);
    (is_whole && rest.is_empty()).then_some((record, files))
}

/// Puts an entry that another rank has sent into this rank's folder; `None` if the message is not whole.
pub(super) fn keep(layout: &Layout, key: Hash, message: &[u8]) -> Result<Option<Entry>, CacheError> {
    let Some((record, files)) = unpack(message, key) else { return Ok(None) };
    let folder = BuildFolder::make(layout)?;
    let staged = folder.staged();
    for (file, bytes) in record.files.iter().zip(files) {
        let path = staged.join(&*file.path);
        if let Some(parent) = path.parent() {
            create(parent)?;
            super::publish::trust(&staged, parent)?;
        }
        let write = || {
            let mut written = File::options().write(true).create_new(true).mode(0o644).open(&path)?;
            written.write_all(bytes)?;
            written.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
            written.sync_all()
        };
        write().map_err(CacheError::file("write", &path))?;
    }
    place(layout, &staged, &record).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::{BuildOptions, Built, Cache, Key};
    use super::*;

    #[test]
    fn an_entry_that_was_sent_is_the_same_and_a_message_that_is_not_whole_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (here, there) = (Cache::at(scratch.path().join("here")), Cache::at(scratch.path().join("there")));
        let key = Key::of("heat").finish();
        let build = |folder: &BuildFolder| -> io::Result<Built> {
            fs::create_dir(folder.path().join("a"))?;
            fs::write(folder.path().join("a/libheat.so"), "library")?;
            fs::write(folder.path().join("b"), "")?;
            Ok(Built::new("a/libheat.so").with("b"))
        };
        let entry = here.get_or_build(&key, &BuildOptions::default(), build).unwrap();
        let whole = pack(&entry).unwrap();
        for length in 0..whole.len() {
            assert!(keep(&there.layout, key.hash, &whole[..length]).unwrap().is_none(), "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            // Of a changed name in the record, nothing tells; the files are whole.
            if let Some(kept) = keep(&there.layout, key.hash, &changed).unwrap() {
                assert_ne!(kept.record(), entry.record(), "byte {at}");
                there.layout.discard(kept.folder()).unwrap();
            }
        }
        assert!(keep(&there.layout, Hash::of(b"another key"), &whole).unwrap().is_none());
        let kept = keep(&there.layout, key.hash, &whole).unwrap().unwrap();
        assert_eq!(kept.record(), entry.record());
        assert!(there.verify().unwrap().damaged.is_empty());
        assert!(super::super::layout::paths(&there.layout.builds()).unwrap().is_empty());
    }
}
