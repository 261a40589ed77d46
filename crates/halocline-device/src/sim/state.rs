//! The state of a world, under one lock: threads, streams, memories, and the scheduler.

use super::Options;
use super::choice::{Choices, Task, mix};
use super::clock::{Actor, Clock};
use super::graph::Recorded;
use super::memory::{Memories, Spot};
use super::messages::Communicators;
use super::remote::Calls;
use super::report::{Operation, Report};
use super::shadow::{Access, Touch};
use super::stream::{Event, Record, Stream, Uploaded};
use super::timeline::{Recording, Span, Timeline, Word};
use crate::error::DeviceError;
use crate::remote::Refusal;
use std::ops::Range;

/// Maximum number of reports kept for a run.
const REPORTS: usize = 16;

pub(super) struct State {
    pub(super) options: Options,
    pub(super) choices: Choices,
    /// Virtual time in nanoseconds.
    pub(super) now: u64,
    pub(super) steps: u64,
    /// A hash of all events, in order.
    pub(super) trace: u64,
    pub(super) log: Option<Vec<String>>,
    /// `Some` if events are recorded.
    recording: Option<Recording>,
    pub(super) threads: Vec<Thread>,
    /// The thread that holds the baton, that is, the one that may run.
    pub(super) current: usize,
    /// The task that ran last.
    last: Task,
    /// Number of yields.
    ways: usize,
    /// Number of consecutive yields of the only runnable task.
    alone: u32,
    tasks: Vec<Task>,
    actors: Vec<(String, Clock)>,
    ops: Vec<(Actor, &'static str)>,
    pub(super) streams: Vec<Stream>,
    pub(super) events: Vec<Event>,
    pub(super) records: Vec<Record>,
    /// Number of operations issued to streams.
    pub(super) given: u64,
    pub(super) tables: Vec<Option<Uploaded>>,
    pub(super) graphs: Vec<Recorded>,
    /// Counters that launches use.
    pub(super) counters: Vec<Spot>,
    pub(super) communicators: Communicators,
    pub(super) memories: Memories,
    pub(super) mapping_calls: Calls,
    pub(super) devices: Vec<Device>,
    pub(super) reports: Vec<Report>,
    /// The run is over: all threads leave.
    pub(super) stopped: bool,
    /// A live world ([`Live`](super::Live)).
    pub(super) live: bool,
}

#[derive(Default)]
pub(super) struct Device {
    pub(super) lost: Option<String>,
    pub(super) peers: Vec<u32>,
    /// Parts of copy tables that have started and may wait.
    pub(super) waiting_blocks: u32,
    /// Refusals of its next opens of others' memory, last first.
    pub(super) refusals: Vec<Refusal>,
    /// How often an export of its memory lets other tasks run.
    pub(super) export_pauses: u32,
    /// Maximum size of an allocation, if limited.
    pub(super) largest: Option<usize>,
}

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) actor: Actor,
    pub(super) waits: Waits,
    /// Handle for unparking; `None` until it has started.
    pub(super) handle: Option<std::thread::Thread>,
}

/// The condition that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    No,
    /// A wake of the word at this address, or a time.
    Word(usize, Option<u64>),
    /// All work of a stream.
    Idle(usize),
    /// A free slot in a stream.
    Slot(usize),
    /// The end of a thread.
    End(usize),
    /// The end of all work of streams on working devices, and of all threads except those parked forever.
    Quiet,
    /// It has left.
    Left,
}

/// The next task to run.
pub(super) enum Next {
    Thread(usize),
    Stream(usize),
    /// No task is left.
    Nobody,
}

impl State {
    pub(super) fn new(seed: u64, options: Options, replay: Option<Vec<u16>>, log: bool) -> Self {
        let mut state = Self {
            choices: Choices::new(seed, replay),
            now: 0,
            steps: 0,
            trace: 0,
            log: log.then(Vec::new),
            recording: log.then(Recording::default),
            threads: Vec::new(),
            current: 0,
            last: Task::Thread(0),
            ways: 0,
            alone: 0,
            tasks: Vec::new(),
            actors: Vec::new(),
            ops: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            records: Vec::new(),
            given: 0,
            tables: Vec::new(),
            graphs: Vec::new(),
            counters: Vec::new(),
            communicators: Communicators::default(),
            memories: Memories::new(options.devices),
            mapping_calls: Calls::default(),
            devices: (0..options.devices).map(|_| Device::default()).collect(),
            reports: Vec::new(),
            stopped: false,
            live: false,
            options,
        };
        for device in 0..state.options.devices {
            state.add_stream(device);
        }
        state
    }

