//! One build for all ranks of a job.

use super::folders::{FolderId, groups};
use super::key::{Hash, Key};
use super::layout::look_again;
use super::process::host_name;
use super::wait::{Ended, Wait};
use super::{BuildFolder, BuildOptions, Built, Cache, CacheError, Entry, transfer};
use halocline_comm::{CommError, Communicator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

/// How long an entry of another node may take to appear. Clients of network file systems keep what they know of a folder for up to 60 s.
const VISIBLE: Duration = Duration::from_secs(90);

/// The first message of a rank to all others.
#[derive(Serialize, Deserialize)]
struct Announced {
    key: Hash,
    /// It has the entry.
    has: bool,
    /// `None`: it has no folder that it could use.
    folder: Option<FolderId>,
    host: Box<str>,
    pid: u32,
}

/// The message of a rank after it has built the library, or has stored the one that it received.
#[derive(Clone, Serialize, Deserialize)]
enum Outcome {
    /// It had nothing to do.
    Nothing,
    Done,
    Failed(Box<str>),
}

/// Decides which ranks build, send and receive; the same on all ranks.
struct Job {
    ranks: Vec<Announced>,
    /// For each rank the lowest rank that shares its folder.
    groups: Vec<Option<usize>>,
}

/// An entry travels between the folders of two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    from: usize,
    to: usize,
}

