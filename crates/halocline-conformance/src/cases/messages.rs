//! Point-to-point messages: order, any source, probing, unexpected and large ones.

use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::CommError;
use halocline_comm::{Endpoint, Tag};

pub(crate) const CASES: &[Case] = &[
    Case { name: "messages::arrive_in_the_order_of_their_sender", run: in_order },
    Case { name: "messages::from_any_source", run: any_source },
    Case { name: "messages::unexpected_ones_block_nothing", run: unexpected },
    Case { name: "messages::a_probe_leaves_the_message", run: probe },
    Case { name: "messages::of_20_megabytes_all_at_once", run: large },
    Case { name: "messages::to_oneself", run: to_oneself },
    Case { name: "messages::to_a_rank_that_does_not_exist", run: to_missing_rank },
];

const WHAT: &str = "a message of the suite";

fn in_order(comm: &Stage<'_>) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 7 };
    for number in 0..200u64 {
        for to in 0..comm.size() {
            // Of very different length, so that none could overtake unnoticed.
            let len = if number.is_multiple_of(50) { 100_000 } else { number as usize % 5 };
            comm.send(to, tag, [number.to_le_bytes().to_vec(), vec![0; len]].concat())?;
        }
    }
    for from in 0..comm.size() {
        for number in 0..200u64 {
            let came = comm.receive(Some(from), tag, WHAT)?;
            ensure!(came.source == from && came.tag == tag, "{:?} from rank {}", came.tag, came.source);
            let found = came.payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            ensure!(found == Some(number), "message {found:?} of rank {from} came as number {number}");
        }
    }
    Ok(())
}

fn any_source(comm: &Stage<'_>) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 0 };
    for to in 0..comm.size() {
        for number in 0..20u8 {
            comm.send(to, tag, vec![number])?;
        }
    }
    let mut next = vec![0; comm.size()];
    for _ in 0..20 * comm.size() {
        let came = comm.receive(None, tag, WHAT)?;
        ensure!(came.payload == [next[came.source]], "rank {}: {:?} came", came.source, came.payload);
        next[came.source] += 1;
    }
    ensure!(next.iter().all(|&count| count == 20), "from each rank came {next:?}");
    ensure!(comm.link().inbox().probe(tag, None).is_none(), "there is more than was sent");
    Ok(())
}

fn unexpected(comm: &Stage<'_>) -> Outcome {
    let operations = [comm.begin(), comm.begin()];
    let tags: Vec<Tag> = operations
        .into_iter()
        .flat_map(|operation| (0..30).map(move |round| Tag { operation, round }))
        .collect();
    let next = (comm.rank() + 1) % comm.size();
    for tag in &tags {
        comm.send(next, *tag, Numbers::new(tag.operation ^ tag.round).bytes(5000))?;
    }
    for tag in tags.iter().rev() {
        let came = comm.receive(None, *tag, WHAT)?.payload;
        ensure!(
            came == Numbers::new(tag.operation ^ tag.round).bytes(5000),
            "round {} is damaged",
            tag.round
        );
    }
    Ok(())
}

fn probe(comm: &Stage<'_>) -> Outcome {
    let operation = comm.begin();
    let (data, after) = (Tag { operation, round: 0 }, Tag { operation, round: 1 });
    let (next, before) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    let inbox = comm.link().inbox();
    let never = Tag { operation, round: 2 };
    ensure!(inbox.probe(never, None).is_none(), "a message arrived that no rank sent");
    comm.send(next, data, vec![1; 123])?;
    comm.send(next, data, vec![2; 45])?;
    comm.send(next, after, Vec::new())?;
    // Messages of one sender arrive in order: with the last one, the others are there.
    comm.receive(Some(before), after, WHAT)?;
    for _ in 0..2 {
        ensure!(inbox.probe(data, Some(before)) == Some(123), "a probe does not see the first message");
        ensure!(inbox.probe(data, None) == Some(123), "a probe of any source does not see it");
    }
    let nobody = Some(comm.size());
    ensure!(inbox.probe(data, nobody).is_none(), "a probe sees a message of another sender");
    for (len, byte) in [(123, 1), (45, 2)] {
        let came = comm.receive(Some(before), data, WHAT)?.payload;
        ensure!(came == vec![byte; len], "{} bytes came after a probe", came.len());
    }
    ensure!(inbox.probe(data, None).is_none(), "a probe sees what was taken");
    Ok(())
}

fn large(comm: &Stage<'_>) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 0 };
    let len = 20 << 20;
    let bytes = |rank: usize| {
        let block = Numbers::new(rank as u64).bytes(4099);
        let mut bytes = block.repeat(len / block.len() + 1);
        bytes.truncate(len);
        bytes
    };
    let (next, before) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    comm.send(next, tag, bytes(comm.rank()))?;
    // A small one overtakes nothing, and is not lost behind it.
    comm.send(next, tag, vec![9])?;
    let came = comm.receive(Some(before), tag, WHAT)?.payload;
    ensure!(came == bytes(before), "the {} bytes of rank {before} are damaged", came.len());
    ensure!(comm.receive(Some(before), tag, WHAT)?.payload == [9], "what follows is damaged");
    Ok(())
}

fn to_oneself(comm: &Stage<'_>) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 3 };
    comm.send(comm.rank(), tag, vec![4, 5])?;
    let came = comm.receive(Some(comm.rank()), tag, WHAT)?;
    ensure!(came.payload == [4, 5] && came.source == comm.rank(), "{:?} came", came.payload);
    Ok(())
}

fn to_missing_rank(comm: &Stage<'_>) -> Outcome {
    let tag = Tag { operation: comm.begin(), round: 0 };
    match comm.send(comm.size(), tag, Vec::new()) {
        Err(CommError::NoSuchRank { rank, size }) if rank == size && size == comm.size() => Ok(()),
        other => fail!("a message to rank {} gives {other:?}", comm.size()),
    }
}
