//! The life of a bound object: its epochs, their outcome, its failure, the tasks that wait for it.
//!
//! The host engine ([`crate::bound`]) and the device engine ([`crate::stream`]) of an object share one [`Lifecycle`]. Each engine
//! completes its part of an exchange; the exchange is over once both parts are. A failure stops both engines at once and names the
//! first exchange that is not over.

mod completed;
mod engine;
mod lateness;
mod tasks;

pub(crate) use completed::Completed;
pub(crate) use engine::{Engine, EnginePart};
pub(crate) use lateness::{Lateness, Warning};

use crate::error::{Cause, Error, Failure};
use crate::trace::Name;
use halocline_comm::{CommError, Communicator, Endpoint, Patience, PeerState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tasks::Tasks;

/// Which engines carry the exchanges of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Engines {
    pub(crate) host: bool,
    pub(crate) device: bool,
}

impl Engines {
    pub(crate) const HOST: Self = Self { host: true, device: false };
}

/// The state that both engines and all handles of an object share.
pub(crate) struct Lifecycle {
    pub(crate) comm: Communicator,
    pub(crate) name: Name,
    pub(crate) patience: Patience,
    /// The last exchange begun.
    epoch: AtomicU64,
    /// The host engine's part.
    pub(crate) host: EnginePart,
    /// The device engine's part.
    pub(crate) device: EnginePart,
    failure: OnceLock<Arc<Failure>>,
    engines: [OnceLock<Weak<dyn Engine>>; 2],
    tasks: Tasks,
}

impl Lifecycle {
    pub(crate) fn new(comm: Communicator, name: Name, patience: Patience, engines: Engines) -> Self {
        Self {
            comm,
            name,
            patience,
            epoch: AtomicU64::new(0),
            host: EnginePart::new(engines.host),
            device: EnginePart::new(engines.device),
            failure: OnceLock::new(),
            engines: Default::default(),
            tasks: Tasks::default(),
        }
    }

    /// From now on a failure releases the waits of this engine. At most two engines, each attached once.
    pub(crate) fn attach(&self, engine: Weak<dyn Engine>) {
        let attached = self.engines.iter().try_fold(engine, |engine, slot| slot.set(engine).err().ok_or(()));
        debug_assert!(attached.is_err(), "an object has two engines");
    }

    /// The last exchange begun.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        // Sequentially consistent: the device engine sets a flag and then looks for a new exchange.
        self.epoch.load(Ordering::SeqCst)
    }

    /// Exchange `epoch` is in flight from now on.
    #[inline]
    pub(crate) fn begin(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    /// The outcome of one engine's part of exchange `epoch`, once there is one.
    #[inline]
    pub(crate) fn outcome(&self, part: &Completed, epoch: u64) -> Option<Result<(), Error>> {
        if part.last() >= epoch {
            return Some(Ok(()));
        }
        let error = self.check_failure().err()?;
        // The exchange may have completed since the first look. After the failure nothing completes: this look is final.
        Some(if part.last() >= epoch { Ok(()) } else { Err(error) })
    }

    #[inline]
    pub(crate) fn failure(&self) -> Option<&Arc<Failure>> {
        self.failure.get()
    }

    /// The error of a failed object.
    #[inline]
    pub(crate) fn check_failure(&self) -> Result<(), Error> {
        self.failure().map_or(Ok(()), |failure| Err(Error::Failed(Arc::clone(failure))))
    }

    /// Fails the object, unless it has failed. `failure` gets the first exchange that is not over.
    #[cold]
    pub(crate) fn fail(&self, failure: impl FnOnce(u64) -> Failure) {
        if self.failure().is_some() {
            return;
        }
        let engines = || self.engines.iter().filter_map(OnceLock::get).filter_map(Weak::upgrade);
        engines().for_each(|engine| engine.settle());
        // Of two threads, the first to stop the host's part fails the object.
        let Ok(last) = self.host.completed.stop() else { return };
        let last = self.device.completed.stop().map_or(last, |last_of_device| last.min(last_of_device));
        let failure = self.failure.get_or_init(|| Arc::new(failure(last + 1)));
        engines().for_each(|engine| engine.release_waits(failure));
        let link = self.comm.link();
        link.own_bell().changed(link.host());
        // The progress thread wakes tasks and repeats the device engine's poison until no stream waits.
        link.own_bell().demand(link.host());
    }

    /// The cause to report: a rank that drops its end because another rank has died is not the culprit.
    pub(crate) fn root_cause(&self, cause: Cause, culprit: usize) -> (Cause, usize) {
        match (cause, self.dead_rank()) {
            (Cause::Dropped, Some(rank)) => (Cause::Died, rank),
            _ => (cause, culprit),
        }
    }

    /// A rank that has died, if there is one.
    pub(crate) fn dead_rank(&self) -> Option<usize> {
        let link = self.comm.link();
        let is_dead = |rank: &usize| link.state(*rank) == PeerState::Dead;
        if link.departures() == 0 { None } else { (0..link.size()).find(is_dead) }
    }

    /// Why a peer will never answer again, if so. A peer that has left may still finish what it dropped in flight.
    pub(crate) fn departed(&self, peer: usize) -> Option<Cause> {
        match self.comm.link().state(peer) {
            PeerState::Present | PeerState::Left => None,
            PeerState::Ended => Some(Cause::Dropped),
            PeerState::Dead => Some(Cause::Died),
        }
    }

    /// The error of a wait that the host program has interrupted; the exchange goes on.
    pub(crate) fn interrupted(&self, epoch: u64) -> Error {
        CommError::Interrupted { waiting: self.comm.rank(), what: format!("exchange {epoch}") }.into()
    }
}
