//! `halocline launch` as its users meet it: real processes, what they print, how they end.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// `halocline launch` with these arguments.
pub(crate) fn launch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("launch").args(args).stdin(Stdio::null());
    command
}

/// `halocline launch options -- sh -c script`, run to its end.
pub(crate) fn run(options: &str, script: &str) -> Output {
    start(options, script).wait_with_output().unwrap()
}

/// The same, started, with all its output in pipes.
pub(crate) fn start(options: &str, script: &str) -> Child {
    let options: Vec<&str> = options.split_whitespace().chain(["--", "sh", "-c", script]).collect();
    launch(&options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines in sorted order: that of different ranks is not fixed.
fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Reads `count` lines from a started launcher.
pub(crate) fn read_lines(from: &mut impl BufRead, count: usize) -> Vec<String> {
    let lines = from.lines().take(count).map(Result::unwrap);
    let mut lines: Vec<String> = lines.collect();
    assert_eq!(lines.len(), count, "{lines:?}");
    lines.sort();
    lines
}

/// The process ids in lines like `[1] 4711`.
pub(crate) fn pids(lines: &[String]) -> Vec<Pid> {
    let pid = |line: &String| Pid::from_raw(line.rsplit(' ').next()?.parse().ok()?);
    lines.iter().map(|line| pid(line).unwrap()).collect()
}

pub(crate) fn watch(pid: Pid) -> OwnedFd {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

/// Waits for a process to end, 30 s at most.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap() == 1
}

/// Waits for the launcher to end, 30 s at most.
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    let pid = Pid::from_child(child);
    if !has_ended(&watch(pid)) {
        child.kill().unwrap();
        panic!("the launcher has not ended");
    }
    child.wait().unwrap()
}

pub(crate) fn send(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn every_line_carries_its_rank_on_its_own_stream() {
    let output = run("-n 3", "echo out; echo err >&2; printf 'no end'");
    assert_eq!(output.status.code(), Some(0));
    let out = ["[0] no end", "[0] out", "[1] no end", "[1] out", "[2] no end", "[2] out"];
    assert_eq!(sorted(&output.stdout), out);
    assert_eq!(sorted(&output.stderr), ["[0] err", "[1] err", "[2] err"]);
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn without_prefix_lines_are_as_they_were() {
    let output = run("-n 2 --no-prefix", "echo out");
    assert_eq!(text(&output.stdout), "out\nout\n");
}

#[test]
fn lines_of_ranks_do_not_mix() {
    let script = r#"r=$HALOCLINE_RANK; i=0
        while [ $i -lt 300 ]; do printf $r$r$r; printf $r$r; echo $r; i=$((i+1)); done"#;
    let output = run("-n 4", script);
    let mut counts = [0; 4];
    for line in text(&output.stdout).lines() {
        let rank: usize = line[1..2].parse().unwrap();
        assert_eq!(line, format!("[{rank}] {rank}{rank}{rank}{rank}{rank}{rank}"));
        counts[rank] += 1;
    }
    assert_eq!(counts, [300; 4]);
}

#[test]
fn long_lines_and_binary_bytes_survive() {
    let script = r"head -c 3000000 /dev/zero | tr '\0' x; echo; printf '\000\001\377\015\n'";
    let output = run("-n 2", script);
    for rank in ["[0] ", "[1] "] {
        let long = [rank.as_bytes(), &vec![b'x'; 3_000_000], b"\n"].concat();
        let binary = [rank.as_bytes(), b"\x00\x01\xff\r\n"].concat();
        for expected in [long, binary] {
            assert!(output.stdout.windows(expected.len()).any(|bytes| bytes == expected));
        }
    }
    assert_eq!(output.stdout.len(), 2 * (3_000_005 + 9));
}

#[test]
fn json_makes_every_line_an_object_and_ends_with_how_the_ranks_ended() {
    let output = run("-n 2 --json", "echo out $HALOCLINE_RANK; printf '\\377' >&2; exit $HALOCLINE_RANK");
    let objects: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 5);
    for rank in 0..2 {
        let out = serde_json::json!({"rank": rank, "stream": "stdout", "text": format!("out {rank}")});
        let err = serde_json::json!({"rank": rank, "stream": "stderr", "hex": "ff"});
        assert!(objects.contains(&out) && objects.contains(&err), "{objects:?}");
    }
    let end = objects.last().unwrap();
    assert_eq!((&end["event"], &end["exit_code"]), (&"end".into(), &1.into()));
    assert_eq!(end["ranks"], serde_json::json!([{"rank": 0, "exit_code": 0}, {"rank": 1, "exit_code": 1}]));
}

#[test]
fn ranks_know_their_job_and_hold_its_control_segment() {
    let script = r#"echo $HALOCLINE_RANK $HALOCLINE_SIZE $HALOCLINE_JOB
        readlink /proc/self/fd/$HALOCLINE_CONTROL_FD"#;
    let output = run("-n 2", script);
    let lines = sorted(&output.stdout);
    assert_eq!(lines.len(), 4);
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    for (rank, own) in words.chunks(2).enumerate() {
        assert!(own[0][1].contains("memfd:halocline-job"), "{lines:?}");
        assert_eq!(own[1][1..3], [rank.to_string().as_str(), "2"]);
        assert_eq!(own[1][3].len(), 32);
        assert!(own[1][3].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_eq!(words[1][3], words[3][3]);
}

#[test]
fn ranks_have_all_queues_of_gpus_unless_the_environment_says_otherwise() {
    let said = |given: Option<&str>| {
        let mut launch = launch(&["-n", "2", "--", "sh", "-c", "echo $CUDA_DEVICE_MAX_CONNECTIONS"]);
        launch.env_remove("CUDA_DEVICE_MAX_CONNECTIONS");
        let output = launch.envs(given.map(|given| ("CUDA_DEVICE_MAX_CONNECTIONS", given))).output().unwrap();
        sorted(&output.stdout)
    };
    assert_eq!(said(None), ["[0] 32", "[1] 32"]);
    assert_eq!(said(Some("4")), ["[0] 4", "[1] 4"]);
}

#[test]
fn rank_0_has_the_input_and_the_others_have_none() {
    let mut child = launch(&["-n", "2", "--", "sh", "-c", "cat; echo end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(sorted(&output.stdout), ["[0] end", "[0] input", "[1] end"]);
}

/// The CPUs that each rank may run on.
fn affinities(ranks: usize, options: &str) -> Vec<BTreeSet<usize>> {
    let output = run(&format!("-n {ranks} {options}"), "grep Cpus_allowed_list /proc/self/status");
    let list = |line: &String| {
        let parts = line.rsplit('\t').next().unwrap().split(',');
        let ends = parts.map(|part| part.split_once('-').unwrap_or((part, part)));
        ends.flat_map(|(first, last)| first.parse::<usize>().unwrap()..=last.parse().unwrap()).collect()
    };
    sorted(&output.stdout).iter().map(list).collect()
}

#[test]
fn each_rank_has_its_share_of_the_cores() {
    let whole = affinities(1, "--no-bind").remove(0);
    let shares = affinities(whole.len(), "");
    assert!(shares.iter().all(|share| share.len() == 1), "{shares:?}");
    assert_eq!(shares.into_iter().flatten().collect::<BTreeSet<_>>(), whole);
    assert_eq!(affinities(1, ""), [whole]);
}

#[test]
fn more_ranks_than_cores_float() {
    let whole = affinities(1, "--no-bind").remove(0);
    let ranks = whole.len() + 1;
    assert_eq!(affinities(ranks, ""), vec![whole; ranks]);
}

#[test]
fn the_exit_code_is_that_of_the_first_rank_that_failed() {
    // Rank 0 fails only when it is stopped because rank 1 has failed.
    let script = r#"[ $HALOCLINE_RANK = 1 ] && exit 7
        trap 'kill $!; exit 3' TERM; sleep 1000 & wait"#;
    let output = run("-n 2 --grace 0.05", script);
    assert_eq!(output.status.code(), Some(7));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("halocline: rank 1 ended with exit code 7"), "{stderr}");
    assert!(stderr.contains("halocline: stopping rank 0\n"), "{stderr}");
}

#[test]
fn a_killed_rank_is_128_and_its_signal() {
    let output = run("-n 1", "kill -SEGV $$");
    assert_eq!(output.status.code(), Some(128 + 11));
    let stderr = text(&output.stderr);
    assert_eq!(stderr, "halocline: rank 0 was killed by signal 11 (SIGSEGV)\n");
}

#[test]
fn the_others_have_time_to_report_and_leave() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo").to_str().unwrap().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Rank 0 sees the end of the file when rank 1 dies.
    let script = format!(
        "if [ $HALOCLINE_RANK = 1 ]; then exec 9>{fifo}; kill -KILL $$; fi; cat {fifo}; echo report; exit 0"
    );
    let output = run("-n 2 --grace 1000", &script);
    assert_eq!(text(&output.stdout), "[0] report\n");
    assert_eq!(output.status.code(), Some(128 + 9));
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed_with_its_children() {
    let script = r#"[ $HALOCLINE_RANK = 1 ] && exit 1
        trap '' TERM; sleep 1000 & echo $!; wait"#;
    let mut child = start("-n 2 --grace 0.3", script);
    let lines = read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 1);
    let sleeper = watch(pids(&lines)[0]);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(end_of(&mut child).code(), Some(1));
    assert!(stderr.contains("killing rank 0, still running after SIGTERM"), "{stderr}");
    assert!(has_ended(&sleeper));
}

#[test]
fn a_background_process_does_not_hold_the_launcher() {
    let output = run("-n 1", "sleep 1000 & echo $!");
    assert_eq!(output.status.code(), Some(0));
    rustix::process::kill_process(pids(&sorted(&output.stdout))[0], Signal::KILL).unwrap();
}

#[test]
fn a_job_that_takes_too_long_is_stopped() {
    let output = run("-n 2 --timeout 0.05", "exec sleep 1000");
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(text(&output.stderr), "halocline: the time is over: stopping ranks 0-1\n");
}

#[test]
fn signals_are_passed_on() {
    for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::USR1, "USR1")] {
        let script = format!("sleep 1000 & trap 'kill $!; echo {name}; exit 0' {name}; echo ready; wait");
        let mut child = start("-n 2", &script);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(read_lines(&mut stdout, 2), ["[0] ready", "[1] ready"]);
        send(&child, signal);
        assert_eq!(read_lines(&mut stdout, 2), [format!("[0] {name}"), format!("[1] {name}")]);
        assert_eq!(end_of(&mut child).code(), Some(0));
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let mut child = start("-n 2", "trap '' INT; echo $$; exec sleep 1000");
    let ranks = pids(&read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 2));
    let ranks: Vec<OwnedFd> = ranks.into_iter().map(watch).collect();
    send(&child, Signal::INT);
    let stderr = read_lines(&mut BufReader::new(child.stderr.take().unwrap()), 1);
    assert_eq!(stderr, ["halocline: passed SIGINT on to the ranks; once more kills them"]);
    send(&child, Signal::INT);
    assert_eq!(end_of(&mut child).code(), Some(128 + 2));
    assert!(ranks.iter().all(has_ended));
}

#[test]
fn a_launcher_whose_output_nobody_reads_still_obeys() {
    let mut child = start("-n 2", "exec yes");
    // Once something has come, the launcher listens to signals; read no more than that.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    assert_eq!(end_of(&mut child).code(), Some(128 + 15));
}

#[test]
fn a_reader_that_leaves_ends_the_ranks_that_write() {
    let mut child = start("-n 2", "exec yes");
    read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 1);
    assert_eq!(end_of(&mut child).code(), Some(128 + 13));
}

#[test]
fn suspending_the_launcher_loses_nothing() {
    let mut child = launch(&["-n", "2", "--", "sh", "-c", "echo ready; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(read_lines(&mut stdout, 2), ["[0] ready", "[1] ready"]);
    send(&child, Signal::TSTP);
    let options = rustix::process::WaitIdOptions::STOPPED;
    let pid = rustix::process::WaitId::Pid(Pid::from_child(&child));
    assert!(rustix::process::waitid(pid, options).unwrap().unwrap().stopped());
    send(&child, Signal::CONT);
    child.stdin.take().unwrap().write_all(b"on\n").unwrap();
    assert_eq!(read_lines(&mut stdout, 1), ["[0] on"]);
    assert_eq!(end_of(&mut child).code(), Some(0));
}

#[test]
fn after_ctrl_c_the_ends_that_it_causes_are_no_news() {
    // Rank 1 is killed by the signal while rank 0 goes on for as long as rank 1 holds the pipe.
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo").to_str().unwrap().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = format!(
        "if [ $HALOCLINE_RANK = 1 ]; then exec 9>{fifo}; echo ready; exec sleep 1000; fi
         trap '' INT; exec 8<{fifo}; echo ready; cat <&8"
    );
    let mut child = start("-n 2", &script);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(read_lines(&mut stdout, 2), ["[0] ready", "[1] ready"]);
    send(&child, Signal::INT);
    assert_eq!(end_of(&mut child).code(), Some(128 + 2));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(stderr, "halocline: passed SIGINT on to the ranks; once more kills them\n");
}

/// A launcher such as mpirun within a job: its ranks inherit the job's variables, and not its descriptors.
#[test]
fn a_process_that_has_only_inherited_the_variables_of_a_job_is_told_so() {
    let refused = |script: &str, by_mpi: bool| {
        let mut command = launch(&["-n", "1", "--", "sh", "-c", script]);
        command.env("HALOCLINE", env!("CARGO_BIN_EXE_halocline"));
        command.envs(by_mpi.then_some(("OMPI_COMM_WORLD_SIZE", "2")));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{script}");
        text(&output.stderr)
    };
    let advice = "start the ranks either by `halocline launch -n N -- program` or by `mpirun -n N program`";
    let run = r#""$HALOCLINE" run ocean --steps 1 --no-plot"#;
    for (by_mpi, by) in [(true, "an MPI launcher (mpirun)"), (false, "another program")] {
        let stderr = refused(&format!("eval \"exec $HALOCLINE_CONTROL_FD>&-\"; exec {run}"), by_mpi);
        let cause = "this process has inherited the variables of a job of `halocline launch`, and ";
        assert!(
            stderr.contains(&format!("{cause}{by} has started it")) && stderr.contains(advice),
            "{stderr}"
        );
    }
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let cases: [(&[&str], i32, &str); 6] = [
        (&["-n", "2", "--", "./no-such-program"], 127, "cannot find the program \"./no-such-program\""),
        (
            &["-n", "2", "--", "/dev/null"],
            126,
            "cannot start the program \"/dev/null\" as rank 0: Permission",
        ),
        (&["-n", "0", "--", "true"], 2, "a job cannot have 0 ranks; start 1 to 4096 ranks"),
        (&["-n", "1000000", "--", "true"], 2, "a job cannot have 1000000 ranks; start 1 to 4096 ranks"),
        (&["-n", "2"], 2, "required"),
        (&["-n", "2", "--"], 2, "required"),
    ];
    for (args, code, message) in cases {
        let output = launch(args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn too_few_files_are_told_with_the_number_that_is_enough() {
    // Few enough that the fifth rank at the latest cannot be started, enough for the program itself.
    let limited = |files: u64| {
        let script = format!("ulimit -n {files}; exec \"$0\" launch -n 5 -- true");
        Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_halocline")]).output().unwrap()
    };
    let output = limited(18);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("of 5: too many open files") && stderr.contains("`ulimit -n 84`"), "{stderr}");
    assert_eq!(limited(84).status.code(), Some(0));
}

#[test]
fn info_tells_the_same_to_people_and_to_programs() {
    let info = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
        let output = command.args(args).env("HALOCLINE_MPI", "/nowhere/libmpi.so.12").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        text(&output.stdout)
    };
    let object: serde_json::Value = serde_json::from_str(&info(&["info", "--json"])).unwrap();
    let table = info(&["info"]);
    assert_eq!(object["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(object["transports"]["thread"]["works"], true);
    assert_eq!(object["transports"]["shm"]["checks"].as_array().unwrap().len(), 5);
    let works = object["transports"]["shm"]["works"].as_bool().unwrap();
    assert_eq!(table.contains("shm     works"), works, "{table}");
    let libraries = object["transports"]["mpi"]["libraries"].as_array().unwrap();
    let named = |library: &serde_json::Value| table.contains(library["path"].as_str().unwrap());
    assert!(libraries.iter().all(named), "{table}");
    let works = object["transports"]["mpi"]["works"].as_bool().unwrap();
    assert_eq!(table.contains("mpi     works under an MPI launcher"), works, "{table}");
    assert!(table.contains("/nowhere/libmpi.so.12: unusable: it cannot be loaded"), "{table}");
    let usable = object["cores"]["usable"].as_array().unwrap().len();
    assert!(table.contains(&format!("{usable} usable here")), "{table}");
}

#[test]
fn a_rank_that_ends_without_joining_is_reported_to_those_who_wait_for_it() {
    let script = r#"[ $HALOCLINE_RANK = 1 ] && exit 0; exec "$HALOCLINE" run ocean --steps 1 --no-plot"#;
    let options = ["-n", "2", "--", "sh", "-c", script];
    let output = launch(&options).env("HALOCLINE", env!("CARGO_BIN_EXE_halocline")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("rank 1 has ended without joining the job"), "{errors}");
}
