//! Reduces beside the exchanges of the same fields over the same links, in turn, in one run.

use super::cases::CASES;
use crate::device_fixtures::DeviceFixture;
use crate::gpus::meter::{Meter, Method};
use crate::{Outcome, Trouble};
use halocline::{BindOptions, Error, HaloExchange, Pending, ReduceOp, Stream};

/// What a reduce may take, in exchanges.
const BAR: f64 = 1.3;

/// Prints a table on rank 0. Collective.
pub(super) fn run(meter: &Meter<'_>, only: Option<&str>) -> Outcome {
    let Meter { comm, gpu, .. } = *meter;
    let say = |line: String| {
        if comm.rank() == 0 {
            println!("{line}");
        }
    };
    say(format!("us an exchange and a reduce by sum of 8-byte elements, {} ranks", comm.size()));
    say(format!(
        "{:36} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "", "inline", "reduce", "ratio", "default", "reduce", "ratio"
    ));
    for case in CASES.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
        let fixture = case.fixture(comm, gpu.device())?;
        let [inline, default] = [true, false].map(|inline| times(meter, &fixture, inline));
        let (inline, default) = (inline?, default?);
        let line = [inline, default].map(|Times { exchange, reduce }| {
            format!("{exchange:9.2} {reduce:9.2} {:6.2}", reduce / exchange)
        });
        let is_slow = inline.reduce > BAR * inline.exchange;
        say(format!("{:36} {} {}{}", case.name, line[0], line[1], if is_slow { "  above 1.3" } else { "" }));
    }
    Ok(comm.barrier()?)
}

/// Microseconds, the lower of two measurements in turn.
#[derive(Clone, Copy)]
struct Times {
    exchange: f64,
    reduce: f64,
}

fn times(meter: &Meter<'_>, fixture: &DeviceFixture, inline: bool) -> Result<Times, Trouble> {
    let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
    let halo = fixture.bind(meter.comm, &[&fields[..]], &BindOptions::default().inline(inline))?;
    let exchange = Method::other(|stream| ahead(&halo, stream, || halo.schedule_exchange(&[stream])));
    let reduce =
        Method::other(|stream| ahead(&halo, stream, || halo.schedule_reduce(ReduceOp::Sum, &[stream])));
    let mut times = Times { exchange: f64::MAX, reduce: f64::MAX };
    for _ in 0..2 {
        times.exchange = times.exchange.min(meter.steady(&exchange)?);
        times.reduce = times.reduce.min(meter.steady(&reduce)?);
    }
    Ok(times)
}

/// Schedules and orders the stream after that. The host waits only if as many as may be are in flight.
fn ahead(halo: &HaloExchange, stream: &Stream, begin: impl Fn() -> Result<Pending, Error>) -> Outcome {
    let pending = match begin() {
        Err(Error::TooManyInFlight { .. }) => {
            halo.wait()?;
            begin()?
        }
        begun => begun?,
    };
    Ok(pending.schedule_wait(stream)?)
}
