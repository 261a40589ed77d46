//! Measures at bind which path is fastest on this machine, on memory shaped like the fields.
//!
//! No path is best everywhere: it depends on the runs, the layout and the distance of the cores. The measured time must include
//! the effect on the caches of reader and writer. So a trial does what a model does: it rewrites owned cells, exchanges, and
//! reads the halo. It runs on shadows of the fields' memory and leaves the fields alone.

use super::local::Local;
use super::{BoundObject, Preference, build};
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::field::Memory;
use crate::lifecycle::{Engine, Engines};
use crate::link::{Direction, Link, LinkPath};
use crate::options::BindOptions;
use crate::set::Set;
use halocline_comm::{Communicator, Endpoint, Reduce, SEGMENT_ALIGN, Segment};
use std::sync::Arc;
use std::time::Duration;

/// In the order of preference if they are equally fast.
pub(super) const ALL: [LinkPath; 4] = [LinkPath::Pull, LinkPath::Push, MAILBOXES[0], MAILBOXES[1]];
pub(super) const MAILBOXES: [LinkPath; 2] =
    [LinkPath::Mailbox { streaming: false }, LinkPath::Mailbox { streaming: true }];

/// Exchanges smaller than this take the path with the fewest steps: their bytes do not matter.
const SMALL: usize = 4096;
/// Exchanges larger than this are not measured: the shadows would take too much memory.
const LARGE: usize = 256 << 20;
/// Successive exchanges of one sample.
const BURST: u32 = 4;
/// Samples of each candidate, at least and at most, and the time for all samples.
const LEAST: u32 = 3;
const MOST: u32 = 9;
const BUDGET: Duration = Duration::from_millis(60);
/// A candidate must be this much faster than an earlier one to be preferred, in percent.
const MARGIN: u64 = 5;

/// The fastest of the paths, the same on all ranks. Collective.
pub(super) fn choose(comm: &Communicator, local: &Local, candidates: &[LinkPath]) -> Result<LinkPath, Error> {
    let bytes = |direction| local.peers().into_iter().map(|peer| local.bytes(peer, direction)).max();
    let most = bytes(Direction::Send).max(bytes(Direction::Receive)).unwrap_or(0) as u64;
    let spans: u64 = local.memories.iter().map(|(memory, _)| memory.segment.len() as u64).sum();
    let shared = local.peers().into_iter().any(|peer| comm.link().bell(peer).is_some());
    let all = comm.all_reduce(&[most, spans, shared.into()], Reduce::Max)?;
    if all[2] == 0 {
        // The ranks share no memory: all links send messages, or a forced path is refused.
        return Ok(candidates[0]);
    }
    let unmeasured = if (all[0] as usize) < SMALL { LinkPath::Push } else { LinkPath::Pull };
    if (all[0] as usize) < SMALL || all[1] as usize > LARGE {
        return Ok(if candidates.contains(&unmeasured) { unmeasured } else { candidates[0] });
    }
    let shadow = agree(comm, shadow_of(comm, local))?;
    let options = (&BindOptions::default(), Engines::HOST);
    let mut trials = Vec::new();
    for &path in candidates {
        let preference = Preference { path, forced: false };
        trials.push(Trial::new(build(comm, vec![shadow.clone()], preference, options)?));
    }
    let medians = run(comm, &mut trials)?;
    // All ranks use the time of the slowest one.
    let slowest = comm.all_reduce(&medians, Reduce::Max)?;
    let mut best = 0;
    for (at, &time) in slowest.iter().enumerate().skip(1) {
        if time * (100 + MARGIN) < slowest[best] * 100 {
            best = at;
        }
    }
    tracing::debug!(rank = comm.rank(), ?slowest, path = %candidates[best], "links measured, ns");
    Ok(candidates[best])
}

