//! A run from its arguments to its report.

use super::args::RollingArgs;
use super::axis::{self, Axis};
use super::input::{Columns, Extent, Part, Source};
use super::picture::{Envelope, Plot};
use super::report::{Report, Times, Travelled};
use super::verify::{Verdict, gather, verify};
use crate::clash::{self, Named};
use crate::error::CommandError;
use crate::info::plural;
use crate::table::print_report;
use crate::{options, plot, progress, ranks};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use halocline::{Communicator, Reduce};
use halocline_table::{Context, Table, TableError, Traffic, rolling};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs `halocline run rolling` and returns the exit code: not 0 if the check fails. With `json` it prints no summary, only the JSON line.
///
/// Call it while no other thread runs ([`ranks::run`] requires that).
pub(crate) fn run(args: &RollingArgs, json: bool) -> Result<u8, CommandError> {
    let args = &args.with_value()?;
    ranks::run(&args.ranks, |ranks| check(args, ranks), || Ok(()), |comm, ()| run_rank(comm, args, json))
}

/// Refuses invalid arguments, files that cannot be read, and plots that cannot be written.
fn check(args: &RollingArgs, ranks: usize) -> Result<(), CommandError> {
    args.rolling()?;
    let Columns { by, value, groups } = args.columns();
    let named = [("--by", by), ("--value", value)].into_iter();
    let named: Vec<_> = named.chain(groups.iter().map(|group| ("--group", group.as_str()))).collect();
    for (at, (option, name)) in named.iter().enumerate() {
        if let Some((before, _)) = named[..at].iter().find(|(_, other)| other == name) {
            return Err(CommandError::usage(format!(
                "`{before} {name}` and `{option} {name}` name one column; give each column once: the one that windows follow, the one \
                 with the values, and those of groups"
            )));
        }
    }
    args.files_differ()?;
    args.trace.check()?;
    let source = args.source();
    if let Extent::Rows(rows) = source.extent(args.columns(), Part::WHOLE)? {
        // Key, value and result, and a part of the file that is decoded.
        let each = u128::from(rows.div_ceil(ranks as u64)) * 8 * 4;
        let what = format!("{rows} rows of {} take", source.name());
        ranks::check_memory(
            args.ranks.transport,
            ranks,
            each,
            (&what, "use a smaller table, or more machines"),
        )?;
    }
    plot::check(args.plot().map(ToOwned::to_owned).as_ref())
}

impl RollingArgs {
    /// Refuses an output that is the input or another output.
    fn files_differ(&self) -> Result<(), CommandError> {
        clash::check(
            &[Named::new("--csv", self.csv.as_deref()), Named::new("--parquet", self.parquet.as_deref())],
            &[Named::new("--plot", self.plot()), Named::new("--trace", self.trace.path())],
        )
    }

    pub(super) fn source(&self) -> Source {
        match (&self.csv, &self.parquet) {
            (Some(path), _) => Source::Csv(path.clone()),
            (None, Some(path)) => Source::Parquet(path.clone()),
            (None, None) => Source::embedded(),
        }
    }

    pub(super) fn columns(&self) -> Columns<'_> {
        Columns { by: self.by(), value: self.value(), groups: self.groups() }
    }
}

