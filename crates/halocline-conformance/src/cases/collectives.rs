//! Barrier, broadcast, all-gather, all-reduce, sparse exchange, duplicates. Splits are in `splits.rs`.

use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::{
    CommError, Communicator, Decomposed, Error, Halo, HaloExchange, Pattern, Reduce, RegularGrid, agree,
};
use halocline_comm::{Endpoint, Tag};

pub(crate) const CASES: &[Case] = &[
    Case { name: "collectives::a_barrier_holds_until_the_last_rank_comes", run: barrier_holds },
    Case { name: "collectives::many_barriers_in_a_row", run: many_barriers },
    Case { name: "collectives::broadcast_from_each_root", run: broadcast },
    Case { name: "collectives::broadcast_from_a_root_that_does_not_exist", run: broadcast_from_nowhere },
    Case { name: "collectives::broadcasts_from_different_roots_fail_on_all_ranks", run: different_roots },
    Case { name: "collectives::all_gather_of_various_sizes", run: all_gather },
    Case { name: "collectives::all_reduce", run: all_reduce },
    Case { name: "collectives::numbers_of_each_type", run: types },
    Case { name: "collectives::all_reduce_of_different_counts_fails_on_all_ranks", run: different_counts },
    Case { name: "collectives::all_reduce_of_different_types_fails_on_all_ranks", run: different_types },
    Case { name: "collectives::sparse_exchange_of_random_messages", run: sparse_exchange },
    Case { name: "collectives::different_calls_are_named_on_all_ranks", run: different_calls },
    Case { name: "collectives::duplicates_do_not_meet", run: duplicates },
    Case { name: "collectives::duplicates_interleaved_by_two_threads", run: two_threads },
];

fn barrier_holds(comm: &Stage<'_>) -> Outcome {
    let seen = Tag { operation: comm.begin(), round: 0 };
    let mut barrier = comm.start_barrier();
    if comm.rank() != 0 {
        for _ in 0..100 {
            ensure!(!barrier.is_over(comm)?, "the barrier is over although rank 0 has not come");
        }
        comm.send(0, seen, Vec::new())?;
    } else {
        for from in 1..comm.size() {
            comm.receive(Some(from), seen, "word from the others")?;
        }
    }
    comm.wait_for(None, "a barrier", || Ok(barrier.is_over(comm)?.then_some(())))?;
    Ok(())
}

fn many_barriers(comm: &Stage<'_>) -> Outcome {
    for _ in 0..100 {
        comm.barrier()?;
    }
    Ok(())
}

fn broadcast(comm: &Stage<'_>) -> Outcome {
    for root in 0..comm.size() {
        for len in [0, 1, 777, 100_000] {
            let sent = Numbers::new((root * 1_000_000 + len) as u64).bytes(len);
            let mine = if comm.rank() == root { sent.clone() } else { vec![1, 2, 3] };
            let came = comm.broadcast(root, mine)?;
            ensure!(came == sent, "{} bytes of rank {root} came as {} bytes", len, came.len());
        }
    }
    Ok(())
}

fn broadcast_from_nowhere(comm: &Stage<'_>) -> Outcome {
    match comm.broadcast(comm.size(), 7u8) {
        Err(CommError::NoSuchRank { rank, size }) if rank == comm.size() && size == comm.size() => {}
        other => fail!("a broadcast from rank {} gives {other:?}", comm.size()),
    }
    // All ranks refused alike: what follows still matches.
    ensure!(comm.broadcast(0, vec![comm.rank() as u8])? == [0], "the next broadcast is confused");
    Ok(())
}

fn all_gather(comm: &Stage<'_>) -> Outcome {
    let lengths: [fn(usize) -> usize; 5] = [
        |_| 0,
        |_| 8,
        |rank| rank,
        |rank| if rank % 2 == 0 { 0 } else { 1000 * rank },
        |rank| 70_000 / (rank + 1),
    ];
    for (round, len) in lengths.into_iter().enumerate() {
        let of = |rank: usize| Numbers::new((round * 100 + rank) as u64).bytes(len(rank));
        let all = comm.all_gather(&of(comm.rank()))?;
        let expected: Vec<Vec<u8>> = (0..comm.size()).map(of).collect();
        ensure!(all == expected, "round {round}: what came is not what was given");
    }
    Ok(())
}

