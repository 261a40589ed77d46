//! Times rolling statistics of a table, for `bench/rolling/beside_polars.py`, which runs polars and pandas in turn on the same rows.
//!
//! `rolling_times FILE THREADS` is a rank of a job, or the only one. It reads the Arrow IPC file `FILE.RANK` with the columns `time` and
//! `value`: its part of the table. Rank 0 answers each line `WINDOW STATISTIC [relay|direct]` of its standard input by one line of JSON. A line
//! `write FILE` stores the last result of each rank in `FILE.RANK`.

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use halocline_comm::{Communicator, Reduce};
use halocline_table::{Aggregation, Interpolation, Rolling, Route, Statistic, Table, Window, rolling};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

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

/// The result of this rank, and a line of JSON: the seconds of the slowest rank for the whole, the check of the order of its rows and the
/// exchange, and what all ranks received.
fn measure(table: &Table, comm: &Communicator, line: &str, threads: usize) -> Result<(RecordBatch, String)> {
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
    let result = context.aggregate(&[Aggregation::new("value", statistic(name)?)], threads)?;
    let whole = start.elapsed().as_secs_f64();
    let traffic = context.traffic();
    let [checked, exchanged] = [traffic.checked, traffic.exchanged].map(|time| time.as_secs_f64());
    let [whole, check, exchange] = comm.all_reduce([whole, checked, exchanged], Reduce::Max)?;
    let [rows, bytes] = comm.all_reduce([traffic.rows_received, traffic.bytes_received], Reduce::Sum)?;
    let answer = format!(
        "{{\"seconds\": {whole:.6}, \"check\": {check:.6}, \"exchange\": {exchange:.6}, \"rows\": {rows}, \"bytes\": {bytes}}}"
    );
    Ok((result, answer))
}

/// The next line of rank 0's standard input, on all ranks; `None` at its end.
fn next_line(comm: &Communicator) -> Result<Option<String>> {
    let mut line = String::new();
    if comm.rank() == 0 {
        std::io::stdin().read_line(&mut line)?;
    }
    let line = String::from_utf8(comm.broadcast(0, line.into_bytes())?)?;
    Ok(line.strip_suffix('\n').map(str::to_owned))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, threads] = &arguments[..] else {
        return Err("usage: rolling_times FILE THREADS".into());
    };
    let (comm, threads) = (Communicator::init()?, threads.parse()?);
    let file = FileReader::try_new(File::open(format!("{file}.{}", comm.rank()))?, None)?;
    let schema = file.schema();
    let table = Table::new(schema, file.collect::<std::result::Result<_, _>>()?)?;
    let mut last = None;
    while let Some(line) = next_line(&comm)? {
        let answer = match line.strip_prefix("write ") {
            None => {
                let (result, answer) = measure(&table, &comm, &line, threads)?;
                last = Some(result);
                answer
            }
            Some(path) => {
                let result = last.as_ref().ok_or("nothing to write")?;
                let path = format!("{path}.{}", comm.rank());
                let mut writer = FileWriter::try_new(File::create(path)?, &result.schema())?;
                writer.write(result)?;
                writer.finish()?;
                comm.barrier()?;
                "{}".to_owned()
            }
        };
        if comm.rank() == 0 {
            println!("{answer}");
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}