/// Runs one rank and returns the exit code of the process. Collective.
fn run_rank(comm: &Communicator, args: &RollingArgs, json: bool) -> Result<u8, CommandError> {
    let trace = args.trace.begin(comm)?;
    let (source, start) = (args.source(), Instant::now());
    let read = tracing::trace_span!("read", rank = comm.rank()).in_scope(|| read(comm, &source, args));
    let read_time = start.elapsed();
    let failed = comm.all_reduce(if read.is_err() { comm.rank() } else { comm.size() }, Reduce::Min)?;
    if failed < comm.size() {
        // The first rank that cannot read its part says why; others often have the same reason.
        return if comm.rank() == failed { read.map(|_| 1) } else { Ok(1) };
    }
    let (table, threads) = (read?, (ranks::cpus(comm)?.len() / comm.size()).max(1));
    comm.barrier()?;
    let start = Instant::now();
    let Some(context) = exchange_rows(comm, &table, &source, args)? else { return Ok(1) };
    let results = context.aggregate(&[args.aggregation()], threads)?;
    let (whole, traffic) = (start.elapsed(), context.traffic());
    let traced = trace.finish(comm)?;
    drop(table);

    let times = times(comm, [read_time, whole], traffic)?;
    let travelled = travelled(comm, traffic)?;
    let rows = context.total_rows();
    // Key, value, the result twice, and the bits on their way.
    let skipped = ranks::skipped(comm, args.no_check, u128::from(rows) * 8 * 6)?;
    let found = if skipped.is_none() { gather(comm, &results)? } else { Vec::new() };
    let plot = match args.plot() {
        Some(path) => Some((path, draw(comm, args, &context, &results)?)),
        None => None,
    };
    drop((context, results));
    if comm.rank() != 0 {
        return Ok(0);
    }
    let report = Report {
        case: "rolling",
        data: source.name(),
        by: args.by().to_owned(),
        value: args.value().to_owned(),
        window: args.window_text(),
        groups: args.groups().to_vec(),
        statistic: options::name(&args.statistic),
        rows,
        ranks: comm.size(),
        transport: comm.transport(),
        threads,
        route: if traffic.is_relayed { "relay" } else { "direct" },
        travelled,
        times,
        verdict: compare(&source, args, skipped, &found)?,
    };
    let drawn = plot.map(|(path, plot)| save(path, plot, &report).map(|()| path)).transpose();
    print_report(&report, || report.to_text(*drawn.as_ref().unwrap_or(&None)), json)?;
    // Report the result before errors of the files.
    drawn?;
    traced?;
    Ok(u8::from(!report.verdict.is_good()))
}

/// Receives the rows of other ranks that the windows of this rank need. `None` if rank 0 says what is wrong. Collective.
fn exchange_rows(
    comm: &Communicator,
    table: &Table,
    source: &Source,
    args: &RollingArgs,
) -> Result<Option<Context>, CommandError> {
    match rolling(table, &args.rolling()?, comm) {
        // All ranks have the same error; rank 0 says it.
        Err(error) if comm.rank() > 0 && !matches!(error, TableError::Comm(_)) => Ok(None),
        Err(error) => Err(source.in_file(args.columns(), comm.size(), error)?),
        Ok(context) => Ok(Some(context)),
    }
}

/// The times of the slowest rank. Collective.
fn times(comm: &Communicator, [read, whole]: [Duration; 2], traffic: Traffic) -> Result<Times, CommandError> {
    let own = [read, whole, traffic.checked, traffic.exchanged].map(|time| time.as_secs_f64());
    let [_, whole, _, exchange] = comm.all_reduce(own, Reduce::Sum)?;
    let [read_seconds, seconds, check_seconds, exchange_seconds] = comm.all_reduce(own, Reduce::Max)?;
    let exchange_share = exchange / whole.max(f64::MIN_POSITIVE);
    Ok(Times { read_seconds, seconds, check_seconds, exchange_seconds, exchange_share })
}

/// What travelled between all ranks. Collective.
fn travelled(comm: &Communicator, traffic: Traffic) -> Result<Travelled, CommandError> {
    let own = [traffic.rows_sent, traffic.bytes_sent, traffic.messages_sent];
    let [rows_sent, bytes_sent, messages_sent] = comm.all_reduce(own, Reduce::Sum)?;
    Ok(Travelled { rows_sent, bytes_sent, messages_sent })
}

/// Compares with one rank, unless that is skipped.
fn compare(
    source: &Source,
    args: &RollingArgs,
    skipped: Option<String>,
    found: &[u64],
) -> Result<Verdict, CommandError> {
    if let Some(why) = skipped {
        return Ok(Verdict::Skipped { why });
    }
    let bar = progress::extent(0, source.extent(args.columns(), Part::WHOLE)?, "compare");
    let verdict = verify(source, args, found, |done| bar.inc(done))?;
    bar.finish();
    Ok(verdict)
}

