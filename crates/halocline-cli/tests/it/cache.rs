//! `halocline cache` as its users meet it.

use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
use std::path::Path;
use std::process::{Command, Output};

fn halocline(cache: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("cache").args(arguments.split(' ')).env("HALOCLINE_CACHE", cache).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder for `HALOCLINE_CACHE` with programs of these names.
fn folder(programs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("programs"));
    for program in programs {
        let build = |folder: &BuildFolder| -> std::io::Result<Built> {
            std::fs::write(folder.path().join("lib.so"), vec![0; 2048])?;
            Ok(Built::new("lib.so"))
        };
        let key = Key::of(program).part("source", *program).finish();
        cache.get_or_build(&key, &BuildOptions::default(), build).unwrap();
    }
    folder
}

#[test]
fn an_empty_cache_is_listed_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["list", "verify", "clear --all"] {
        let text = text(&halocline(folder.path(), command));
        assert!(text.contains("0 programs of 0 B"), "{command}: {text}");
    }
    assert!(!folder.path().join("programs").exists());
}

#[test]
fn programs_are_listed_in_words_and_in_json() {
    let folder = folder(&["heat", "ocean"]);
    let listed = text(&halocline(folder.path(), "list"));
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("program") && lines[0].contains("last use"), "{listed}");
    assert!(lines[1..3].iter().all(|line| line.contains("2 KiB") && line.contains("now")), "{listed}");
    assert_eq!(lines[3], format!("2 programs of 4 KiB in {}", folder.path().join("programs").display()));
    let other = format!("--json list --dir {}", folder.path().join("programs").display());
    let json = text(&halocline(Path::new("/nowhere"), &other));
    let programs: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut names: Vec<&str> =
        programs.iter().map(|program| program["record"]["program"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["heat", "ocean"]);
    assert_eq!(programs[0]["bytes"], 2048);
    assert!(Path::new(programs[0]["library"].as_str().unwrap()).exists());
}

#[test]
fn verify_finds_a_changed_bit_and_removes_the_program_if_it_is_asked_to() {
    let folder = folder(&["heat", "ocean"]);
    assert!(
        text(&halocline(folder.path(), "verify")).starts_with("whole: 2 programs of 4 KiB, damaged: 0, in ")
    );
    let library = Cache::at(folder.path().join("programs")).list().unwrap().entries[0].library();
    let mut bytes = std::fs::read(&library).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&library, bytes).unwrap();
    for (command, first) in [("verify", "damaged: "), ("verify --remove", "damaged, removed: ")] {
        let output = halocline(folder.path(), command);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(first) && text.contains("lib.so was changed"), "{text}");
        assert!(text.contains("whole: 1 program of 2 KiB, damaged: 1"), "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert!(text(&halocline(folder.path(), "verify")).contains("whole: 1 program of 2 KiB, damaged: 0"));
}

#[test]
fn clear_says_what_it_has_removed() {
    let folder = folder(&["heat", "ocean", "waves"]);
    let refused = halocline(folder.path(), "clear");
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(halocline(folder.path(), "clear --all --program heat").status.code(), Some(2));
    assert_eq!(halocline(folder.path(), "clear --unused-for 3").status.code(), Some(2));
    let removed = |arguments: &str| text(&halocline(folder.path(), arguments));
    assert!(removed("clear --unused-for 1d").starts_with("removed 0 programs"));
    let heat = removed("clear --program heat");
    assert!(heat.contains("\nheat ") && heat.contains("removed 1 program of 2 KiB from "), "{heat}");
    let rest = removed("clear --all --json");
    assert_eq!(rest.lines().count(), 2, "{rest}");
    assert!(removed("list").starts_with("0 programs"));
}

#[test]
fn a_user_without_a_cache_folder_is_told_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    let output = command.args(["cache", "list"]).env("HALOCLINE_CACHE", "off").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("there is no folder for the program cache: HALOCLINE_CACHE is off"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}
