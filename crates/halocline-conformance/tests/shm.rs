//! The suite over ranks that are processes: all cases in one job for each number of ranks, and with fields in memory of simulated
//! devices.
//! `HALOCLINE_CASES` names a part of it.

use halocline_conformance::processes::Ranks;
use std::time::Duration;

fn run(size: usize) {
    run_part("suite", size);
}

fn run_part(part: &str, size: usize) {
    let filter = std::env::var("HALOCLINE_CASES").unwrap_or_default();
    let mut ranks = Ranks::start(env!("CARGO_BIN_EXE_halocline-conformance"), size, &[part, &filter]);
    // Each rank watches its cases by itself; this is for what is beside them.
    let in_time = ranks.await_end(0..size, Duration::from_secs(240));
    let ends = ranks.end();
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    let failed: Vec<usize> = (0..size).filter(|&rank| !ends[rank].status.success()).collect();
    assert!(in_time && failed.is_empty(), "ranks {failed:?} of {size} failed (in time: {in_time})\n{output}");
    if std::env::var_os("HALOCLINE_TIMES").is_some() {
        print!("{output}");
    }
}

#[test]
fn one_rank() {
    run(1);
}

#[test]
fn two_ranks() {
    run(2);
}

#[test]
fn three_ranks() {
    run(3);
}

#[test]
fn four_ranks() {
    run(4);
}

#[test]
fn five_ranks() {
    run(5);
}

#[test]
fn eight_ranks() {
    run(8);
}

#[test]
fn three_ranks_with_fields_on_devices() {
    run_part("fields", 3);
}

/// The times are of no device; what is counted is as it is on GPUs.
#[test]
fn binds_are_measured_beside_their_opens() {
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
fn ranks_tell_by_which_way_they_reach_devices_that_they_do_not_see() {
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