    pub(super) fn add_actor(&mut self, name: String) -> Actor {
        let actor = self.actors.len();
        let mut clock = Clock::default();
        clock.tick(actor);
        self.actors.push((name, clock));
        actor
    }

    pub(super) fn add_stream(&mut self, device: u32) -> usize {
        let nth = self.streams.iter().filter(|stream| stream.device == device).count();
        let actor = self.add_actor(format!("stream {nth} of device {device}"));
        let hardware = nth as u32 % self.options.queues.unwrap_or(u32::MAX).max(1);
        self.streams.push(Stream::new(device, hardware, actor));
        self.streams.len() - 1
    }

    /// A returned stream, for reuse.
    pub(super) fn kept_stream(&mut self, device: u32) -> Option<usize> {
        let is_kept = |stream: &Stream| stream.device == device && !stream.alive && stream.is_idle();
        let kept = self.streams.iter().position(is_kept).filter(|_| self.options.keeps_streams)?;
        self.streams[kept].alive = true;
        Some(kept)
    }

    pub(super) fn add_thread(&mut self, name: String) -> usize {
        let actor = self.add_actor(name.clone());
        if self.threads.len() > self.current {
            let parent = self.seen(self.threads[self.current].actor).clone();
            self.actors[actor].1.join(&parent);
            self.tick(self.threads[self.current].actor);
        }
        self.threads.push(Thread { name, actor, waits: Waits::No, handle: None });
        self.threads.len() - 1
    }

    pub(super) fn seen(&self, actor: Actor) -> &Clock {
        &self.actors[actor].1
    }

    pub(super) fn tick(&mut self, actor: Actor) {
        self.actors[actor].1.tick(actor);
    }

    pub(super) fn join(&mut self, actor: Actor, other: &Clock) {
        self.actors[actor].1.join(other);
    }

    pub(super) fn join_actor(&mut self, actor: Actor, other: Actor) {
        let other = self.actors[other].1.clone();
        self.actors[actor].1.join(&other);
    }

    /// Starts an operation of an actor, for reports.
    pub(super) fn begin_op(&mut self, actor: Actor, what: &'static str) -> usize {
        self.ops.push((actor, what));
        let now = self.now;
        self.record(|recording| recording.begin(now));
        let number = self.ops.len() - 1;
        self.note(|state| format!("{} begins", state.operation(number)), number as u64);
        number
    }

    pub(super) fn record(&mut self, note: impl FnOnce(&mut Recording)) {
        self.recording.as_mut().map(note);
    }

    /// Records a step of an operation.
    pub(super) fn extend(&mut self, op: usize) {
        let now = self.now;
        self.record(|recording| recording.extend(op, now));
    }

    /// Records that an operation wrote or read a flag.
    pub(super) fn note_flag(&mut self, op: usize, spot: Spot, value: u64, writes: bool) {
        if self.recording.is_some() {
            let place = self.memories.region(spot.region).place;
            let word = Word { space: place.space, memory: place.id, offset: spot.offset, value };
            self.record(|recording| recording.word(op, spot, word, writes));
        }
    }

    pub(super) fn timeline(&mut self) -> Timeline {
        let Some(recording) = self.recording.take() else { return Timeline::default() };
        let spans = recording.times.iter().enumerate().map(|(op, &(begin, end, word))| Span {
            operation: self.operation(op),
            begin,
            end,
            word,
        });
        Timeline { spans: spans.collect(), arrows: recording.arrows }
    }

    pub(super) fn operation(&self, op: usize) -> Operation {
        let (actor, what) = self.ops[op];
        Operation { task: self.actors[actor].0.clone(), what, number: op }
    }

