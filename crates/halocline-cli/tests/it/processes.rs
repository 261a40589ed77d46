//! Which processes of a job end with it: with a killed launcher, and with a job that fails.

use crate::launch::{end_of, has_ended, launch, pids, read_lines, send, start, watch};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

#[test]
fn ranks_die_with_a_killed_launcher() {
    let mut child = start("-n 3", "echo $$; exec sleep 1000");
    let ranks = pids(&read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 3));
    let ranks: Vec<OwnedFd> = ranks.into_iter().map(watch).collect();
    send(&child, Signal::KILL);
    end_of(&mut child);
    assert!(ranks.iter().all(has_ended));
}

#[test]
fn ranks_behind_a_shell_die_with_a_killed_launcher() {
    let mut child = start("-n 2", "sleep 1000 & echo $!; wait; true");
    let ranks = pids(&read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 2));
    let ranks: Vec<OwnedFd> = ranks.into_iter().map(watch).collect();
    send(&child, Signal::KILL);
    end_of(&mut child);
    assert!(ranks.iter().all(has_ended));
}

/// `timeout` and shells with job control start such groups.
#[test]
fn ranks_that_have_joined_in_a_group_of_their_own_die_with_a_killed_launcher() {
    let script =
        r#"setsid sh -c 'echo $$; exec "$HALOCLINE" run ocean --steps 100000000 --no-plot' & wait; true"#;
    // One rank: none dies because another one has.
    let mut command = launch(&["-n", "1", "--", "sh", "-c", script]);
    command.env("HALOCLINE", env!("CARGO_BIN_EXE_halocline")).env("HALOCLINE_LOG", "halocline=trace");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let rank = watch(pids(&read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 1))[0]);
    // It has joined once it exchanges.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("epoch=1")), "it does not exchange");
    send(&child, Signal::KILL);
    end_of(&mut child);
    assert!(has_ended(&rank));
}

/// No rank has joined, so that only the environment tells that these processes belong to the job.
#[test]
fn processes_in_groups_and_sessions_of_their_own_die_with_a_killed_launcher_before_they_join() {
    for wrapper in ["timeout 1000", "setsid", "setsid --fork"] {
        let script = format!("{wrapper} sh -c 'echo $$; exec sleep 1000'; wait; exec sleep 1000");
        let mut child = start("-n 2", &script);
        let ranks = pids(&read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 2));
        let ranks: Vec<OwnedFd> = ranks.into_iter().map(watch).collect();
        send(&child, Signal::KILL);
        end_of(&mut child);
        assert!(ranks.iter().all(has_ended), "{wrapper}");
    }
}

/// A script whose only long-lived process is in a session of its own, so that no signal to the rank's process group reaches it.
const DETACHED: &str = "setsid sh -c 'echo $$; exec sleep 1000' & wait; wait";

/// Waits until each rank has printed the id of its detached process.
fn detached(child: &mut Child, ranks: usize) -> Vec<OwnedFd> {
    let lines = read_lines(&mut BufReader::new(child.stdout.take().unwrap()), ranks);
    pids(&lines).into_iter().map(watch).collect()
}

/// The launcher has killed these processes before it ended.
fn are_gone(processes: &[OwnedFd]) -> bool {
    processes.iter().all(|process| {
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    })
}

#[test]
fn detached_processes_end_with_a_job_that_takes_too_long() {
    let mut child = start("-n 2 --timeout 1", DETACHED);
    let processes = detached(&mut child, 2);
    assert_eq!(end_of(&mut child).code(), Some(124));
    assert!(are_gone(&processes));
}

#[test]
fn detached_processes_end_with_a_second_ctrl_c() {
    let mut child = start("-n 2", &format!("trap '' INT; {DETACHED}"));
    let processes = detached(&mut child, 2);
    send(&child, Signal::INT);
    let stderr = read_lines(&mut BufReader::new(child.stderr.take().unwrap()), 1);
    assert_eq!(stderr, ["halocline: passed SIGINT on to the ranks; once more kills them"]);
    send(&child, Signal::INT);
    assert_eq!(end_of(&mut child).code(), Some(128 + 2));
    assert!(are_gone(&processes));
}

#[test]
fn detached_processes_end_when_the_grace_period_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo").to_str().unwrap().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Rank 1 fails after rank 0 has started its process.
    let script = format!(
        "[ $HALOCLINE_RANK = 1 ] && {{ cat {fifo}; exit 7; }}
         trap '' TERM; setsid sh -c 'echo $$; echo >{fifo}; exec sleep 1000' & wait; wait"
    );
    let mut child = start("-n 2 --grace 0.05", &script);
    // Rank 1 prints the empty line that it has read.
    let lines = read_lines(&mut BufReader::new(child.stdout.take().unwrap()), 2);
    let process = watch(pids(&lines[..1])[0]);
    assert_eq!(end_of(&mut child).code(), Some(7));
    assert!(are_gone(&[process]));
}
