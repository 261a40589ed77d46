//! A run from its arguments to its report: who the ranks are, and what each of them does in turn.

use super::args::OceanArgs;
use super::device::{Fields, simulate_on};
use super::domain::Domain;
use super::input::head_of_doubles;
use super::kernels::Kernels;
use super::model;
use super::plot::{self, Picture};
use super::report::Report;
use super::rigid_lid;
use super::simulation::{Outcome, simulate};
use super::state::Case;
use super::verify::{gather, verify};
use crate::device::{Gpu, Kind};
use crate::error::CommandError;
use crate::info::plural;
use crate::timing::slowest_median;
use crate::{progress, ranks};
use halocline::{Communicator, LinkCounts, Partition, Reduce, Stream};
use halocline_device::file;
use std::io::Write;
use std::path::Path;

/// What fails where the temperature cannot be saved.
const SAVE: &str = "write the temperature to";

/// Runs `halocline run ocean` and returns the exit code: not 0 if the check fails. With `json` the
/// summary for people is left out.
///
/// Call it where no other thread runs ([`ranks::run`] wants that).
pub(crate) fn run(args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    args.device.set_environment();
    let fesom = model::read(&args.model)?;
    let nodes = fesom.nodes.len();
    ranks::run(
        &args.ranks,
        |ranks| check(args, ranks, nodes),
        || Case::new(fesom, args.model.refine).map_err(CommandError::from),
        |comm, case| run_rank(comm, case, args, json),
    )
}

/// Arguments that no run can have, and a trace or plot that cannot be written.
fn check(args: &OceanArgs, ranks: usize, nodes: usize) -> Result<(), CommandError> {
    model::check_ranks(&args.model, ranks, nodes)?;
    args.device.find()?;
    args.trace.check()?;
    if let Some(path) = &args.save {
        file::check(path).map_err(CommandError::file(SAVE, path))?;
    }
    let Some(path) = plot_path(args) else { return Ok(()) };
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        return Err(CommandError::usage(format!(
            "the plot is to be written to {}, but it is a PNG image; give a name that ends in .png",
            path.display()
        )));
    }
    crate::plot::check_file(path)
}

fn plot_path(args: &OceanArgs) -> Option<&Path> {
    (!args.no_plot).then_some(args.plot.as_path())
}

/// What one rank does. Collective. Returns the exit code of the process.
fn run_rank(comm: &Communicator, case: &Case, args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    let trace = args.trace.begin(comm)?;
    let bar = progress::bar(comm.rank(), args.steps, &plural(comm.size(), "rank"));
    bar.tick();
    let partition = model::share_partition(comm, case, args.model.partition)?;
    let potential = model::share(comm, case.mesh.positions.len(), || {
        Ok(rigid_lid::potential(case).into_iter().map(f64::to_bits).collect())
    })?;
    let potential: Vec<f64> = potential.into_iter().map(f64::from_bits).collect();
    let domains = case.mesh.topology.domains_by_vertex(&partition, comm.rank())?;
    let domain = Domain::new(case, &domains, &potential);
    // What came before is no part of the time for the steps.
    bar.reset();
    let tick = || bar.inc(1);
    let (mut outcome, gpu) = match args.device {
        Kind::Cpu => (simulate(comm, case, &domains, &domain, args.steps, tick)?, None),
        Kind::Cuda => {
            let gpu = Gpu::open(comm)?;
            let described = gpu.describe();
            let place = (case, &domains, &domain);
            let kernels = |stream: &Stream, fields: &Fields| Kernels::load(stream, &domain, fields);
            (simulate_on(comm, place, args.steps, gpu.stream, kernels, tick)?, Some(described))
        }
    };
    bar.finish();
    drop(domain);
    drop(domains);

    let owned = std::mem::take(&mut outcome.temperature);
    let costs = costs(comm, &outcome)?;
    let temperature = gather(comm, &partition, owned, case.layers())?;
    let traced = trace.finish(comm)?;
    if comm.rank() != 0 {
        return Ok(0);
    }
    let bar = progress::bar(0, args.steps, "compare");
    let verdict = verify(case, &potential, args.steps, &temperature, || bar.inc(1))?;
    bar.finish();
    let report = Report {
        ranks: comm.size(),
        transport: comm.transport(),
        device: args.device.name(),
        gpu,
        cells: verdict.wet_cells,
        triangles: case.mesh.triangles().len(),
        steps: args.steps,
        step: outcome.step,
        max_abs_diff: verdict.max_abs_diff,
        conservation: verdict.conservation,
        seconds: costs.seconds,
        exchange_us_median: costs.median_us,
        exchange_share: costs.share,
        links: costs.links,
    };
    let plot = plot_path(args)
        .map(|path| plot_surface(path, case, &partition, &temperature, &report).map(|()| path))
        .transpose();
    print(&report, *plot.as_ref().unwrap_or(&None), json).map_err(CommandError::Report)?;
    // What the run has found is out; now what became of its files.
    if let Some(path) = &args.save {
        save(path, &temperature, case.layers()).map_err(CommandError::file(SAVE, path))?;
    }
    plot?;
    traced?;
    Ok(u8::from(!verdict.is_good()))
}

