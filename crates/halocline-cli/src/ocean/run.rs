//! A run from its arguments to its report: who the ranks are, and what each of them does in turn.

use super::args::{OceanArgs, Partitioner, Switch, Transport};
use super::domain::Domain;
use super::error::OceanError;
use super::input::{Fesom, PARTS, Source};
use super::plot::{self, Picture};
use super::report::Report;
use super::rigid_lid;
use super::simulation::{Outcome, simulate};
use super::state::Case;
use super::verify::{gather, verify};
use crate::launch;
use halocline::{Communicator, LinkCounts, Partition, Reduce};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::path::Path;

/// Runs `halocline run ocean` and returns the exit code: not 0 if the check fails. With `json` the
/// summary for people is left out.
///
/// In a process that is no rank of a job or of `mpirun`, and unless threads are asked for, it starts this
/// program again as the ranks. Call it where no other thread runs ([`launch::run_self`] wants that).
pub(crate) fn run(args: &OceanArgs, json: bool) -> Result<u8, OceanError> {
    let source = args.data.clone().map_or(Source::Embedded, Source::Directory);
    let fesom = Fesom::read(&source)?;
    let launched = std::env::var_os("HALOCLINE_RANK").is_some();
    let by_mpi = args.transport == Transport::Auto && halocline_comm::mpi::launched().is_some();
    if launched || by_mpi || args.transport == Transport::Mpi {
        return run_in_job(args, json, fesom, !launched);
    }
    let ranks = args.ranks.unwrap_or(4);
    // What can be wrong is found here, once, and not by every rank.
    check(args, ranks, fesom.nodes.len())?;
    match args.transport {
        Transport::Thread => run_threads(args, json, ranks, fesom),
        Transport::Auto | Transport::Shm | Transport::Mpi => {
            drop(fesom);
            let arguments: Vec<_> = std::env::args_os().skip(1).collect();
            Ok(launch::run_self(ranks, &arguments)?)
        }
    }
}

fn run_in_job(args: &OceanArgs, json: bool, fesom: Fesom, mpi: bool) -> Result<u8, OceanError> {
    let node_aware = args.node_aware.map(|switch| switch == Switch::On);
    let comm = if mpi { Communicator::init_mpi(node_aware)? } else { Communicator::init()? };
    if args.transport == Transport::Thread {
        return Err(OceanError::ThreadsInJob);
    }
    if let Some(asked) = args.ranks.filter(|&asked| asked != comm.size()) {
        return Err(OceanError::JobSize { asked, size: comm.size() });
    }
    check(args, comm.size(), fesom.nodes.len())?;
    run_rank(&comm, &Case::new(fesom, args.refine)?, args, json)
}

fn run_threads(args: &OceanArgs, json: bool, ranks: usize, fesom: Fesom) -> Result<u8, OceanError> {
    let case = Case::new(fesom, args.refine)?;
    let results: Vec<Result<u8, OceanError>> = std::thread::scope(|scope| {
        let start = |(rank, comm): (usize, Communicator)| {
            let work = || run_rank(&{ comm }, &case, args, json);
            let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, work);
            thread.map_err(|source| OceanError::Thread { rank, source })
        };
        let threads: Vec<_> = Communicator::threads(ranks).into_iter().enumerate().map(start).collect();
        let join = |(rank, thread): (usize, Result<std::thread::ScopedJoinHandle<'_, _>, _>)| {
            thread?.join().unwrap_or(Err(OceanError::Panicked { rank }))
        };
        threads.into_iter().enumerate().map(join).collect()
    });
    // The cause, where some ranks have only seen another one leave.
    let (echoes, causes): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|result| result.as_ref().is_err_and(OceanError::is_echo));
    causes.into_iter().chain(echoes).try_fold(0, |worst: u8, code| Ok(worst.max(code?)))
}

/// Arguments that no run can have, and a plot that cannot be written.
fn check(args: &OceanArgs, ranks: usize, nodes: usize) -> Result<(), OceanError> {
    if ranks == 0 || ranks > nodes {
        return Err(OceanError::Ranks { ranks, nodes });
    }
    if args.partition == Partitioner::File && ranks > PARTS {
        return Err(OceanError::Parts { ranks });
    }
    let Some(path) = plot_path(args) else { return Ok(()) };
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        return Err(OceanError::PlotKind { path: path.to_owned() });
    }
    // Opened as it will be; a file that was not there is only left by a run that draws it.
    let new = !path.exists();
    let open = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let result = open.and_then(|_| if new { std::fs::remove_file(path) } else { Ok(()) });
    result.map_err(|source| OceanError::PlotFile { path: path.to_owned(), source })
}

fn plot_path(args: &OceanArgs) -> Option<&Path> {
    (!args.no_plot).then_some(args.plot.as_path())
}

