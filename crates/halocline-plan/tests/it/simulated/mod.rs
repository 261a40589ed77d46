//! Ranks without a transport: the states of the directory on all ranks, with messages delivered directly;
//! and a small random number generator.
// Each test file that includes this module uses a part of it.
#![allow(dead_code)]

use halocline_plan::directory::{Directory, Messages};
use halocline_plan::{Cells, PatternPlan, UnstructuredDomain, UnstructuredError};
use std::collections::BTreeMap;

/// A reproducible sequence (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// What one rank gets: its pattern, its own error, or (`None`) word of an error elsewhere.
pub type Outcome = Result<PatternPlan, Option<UnstructuredError>>;

/// Sees every message, as (step, from, to, bytes), before it is delivered; may change it.
pub type Tamper<'a> = &'a mut dyn FnMut(usize, usize, usize, &mut Vec<u8>);

/// Runs the directory over `ranks`, the domains of each rank.
pub fn resolve(ranks: &[Vec<UnstructuredDomain>]) -> Vec<Outcome> {
    resolve_tampered(ranks, &mut |_, _, _, _| {})
}

/// Runs the directory while somebody changes the messages. As in the driver, a rank that found an
/// error sends nothing more, and all ranks agree after the steps that can fail.
pub fn resolve_tampered(ranks: &[Vec<UnstructuredDomain>], tamper: Tamper<'_>) -> Vec<Outcome> {
    let size = ranks.len();
    let started = ranks.iter().enumerate().map(|(rank, domains)| Directory::new(rank, size, domains));
    resolve_started(started.collect(), tamper)
}

/// As [`resolve_tampered`], from directories that were started.
pub fn resolve_started(started: Vec<Step<Directory>>, tamper: Tamper<'_>) -> Vec<Outcome> {
    let (size, mut step) = (started.len(), 0);
    let mut route = |sends: Vec<Messages>| {
        step += 1;
        route(size, sends, |from, to, bytes| tamper(step, from, to, bytes))
    };
    let started = match agree(started) {
        Ok(started) => started,
        Err(outcomes) => return outcomes,
    };
    let bounds = started
        .iter()
        .map(Directory::bounds)
        .fold([u64::MAX; 4], |all, one| std::array::from_fn(|at| all[at].min(one[at])));
    let counts = started
        .iter()
        .map(Directory::counts)
        .fold([0; 2], |all, one| std::array::from_fn(|at| all[at] + one[at]));
    let (registered, sends): (Vec<_>, Vec<_>) =
        started.into_iter().map(|rank| rank.register(bounds, counts)).unzip();
    let (replied, sends) =
        split(registered.into_iter().zip(route(sends)).map(|(rank, received)| rank.reply(&received)));
    let (requested, sends) =
        split(replied.into_iter().zip(route(sends)).map(|(rank, received)| rank?.request(&received)));
    let requested = match agree(requested) {
        Ok(requested) => requested,
        Err(outcomes) => return outcomes,
    };
    let (answered, sends) =
        split(requested.into_iter().zip(route(sends)).map(|(rank, received)| rank.answer(&received)));
    let finished = answered.into_iter().zip(route(sends)).map(|(rank, received)| rank?.finish(&received));
    match agree(finished.collect()) {
        Ok(patterns) => patterns.into_iter().map(Ok).collect(),
        Err(outcomes) => outcomes,
    }
}

fn route(
    size: usize,
    sends: Vec<Messages>,
    mut tamper: impl FnMut(usize, usize, &mut Vec<u8>),
) -> Vec<Messages> {
    let mut received = vec![Messages::new(); size];
    for (from, messages) in sends.into_iter().enumerate() {
        for (to, mut bytes) in messages {
            assert_ne!(from, to, "a rank sends no message to itself");
            tamper(from, to, &mut bytes);
            received[to].push((from, bytes));
        }
    }
    received
}

/// What a step of one rank ends with.
pub type Step<T> = Result<T, UnstructuredError>;

fn split<T>(steps: impl Iterator<Item = Step<(T, Messages)>>) -> (Vec<Step<T>>, Vec<Messages>) {
    steps.map(|step| step.map_or_else(|e| (Err(e), Vec::new()), |(state, sends)| (Ok(state), sends))).unzip()
}

fn agree<T>(steps: Vec<Step<T>>) -> Result<Vec<T>, Vec<Outcome>> {
    if steps.iter().all(Result::is_ok) {
        return Ok(steps.into_iter().flatten().collect());
    }
    Err(steps.into_iter().map(|step| Err(step.err())).collect())
}

/// Local indices in the order in which they travel.
pub fn indices(cells: &Cells) -> Vec<usize> {
    match cells {
        Cells::Runs(runs) => {
            runs.iter().flat_map(|run| run.start as usize..(run.start + run.len) as usize).collect()
        }
        Cells::Box(_) => panic!("an unstructured pattern has no boxes"),
    }
}

/// What was written to each cell of each domain: the domains that it came from, with the id there.
pub type Written = BTreeMap<u64, Vec<Vec<(u64, u64)>>>;

/// Checks that the patterns of all ranks fit together, and carries out their transfers.
pub fn deliver(ranks: &[Vec<UnstructuredDomain>], patterns: &[PatternPlan]) -> Written {
    let all: BTreeMap<u64, &UnstructuredDomain> =
        ranks.iter().flatten().map(|domain| (domain.id(), domain)).collect();
    let mut written: Written =
        all.iter().map(|(&id, domain)| (id, vec![Vec::new(); domain.cells().len()])).collect();
    for (rank, pattern) in patterns.iter().enumerate() {
        assert_eq!(pattern.check(), Ok(()));
        let shapes = pattern.domains.iter().map(|(id, shape)| (*id, shape.extents()));
        let mut expected: Vec<_> = ranks[rank].iter().map(|d| (d.id(), vec![d.cells().len()])).collect();
        expected.sort();
        assert_eq!(shapes.collect::<Vec<_>>(), expected);
        assert!(pattern.peers.is_sorted_by(|a, b| a.rank < b.rank));
        for peer in &pattern.peers {
            assert_ne!(peer.rank, rank);
            let back = patterns[peer.rank].peers.iter().find(|other| other.rank == rank).expect("a peer");
            assert_eq!((&peer.sends, &peer.receives), (&back.receives, &back.sends));
        }
        for transfers in pattern.peers.iter().map(|peer| &peer.receives).chain([&pattern.local]) {
            assert!(transfers.is_sorted_by(|a, b| (a.to, a.from) < (b.to, b.from)));
            for transfer in transfers {
                let (source, target) = (indices(&transfer.source), indices(&transfer.target));
                assert_eq!(source.len(), target.len());
                assert!(target.is_sorted_by(|a, b| a < b));
                let cells = written.get_mut(&transfer.to).expect("a domain");
                for (source, target) in source.into_iter().zip(target) {
                    cells[target].push((transfer.from, all[&transfer.from].cells()[source]));
                }
            }
        }
    }
    written
}
