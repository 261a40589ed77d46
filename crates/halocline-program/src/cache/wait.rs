//! Waits for other processes: polls that grow rarer, a time limit, an end by the caller. Notifications of files do not cross a network, so
//! that nothing here needs them.

use std::fmt;
use std::time::{Duration, Instant};

/// How a build waits.
///
/// ```
/// use halocline_program::cache::BuildOptions;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// static STOPPED: AtomicBool = AtomicBool::new(false); // a signal handler sets it
/// let options = BuildOptions::default()
///     .timeout(Duration::from_secs(600))
///     .jobs(4)
///     .interrupted(&|| STOPPED.load(Ordering::Relaxed));
/// ```
#[derive(Clone)]
pub struct BuildOptions<'a> {
    pub(super) timeout: Duration,
    pub(super) jobs: Option<usize>,
    pub(super) interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl BuildOptions<'_> {
    /// The default of [`BuildOptions::timeout`]: builds of large programs take many minutes.
    pub const TIMEOUT: Duration = Duration::from_secs(30 * 60);

    /// How long to wait for the build of another process, or for a build slot; [`BuildOptions::TIMEOUT`] by default. The caller's own
    /// build has no limit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How many builds may run on this node at the same time; by default as many as the node has cores for this process.
    #[must_use]
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs: Some(jobs.max(1)), ..self }
    }

    /// A function that is called every 250 ms at most, and ends the wait with [`super::CacheError::Interrupted`] if it returns true.
    #[must_use]
    pub fn interrupted<'b>(self, interrupted: &'b (dyn Fn() -> bool + Sync)) -> BuildOptions<'b> {
        BuildOptions { timeout: self.timeout, jobs: self.jobs, interrupted }
    }
}

impl Default for BuildOptions<'_> {
    fn default() -> Self {
        Self { timeout: Self::TIMEOUT, jobs: None, interrupted: &|| false }
    }
}

impl fmt::Debug for BuildOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildOptions").field("timeout", &self.timeout).field("jobs", &self.jobs).finish()
    }
}

/// One wait.
pub(super) struct Wait<'a> {
    options: &'a BuildOptions<'a>,
    begin: Instant,
}

/// Why a wait ended.
pub(super) enum Ended {
    /// It has taken this long.
    Late(Duration),
    Interrupted,
}

impl<'a> Wait<'a> {
    pub(super) fn begin(options: &'a BuildOptions<'a>) -> Self {
        Self { options, begin: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Sleeps until the next look: a fiftieth of the time so far, 1 to 250 ms.
    pub(super) fn pause(&self) -> Result<(), Ended> {
        let elapsed = self.elapsed();
        if (self.options.interrupted)() {
            return Err(Ended::Interrupted);
        }
        let Some(left) = self.options.timeout.checked_sub(elapsed).filter(|left| !left.is_zero()) else {
            return Err(Ended::Late(elapsed));
        };
        let pause = (elapsed / 50).clamp(Duration::from_millis(1), Duration::from_millis(250));
        std::thread::sleep(pause.min(left));
        Ok(())
    }
}
