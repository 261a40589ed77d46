//! Runs a program under many seeds, and minimises a failing run.

use super::report::Report;
use super::state::State;
use super::timeline::Timeline;
use super::{Options, World};
use crate::variable::Variable;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// One run of a program.
#[derive(Debug, Clone)]
pub struct Run {
    /// Errors found; empty for a correct run.
    pub reports: Vec<Report>,
    /// A hash of all events in order: equal for equal seeds and programs.
    pub trace: u64,
    /// Number of scheduling decisions.
    pub steps: u64,
    /// All events as text; recorded only for runs that are shown.
    pub log: Vec<String>,
    /// All events with their times.
    pub timeline: Timeline,
    choices: Vec<u16>,
}

/// A seed under which a program fails.
#[derive(Debug, Clone)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// Number of seeds tried, including this one.
    pub tried: u64,
    /// The run with this seed.
    pub run: Run,
    /// The plainest run found with the same kind of failure.
    pub plainest: Run,
}

/// Runs a program once.
pub fn run(seed: u64, options: &Options, program: impl FnOnce(&World)) -> Run {
    play(seed, options, None, false, program)
}

/// As [`run`], and records all events.
pub fn record(seed: u64, options: &Options, program: impl FnOnce(&World)) -> Run {
    play(seed, options, None, true, program)
}

/// Runs a program under each seed until one fails.
pub fn find(seeds: Range<u64>, options: &Options, program: impl Fn(&World)) -> Option<Found> {
    let failing = |seed: &u64| !run(*seed, options, &program).reports.is_empty();
    let seed = seeds.clone().find(failing)?;
    let run = play(seed, options, None, true, &program);
    // Minimising may take minutes.
    eprintln!("HALOCLINE_SEED={seed} fails; looking for the plainest run that fails so");
    run.reports.iter().for_each(|report| eprintln!("  {report}"));
    let plainest = shrink(seed, options, &run, &program);
    Some(Found { seed, tried: seed - seeds.start + 1, run, plainest })
}

/// The seeds of a test: `usual`, but at most as many as `HALOCLINE_SEEDS` says. With `HALOCLINE_SEED` that one alone, or as many as
/// `HALOCLINE_SEEDS` says from there on. Panics if a variable is not a number.
pub fn chosen(usual: Range<u64>) -> Range<u64> {
    let number = |name| {
        let said = Variable::read(name).map(|variable| variable.number(0..=u64::MAX));
        said.map(|number: Result<u64, _>| number.unwrap_or_else(|error| panic!("{error}")))
    };
    match (number("HALOCLINE_SEED"), number("HALOCLINE_SEEDS")) {
        (Some(first), count) => first..first + count.unwrap_or(1),
        (None, Some(most)) => usual.start..usual.end.min(usual.start + most),
        (None, None) => usual,
    }
}

/// Runs a program under each of the [`chosen`] seeds. If one fails, panics with the seed, the errors and
/// the events of the plainest failing run.
pub fn explore(seeds: Range<u64>, options: &Options, program: impl Fn(&World)) {
    if let Some(found) = find(chosen(seeds), options, program) {
        panic!("{found}");
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "HALOCLINE_SEED={} fails (seed {} of those tried):", self.seed, self.tried)?;
        self.run.reports.iter().try_for_each(|report| writeln!(f, "  {report}"))?;
        let unusual = |run: &Run| run.choices.iter().filter(|&&choice| choice != 0).count();
        let (all, few) = (unusual(&self.run), unusual(&self.plainest));
        writeln!(f, "the plainest run that fails so ({few} unusual choices instead of {all}):")?;
        self.plainest.log.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

fn play(
    seed: u64,
    options: &Options,
    choices: Option<Vec<u16>>,
    log: bool,
    program: impl FnOnce(&World),
) -> Run {
    let world = World(Arc::new(Mutex::new(State::new(seed, options.clone(), choices, log))));
    let _pinned = OneCore::take();
    world.play_main(|| program(&world));
    let mut state = world.lock();
    Run {
        reports: std::mem::take(&mut state.reports),
        trace: state.trace,
        steps: state.steps,
        log: state.log.take().unwrap_or_default(),
        timeline: state.timeline(),
        choices: state.choices.made().to_vec(),
    }
}

/// Keeps this thread, and those that it starts, on one core: they take turns, and a turn between two cores takes several times as long.
struct OneCore(Option<CpuSet>);

impl OneCore {
    /// Where the system refuses, the threads stay on all cores.
    fn take() -> Self {
        let before = sched_getaffinity(None).ok();
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        Self(before.filter(|_| sched_setaffinity(None, &here).is_ok()))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The thread had them before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Maximum number of runs for minimising.
const ATTEMPTS: usize = 400;

/// Replaces sequences of unusual choices with the plain one, in ever shorter sequences, while the run still
/// fails with a report of the same kind.
fn shrink(seed: u64, options: &Options, run: &Run, program: &dyn Fn(&World)) -> Run {
    let Some(first) = run.reports.first() else { return run.clone() };
    let kind = std::mem::discriminant(first);
    let same = |run: &Run| run.reports.iter().any(|report| std::mem::discriminant(report) == kind);
    let replay = |choices: &[u16]| play(seed, options, Some(choices.to_vec()), true, program);
    let (mut plainest, mut choices, mut attempts) = (run.clone(), run.choices.clone(), 0);
    let mut stretch = choices.len();
    while stretch > 0 && attempts < ATTEMPTS {
        let mut at = 0;
        while at < choices.len() && attempts < ATTEMPTS {
            let end = (at + stretch).min(choices.len());
            if choices[at..end].iter().any(|&choice| choice != 0) {
                let mut plainer = choices.clone();
                plainer[at..end].fill(0);
                attempts += 1;
                let attempt = replay(&plainer);
                if same(&attempt) {
                    (choices, plainest) = (plainer, attempt);
                }
            }
            at = end;
        }
        stretch /= 2;
    }
    plainest
}
