//! What becomes of the file.

use super::notes::{Entry, Notes};
use super::record::now;
use super::*;
use serde_json::{Value, json};

fn args(path: &Path) -> TraceArgs {
    TraceArgs { path: Some(path.to_owned()) }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for path in
        [folder.path().to_owned(), folder.path().join("none/trace.json"), PathBuf::from("/dev/null/x")]
    {
        match args(&path).check() {
            Err(TraceError::File { path: named, .. }) => assert_eq!(named, path),
            other => panic!("{}: {other:?}", path.display()),
        }
    }
    // Rank 0 cannot write it: no rank begins.
    let path = folder.path().join("none/trace.json");
    let ranks: Vec<_> = Communicator::threads(3)
        .into_iter()
        .map(|comm| {
            let args = args(&path);
            std::thread::spawn(move || args.begin(&comm).map(drop))
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

/// The begin of an exchange of an object, or something that was done for it.
fn entry(rank: usize, name: &str, epoch: u64) -> Entry {
    let fields = [("object", "a".into()), ("epoch", epoch.into())];
    let fields = fields.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().collect();
    let (name, target) = (name.to_owned(), "halocline");
    Entry { rank, epoch: Some(epoch), name, target, begin: now(), end: Some(now()), thread: 7, fields }
}

/// Rank 1 does more in each exchange and records fewer of them, until both agree.
#[test]
fn a_trace_within_a_limit_shows_the_same_epochs_on_all_ranks_and_says_so() {
    const EPOCHS: u64 = 30;
    let folder = tempfile::tempdir().unwrap();
    for (most, stride) in [(1000, 1), (100, 2), (40, 4)] {
        let path = folder.path().join(format!("{most}.json"));
        let recorder = Recorder::with_limit(most);
        let ranks: Vec<_> = Communicator::threads(2)
            .into_iter()
            .map(|comm| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let (rank, trace) = (comm.rank(), Trace::begin_in(recorder, &comm, &path).unwrap());
                    for epoch in 1..=EPOCHS {
                        recorder.add(entry(rank, "exchange", epoch));
                        (0..1 + 3 * rank).for_each(|_| recorder.add(entry(rank, "unpack", epoch)));
                    }
                    trace.finish(&comm).unwrap().unwrap();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let shown: Vec<u64> = (1..=EPOCHS).step_by(stride).collect();
        let other = &file["otherData"];
        assert_eq!((&other["epoch_stride"], other["clock"].is_string()), (&stride.into(), true), "{other}");
        assert_eq!(other["epochs_left_out"], EPOCHS - shown.len() as u64, "{other}");
        assert!(other.get("events_without_room").is_none(), "{other}");
        for rank in 0..2 {
            for (name, each) in [("exchange", 1), ("unpack", 1 + 3 * rank)] {
                let events = file["traceEvents"].as_array().unwrap().iter();
                let events = events.filter(|event| event["pid"] == rank && event["name"] == name);
                let epochs: Vec<_> = events.map(|event| event["args"]["epoch"].as_u64().unwrap()).collect();
                let due: Vec<u64> = shown.iter().flat_map(|epoch| vec![*epoch; each]).collect();
                assert_eq!(epochs, due, "{name} of rank {rank}, {most} events");
            }
        }
    }
}

#[test]
fn what_a_trace_does_not_show_is_told() {
    let mut notes = Notes::new(4);
    (0..9).for_each(|_| notes.add(entry(0, "wait", 1), || "main".to_owned()));
    notes.thin(2);
    notes.device_ends(12);
    notes.device_ends(10);
    let comm = Communicator::threads(1).remove(0);
    let coverage = Coverage::agree(&comm, &mut notes).unwrap();
    let file = Value::from(coverage.to_json());
    let due = json!({
        "epoch_stride": 2, "epochs_left_out": 0, "events_without_room": 5, "device_times_end_after_epoch": 10,
    });
    assert_eq!(file, due);
    let told = coverage.warnings();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].contains("one of 2 epochs") && told[0].contains("(1, 3, 5, ...)"), "{told:?}");
    assert!(told[1].contains("lacks 5 events") && told[2].contains("after epoch 10"), "{told:?}");
}