fn all_reduce(comm: &Stage<'_>) -> Outcome {
    let value = |rank: usize, at: u64| mix(rank as u64 ^ at << 32);
    for op in [Reduce::Min, Reduce::Max, Reduce::Sum] {
        for count in [0, 1, 5, 300] {
            let mine: Vec<u64> = (0..count).map(|at| value(comm.rank(), at)).collect();
            let expected: Vec<u64> = (0..count)
                .map(|at| {
                    let all = (0..comm.size()).map(|rank| value(rank, at));
                    match op {
                        Reduce::Min => all.min(),
                        Reduce::Max => all.max(),
                        Reduce::Sum => all.reduce(u64::wrapping_add),
                    }
                })
                .map(|value| value.unwrap_or(0))
                .collect();
            ensure!(comm.all_reduce(&mine, op)? == expected, "{op:?} of {count} values is wrong");
        }
    }
    Ok(())
}

/// Values of each type come to all ranks, and are combined.
fn types(comm: &Stage<'_>) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let last = size - 1;
    let sum = (0..size).sum::<usize>();
    ensure!(comm.all_reduce(rank, Reduce::Sum)? == sum, "usize");
    ensure!(comm.all_reduce(-(rank as i64), Reduce::Min)? == -(last as i64), "i64");
    ensure!(comm.all_reduce(rank as f32 + 0.5, Reduce::Max)? == last as f32 + 0.5, "f32");
    ensure!(comm.all_reduce(0.25 * rank as f64, Reduce::Sum)? == 0.25 * sum as f64, "f64");
    ensure!(
        comm.all_reduce([u64::MAX; 2].map(u128::from), Reduce::Sum)?[1]
            == u128::from(u64::MAX) * size as u128,
        "u128"
    );
    let complex = [rank as f64, -(rank as f64)];
    ensure!(
        comm.all_reduce(&[complex][..], Reduce::Sum)? == [[sum as f64, -(sum as f64)]],
        "complex numbers"
    );
    ensure!(comm.all_reduce(Vec::<f64>::new(), Reduce::Min)?.is_empty(), "no value");
    let one_nan = if rank == last { f64::NAN } else { 1.0 };
    ensure!(comm.all_reduce(one_nan, Reduce::Max)?.is_nan(), "a NaN is lost");
    ensure!(comm.broadcast(last, rank)? == last, "usize from the last rank");
    ensure!(comm.broadcast(0, [rank as f64, 1.5])? == [0.0, 1.5], "an array");
    let rows = if rank == last { vec![[1u16, 2], [3, 4]] } else { Vec::new() };
    ensure!(comm.broadcast(last, rows)? == [[1, 2], [3, 4]], "a vector of arrays");
    ensure!(comm.all_gather(rank as i16)? == (0..size as i16).collect::<Vec<_>>(), "one number of each rank");
    Ok(())
}

/// All ranks fail with the same arguments of two ranks, and the communicator stays usable.
fn all_name(comm: &Stage<'_>, error: Option<CommError>, parts: &[&str]) -> Outcome {
    let Some(error @ CommError::Arguments { .. }) = error else { fail!("{parts:?}: {error:?}") };
    let text = error.to_string();
    ensure!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    let all = comm.all_gather(text.into_bytes())?;
    ensure!(all.iter().all(|text| *text == all[0]), "ranks return different errors: {all:?}");
    Ok(())
}

fn different_roots(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    for odd in [0, comm.size() - 1] {
        for other in [1 - odd.min(1), comm.size()] {
            let root = if comm.rank() == odd { odd } else { other };
            let ended = comm.broadcast(root, comm.rank());
            all_name(
                comm,
                ended.err(),
                &[&format!("rank {odd} passes root {odd}"), &format!("root {other}")],
            )?;
        }
    }
    Ok(())
}

