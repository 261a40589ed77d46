//! What becomes of the file.

use super::*;

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

#[test]
fn what_was_there_stays_until_the_trace_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.json"));
    std::fs::write(&old, "something of the user's").unwrap();
    for path in [&old, &new] {
        args(path).check().unwrap();
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "something of the user's");
    assert!(!new.exists(), "a check leaves a file behind");
    for path in [&old, &new] {
        let mut target = Target::open(path).unwrap();
        target.write(&[b"{", b"}"]).unwrap();
        drop(target);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "{}");
    }
}

#[test]
fn a_file_that_fills_its_disk_is_an_error() {
    let mut target = Target::open(Path::new("/dev/full")).unwrap();
    assert_eq!(target.write(&[b"{}"]).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}
