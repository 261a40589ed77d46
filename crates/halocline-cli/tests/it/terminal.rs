//! `halocline launch` in the foreground of a terminal: keys and input reach the ranks.

use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, OptionalActions};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A terminal with `halocline launch -n 2 -- sh -c script` as its session.
fn start_in_terminal(script: &str) -> (Child, File) {
    let terminal =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let end = || File::options().read(true).write(true).open(&name).unwrap();
    // A terminal shows `^C` amid what ranks print, and then drops what was printed and not read, unless its modes forbid it.
    let mut modes = rustix::termios::tcgetattr(end()).unwrap();
    modes.local_modes -= LocalModes::ECHO;
    modes.local_modes |= LocalModes::NOFLSH;
    rustix::termios::tcsetattr(end(), OptionalActions::Now, &modes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.args(["launch", "-n", "2", "--", "sh", "-c", script]);
    command.stdin(end()).stdout(end()).stderr(end());
    let lead_session = || {
        rustix::process::setsid()?;
        // Standard input is the terminal by now.
        Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: between fork and exec the closure makes two system calls, no more.
    unsafe { command.pre_exec(lead_session) };
    (command.spawn().unwrap(), terminal.into())
}

/// Reads lines until `count` of them end with `what`; returns those, sorted.
fn wait_for(terminal: &mut impl BufRead, what: &str, count: usize) -> Vec<String> {
    let lines = terminal.lines().map(|line| line.unwrap().trim_end().to_string());
    let mut found: Vec<String> = lines.filter(|line| line.ends_with(what)).take(count).collect();
    found.sort();
    found
}

#[test]
fn ctrl_c_reaches_every_rank() {
    let script = "trap 'kill $!; echo caught; exit 0' INT; sleep 1000 & echo ready; wait";
    let (mut launcher, mut keyboard) = start_in_terminal(script);
    let mut screen = BufReader::new(keyboard.try_clone().unwrap());
    wait_for(&mut screen, "ready", 2);
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(wait_for(&mut screen, "caught", 2), ["[0] caught", "[1] caught"]);
    assert_eq!(launcher.wait().unwrap().code(), Some(0));
}

#[test]
fn rank_0_reads_from_the_terminal() {
    let (mut launcher, mut keyboard) = start_in_terminal("read word; echo have:$word");
    let mut screen = BufReader::new(keyboard.try_clone().unwrap());
    assert_eq!(wait_for(&mut screen, "have:", 1), ["[1] have:"]);
    keyboard.write_all(b"this\n").unwrap();
    assert_eq!(wait_for(&mut screen, "have:this", 1), ["[0] have:this"]);
    assert_eq!(launcher.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_that_is_closed_ends_the_ranks() {
    let (mut launcher, keyboard) = start_in_terminal("echo ready; exec sleep 1000");
    let mut screen = BufReader::new(keyboard);
    wait_for(&mut screen, "ready", 2);
    drop(screen);
    assert_eq!(launcher.wait().unwrap().code(), Some(128 + 1));
}
