//! A run from its arguments to its report.

use super::SphereError;
use super::args::SphereArgs;
use super::choice::GridChoice;
use super::domains::Level;
use super::grid::{self, Grid, Icosahedral, Topology};
use super::norms::Norms;
use super::plot::{self, Globes};
use super::problem::Problem;
use super::report::Report;
use super::simulation::{Outcome, Steps, simulate};
use super::verify::verify;
use crate::clash::{self, Named};
use crate::costs::Costs;
use crate::error::CommandError;
use crate::info::plural;
use crate::table::print_report;
use crate::verdict::Verdict;
use crate::{progress, ranks};
use halocline::{Communicator, IconGrid};
use indicatif::ProgressBar;
use std::path::Path;

/// Bytes of memory that a cell takes on the rank that owns it: shapes, sides and gradients.
const BYTES_OF_CELL: u128 = 600;
/// Bytes that a triangle of the whole mesh takes on each rank: vertices, levels and owners.
const BYTES_OF_MESH: u128 = 250;

/// Grid and problem, which all ranks of a process share.
struct Case {
    grid: Box<dyn Grid>,
    problem: Problem,
}

impl Case {
    fn parts(&self) -> (&dyn Grid, &Problem) {
        (&*self.grid, &self.problem)
    }
}

/// Runs `halocline run sphere` and returns the exit code: not 0 if the check fails. With `json` it prints no summary, only the JSON line.
///
/// Call it while no other thread runs ([`ranks::run`] requires that).
pub(crate) fn run(args: &SphereArgs, json: bool) -> Result<u8, CommandError> {
    ranks::run(
        &args.ranks,
        |ranks| check(args, ranks),
        || Ok(Case { grid: grid::make(&args.grid)?, problem: Problem::new(args)? }),
        |comm, case| run_rank(comm, case, args, json),
    )
}

/// Refuses invalid arguments, a grid that does not fit into memory, and files that cannot be written.
fn check(args: &SphereArgs, ranks: usize) -> Result<(), CommandError> {
    Problem::new(args)?;
    // Each rank has the whole mesh of triangles, but not before the memory is known to be there.
    let (grid, cells, of_mesh) = match args.grid {
        GridChoice::Icosahedral { level } => (None, Icosahedral::triangles(level), BYTES_OF_MESH),
        GridChoice::File { ref path } => (None, IconGrid::open(path)?.cells(), BYTES_OF_MESH),
        ref choice => {
            let grid = grid::make(choice)?;
            let cells = grid.cells();
            (Some(grid), cells, 0)
        }
    };
    if ranks > cells {
        return Err(SphereError::Ranks { ranks, cells }.into());
    }
    let each = BYTES_OF_CELL * cells.div_ceil(ranks) as u128 + of_mesh * cells as u128;
    if let Some(Topology::Patches(patches)) = grid.as_ref().map(|grid| grid.topology()).transpose()? {
        patches.decompose(ranks)?;
    }
    let what = format!("the {cells} cells of {} take", args.grid);
    ranks::check_memory(args.ranks.transport, ranks, each, (&what, "use a smaller grid"))?;
    let outputs = [Named::new("--plot", plot_path(args)), Named::new("--trace", args.trace.path())];
    clash::check(&[Named::new("--grid", args.grid.file())], &outputs)?;
    args.trace.check()?;
    plot_path(args).map_or(Ok(()), crate::plot::check_png)
}

fn plot_path(args: &SphereArgs) -> Option<&Path> {
    (!args.no_plot).then_some(args.plot.as_path())
}

