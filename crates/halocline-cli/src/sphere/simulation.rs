//! The time loop of one rank.

use super::SphereError;
use super::domains::{Domains, Level};
use super::grid::Grid;
use super::part::Part;
use super::problem::Problem;
use crate::error::CommandError;
use crate::geometry::Vector;
use halocline::{BindOptions, Communicator, HaloExchange, LinkCounts, Pattern, Reduce};
use std::time::{Duration, Instant};

/// The time step as a share of the longest one in which no cell loses more than it holds.
const SHARE: f64 = 0.9;

/// The most steps of a run.
const MOST_STEPS: u32 = 100_000_000;

/// The steps of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Steps {
    pub(super) count: u32,
    /// Length of a step, days.
    pub(super) days: f64,
}

impl Steps {
    /// The fewest stable steps for this time. `longest` is [`Part::longest_step`] of all cells.
    fn new(days: f64, longest: f64) -> Result<Self, SphereError> {
        // The conversion saturates.
        let count = ((days / (SHARE * longest)).ceil() as u32).max(1);
        match count <= MOST_STEPS {
            true => Ok(Self { count, days: days / f64::from(count) }),
            false => Err(SphereError::Steps { seconds: SHARE * longest * 86_400.0, most: MOST_STEPS }),
        }
    }
}

/// A stage of a step: the weighted mean of the field at the start of the step, and of the last stage advanced by a step.
struct Stage {
    start: f64,
    advanced: f64,
}

/// Explicit Euler.
const EULER: [Stage; 1] = [Stage { start: 0.0, advanced: 1.0 }];
/// The strong-stability-preserving method of third order (C.-W. Shu and S. Osher, "Efficient implementation of essentially
/// non-oscillatory shock-capturing schemes", J. Comput. Phys. 77 (1988)).
const SSP_RK3: [Stage; 3] = [
    Stage { start: 0.0, advanced: 1.0 },
    Stage { start: 3.0, advanced: 1.0 },
    Stage { start: 1.0, advanced: 2.0 },
];

/// The stages of a step.
fn stages(problem: &Problem) -> &'static [Stage] {
    match problem {
        Problem::Rotation { .. } => &SSP_RK3,
        Problem::Diffusion { .. } => &EULER,
    }
}

/// Memory to work in.
#[derive(Default)]
struct Work {
    gradients: Vec<Vector>,
    rates: Vec<f64>,
}

/// A stage from level `from` to level `to` of an array. Level 0 has the field at the start of the step.
struct Move<'a> {
    stage: &'a Stage,
    from: usize,
    to: usize,
    days: f64,
}

/// The stages of a step of this length, in order. The last one ends in level 0.
fn moves(problem: &Problem, days: f64) -> impl Iterator<Item = Move<'static>> {
    let stages = stages(problem);
    stages.iter().enumerate().map(move |(at, stage)| {
        let (from, to) = (usize::from(at > 0), usize::from(at + 1 < stages.len()));
        Move { stage, from, to, days }
    })
}

impl Move<'_> {
    /// Computes the owned cells.
    fn apply(&self, part: &Part, levels: [&mut [f64]; 2], work: &mut Work) {
        part.rates(levels[self.from], &mut work.gradients, &mut work.rates);
        let Stage { start, advanced } = self.stage;
        for (cell, rate) in part.owned().iter().zip(&work.rates) {
            let later = levels[self.from][cell.place] + self.days * rate;
            levels[self.to][cell.place] =
                (start * levels[0][cell.place] + advanced * later) / (start + advanced);
        }
    }
}

/// The result of a rank after the last step.
pub(super) struct Outcome {
    pub(super) steps: Steps,
    pub(super) pattern: Pattern,
    /// The field at the end.
    pub(super) field: Level<f64>,
    /// Time of each step's exchanges, from the calls that start them until the halos are filled, with the waits for slower ranks.
    pub(super) exchanges: Vec<Duration>,
    /// Time of all steps.
    pub(super) elapsed: Duration,
    /// Sum of the links of this rank.
    pub(super) links: LinkCounts,
}

