//! Communicators of a subset of ranks.

use crate::fixtures::{Fixture, ring};
use crate::numbers::mix;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::comm::mappings::Mappings;
use halocline::{CommError, Communicator, Reduce};
use halocline_comm::{Endpoint, Tag};

pub(crate) const CASES: &[Case] = &[
    Case { name: "splits::ranks_of_one_color_are_ordered_by_key_then_rank", run: order },
    Case { name: "splits::a_rank_without_a_color_gets_no_communicator", run: no_color },
    Case { name: "splits::messages_of_parent_and_split_do_not_mix", run: messages },
    Case { name: "splits::a_split_of_a_split", run: nested },
    Case { name: "splits::halo_exchange_on_a_split_communicator", run: exchange },
    Case { name: "splits::both_halves_exchange_beside_the_parent", run: beside_the_parent },
    Case { name: "splits::mappings_use_the_ranks_of_the_split", run: mappings },
    Case { name: "splits::different_calls_name_ranks_of_the_split", run: different_calls },
    Case { name: "splits::ranks_outside_a_split_take_no_part", run: outsiders },
];

/// The colour that random numbers give a rank, `None` for one in four.
fn color(round: u64, rank: usize) -> Option<usize> {
    let number = mix(mix(round) ^ rank as u64);
    (!number.is_multiple_of(4)).then_some((number >> 8) as usize % 3)
}

/// Few keys, so that some are equal.
fn key(round: u64, rank: usize) -> i64 {
    (mix(mix(!round) ^ rank as u64) % 3) as i64 - 1
}

fn order(comm: &Stage<'_>) -> Outcome {
    for round in 0..20 {
        let split = comm.split(color(round, comm.rank()), key(round, comm.rank()))?;
        let Some(mine) = color(round, comm.rank()) else {
            ensure!(split.is_none(), "round {round}: a communicator without a color");
            continue;
        };
        let mut members: Vec<usize> =
            (0..comm.size()).filter(|&rank| color(round, rank) == Some(mine)).collect();
        members.sort_by_key(|&rank| key(round, rank));
        let Some(split) = split else { fail!("round {round}: no communicator for color {mine}") };
        ensure!(split.size() == members.len(), "round {round}: {} ranks of {members:?}", split.size());
        ensure!(members[split.rank()] == comm.rank(), "round {round}: rank {} of {members:?}", split.rank());
        ensure!(split.all_gather(comm.rank())? == members, "round {round}: another order than {members:?}");
        ensure!(split.transport() == comm.transport(), "another transport");
    }
    Ok(())
}

fn no_color(comm: &Stage<'_>) -> Outcome {
    ensure!(comm.split(None, 0)?.is_none(), "no rank has a color");
    let split = comm.split((comm.rank() == 0).then_some(usize::MAX), i64::MIN)?;
    ensure!(split.is_some() == (comm.rank() == 0), "only rank 0 has a color");
    if let Some(alone) = split {
        ensure!(alone.size() == 1 && alone.all_reduce(5u8, Reduce::Sum)? == 5, "one rank alone");
    }
    ensure!(comm.all_reduce(1usize, Reduce::Sum)? == comm.size(), "the parent is out of step");
    Ok(())
}

/// The ranks in the opposite order.
fn reversed(comm: &Communicator) -> Result<Communicator, CommError> {
    Ok(comm.split(Some(0), -(comm.rank() as i64))?.expect("every rank has a color"))
}

fn messages(comm: &Stage<'_>) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let split = reversed(comm)?;
    ensure!(split.rank() == size - 1 - rank, "rank {} of {size}", split.rank());
    let all: [&Communicator; 2] = [comm, &split];
    let tags: Vec<Tag> = all.iter().map(|comm| Tag { operation: comm.begin(), round: 0 }).collect();
    for (at, (comm, tag)) in all.iter().zip(&tags).enumerate() {
        comm.send((comm.rank() + 1) % size, *tag, vec![at as u8, comm.rank() as u8])?;
    }
    for (at, (comm, tag)) in all.iter().zip(&tags).enumerate().rev() {
        let before = (comm.rank() + size - 1) % size;
        let came = comm.receive(Some(before), *tag, "a message")?;
        ensure!(
            came.source == before && came.payload == [at as u8, before as u8],
            "communicator {at}: {came:?}"
        );
    }
    match split.send(size, tags[1], Vec::new()) {
        Err(CommError::NoSuchRank { rank, size }) if rank == size => {}
        other => fail!("a message to rank {size}: {other:?}"),
    }
    // Duplicates of a split have its ranks.
    let duplicate = split.duplicate()?;
    ensure!(duplicate.broadcast(size - 1, rank)? == 0, "the last rank of the duplicate is rank 0");
    Ok(())
}

