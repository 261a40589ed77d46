//! Host cost of calls, device cost of launches, and the number of streams that can wait.

use super::gpu::Rig;
use super::suite::{Rig as _, operations::line};
use super::{Graph, Result, median, micros, one_table, row, steady};
use halocline_device::{Priority, Signal, Stream, TablePart, TableSpec, ValueOp};
use std::time::{Duration, Instant};

/// Host time of one call while the GPU is busy.
fn host_cost(rig: &Rig, stream: &Stream, call: impl Fn() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..30 {
        rig.gpu(stream).delay(stream, 1_000_000)?;
        let begin = Instant::now();
        for _ in 0..10 {
            call()?;
        }
        times.push(micros(begin.elapsed()) / 10.0);
        stream.synchronise()?;
    }
    Ok(median(times))
}

pub fn host_costs(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    let [device, _] = rig.devices();
    let (user, inner) = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    let (begun, done) = (device.events().take()?, device.events().take()?);
    let words = device.allocate(4096)?;
    let zeros = device.allocate_pinned(4096)?;
    // SAFETY: nothing else uses the memory before the stream is synchronised.
    unsafe { inner.copy(words.at(0), zeros.at(0), 4096) }?;
    inner.synchronise()?;
    let fields = device.allocate(1 << 20)?;
    let ops = [line(0, 0, 4096)];
    let raises = [words.at(2048)];
    let table = one_table(device, &ops, &raises, fields.at(0), fields.at(8192))?;
    let write = |word: usize| ValueOp::Write { address: words.at(8 * word), value: 1 };
    let wait = |word: usize| ValueOp::Wait { address: words.at(8 * word), at_least: 0 };
    let mut add = |what: &str, time: f64| report.push(row(&format!("host: {what}"), time, None, None));
    add("launch of an empty kernel", host_cost(rig, &user, || rig.gpu(&user).empty(&user))?);
    // SAFETY: the memory and the tables live until the end of this function, before which the streams are synchronised.
    unsafe {
        add("launch of a copy table", host_cost(rig, &user, || user.launch(&table, 1))?);
        add("record", host_cost(rig, &user, || user.record(&begun))?);
        add("wait_event", host_cost(rig, &user, || inner.wait(&begun))?);
        add("place_of", host_cost(rig, &user, || device.place_of(fields.at(8)).map(drop))?);
        add("identity", host_cost(rig, &user, || device.identity(fields.at(8)).map(drop))?);
        for peers in [1, 2, 26] {
            let writes: Vec<ValueOp> = (0..peers).map(write).collect();
            let waits: Vec<ValueOp> = (0..peers).map(wait).collect();
            add(&format!("values, {peers} writes"), host_cost(rig, &user, || user.values(&writes))?);
            let exchange = || {
                user.record(&begun)?;
                inner.wait(&begun)?;
                inner.values(&writes)?;
                inner.values(&waits)?;
                inner.launch(&table, 1)?;
                inner.values(&waits)?;
                inner.record(&done)?;
                user.wait(&done)
            };
            add(
                &format!("the calls of a scheduled exchange with {peers} peers"),
                host_cost(rig, &user, exchange)?,
            );
            inner.synchronise()?;
        }
    }
    Ok(())
}

pub fn launches(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let fields = device.allocate(1 << 20)?;
    let word = device.allocate(64)?;
    let ops = [line(0, 0, 4096)];
    let table = one_table(device, &ops, &[], fields.at(0), fields.at(8192))?;
    let raising = one_table(device, &ops, &[word.at(0)], fields.at(0), fields.at(8192))?;
    let mut add = |what: &str, time: f64| report.push(row(what, time, None, None));
    add("empty kernel, one after the other", steady(&stream, 500, |_| rig.gpu(&stream).empty(&stream))?);
    // SAFETY: the memory and the tables live until the streams are synchronised.
    unsafe {
        add("copy table of 4 KiB, one after the other", steady(&stream, 500, |_| stream.launch(&table, 1))?);
        add("the same, raising a word of the device", steady(&stream, 500, |_| stream.launch(&raising, 1))?);
        let graph =
            Graph::capture(&stream, &[], |_| (0..20).try_for_each(|_| rig.gpu(&stream).empty(&stream)))?;
        add("empty kernel in a graph of 20", steady(&stream, 50, |_| graph.launch(&stream))? / 20.0);
        let graph = Graph::capture(&stream, &[], |_| (0..20).try_for_each(|_| stream.launch(&table, 1)))?;
        add("copy table of 4 KiB in a graph of 20", steady(&stream, 50, |_| graph.launch(&stream))? / 20.0);
        let both = [
            ValueOp::Write { address: word.at(0), value: 1 },
            ValueOp::Wait { address: word.at(0), at_least: 1 },
        ];
        add("write and wait of a word of the device", steady(&stream, 300, |_| stream.values(&both))?);
    }
    Ok(())
}

/// Streams share hardware queues, so a wait in one may block another. Measures how many streams can wait
/// until one more, which would end their waits, cannot advance (`CUDA_DEVICE_MAX_CONNECTIONS` sets the
/// number of queues; the default is 8).
pub fn waiting_streams(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    let [device, _] = rig.devices();
    let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").unwrap_or_else(|_| "8".to_owned());
    for how in ["for a word", "for an event", "in a copy table"] {
        let mut most = 0;
        for count in [1usize, 2, 4, 6, 7, 8, 12, 16, 24, 30, 31, 32, 48, 64, 96, 120] {
            let streams = || (0..count).map(|_| device.stream(Priority::Highest)).collect::<Result<Vec<_>>>();
            let (first, waiting) = (device.stream(Priority::Highest)?, streams()?);
            let last = device.stream(Priority::Highest)?;
            let (word, event) = (device.allocate_pinned(8)?, device.events().take()?);
            let wait = [ValueOp::Wait { address: word.at(0), at_least: 1 }];
            let waits = [Signal { address: word.at(0), lag: 0 }];
            let parts = [TablePart { waits: &waits, ops: &[], raises: &[], ..TablePart::default() }];
            let spec = TableSpec { parts: &parts, sources: &[], targets: &[], guard: None };
            let table = device.upload(&spec)?;
            // SAFETY: all streams are synchronised before the word goes.
            unsafe {
                if how == "for an event" {
                    first.values(&wait)?;
                    first.record(&event)?;
                }
                for stream in &waiting {
                    match how {
                        "for a word" => stream.values(&wait)?,
                        "for an event" => stream.wait(&event)?,
                        _ => stream.launch(&table, 1)?,
                    }
                    rig.gpu(stream).empty(stream)?;
                }
                rig.gpu(&last).empty(&last)?;
                last.values(&[ValueOp::Write { address: word.at(0), value: 1 }])?;
                let begin = Instant::now();
                while word.load(0) == 0 && begin.elapsed() < Duration::from_millis(300) {
                    std::thread::yield_now();
                }
                let got_on = word.load(0) == 1;
                word.store(0, 1);
                waiting.iter().chain([&first, &last]).try_for_each(Stream::synchronise)?;
                if !got_on {
                    break;
                }
            }
            most = count;
        }
        report
            .push(format!("of {connections} queues: beside {most} streams that wait {how} one more gets on"));
    }
    Ok(())
}
