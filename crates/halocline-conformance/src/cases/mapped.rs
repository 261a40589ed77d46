//! Device memory of every kind, mapped by ranks of other processes.

use super::scheduled::device_of;
use crate::device_fixtures::Rig;
use crate::ring::{DeviceMemory, Ring};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure};
use halocline::{BindOptions, Direction, HaloExchange, LinkInfo, LinkPath, Ll};
use halocline_comm::Endpoint;
use halocline_comm::mappings::{Mappings, Stats};
use std::sync::Arc;
use std::time::Duration;

pub(super) const fn cases<R: Rig>() -> [Case; 4] {
    [
        Case { name: "mapped::every_kind_of_memory_on_either_side", run: every_kind::<R> },
        Case { name: "mapped::a_second_bind_opens_no_mapping_again", run: bound_again::<R> },
        Case { name: "mapped::limits_change_while_objects_come_and_go", run: limits::<R> },
        Case { name: "mapped::memory_of_the_library_is_freed_where_it_was_mapped", run: freed::<R> },
    ]
}

/// Whether the ranks of a communicator map memory of each other's devices.
fn maps<R: Rig>(rig: &R, comm: &Stage<'_>) -> bool {
    let is_apart = (0..comm.size()).all(|rank| comm.link().bell(rank).is_some()) && rig.is_apart(comm);
    comm.size() > 1 && is_apart
}

/// Each link is as good as the memory at its receiving end allows.
fn check_paths(halo: &HaloExchange, own: &DeviceMemory, theirs: &DeviceMemory) -> Outcome {
    for LinkInfo { peer, direction, path } in halo.links() {
        let written = if direction == Direction::Receive { own } else { theirs };
        let is_right = match written.kind {
            Some(_) => path == LinkPath::Push,
            None => path == LinkPath::DeviceMailbox,
        };
        ensure!(is_right, "{} of rank {peer}, {direction:?}: {path}\n{}", written.name, halo.explain());
    }
    let text = halo.explain();
    for memory in [own, theirs] {
        let is_named = match memory.kind {
            Some(kind) => text.contains(&kind.to_string()),
            None => ["cannot be mapped", "this process alone"].iter().any(|why| text.contains(why)),
        };
        ensure!(is_named, "nothing of {}:\n{text}", memory.name);
    }
    Ok(())
}

fn every_kind<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let kinds: Vec<bool> =
        rig.memories(device, Ring::BYTES)?.iter().map(|memory| memory.kind.is_some()).collect();
    let pairs = (0..kinds.len()).flat_map(|even| (0..kinds.len()).map(move |odd| (even, odd)));
    for (even, odd) in pairs.filter(|&(even, odd)| even == odd || !kinds[even] || !kinds[odd]) {
        let mut all = rig.memories(device, Ring::BYTES)?;
        let mut others = rig.memories(device, Ring::BYTES)?;
        let (own, theirs) = if comm.rank().is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let (own, theirs) = (all.swap_remove(own), others.swap_remove(theirs));
        let of = |trouble| Trouble::new(format!("{} on even ranks: {trouble}", own.name));
        let ring = Ring::new(comm, device, own.address, Arc::clone(&own.owner))?;
        for inline in [false, true] {
            // Of the path that is the same for all sizes.
            let ll = Ll::Never;
            let halo = ring.bind(comm, &BindOptions::default().inline(inline).ll(ll))?;
            // In a ring of an odd number of ranks two even ones meet.
            if maps(rig, comm) && comm.size().is_multiple_of(2) {
                check_paths(&halo, &own, &theirs).map_err(of)?;
            }
            (1..=3).try_for_each(|step| ring.step(&halo, step)).map_err(of)?;
            comm.barrier()?;
        }
        drop(ring);
        comm.barrier()?;
        if maps(rig, comm) {
            // A pool has to be freed by its importers first.
            let mappings = Mappings::of(comm);
            let released = || Ok(mappings.release(own.address).ok());
            comm.wait_for(None, "memory to be released", released).map_err(|why| of(why.into()))?;
        }
        drop((own, all, theirs, others));
    }
    rig.check()
}

