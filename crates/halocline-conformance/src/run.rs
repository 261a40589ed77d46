//! Runs cases on the ranks of a communicator.

use crate::device_fixtures::Rig;
use crate::stage::Stage;
use crate::watchdog::{LIMIT, Watchdog};
use crate::{Case, Outcome, Trouble};
use halocline::{Communicator, Device, Reduce};
use halocline_device::Variable;
use std::time::{Duration, Instant};

/// Runs all cases that need no special hardware, by [`run_cases`].
pub fn run_all(comm: &Communicator, filter: &str) -> Outcome {
    run_cases(comm, crate::cases(), filter, LIMIT)
}

/// Runs the cases of fields in memory of a rig's devices whose names contain `filter`. Collective. Unlike [`run_cases`], accepts a
/// filter without cases.
pub fn run_fields_on_devices<R: Rig>(comm: &Communicator, filter: &str, limit: Duration) -> Outcome {
    let rig = R::get()?;
    let device = &rig.devices()[comm.rank() % rig.devices().len()];
    run_on(comm, Some(device), &crate::cases_of_fields(), filter, limit)?;
    rig.check()
}

/// Runs the case named `filter`, or else all whose names contain it, each on a duplicate of the communicator. Collective.
/// Fails if there is none. Stops at the first failure on every rank. Aborts the process if a case exceeds `limit`. With
/// `HALOCLINE_TIMES=on`, rank 0 prints the time of each case.
pub fn run_cases(comm: &Communicator, cases: &[Case], filter: &str, limit: Duration) -> Outcome {
    let is_any = cases.iter().any(|case| case.name.contains(filter));
    crate::ensure!(is_any, "no case has {filter:?} in its name");
    run_on(comm, None, cases, filter, limit)
}

/// Whether `HALOCLINE_TIMES` asks for times.
pub fn says_times() -> bool {
    Variable::read("HALOCLINE_TIMES").is_some_and(|variable| variable.switch().expect("a switch"))
}

fn run_on(
    comm: &Communicator,
    device: Option<&'static Device>,
    cases: &[Case],
    filter: &str,
    limit: Duration,
) -> Outcome {
    let watchdog = Watchdog::new(limit);
    let at = if device.is_some() { ", device fields" } else { "" };
    let place = format!("rank {} of {} ({}{at})", comm.rank(), comm.size(), comm.transport());
    let say_times = comm.rank() == 0 && says_times();
    let is_named = cases.iter().any(|case| case.name == filter);
    let is_wanted = |case: &&Case| if is_named { case.name == filter } else { case.name.contains(filter) };
    for case in cases.iter().filter(is_wanted) {
        let start = Instant::now();
        watchdog.begin(format!("{place} in {}", case.name));
        run(comm, device, case)
            .map_err(|trouble| Trouble::new(format!("{place} in {}: {trouble}", case.name)))?;
        if say_times {
            println!("{:>7} us  {place} {}", start.elapsed().as_micros(), case.name);
        }
    }
    Ok(())
}

fn run(comm: &Communicator, device: Option<&'static Device>, case: &Case) -> Outcome {
    let own = comm.duplicate()?;
    (case.run)(&device.map_or(Stage::on_host(&own), |device| Stage::on_device(&own, device)))?;
    // No rank continues before all have finished the case, after the same number of operations.
    let through = comm.all_reduce(&[1], Reduce::Sum)?;
    crate::ensure!(through == [comm.size() as u64], "only {through:?} ranks have finished the case");
    Ok(())
}
