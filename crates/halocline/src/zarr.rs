//! A global array as a Zarr version 3 array, which zarr-python reads
//! (<https://zarr-specs.readthedocs.io/en/latest/v3/core/>): a directory of metadata and chunks without compression, which the crate
//! `zarrs` writes.

use halocline_plan::ElementType;
use serde_json::Value;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zarrs::array::codec::CodecOptionsBuilder;
use zarrs::array::{Array, ArrayBuilder, ArrayMetadataOptions, FillValue};
use zarrs::filesystem::FilesystemStore;

/// Most bytes of a chunk.
const CHUNK: usize = 64 << 20;

/// An array to be written.
pub(crate) struct Whole<'a> {
    pub(crate) element: ElementType,
    pub(crate) extents: &'a [usize],
    /// The elements in C order.
    pub(crate) bytes: &'a [u8],
}

impl Whole<'_> {
    /// Writes the array. It replaces an older one, or whatever is there, once it is complete; an error leaves that as it was. A symbolic
    /// link is followed.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let path = match fs::canonicalize(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            found => found?,
        };
        let write = |aside: &Path| {
            self.write(aside).map_err(io::Error::other)?;
            sync(aside)
        };
        replace_directory(&path, write, |old| fs::remove_dir_all(old))
    }

    /// Writes the array to an empty directory. Only the caller's thread works.
    fn write(&self, folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        let shape: Vec<u64> = self.extents.iter().map(|&extent| extent as u64).collect();
        let zero = FillValue::new(vec![0; self.element.size()]);
        // Zarr has the same names of element types.
        let builder = ArrayBuilder::new(shape, self.chunk(), self.element.to_string(), zero);
        let array: Array<FilesystemStore> = builder.build(Arc::new(FilesystemStore::new(folder)?), "/")?;
        array.store_metadata_opt(&ArrayMetadataOptions::default().with_include_zarrs_metadata(false))?;
        if !self.bytes.is_empty() {
            let options = CodecOptionsBuilder::default().concurrent_target(1).build();
            array.store_array_subset_opt(&array.subset_all(), self.bytes, &options)?;
        }
        Ok(())
    }

    /// The extents of a chunk: whole rows of the first axis.
    fn chunk(&self) -> Vec<u64> {
        let mut extents: Vec<u64> = self.extents.iter().map(|&extent| extent.max(1) as u64).collect();
        let row = extents.iter().skip(1).product::<u64>() * self.element.size() as u64;
        extents.iter_mut().take(1).for_each(|rows| *rows = (*rows).min((CHUNK as u64 / row).max(1)));
        extents
    }
}

/// Whether an array may be written there: nothing is there, or a Zarr array of version 3. A group holds the arrays of others.
pub(crate) fn may_replace(path: &Path) -> bool {
    let is_array = |metadata: Vec<u8>| {
        serde_json::from_slice(&metadata).is_ok_and(|metadata: Value| metadata["node_type"] == "array")
    };
    !path.exists() || fs::read(path.join("zarr.json")).is_ok_and(is_array)
}

/// Waits until the files are stored. File systems of a network report some errors of a write only then.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { sync(&path)? } else { File::open(&path)?.sync_data()? }
    }
    Ok(())
}