fn bound_again<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let memory = Arc::new(device.allocate(Ring::BYTES)?);
    let ring = Ring::new(comm, device, memory.at(0), memory)?;
    let mut opens = Vec::new();
    for round in 0..4 {
        let halo = ring.bind(comm, &BindOptions::default())?;
        comm.barrier()?;
        let bound = Mappings::of(comm).stats();
        (1..=20).try_for_each(|step| ring.step(&halo, 100 * round + step))?;
        let after = Mappings::of(comm).stats();
        // What the object of the round before had pinned may be released meanwhile.
        ensure!(
            (bound.hits, bound.opens, bound.staged) == (after.hits, after.opens, after.staged)
                && after.pinned <= bound.pinned,
            "exchanges are not steady: {bound:?}, then {after:?}"
        );
        opens.push(after.opens);
        comm.barrier()?;
    }
    // The field the first time, and words of each object.
    let more: Vec<u64> = opens.windows(2).map(|two| two[1] - two[0]).collect();
    ensure!(more.iter().all(|more| *more < opens[0].max(1)), "opened by each bind: {opens:?}");
    rig.check()
}

/// Waits until others have unmapped all memory of this rank, but for what was in use before: other cases forget handles.
fn nothing_more(comm: &Stage<'_>, mappings: &Mappings, before: Stats) -> Outcome {
    let usual = mappings.limit();
    mappings.set_limit(0);
    let released = || {
        let now = mappings.stats();
        Ok((now.entries == now.pinned && now.pinned <= before.pinned).then_some(()))
    };
    let waited =
        comm.with_deadline(Some(Duration::from_secs(10))).wait_for(None, "memory to be unmapped", released);
    waited.map_err(|error| Trouble::new(format!("{error}: {:?}, before {before:?}", mappings.stats())))?;
    mappings.set_limit(usual);
    Ok(comm.barrier()?)
}

fn limits<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let mappings = Mappings::of(comm);
    let (usual, before) = (mappings.limit(), mappings.stats());
    let ring = || -> Result<Ring, Trouble> {
        let memory = Arc::new(device.allocate(Ring::BYTES)?);
        Ring::new(comm, device, memory.at(0), memory)
    };
    let lasting = ring()?;
    let halo = lasting.bind(comm, &BindOptions::default())?;
    for (step, entries) in (1..).zip([1024, 1, 0, 8, 0, 2]) {
        let passing = ring()?;
        let other = passing.bind(comm, &BindOptions::default())?;
        lasting.fill(step)?;
        let pending = halo.schedule_exchange(&[lasting.stream()])?;
        mappings.set_limit(entries);
        pending.schedule_wait(lasting.stream())?;
        lasting.check(step)?;
        passing.step(&other, step)?;
        let stats = mappings.stats();
        ensure!(stats.entries <= stats.pinned + entries, "{stats:?} with space for {entries}");
        comm.barrier()?;
    }
    halo.wait()?;
    comm.barrier()?;
    drop(halo);
    mappings.set_limit(usual);
    nothing_more(comm, &mappings, before)?;
    rig.check()
}

/// Arrays dropped together with their exchanges, many times: no rank blocks, no memory remains.
fn freed<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let mappings = Mappings::of(comm);
    let before = mappings.stats();
    for round in 1..=5 {
        let memory = Arc::new(device.allocate(Ring::BYTES)?);
        let ring = Ring::new(comm, device, memory.at(0), memory)?;
        let halo = ring.bind(comm, &BindOptions::default())?;
        ring.step(&halo, round)?;
        comm.barrier()?;
    }
    // What other cases have left goes when there is no space for it.
    nothing_more(comm, &mappings, before)?;
    rig.check()
}
