//! Runs cases on the ranks of a communicator.

use crate::stage::Stage;
use crate::watchdog::{LIMIT, Watchdog};
use crate::yard::Rig;
use crate::{Case, Outcome, Trouble};
use halocline::{Communicator, Device, Reduce};
use halocline_device::Variable;
use std::time::{Duration, Instant};

/// [`run_cases`] of all cases that any machine can show.
pub fn run_all(comm: &Communicator, filter: &str) -> Outcome {
    run_cases(comm, crate::cases(), filter, LIMIT)
}

/// Runs the cases of exchanges whose fields may lie anywhere, in memory of a rig's devices, those whose name contains `filter`.
/// Collective. As [`run_cases`], but there may be none.
pub fn run_fields_on_devices<R: Rig>(comm: &Communicator, filter: &str, limit: Duration) -> Outcome {
    let rig = R::get()?;
    let device = &rig.devices()[comm.rank() % rig.devices().len()];
    run_on(comm, Some(device), &crate::cases_of_fields(), filter, limit)?;
    rig.check()
}

/// Runs the case that is named `filter`, or else those whose name contains it, each on a duplicate of the communicator. Collective.
/// Fails if there is none. Stops at the first failure, on every rank; what takes longer than `limit` takes the process
/// down. With `HALOCLINE_TIMES=on`, rank 0 says how long each case took.
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
    // No rank goes on before all are through, and all have begun as many operations.
    let through = comm.all_reduce(&[1], Reduce::Sum)?;
    crate::ensure!(through == [comm.size() as u64], "{through:?} ranks are through");
    Ok(())
}