fn different_counts(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    for odd in [0, comm.size() - 1] {
        let values = vec![1u64; if comm.rank() == odd { 3 } else { 2 }];
        let ended = comm.all_reduce(&values, Reduce::Sum);
        let named = format!("rank {odd} passes sum of 3 u64 values");
        all_name(comm, ended.err(), &[&named, "passes sum of 2 u64 values"])?;
        let mut bytes = vec![7u8; if comm.rank() == odd { 3 } else { 2 }];
        let ended = comm.broadcast_bytes(0, &mut bytes);
        let named = format!("rank {odd} passes root 0 (3 u8 values)");
        all_name(comm, ended.err(), &[&named, "passes root 0 (2 u8 values)"])?;
        let sum = comm.all_reduce([1], Reduce::Sum)?;
        ensure!(sum == [comm.size() as i32], "the next all-reduce returns {sum:?}");
    }
    Ok(())
}

fn different_types(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let is_first = comm.rank() == 0;
    let ended = match is_first {
        true => comm.all_reduce(1.0f64, Reduce::Sum).map(drop),
        false => comm.all_reduce(1u64, Reduce::Sum).map(drop),
    };
    all_name(comm, ended.err(), &["rank 0 passes sum of 1 f64 value", "passes sum of 1 u64 value"])?;
    let ended = comm.all_reduce(1, if is_first { Reduce::Min } else { Reduce::Max });
    all_name(comm, ended.err(), &["rank 0 passes minimum of 1 i32 value", "passes maximum of 1 i32 value"])?;
    let ended = match is_first {
        true => comm.all_gather(1.0f64).map(drop),
        false => comm.all_gather(vec![1.0f32]).map(drop),
    };
    all_name(comm, ended.err(), &["rank 0 passes 1 f64 value", "passes f32 values"])
}

