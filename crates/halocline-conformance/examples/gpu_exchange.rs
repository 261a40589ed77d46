//! Scheduled exchanges of two ranks, on one GPU or two: checked cell by cell, then timed, with waits of kernels and of streams, and
//! beside interior work. `gpu/one` and `gpu/two` carry it to a machine with GPUs. (`gpu_rows` stands beside NCCL.)
//!
//! Without arguments the ranks are threads of this process; with `ranks`, they are whatever has started it (`mpirun`).

use halocline::{BindOptions, Communicator, Cut, HaloExchange, Stream, TestOptions};
use halocline_conformance::device_fixtures::DeviceFixture;
use halocline_conformance::gpus::meter::{Meter, Method};
use halocline_conformance::gpus::rows::cube;
use halocline_conformance::gpus::{Gpu, skipped};
use halocline_conformance::{Outcome, Trouble};
use std::process::ExitCode;

/// Cells of an axis a rank, width of the halo, fields.
type Size = (usize, usize, u64);
const SIZES: [Size; 4] = [(128, 1, 1), (128, 1, 8), (128, 3, 8), (256, 3, 8)];

fn main() -> ExitCode {
    if let Err(why) = Gpu::new(0) {
        return skipped("scheduled exchanges on GPUs", &why);
    }
    let ended = match std::env::args().any(|argument| argument == "ranks") {
        true => Communicator::init().map_err(Trouble::from).and_then(|comm| all(&comm)),
        false => std::thread::scope(|scope| {
            let rank = |comm| scope.spawn(move || all(&comm));
            let ranks: Vec<_> = Communicator::threads(2).into_iter().map(rank).collect();
            let joined = ranks.into_iter().map(|rank| rank.join());
            joined
                .collect::<Vec<_>>()
                .into_iter()
                .try_for_each(|rank| rank.unwrap_or_else(|_| Err(Trouble::new("a rank has panicked"))))
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("FAILED: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn all(comm: &Communicator) -> Outcome {
    let meter = Meter::new(comm)?;
    let say = |line: String| {
        if comm.rank() == 0 {
            println!("{line}");
        }
    };
    let empty = meter.steady(&Method::other(|stream| Ok(meter.gpu.empty(stream)?)))?;
    say(format!(
        "\n{} ranks by {}, {} GPUs here, empty kernel {empty:.2} us; host: us of \
         the host to give one behind a kernel of 1 ms, first (later)",
        comm.size(),
        comm.transport(),
        meter.gpus()
    ));
    say(format!("{:<56} {:>9} {:>7}  host", "case", "us", "empties"));
    for (cells, width, fields) in SIZES {
        let fixture = fixture(&meter, (cells, width, fields))?;
        let modes = [(false, false), (true, false), (false, true), (true, true)];
        for (number, (inline, stream_waits)) in (0..).zip(modes) {
            // On one GPU, too, where ranks that share it would have streams wait: few blocks of two ranks fit beside each other.
            // There both ranks have one SM budget, and a rank must not wait for a launch of the other, which waits for its own.
            let (alone, cut) = (true, Some(Cut::Chain));
            let options = BindOptions::default()
                .inline(inline)
                .stream_waits(stream_waits)
                .for_tests(TestOptions { alone, cut, ..TestOptions::default() });
            let halo = bind(&meter, &fixture, &options)?;
            if number == 0 && (width, fields) == (1, 1) {
                say(halo.explain());
            }
            let method = Method::exchange(halo);
            meter.check(&fixture, &method, number)?;
            let (steady, [first, later]) = (meter.steady(&method)?, meter.host(&method)?);
            let how = [", inline", ""][usize::from(!inline)];
            let waits = [", waits of streams", ""][usize::from(!stream_waits)];
            let name = format!("{cells}^3, halo {width}, {fields} fields{how}{waits}");
            let empties = steady / empty;
            say(format!("{name:<56} {steady:>9.1} {empties:>7.1}  {first:.1} ({later:.1})"));
        }
    }
    SIZES.into_iter().try_for_each(|size| overlap(&meter, size, say))
}

fn fixture(meter: &Meter<'_>, (cells, width, fields): Size) -> Result<DeviceFixture, Trouble> {
    cube(meter.comm, meter.gpu.device(), (cells, width), fields)
}

fn bind(meter: &Meter<'_>, fixture: &DeviceFixture, options: &BindOptions) -> Result<HaloExchange, Trouble> {
    let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
    Ok(fixture.bind(meter.comm, &[&fields[..]], options)?)
}

/// An exchange beside interior kernels of many short blocks, one bound by arithmetic and one by memory, of about 2.5 times its time.
fn overlap(meter: &Meter<'_>, size: Size, say: impl Fn(String)) -> Outcome {
    let Meter { comm, gpu, .. } = meter;
    let fixture = fixture(meter, size)?;
    let exchange = meter.steady(&Method::exchange(bind(meter, &fixture, &BindOptions::default())?))?;
    let wanted = exchange * 2.5;
    let bytes = 1 << 30;
    let (x, y) = (gpu.device().allocate(bytes)?, gpu.device().allocate(bytes)?);
    // All ranks find the same times, and so take the same.
    let whole = meter.steady(&Method::other(|stream| Ok(gpu.triad(stream, &x, &y, bytes)?)))?;
    let part = ((wanted / whole * bytes as f64) as usize & !0xffff).min(bytes);
    let hundred = meter.steady(&Method::other(|stream| Ok(gpu.compute(stream, 100)?)))?;
    let waves = (wanted / hundred * 100.0).ceil() as u32;
    for what in ["nothing", "arithmetic", "memory"] {
        let interior = |stream: &Stream| {
            Ok(match what {
                "nothing" => gpu.empty(stream),
                "arithmetic" => gpu.compute(stream, waves),
                _ => gpu.triad(stream, &x, &y, part),
            }?)
        };
        let alone = meter.steady(&Method::other(interior))?;
        let halo = bind(meter, &fixture, &BindOptions::default())?;
        let both = meter.steady(&Method::exchange(halo).beside(interior))?;
        let (cells, width, fields) = size;
        say(format!(
            "overlap, {cells}^3, halo {width}, {fields} fields: exchange {exchange:.1} us, interior of {what} {alone:.1}, step {both:.1}: {:.2} of the \
             interior",
            both / alone
        ));
    }
    Ok(comm.barrier()?)
}
