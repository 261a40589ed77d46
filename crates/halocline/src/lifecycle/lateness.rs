//! For how long an engine has waited for an exchange: its deadline, and a warning every 30 s.

use crate::lock::lock;
use halocline_comm::WARN_AFTER;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The clock of the exchange that an engine waits for.
#[derive(Default)]
pub(crate) struct Lateness(Mutex<Clock>);

#[derive(Default)]
struct Clock {
    epoch: u64,
    /// When the exchange was begun, or first found unfinished. Deadlines count from here.
    since: Duration,
    /// When a caller first waited for it. Warnings count from here.
    awaited_since: Option<Duration>,
    warnings: u32,
}

/// A warning about a wait.
pub(crate) struct Warning {
    /// How long the caller has waited.
    pub(crate) after: Duration,
    /// An earlier warning was about the same wait.
    pub(crate) again: bool,
}

impl Lateness {
    /// Starts the clock of exchange `epoch`, unless it runs.
    pub(crate) fn start(&self, epoch: u64, now: Duration) {
        drop(self.clock(epoch, now));
    }

    /// How long the clock of exchange `epoch` has run; zero if it does not.
    pub(crate) fn elapsed(&self, epoch: u64, now: Duration) -> Duration {
        let clock = lock(&self.0);
        if clock.epoch == epoch { now.saturating_sub(clock.since) } else { Duration::ZERO }
    }

    /// The warning that is due to a caller that waits for exchange `epoch`.
    pub(crate) fn warning(&self, epoch: u64, now: Duration) -> Option<Warning> {
        let mut clock = self.clock(epoch, now);
        let after = now.saturating_sub(*clock.awaited_since.get_or_insert(now));
        if after < WARN_AFTER * (clock.warnings + 1) {
            return None;
        }
        let again = clock.warnings > 0;
        clock.warnings = (after.as_nanos() / WARN_AFTER.as_nanos()) as u32;
        Some(Warning { after, again })
    }

    /// When the deadline of exchange `epoch` passes and when its next warning is due, as far as its clock runs.
    pub(crate) fn due(&self, epoch: u64, deadline: Option<Duration>, warns: bool) -> Option<Duration> {
        let clock = lock(&self.0);
        let deadline = deadline.map(|deadline| clock.since.saturating_add(deadline));
        let warning = clock.awaited_since.filter(|_| warns);
        let warning = warning.map(|since| since + WARN_AFTER * (clock.warnings + 1));
        [deadline, warning].into_iter().flatten().min().filter(|_| clock.epoch == epoch)
    }

    fn clock(&self, epoch: u64, now: Duration) -> MutexGuard<'_, Clock> {
        let mut clock = lock(&self.0);
        if clock.epoch != epoch {
            *clock = Clock { epoch, since: now, ..Clock::default() };
        }
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_due_every_30_seconds_of_waiting() {
        let lateness = Lateness::default();
        let at = |seconds| {
            lateness
                .warning(7, Duration::from_secs(seconds))
                .map(|warning| (warning.after.as_secs(), warning.again))
        };
        lateness.start(7, Duration::from_secs(10));
        // The caller comes 90 s after the begin: that is no wait.
        assert_eq!(
            [at(100), at(129), at(130), at(131), at(159)],
            [None, None, Some((30, false)), None, None]
        );
        assert_eq!([at(160), at(161)], [Some((60, true)), None]);
        assert_eq!(lateness.due(7, None, true), Some(Duration::from_secs(190)));
        assert_eq!(lateness.due(7, Some(Duration::from_secs(5)), true), Some(Duration::from_secs(15)));
        assert_eq!(lateness.due(8, Some(Duration::from_secs(5)), true), None);
        // Of another exchange the clock starts anew.
        assert!(lateness.warning(8, Duration::from_secs(200)).is_none());
        assert_eq!(lateness.elapsed(8, Duration::from_secs(201)), Duration::from_secs(1));
        assert_eq!(lateness.elapsed(7, Duration::from_secs(201)), Duration::ZERO);
    }
}
