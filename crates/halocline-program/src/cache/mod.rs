//! The cache of compiled programs: each is built once, for all processes that share a folder.
//!
//! ```no_run
//! use halocline_program::Program;
//! use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let source = std::fs::read("heat.c")?;
//! let key = Key::of("heat").part("source", &source).part("compiler", "gcc 12.2.0").part("flags", "-O3").part("target", "x86-64-v3").finish();
//! let compile = |folder: &BuildFolder| -> std::io::Result<Built> {
//!     std::fs::write(folder.path().join("heat.c"), &source)?;
//!     std::fs::copy("libheat.so.json", folder.path().join("libheat.so.json"))?;
//!     let status = folder.command("gcc").args("-O3 -march=x86-64-v3 -shared -fPIC heat.c -o libheat.so".split(' ')).status()?;
//!     if !status.success() {
//!         return Err(std::io::Error::other(format!("gcc: {status}")));
//!     }
//!     Ok(Built::new("libheat.so").with("libheat.so.json"))
//! };
//! let entry = Cache::of_user()?.get_or_build(&key, &BuildOptions::default(), compile)?;
//! // SAFETY: the library was built with the manifest beside it.
//! let heat = unsafe { Program::load(entry.library()) }?;
//! # Ok(()) }
//! ```
//!
//! An entry is a folder with the library, other files, and a record with their lengths and hashes. It appears by one rename, so that no
//! process sees a part of it. Reading takes no lock and checks the record, the lengths and the owner of each file.
//!
//! One process builds a key at a time, and the others wait for its entry. Locks of files are not used: they fail on some network file
//! systems. A builder may be killed at any moment: nothing that it wrote is loaded, and another process builds instead. On one host the
//! kernel says whether a builder still runs. A builder on another host counts as dead if it gives no sign of life for 90 seconds.
//!
//! Nothing is created before the first build. A folder that cannot be written serves its entries, and a build is refused
//! ([`CacheError::ReadOnly`]). Each build removes what killed builds left.

mod claim;
mod entry;
mod error;
mod folders;
mod job;
mod key;
mod layout;
mod maintain;
mod process;
mod publish;
mod slots;
mod transfer;
mod wait;

pub use entry::{BuiltBy, Entry, KeptFile, Record};
pub use error::CacheError;
pub use key::{Hash, Key, KeyBuilder, Part};
pub use maintain::{Contents, Damaged, Filter};
pub use publish::{BuildFolder, Built};
pub use wait::BuildOptions;

use claim::{Attempt, Claim, Heartbeat, Watch};
use entry::Found;
use halocline_device::{Bytes, Variable};
use layout::{Layout, create, look_again};
use slots::{Busy, Slot};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wait::{Ended, Wait};

/// A folder of compiled programs.
///
/// ```
/// use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
///
/// # let folder = tempfile::tempdir()?;
/// let cache = Cache::at(folder.path()).limit(Some(1 << 30)); // `Cache::of_user()?`: the folder of this user
/// let key = Key::of("heat").part("flags", "-O3").finish();
/// assert!(cache.get(&key)?.is_none());
///
/// let build = |folder: &BuildFolder| -> std::io::Result<Built> {
///     std::fs::write(folder.path().join("libheat.so"), "from a compiler")?;
///     Ok(Built::new("libheat.so"))
/// };
/// let entry = cache.get_or_build(&key, &BuildOptions::default(), build)?;
/// assert_eq!(cache.get(&key)?.map(|found| found.library()), Some(entry.library()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    layout: Layout,
    heartbeat: Heartbeat,
    limit: Option<u64>,
}

impl Cache {
    /// The default of [`Cache::limit`]: 10 GiB.
    pub const LIMIT: u64 = 10 << 30;

