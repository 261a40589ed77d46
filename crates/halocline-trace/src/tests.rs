//! What becomes of the file.

use super::notes::Entry;
use super::record::now;
use super::*;
use serde_json::Value;

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for path in
        [folder.path().to_owned(), folder.path().join("none/trace.json"), PathBuf::from("/dev/null/x")]
    {
        match check(&path) {
            Err(TraceError::File { path: named, .. }) => assert_eq!(named, path),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    // Rank 0 cannot write it: no rank begins.
    let path = folder.path().join("none/trace.json");
    let ranks: Vec<_> = Communicator::threads(3)
        .into_iter()
        .map(|comm| {
            let path = path.clone();
            std::thread::spawn(move || Trace::begin(&comm, &path).map(drop))
        })
        .collect();
    for (rank, ended) in ranks.into_iter().enumerate() {
        match (rank, ended.join().unwrap()) {
            (0, Err(TraceError::File { .. })) => {}
            (_, Err(TraceError::Elsewhere(why))) => assert!(why.contains("cannot write the trace"), "{why}"),
            (rank, other) => panic!("rank {rank}: {other:?}"),
        }
    }
}

fn entry(rank: usize, name: &str, round: u64) -> Entry {
    let fields = [("round".to_owned(), round.into())].into_iter().collect();
    let (name, target) = (name.to_owned(), "halocline");
    Entry { rank, name, target, begin: now(), end: Some(now()), thread: 7, fields }
}

/// Rank 1 records more in each round and reaches the limit first.
#[test]
fn a_trace_ends_on_all_ranks_where_one_has_reached_the_limit() {
    const ROUNDS: u64 = 30;
    let folder = tempfile::tempdir().unwrap();
    for (most, shown) in [(1000, 30), (100, 20), (40, 8)] {
        let path = folder.path().join(format!("{most}.json"));
        let recorder = Recorder::with_limit(most);
        let ranks: Vec<_> = Communicator::threads(2)
            .into_iter()
            .map(|comm| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let (rank, trace) = (comm.rank(), Trace::begin_in(recorder, &comm, &path).unwrap());
                    for round in 0..ROUNDS {
                        comm.barrier().unwrap();
                        recorder.add(entry(rank, "exchange", round));
                        (0..1 + 3 * rank).for_each(|_| recorder.add(entry(rank, "unpack", round)));
                    }
                    trace.finish(&comm).unwrap().unwrap();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let left_out = file["otherData"]["events_left_out"].as_u64().unwrap();
        assert!(left_out >= (ROUNDS - shown) * 5 && (left_out > 0) == (shown < ROUNDS), "{most}: {left_out}");
        for rank in 0..2 {
            let events = file["traceEvents"].as_array().unwrap().iter();
            let events = events.filter(|event| event["pid"] == rank && event["name"] == "exchange");
            let rounds: Vec<_> = events.map(|event| event["args"]["round"].as_u64().unwrap()).collect();
            // Rank 0 may have begun the round in which rank 1 reaches the limit.
            let last = rounds.len() as u64;
            assert!(rounds.iter().copied().eq(0..last), "{rounds:?} of rank {rank}, {most} events");
            assert!(
                last == shown || rank == 0 && last == shown + 1,
                "{last} rounds of rank {rank}, {most} events"
            );
        }
    }
}
