//! A run from its arguments to its report.

use super::args::OceanArgs;
use super::device::{Fields, simulate_on};
use super::domain::Domain;
use super::kernels::Kernels;
use super::model;
use super::plot::{self, Picture};
use super::report::Report;
use super::rigid_lid;
use super::simulation::{Outcome, simulate};
use super::state::Case;
use super::verify::{gather, verify};
use crate::clash::{self, Named};
use crate::costs::Costs;
use crate::device::{Gpu, Kind};
use crate::error::CommandError;
use crate::info::plural;
use crate::table::print_report;
use crate::{progress, ranks};
use halocline::{Array, Communicator, Decomposed, Error, Halo, MeshDomains, Partition, RegularGrid, Stream};
use halocline_device::file;
use std::path::Path;

/// Runs `halocline run ocean` and returns the exit code: not 0 if the check fails. With `json` it prints no summary, only the JSON line.
///
/// Call it while no other thread runs ([`ranks::run`] requires that).
pub(crate) fn run(args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    args.device.set_environment();
    let fesom = model::read(args.data.as_deref())?;
    let nodes = fesom.nodes.len();
    ranks::run(
        &args.ranks,
        |ranks| check(args, ranks, nodes),
        || Ok(Case::new(fesom)?),
        |comm, case| run_rank(comm, case, args, json),
    )
}

/// Refuses invalid arguments, and files that cannot be written.
fn check(args: &OceanArgs, ranks: usize, nodes: usize) -> Result<(), CommandError> {
    model::check_ranks(ranks, nodes)?;
    args.device.find()?;
    let plot = Named::new("--plot", plot_path(args));
    clash::check(
        &[],
        &[plot, Named::new("--save", args.save.as_deref()), Named::new("--trace", args.trace.path())],
    )?;
    args.trace.check()?;
    if let Some(path) = &args.save {
        file::check(path).map_err(CommandError::file("write the temperature to", path))?;
    }
    plot_path(args).map_or(Ok(()), crate::plot::check_png)
}

fn plot_path(args: &OceanArgs) -> Option<&Path> {
    (!args.no_plot).then_some(args.plot.as_path())
}

/// Runs one rank and returns the exit code of the process. Collective.
fn run_rank(comm: &Communicator, case: &Case, args: &OceanArgs, json: bool) -> Result<u8, CommandError> {
    let trace = args.trace.begin(comm)?;
    let bar = progress::bar(comm.rank(), args.steps, &plural(comm.size(), "rank"));
    bar.tick();
    let partition = model::share_partition(comm, case)?;
    let potential = if comm.rank() == 0 { rigid_lid::potential(case) } else { Vec::new() };
    let potential = comm.broadcast(0, potential)?;
    let domains = case.mesh.topology.domains_by_vertex(&partition, comm.rank())?;
    let mut domain = Domain::new(case, &domains, &potential);
    // The bar measures the steps only.
    bar.reset();
    let tick = || bar.inc(1);
    let (mut outcome, gpu) = run_steps(comm, args, (case, &domains, &domain), tick)?;
    bar.finish();
    let nodes = std::mem::take(&mut domain.owned_nodes);
    drop((domain, domains));

    let costs = Costs::of(comm, (outcome.elapsed, &outcome.exchanges), outcome.links)?;
    let gathered = gather(comm, &nodes, &std::mem::take(&mut outcome.temperature), case.layers())?;
    let traced = trace.finish(comm)?;
    let Some(gathered) = gathered else { return Ok(0) };
    let temperature = gathered.read()?;
    let bar = progress::bar(0, args.steps, "compare");
    let verdict = verify(case, &potential, args.steps, &temperature, || bar.inc(1))?;
    bar.finish();
    let report = Report {
        case: "ocean",
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
    print_report(&report, || report.to_text(*plot.as_ref().unwrap_or(&None)), json)?;
    // Report the result before errors of the files.
    drop(temperature);
    if let Some(path) = &args.save {
        save(path, &gathered)?;
    }
    plot?;
    traced?;
    Ok(u8::from(!verdict.is_good()))
}

/// Runs all steps on the device given by `--device`. Returns the description of the GPU, too. Collective.
fn run_steps(
    comm: &Communicator,
    args: &OceanArgs,
    place: (&Case, &MeshDomains, &Domain),
    tick: impl FnMut(),
) -> Result<(Outcome, Option<String>), CommandError> {
    let (case, domains, domain) = place;
    match args.device {
        Kind::Cpu => Ok((simulate(comm, case, domains, domain, args.steps, tick)?, None)),
        Kind::Cuda => {
            let gpu = Gpu::open(comm)?;
            let described = gpu.describe();
            let kernels = |stream: &Stream, fields: &Fields| Kernels::load(stream, domain, fields);
            Ok((simulate_on(comm, place, args.steps, gpu.stream, kernels, tick)?, Some(described)))
        }
    }
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

/// Writes an array as a NumPy file.
fn save(path: &Path, array: &Array<f64>) -> Result<(), Error> {
    let comm = Communicator::single();
    let grid = RegularGrid::new(array.layout().extents()).decompose(1)?;
    grid.pattern(&comm, Halo::uniform(0))?.save(&comm, path, array)
}
