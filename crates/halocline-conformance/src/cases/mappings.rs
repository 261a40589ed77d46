//! Memory of one rank, mapped by the others of its node.

use super::lifetimes::belongings;
use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline_comm::mappings::{DeviceId, Kind, MappingError, Mappings, Refusal, Target};
use halocline_comm::{Endpoint, Segment};
use std::sync::Arc;

pub(crate) const CASES: &[Case] = &[
    Case { name: "mappings::the_memory_of_all_is_read_and_written_by_all", run: read_and_written },
    Case { name: "mappings::transfers_are_received_whatever_is_kept_mapped", run: taken },
    Case { name: "mappings::reallocated_memory_is_not_mistaken_for_the_old", run: allocated_again },
    Case { name: "mappings::released_memory_is_mapped_nowhere", run: released },
    Case { name: "mappings::many_rounds_leave_no_descriptor_and_no_mapping", run: nothing_left },
    Case { name: "mappings::private_memory_is_refused", run: private },
];

const BYTES: usize = 3 * 4096 + 100;

/// The ranks that share memory with this one.
fn peers(comm: &Stage<'_>) -> Vec<usize> {
    let all = (0..comm.size()).filter(|rank| *rank != comm.rank());
    all.filter(|rank| comm.link().bell(*rank).is_some()).collect()
}

fn at(rank: usize) -> Target {
    Target { rank, device: DeviceId::HOST }
}

fn address(segment: &Segment) -> u64 {
    segment.base().as_ptr().expose_provenance() as u64
}

/// What rank `rank` has in its memory for a seed.
fn content(rank: usize, seed: u64) -> Vec<u8> {
    Numbers::new(1000 * seed + rank as u64).bytes(BYTES)
}

fn filled(comm: &Stage<'_>, seed: u64) -> Result<Arc<Segment>, halocline::CommError> {
    let memory = comm.allocate(BYTES)?;
    let bytes = content(comm.rank(), seed);
    // SAFETY: fresh memory of that length that only this function uses.
    unsafe { memory.base().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), BYTES) };
    Ok(memory)
}

fn bytes_at<'a>(address: u64, length: u64) -> &'a [u8] {
    // SAFETY: the cases call it for mappings that they hold, and no thread writes meanwhile.
    unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), length as usize)
    }
}

fn read_and_written(comm: &Stage<'_>) -> Outcome {
    let mappings = Mappings::of(comm);
    let memory = filled(comm, 1)?;
    let before = mappings.stats();
    let (from, length) = (40, 8 * comm.size() as u64);
    let pinned = |peer: &usize| mappings.map(at(*peer), address(&memory) + from, length);
    let pins = peers(comm).iter().map(pinned).collect::<Result<Vec<_>, _>>()?;
    // Each has a token of its own for it.
    let mut gathered = vec![0; 8 * comm.size()];
    for (peer, pin) in peers(comm).into_iter().zip(&pins) {
        ensure!((pin.offset(), pin.bytes()) == (from, length), "{} bytes at {}", pin.bytes(), pin.offset());
        gathered[8 * peer..8 * peer + 8].copy_from_slice(&pin.token().to_le_bytes());
    }
    let gathered = comm.all_gather(&gathered)?;
    let mut held = Vec::new();
    for peer in peers(comm) {
        let token =
            gathered[peer][8 * comm.rank()..].first_chunk().map_or(0, |token| u64::from_le_bytes(*token));
        let mapping = mappings.resolve(peer, token, from, length)?;
        let expected = &content(peer, 1)[from as usize..(from + length) as usize];
        ensure!(bytes_at(mapping.address(), length) == expected, "other bytes of rank {peer}");
        let is_own = comm.transport() == "thread";
        let expected = (!is_own).then_some(Kind::Memfd);
        ensure!(mapping.kind() == expected, "a mapping by {:?}", mapping.kind());
        let beyond = mappings.resolve(peer, token, BYTES as u64 - 4, 8).err();
        ensure!(matches!(beyond, Some(MappingError::Beyond { .. })), "beyond its end: {beyond:?}");
        held.push((peer, mapping));
    }
    comm.barrier()?;
    for (_, mapping) in &held {
        let own: *mut [u8; 8] =
            std::ptr::with_exposed_provenance_mut(mapping.address() as usize + 8 * comm.rank());
        // SAFETY: each rank writes its own eight bytes of the mapping that it holds.
        unsafe { own.write(content(comm.rank(), 2)[..8].try_into().expect("eight bytes")) };
    }
    comm.barrier()?;
    for peer in peers(comm) {
        let found = bytes_at(address(&memory) + from + 8 * peer as u64, 8);
        ensure!(found == &content(peer, 2)[..8], "rank {peer} wrote {found:?}");
    }
    let again = peers(comm).iter().map(pinned).collect::<Result<Vec<_>, _>>()?;
    let after = mappings.stats();
    let count = peers(comm).len() as u64;
    ensure!(after.hits - before.hits == count, "{after:?} after {before:?}");
    ensure!(after.opens - before.opens == count, "{after:?} after {before:?}");
    let refused = mappings.release(address(&memory)).err();
    let is_used = matches!(refused, Some(MappingError::InUse { pins, .. }) if pins == 2 * peers(comm).len());
    ensure!(is_used || peers(comm).is_empty(), "released in use: {refused:?}");
    drop((held, pins, again));
    mappings.release(address(&memory))?;
    comm.barrier()?;
    Ok(())
}

