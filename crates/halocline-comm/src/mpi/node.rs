//! Ranks of one node find each other: they introduce themselves over MPI. The first of them hands
//! the others the control segment of a job; then all of them are ranks of the shm transport, too.
//! Ranks in different containers of one node count as ranks of different nodes.
//!
//! A rank that dies before the introduction ends is not noticed: the introduction uses collective calls of MPI, which wait for
//! every rank of the node. Launchers normally end the job then; with `--enable-recovery` the other ranks
//! wait. As ranks of the shm transport they see each other die.

use super::channel::{introduce, split_node};
use super::engine::{INTRODUCTION, Wire};
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::Inbox;
use crate::shm::{JoinedJob, ShmTransport, handover};
use crate::transport::Cores;
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use std::sync::Arc;

/// The ranks of this node, as one of them sees it.
pub(super) struct Node {
    /// Their ranks, ascending, this one included.
    pub ranks: Vec<usize>,
    /// Their transport, or why they share no memory.
    pub shm: Result<ShmTransport, String>,
    /// How many cores there are for them.
    pub cores: Cores,
}

const CORE_WORDS: usize = 12;

/// The description of a rank that it sends to the others of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Introduction {
    rank: usize,
    /// Whether it wants shared memory.
    wanted: bool,
    /// Whether its last step succeeded.
    good: bool,
    /// Its network and process namespaces: sockets and process ids mean the same within one only.
    namespaces: [u64; 2],
    token: [u8; 16],
    /// Its process, within that namespace.
    pid: u64,
    /// Cores that it may run on, a bit each.
    cores: [u64; CORE_WORDS],
}

impl Introduction {
    fn of(rank: usize, wanted: bool) -> Self {
        let namespace =
            |name: &str| rustix::fs::stat(format!("/proc/self/ns/{name}")).map_or(0, |stat| stat.st_ino);
        let mut cores = [0; CORE_WORDS];
        if let Ok(mask) = rustix::thread::sched_getaffinity(None) {
            for (at, word) in cores.iter_mut().enumerate() {
                *word = (0..64).filter(|bit| mask.is_set(64 * at + bit)).fold(0, |bits, bit| bits | 1 << bit);
            }
        }
        let namespaces = [namespace("net"), namespace("pid")];
        let pid = std::process::id().into();
        Self { rank, wanted, good: true, namespaces, token: [0; 16], pid, cores }
    }

    fn encode(&self) -> [u8; INTRODUCTION] {
        let token = u128::from_le_bytes(self.token);
        let mut words = vec![self.rank as u64, self.wanted.into(), self.good.into()];
        words.extend(self.namespaces);
        words.extend([token as u64, (token >> 64) as u64]);
        words.extend(self.cores);
        words.push(self.pid);
        let mut bytes = [0; INTRODUCTION];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; INTRODUCTION]) -> Self {
        let word = |at: usize| bytes.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            rank: word(0) as usize,
            wanted: word(1) != 0,
            good: word(2) != 0,
            namespaces: [word(3), word(4)],
            token: (u128::from(word(5)) | u128::from(word(6)) << 64).to_le_bytes(),
            cores: std::array::from_fn(|at| word(7 + at)),
            pid: word(7 + CORE_WORDS),
        }
    }

    /// Its process.
    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

/// Finds the ranks of this node. If all of them want it, they share memory, in groups of at most `most`.
/// Collective over them, blocks.
pub(super) fn connect(
    wire: &mut dyn Wire,
    rank: usize,
    (wanted, most): (bool, usize),
    inbox: &Arc<Inbox>,
    host: &Arc<dyn Host>,
) -> Result<Node, CommError> {
    let mut handshake = Handshake { wire, mine: Introduction::of(rank, wanted) };
    let mut all = handshake.round()?;
    let usable = |at: usize| all.iter().fold(0, |bits, one| bits | one.cores[at]).count_ones() as usize;
    let cores = Cores::of(&crate::host::System, all.len(), (0..CORE_WORDS).map(usable).sum());
    let groups = groups(&all, most);
    if let Some(at) = all.iter().position(|one| one.rank == rank)
        && groups.iter().any(|&group| group != groups[0])
    {
        split_node(handshake.wire, groups[at])?;
        all = handshake.round()?;
    }
    let ranks: Vec<usize> = all.iter().map(|one| one.rank).collect();
    let slot = ranks.iter().position(|&known| known == rank).unwrap_or(0);
    if let Err(why) = obstacle(&all) {
        return Ok(Node { ranks, shm: Err(why.to_owned()), cores });
    }
    let shm = match handshake.hand_over(slot, ranks.len())? {
        Ok((control, token)) => {
            let job = JoinedJob { rank: slot, size: ranks.len(), token, control };
            Ok(ShmTransport::join(job, ranks.clone(), Arc::clone(inbox), Arc::clone(host))?)
        }
        Err(why) => {
            tracing::warn!("rank {rank}: the ranks of this node share no memory: {why}");
            Err(why)
        }
    };
    Ok(Node { ranks, shm, cores })
}

