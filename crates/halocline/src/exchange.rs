//! The objects that users hold: a bound exchange, and one exchange in flight.

use crate::agree::agree;
use crate::bind;
use crate::bound::Bound;
use crate::error::Error;
use crate::explain;
use crate::field::Field;
use crate::future::Exchanging;
use crate::link::{Direction, Link, LinkPath};
use crate::options::BindOptions;
use crate::pattern::Pattern;
use crate::set::Set;
use crate::stream::Scheduled;
use crate::trace;
use halocline_comm::Communicator;
use halocline_comm::Endpoint;
use halocline_device::Stream;
use halocline_plan::Halo;
use std::fmt;
use std::sync::Arc;
use tracing::span::EnteredSpan;

/// Fields whose halos are exchanged together, bound once and exchanged many times.
///
/// In the steady state an exchange allocates nothing and, while the peers come within the spin, makes no
/// system call. Dropping it at any time is fine: what is in flight is finished behind the scenes, the
/// memory held until then.
///
/// # Fields in memory of devices
///
/// Exchanges of them take their place in the order of streams, and the host never waits for one
/// ([`HaloExchange::schedule_exchange`], [`Pending::schedule_wait`]). Host and device fields may be bound together:
/// the n-th host field of a domain is exchanged with the n-th host field of the others, the n-th device field with
/// the n-th device field. In the scheduled calls host fields begin at once, and what waits blocks for them.
///
/// Ranks of one process use different streams, and all ranks begin exchanges of their objects in one order
/// ([`HaloExchange::schedule_exchange`]).
pub struct HaloExchange {
    bound: Arc<Bound>,
    sets: Vec<Arc<Set>>,
    /// The device fields, if any rank has some.
    pub(crate) scheduled: Option<Arc<Scheduled>>,
    shared: Arc<Shared>,
}

/// The object as its users hold it, by any number of handles: its host fields, and its device fields.
pub(crate) struct Shared(pub(crate) Arc<Bound>, pub(crate) Option<Arc<Scheduled>>);

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(scheduled) = &self.1 {
            Arc::clone(scheduled).release();
        }
        Arc::clone(&self.0).release();
    }
}

/// How many links of this rank take which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Pushed straight into the receiver's halo, or pulled from the owned cells; small ones between devices as words with flags.
    pub direct: usize,
    /// Through a buffer of the receiver, in memory of its device or in shared memory.
    pub mailbox: usize,
    /// Through messages.
    pub message: usize,
}