impl Cache {
    /// As [`Cache::get_or_build`], on all ranks of a job. Collective; ranks may pass different keys.
    ///
    /// One rank builds each key that no rank has. The others wait for its message. Ranks whose folder is another one receive the entry and
    /// keep it there. If all ranks have their entries, this costs one all-gather.
    ///
    /// If the build fails, the rank that builds returns its error, and all others with the key [`CacheError::OtherRank`].
    pub fn get_or_build_on<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        comm: &Communicator,
        key: &Key,
        options: &BuildOptions<'_>,
        build: impl FnOnce(&BuildFolder) -> Result<Built, E>,
    ) -> Result<Entry, CacheError> {
        // An operation that fails must not disturb those of the caller.
        let comm = comm.duplicate()?.within("get_or_build_on");
        let mut own = self.get(key);
        let mut folder = None;
        // Nothing is created if the entry is there.
        if let Ok(None) = own {
            match FolderId::of(&self.layout) {
                Ok(id) => folder = Some(id),
                Err(error) => own = Err(error.of_build(&key.program, &self.layout.root)),
            }
        }
        let has = matches!(own, Ok(Some(_)));
        let announced = Announced { key: key.hash, has, folder, host: host_name(), pid: std::process::id() };
        let ranks: Vec<Announced> = gather(&comm, &announced)?;
        if ranks.iter().all(|rank| rank.has) {
            return own?.ok_or_else(|| self.vanished(key));
        }
        let job = Job::of(&comm, self, ranks)?;
        if job.builder(key.hash) == Some(comm.rank()) {
            own = self.get_or_build(key, options, build).map(Some);
        }
        // A rank that has failed takes part to the end: others may have other keys.
        let shared = self.share(&comm.with_deadline(Some(options.timeout)), &job, key, &mut own);
        match (own, shared) {
            (Ok(None), shared) => shared.and_then(|()| self.visible(key, &job, VISIBLE)),
            (own, shared) => {
                // Other ranks gave up or died; what this rank has does not depend on them.
                if let Err(error) = shared {
                    tracing::warn!("cannot share program {} with all ranks: {error}", key.program);
                }
                own?.ok_or_else(|| self.vanished(key))
            }
        }
    }

    /// Waits for the builds of other ranks, and sends and receives entries. Returns the error of the rank that works for this one.
    fn share(
        &self,
        comm: &Communicator,
        job: &Job,
        key: &Key,
        own: &mut Result<Option<Entry>, CacheError>,
    ) -> Result<(), CacheError> {
        let outcomes = self.outcomes(comm, job, key, own)?;
        let checked = job.check(key, comm.rank(), &outcomes);
        let transfers = job.transfers(&outcomes);
        if transfers.is_empty() {
            return checked;
        }
        let received = self.transfer(comm, job, key, &transfers, own)?;
        let outcomes: Vec<Outcome> = gather(comm, &outcome(&received))?;
        if let Ok(None) = own {
            *own = received;
            // It is as large as one that was built here.
            self.tidy();
        }
        checked.and_then(|()| job.check(key, comm.rank(), &outcomes))
    }

    /// Waits until all builds are over, and tells how this rank's went.
    fn outcomes(
        &self,
        comm: &Communicator,
        job: &Job,
        key: &Key,
        own: &Result<Option<Entry>, CacheError>,
    ) -> Result<Vec<Outcome>, CacheError> {
        let builder = job.builder(key.hash).filter(|&builder| builder != comm.rank());
        let announced =
            if job.builder(key.hash) == Some(comm.rank()) { outcome(own) } else { Outcome::Nothing };
        gather(comm, &announced).map_err(|error| match (error, builder) {
            (CommError::Deadline { after, .. }, Some(builder)) => {
                let Announced { host, pid, .. } = &job.ranks[builder];
                let (program, host) = (key.program.clone(), host.clone());
                CacheError::Waiting { program, host, pid: *pid, after }
            }
            (error, _) => error.into(),
        })
    }

    /// Sends and receives entries, in rounds in which each folder that has one serves another folder. Returns what this rank has received; its error
    /// does not end its part in the rounds.
    fn transfer(
        &self,
        comm: &Communicator,
        job: &Job,
        key: &Key,
        rounds: &[Vec<Transfer>],
        own: &Result<Option<Entry>, CacheError>,
    ) -> Result<Result<Option<Entry>, CacheError>, CommError> {
        let mut received = Ok(None);
        for round in rounds {
            let mine = round.iter().filter(|transfer| transfer.from == comm.rank());
            let sends = mine.map(|transfer| {
                let has = match (own, &received) {
                    (Ok(Some(entry)), _) | (_, Ok(Some(entry))) => Ok(entry.clone()),
                    _ => self.visible(key, job, VISIBLE),
                };
                // An empty message says that there is none; the receiver reports it.
                let packed = has
                    .and_then(|entry| transfer::pack(&entry))
                    .inspect_err(|error| tracing::warn!("{error}"));
                (transfer.to, packed.unwrap_or_default())
            });
            for (_, message) in comm.sparse_exchange(sends.collect())? {
                received = transfer::keep(&self.layout, key.hash, &message)
                    .map_err(|error| error.of_build(&key.program, &self.layout.root))
                    .and_then(|entry| entry.ok_or_else(|| self.vanished(key)))
                    .map(Some);
            }
        }
        Ok(received)
    }

    /// The entry, once the file system shows it: it may take as long as `within`.
    fn visible(&self, key: &Key, job: &Job, within: Duration) -> Result<Entry, CacheError> {
        let options = BuildOptions::default().timeout(within);
        let wait = Wait::begin(&options);
        let entry = self.layout.entry(key.hash);
        loop {
            look_again(entry.parent().unwrap_or(&self.layout.root));
            if let Some(entry) = self.get(key)? {
                return Ok(entry);
            }
            if let Err(Ended::Late(after)) = wait.pause() {
                let Some(builder) = job.ranks.iter().find(|rank| rank.key == key.hash) else {
                    return Err(self.vanished(key));
                };
                let (program, path) = (key.program.clone(), self.layout.root.clone());
                return Err(CacheError::NotVisible {
                    program,
                    path,
                    host: builder.host.clone(),
                    pid: builder.pid,
                    after,
                });
            }
        }
    }
}

