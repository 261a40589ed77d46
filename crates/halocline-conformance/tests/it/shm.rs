//! Jobs of processes on one machine that are not cases of the suite.

use halocline_conformance::processes::Ranks;
use std::time::Duration;

/// The times are of no device; what is counted is as it is on GPUs.
#[test]
fn binds_are_measured_beside_their_mappings() {
    let program = env!("CARGO_BIN_EXE_halocline-conformance");
    let mut ranks = Ranks::start(program, 2, &["bind-costs"]);
    let in_time = ranks.await_end(0..2, Duration::from_secs(120));
    let ends = ranks.end();
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    assert!(in_time && ends.iter().all(|end| end.status.success()), "in time: {in_time}\n{output}");
    // Fields, opens, raw, cold, bar, whether it is met, opens once more, warm.
    let row = |line: &str| -> Option<[u64; 3]> {
        let columns: Vec<&str> = line.strip_prefix("[0]")?.split('|').map(str::trim).collect();
        let number = |at: usize| columns.get(at)?.parse().ok();
        Some([number(0)?, number(1)?, number(6)?])
    };
    let rows: Vec<[u64; 3]> = output.lines().filter_map(row).collect();
    let words = rows.first().map_or(0, |row| row[2]);
    assert!(words > 0, "{output}");
    assert_eq!(rows, [[1, 1 + words, words], [8, 8 + words, words]], "{output}");
    print!("{output}");
}

/// Simulated devices of other processes are as GPUs that are not visible: known by name alone, and mapped all the same.
#[test]
fn ranks_report_their_paths_to_devices_they_do_not_see() {
    let mut ranks = Ranks::start(env!("CARGO_BIN_EXE_halocline-conformance"), 2, &["seen"]);
    let in_time = ranks.await_end(0..2, Duration::from_secs(120));
    let ends = ranks.end();
    for (rank, end) in ends.iter().enumerate() {
        let said = &end.output;
        assert!(in_time && end.status.success(), "in time: {in_time}\n{said}");
        assert!(
            said.contains("not seen here") && said.contains("mapped by simulation"),
            "rank {rank}:\n{said}"
        );
    }
}