    /// The cache in a folder, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let layout = Layout { root: folder.into() };
        Self { layout, heartbeat: Heartbeat::default(), limit: Some(Self::LIMIT) }
    }

    /// The cache of this user: `programs` in the folder that `HALOCLINE_CACHE` names, else in `halocline` in `XDG_CACHE_HOME` or `~/.cache`.
    /// `HALOCLINE_CACHE_LIMIT` is its limit.
    pub fn of_user() -> Result<Self, CacheError> {
        let folder = halocline_device::cuda::cache_directory().ok_or(CacheError::NoFolder)?;
        let cache = Self::at(folder.join("programs"));
        Ok(match Variable::read("HALOCLINE_CACHE_LIMIT").map(Variable::bytes).transpose()? {
            None | Some(Bytes::Auto) => cache,
            Some(Bytes::None) => cache.limit(None),
            Some(Bytes::Number(bytes)) => cache.limit(Some(bytes as u64)),
        })
    }

    /// The same cache, in which a build evicts entries beyond so many bytes; `None`: never.
    #[must_use]
    pub fn limit(self, bytes: Option<u64>) -> Self {
        Self { limit: bytes, ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.layout.root
    }

    /// The entry of a key, if there is a whole one. Never waits.
    pub fn get(&self, key: &Key) -> Result<Option<Entry>, CacheError> {
        match self.layout.find(key.hash)? {
            Found::Whole(entry) => {
                entry.note_use();
                Ok(Some(entry))
            }
            Found::Nothing => Ok(None),
            Found::Damaged(why) => {
                tracing::warn!("does not load {}: {why}", self.layout.entry(key.hash).display());
                Ok(None)
            }
            Found::Foreign => {
                Err(CacheError::Foreign { program: key.program.clone(), path: self.layout.entry(key.hash) })
            }
        }
    }

    /// The entry of a key; if there is none, builds it, or waits while another process or thread does.
    ///
    /// `build` writes its files to the folder that it gets, and returns their paths in it. It runs in this thread, with one of the build
    /// slots that the node has for this cache folder. Run compilers with [`BuildFolder::command`]. It may get other programs from the cache,
    /// and build them with its own slot.
    pub fn get_or_build<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        key: &Key,
        options: &BuildOptions<'_>,
        build: impl FnOnce(&BuildFolder) -> Result<Built, E>,
    ) -> Result<Entry, CacheError> {
        if let Some(entry) = self.get(key)? {
            return Ok(entry);
        }
        if slots::builds_here(key) {
            return Err(CacheError::Itself { program: key.program.clone() });
        }
        let built = || {
            let Some((claim, slot)) = self.claim(key, options)? else { return self.get(key) };
            let entry = self.build(key, build)?;
            drop((claim, slot));
            self.tidy();
            Ok(Some(entry))
        };
        let built = built().map_err(|error: CacheError| error.of_build(&key.program, &self.layout.root))?;
        built.ok_or_else(|| self.vanished(key))
    }

    /// The error for an entry that was there.
    fn vanished(&self, key: &Key) -> CacheError {
        let removed = std::io::Error::other("it was removed as soon as it was built");
        CacheError::file("read", &self.layout.entry(key.hash))(removed)
    }

    /// The right to build a key, and a slot for that; `None` once there is an entry.
    fn claim(&self, key: &Key, options: &BuildOptions<'_>) -> Result<Option<(Claim, Slot)>, CacheError> {
        create(&self.layout.claims())?;
        let (wait, mut watch, mut slots) = (Wait::begin(options), Watch::default(), Watch::default());
        let entry = self.layout.entry(key.hash);
        let shelf = entry.parent().unwrap_or(&self.layout.root);
        loop {
            let attempt = claim::attempt(&self.layout.claim(key.hash), self.heartbeat, &mut watch)?;
            // Its last owner may have built the entry since.
            look_again(shelf);
            if self.get(key)?.is_some() {
                return Ok(None);
            }
            let busy = match attempt {
                Attempt::By(owner) => Busy::Builder(owner),
                Attempt::Held(mut claim) => {
                    match slots::take(&self.layout, key, options, (self.heartbeat, &mut slots))? {
                        Ok(slot) => {
                            claim.keep_alive(self.heartbeat);
                            return Ok(Some((claim, slot)));
                        }
                        // It does not wait with the claim: a build that has a slot may ask for this program.
                        Err(busy) => busy,
                    }
                }
            };
            wait.pause().map_err(|ended| match ended {
                Ended::Interrupted => CacheError::Interrupted { program: key.program.clone() },
                Ended::Late(after) => busy.error(key, after),
            })?;
        }
    }

    fn build<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        key: &Key,
        build: impl FnOnce(&BuildFolder) -> Result<Built, E>,
    ) -> Result<Entry, CacheError> {
        let folder = BuildFolder::make(&self.layout)?;
        tracing::info!("builds program {} in {}", key.program, folder.path().display());
        let begin = Instant::now();
        let failed = |error: E| CacheError::Build { program: key.program.clone(), source: error.into() };
        let built = build(&folder).map_err(failed)?;
        publish::publish(&self.layout, key, &folder, &built, begin.elapsed())
    }

    /// After a build: removes what killed builds left, and entries beyond the limit. The program is built whatever becomes of that.
    fn tidy(&self) {
        let evicted = self.sweep().and_then(|()| self.limit.map(|limit| self.evict(limit)).transpose());
        match evicted {
            Ok(None) => {}
            Ok(Some(evicted)) => evicted.iter().for_each(|entry| {
                tracing::info!(
                    "has evicted {} of program {}",
                    entry.folder().display(),
                    entry.record().program
                );
            }),
            Err(error) => tracing::warn!("cannot tidy: {error}"),
        }
    }
}
