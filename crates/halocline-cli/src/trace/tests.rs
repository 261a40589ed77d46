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
