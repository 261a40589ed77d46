//! The launcher's one loop: from the start of the ranks until the last has left.

use super::LaunchError;
use super::output::{Stream, Style};
use super::printer::Printer;
use super::process::{Ended, RankProcess};
use super::signals::{Received, Signals, signal_name};
use super::{BROKEN_PIPE, TERMINATE, format_list};
use halocline_comm::shm::Job;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How to print the ranks' output, and how long to wait for ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) style: Style,
    /// Time for the other ranks to exit after one has failed.
    pub(super) grace: Duration,
    /// Time limit of the job.
    pub(super) timeout: Option<Duration>,
}

/// The progress of the job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No rank has failed.
    Running,
    /// One has failed, and the others may report and exit until this time (`None`: without limit).
    Leaving(Option<Instant>),
    /// The others have been sent SIGTERM.
    Terminating(Instant),
    /// The others have been killed.
    Killed,
}

/// An event source of the loop.
#[derive(Debug, Clone, Copy)]
enum Source {
    Signal,
    Printed,
    Ended(usize),
    Output(usize, Stream),
}

/// Watches the ranks of one job.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    job: &'a Job,
    ranks: Vec<RankProcess>,
    rules: &'a Rules,
    signals: &'a Signals,
    printer: Printer,
    started: Instant,
    stage: Stage,
    /// The first rank that failed.
    first: Option<(usize, Ended)>,
    timed_out: bool,
    /// The signal with which the user asked the job to end.
    asked: Option<i32>,
    /// The user has asked twice.
    forced: bool,
    buffer: Box<[u8]>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        job: &'a Job,
        ranks: Vec<RankProcess>,
        rules: &'a Rules,
        signals: &'a Signals,
        printer: Printer,
    ) -> Self {
        Self {
            job,
            ranks,
            rules,
            signals,
            printer,
            started: Instant::now(),
            stage: Stage::Running,
            first: None,
            timed_out: false,
            asked: None,
            forced: false,
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        }
    }

    /// Returns the exit code of the job when all ranks have left and their output is printed.
    pub(super) fn run(mut self) -> Result<u8, LaunchError> {
        while self.ranks.iter().any(|rank| rank.ended.is_none()) {
            self.turn()?;
        }
        self.report_end();
        // Output stuck in a pipe without a reader is given up when the user forces the end.
        while !self.printer.is_idle() && !self.forced {
            self.turn()?;
        }
        Ok(self.exit_code())
    }

    /// Waits until something happens, and deals with it.
    fn turn(&mut self) -> Result<(), LaunchError> {
        let mut ended = Vec::new();
        for source in self.wait()? {
            match source {
                // Signals are taken below.
                Source::Signal => {}
                Source::Printed => self.printer.clear_progress(),
                Source::Ended(rank) => ended.extend(self.take_end(rank)?),
                Source::Output(rank, stream) => self.take_output(rank, stream),
            }
        }
        self.drop_broken_streams();
        // A signal to the whole job came before the ends that it has caused, though those may be seen first.
        self.take_signals();
        self.judge(ended);
        self.keep_deadlines();
        Ok(())
    }

    /// The sources with events. Sleeps until there is one, or until the next deadline.
    fn wait(&self) -> Result<Vec<Source>, LaunchError> {
        let mut sources = vec![Source::Signal, Source::Printed];
        let mut fds = vec![readable(self.signals), readable(&self.printer)];
        let full = self.printer.is_full();
        for (index, rank) in self.ranks.iter().enumerate().filter(|(_, rank)| rank.ended.is_none()) {
            sources.push(Source::Ended(index));
            fds.push(readable(rank));
            for pipe in rank.pipes.iter().filter(|_| !full) {
                sources.push(Source::Output(index, pipe.stream));
                fds.push(readable(pipe));
            }
        }
        let timeout = self.deadline().map(|end| timespec(end.saturating_duration_since(Instant::now())));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            // The launcher was stopped and continued.
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(LaunchError::System { what: "poll", errno }),
        }
        let happened = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(happened.map(|(source, _)| *source).collect())
    }

    fn take_output(&mut self, index: usize, stream: Stream) {
        let Some(rank) = self.ranks.get_mut(index) else { return };
        let mut out = Vec::new();
        rank.pipes.retain_mut(|pipe| pipe.stream != stream || pipe.read(&mut self.buffer, &mut out));
        self.printer.print(self.rules.style.target(stream), out);
    }

    /// The rank has ended: its last words, and how, if it failed.
    fn take_end(&mut self, index: usize) -> Result<Option<(usize, Ended)>, LaunchError> {
        let Some(rank) = self.ranks.get_mut(index) else { return Ok(None) };
        rank.look()?;
        let Some(ended) = rank.ended else { return Ok(None) };
        for pipe in std::mem::take(&mut rank.pipes) {
            let (mut out, target) = (Vec::new(), self.rules.style.target(pipe.stream));
            pipe.drain(&mut self.buffer, &mut out);
            self.printer.print(target, out);
        }
        tracing::debug!(rank = rank.rank, %ended, "a rank has left");
        self.job.ended(rank.rank);
        Ok((ended != Ended::Exited(0)).then_some((rank.rank, ended)))
    }

    /// Closes the pipes of a stream without a reader: a rank that writes to one gets SIGPIPE.
    fn drop_broken_streams(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if self.printer.is_broken(self.rules.style.target(stream)) {
                self.ranks.iter_mut().for_each(|rank| rank.pipes.retain(|pipe| pipe.stream != stream));
            }
        }
    }

    /// Finds the first rank that failed. Of those that were seen together, one that was killed is the
    /// likelier cause: the others may have ended because of it.
    fn judge(&mut self, mut failed: Vec<(usize, Ended)>) {
        failed.sort_by_key(|&(rank, ended)| (matches!(ended, Ended::Exited(_)), rank));
        let (None, Some(&(rank, ended))) = (self.first, failed.first()) else { return };
        self.first = Some((rank, ended));
        // The user has ended the job, or closed the output.
        let is_expected = self.asked.is_some() || ended.code() == BROKEN_PIPE;
        let left = self.running().len();
        let grace = self.rules.grace;
        if self.stage == Stage::Running && left > 0 {
            self.stage = Stage::Leaving(Instant::now().checked_add(grace));
            if !is_expected {
                self.say(&format!("rank {rank} {ended}; the others have {} s to leave", grace.as_secs_f64()));
            }
        } else if !self.timed_out && !is_expected {
            self.say(&format!("rank {rank} {ended}"));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let job = self.rules.timeout.and_then(|timeout| self.started.checked_add(timeout));
        match self.stage {
            _ if self.running().is_empty() => None,
            Stage::Running => job,
            Stage::Leaving(grace) => [grace, job].into_iter().flatten().min(),
            Stage::Terminating(end) => Some(end),
            Stage::Killed => None,
        }
    }

    fn keep_deadlines(&mut self) {
        let now = Instant::now();
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let late = name_ranks(&self.running());
        match self.stage {
            Stage::Running | Stage::Leaving(_) => {
                self.timed_out = self.first.is_none();
                self.signal(Signal::TERM);
                self.stage = Stage::Terminating(now + TERMINATE);
                let why = if self.timed_out { "the time is over: " } else { "" };
                self.say(&format!("{why}stopping {late}"));
            }
            Stage::Terminating(_) | Stage::Killed => {
                self.kill();
                self.say(&format!("killing {late}, still running after SIGTERM"));
            }
        }
    }

    fn take_signals(&mut self) {
        while let Some(received) = self.signals.next() {
            if received.stops() && self.asked.is_some() {
                self.asked = Some(received.signal);
                self.forced = true;
                self.kill();
                continue;
            }
            self.pass_on(received);
            if received.stops() {
                self.asked = Some(received.signal);
                let name = signal_name(received.signal).unwrap_or("the signal");
                self.say(&format!("passed {name} on to the ranks; once more kills them"));
            }
        }
    }

    fn pass_on(&self, received: Received) {
        let Some(signal) = Signal::from_named_raw(received.signal) else { return };
        for rank in self.ranks.iter().filter(|rank| rank.ended.is_none()) {
            if !(received.for_key && rank.shares_group()) {
                rank.signal(signal);
            }
        }
        if signal == Signal::TSTP {
            // Suspend the launcher; this returns when it is continued.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            self.signal(Signal::CONT);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.stage = Stage::Killed;
    }

    fn signal(&self, signal: Signal) {
        self.ranks.iter().filter(|rank| rank.ended.is_none()).for_each(|rank| rank.signal(signal));
    }

    /// The ranks that have not ended.
    fn running(&self) -> Vec<usize> {
        self.ranks.iter().filter(|rank| rank.ended.is_none()).map(|rank| rank.rank).collect()
    }

    fn exit_code(&self) -> u8 {
        let broken =
            [Stream::Stdout, Stream::Stderr].into_iter().any(|stream| self.printer.is_broken(stream));
        match (self.forced, self.asked, self.timed_out, self.first) {
            (true, Some(signal), _, _) => Ended::Killed(signal).code(),
            (_, _, true, _) => 124,
            (_, _, _, Some((_, ended))) => ended.code(),
            _ => u8::from(broken),
        }
    }

    /// With JSON, the last object: how each rank ended.
    fn report_end(&self) {
        if self.rules.style != Style::Json {
            return;
        }
        let rank = |process: &RankProcess| match process.ended {
            Some(Ended::Exited(code)) => serde_json::json!({"rank": process.rank, "exit_code": code}),
            Some(Ended::Killed(signal)) => serde_json::json!({"rank": process.rank, "signal": signal}),
            None => serde_json::json!({"rank": process.rank}),
        };
        let end = serde_json::json!({
            "event": "end",
            "exit_code": self.exit_code(),
            "seconds": self.started.elapsed().as_secs_f64(),
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
        });
        self.printer.print(Stream::Stdout, format!("{end}\n").into_bytes());
    }

    fn say(&self, message: &str) {
        self.printer.print(Stream::Stderr, format!("halocline: {message}\n").into_bytes());
    }
}

fn readable<Fd: AsFd>(fd: &Fd) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::IN)
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

fn name_ranks(ranks: &[usize]) -> String {
    match ranks {
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", format_list(ranks.iter().copied())),
    }
}
