//! The mapping cache of device memory: what it keeps, and what a later free finds.

use super::*;

/// The cache of this rank, for a device, and rank 1's device as its target. Collective.
fn mappings_to_rank_1(device: &Device, comm: &Communicator) -> Result<(Mappings, Target), Trouble> {
    let mappings = Mappings::of(comm);
    let own = device.driver().provider()?.ok_or_else(|| Trouble::new("no provider"))?;
    let ids = comm.all_gather(&own.device().0)?;
    mappings.attach(own);
    comm.barrier()?;
    let id = ids[1][..].try_into().map_err(|_| Trouble::new("16 bytes"))?;
    Ok((mappings, Target { rank: 1, device: DeviceId(id) }))
}

/// Of an array of the library's own: a miss looks and opens, a hit calls no driver, and once the array is dropped what lies there is looked
/// at again.
#[test]
fn mapped_library_memory_is_mapped_again_without_a_driver_call() {
    play(0..10, 2, |world, device, comm| {
        let (mappings, target) = mappings_to_rank_1(device, comm)?;
        if comm.rank() == 1 {
            return Ok(comm.barrier()?);
        }
        for round in 1..=3 {
            let memory = device.allocate(Ring::BYTES)?;
            let (before, map) = (world.mapping_calls(), |offset| mappings.map(target, memory.at(offset), 8));
            let first = map(0)?;
            let missed = world.mapping_calls();
            ensure!(missed.looks > before.looks && missed.opens == before.opens + 1, "{before:?} {missed:?}");
            let again = map(64)?;
            ensure!(world.mapping_calls() == missed, "{:?} after {missed:?}", world.mapping_calls());
            ensure!(
                (again.token(), mappings.stats().hits) == (first.token(), round),
                "{:?}",
                mappings.stats()
            );
            drop((first, again));
            drop(memory);
        }
        Ok(comm.barrier()?)
    });
}

/// A mapping that is kept forever does not block a free: the driver holds the memory for it.
#[test]
fn memory_that_a_peer_keeps_mapped_is_freed_later_without_blocking() {
    play(0..10, 2, |world, device, comm| {
        let (mappings, target) = mappings_to_rank_1(device, comm)?;
        let memory = device.allocate(Ring::BYTES)?;
        let base = memory.at(0);
        let pinned = (comm.rank() == 0).then(|| mappings.map(target, base, 8)).transpose()?;
        let token = pinned.as_ref().map_or(0, |pinned| pinned.token());
        let gathered = comm.all_gather(&token.to_le_bytes())?;
        let token = u64::from_le_bytes(gathered[0][..].try_into().map_err(|_| Trouble::new("8 bytes"))?);
        let held = (comm.rank() == 1).then(|| mappings.resolve(0, token, 0, 8)).transpose()?;
        comm.barrier()?;
        drop(pinned);
        let before = world.now();
        drop(memory);
        if comm.rank() == 0 {
            ensure!(
                world.now() - before < Duration::from_secs(1),
                "the drop took {:?}",
                world.now() - before
            );
            ensure!(device.place_of(base).is_ok(), "freed while it is mapped");
            comm.wait_for(None, "memory to be freed", || Ok(device.place_of(base).is_err().then_some(())))?;
            let after = world.now() - before;
            ensure!(after >= Duration::from_secs(10), "freed after {after:?}");
        }
        comm.barrier()?;
        drop(held);
        Ok(comm.barrier()?)
    });
}
