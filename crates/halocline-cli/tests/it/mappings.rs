//! `halocline info --mappings` as its users meet it.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn info(args: &[&str], limit: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("info").args(args).stdin(Stdio::null()).env("HALOCLINE_MAPPINGS_ENTRIES", limit);
    command.output().unwrap()
}

#[test]
fn processes_map_memory_of_each_other_and_give_it_back() {
    for (ranks, limit) in [("2", "1024"), ("3", "0")] {
        let output = info(&["--mappings", "--ranks", ranks, "--json"], limit);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{stderr}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["limits"]["entries"].to_string(), limit);
        let (all, others) = (said["ranks"].as_array().unwrap(), ranks.parse::<u64>().unwrap() - 1);
        assert_eq!(all.len() as u64, others + 1);
        for said in all {
            let (host, device) = (&said["host"], &said["device"]);
            assert_eq!((&host["kind"], &host["used"]["opens"]), (&"memfd".into(), &others.into()), "{said}");
            assert_eq!(host["used"]["hits"], others, "{said}");
            // The field, found again by the second bind if it was kept, and words of each bind.
            let opens = if limit == "0" { 4 } else { 3 };
            assert_eq!(device["used"]["opens"], opens * others, "{said}");
            assert_eq!(device["used"]["hits"], if limit == "0" { 0 } else { others }, "{said}");
            assert_eq!(device["used"]["staged"], 0, "{said}");
            for after in [&host["after"], &device["after"]] {
                assert_eq!(
                    (after["bytes_held"].as_u64(), after["bytes_mapped"].as_u64()),
                    (Some(0), Some(0))
                );
            }
            let table = device["table"].as_str().unwrap();
            assert!(table.contains("direct, push") && table.contains("mapped by"), "{table}");
        }
    }
}

#[test]
fn the_table_and_what_is_said_of_wrong_limits() {
    let output = info(&["--mappings"], "7");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("7 unused allocations"), "{text}");
    assert!(text.contains("memfd") && text.contains("rank 1 of 2, transport shm"), "{text}");
    let output = info(&["--mappings"], "many");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("HALOCLINE_MAPPINGS_ENTRIES is \"many\""),
        "{stderr}"
    );
    assert_eq!(info(&["--ranks", "3"], "7").status.code(), Some(2));
}
