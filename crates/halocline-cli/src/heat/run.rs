//! A run from its arguments to its report.

use super::args::{Dtype, HeatArgs};
use super::device::OnDevice;
use super::domain::{Case, Domain};
use super::kernels::Kernels;
use super::levels::{Host, Levels};
use super::measure::{Measure, measure};
use super::report::{Rates, Report};
use super::simulation::{Heat, Micros, Phases, Way};
use super::stencil::Real;
use super::verify::{gather, verify};
use crate::device::{Gpu, Kind};
use crate::error::CommandError;
use crate::options::{self, Switch};
use crate::stats::slowest_median;
use crate::table::print_report;
use crate::verdict::Verdict;
use crate::{info, progress, ranks};
use halocline::{Communicator, HaloExchange, LinkCounts, Reduce, agree};
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

/// Runs `halocline run heat` and returns the exit code: not 0 if the check fails. With `json` it prints no summary, only the JSON line.
///
/// Call it while no other thread runs ([`ranks::run`] requires that).
pub(crate) fn run(args: &HeatArgs, json: bool) -> Result<u8, CommandError> {
    args.device.set_environment();
    ranks::run(
        &args.ranks,
        |ranks| {
            fits(args, &case(args, ranks)?, ranks)?;
            check_graph(args)?;
            args.device.find()?;
            Ok(args.trace.check()?)
        },
        || Ok(()),
        |comm, ()| match args.dtype {
            Dtype::F64 => run_on::<f64>(comm, args, json),
            Dtype::F32 => run_on::<f32>(comm, args, json),
        },
    )
}

/// Runs one rank on the device given by `--device`. Collective.
fn run_on<T: Real>(comm: &Communicator, args: &HeatArgs, json: bool) -> Result<u8, CommandError> {
    let case = case(args, comm.size())?;
    let fields = 0..args.fields;
    match args.device {
        Kind::Cpu => {
            run_rank(comm, args, &case, json, || Ok((Heat::<Host<T>>::new(comm, &case, fields)?, None)))
        }
        Kind::Cuda => run_rank(comm, args, &case, json, || {
            let gpu = Gpu::open(comm)?;
            let described = gpu.describe();
            let traced_rounds = args.trace.is_wanted().then(|| (args.steps as usize).div_ceil(case.width));
            let levels = |domain: &Domain| {
                Ok(agree(comm, OnDevice::<T, Kernels>::new(gpu, domain, fields, case.width, traced_rounds))?)
            };
            Ok((Heat::on(comm, &case, levels)?, Some(described)))
        }),
    }
}

/// The case of these arguments, or why it is invalid.
fn case(args: &HeatArgs, ranks: usize) -> Result<Case, CommandError> {
    if args.grid.0.len() != 3 {
        return Err(CommandError::usage(format!(
            "`--grid {}` has {} axes; give three, such as 128x128x128",
            args.grid,
            args.grid.0.len()
        )));
    }
    let decomposition = args.division.of(&args.grid.0, ranks)?;
    let flags = args.division.periodic.flags(3).map_err(CommandError::Usage)?;
    let periodic = [flags[0], flags[1], flags[2]];
    let case = Case { decomposition, periodic, width: args.halo as usize };
    case.domain(0)?;
    Ok(case)
}

/// Refuses `--graph` where there are no graphs.
fn check_graph(args: &HeatArgs) -> Result<(), CommandError> {
    let why = match args {
        HeatArgs { graph: false, .. } => return Ok(()),
        HeatArgs { device: Kind::Cpu, .. } => "`--graph` needs GPUs; give `--device cuda`, too",
        _ if args.trace.is_wanted() => {
            "`--graph` records no trace: its rounds are not calls; leave `--graph` or `--trace` out"
        }
        _ => return Ok(()),
    };
    Err(CommandError::usage(why))
}

/// Refuses a case that does not fit into the memory of this machine.
fn fits(args: &HeatArgs, case: &Case, ranks: usize) -> Result<(), CommandError> {
    // The first block is one of the largest.
    let field =
        case.domain(0)?.extents.iter().map(|&n| n as u128).product::<u128>() * args.dtype.size() as u128;
    let cells: usize = case.extents().iter().product();
    let (what, bytes) = match args.device {
        Kind::Cpu => (
            format!("{} fields of {cells} cells, twice each, with their halos take", args.fields),
            field * 2 * u128::from(args.fields),
        ),
        // Initial values, zeros and the pinned staging buffer. The driver reports a lack of device memory.
        Kind::Cuda => (format!("a field of {cells} cells, on its way to the GPUs, takes"), field * 3),
    };
    ranks::check_memory(args.ranks.transport, ranks, bytes, (&what, "use a smaller grid"))
}