    /// Records an event.
    pub(super) fn note(&mut self, text: impl FnOnce(&Self) -> String, digest: u64) {
        self.trace = mix(self.trace ^ digest);
        if self.log.is_some() {
            let text = text(self);
            self.log.iter_mut().for_each(|log| log.push(text.clone()));
        }
    }

    pub(super) fn report(&mut self, report: Report) {
        if self.reports.len() < REPORTS && !self.reports.contains(&report) {
            self.note(|_| format!("REPORT: {report}"), 0);
            self.reports.push(report);
        }
    }

    /// Records an access of an operation to bytes, and reports a race.
    pub(super) fn touch(&mut self, actor: Actor, op: usize, spot: Spot, bytes: usize, touch: Touch) -> bool {
        let range = spot.offset..spot.offset + bytes;
        if !self.memories.is_there(spot) {
            let bytes = self.memories.region(spot.region).bytes(&range);
            self.report(Report::UsedAfterFree { bytes, by: self.operation(op) });
            return false;
        }
        if let Some((bytes, first)) = self.conflict(actor, op, spot.region, range, touch) {
            let (first, second) = (self.operation(first), self.operation(op));
            self.report(Report::Race { bytes, first, second });
        }
        true
    }

    /// Records an access. Returns the first conflicting access that is not ordered before it.
    pub(super) fn conflict(
        &mut self,
        actor: Actor,
        op: usize,
        region: usize,
        range: Range<usize>,
        touch: Touch,
    ) -> Option<(super::report::Bytes, usize)> {
        let seen = &self.actors[actor].1;
        let access = Access { actor, at: seen.get(actor), op, touch };
        let region = self.memories.region_mut(region);
        let mut found: Option<(Range<usize>, usize)> = None;
        region.shadow.touch(range, access, seen, |range, old| match &mut found {
            Some((bytes, first)) if *first == old.op && bytes.end == range.start => bytes.end = range.end,
            Some(_) => {}
            None => found = Some((range, old.op)),
        });
        found.map(|(range, first)| (region.bytes(&range), first))
    }

    /// Whether a thread can run.
    fn can_run(&self, thread: usize) -> bool {
        match self.threads[thread].waits {
            Waits::Left => false,
            _ if self.stopped => true,
            waits => self.is_met(waits),
        }
    }

    /// Whether a wait is satisfied.
    pub(super) fn is_met(&self, waits: Waits) -> bool {
        match waits {
            Waits::No => true,
            Waits::Left => false,
            Waits::Word(_, until) => until.is_some_and(|until| until <= self.now),
            Waits::Idle(stream) => self.streams[stream].is_idle() || self.lost(stream),
            Waits::Slot(stream) => self.streams[stream].len() < self.options.depth || self.lost(stream),
            Waits::End(thread) => self.threads[thread].waits == Waits::Left,
            Waits::Quiet => {
                let over =
                    |other: &Thread| matches!(other.waits, Waits::Left | Waits::Quiet | Waits::Word(_, None));
                self.threads.iter().all(over)
                    && (0..self.streams.len()).all(|at| self.streams[at].is_idle() || self.lost(at))
            }
        }
    }

    /// Whether an operation belongs to a failed device: it accesses nothing any more.
    pub(super) fn is_lost(&self, op: usize) -> bool {
        let (actor, _) = self.ops[op];
        let of = |stream: &Stream| stream.actor == actor || stream.has_part(actor);
        self.streams.iter().position(of).is_some_and(|stream| self.lost(stream))
    }

    pub(super) fn lost(&self, stream: usize) -> bool {
        self.devices[self.streams[stream].device as usize].lost.is_some()
    }

