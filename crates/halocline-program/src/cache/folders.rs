//! Which ranks of a job share a cache folder. They find out: each folder gets a file, and the others look whether they see it.

use super::CacheError;
use super::layout::{Layout, create, look_again, paths};
use super::process::{Machine, Process};
use halocline_comm::{CommError, Communicator};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A folder as the kernel of a node knows it. Ranks of one node with the same numbers have the same folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FolderId {
    boot: u64,
    device: u64,
    inode: u64,
}

impl FolderId {
    /// Creates the folder if it is not there.
    pub(super) fn of(layout: &Layout) -> Result<Self, CacheError> {
        create(&layout.root)?;
        let about = fs::metadata(&layout.root).map_err(CacheError::file("read", &layout.root))?;
        Ok(Self { boot: Machine::here().boot, device: about.dev(), inode: about.ino() })
    }
}

/// A file that says that its rank's folder is this one. It is removed when it is dropped.
struct Probe(PathBuf);

impl Probe {
    fn put(layout: &Layout) -> Result<Self, CacheError> {
        create(&layout.probes())?;
        let path = layout.probes().join(Process::this().name());
        File::create_new(&path).map_err(CacheError::file("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Err(error) = super::claim::gone(fs::remove_file(&self.0)) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// For each rank the lowest rank that shares its folder; `None` for ranks without a folder. Collective. `ids`: the folders of all ranks.
pub(super) fn groups(
    comm: &Communicator,
    layout: &Layout,
    ids: &[Option<FolderId>],
) -> Result<Vec<Option<usize>>, CacheError> {
    let mut leaders: HashMap<FolderId, usize> = HashMap::new();
    for (rank, id) in ids.iter().enumerate() {
        if let Some(id) = id {
            leaders.entry(*id).or_insert(rank);
        }
    }
    let leader = |rank: usize| ids[rank].map(|id| leaders[&id]);
    let is_leader = leader(comm.rank()) == Some(comm.rank());
    // A rank that cannot write has a folder of its own, for all that the others know.
    let probe = match is_leader {
        true => Probe::put(layout).inspect_err(|error| tracing::warn!("{error}")).ok(),
        false => None,
    };
    let name = |probe: &Probe| probe.0.file_name().map(|name| name.as_encoded_bytes().to_vec());
    let names = comm.all_gather(probe.as_ref().and_then(name).unwrap_or_default())?;
    let seen = if is_leader { lowest_seen(layout, &names) } else { None };
    // After this nobody looks for the files any more.
    let lowest = comm.all_gather(seen.unwrap_or(comm.rank()) as u64)?;
    drop(probe);
    let of_rank = |rank: usize| leader(rank).and_then(|leader| usize::try_from(lowest[leader]).ok());
    let groups: Vec<Option<usize>> = (0..comm.size()).map(of_rank).collect();
    match groups.iter().position(|group| group.is_some_and(|group| group >= comm.size())) {
        Some(from) => {
            Err(CommError::Malformed { from, what: "the cache folders of ranks".to_owned() }.into())
        }
        None => Ok(groups),
    }
}

/// The lowest rank whose file is in this rank's folder.
fn lowest_seen(layout: &Layout, names: &[Vec<u8>]) -> Option<usize> {
    look_again(&layout.probes());
    let found = paths(&layout.probes()).inspect_err(|error| tracing::warn!("{error}")).ok()?;
    let found: Vec<&[u8]> =
        found.iter().filter_map(|path| path.file_name()).map(|name| name.as_encoded_bytes()).collect();
    names.iter().position(|name| !name.is_empty() && found.contains(&&name[..]))
}