/// What the exchanges cost, over all ranks.
struct Costs {
    /// Of the slowest rank.
    median_us: f64,
    /// The whole run of the slowest rank.
    seconds: f64,
    share: f64,
    links: LinkCounts,
}

fn costs(comm: &Communicator, outcome: &Outcome) -> Result<Costs, CommandError> {
    let nanoseconds: Vec<u64> = outcome.exchanges.iter().map(|time| time.as_nanos() as u64).collect();
    let elapsed = comm.all_reduce(&[outcome.elapsed.as_nanos() as u64], Reduce::Max)?;
    let LinkCounts { direct, mailbox, message } = outcome.links;
    let mine = [nanoseconds.iter().sum(), outcome.elapsed.as_nanos() as u64];
    let counts = [direct, mailbox, message].map(|count| count as u64);
    let sums = comm.all_reduce(&[&mine[..], &counts].concat(), Reduce::Sum)?;
    let sum = |at: usize| sums.get(at).copied().unwrap_or(0);
    Ok(Costs {
        median_us: slowest_median(comm, &outcome.exchanges)?,
        seconds: elapsed.first().copied().unwrap_or(0) as f64 / 1e9,
        share: sum(0) as f64 / sum(1).max(1) as f64,
        links: LinkCounts { direct: sum(2) as usize, mailbox: sum(3) as usize, message: sum(4) as usize },
    })
}

fn plot_surface(
    path: &Path,
    case: &Case,
    partition: &Partition,
    temperature: &[f64],
    report: &Report,
) -> Result<(), CommandError> {
    let mut column = vec![0.0; case.layers()];
    let mut before = Vec::with_capacity(case.mesh.positions.len());
    for node in 0..case.mesh.positions.len() {
        case.temperature(node, &mut column);
        before.push(column[0]);
    }
    let after: Vec<f64> = temperature.iter().step_by(case.layers()).copied().collect();
    let owners: Vec<u32> = partition.owners().iter().map(|&owner| owner as u32).collect();
    let picture = Picture {
        case,
        owners: &owners,
        before: &before,
        after: &after,
        title: format!("A global ocean over {}", report.headline()),
        subtitle: format!(
            "Temperature carried by the currents of a FESOM2 model: {} nodes, {} triangles, {} layers \u{b7} {}",
            case.mesh.positions.len(),
            report.triangles,
            case.layers(),
            report.verdict(),
        ),
        after_title: format!("Surface temperature after {}", report.span()),
    };
    plot::draw(path, &picture)
}

/// Writes rows of so many layers as an array of NumPy.
fn save(path: &Path, temperature: &[f64], layers: usize) -> std::io::Result<()> {
    let head = head_of_doubles(&[temperature.len() / layers, layers]);
    let elements: Vec<u8> = temperature.iter().flat_map(|value| value.to_le_bytes()).collect();
    file::replace(path, &[&head, &elements])
}

fn print(report: &Report, plot: Option<&Path>, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if !json {
        stdout.write_all(report.to_text(plot).as_bytes())?;
    }
    writeln!(stdout, "{}", report.to_json())?;
    stdout.flush()
}
