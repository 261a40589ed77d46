//! Which way is fastest here: tried out when binding, on memory shaped like the fields.
//!
//! No way is best everywhere: it depends on the runs, the layout and on how far the cores are apart. And
//! a way must be charged with what it does to the reader's and the writer's caches. So a trial does what a
//! model does: it rewrites owned cells, exchanges, and reads the halo. The fields themselves are left
//! alone; the trial runs on shadows of their memory.

use super::local::Local;
use super::{Made, Preference, build};
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::field::Memory;
use crate::link::{Direction, Link, LinkPath};
use crate::options::BindOptions;
use crate::set::Set;
use halocline_comm::Endpoint;
use halocline_comm::{Communicator, Reduce, SEGMENT_ALIGN, Segment};
use std::sync::Arc;
use std::time::Duration;

/// In the order of preference where they do not differ.
pub(super) const ALL: [LinkPath; 4] = [LinkPath::Pull, LinkPath::Push, MAILBOXES[0], MAILBOXES[1]];
pub(super) const MAILBOXES: [LinkPath; 2] =
    [LinkPath::Mailbox { streaming: false }, LinkPath::Mailbox { streaming: true }];

/// Exchanges smaller than this take whichever way has the fewest steps: their bytes do not matter.
const SMALL: usize = 4096;
/// Exchanges larger than this are not tried: the shadows would cost too much memory.
const LARGE: usize = 256 << 20;
/// Exchanges in a row of one sample.
const BURST: u32 = 4;
/// Samples of each candidate: at least, at most, and how long all of it may take.
const LEAST: u32 = 3;
const MOST: u32 = 9;
const BUDGET: Duration = Duration::from_millis(60);
/// A candidate must be this much faster to be taken before an earlier one, in percent.
const MARGIN: u64 = 5;

/// The fastest of the paths, the same on all ranks. Collective.
pub(super) fn choose(comm: &Communicator, local: &Local, candidates: &[LinkPath]) -> Result<LinkPath, Error> {
    let bytes = |direction| local.peers().into_iter().map(|peer| local.bytes(peer, direction)).max();
    let most = bytes(Direction::Send).max(bytes(Direction::Receive)).unwrap_or(0) as u64;
    let spans: u64 = local.memories.iter().map(|(memory, _)| memory.segment.len() as u64).sum();
    let shared = local.peers().into_iter().any(|peer| comm.link().bell(peer).is_some());
    let all = comm.all_reduce(&[most, spans, shared.into()], Reduce::Max)?;
    if all[2] == 0 {
        // Messages it will be, for want of memory that ranks share.
        return Ok(LinkPath::Pull);
    }
    let unmeasured = if (all[0] as usize) < SMALL { LinkPath::Push } else { LinkPath::Pull };
    if (all[0] as usize) < SMALL || all[1] as usize > LARGE {
        return Ok(if candidates.contains(&unmeasured) { unmeasured } else { candidates[0] });
    }
    let shadow = agree(comm, shadow_of(comm, local))?;
    let mut trials = Vec::new();
    for &path in candidates {
        let preference = Preference { path, forced: false };
        trials.push(Trial::new(build(comm, vec![shadow.clone()], preference, &BindOptions::default())?));
    }
    let medians = run(comm, &mut trials)?;
    // The slowest rank counts, on all ranks alike.
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

/// The same fields in memory of the same kind, of which only the pages of regions are ever touched.
fn shadow_of(comm: &Communicator, local: &Local) -> Result<Local, Error> {
    let mut memories = Vec::new();
    for (memory, _) in &local.memories {
        // As in its page, so in that of its shadow: it falls into the same sets of the caches.
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

/// A way on trial.
struct Trial {
    bound: Arc<Bound>,
    set: Arc<Set>,
    samples: Vec<Duration>,
    /// A byte on each cache line (or in each block) that the peers read, and that they fill.
    owned: Vec<*mut u8>,
    halo: Vec<*mut u8>,
}

impl Trial {
    fn new((bound, sets): Made) -> Self {
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

    /// What a step of a model does to the memory, a few times, `owned` and `halo` being those of the
    /// mailbox trial: there both ends of every link are known here.
    fn sample(&mut self, owned: &[*mut u8], halo: &[*mut u8]) -> Result<(), Error> {
        let host = self.bound.comm.link().host();
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
        // Interleaved: the machine's mood changes.
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