/// A collective call and its name.
type Call = (&'static str, fn(&Communicator) -> Result<(), Error>);

const BARRIER: Call = ("barrier", |comm| Ok(comm.barrier()?));
const BROADCAST: Call = ("broadcast", |comm| Ok(comm.broadcast(0, 1).map(drop)?));
const REDUCE: Call = ("all_reduce", |comm| Ok(comm.all_reduce(1, Reduce::Sum).map(drop)?));
const GATHER: Call = ("all_gather", |comm| Ok(comm.all_gather(1).map(drop)?));
const SPARSE: Call = ("sparse_exchange", |comm| Ok(comm.sparse_exchange(Vec::new()).map(drop)?));
const PATTERN: Call = ("pattern", |comm| line(comm).map(drop));
const BIND: Call = ("bind", |comm| HaloExchange::bind(comm, ()).map(drop));
const AGREE: Call = ("agree", |comm| agree(comm, Ok::<_, Error>(())));

fn line(comm: &Communicator) -> Result<Pattern, Error> {
    RegularGrid::new([3 * comm.size()]).decompose(comm.size())?.pattern(comm, Halo::uniform(1))
}

/// Rank 0 makes one call, the others another one: no rank hangs, and each error names the calls and their ranks.
fn different_calls(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let pairs = [
        (BIND, BARRIER),
        (BARRIER, BIND),
        (PATTERN, BIND),
        (GATHER, BARRIER),
        (BROADCAST, SPARSE),
        (REDUCE, AGREE),
        // Each waits for the other's first message.
        (REDUCE, BROADCAST),
    ];
    for (first, other) in pairs {
        let apart = comm.duplicate()?;
        let (_, call) = if comm.rank() == 0 { first } else { other };
        // A rank that completed without a wait fails in its next call.
        let error = match call(&apart).and_then(|()| Ok(apart.barrier()?)) {
            Err(Error::Comm(error)) => error,
            ended => fail!("{} beside {}: {ended:?}", first.0, other.0),
        };
        let text = error.to_string();
        let says = text.contains(&format!("rank 0 is in {}, rank ", first.0));
        ensure!(
            says && text.contains(&format!(" in {};", other.0)),
            "{} beside {}: {text}",
            first.0,
            other.0
        );
        ensure!(matches!(error, CommError::Mismatch { rank: 0, .. }), "{error:?}");
    }
    // Other communicators are none the worse.
    comm.barrier()?;
    Ok(())
}

/// The messages of rank `from` in a round: to random ranks, to some of them several times, to itself too.
fn sends(round: u64, from: usize, size: usize) -> Vec<(usize, Vec<u8>)> {
    let mut numbers = Numbers::new(mix(round) ^ from as u64);
    let count = if numbers.one_in(4) { 0 } else { numbers.below(2 * size + 1) };
    (0..count)
        .map(|_| {
            let (to, len) = (numbers.below(size), numbers.below(4) * numbers.below(300));
            (to, numbers.bytes(len))
        })
        .collect()
}

fn sparse_exchange(comm: &Stage<'_>) -> Outcome {
    for round in 0..30 {
        let mut came = comm.sparse_exchange(sends(round, comm.rank(), comm.size()))?;
        ensure!(came.is_sorted_by_key(|(from, _)| *from), "round {round}: not in the order of senders");
        let mut expected: Vec<(usize, Vec<u8>)> = (0..comm.size())
            .flat_map(|from| sends(round, from, comm.size()).into_iter().map(move |sent| (from, sent)))
            .filter(|(_, (to, _))| *to == comm.rank())
            .map(|(from, (_, bytes))| (from, bytes))
            .collect();
        came.sort();
        expected.sort();
        ensure!(
            came == expected,
            "round {round}: {} messages came, {} were sent",
            came.len(),
            expected.len()
        );
    }
    Ok(())
}

fn duplicates(comm: &Stage<'_>) -> Outcome {
    let first = comm.duplicate()?;
    let second = comm.duplicate()?;
    let nested = first.duplicate()?;
    let all = [comm, &first, &second, &nested];
    // Data sent on each, taken in the opposite order.
    let tags: Vec<Tag> = all.iter().map(|comm| Tag { operation: comm.begin(), round: 0 }).collect();
    let next = (comm.rank() + 1) % comm.size();
    for (at, (comm, tag)) in all.iter().zip(&tags).enumerate() {
        comm.send(next, *tag, vec![at as u8])?;
    }
    for (at, (comm, tag)) in all.iter().zip(&tags).enumerate().rev() {
        let came = comm.receive(None, *tag, "a message on a duplicate")?.payload;
        ensure!(came == [at as u8], "communicator {at} got {came:?}");
    }
    drop(first);
    nested.barrier()?;
    second.barrier()?;
    Ok(())
}

fn two_threads(comm: &Stage<'_>) -> Outcome {
    let talk = |comm: &Communicator, thread: u64| -> Outcome {
        for round in 0..40 {
            let mine = mix(thread << 40 | round << 20 | comm.rank() as u64);
            let sum = (0..comm.size() as u64).map(|rank| mix(thread << 40 | round << 20 | rank));
            let sum = sum.fold(0, u64::wrapping_add);
            ensure!(
                comm.all_reduce(&[mine], Reduce::Sum)? == [sum],
                "thread {thread}, round {round}: the sum"
            );
            let root = (round as usize + thread as usize) % comm.size();
            let came = comm.broadcast(root, mine.to_le_bytes().to_vec())?;
            let sent = mix(thread << 40 | round << 20 | root as u64).to_le_bytes();
            ensure!(came == sent, "thread {thread}, round {round}: the broadcast");
            comm.barrier()?;
        }
        Ok(())
    };
    let (first, second) = (comm.duplicate()?, comm.duplicate()?);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| talk(&second, 1));
        let here = talk(&first, 0);
        let Ok(there) = other.join() else { fail!("the other thread has panicked") };
        here.and(there)
    })
}