/// Writes the picture, with what the report says.
fn save(path: &Path, plot: Plot, report: &Report) -> Result<(), CommandError> {
    let below = format!(
        "{} on {} ({}); {} travelled; {}",
        plural(report.rows as usize, "row"),
        plural(report.ranks, "rank"),
        report.transport,
        report.traffic(),
        report.check().split(" (max").next().unwrap_or_default()
    );
    plot::save(path, &Plot { title: format!("R{}", &report.headline()[1..]), below, ..plot })
}

/// Reads this rank's part.
fn read(comm: &Communicator, source: &Source, args: &RollingArgs) -> Result<Table, CommandError> {
    let part = Part { rank: comm.rank(), size: comm.size() };
    let bar =
        progress::extent(comm.rank(), source.extent(args.columns(), part)?, &plural(comm.size(), "rank"));
    let table = source.read(args.columns(), part, |done| bar.inc(done))?;
    bar.finish();
    Ok(table)
}

/// The picture of values and results, without titles. Collective.
fn draw(
    comm: &Communicator,
    args: &RollingArgs,
    context: &Context,
    results: &RecordBatch,
) -> Result<Plot, CommandError> {
    let Columns { by, value, groups } = args.columns();
    let column = |batch: &RecordBatch, name: &str| batch.column_by_name(name).cloned();
    // Keys begin anew in each group: the axis is the number of the row then.
    let is_grouped = !groups.is_empty();
    let mut next_row = i128::from(context.first_row());
    let mut keys = |batch: &RecordBatch| {
        let first = next_row;
        next_row += batch.num_rows() as i128;
        match column(batch, by) {
            Some(keys) if !is_grouped => axis::keys(&keys),
            _ => (first..next_row).collect(),
        }
    };
    let own: Vec<Vec<i128>> = context.own().iter().map(&mut keys).collect();
    let ends = own.first().and_then(|keys| keys.first()).zip(own.last().and_then(|keys| keys.last()));
    let bytes: Vec<u8> =
        ends.into_iter().flat_map(|(&first, &last)| [first, last]).flat_map(i128::to_le_bytes).collect();
    let all = comm.all_gather(bytes)?;
    let end = |rank: &Vec<u8>, at: usize| Some(i128::from_le_bytes(*rank.as_chunks().0.get(at)?));
    let firsts: Vec<Option<i128>> = all.iter().map(|rank| end(rank, 0)).collect();
    let unit = match context.schema().field_with_name(by) {
        Ok(field) if !is_grouped => axis::Unit::of(field.data_type()),
        _ => axis::Unit::Integer,
    };
    let first = firsts.iter().flatten().min().copied().unwrap_or_default();
    let last = all.iter().filter_map(|rank| end(rank, 1)).max().unwrap_or_default();
    let axis = Axis { first, last, unit };
    let (mut values, mut rolled) = (Envelope::new(), Envelope::new());
    let mut results = results.column(0).as_primitive::<Float64Type>().iter();
    for (batch, keys) in context.own().iter().zip(own) {
        let Some(numbers) = column(batch, value) else { continue };
        let numbers = numbers.as_primitive::<Float64Type>();
        for ((key, number), result) in keys.into_iter().zip(numbers).zip(results.by_ref()) {
            values.add(axis.share(key), number);
            rolled.add(axis.share(key), result);
        }
    }
    Ok(Plot {
        title: String::new(),
        below: String::new(),
        by: if is_grouped { format!("row, sorted by {}, {by}", groups.join(", ")) } else { by.to_owned() },
        value: value.to_owned(),
        result: format!("{} over {}", options::name(&args.statistic), args.window_text()),
        axis,
        firsts,
        values: values.of_all(comm)?,
        results: rolled.of_all(comm)?,
    })
}