/// Runs one rank and returns the exit code of the process. `make` returns the initial state and the description of the GPU. Collective.
fn run_rank<L: Levels>(
    comm: &Communicator,
    args: &HeatArgs,
    case: &Case,
    json: bool,
    make: impl FnOnce() -> Result<(Heat<L>, Option<String>), CommandError>,
) -> Result<u8, CommandError> {
    let trace = args.trace.begin(comm)?;
    let bar = progress::bar(comm.rank(), args.steps, &info::plural(comm.size(), "rank"));
    let (mut heat, gpu) = make()?;
    let halo = heat.bind(comm, args.link.choice(), args.overlap == Switch::On)?;
    let (seconds, phases) = run_steps(comm, args, &mut heat, (&halo, &bar))?;
    agree(comm, heat.write_trace())?;
    let traced = trace.finish(comm)?;

    let skipped = ranks::skipped(comm, args.no_check, bytes_to_compare(args, case))?;
    let found = if skipped.is_none() { gather(comm, &heat)? } else { Vec::new() };
    let measured = Measure { link: args.link.choice(), rounds: args.rounds, graph: args.graph };
    let figures = measure(comm, &mut heat, measured)?;
    let Totals { links, bytes, received, cpus } = Totals::new(comm, &heat, &halo)?;
    drop((halo, heat));
    if comm.rank() != 0 {
        return Ok(0);
    }

    let verdict = match skipped {
        Some(why) => Verdict::Skipped { why },
        None => compare(args, case, &found)?,
    };
    let values = case.extents().iter().product::<usize>() as f64 * f64::from(args.fields);
    let report = Report {
        case: "heat",
        grid: args.grid.to_string(),
        periodic: case.periodic,
        blocks: case.decomposition.blocks_per_axis().unwrap_or_default(),
        halo: case.width,
        fields: args.fields,
        dtype: options::name(&args.dtype),
        ranks: comm.size(),
        transport: comm.transport(),
        device: args.device.name(),
        gpu,
        cpus,
        free_cores: cpus >= 2 * comm.size(),
        steps: args.steps,
        overlap: args.overlap == Switch::On,
        graph: args.graph,
        links,
        bytes,
        received,
        seconds,
        rates: Rates::new(values, args.dtype.size(), args.steps, seconds),
        phases,
        figures,
        verdict,
    };
    print_report(&report, || report.to_text(), json)?;
    // Report the result before an error of the trace.
    traced?;
    Ok(u8::from(!report.verdict.is_good()))
}

/// Numbers of all ranks together.
struct Totals {
    links: LinkCounts,
    /// Bytes of halo.
    bytes: u64,
    /// Bytes of halo from other ranks.
    received: u64,
    cpus: usize,
}

impl Totals {
    /// Collective.
    fn new<L: Levels>(
        comm: &Communicator,
        heat: &Heat<L>,
        halo: &HaloExchange,
    ) -> Result<Self, CommandError> {
        let (bytes, received) = heat.bytes();
        let [bytes, received] = comm.all_reduce([bytes, received], Reduce::Sum)?;
        let links = ranks::sum_links(comm, halo.links().collect())?;
        Ok(Self { links, bytes, received, cpus: ranks::cpus(comm)?.len() })
    }
}

/// Compares the gathered fields with those of one rank.
fn compare<T: Real>(args: &HeatArgs, case: &Case, found: &[Vec<T>]) -> Result<Verdict, CommandError> {
    let bar = progress::bar(0, args.steps.saturating_mul(args.fields), "compare");
    let verdict = verify(case, args.steps as usize, found, |done| bar.inc(done as u64))?;
    bar.finish();
    Ok(verdict)
}

/// Runs all steps. Returns the time on the slowest rank, s, and the medians of the phases. Collective.
fn run_steps<L: Levels>(
    comm: &Communicator,
    args: &HeatArgs,
    heat: &mut Heat<L>,
    (halo, bar): (&HaloExchange, &ProgressBar),
) -> Result<(f64, Micros), CommandError> {
    comm.barrier()?;
    // The bar measures the steps only.
    bar.reset();
    let start = Instant::now();
    let way = Way { overlap: args.overlap == Switch::On, graph: args.graph };
    let phases = heat.run(halo, args.steps as usize, way, |done| bar.inc(done as u64))?;
    let elapsed = start.elapsed().as_secs_f64();
    bar.finish();
    Ok((comm.all_reduce(elapsed, Reduce::Max)?, slowest_phases(comm, &phases)?))
}

/// The bytes that the comparison with one rank needs: all gathered fields, and two levels of one field with a halo.
fn bytes_to_compare(args: &HeatArgs, case: &Case) -> u128 {
    let [cells, halo] =
        [0, 2].map(|more| case.extents().iter().map(|&n| (n + more) as u128).product::<u128>());
    (cells * u128::from(args.fields) + 2 * halo) * args.dtype.size() as u128
}

/// For each phase the median over the rounds on the slowest rank, us. Collective.
fn slowest_phases(comm: &Communicator, phases: &[Phases]) -> Result<Micros, CommandError> {
    let median = |part: fn(&Phases) -> Duration| {
        slowest_median(comm, &phases.iter().map(part).collect::<Vec<Duration>>())
    };
    Ok(Micros {
        begin: median(|phase| phase.begin)?,
        interior: median(|phase| phase.interior)?,
        wait: median(|phase| phase.wait)?,
        rest: median(|phase| phase.rest)?,
    })
}
