//! The timeline of a GPU: a kernel of one thread (`stamp.cu`) in the stream stores the GPU's clock.
//!
//! The offset of that clock from the host's is measured before the first round and after the last one, as `clock.rs` does for other
//! machines. The time of a stamp is between the call that launches it and the call that waits for it.

use super::clock::{Clock, Reading};
use super::notes::Entry;
use super::record::{Recorder, now};
use halocline::device::cuda::Program;
use halocline::device::{Address, Priority, Stream};
use halocline::{DeviceArray, DeviceError, Error, Pending};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The CUDA C++ source of the kernel.
const SOURCE: &str = include_str!("stamp.cu");
/// Numbers of the trace's rows for a GPU. No Linux thread has such a number.
const FIRST_ROW: u64 = 1 << 24;
/// The most rounds of a stream that are stamped.
pub(super) const MOST: usize = 1 << 15;
/// Operations that stamps add to the streams in a round.
pub const OPERATIONS: usize = 6;

/// The moments of a round, which is an exchange and the computation beside and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The data to send are ready, and the interior may start.
    Begun,
    /// The interior is computed.
    Interior,
    /// The halo is filled.
    Filled,
    /// Later computations are ordered after the exchange.
    Waited,
    /// All cells are computed.
    Done,
}

const MOMENTS: usize = 5;

/// Queues a write of the device's clock (ns, never 0) to an address.
pub type Stamp = Box<dyn Fn(&Stream, Address) -> Result<(), DeviceError> + Send>;

/// The stamps of a rank's rounds.
pub struct Stamps {
    stamp: Stamp,
    /// Waits for exchanges only. It has a high priority, so that its stamps do not wait for the last block of the interior.
    observer: Stream,
    /// One for each moment of each round; 0 before the moment.
    stamps: DeviceArray<u64>,
    /// Number of rounds that fit in `stamps`.
    rounds: usize,
    /// Number of rounds that are complete.
    round: usize,
    /// Memory for the stamps that compare the clocks.
    now: DeviceArray<u64>,
    first: Reading,
}

/// The stamps of a round.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    number: usize,
    /// By [`Moment`]; 0 before the moment.
    pub stamps: [u64; MOMENTS],
}

impl Stamps {
    /// Stamps for this many rounds of the stream of a GPU, at most 32,768. The trace ends where a later round begins. Blocks until the
    /// kernel is compiled and clocks are compared.
    pub fn on_gpu(stream: &Stream, rounds: usize) -> Result<Self, Error> {
        let kernel = Program::compile(stream.device(), "stamp.cu", SOURCE, &[])?.kernel("stamp")?;
        // SAFETY: the kernel's argument is an address, of 8 bytes in arrays that live until their streams are done: `Stamps`
        // waits for its observer, and the owner of `Stamps` waits for the observed stream.
        let stamp = move |stream: &Stream, at: Address| unsafe { kernel.launch(stream, [1; 3], [1; 3], &at) };
        Self::with(stream, rounds, Box::new(stamp))
    }

    /// As [`Stamps::on_gpu`], with another kernel.
    pub fn with(stream: &Stream, rounds: usize, stamp: Stamp) -> Result<Self, Error> {
        let device = stream.device();
        let rounds = rounds.min(MOST);
        let stamps = DeviceArray::zeros(device, &[rounds.max(1) * MOMENTS])?;
        let now = DeviceArray::zeros(device, &[1])?;
        let observer = device.stream(Priority::Highest)?;
        let first = compare(&stamp, &observer, &now)?;
        Ok(Self { stamp, observer, stamps, rounds, round: 0, now, first })
    }

    /// Queues the stamp of a moment of this round.
    pub fn at(&self, moment: Moment, stream: &Stream) -> Result<(), Error> {
        if self.round >= self.rounds {
            return Ok(());
        }
        let offset = (self.round * MOMENTS + moment as usize) * size_of::<u64>();
        Ok((self.stamp)(stream, self.stamps.base().addr().get() as Address + offset as Address)?)
    }