/// The same fields in new memory of the same kind. The trials touch only the pages of exchanged regions.
fn shadow_of(comm: &Communicator, local: &Local) -> Result<Local, Error> {
    let mut memories = Vec::new();
    for (memory, _) in &local.memories {
        // The same offset in its page: so it maps to the same cache sets.
        let lead = memory.segment.base().addr().get() % SEGMENT_ALIGN;
        let len = lead + memory.segment.len();
        let reachable = (0..comm.size()).any(|peer| comm.link().reach(peer, &memory.segment).is_ok());
        let segment = if reachable {
            comm.allocate(len)?
        } else {
            Segment::heap(len).ok_or(halocline_comm::CommError::OutOfMemory(len))?
        };
        memories.push((Memory::new(segment), lead));
    }
    local.again(comm, &local.patterns, &memories)
}

/// A path on trial.
struct Trial {
    bound: Arc<Bound>,
    set: Arc<Set>,
    samples: Vec<Duration>,
    /// A byte on each cache line (or in each block) that the peers read, and one on each that they write.
    owned: Vec<*mut u8>,
    halo: Vec<*mut u8>,
}

impl Trial {
    fn new(BoundObject { bound, sets, .. }: BoundObject) -> Self {
        let set = Arc::clone(&sets[0]);
        let (mut owned, mut halo) = (Vec::new(), Vec::new());
        let packed = |link: &&Link| matches!(link.path, LinkPath::Mailbox { .. } | LinkPath::Message);
        for link in bound.links.iter().filter(packed) {
            for op in &set.parts[link.part].ops {
                op.for_each_block(|source, target, len| {
                    let (bytes, first) = match link.direction {
                        Direction::Send => (&mut owned, set.bases[op.source].wrapping_offset(source)),
                        Direction::Receive => (&mut halo, set.bases[op.target].wrapping_offset(target)),
                    };
                    bytes.extend((0..len).step_by(64).map(|at| first.wrapping_add(at)));
                });
            }
        }
        Self { bound, set, samples: Vec::new(), owned, halo }
    }

    /// Accesses memory like [`BURST`] steps of a model. `owned` and `halo` are those of the mailbox trial, in which this rank knows
    /// both ends of every link.
    fn sample(&mut self, owned: &[*mut u8], halo: &[*mut u8]) -> Result<(), Error> {
        let host = self.bound.life.comm.link().host();
        let start = host.now();
        for _ in 0..BURST {
            for &byte in owned {
                // SAFETY: bind has checked that the byte is one of a shadow, which the trials hold. No exchange is in
                // flight, so that no peer uses it.
                unsafe { byte.write_volatile(byte.read_volatile().wrapping_add(1)) };
            }
            let epoch = self.bound.begin(&self.set, &[])?;
            self.bound.wait(epoch)?;
            for &byte in halo {
                // SAFETY: bind has checked that the byte is one of a shadow, which the trials hold. The exchange is
                // over, so that no peer uses it.
                unsafe { byte.read_volatile() };
            }
        }
        self.samples.push(host.now().saturating_sub(start));
        Ok(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        Arc::clone(&self.bound).release();
    }
}

/// The median time of each trial in nanoseconds.
fn run(comm: &Communicator, trials: &mut [Trial]) -> Result<Vec<u64>, Error> {
    let (mut owned, mut halo) = (Vec::new(), Vec::new());
    if let Some(mailbox) = trials.iter_mut().max_by_key(|trial| trial.owned.len() + trial.halo.len()) {
        owned = std::mem::take(&mut mailbox.owned);
        halo = std::mem::take(&mut mailbox.halo);
    }
    // The first round touches the pages and tells how long a round takes.
    let start = comm.link().host().now();
    for trial in trials.iter_mut() {
        trial.sample(&owned, &halo)?;
        trial.samples.clear();
    }
    let round = comm.link().host().now().saturating_sub(start).as_nanos() as u64;
    let round = comm.all_reduce(&[round], Reduce::Max)?[0].max(1);
    let rounds = (BUDGET.as_nanos() as u64 / round).clamp(LEAST.into(), MOST.into());
    for _ in 0..rounds {
        // Interleaved, because the speed of the machine varies.
        for trial in trials.iter_mut() {
            trial.sample(&owned, &halo)?;
        }
    }
    Ok(trials
        .iter_mut()
        .map(|trial| {
            trial.samples.sort_unstable();
            trial.samples.get(trial.samples.len() / 2).map_or(u64::MAX, |median| median.as_nanos() as u64)
        })
        .collect())
}
