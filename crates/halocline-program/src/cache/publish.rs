//! From the files of a build to an entry: hashed, written to the disk, renamed into place.

use super::CacheError;
use super::entry::{BuiltBy, Entry, Found, KeptFile, Record, is_relative};
use super::key::{Hash, Key};
use super::layout::{Layout, RECORD, create, look_again};
use super::process::Process;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder of a build. It is empty at first and private to the build. It is removed when the build is over.
///
/// ```
/// use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
///
/// # let folder = tempfile::tempdir()?;
/// let compile = |folder: &BuildFolder| -> std::io::Result<Built> {
///     std::fs::write(folder.path().join("heat.c"), "void heat(double *t) { t[0] = 1.0; }")?;
///     let status = folder.command("cc").args(["-shared", "-fPIC", "heat.c", "-o", "libheat.so"]).status()?;
///     assert!(status.success());
///     Ok(Built::new("libheat.so"))
/// };
/// let key = Key::of("heat").part("source", "heat.c").finish();
/// let entry = Cache::at(folder.path()).get_or_build(&key, &BuildOptions::default(), compile)?;
/// assert!(entry.library().is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BuildFolder {
    /// The process that has made it.
    pid: u32,
    root: PathBuf,
    work: PathBuf,
}

impl BuildFolder {
    pub(super) fn make(layout: &Layout) -> Result<Self, CacheError> {
        let this = Process::this();
        let root = layout.builds().join(this.name());
        let folder = Self { pid: this.pid, work: root.join("work"), root };
        for part in ["work", "tmp", "entry"] {
            create(&folder.root.join(part))?;
        }
        Ok(folder)
    }

    /// The folder that becomes the entry.
    pub(super) fn staged(&self) -> PathBuf {
        self.root.join("entry")
    }

    /// Where the build writes its files.
    pub fn path(&self) -> &Path {
        &self.work
    }

    /// A command of the build, in its folder. It sees no GPU: its target is an argument, not detected. Its temporary files lie beside
    /// the build folder and are removed with it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.work).envs(self.variables());
        command
    }

    /// The environment variables that [`BuildFolder::command`] sets.
    pub fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("CUDA_VISIBLE_DEVICES", PathBuf::new()), ("TMPDIR", self.root.join("tmp"))]
    }
}

impl Drop for BuildFolder {
    fn drop(&mut self) {
        // A forked child leaves it to its parent.
        if self.pid == std::process::id()
            && let Err(error) = super::claim::remove(&self.root)
        {
            tracing::warn!("cannot remove {}: {error}", self.root.display());
        }
    }
}

/// The products of a build: the library and other files, by their paths in the build folder.
///
/// ```
/// use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
///
/// # let folder = tempfile::tempdir()?;
/// let build = |folder: &BuildFolder| -> std::io::Result<Built> {
///     std::fs::write(folder.path().join("libheat.so"), "from a compiler")?;
///     std::fs::write(folder.path().join("libheat.so.json"), "the manifest")?;
///     Ok(Built::new("libheat.so").with("libheat.so.json"))
/// };
/// let key = Key::of("heat").finish();
/// let entry = Cache::at(folder.path()).get_or_build(&key, &BuildOptions::default(), build)?;
/// assert_eq!(entry.files().count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Built {
    pub(super) library: PathBuf,
    pub(super) others: Vec<PathBuf>,
}

impl Built {
    /// The library.
    pub fn new(library: impl Into<PathBuf>) -> Self {
        Self { library: library.into(), others: Vec::new() }
    }

    /// Another file that the entry keeps, such as the manifest of the library.
    #[must_use]
    pub fn with(mut self, file: impl Into<PathBuf>) -> Self {
        self.others.push(file.into());
        self
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.library].into_iter().chain(&self.others).map(PathBuf::as_path)
    }
}

/// Makes an entry of the files of a build. If there is one already, it stays.
pub(super) fn publish(
    layout: &Layout,
    key: &Key,
    folder: &BuildFolder,
    built: &Built,
    took: Duration,
) -> Result<Entry, CacheError> {
    let staged = folder.staged();
    let mut files = Vec::new();
    for path in built.files() {
        let name = usable(key, path)?;
        if files.iter().any(|file: &KeptFile| &*file.path == name) {
            continue;
        }
        files.push(stage(key, folder, &staged, path, name)?);
    }
    let this = Process::this();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let record = Record {
        format: Record::FORMAT,
        key: key.hash,
        program: key.program.clone(),
        parts: key.parts.clone(),
        library: usable(key, &built.library)?.into(),
        files,
        built: BuiltBy { host: this.host, pid: this.pid, at, seconds: took.as_secs_f64() },
    };
    place(layout, &staged, &record)
}

