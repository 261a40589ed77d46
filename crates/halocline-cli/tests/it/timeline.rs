//! `halocline plot trace` as its users meet it.

use serde_json::json;
use std::path::Path;
use std::process::{Command, Output};

fn plot(directory: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.args(["plot", "trace"]).args(args.split_whitespace()).current_dir(directory).output().unwrap()
}

#[test]
fn a_trace_becomes_a_picture_and_what_is_none_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let span = |rank: u64, name: &str, ts: f64| json!({"ph": "X", "pid": rank, "tid": 1, "ts": ts, "dur": 5.0, "name": name});
    let trace = json!({"traceEvents": [span(0, "interior", 1.0), span(1, "wait", 7.0)]}).to_string();
    std::fs::write(directory.path().join("t.json"), trace).unwrap();
    for (picture, begin) in [("a.png", &b"\x89PNG"[..]), ("a.svg", b"<svg")] {
        let output = plot(directory.path(), &format!("t.json {picture}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(directory.path().join(picture)).unwrap().starts_with(begin));
    }
    let svg = std::fs::read_to_string(directory.path().join("a.svg")).unwrap();
    for name in ["rank 0", "rank 1", "interior", "wait"] {
        assert!(svg.contains(name), "{name}");
    }

    std::fs::write(directory.path().join("no.json"), "{}").unwrap();
    let many: Vec<_> = (0..2000).map(|rank| span(rank, "wait", 1.0)).collect();
    std::fs::write(directory.path().join("many.json"), json!({"traceEvents": many}).to_string()).unwrap();
    for (args, code, message) in [
        (
            "no.json a.png",
            1,
            "no.json is no trace: it has no list `traceEvents`; give a file that `--trace` has written",
        ),
        ("nowhere.json a.png", 1, "cannot read nowhere.json: "),
        ("t.json a.pdf", 1, ".svg"),
        ("many.json b.png", 1, "many.json has 2000 threads with spans from 1 to 6 us"),
        ("t.json b.png --from 50 --to 60", 2, "the trace has some from 1 to 12 us"),
        ("t.json b.png --from 5 --to 5", 2, "give an end after its start"),
        ("t.json b.png --from nan --to 5", 2, "give an end after its start"),
        ("t.json b.png --from 5", 2, "--to"),
    ] {
        let output = plot(directory.path(), args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(stderr.contains(message), "{args}: {stderr}");
    }
    assert!(!directory.path().join("b.png").exists());
}
