//! Runs of a program under many seeds; what fails is made as plain as it goes.

use super::report::Report;
use super::state::State;
use super::timeline::Timeline;
use super::{Options, World};
use crate::variable::Variable;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// One run of a program.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was found wrong: nothing, if all is well.
    pub reports: Vec<Report>,
    /// A digest of all that happened, in order: the same for the same seed and program.
    pub trace: u64,
    /// How often it was chosen who goes on.
    pub steps: u64,
    /// Everything that happened, in words; only of runs that are shown.
    pub log: Vec<String>,
    /// The same with its times.
    pub timeline: Timeline,
    choices: Vec<u16>,
}

/// A seed under which a program fails.
#[derive(Debug, Clone)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// How many seeds were run until then, this one included.
    pub tried: u64,
    /// The run with this seed.
    pub run: Run,
    /// The plainest run found that fails the same way.
    pub plainest: Run,
}

/// Runs a program once.
pub fn run(seed: u64, options: &Options, program: impl FnOnce(&World)) -> Run {
    play(seed, options, None, false, program)
}

/// As [`run`], and notes everything that happens.
pub fn record(seed: u64, options: &Options, program: impl FnOnce(&World)) -> Run {
    play(seed, options, None, true, program)
}

/// Runs a program under each of the seeds until one fails.
pub fn find(seeds: Range<u64>, options: &Options, program: impl Fn(&World)) -> Option<Found> {
    let failing = |seed: &u64| !run(*seed, options, &program).reports.is_empty();
    let seed = seeds.clone().find(failing)?;
    let run = play(seed, options, None, true, &program);
    // What follows may take minutes.
    eprintln!("HALOCLINE_SEED={seed} fails; looking for the plainest run that fails so");
    run.reports.iter().for_each(|report| eprintln!("  {report}"));
    let plainest = shrink(seed, options, &run, &program);
    Some(Found { seed, tried: seed - seeds.start + 1, run, plainest })
}

/// The seeds that a test tries: `usual`, unless the environment names others. `HALOCLINE_SEED` is the first one, and the only one unless
/// `HALOCLINE_SEEDS` says how many. Panics if one of these is not a number.
pub fn chosen(usual: Range<u64>) -> Range<u64> {
    let number = |name| {
        let said = Variable::read(name).map(|variable| variable.number(0..=u64::MAX));
        said.map(|number: Result<u64, _>| number.unwrap_or_else(|error| panic!("{error}")))
    };
    let first = number("HALOCLINE_SEED");
    let count =
        number("HALOCLINE_SEEDS").unwrap_or(if first.is_some() { 1 } else { usual.end - usual.start });
    let first = first.unwrap_or(usual.start);
    first..first + count
}

/// Runs a program under each of the seeds that are [`chosen`]. Panics if one fails, and says which, why, and what happens in the plainest
/// run that fails so.
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
    script: Option<Vec<u16>>,
    log: bool,
    program: impl FnOnce(&World),
) -> Run {
    let world = World(Arc::new(Mutex::new(State::new(seed, options.clone(), script, log))));
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

/// Runs made to find the plainest.
const ATTEMPTS: usize = 400;

/// Replaces stretches of unusual choices by the usual one, ever shorter stretches, while the run still fails by a
/// report of the same kind.
fn shrink(seed: u64, options: &Options, run: &Run, program: &dyn Fn(&World)) -> Run {
    let Some(first) = run.reports.first() else { return run.clone() };
    let kind = std::mem::discriminant(first);
    let same = |run: &Run| run.reports.iter().any(|report| std::mem::discriminant(report) == kind);
    let replay = |script: &[u16]| play(seed, options, Some(script.to_vec()), true, program);
    let (mut plainest, mut script, mut attempts) = (run.clone(), run.choices.clone(), 0);
    let mut stretch = script.len();
    while stretch > 0 && attempts < ATTEMPTS {
        let mut at = 0;
        while at < script.len() && attempts < ATTEMPTS {
            let end = (at + stretch).min(script.len());
            if script[at..end].iter().any(|&choice| choice != 0) {
                let mut plainer = script.clone();
                plainer[at..end].fill(0);
                attempts += 1;
                let attempt = replay(&plainer);
                if same(&attempt) {
                    (script, plainest) = (plainer, attempt);
                }
            }
            at = end;
        }
        stretch /= 2;
    }
    plainest
}
