//! Starts a program as the ranks of a job, without the launcher, and collects how they end.

use halocline_comm::shm::Job;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The ranks of a running job.
pub struct Ranks {
    job: Job,
    ranks: Vec<Rank>,
    lines: Receiver<(usize, String)>,
}

struct Rank {
    child: Child,
    status: Option<ExitStatus>,
    /// The threads that read its standard output and error.
    readers: Vec<JoinHandle<String>>,
}

/// How a rank ended.
#[derive(Debug)]
pub struct End {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// Standard output, then standard error.
    pub output: String,
}

impl Ranks {
    /// Starts `size` ranks of a program with the given arguments.
    pub fn start(program: impl AsRef<Path>, size: usize, arguments: &[&str]) -> Self {
        let job = Job::create(size).expect("a job");
        let (lines_in, lines) = channel();
        let ranks = (0..size)
            .map(|rank| {
                let mut command = Command::new(program.as_ref());
                command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                job.prepare(rank, &mut command);
                let mut child = command.spawn().expect("the rank starts");
                let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
                let readers = vec![read(rank, out, Some(lines_in.clone())), read(rank, err, None)];
                Rank { child, status: None, readers }
            })
            .collect();
        Self { job, ranks, lines }
    }

    /// Waits until each of the given ranks has printed the line; skips other lines.
    pub fn await_line(&self, ranks: impl IntoIterator<Item = usize>, wanted: &str, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut ranks: Vec<usize> = ranks.into_iter().collect();
        while !ranks.is_empty() {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((from, line)) if line == wanted => ranks.retain(|&rank| rank != from),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The process id of a rank.
    pub fn pid(&self, rank: usize) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.ranks[rank].child)
    }

    /// The job's token in hexadecimal, as in environment variables and socket names.
    pub fn token(&self) -> String {
        self.job.token().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Waits until the given ranks have ended. False if they have not within the limit.
    pub fn await_end(&mut self, ranks: impl IntoIterator<Item = usize>, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut ranks: Vec<usize> = ranks.into_iter().collect();
        while !ranks.is_empty() {
            ranks.retain(|&number| {
                let rank = &mut self.ranks[number];
                rank.status = rank.status.or_else(|| rank.child.try_wait().expect("it can be waited for"));
                if rank.status.is_some() {
                    self.job.ended(number);
                }
                rank.status.is_none()
            });
            if !ranks.is_empty() {
                if Instant::now() > until {
                    return false;
                }
                // Nothing signals the end of a child here.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        true
    }

    /// Kills the ranks that still run and returns how all ended.
    pub fn end(mut self) -> Vec<End> {
        let ranks = std::mem::take(&mut self.ranks);
        ranks.into_iter().map(Rank::end).collect()
    }
}

impl Rank {
    fn end(mut self) -> End {
        let killed = match self.status {
            Some(_) => "",
            // Fails only if the rank has just ended.
            None => self.child.kill().map_or("", |()| "(killed by the test)\n"),
        };
        let status = self.status.unwrap_or_else(|| self.child.wait().expect("it has ended"));
        let read = self.readers.drain(..).map(|reader| reader.join().expect("it does not panic"));
        End { status, output: read.collect::<String>() + killed }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // A test that panics leaves no process behind.
        for rank in self.ranks.drain(..) {
            rank.end();
        }
    }
}

fn read(
    rank: usize,
    stream: impl Read + Send + 'static,
    lines: Option<Sender<(usize, String)>>,
) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            all += &format!("[{rank}] {line}\n");
            if let Some(lines) = &lines {
                // Without a receiver the line is still in `all`.
                let _ = lines.send((rank, line));
            }
        }
        all
    })
}
