//! A global array as a Zarr version 3 array, which zarr-python reads
//! (<https://zarr-specs.readthedocs.io/en/latest/v3/core/>): a directory of metadata and chunks without compression.
//!
//! This is a header and the elements in C order. The crate `zarrs` would bring its stores, codecs and some hundred crates.

use halocline_plan::ElementType;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Most bytes of a chunk.
const CHUNK: usize = 64 << 20;

/// Writes the array. It replaces an older one, or whatever is there, once it is complete; an error leaves that as it was. A symbolic link is
/// followed.
pub(crate) fn write(path: &Path, metadata: &str, chunk: &Chunk, elements: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    let write = |aside: &Path| {
        for (number, piece) in elements.chunks(chunk.bytes).enumerate() {
            let mut file = aside.join("c").join(number.to_string());
            chunk.extents.iter().skip(1).for_each(|_| file.push("0"));
            fs::create_dir_all(file.parent().unwrap_or(aside))?;
            fs::write(&file, piece)?;
            let file = fs::OpenOptions::new().write(true).open(&file)?;
            // Chunks have one size; the rest of the last one is never read.
            file.set_len(chunk.bytes as u64)?;
            file.sync_data()?;
        }
        fs::write(aside.join("zarr.json"), metadata)
    };
    replace_directory(&path, write, |old| fs::remove_dir_all(old))
}

/// Whether an array may be written there: nothing is there, or a Zarr array of version 3. A group holds the arrays of others.
pub(crate) fn may_replace(path: &Path) -> bool {
    let is_array = |metadata: Vec<u8>| {
        serde_json::from_slice(&metadata).is_ok_and(|metadata: Value| metadata["node_type"] == "array")
    };
    !path.exists() || fs::read(path.join("zarr.json")).is_ok_and(is_array)
}

/// Chunks of whole rows of the first axis.
pub(crate) struct Chunk {
    extents: Vec<usize>,
    bytes: usize,
}

impl Chunk {
    pub(crate) fn of(element: ElementType, extents: &[usize]) -> Self {
        let mut extents: Vec<usize> = extents.iter().map(|&extent| extent.max(1)).collect();
        let row = extents.iter().skip(1).product::<usize>() * element.size();
        extents.iter_mut().take(1).for_each(|rows| *rows = (*rows).min((CHUNK / row).max(1)));
        let bytes = extents.iter().product::<usize>() * element.size();
        Self { extents, bytes }
    }
}

/// Whether Zarr has an element type.
pub(crate) fn has(element: ElementType) -> bool {
    zarr_type(element).is_some()
}

/// The metadata, unless Zarr has no such element type.
pub(crate) fn metadata(element: ElementType, extents: &[usize], chunk: &Chunk) -> Option<String> {
    let (data_type, zero) = zarr_type(element)?;
    let metadata = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": extents,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk.extents}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "fill_value": zero,
        "attributes": {},
    });
    Some(metadata.to_string())
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

/// The type as Zarr spells it, and its zero.
fn zarr_type(element: ElementType) -> Option<(&'static str, Value)> {
    Some(match element {
        ElementType::Bool => ("bool", Value::from(false)),
        ElementType::I8 => ("int8", 0.into()),
        ElementType::U8 => ("uint8", 0.into()),
        ElementType::I16 => ("int16", 0.into()),
        ElementType::U16 => ("uint16", 0.into()),
        ElementType::F16 => ("float16", 0.0.into()),
        ElementType::I32 => ("int32", 0.into()),
        ElementType::U32 => ("uint32", 0.into()),
        ElementType::F32 => ("float32", 0.0.into()),
        ElementType::I64 => ("int64", 0.into()),
        ElementType::U64 => ("uint64", 0.into()),
        ElementType::F64 => ("float64", 0.0.into()),
        ElementType::C64 => ("complex64", json!([0.0, 0.0])),
        ElementType::C128 => ("complex128", json!([0.0, 0.0])),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arrays_have_chunks_of_whole_rows() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (path, extents) = (folder.path().join("t.zarr"), [5, 16 << 20]);
        let chunk = Chunk::of(ElementType::I8, &extents);
        assert_eq!(chunk.extents, [4, 16 << 20]);
        let metadata = metadata(ElementType::I8, &extents, &chunk).expect("int8");
        write(&path, &metadata, &chunk, &vec![7; 5 << 24])?;
        let [first, second] = ["c/0/0", "c/1/0"].map(|chunk| fs::read(path.join(chunk)));
        let (first, second) = (first?, second?);
        assert_eq!((first.len(), second.len()), (64 << 20, 64 << 20));
        assert!(first.iter().chain(&second[..1 << 24]).all(|&element| element == 7));
        Ok(())
    }

    #[test]
    fn only_an_array_is_replaced() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (array, chunk) = (folder.path().join("t.zarr"), Chunk::of(ElementType::I8, &[3]));
        let metadata = metadata(ElementType::I8, &[3], &chunk).expect("int8");
        let save = |path: &Path, value| write(path, &metadata, &chunk, &[value; 3]);
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