/// Writes the record to a folder with its files, and renames it to the place of the entry.
pub(super) fn place(layout: &Layout, staged: &Path, record: &Record) -> Result<Entry, CacheError> {
    let path = staged.join(RECORD);
    let bytes = record.to_bytes().map_err(io::Error::from).map_err(CacheError::file("write", &path))?;
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o644).open(&path)?;
        file.write_all(&bytes)?;
        // Whatever the umask is.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        fs::set_permissions(staged, Permissions::from_mode(0o755))?;
        File::open(staged)?.sync_all()
    };
    write().map_err(CacheError::file("write", &path))?;
    let entry = layout.entry(record.key);
    let parent = entry.parent().unwrap_or(&layout.root);
    create(parent)?;
    for is_last in [false, true] {
        let is_ours = match fs::rename(staged, &entry) {
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                false
            }
            other => other.map(|()| true).map_err(CacheError::file("rename to", &entry))?,
        };
        look_again(parent);
        match layout.find(record.key)? {
            Found::Whole(entry) => return Ok(entry),
            Found::Foreign => {
                return Err(CacheError::Foreign { program: record.program.clone(), path: entry });
            }
            // Another process has removed it.
            Found::Nothing | Found::Damaged(_) if is_ours => break,
            // Replaces a damaged entry.
            Found::Damaged(why) if !is_last => {
                tracing::warn!("replaces the entry {}: {why}", entry.display());
                layout.discard(&entry)?;
            }
            Found::Nothing | Found::Damaged(_) => {}
        }
    }
    let removed = io::Error::new(ErrorKind::NotFound, "it was removed as soon as it was there");
    Err(CacheError::file("keep", &entry)(removed))
}

/// The name of a file in an entry.
fn usable<'a>(key: &Key, path: &'a Path) -> Result<&'a str, CacheError> {
    let refuse = |why| CacheError::Output { program: key.program.clone(), path: path.to_owned(), why };
    if !is_relative(path) {
        return Err(refuse("is not inside the build folder"));
    }
    if path == Path::new(RECORD) {
        return Err(refuse("has the name of the entry's own record"));
    }
    path.to_str().ok_or_else(|| refuse("has a name that is not UTF-8"))
}

/// Copies a file of a build to the folder that becomes the entry.
fn stage(
    key: &Key,
    folder: &BuildFolder,
    staged: &Path,
    path: &Path,
    name: &str,
) -> Result<KeptFile, CacheError> {
    let (from, to) = (folder.work.join(path), staged.join(path));
    let refuse = |why| CacheError::Output { program: key.program.clone(), path: path.to_owned(), why };
    // Of the target, if it is a link.
    let about = match from.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(refuse("does not exist")),
        about => about.map_err(CacheError::file("read", &from))?,
    };
    if !about.is_file() {
        return Err(refuse("is no regular file"));
    }
    if let Some(parent) = to.parent() {
        create(parent)?;
        trust(staged, parent)?;
    }
    let written = || {
        // Not moved: several names may lead to one file, also to one outside the folder.
        fs::copy(&from, &to)?;
        let file = File::open(&to)?;
        let is_executable = about.permissions().mode() & 0o100 != 0;
        file.set_permissions(Permissions::from_mode(if is_executable { 0o755 } else { 0o644 }))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file)?;
        // Some file systems report a full disk only here.
        file.sync_all()?;
        Ok(KeptFile {
            path: name.into(),
            bytes: file.metadata()?.len(),
            hash: Hash(*hasher.finalize().as_bytes()),
        })
    };
    written().map_err(CacheError::file("write", &to))
}

/// Lets nobody else write the folders between `staged` and `folder`.
pub(super) fn trust(staged: &Path, folder: &Path) -> Result<(), CacheError> {
    for folder in folder.ancestors().take_while(|folder| *folder != staged) {
        fs::set_permissions(folder, Permissions::from_mode(0o755))
            .map_err(CacheError::file("write", folder))?;
    }
    Ok(())
}