    /// Queues the stamp of the end of an exchange.
    pub fn observe(&self, pending: &Pending) -> Result<(), Error> {
        pending.schedule_wait(&self.observer)?;
        self.at(Moment::Filled, &self.observer)
    }

    /// Ends the round after the last operation of the stream.
    pub fn next(&mut self, stream: &Stream) -> Result<(), Error> {
        self.at(Moment::Done, stream)?;
        self.round += 1;
        Ok(())
    }

    /// The complete rounds. Blocks until the streams are done.
    pub fn read(&self, stream: &Stream) -> Result<Vec<Round>, Error> {
        self.observer.synchronise()?;
        let stamps = self.stamps.read(stream)?;
        let rounds = stamps.as_chunks::<MOMENTS>().0.iter().take(self.round.min(self.rounds));
        Ok(rounds.enumerate().map(|(number, &stamps)| Round { number, stamps }).collect())
    }

    /// Writes the stamps into the trace. Blocks until the streams are done.
    pub fn write_trace(self, rank: usize, stream: &Stream) -> Result<(), Error> {
        let rounds = self.read(stream)?;
        let clock = self.first.until(compare(&self.stamp, &self.observer, &self.now)?);
        let gpu = stream.device().ordinal();
        let entries = entries(rank, &rounds, &clock);
        Recorder::get().with(rank, |notes| {
            if self.round > self.rounds {
                notes.left_out += (self.round - self.rounds) as u64;
                notes.ends(entries.iter().filter_map(|(_, entry)| entry.end).max().unwrap_or(0));
            }
            for (row, entry) in entries {
                notes.add_of_device(entry, || row.name(gpu));
            }
        });
        Ok(())
    }
}

/// The stamps of a stream that a program makes from any thread, until the trace is over. Those of later rounds do nothing.
pub struct DeviceTrace {
    /// `None` once the trace is over.
    stamps: Mutex<Option<Stamps>>,
    stream: Arc<Stream>,
    rank: usize,
}

/// A stamp was to be made after the end of the trace.
pub struct TraceOver;

impl DeviceTrace {
    /// The stamps of this rank's stream.
    pub fn new(stamps: Stamps, stream: Arc<Stream>, rank: usize) -> Self {
        Self { stamps: Mutex::new(Some(stamps)), stream, rank }
    }

    /// Queues the stamp of a moment; [`Moment::Done`] ends the round.
    pub fn stamp(&self, moment: Moment) -> Result<Result<(), Error>, TraceOver> {
        let mut stamps = self.lock();
        let stamps = stamps.as_mut().ok_or(TraceOver)?;
        Ok(match moment {
            Moment::Done => stamps.next(&self.stream),
            moment => stamps.at(moment, &self.stream),
        })
    }

    /// Queues the stamp of the end of an exchange.
    pub fn observe(&self, pending: &Pending) -> Result<Result<(), Error>, TraceOver> {
        Ok(self.lock().as_ref().ok_or(TraceOver)?.observe(pending))
    }

    /// Ends the record without waiting. Leaks the memory of the stamps, since the stream may still write it.
    pub fn abandon(&self) {
        std::mem::forget(self.lock().take());
    }

    /// Ends the record, and adds it to the trace of its rank. Blocks until the stream is done.
    pub fn finish(&self) -> Result<(), Error> {
        let stamps = self.lock().take();
        stamps.map_or(Ok(()), |stamps| stamps.write_trace(self.rank, &self.stream))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stamps>> {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // No memory is freed before its stamp is written, also after an error. An earlier call has reported a failed device.
        let _ = self.observer.synchronise();
    }
}

/// Compares the clock of the device with that of the host.
fn compare(stamp: &Stamp, stream: &Stream, slot: &DeviceArray<u64>) -> Result<Reading, Error> {
    Reading::of_another(|| {
        let before = now();
        stamp(stream, slot.base().addr().get() as Address)?;
        stream.synchronise()?;
        let after = now();
        let there = slot.read(stream)?.first().copied().unwrap_or(0);
        Ok((before, there, after))
    })
}

/// A row of a rank's GPU in the trace.
#[derive(Debug, Clone, Copy)]
enum Row {
    Stream,
    Exchange,
}

impl Row {
    fn number(self, rank: usize) -> u64 {
        FIRST_ROW + 2 * rank as u64 + self as u64
    }