impl Job {
    fn of(comm: &Communicator, cache: &Cache, ranks: Vec<Announced>) -> Result<Self, CacheError> {
        // Ranks that have the entry may have to send it, so that their folders count too.
        let own = FolderId::of(&cache.layout).ok();
        let ids: Vec<Option<FolderId>> = gather(comm, &own)?;
        let groups = groups(comm, &cache.layout, &ids)?;
        Ok(Self { ranks, groups })
    }

    /// Ranks with a key, in order.
    fn members(&self, key: Hash) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(move |&rank| self.ranks[rank].key == key)
    }

    /// The rank that builds a key; `None` if some rank has it.
    fn builder(&self, key: Hash) -> Option<usize> {
        if self.members(key).any(|rank| self.ranks[rank].has) {
            return None;
        }
        // Without a folder that it can write, the first rank fails for all.
        let can = |rank: &usize| self.ranks[*rank].folder.is_some();
        self.members(key).find(can).or_else(|| self.members(key).next())
    }

    /// The error of this rank, if the rank that works for it has failed.
    fn check(&self, key: &Key, rank: usize, outcomes: &[Outcome]) -> Result<(), CacheError> {
        let source = |other: &usize| {
            *other != rank
                && (self.builder(key.hash) == Some(*other)
                    || self.groups[*other].is_some() && self.groups[*other] == self.groups[rank])
        };
        for other in self.members(key.hash).filter(source) {
            if let Outcome::Failed(why) = &outcomes[other] {
                let Announced { host, pid, .. } = &self.ranks[other];
                let (program, host, why) = (key.program.clone(), host.clone(), why.clone());
                return Err(CacheError::OtherRank { program, rank: other, host, pid: *pid, why });
            }
        }
        Ok(())
    }

    /// The rounds in which entries travel to the folders that lack them; a key whose build has failed does not.
    fn transfers(&self, outcomes: &[Outcome]) -> Vec<Vec<Transfer>> {
        let keys: BTreeSet<Hash> = self.ranks.iter().map(|rank| rank.key).collect();
        let mut rounds: Vec<Vec<Transfer>> = Vec::new();
        for key in keys {
            // Of each folder one rank: one that has the entry, else the first.
            let (mut holders, mut lacking) = (BTreeMap::new(), BTreeMap::new());
            for rank in self.members(key) {
                let has = self.ranks[rank].has
                    || self.builder(key) == Some(rank) && matches!(outcomes[rank], Outcome::Done);
                // A rank without a folder that it can write serves nobody, and keeps nothing.
                let Some(group) = self.groups[rank].or(has.then_some(rank)) else { continue };
                if has {
                    holders.entry(group).or_insert(rank);
                } else {
                    lacking.entry(group).or_insert(rank);
                }
            }
            lacking.retain(|group, _| !holders.contains_key(group));
            let mut holders: Vec<usize> = holders.into_values().collect();
            let mut lacking: Vec<usize> = lacking.into_values().collect();
            let mut round = 0;
            while !lacking.is_empty() && !holders.is_empty() {
                let served = lacking.split_off(lacking.len().saturating_sub(holders.len()));
                if rounds.len() == round {
                    rounds.push(Vec::new());
                }
                rounds[round].extend(holders.iter().zip(&served).map(|(&from, &to)| Transfer { from, to }));
                holders.extend(served);
                round += 1;
            }
        }
        rounds
    }
}

fn outcome(result: &Result<Option<Entry>, CacheError>) -> Outcome {
    match result {
        Ok(Some(_)) => Outcome::Done,
        Ok(None) => Outcome::Nothing,
        Err(error) => Outcome::Failed(error.to_string().into()),
    }
}

