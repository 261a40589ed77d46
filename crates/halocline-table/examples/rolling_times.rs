//! Times rolling statistics of a table, for `bench/rolling/beside_polars.py`, which runs polars in turn on the same rows.
//!
//! `rolling_times FILE THREADS RANKS` reads an Arrow IPC file with the columns `time` and `value`, and gives each rank, a thread,
//! an equal part. Then each line `WINDOW STATISTIC [relay|direct]` of the standard input is answered by one line of JSON: the seconds of the
//! slowest rank for the whole, and for the exchange of rows alone. A line `write FILE` stores the last result.

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use halocline_comm::Communicator;
use halocline_table::{Aggregation, Interpolation, Rolling, Route, Statistic, Table, Window, rolling};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

struct Answer {
    result: RecordBatch,
    whole: Duration,
    exchange: Duration,
    rows_received: u64,
}

fn statistic(name: &str) -> Result<Statistic> {
    Ok(match name {
        "sum" => Statistic::Sum,
        "mean" => Statistic::Mean,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "var" => Statistic::Var { ddof: 1 },
        "std" => Statistic::Std { ddof: 1 },
        "median" => Statistic::Quantile { q: 0.5, interpolation: Interpolation::Linear },
        other => return Err(format!("no statistic {other:?}").into()),
    })
}

fn measure(table: &Table, comm: &Communicator, line: &str, threads: usize) -> Result<Answer> {
    let words: Vec<&str> = line.split(' ').collect();
    let (window, name, route) = match words[..] {
        [window, name] => (window, name, Route::Auto),
        [window, name, "relay"] => (window, name, Route::Relay),
        [window, name, "direct"] => (window, name, Route::Direct),
        _ => return Err("a line is WINDOW STATISTIC [relay|direct]".into()),
    };
    let window = match window.parse() {
        Ok(rows) => Window::rows(rows)?,
        Err(_) => Window::period(window)?,
    };
    comm.barrier()?;
    let start = Instant::now();
    let context = rolling(table, &Rolling::new("time", window).route(route), comm)?;
    let exchange = start.elapsed();
    let result = context.aggregate(&[Aggregation::new("value", statistic(name)?)], threads)?;
    Ok(Answer { result, whole: start.elapsed(), exchange, rows_received: context.traffic().rows_received })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, threads, ranks] = &arguments[..] else {
        return Err("usage: rolling_times FILE THREADS RANKS".into());
    };
    let (threads, ranks): (usize, usize) = (threads.parse()?, ranks.parse()?);
    let whole: Vec<RecordBatch> =
        FileReader::try_new(File::open(file)?, None)?.collect::<std::result::Result<_, _>>()?;
    let schema = whole.first().ok_or("the file has no rows")?.schema();
    let rows: usize = whole.iter().map(RecordBatch::num_rows).sum();
    let part = |rank: usize| -> Result<Table> {
        let (start, end) = (rows * rank / ranks, rows * (rank + 1) / ranks);
        let (mut batches, mut first) = (Vec::new(), 0);
        for batch in &whole {
            let (from, until) = (start.max(first), end.min(first + batch.num_rows()));
            if from < until {
                batches.push(batch.slice(from - first, until - from));
            }
            first += batch.num_rows();
        }
        Ok(Table::new(schema.clone(), batches)?)
    };
    if ranks == 0 {
        return Err("give at least 1 rank".into());
    }
    let tables = (0..ranks).map(part).collect::<Result<Vec<_>>>()?;
    let comms = Communicator::threads(ranks);
    let mut last: Vec<RecordBatch> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if let Some(path) = line.strip_prefix("write ") {
            let schema = last.first().ok_or("nothing to write")?.schema();
            let mut writer = FileWriter::try_new(File::create(path)?, &schema)?;
            last.iter().try_for_each(|batch| writer.write(batch))?;
            writer.finish()?;
            println!("{{}}");
            continue;
        }
        let answers = std::thread::scope(|scope| {
            let of_rank = |(table, comm)| {
                let line = &line;
                scope.spawn(move || measure(table, comm, line, threads))
            };
            let running: Vec<_> = tables.iter().zip(&comms).map(of_rank).collect();
            running
                .into_iter()
                .map(|rank| rank.join().map_err(|_| "a rank has panicked")?)
                .collect::<Result<Vec<_>>>()
        })?;
        let most =
            |of: fn(&Answer) -> Duration| answers.iter().map(of).max().unwrap_or_default().as_secs_f64();
        let received: u64 = answers.iter().map(|answer| answer.rows_received).sum();
        println!(
            "{{\"seconds\": {:.6}, \"exchange\": {:.6}, \"rows_received\": {received}}}",
            most(|answer| answer.whole),
            most(|answer| answer.exchange)
        );
        std::io::stdout().flush()?;
        last = answers.into_iter().map(|answer| answer.result).collect();
    }
    Ok(())
}