/// Makes a directory by `write`, beside the old one, which it then replaces and removes by `remove`. An error leaves the old one as
/// it was. An old directory that cannot be removed stays under its new name: the next call tries again.
fn replace_directory(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
    remove: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let (number, new) = make_beside(path)?;
    let old = beside(path, "old", number);
    let made = write(&new).and_then(|()| match fs::rename(path, &old) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        moved => fs::rename(&new, path).inspect_err(|_| {
            if moved.is_ok() {
                let _ = fs::rename(&old, path);
            }
        }),
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&new);
        return made;
    }
    for old in (0..=number).map(|number| beside(path, "old", number)) {
        match remove(&old) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("the older array remains at {}: {error}; remove it", old.display());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A hidden name beside `path`, of this process.
fn beside(path: &Path, what: &str, number: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{what}-{}-{number}", std::process::id()))
}

/// Makes the directory `new` with the first number for which neither it nor `old` exists: an earlier save may have left them.
fn make_beside(path: &Path) -> io::Result<(usize, PathBuf)> {
    let mut number = 0;
    loop {
        let new = beside(path, "new", number);
        if fs::symlink_metadata(beside(path, "old", number)).is_err() {
            match fs::create_dir(&new) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| (number, new)),
            }
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arrays_have_chunks_of_whole_rows() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("t.zarr");
        let whole = Whole { element: ElementType::I8, extents: &[5, 16 << 20], bytes: &vec![7; 5 << 24] };
        assert_eq!(whole.chunk(), [4, 16 << 20]);
        whole.save(&path)?;
        let [first, second] = ["c/0/0", "c/1/0"].map(|chunk| fs::read(path.join(chunk)));
        let (first, second) = (first?, second?);
        assert_eq!((first.len(), second.len()), (64 << 20, 64 << 20));
        assert!(first.iter().chain(&second[..1 << 24]).all(|&element| element == 7));
        Ok(())
    }

    #[test]
    fn an_array_without_elements_is_its_metadata() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("t.zarr");
        Whole { element: ElementType::C64, extents: &[0, 3], bytes: &[] }.save(&path)?;
        assert!(may_replace(&path));
        assert_eq!(fs::read_dir(&path)?.count(), 1);
        Ok(())
    }

    #[test]
    fn only_an_array_is_replaced() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let array = folder.path().join("t.zarr");
        let save = |path: &Path, value| {
            Whole { element: ElementType::I8, extents: &[3], bytes: &[value; 3] }.save(path)
        };
        save(&array, 1)?;
        let link = folder.path().join("link.zarr");
        std::os::unix::fs::symlink(&array, &link)?;
        save(&link, 2)?;
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        assert_eq!(fs::read(array.join("c/0"))?, [2; 3]);
        let (group, file) = (folder.path().join("group.zarr"), folder.path().join("file.zarr"));
        fs::create_dir(&group)?;
        fs::write(group.join("zarr.json"), "{\"zarr_format\": 3, \"node_type\": \"group\"}")?;
        // zarr-python copies the metadata of a group's arrays into that of the group.
        let consolidated = folder.path().join("consolidated.zarr");
        fs::create_dir(&consolidated)?;
        let arrays = "\"consolidated_metadata\": {\"metadata\": {\"t\": {\"node_type\": \"array\"}}}";
        fs::write(consolidated.join("zarr.json"), format!("{{{arrays}, \"node_type\": \"group\"}}"))?;
        fs::write(&file, "text")?;
        for other in [&group, &consolidated, &file, &folder.path().to_owned()] {
            assert!(!may_replace(other), "{}", other.display());
        }
        assert!([&array, &link, &folder.path().join("nothing")].into_iter().all(|path| may_replace(path)));
        Ok(())
    }

    #[test]
    fn an_error_leaves_the_older_array() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("t.zarr");
        fs::create_dir(&path)?;
        fs::write(path.join("zarr.json"), "old")?;
        let failed =
            replace_directory(&path, |_| Err(io::Error::other("full")), |old| fs::remove_dir_all(old));
        assert_eq!(failed.map_err(|error| error.to_string()), Err("full".to_owned()));
        assert_eq!(fs::read_to_string(path.join("zarr.json"))?, "old");
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn an_older_array_that_cannot_be_removed_hinders_no_save() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("t.zarr");
        fs::create_dir(&path)?;
        fs::write(path.join("zarr.json"), "0")?;
        let save = |text: &str, remove: fn(&Path) -> io::Result<()>| {
            replace_directory(&path, |new| fs::write(new.join("zarr.json"), text), remove)
        };
        let names = || -> io::Result<usize> { Ok(fs::read_dir(folder.path())?.count()) };
        for text in ["1", "2"] {
            save(text, |_| Err(io::Error::other("not permitted")))?;
            assert_eq!(fs::read_to_string(path.join("zarr.json"))?, text);
        }
        assert_eq!(names()?, 3);
        // What a process with this number has left does not hinder, either.
        fs::create_dir(beside(&path, "new", 2))?;
        save("3", |old| fs::remove_dir_all(old))?;
        assert_eq!(fs::read_to_string(path.join("zarr.json"))?, "3");
        assert_eq!(names()?, 2, "the array, and what the other process has left");
        Ok(())
    }
}