impl LinkCounts {
    pub(crate) fn of<'a>(links: impl Iterator<Item = &'a Link>) -> Self {
        let mut counts = Self::default();
        for link in links {
            match link.path {
                LinkPath::Push | LinkPath::Pull | LinkPath::Flags => counts.direct += 1,
                LinkPath::DeviceMailbox | LinkPath::Mailbox { .. } => counts.mailbox += 1,
                LinkPath::Message => counts.message += 1,
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
    ///
    /// A field whose extents are not the domain's along its first dimensions, or those that its
    /// [`Layout`](crate::Layout) names, is refused, unless that gives an origin or says that it is padded.
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
        let ((bound, sets), scheduled) = bind::bind(comm, sets, options)?;
        let shared = Arc::new(Shared(Arc::clone(&bound), scheduled.clone()));
        Ok(Self { bound, sets, scheduled, shared })
    }

    /// A handle of other sets of the same object.
    fn with(&self, sets: Vec<Arc<Set>>) -> Self {
        let (bound, shared) = (Arc::clone(&self.bound), Arc::clone(&self.shared));
        Self { bound, sets, scheduled: self.scheduled.clone(), shared }
    }

    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// Whether any rank has bound device fields: then messages by hand take a stream ([`HaloExchange::pack_on`]).
    pub fn is_of_devices(&self) -> bool {
        self.scheduled.is_some()
    }

    pub(crate) fn set(&self, index: usize) -> Result<&Arc<Set>, Error> {
        self.sets.get(index).ok_or(Error::NoSuchSet { set: index, sets: self.sets.len() })
    }

    /// Begins an exchange and returns once everything is started. Owned cells are read and halo cells
    /// written from now until the [`Pending`]'s wait has returned. Until then the guards of an [`crate::Array`] are refused, however soon
    /// the exchange is over; its owned cells can be read by [`Pending::owned`]. The ranks' exchanges of an object
    /// belong together in the order in which each rank begins them.
    ///
    /// Fails with [`Error::InFlight`] while the one before is in flight, [`Error::Borrowed`] while a
    /// guard of an array is held or a thread copies from or to one on a device, [`Error::Failed`] once the object has failed. The first two leave the
    /// object as it was.
    pub fn exchange(&self) -> Result<Pending, Error> {
        self.exchange_set(0)
    }

    /// In a trace: the call that gives the exchange to devices, which do it later.
    fn begins(&self) -> EnteredSpan {
        trace::exchange(&self.bound.life.comm, &self.bound.life.name, self.epoch() + 1)
    }

    /// As [`HaloExchange::exchange`], of one of the sets that were bound together, counted from 0. All
    /// ranks choose the same. Fails with [`Error::NoSuchSet`], too.
    pub fn exchange_set(&self, index: usize) -> Result<Pending, Error> {
        let set = self.set(index)?;
        let epoch = match &self.scheduled {
            None => self.bound().begin(set, &[])?,
            Some(scheduled) => {
                let _span = self.begins();
                scheduled.begin_bound(set)?
            }
        };
        Ok(self.pending_of(epoch))
    }

    /// As [`HaloExchange::exchange`]; device fields are read and written only after all work that these streams were
    /// given before.
    pub fn exchange_on(&self, streams: &[&Stream]) -> Result<Pending, Error> {
        self.exchange_set_on(0, streams)
    }

    /// As [`HaloExchange::exchange_on`], of one of the sets that were bound together.
    pub fn exchange_set_on(&self, index: usize, streams: &[&Stream]) -> Result<Pending, Error> {
        let set = self.set(index)?;
        let epoch = match &self.scheduled {
            None => self.bound().begin(set, &[])?,
            Some(scheduled) => {
                let _span = self.begins();
                scheduled.begin(set, streams.iter().copied())?
            }
        };
        Ok(self.pending_of(epoch))
    }

    /// Begins an exchange after all work that the streams were given before: reads of owned cells and writes of
    /// halo cells come later than that. So give all streams whose work writes owned cells or still reads the halo; each is
    /// of a device that this rank has fields on. Of this object 64 exchanges may be in flight (without host fields; with them, one), and
    /// none is waited for, but as said below. Host fields begin at the call.
    ///
    /// All ranks, and all threads of a rank, begin exchanges of all objects of device fields in one order, but of
    /// [`BindOptions::inline`] ones: objects share internal streams (up to four a rank and device), where an exchange waits for the one
    /// begun before. Two objects begun in opposite orders by two ranks may wait for each other until their deadline
    /// ([`BindOptions::deadline`]), or for good where there is none.
    ///
    /// There are three waits, none of them under a deadline. If nothing of this process is in flight and memory of a GPU, or a mapping, was dropped, one of
    /// these is freed first (or more, for 2 ms), which CUDA does once that GPU has done all it was given before, whoever gave it. If something dropped has found no such gap
    /// for 100 ms, the call makes one: it waits for earlier exchanges, for 50 ms at most, or up to 0.8 s where that was in
    /// vain, which all together take no more than a twentieth of the time (peers with a shorter deadline take this rank for late). And the device's own queue
    /// sets a bound: CUDA takes about 1,000 operations a stream, of which an exchange has
    /// two to five, and two more where a staged message has several chunks (4 MiB or more each); a call that finds it full waits for room.
    ///
    /// Besides the errors of [`HaloExchange::exchange`]: [`Error::StreamDevice`], [`Error::Capturing`],
    /// [`Error::TooManyInFlight`], [`Error::NotDriven`], which leave the object as it was, and [`Error::MemoryMoved`], with which it has failed, as its
    /// peers are told. None of them counts as an exchange.
    pub fn schedule_exchange(&self, streams: &[&Stream]) -> Result<Pending, Error> {
        self.schedule_exchange_set(0, streams)
    }

    /// As [`HaloExchange::schedule_exchange`], of one of the sets that were bound together.
    pub fn schedule_exchange_set(&self, index: usize, streams: &[&Stream]) -> Result<Pending, Error> {
        if !self.bound.life.comm.link().is_driven()
            && self.paths().any(|(_, _, path)| path == LinkPath::Message)
        {
            return Err(Error::NotDriven);
        }
        self.exchange_set_on(index, streams)
    }

    /// All work that the stream is given from now on runs after the exchange begun last, if there is one. See
    /// [`Pending::schedule_wait`].
    pub fn schedule_wait(&self, stream: &Stream) -> Result<(), Error> {
        self.pending().map_or(Ok(()), |pending| pending.schedule_wait(stream))
    }

    fn pending_of(&self, epoch: u64) -> Pending {
        Pending { bound: Arc::clone(self.bound()), epoch, scheduled: self.scheduled.clone() }
    }

    fn epoch(&self) -> u64 {
        self.bound().epoch()
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
    /// have come, not for an exchange in flight; but of device fields it makes copy tables, for which CUDA may wait for what a
    /// device was given: there, all ranks narrow and begin exchanges in one order.
    ///
    /// An object of device fields has room for twice as many sets as were bound, and for 16 at least; what is narrowed takes
    /// places until the object goes: [`Error::NoRoomForSets`].
    pub fn narrowed(&self, to: &Halo) -> Result<Self, Error> {
        self.narrowed_if(Ok(to))
    }

    /// As [`HaloExchange::narrowed`], by ranks of which one may have no such halo: its error is one on all.
    pub fn narrowed_if(&self, to: Result<&Halo, Error>) -> Result<Self, Error> {
        let to = agree(&self.bound().life.comm.within("narrowed"), to)?;
        let sets = bind::narrowed(self.bound(), self.scheduled.as_deref(), &self.sets, to)?;
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
        let epoch = self.epoch();
        (epoch > 0).then(|| self.pending_of(epoch))
    }

    /// Waits for the exchange begun last, if there is one. Blocks.
    pub fn wait(&self) -> Result<(), Error> {
        self.pending().map_or(Ok(()), |pending| pending.wait())
    }

    /// True once the exchange begun last is over, or, after a failure or deadline, once no peer can touch the fields any more; their
    /// memory is the user's again then. Does not carry the exchange on, never blocks.
    pub fn reclaim(&self) -> bool {
        let host = self.bound().reclaim();
        self.scheduled.as_ref().is_none_or(|scheduled| scheduled.reclaim()) && host
    }

    /// The ways that this rank's links take; between two ranks, host and device fields have links of their own.
    pub fn links(&self) -> LinkCounts {
        LinkCounts::of(self.all_links())
    }

    /// The links of this rank: peer, direction, and the way that the bytes take.
    pub fn paths(&self) -> impl Iterator<Item = (usize, Direction, LinkPath)> {
        self.all_links().map(|link| (link.peer, link.direction, link.path))
    }

    fn all_links(&self) -> impl Iterator<Item = &Link> {
        let scheduled = self.scheduled.iter().flat_map(|scheduled| &scheduled.links);
        self.bound().links.iter().chain(scheduled)
    }

    /// A table of this rank's links: peer, way, through what, bytes, regions, and why not a better way.
    pub fn explain(&self) -> String {
        explain::explain(self.bound(), &self.sets, self.scheduled.as_deref())
    }
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HaloExchange(epoch {}, {:?})", self.epoch(), self.links())
    }
}

/// One exchange in flight. Dropping or forgetting it leaves the exchange running, and its arrays in flight: the object's
/// [`HaloExchange::pending`] gives it back, to be waited for. Tasks `.await` it. A clone is the same
/// exchange.
#[derive(Clone)]
#[must_use = "the halo is filled only after `wait`"]
pub struct Pending {
    pub(crate) bound: Arc<Bound>,
    pub(crate) epoch: u64,
    /// The device fields, if the object has any.
    pub(crate) scheduled: Option<Arc<Scheduled>>,
}

impl Pending {
    /// Blocks until the halo is filled and owned cells may be overwritten. Calling it again does nothing.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(scheduled) = &self.scheduled else { return self.bound.wait(self.epoch) };
        let _span = trace::wait(&self.bound.life.comm, &self.bound.life.name, self.epoch);
        self.bound.wait(self.epoch)?;
        scheduled.wait(self.epoch)
    }

    /// As [`Pending::wait`], of host fields, but gives up after so many looks, in well under a microsecond each: for a caller
    /// whose wait has a cost of its own. `None`: it was given up.
    #[doc(hidden)]
    pub fn wait_briefly(&self, looks: u32) -> Option<Result<(), Error>> {
        match &self.scheduled {
            None => self.bound.wait_briefly(self.epoch, looks),
            Some(_) => None,
        }
    }

    /// All work that the stream is given from now on runs after the halo is filled and the owned cells may be
    /// overwritten. Never waits for device fields; blocks for host fields. The stream is of a device that this rank
    /// has device fields on, and may be another one than those of the exchange.
    ///
    /// After a failure it is an error. One that is noticed later lets the stream go on with an undefined halo:
    /// [`Pending::wait`] tells.
    pub fn schedule_wait(&self, stream: &Stream) -> Result<(), Error> {
        let Some(scheduled) = &self.scheduled else { return self.bound.wait(self.epoch) };
        let _span = trace::schedule_wait(&self.bound.life.comm, &self.bound.life.name, self.epoch);
        self.bound.wait(self.epoch)?;
        scheduled.schedule_wait(self.epoch, stream)
    }

    /// Whether [`Pending::wait`] would return at once. Carries the exchange on, never blocks.
    pub fn is_ready(&self) -> Result<bool, Error> {
        let host = self.bound.is_ready(self.epoch)?;
        Ok(self.scheduled.as_ref().map_or(Ok(true), |scheduled| scheduled.is_ready(self.epoch))? && host)
    }

    /// The number of this exchange.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Drops it. If nobody else holds the object any more, its end, which may wait, is left to whoever drops what is returned.
    #[doc(hidden)]
    pub fn let_go(self) -> Option<impl Send> {
        let ends = (Arc::into_inner(self.bound), self.scheduled.and_then(Arc::into_inner));
        (ends.0.is_some() || ends.1.is_some()).then_some(ends)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending(epoch {})", self.epoch)
    }
}
