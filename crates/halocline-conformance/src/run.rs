//! Runs cases on the ranks of a communicator.

use crate::watchdog::{LIMIT, Watchdog};
use crate::{Case, Outcome, Trouble};
use halocline::{Communicator, Reduce};
use std::time::{Duration, Instant};

/// [`run_cases`] of all cases that any machine can show.
pub fn run_all(comm: &Communicator, filter: &str) -> Outcome {
    run_cases(comm, crate::cases(), filter, LIMIT)
}

/// Runs the cases whose name contains `filter`, each on a duplicate of the communicator. Collective.
/// Fails if there is none. Stops at the first failure, on every rank; what takes longer than `limit` takes the process
/// down. With `HALOCLINE_TIMES` set, rank 0 says how long each case took.
pub fn run_cases(comm: &Communicator, cases: &[Case], filter: &str, limit: Duration) -> Outcome {
    let mut wanted = cases.iter().filter(|case| case.name.contains(filter)).peekable();
    crate::ensure!(wanted.peek().is_some(), "no case has {filter:?} in its name");
    let watchdog = Watchdog::new(limit);
    let place = format!("rank {} of {} ({})", comm.rank(), comm.size(), comm.transport());
    let say_times = comm.rank() == 0 && std::env::var_os("HALOCLINE_TIMES").is_some();
    for case in wanted {
        let start = Instant::now();
        watchdog.begin(format!("{place} in {}", case.name));
        run(comm, case).map_err(|trouble| Trouble::new(format!("{place} in {}: {trouble}", case.name)))?;
        if say_times {
            println!("{:>7} us  {place} {}", start.elapsed().as_micros(), case.name);
        }
    }
    Ok(())
}

fn run(comm: &Communicator, case: &Case) -> Outcome {
    (case.run)(&comm.duplicate()?)?;
    // No rank goes on before all are through, and all have begun as many operations.
    let through = comm.all_reduce(&[1], Reduce::Sum)?;
    crate::ensure!(through == [comm.size() as u64], "{through:?} ranks are through");
    Ok(())
}