    /// Selects the next task. `giving_way` is the thread that only polls again.
    pub(super) fn next(&mut self, giving_way: Option<usize>) -> Next {
        if self.stopped {
            return self.round_robin();
        }
        self.steps += 1;
        if self.steps > self.options.steps {
            let waiting = self.waiting();
            self.stop(Report::Endless { steps: self.options.steps, waiting });
            return self.round_robin();
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        let next = loop {
            tasks.clear();
            tasks.extend((0..self.threads.len()).filter(|&at| self.can_run(at)).map(Task::Thread));
            tasks.extend((0..self.streams.len()).filter(|&at| self.can_step(at)).map(Task::Stream));
            if !tasks.is_empty() {
                break self.choose(&tasks, giving_way.map(Task::Thread));
            }
            let until = self.threads.iter().filter_map(|thread| match thread.waits {
                Waits::Word(_, until) => until,
                _ => None,
            });
            match until.min() {
                Some(until) => self.now = self.now.max(until),
                None if self.threads.iter().all(|thread| thread.waits == Waits::Left) => break Next::Nobody,
                None => {
                    let waiting = self.waiting();
                    self.stop(Report::Deadlock { waiting });
                    break self.round_robin();
                }
            }
        };
        self.tasks = tasks;
        next
    }

    fn choose(&mut self, tasks: &[Task], giving_way: Option<Task>) -> Next {
        // If the only runnable task polls repeatedly, it waits for time to pass: virtual time advances ever
        // faster.
        self.alone = if tasks.len() == 1 && giving_way == Some(tasks[0]) { self.alone + 1 } else { 0 };
        self.now += (900 * u64::from(giving_way.is_some())) << (self.alone / 16).min(10);
        let me = giving_way.filter(|_| tasks.len() > 1);
        let plain = match me.and_then(|me| tasks.iter().position(|&task| task == me)) {
            Some(at) => {
                self.ways += 1;
                let other = self.ways % (tasks.len() - 1);
                other + usize::from(other >= at)
            }
            None => tasks.iter().position(|&task| task == self.last).unwrap_or(0),
        };
        let task = tasks[self.choices.task(tasks, plain, giving_way)];
        self.last = task;
        match task {
            Task::Thread(thread) => {
                self.now += 100;
                self.trace = mix(self.trace ^ thread as u64);
                Next::Thread(thread)
            }
            Task::Stream(stream) => {
                self.now += 500;
                self.trace = mix(self.trace ^ !(stream as u64));
                Next::Stream(stream)
            }
        }
    }

    fn round_robin(&mut self) -> Next {
        self.steps += 1;
        let count = self.threads.len();
        let after = (1..=count).map(|step| (self.current + step) % count);
        let next = after.into_iter().find(|&thread| self.threads[thread].waits != Waits::Left);
        next.map_or(Next::Nobody, Next::Thread)
    }

    /// Ends the run: all waiting threads are notified.
    pub(super) fn stop(&mut self, report: Report) {
        self.report(report);
        self.stopped = true;
    }

    /// Describes the wait of each task.
    fn waiting(&self) -> Vec<String> {
        let threads = self.threads.iter().filter_map(|thread| {
            let what = match thread.waits {
                Waits::Left => return None,
                Waits::No => "goes on".to_owned(),
                Waits::Word(_, None) => "is parked".to_owned(),
                Waits::Word(_, Some(until)) => format!("is parked for {} ns", until.saturating_sub(self.now)),
                Waits::Idle(stream) => format!("waits for {}", self.name_of(stream)),
                Waits::Slot(stream) => format!("waits for a free slot in {}", self.name_of(stream)),
                Waits::End(other) => format!("waits for the end of thread {}", self.threads[other].name),
                Waits::Quiet => "waits for all streams".to_owned(),
            };
            Some(format!("thread {} {what}", thread.name))
        });
        let streams = (0..self.streams.len()).filter_map(|stream| {
            let what = self.what_holds(stream)?;
            Some(format!("{} {what}", self.name_of(stream)))
        });
        threads.chain(streams).collect()
    }

    pub(super) fn name_of(&self, stream: usize) -> &str {
        &self.actors[self.streams[stream].actor].0
    }

    /// The error of a call if the device has failed or the run is over.
    pub(super) fn check(&self, device: u32) -> Result<(), DeviceError> {
        let lost = self.devices[device as usize].lost.clone();
        let stopped = || self.stopped.then(|| "the simulation was stopped".to_owned());
        lost.or_else(stopped).map_or(Ok(()), |what| Err(DeviceError::Lost { device, what }))
    }
}