fn taken(comm: &Stage<'_>) -> Outcome {
    let mappings = Mappings::of(comm);
    let usual = mappings.limit();
    let memories = [filled(comm, 3)?, filled(comm, 4)?, filled(comm, 5)?];
    for limit in [usual, 1, 0] {
        mappings.set_limit(limit);
        let mut transfers = Vec::new();
        for (offset, memory) in (0..9).zip(memories.iter().cycle()) {
            for peer in peers(comm) {
                transfers.push(mappings.send(at(peer), address(memory) + offset, 300)?);
            }
        }
        for peer in peers(comm) {
            // What is mapped already overtakes what is not.
            let all = (0..9).zip([3, 4, 5].into_iter().cycle());
            let mut missing: Vec<_> =
                all.map(|(offset, seed)| content(peer, seed)[offset..offset + 300].to_vec()).collect();
            while !missing.is_empty() {
                let arrived = mappings.receive(Some(peer))?;
                let bytes = bytes_at(arrived.address(), arrived.length());
                let found = missing.iter().position(|expected| expected == bytes);
                ensure!(found.is_some(), "other bytes of rank {peer}");
                missing.swap_remove(found.unwrap_or(0));
            }
        }
        transfers.into_iter().try_for_each(|transfer| transfer.wait())?;
        let stats = mappings.stats();
        ensure!(stats.entries <= limit && stats.pinned == 0, "{stats:?} with a limit of {limit}");
    }
    mappings.set_limit(usual);
    memories.iter().try_for_each(|memory| mappings.release(address(memory)))?;
    comm.barrier()?;
    Ok(())
}

fn allocated_again(comm: &Stage<'_>) -> Outcome {
    let mappings = Mappings::of(comm);
    for seed in 10..30 {
        // Freed without a word, and likely to come again where it was.
        let memory = filled(comm, seed)?;
        let send = |peer| mappings.send(at(peer), address(&memory), BYTES as u64);
        let sent: Vec<_> = peers(comm).into_iter().map(send).collect::<Result<_, _>>()?;
        for peer in peers(comm) {
            let arrived = mappings.receive(Some(peer))?;
            let bytes = bytes_at(arrived.address(), arrived.length());
            ensure!(bytes == content(peer, seed), "round {seed}: other bytes of rank {peer}");
        }
        sent.into_iter().try_for_each(|transfer| transfer.wait())?;
    }
    Ok(())
}

fn released(comm: &Stage<'_>) -> Outcome {
    let mappings = Mappings::of(comm);
    // What other cases have left is unmapped: there is no space for it.
    let usual = mappings.limit();
    mappings.set_limit(0);
    comm.wait_for(None, "memory to be unmapped", || Ok((mappings.stats().bytes_held == 0).then_some(())))?;
    mappings.set_limit(usual);
    comm.barrier()?;
    let before = mappings.stats();
    ensure!((before.mapped, before.entries) == (0, 0), "{before:?}");
    comm.barrier()?;
    let memory = filled(comm, 6)?;
    for peer in peers(comm) {
        mappings.map(at(peer), address(&memory), 8)?;
    }
    comm.barrier()?;
    let open = mappings.stats();
    ensure!(open.mapped == peers(comm).len(), "{open:?} after {before:?}");
    comm.barrier()?;
    mappings.release(address(&memory) + 1)?;
    comm.barrier()?;
    let after = mappings.stats();
    ensure!(
        after.mapped == before.mapped && after.bytes_mapped == before.bytes_mapped,
        "{after:?}, {before:?}"
    );
    comm.barrier()?;
    Ok(())
}

fn nothing_left(comm: &Stage<'_>) -> Outcome {
    if comm.transport() == "thread" {
        // All ranks count the same process.
        return Ok(());
    }
    let mappings = Mappings::of(comm);
    let turn = |seed: u64| -> Outcome {
        let memory = filled(comm, seed % 7)?;
        let sent: Vec<_> = peers(comm)
            .into_iter()
            .map(|peer| mappings.send(at(peer), address(&memory), 64))
            .collect::<Result<_, _>>()?;
        for peer in peers(comm) {
            let arrived = mappings.receive(Some(peer))?;
            ensure!(bytes_at(arrived.address(), 64) == &content(peer, seed % 7)[..64], "round {seed}");
        }
        sent.into_iter().try_for_each(|transfer| transfer.wait())?;
        Ok(mappings.release(address(&memory))?)
    };
    (0..10).try_for_each(turn)?;
    comm.barrier()?;
    let before = belongings()?;
    comm.barrier()?;
    // Many ranks on few cores take their time for each.
    let rounds = 1000 / (peers(comm).len() as u64).pow(2).max(1);
    (0..rounds).try_for_each(turn)?;
    comm.barrier()?;
    let after = belongings()?;
    // The allocator may have grown a little.
    ensure!(after.0 <= before.0 && after.1 <= before.1 + 16, "{after:?} after {before:?} before");
    comm.barrier()?;
    Ok(())
}

fn private(comm: &Stage<'_>) -> Outcome {
    let mappings = Mappings::of(comm);
    let own = [1u8; 64];
    for peer in peers(comm) {
        match mappings.map(at(peer), own.as_ptr().expose_provenance() as u64, 64).err() {
            Some(MappingError::Refused { why: Refusal::Private, .. }) => {}
            other => fail!("memory of nobody else: {other:?}"),
        }
    }
    comm.barrier()?;
    Ok(())
}