/// A group number for each rank; ranks of one group can share memory: at most `most` of one container.
fn groups(all: &[Introduction], most: usize) -> Vec<i32> {
    let group = |at: usize, one: &Introduction| {
        let alike = |other: &&Introduction| other.namespaces == one.namespaces;
        let first = all.iter().position(|other| alike(&other)).unwrap_or(at);
        let before = all[..at].iter().filter(alike).count();
        // Numbers of different containers differ: each has at most one a rank.
        (first * all.len() + before / most.max(1)) as i32
    };
    all.iter().enumerate().map(|(at, one)| group(at, one)).collect()
}

/// Why these ranks cannot share memory; the same on all of them.
fn obstacle(all: &[Introduction]) -> Result<(), &'static str> {
    match all {
        [] | [_] => Err("they are on different nodes"),
        _ if all.iter().all(|one| one.wanted) => Ok(()),
        _ => Err("shared memory is off for them (node-aware is off)"),
    }
}

struct Handshake<'a> {
    wire: &'a mut dyn Wire,
    mine: Introduction,
}

impl Handshake<'_> {
    fn round(&mut self) -> Result<Vec<Introduction>, CommError> {
        let all = introduce(self.wire, &self.mine.encode())?;
        Ok(all.iter().map(Introduction::decode).collect())
    }

    /// The control segment and the token of a job of these ranks; the same outcome on all of them.
    fn hand_over(
        &mut self,
        slot: usize,
        size: usize,
    ) -> Result<Result<(OwnedFd, [u8; 16]), String>, CommError> {
        let offer = (slot == 0).then(|| handover::Offer::new(size));
        match &offer {
            Some(Ok(offer)) => self.mine.token = *offer.job().token(),
            Some(Err(_)) => self.mine.good = false,
            None => {}
        }
        let all = self.round()?;
        let first = all.first().filter(|first| first.good);
        let processes: Vec<Option<Pid>> = all.iter().map(Introduction::process).collect();
        let control = match (offer, first.and_then(|first| Some((&first.token, first.process()?)))) {
            (Some(Ok(offer)), _) => offer.give(processes.into_iter().skip(1).flatten().collect()),
            (Some(Err(error)), _) => return Ok(Err(error.to_string())),
            (None, Some((token, from))) => handover::take(token, from),
            (None, None) => return Ok(Err("the first rank of this node cannot make a job".to_owned())),
        };
        self.mine.good = control.is_ok();
        let failed = self.round()?.into_iter().find(|one| !one.good);
        let token = first.map_or([0; 16], |first| first.token);
        Ok(match (control, failed) {
            (Ok(control), None) => Ok((control, token)),
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), Some(one)) => Err(format!("rank {} cannot take the control segment", one.rank)),
        })
    }
}

/// Decodes arbitrary introductions and groups their ranks.
#[cfg(fuzzing)]
pub(super) fn fuzz(introductions: &[[u8; INTRODUCTION]], most: usize) {
    let all: Vec<Introduction> = introductions.iter().map(Introduction::decode).collect();
    for one in &all {
        assert_eq!(Introduction::decode(&one.encode()), *one);
        assert!(one.process().is_none_or(|process| process.as_raw_nonzero().get() > 0));
    }
    let _ = obstacle(&all);
    let groups = groups(&all, most);
    for (one, group) in all.iter().zip(&groups) {
        let mates = all.iter().zip(&groups).filter(|(_, theirs)| *theirs == group);
        assert!(mates.clone().all(|(mate, _)| mate.namespaces == one.namespaces));
        assert!(mates.count() <= most.max(1));
    }
}

/// Introductions as ranks make them.
#[cfg(fuzzing)]
pub(super) fn introduced() -> Vec<[u8; INTRODUCTION]> {
    (0..4).map(|rank| Introduction::of(rank, rank != 3).encode()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_survives_encoding() {
        let mut sent = Introduction::of(7, true);
        sent.token = std::array::from_fn(|at| at as u8 * 17);
        sent.good = false;
        assert_eq!(Introduction::decode(&sent.encode()), sent);
        assert!(sent.cores.iter().any(|&word| word != 0) && sent.namespaces.iter().all(|&name| name != 0));
    }

    #[test]
    fn ranks_share_memory_only_if_all_want_it_and_can_reach_each_other() {
        let of = |rank| Introduction::of(rank, true);
        assert_eq!(obstacle(&[of(0), of(3)]), Ok(()));
        assert!(obstacle(&[of(0)]).is_err());
        assert!(
            obstacle(&[of(0), Introduction { wanted: false, ..of(1) }]).unwrap_err().contains("node-aware")
        );
        let apart = |rank| Introduction { namespaces: [1, 2], ..of(rank) };
        assert_eq!(groups(&[of(0), of(1), of(2)], 8), [0, 0, 0]);
        assert_eq!(groups(&[of(0), of(1), of(2)], 2), [0, 0, 1]);
        let mixed = groups(&[of(0), apart(1), of(2), apart(3), of(4)], 2);
        assert!(mixed[0] == mixed[2] && mixed[1] == mixed[3], "{mixed:?}");
        assert!(mixed[0] != mixed[1] && mixed[4] != mixed[0] && mixed[4] != mixed[1], "{mixed:?}");
    }
}
