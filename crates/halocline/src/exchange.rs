//! The objects that users hold: a bound exchange, and one exchange in flight.

use crate::bind;
use crate::bound::Bound;
use crate::error::Error;
use crate::explain;
use crate::field::Field;
use crate::future::Exchanging;
use crate::link::{Direction, Way};
use crate::options::BindOptions;
use crate::pattern::Pattern;
use crate::set::Set;
use halocline_comm::Communicator;
use halocline_plan::Halo;
use std::fmt;
use std::sync::Arc;

/// Fields whose halos are exchanged together, bound once and exchanged many times.
///
/// In the steady state an exchange allocates nothing and, while the peers come within the spin, makes no
/// system call. Dropping it at any time is fine: what is in flight is finished behind the scenes, the
/// memory held until then.
pub struct HaloExchange {
    bound: Arc<Bound>,
    sets: Vec<Arc<Set>>,
    shared: Arc<Shared>,
}

/// The object as its users hold it, by any number of handles.
pub(crate) struct Shared(pub(crate) Arc<Bound>);

impl Drop for Shared {
    fn drop(&mut self) {
        Arc::clone(&self.0).release();
    }
}

/// How many links of this rank take which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Pushed straight into the receiver's halo, or pulled from the owned cells.
    pub direct: usize,
    /// Through a buffer of the receiver in shared memory.
    pub mailbox: usize,
    /// Through messages.
    pub message: usize,
}

impl LinkCounts {
    pub(crate) fn of(bound: &Bound) -> Self {
        let mut counts = Self::default();
        for link in &bound.links {
            match link.way {
                Way::Push | Way::Pull => counts.direct += 1,
                Way::Mailbox { .. } => counts.mailbox += 1,
                Way::Message => counts.message += 1,
            }
        }
        counts
    }
}

impl HaloExchange {
    /// Binds fields to their patterns. Collective: all ranks call it in the same order on one
    /// communicator. Blocks until all peers have come.
    ///
    /// The n-th field given for a domain of a pattern is exchanged with the n-th field of every other
    /// domain of that pattern; their bytes a cell must agree, layouts may differ. Where a rank owns
    /// several domains of a pattern, [`Field::on_domain`] says which one a field belongs to.
    pub fn bind(comm: &Communicator, fields: &[(&Pattern, &Field)]) -> Result<Self, Error> {
        Self::bind_with(comm, fields, &BindOptions::default())
    }

    /// As [`HaloExchange::bind`], with options.
    pub fn bind_with(
        comm: &Communicator,
        fields: &[(&Pattern, &Field)],
        options: &BindOptions,
    ) -> Result<Self, Error> {
        Self::bind_alternatives(comm, &[fields], options)
    }

    /// Binds several sets of fields at once, of which [`HaloExchange::exchange_set`] exchanges one: time
    /// levels that swap, for instance. They share the links and the buffers. Collective: all ranks give as
    /// many sets, in one order; what [`HaloExchange::bind`] says of fields holds for each set. A field may be
    /// in several sets, with other fields each time.
    ///
    /// Which way is fastest is measured for the first set.
    pub fn bind_alternatives(
        comm: &Communicator,
        sets: &[&[(&Pattern, &Field)]],
        options: &BindOptions,
    ) -> Result<Self, Error> {
        let (bound, sets) = bind::bind(comm, sets, options)?;
        Ok(Self { bound: Arc::clone(&bound), sets, shared: Arc::new(Shared(bound)) })
    }

    /// A handle of other sets of the same object.
    fn with(&self, sets: Vec<Arc<Set>>) -> Self {
        Self { bound: Arc::clone(&self.bound), sets, shared: Arc::clone(&self.shared) }
    }

    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    pub(crate) fn set(&self, index: usize) -> Result<&Arc<Set>, Error> {
        self.sets.get(index).ok_or(Error::NoSuchSet { set: index, sets: self.sets.len() })
    }

    /// Begins an exchange and returns once everything is started. Owned cells are read and halo cells
    /// written from now until the [`Pending`]'s wait has returned. The ranks' exchanges of an object
    /// belong together in the order in which each rank begins them.
    ///
    /// Fails with [`Error::InFlight`] while the one before is in flight, [`Error::Borrowed`] while a
    /// guard of an array is held, [`Error::Failed`] once the object has failed. The first two leave the
    /// object as it was.
    pub fn exchange(&self) -> Result<Pending, Error> {
        self.exchange_set(0)
    }

