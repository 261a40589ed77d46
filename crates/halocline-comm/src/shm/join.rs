//! How a process joins its job.

use super::{Job, Shared, ShmTransport, lifeline};
use crate::error::CommError;
use crate::host::Host;
use crate::transport::Transport;
use crate::wait::WARN_AFTER;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a rank waits for the others to join.
const JOIN_WITHIN: Duration = Duration::from_secs(60);

/// The transport of this process in its job, `None` if it was not started as a rank of one. Waits
/// until all ranks have joined.
pub(crate) fn join(host: Arc<dyn Host>) -> Result<Option<Arc<dyn Transport>>, CommError> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    if JOINED.load(Ordering::Acquire) {
        return Err(CommError::JoinedTwice);
    }
    let Some(job) = Job::from_env()? else { return Ok(None) };
    lifeline::die_with_launcher()?;
    if JOINED.swap(true, Ordering::AcqRel) {
        return Err(CommError::JoinedTwice);
    }
    let names = (0..job.size).collect();
    Ok(Some(Arc::new(ShmTransport::join(job, names, Arc::default(), host)?)))
}

impl Shared {
    /// Publishes that this rank can be reached, and waits for all others.
    pub(super) fn wait_for_all(&self) -> Result<(), CommError> {
        if let Some(slot) = self.control.slot(self.rank) {
            slot.join(std::process::id());
        }
        self.ring_all();
        let (start, mut warn_at) = (self.host.now(), WARN_AFTER);
        loop {
            let missing = || self.control.slots().position(|slot| slot.pid().is_none());
            let Some(rank) = missing() else { return Ok(()) };
            if let Some(rank) = self.control.absent() {
                return Err(CommError::NeverJoined { rank: self.name_of(rank) });
            }
            let waited = self.host.now().saturating_sub(start);
            if waited >= JOIN_WITHIN {
                return Err(CommError::NotJoined { rank: self.name_of(rank), after: waited });
            }
            if waited >= warn_at {
                let (own, late) = (self.name_of(self.rank), self.name_of(rank));
                let text =
                    format!("rank {own} has waited {} s for rank {late} to call init", waited.as_secs());
                self.host.tell_late(&text, warn_at > WARN_AFTER);
                warn_at += WARN_AFTER;
            }
            let asks_after = self.host.asks_after().unwrap_or(JOIN_WITHIN);
            if waited >= asks_after && self.host.is_interrupted() {
                let (waiting, what) = (self.name_of(self.rank), "the ranks of its job".to_owned());
                return Err(CommError::Interrupted { waiting, what });
            }
            let left = JOIN_WITHIN.saturating_sub(waited).min(asks_after).min(warn_at - waited);
            self.own_bell()
                .sleep(&*self.host, Some(left), || missing().is_none() || self.control.absent().is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::JoinedJob;
    use super::*;
    use crate::sync::AtomicU32;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    /// A host on which a sleep only moves the clock.
    #[derive(Default)]
    struct Clock {
        now: AtomicU64,
        warnings: Mutex<Vec<(String, bool)>>,
    }

    impl Host for Clock {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.now.load(Ordering::Relaxed))
        }

        fn park(&self, _word: &AtomicU32, _expected: u32, timeout: Option<Duration>) {
            let slept = timeout.map_or(0, |timeout| timeout.as_nanos() as u64);
            self.now.fetch_add(slept, Ordering::Relaxed);
        }

        fn wake(&self, _word: &AtomicU32) {}

        fn tell_late(&self, text: &str, again: bool) {
            self.warnings.lock().unwrap().push((text.to_owned(), again));
        }
    }

    #[test]
    fn a_rank_that_does_not_join_is_named_after_30_s_and_fails_the_others_after_60_s() {
        let job = Job::create(2).unwrap();
        let control = job.control().try_clone_to_owned().unwrap();
        let joined = JoinedJob { rank: 0, size: 2, token: *job.token(), control };
        let clock = Arc::new(Clock::default());
        let host = Arc::clone(&clock) as Arc<dyn Host>;
        let failed = ShmTransport::join(joined, vec![5, 7], Arc::default(), host).err();
        assert!(matches!(failed, Some(CommError::NotJoined { rank: 7, after: JOIN_WITHIN })), "{failed:?}");
        let warnings = clock.warnings.lock().unwrap();
        assert_eq!(*warnings, [("rank 5 has waited 30 s for rank 7 to call init".to_owned(), false)]);
    }
}