/// Runs all steps. Calls `begin` with their number before the first one, and `tick` after each. Collective.
pub(super) fn simulate(
    comm: &Communicator,
    (grid, problem): (&dyn Grid, &Problem),
    days: f64,
    begin: impl FnOnce(Steps),
    mut tick: impl FnMut(),
) -> Result<Outcome, CommandError> {
    let Domains { pattern, cells } = Domains::new(comm, grid, problem.halo())?;
    let parts: Vec<Part> = cells.iter().map(|cells| Part::new(grid, problem, cells)).collect();
    drop(cells);
    let levels = [Level::new(comm, &pattern, 0.0)?, Level::new(comm, &pattern, 0.0)?];
    for (part, array) in parts.iter().zip(&levels[0].arrays) {
        set_start(grid, problem, part, &mut array.write()?);
    }
    let sets = levels.each_ref().map(|level| level.bound_by(&pattern));
    let halo = HaloExchange::bind_alternatives(comm, &sets, &BindOptions::default())?;
    halo.begin().set(0).start()?.wait()?;
    let longest = parts.iter().map(Part::longest_step).fold(problem.longest_step(), f64::min);
    let steps = Steps::new(days, comm.all_reduce(longest, Reduce::Min)?)?;

    let mut exchanges = Vec::with_capacity(steps.count as usize);
    let mut work = Work::default();
    comm.barrier()?;
    begin(steps);
    let start = Instant::now();
    for _ in 0..steps.count {
        let mut in_exchanges = Duration::ZERO;
        for stage in moves(problem, steps.days) {
            for (part, (first, second)) in parts.iter().zip(levels[0].arrays.iter().zip(&levels[1].arrays)) {
                stage.apply(part, [&mut first.write()?, &mut second.write()?], &mut work);
            }
            let begin = Instant::now();
            halo.begin().set(stage.to).start()?.wait()?;
            in_exchanges += begin.elapsed();
        }
        exchanges.push(in_exchanges);
        tick();
    }
    let elapsed = start.elapsed();
    let links = halo.links().collect();
    let [field, _] = levels;
    Ok(Outcome { steps, pattern, field, exchanges, elapsed, links })
}

/// Runs all steps of one part that has all cells, without an exchange, and returns the values by place.
pub(super) fn simulate_whole(
    (grid, problem): (&dyn Grid, &Problem),
    part: &Part,
    steps: Steps,
    mut tick: impl FnMut(),
) -> Vec<f64> {
    let (mut values, mut stage_values) = (vec![0.0; grid.cells()], vec![0.0; grid.cells()]);
    set_start(grid, problem, part, &mut values);
    let mut work = Work::default();
    for _ in 0..steps.count {
        for stage in moves(problem, steps.days) {
            stage.apply(part, [&mut values, &mut stage_values], &mut work);
        }
        tick();
    }
    values
}

/// Sets the owned cells of an array to the initial field.
fn set_start(grid: &dyn Grid, problem: &Problem, part: &Part, values: &mut [f64]) {
    for cell in part.owned() {
        values[cell.place] = problem.bell().value(grid.polygon(cell.id).centre());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_divide_the_time_and_are_stable() {
        let steps = Steps::new(12.0, 0.1).unwrap();
        assert_eq!(steps, Steps { count: 134, days: 12.0 / 134.0 });
        assert!(steps.days <= 0.1 * SHARE);
        assert_eq!(Steps::new(1e-9, 0.1).unwrap().count, 1);
    }

    #[test]
    fn steps_without_end_are_refused() {
        for longest in [1e-10, 0.0] {
            let error = Steps::new(12.0, longest).unwrap_err();
            assert!(error.to_string().contains("takes more than 100000000 steps"), "{error}");
        }
    }
}