/// Gives a value of every rank to every rank.
fn gather<T: Serialize + DeserializeOwned>(comm: &Communicator, value: &T) -> Result<Vec<T>, CommError> {
    let what = || "the state of the program cache".to_owned();
    let text =
        serde_json::to_vec(value).map_err(|_| CommError::Malformed { from: comm.rank(), what: what() })?;
    let texts = comm.all_gather(text)?;
    let read = |(from, text): (usize, &Vec<u8>)| {
        serde_json::from_slice(text).map_err(|_| CommError::Malformed { from, what: what() })
    };
    texts.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks as (key, has, group).
    fn job(ranks: &[(u8, bool, usize)]) -> Job {
        let announced = |&(key, has, _): &(u8, bool, usize)| Announced {
            key: Hash([key; 32]),
            has,
            folder: None,
            host: "node".into(),
            pid: 1,
        };
        Job {
            ranks: ranks.iter().map(announced).collect(),
            groups: ranks.iter().map(|rank| Some(rank.2)).collect(),
        }
    }

    #[test]
    fn an_entry_that_does_not_appear_is_named_with_its_builder() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::of("wind").finish();
        let mut job = job(&[(1, false, 0)]);
        job.ranks[0].key = key.hash;
        match Cache::at(folder.path()).visible(&key, &job, Duration::ZERO) {
            Err(CacheError::NotVisible { program, path, host, pid: 1, .. }) => {
                assert_eq!((&*program, &*path, &*host), ("wind", folder.path(), "node"));
            }
            other => panic!("instead of a missing entry: {other:?}"),
        }
    }

    /// The ranks that have the entry of their key in the end.
    fn served(job: &Job, outcomes: &[Outcome]) -> Vec<bool> {
        let mut has: Vec<bool> = (0..job.ranks.len())
            .map(|rank| job.ranks[rank].has || matches!(outcomes[rank], Outcome::Done))
            .collect();
        let share = |has: &mut Vec<bool>| {
            for rank in 0..has.len() {
                let other = |other: &usize| {
                    job.groups[*other] == job.groups[rank] && job.ranks[*other].key == job.ranks[rank].key
                };
                has[rank] |= (0..has.len()).filter(other).any(|other| has[other]);
            }
        };
        share(&mut has);
        for round in job.transfers(outcomes) {
            let before = has.clone();
            for Transfer { from, to } in round {
                assert!(before[from] && !before[to], "{from} sends to {to}");
                has[to] = true;
            }
            share(&mut has);
        }
        has
    }

    #[test]
    fn a_shared_folder_needs_no_transfer() {
        let job = job(&[(1, false, 0), (1, false, 0), (1, false, 0)]);
        assert_eq!(job.builder(Hash([1; 32])), Some(0));
        assert!(job.transfers(&[Outcome::Done, Outcome::Nothing, Outcome::Nothing]).is_empty());
    }

    #[test]
    fn each_folder_receives_the_entry_once_and_folders_that_have_it_pass_it_on() {
        let ranks: Vec<_> = (0..40).map(|rank| (1, false, rank / 2 * 2)).collect();
        let job = job(&ranks);
        let mut outcomes = vec![Outcome::Nothing; 40];
        outcomes[0] = Outcome::Done;
        let rounds = job.transfers(&outcomes);
        // Twenty folders: as many as a tree of five levels reaches.
        assert_eq!(rounds.len(), 5);
        assert_eq!(rounds.iter().map(Vec::len).sum::<usize>(), 19);
        assert!(served(&job, &outcomes).iter().all(|has| *has));
    }

    #[test]
    fn different_keys_and_folders_that_have_some_are_served() {
        let ranks = [(1, false, 0), (2, true, 0), (2, false, 2), (3, false, 3), (1, false, 3), (3, false, 2)];
        let job = job(&ranks);
        let builders = [1, 2, 3].map(|key| job.builder(Hash([key; 32])));
        assert_eq!(builders, [Some(0), None, Some(3)]);
        let mut outcomes = vec![Outcome::Nothing; 6];
        (outcomes[0], outcomes[3]) = (Outcome::Done, Outcome::Done);
        assert!(served(&job, &outcomes).iter().all(|has| *has));
        // A build that fails is no reason to keep the others waiting.
        outcomes[0] = Outcome::Failed("no compiler".into());
        let has = served(&job, &outcomes);
        assert_eq!(has, [false, true, true, true, false, true]);
    }
}