    fn name(self, gpu: u32) -> String {
        match self {
            Self::Stream => format!("GPU {gpu}, stream"),
            Self::Exchange => format!("GPU {gpu}, exchange"),
        }
    }
}

/// The spans of a GPU in each round by the host's clock, with their rows.
fn entries(rank: usize, rounds: &[Round], clock: &Clock) -> Vec<(Row, Entry)> {
    let (_, within) = clock.behind();
    let mut entries = Vec::with_capacity(3 * rounds.len());
    for &Round { number, stamps: [begun, interior, filled, waited, done] } in rounds {
        let after = if interior == 0 { "rest" } else { "boundary" };
        for (row, name, begin, end) in [
            (Row::Stream, "interior", begun, interior),
            (Row::Exchange, "exchange (device)", begun, filled),
            (Row::Stream, after, waited, done),
        ] {
            if begin == 0 || end == 0 {
                continue;
            }
            let [begin, end] = [begin, end].map(|stamp| clock.on_timeline(stamp).max(0) as u64);
            let fields: [(&str, Value); 2] =
                [("round", number.into()), ("clock_known_within_ns", within.into())];
            let entry = Entry {
                rank,
                name: name.to_owned(),
                target: "halocline::device",
                begin,
                end: Some(end.max(begin)),
                thread: row.number(rank),
                fields: Map::from_iter(fields.map(|(name, value)| (name.to_owned(), value))),
            };
            entries.push((row, entry));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is 7 us ahead of the host's at first, and 8 us 1 ms later.
    fn clock() -> Clock {
        let reading = |there: u64, here: u64| {
            let read = || Ok::<_, Error>((here - 100, there, here + 100));
            Reading::of_another(read).unwrap()
        };
        reading(2_007_000, 2_000_000).until(reading(3_007_000, 2_999_000))
    }

    #[test]
    fn stamps_become_spans_of_the_hosts_clock_on_rows_of_their_own() {
        let rounds = [
            [2_007_000, 2_107_000, 2_057_000, 2_107_100, 2_127_000],
            // Nothing is computed beside the exchange.
            [2_507_000, 0, 2_557_000, 2_557_000, 2_607_000],
            // The last stamps have not come.
            [3_007_000, 3_107_000, 0, 0, 0],
        ];
        let round = |(number, stamps)| Round { number, stamps };
        let rounds: Vec<Round> = (0..).zip(rounds).map(round).collect();
        let entries: Vec<Entry> = entries(3, &rounds, &clock()).into_iter().map(|(_, entry)| entry).collect();
        let rows = [Row::Stream, Row::Exchange].map(|row| row.number(3));
        let found: Vec<_> = entries
            .iter()
            .map(|entry| {
                let row = rows.iter().position(|row| *row == entry.thread).unwrap();
                (row, entry.name.as_str(), entry.begin, entry.end.unwrap(), entry.fields["round"].as_u64())
            })
            .collect();
        let due = [
            (0, "interior", 2_000_000, 2_099_900, Some(0)),
            (1, "exchange (device)", 2_000_000, 2_049_950, Some(0)),
            (0, "boundary", 2_100_000, 2_119_880, Some(0)),
            (1, "exchange (device)", 2_499_500, 2_549_450, Some(1)),
            (0, "rest", 2_549_450, 2_599_400, Some(1)),
            (0, "interior", 2_999_000, 3_098_900, Some(2)),
        ];
        assert_eq!(found, due);
        assert!(entries.iter().all(|entry| entry.rank == 3 && entry.fields["clock_known_within_ns"] == 100));
        assert_eq!(Row::Exchange.name(1), "GPU 1, exchange");
        assert_ne!(Row::Exchange.number(0), Row::Stream.number(1));
    }
}