/// What one rank does. Collective. Returns the exit code of the process.
fn run_rank(comm: &Communicator, case: &Case, args: &OceanArgs, json: bool) -> Result<u8, OceanError> {
    let bar = progress(comm.rank(), args.steps, &format!("{} ranks", comm.size()));
    bar.tick();
    let (partition, potential) = agree(comm, case, args)?;
    let domains = case.mesh.topology.domains_by_vertex(&partition, comm.rank())?;
    let domain = Domain::new(case, &domains, &potential);
    // What came before is no part of the time for the steps.
    bar.reset();
    let mut outcome = simulate(comm, case, &domains, &domain, args.steps, || bar.inc(1))?;
    bar.finish();
    drop(domain);
    drop(domains);

    let owned = std::mem::take(&mut outcome.temperature);
    let costs = costs(comm, &outcome)?;
    let temperature = gather(comm, &partition, owned, case.layers())?;
    if comm.rank() != 0 {
        return Ok(0);
    }
    let bar = progress(0, args.steps, "compare");
    let verdict = verify(case, &potential, args.steps, &temperature, || bar.inc(1))?;
    bar.finish();
    let report = Report {
        ranks: comm.size(),
        transport: comm.transport(),
        cells: verdict.wet_cells,
        triangles: case.mesh.triangles().len(),
        steps: args.steps,
        step: outcome.step,
        max_abs_diff: verdict.max_abs_diff,
        conservation: verdict.conservation,
        seconds: outcome.elapsed.as_secs_f64(),
        exchange_us_median: costs.median_us,
        exchange_share: costs.share,
        links: costs.links,
    };
    if let Some(path) = plot_path(args) {
        plot_surface(path, case, &partition, &temperature, &report)?;
    }
    print(&report, plot_path(args), json).map_err(OceanError::Output)?;
    Ok(u8::from(!verdict.is_good()))
}

/// What all ranks must know: who owns which node, and the potential that corrects the velocities. Rank 0
/// finds out and tells the others. Collective.
fn agree(comm: &Communicator, case: &Case, args: &OceanArgs) -> Result<(Partition, Vec<f64>), OceanError> {
    let nodes = case.mesh.positions.len();
    let mut plan = Vec::new();
    if comm.rank() == 0 {
        let partition = partition(case, args.partition, comm.size())?;
        let potential = rigid_lid::potential(case);
        plan.reserve(12 * nodes);
        partition.owners().iter().for_each(|&owner| plan.extend((owner as u32).to_le_bytes()));
        potential.iter().for_each(|value| plan.extend(value.to_le_bytes()));
    }
    let plan = comm.broadcast(0, plan)?;
    if plan.len() != 12 * nodes {
        return Err(OceanError::Plan { bytes: plan.len(), expected: 12 * nodes });
    }
    let (owners, potential) = plan.split_at(4 * nodes);
    let owners = owners.as_chunks().0.iter().map(|&raw| u32::from_le_bytes(raw) as usize).collect();
    let potential = potential.as_chunks().0.iter().map(|&raw| f64::from_le_bytes(raw)).collect();
    Ok((Partition::given(owners, comm.size())?, potential))
}

fn partition(case: &Case, partitioner: Partitioner, ranks: usize) -> Result<Partition, OceanError> {
    Ok(match partitioner {
        Partitioner::Metis => Partition::metis(&case.mesh.topology.vertex_graph(), ranks)?,
        Partitioner::File => {
            // A new node goes where the first of its parents is.
            let part = |node: u32| case.fesom.parts[node as usize] as usize;
            let owners =
                case.mesh.origins.iter().map(|origin| part(origin.nodes[0]) * ranks / PARTS).collect();
            Partition::given(owners, ranks)?
        }
    })
}

/// What the exchanges cost, over all ranks.
struct Costs {
    median_us: f64,
    share: f64,
    links: LinkCounts,
}

fn costs(comm: &Communicator, outcome: &Outcome) -> Result<Costs, OceanError> {
    let nanoseconds: Vec<u64> = outcome.exchanges.iter().map(|time| time.as_nanos() as u64).collect();
    let mut slowest = comm.all_reduce(&nanoseconds, Reduce::Max)?;
    slowest.sort_unstable();
    let LinkCounts { direct, mailbox, message } = outcome.links;
    let mine = [nanoseconds.iter().sum(), outcome.elapsed.as_nanos() as u64];
    let counts = [direct, mailbox, message].map(|count| count as u64);
    let sums = comm.all_reduce(&[&mine[..], &counts].concat(), Reduce::Sum)?;
    let sum = |at: usize| sums.get(at).copied().unwrap_or(0);
    Ok(Costs {
        median_us: slowest.get(slowest.len() / 2).copied().unwrap_or(0) as f64 / 1e3,
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
) -> Result<(), OceanError> {
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
    Ok(plot::draw(path, &picture)?)
}

fn print(report: &Report, plot: Option<&Path>, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if !json {
        stdout.write_all(report.to_text(plot).as_bytes())?;
    }
    writeln!(stdout, "{}", report.to_json())?;
    stdout.flush()
}

/// A progress bar on rank 0 if standard error is a terminal, else one that shows nothing.
fn progress(rank: usize, steps: u32, what: &str) -> ProgressBar {
    let target = if rank == 0 { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(u64::from(steps)), target).with_prefix(what.to_owned());
    match ProgressStyle::with_template(
        "{prefix:>9} {bar:40.cyan/blue} {pos}/{len} steps, {per_sec}, {eta} left",
    ) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