fn nested(comm: &Stage<'_>) -> Outcome {
    let halves = |comm: &Communicator| {
        let upper = 2 * comm.rank() >= comm.size();
        Ok::<_, CommError>(comm.split(Some(upper.into()), -(comm.rank() as i64))?.expect("a color"))
    };
    let mut members: Vec<usize> = (0..comm.size()).collect();
    let mut inner = comm.duplicate()?;
    while inner.size() > 1 {
        let half = members.len().div_ceil(2);
        let (lower, upper) = members.split_at(half);
        members = if inner.rank() < half { lower } else { upper }.iter().rev().copied().collect();
        inner = halves(&inner)?;
        ensure!(inner.all_gather(comm.rank())? == members, "{members:?}");
        inner.barrier()?;
    }
    Ok(())
}

fn exchange(comm: &Stage<'_>) -> Outcome {
    let split = reversed(comm)?;
    let stage = comm.of(&split);
    Fixture::simple(&stage, &ring(&split)?)?.every_path(&stage, 3)
}

fn beside_the_parent(comm: &Stage<'_>) -> Outcome {
    let half = comm.split(Some(comm.rank() % 2), 0)?.expect("every rank has a color");
    let stage = comm.of(&half);
    let mut whole = Fixture::simple(comm, &ring(comm)?)?;
    let mut part = Fixture::simple(&stage, &ring(&half)?)?;
    let of_whole = whole.bind(comm, &Default::default())?;
    let of_part = part.bind(&half, &Default::default())?;
    for _ in 0..5 {
        whole.steps(&of_whole, 1)?;
        part.steps(&of_part, 1)?;
    }
    Ok(())
}

/// Memory of the host is mapped by the neighbour in the split, whose rank in the parent is another one.
fn mappings(comm: &Stage<'_>) -> Outcome {
    use halocline::comm::mappings::{DeviceId, Target};
    let split = reversed(comm)?;
    let mappings = Mappings::of(&split);
    let (next, before) =
        ((split.rank() + 1) % split.size(), (split.rank() + split.size() - 1) % split.size());
    let shares = |rank: usize| rank != split.rank() && split.link().bell(rank).is_some();
    let memory = split.allocate(4096)?;
    let address = memory.base().as_ptr().expose_provenance() as u64;
    let pinned = shares(next)
        .then(|| mappings.map(Target { rank: next, device: DeviceId::HOST }, address, 4096))
        .transpose()?;
    let tokens = split.all_gather(pinned.as_ref().map_or(0, |pinned| pinned.token()))?;
    if shares(before) {
        let mapping = mappings.resolve(before, tokens[before], 0, 4096)?;
        ensure!(mapping.length() == 4096, "{} bytes", mapping.length());
    }
    split.barrier()?;
    drop(pinned);
    mappings.release(address)?;
    ensure!(mappings.resolve(split.size(), 1, 0, 1).is_err(), "a rank that does not exist");
    Ok(())
}

fn different_calls(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let split = reversed(comm)?;
    let ended = match split.rank() {
        0 => split.barrier(),
        _ => split.all_reduce(1, Reduce::Sum).map(drop),
    };
    match ended.and_then(|()| split.barrier()) {
        Err(CommError::Mismatch { rank: 0, call, other, other_call })
            if call == "barrier" && other_call == "all_reduce" && other < split.size() => {}
        other => fail!("{other:?}"),
    }
    comm.barrier()?;
    Ok(())
}

/// Two ranks of a split talk while the others do something else.
fn outsiders(comm: &Stage<'_>) -> Outcome {
    let is_in = comm.rank() < 2;
    let split = comm.split(is_in.then_some(0), 0)?;
    if let Some(split) = split {
        for round in 0..50u64 {
            ensure!(split.all_reduce(round, Reduce::Max)? == round, "round {round}");
        }
    }
    comm.barrier()?;
    Ok(())
}
