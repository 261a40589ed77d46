//! Exchanges of several objects in turn, each with a field of its own, on one stream: the time of one exchange by the number of objects.

use super::cases::cube;
use crate::device_fixtures::DeviceFixture;
use crate::gpus::meter::{Meter, Method};
use crate::{Outcome, Trouble};
use halocline::BindOptions;

/// Cells along each axis of a rank's cube, and the width of the halo.
const CUBE: (usize, usize) = (128, 1);
const OBJECTS: [usize; 4] = [1, 4, 16, 64];

/// Prints a table on rank 0. Collective.
pub(super) fn run(meter: &Meter<'_>) -> Outcome {
    let Meter { comm, gpu, .. } = *meter;
    let say = |line: String| {
        if comm.rank() == 0 {
            println!("{line}");
        }
    };
    say(format!("us an exchange of 128^3 cells, halo 1, {} ranks, objects in turn", comm.size()));
    say("objects   inline     host  overlapped     host  launches".to_owned());
    let most = OBJECTS.into_iter().max().unwrap_or(1);
    let fixtures =
        (0..most).map(|_| cube(comm, gpu.device(), CUBE, 1)).collect::<Result<Vec<_>, Trouble>>()?;
    for objects in OBJECTS {
        let inline = times(meter, &fixtures[..objects], true)?;
        let overlapped = times(meter, &fixtures[..objects], false)?;
        say(format!(
            "{objects:7} {:8.2} {:8.2} {:11.2} {:8.2}  {}, {}",
            inline.device,
            inline.host,
            overlapped.device,
            overlapped.host,
            inline.launches,
            overlapped.launches
        ));
    }
    Ok(())
}

struct Times {
    /// Microseconds of an exchange: until it is over, and of the host.
    device: f64,
    host: f64,
    /// How many of the objects exchange with one launch.
    launches: String,
}

fn times(meter: &Meter<'_>, fixtures: &[DeviceFixture], inline: bool) -> Result<Times, Trouble> {
    let options = BindOptions::default().inline(inline);
    let halos = fixtures.iter().map(|fixture| fixture.bind(meter.comm, &[&[0]], &options));
    let halos = halos.collect::<Result<Vec<_>, halocline::Error>>()?;
    let single = halos.iter().filter(|halo| halo.explain().contains("in one launch")).count();
    let launches = format!("{single} of {} in one launch", halos.len());
    let method = Method::in_turn(halos);
    Ok(Times { device: meter.steady(&method)?, host: meter.host(&method)?[1], launches })
}