    /// As [`HaloExchange::exchange`], of one of the sets that were bound together, counted from 0. All
    /// ranks choose the same. Fails with [`Error::NoSuchSet`], too.
    pub fn exchange_set(&self, index: usize) -> Result<Pending, Error> {
        let epoch = self.bound().begin(self.set(index)?, &[])?;
        Ok(Pending { bound: Arc::clone(self.bound()), epoch })
    }

    /// A handle of one of the sets alone, counted from 0. It shares links and exchanges with this one: one
    /// exchange is in flight over both at a time, and all count together. Either may be dropped.
    pub fn alternative(&self, index: usize) -> Result<Self, Error> {
        Ok(self.with(vec![Arc::clone(self.set(index)?)]))
    }

    /// The same fields, of whose halos an exchange fills only what belongs to the narrower halo `to`, as
    /// [`Pattern::narrowed`] has it; for each set of this object. It shares links and exchanges with this one:
    /// one exchange is in flight over both at a time, all ranks begin those of both in one order, and all
    /// count together. Either may be dropped.
    ///
    /// Collective, on the communicator of the bind; all ranks have bound the same patterns. Blocks until all
    /// have come, not for an exchange in flight.
    pub fn narrowed(&self, to: &Halo) -> Result<Self, Error> {
        let sets = bind::narrowed(self.bound(), &self.sets, to)?;
        Ok(self.with(sets))
    }

    /// Number of sets that were bound together.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// As [`HaloExchange::exchange`], to be waited for by a task: begins at the call, not at the first poll,
    /// and what is refused is the outcome of the future. `exchange()?.await` is the same with the refusal at
    /// once, `exchange_set(set)?.await` for one of several sets. Cancelling the future leaves the exchange running; [`HaloExchange::pending`] gives it back.
    pub fn exchange_async(&self) -> Exchanging {
        Exchanging::new(self.exchange())
    }

    /// The exchange begun last, over or not; none before the first.
    pub fn pending(&self) -> Option<Pending> {
        let epoch = self.bound().epoch();
        (epoch > 0).then(|| Pending { bound: Arc::clone(self.bound()), epoch })
    }

    /// Waits for the exchange begun last, if there is one. Blocks.
    pub fn wait(&self) -> Result<(), Error> {
        self.bound().wait(self.bound().epoch())
    }

    /// After a failure or deadline: true once no peer can touch the fields any more; their memory is the
    /// user's again then. Never blocks.
    pub fn reclaim(&self) -> bool {
        self.bound().reclaim()
    }

    /// The ways that this rank's links take.
    pub fn links(&self) -> LinkCounts {
        LinkCounts::of(self.bound())
    }

    /// The links of this rank: peer, direction, and the way that the bytes take.
    pub fn ways(&self) -> impl Iterator<Item = (usize, Direction, Way)> {
        self.bound().links.iter().map(|link| (link.peer, link.direction, link.way))
    }

    /// A table of this rank's links: peer, way, through what, bytes, regions, and why not a better way.
    pub fn explain(&self) -> String {
        explain::explain(self.bound(), &self.sets)
    }
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HaloExchange(epoch {}, {:?})", self.bound().epoch(), self.links())
    }
}

/// One exchange in flight. Dropping or forgetting it leaves the exchange running. Tasks `.await` it.
#[must_use = "the halo is filled only after `wait`"]
pub struct Pending {
    pub(crate) bound: Arc<Bound>,
    pub(crate) epoch: u64,
}

impl Pending {
    /// Blocks until the halo is filled and owned cells may be overwritten. Calling it again does nothing.
    pub fn wait(&self) -> Result<(), Error> {
        self.bound.wait(self.epoch)
    }

    /// Whether [`Pending::wait`] would return at once. Carries the exchange on, never blocks.
    pub fn is_ready(&self) -> Result<bool, Error> {
        self.bound.is_ready(self.epoch)
    }

    /// The number of this exchange.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending(epoch {})", self.epoch)
    }
}