/// Runs one rank and returns the exit code of the process. Collective.
fn run_rank(comm: &Communicator, case: &Case, args: &SphereArgs, json: bool) -> Result<u8, CommandError> {
    let trace = args.trace.begin(comm)?;
    let bar = progress::bar(comm.rank(), 0, &plural(comm.size(), "rank"));
    let begin = |steps: Steps| {
        bar.set_length(steps.count.into());
        // The bar measures the steps only.
        bar.reset();
    };
    let outcome = simulate(comm, case.parts(), args.days.0, begin, || bar.inc(1))?;
    bar.finish();

    let costs = Costs::of(comm, (outcome.elapsed, &outcome.exchanges), outcome.links)?;
    let gathered = outcome.pattern.gather_to::<f64>(comm, 0, &outcome.field.fields)?;
    let owners = match plot_path(args) {
        Some(_) => gather_owners(comm, &outcome)?,
        None => Vec::new(),
    };
    let traced = trace.finish(comm)?;
    let skipped = ranks::skipped(comm, args.no_check, BYTES_OF_CELL * case.grid.cells() as u128)?;
    let Some(gathered) = gathered else { return Ok(0) };
    let (steps, values) = (outcome.steps, gathered.read()?);
    let verdict = match skipped {
        Some(why) => Verdict::Skipped { why },
        None => compare(case, steps, &values),
    };
    let norms = Norms::new(&*case.grid, &case.problem, &values, args.days.0);
    let report = report(comm, args, (steps, costs), (norms, verdict), case);
    let plot = draw(case, args, &report, (&owners, &values));
    print_report(&report, || report.to_text(*plot.as_ref().unwrap_or(&None)), json)?;
    // Report the result before errors of the files.
    plot?;
    traced?;
    Ok(u8::from(!report.is_good()))
}

/// Draws the globes, unless there shall be none, and returns the file. `owners` and `values` are those of all cells.
fn draw<'a>(
    case: &Case,
    args: &'a SphereArgs,
    report: &Report,
    (owners, values): (&[u32], &[f64]),
) -> Result<Option<&'a Path>, CommandError> {
    let Some(path) = plot_path(args) else { return Ok(None) };
    let globes = Globes {
        grid: &*case.grid,
        problem: &case.problem,
        days: args.days.0,
        owners,
        values,
        exact: report.exact,
        title: format!("{} {}", case.problem.title(), report.headline(&args.grid.name())),
        subtitle: format!("error {}; {}", report.error(), report.result()),
    };
    plot::draw(path, &globes)?;
    Ok(Some(path))
}

fn report(
    comm: &Communicator,
    args: &SphereArgs,
    (steps, costs): (Steps, Costs),
    (norms, verdict): (Norms, Verdict),
    case: &Case,
) -> Report {
    Report {
        case: "sphere",
        grid: args.grid.to_string(),
        problem: case.problem.name(),
        unit: case.problem.unit(),
        exact: exact(&*case.grid),
        ranks: comm.size(),
        transport: comm.transport(),
        cells: case.grid.cells(),
        days: args.days.0,
        steps: steps.count,
        step_seconds: steps.days * 86_400.0,
        norms,
        seconds: costs.seconds,
        exchange_us_median: costs.median_us,
        exchange_share: costs.share,
        links: costs.links,
        verdict,
    }
}

/// The name of the exact solution.
fn exact(grid: &dyn Grid) -> &'static str {
    if grid.has_coasts() { "the exact solution without land" } else { "the exact solution" }
}

/// The rank that owns each cell, on rank 0; nothing elsewhere. Collective.
fn gather_owners(comm: &Communicator, outcome: &Outcome) -> Result<Vec<u32>, CommandError> {
    let owners = Level::<i64>::new(comm, &outcome.pattern, comm.rank() as i64)?;
    match outcome.pattern.gather_to::<i64>(comm, 0, &owners.fields)? {
        Some(owners) => Ok(owners.read()?.iter().map(|&owner| owner as u32).collect()),
        None => Ok(Vec::new()),
    }
}

/// Compares the values of all cells with those of a run without exchanges.
fn compare(case: &Case, steps: Steps, values: &[f64]) -> Verdict {
    let bar: ProgressBar = progress::bar(0, steps.count, "compare");
    let verdict = verify(case.parts(), steps, values, || bar.inc(1));
    bar.finish();
    verdict
}
