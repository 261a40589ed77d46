//! The objects that users hold: a bound exchange, and one exchange in flight.

use crate::agree::agree;
use crate::bind::{self, BoundObject};
use crate::binding::FieldList;
use crate::bound::Bound;
use crate::error::Error;
use crate::explain::{self, LinkCounts, LinkInfo};
use crate::lifecycle::Engine;
use crate::options::BindOptions;
use crate::set::Set;
use crate::stream::{Scheduled, is_captured};
use crate::trace;
use halocline_comm::{Communicator, Endpoint};
use halocline_device::Stream;
use halocline_plan::Halo;
use std::fmt;
use std::sync::Arc;

/// Fields whose halos are exchanged together, bound once and exchanged many times.
///
/// In the steady state an exchange allocates nothing. A wait polls for a short time before it sleeps: if the peers arrive in that
/// time, the exchange makes no system call. The object may be dropped at any time: an exchange in flight completes in the
/// background, and its memory is held until then. Exchanges that peers begin with it afterwards fail.
///
/// # Fields in memory of devices
///
/// Their exchanges run in the order of streams, and the host does not wait for one
/// ([`HaloExchange::schedule_exchange`], [`Pending::schedule_wait`]). Host and device fields may be bound together:
/// the n-th host field of a domain is exchanged with the n-th host field of the others, the n-th device field with
/// the n-th device field. In the scheduled calls host fields start at once, and waits block for them.
///
/// Ranks of one process use different streams. All ranks begin the exchanges of their objects in the same order
/// ([`HaloExchange::schedule_exchange`]).
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, HaloExchange, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
/// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
/// halo.exchange()?.wait()?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub struct HaloExchange {
    bound: Arc<Bound>,
    sets: Vec<Arc<Set>>,
    /// The device fields, if any rank has some.
    pub(crate) scheduled: Option<Arc<Scheduled>>,
    shared: Arc<Shared>,
}

/// The object that all handles of a user share: its host fields and its device fields.
pub(crate) struct Shared(pub(crate) Arc<Bound>, pub(crate) Option<Arc<Scheduled>>);

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(scheduled) = &self.1 {
            Arc::clone(scheduled).release();
        }
        Arc::clone(&self.0).release();
    }
}

impl HaloExchange {
    /// Binds fields to their patterns. Collective: all ranks call it in the same order on one
    /// communicator. Blocks until all peers have called it.
    ///
    /// The n-th field given for a domain of a pattern is exchanged with the n-th field of every other
    /// domain of that pattern. Both have the same element type, and the same name of it if both have one
    /// ([`Element::RECORD`](crate::Element::RECORD)), and the same extra dimensions; strides may differ. Where a rank owns
    /// several domains of a pattern, [`Field::on_domain`](crate::Field::on_domain) names the domain of a field.
    ///
    /// The first extents of a field, or those that its [`Layout`](crate::Layout) names, must be the domain's. A layout
    /// with an origin or with padding is exempt.
    ///
    /// A rank whose arguments are refused gets [`Error::Bind`], [`Error::Field`] or [`Error::Peer`], the other
    /// ranks get [`Error::Elsewhere`]. [`Error::Comm`]: a rank is gone, or memory is short. [`Error::Device`] and other errors of
    /// device fields: a device cannot do what the bind needs.
    pub fn bind(comm: &Communicator, fields: impl FieldList) -> Result<Self, Error> {
        Self::bind_with(comm, fields, &BindOptions::default())
    }

    /// As [`HaloExchange::bind`], with options.
    pub fn bind_with(
        comm: &Communicator,
        fields: impl FieldList,
        options: &BindOptions,
    ) -> Result<Self, Error> {
        Self::bind_alternatives(comm, &[fields], options)
    }

    /// Binds several sets of fields at once: time levels that swap, for instance. Each exchange moves one of them
    /// ([`Begin::set`](crate::Begin::set)). The sets share links and buffers. Collective: all ranks give the same number of sets in
    /// the same order. Each set follows the rules of [`HaloExchange::bind`]. A field may be in several sets, with other
    /// fields each time. An error of one of several sets comes as [`Error::Set`].
    ///
    /// The first set decides which path is fastest.
    pub fn bind_alternatives(
        comm: &Communicator,
        sets: &[impl FieldList],
        options: &BindOptions,
    ) -> Result<Self, Error> {
        let sets: Vec<_> = sets.iter().map(FieldList::fields).collect();
        let sets: Vec<_> = sets.iter().map(Vec::as_slice).collect();
        let BoundObject { bound, sets, scheduled } = bind::bind(comm, &sets, options)?;
        let shared = Arc::new(Shared(Arc::clone(&bound), scheduled.clone()));
        Ok(Self { bound, sets, scheduled, shared })
    }

    /// A handle of other sets of the same object.
    fn with(&self, sets: Vec<Arc<Set>>) -> Self {
        let (bound, shared) = (Arc::clone(&self.bound), Arc::clone(&self.shared));
        Self { bound, sets, scheduled: self.scheduled.clone(), shared }
    }

    /// What all handles share.
    pub(crate) fn object(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// Whether any rank has bound device fields: then packing takes a stream ([`HaloExchange::pack_on`]).
    pub fn is_of_devices(&self) -> bool {
        self.scheduled.is_some()
    }

    #[inline]
    pub(crate) fn set(&self, index: usize) -> Result<&Arc<Set>, Error> {
        self.sets.get(index).ok_or(Error::NoSuchSet { set: index, sets: self.sets.len() })
    }

    /// Starts an exchange and returns. Owned cells are read, and halo cells are written, until [`Pending::wait`] returns: those of host
    /// fields from now on, those of device fields after all earlier work of the producer streams ([`BindOptions::streams`]). Until then
    /// the guards of an [`crate::Array`] are refused, however soon the exchange completes; [`Pending::owned`] reads its owned cells.
    /// Ranks match the exchanges of an object in the order in which each rank begins them.
    ///
    /// Fails with [`Error::InFlight`] while the previous exchange of an object with host fields is in flight, and with
    /// [`Error::TooManyInFlight`] while 64 of an object of device fields alone are; with [`Error::Shared`] while a field is in flight in
    /// another object; with [`Error::Borrowed`] while a guard of an array is held, or a thread copies from or to an array on a device;
    /// with [`Error::Failed`] once the object has failed. All but the last leave the object as it was. An object with device fields has
    /// those of [`HaloExchange::schedule_exchange`], too. [`HaloExchange::begin`] has more choices.
    #[inline]
    pub fn exchange(&self) -> Result<Pending, Error> {
        self.begin().start()
    }

    /// Begins an exchange after all earlier work of the streams: only then are owned cells read and halo cells written. Give
    /// every stream whose work writes owned cells or still reads the halo; each is of a device that this rank has fields
    /// on. Up to 64 exchanges of an object may be in flight, one if it has host fields. Host fields start at the call.
    ///
    /// All ranks, and all threads of a rank, begin the exchanges of all device objects in the same order, except
    /// [`BindOptions::inline`] ones. The others run on up to four internal streams of the rank on a device. The given stream
    /// selects the internal one, so exchanges after the same stream follow one another; exchanges after different streams may, too.
    /// Two objects begun in opposite orders by two ranks may wait for each other until their deadline ([`BindOptions::deadline`]),
    /// or forever without one.
    ///
    /// The call may wait in three cases, none of them under a deadline:
    /// - Nothing of this process is in flight, and GPU memory or a mapping was dropped. The call frees some of it, for up to
    ///   2 ms. CUDA frees once that GPU has completed all earlier work, including the program's own.
    /// - Dropped memory could not be freed for 100 ms. The call waits for earlier exchanges: up to 50 ms, or up to 0.8 s after
    ///   attempts without success. Together these waits take at most a twentieth of the time. Peers with a shorter deadline
    ///   report this rank as late.
    /// - The device's queue is full. CUDA takes about 1,000 operations a stream. An exchange has two to five, and two more if a
    ///   staged message has several chunks (4 MiB or more each).
    ///
    /// **Graphs.** If the streams are being captured into a CUDA graph, the exchange is captured: each launch of the graph exchanges
    /// what the fields hold then. Before the capture ends, capture [`Pending::schedule_wait`] of the exchange, too. One rank may launch
    /// a graph where another begins the same exchange by a call; the exchanges have the same order on all ranks. Before a launch, let
    /// its stream wait for the exchanges that were begun before. The graph, and all that is instantiated from it, keeps this object and
    /// the fields that it holds. The program keeps all other memory of the graph valid as long as the graph exists. After a failure,
    /// launches exchange nothing, and the next call reports the failure. [`Error::NotCapturable`] and [`Error::OtherCapture`] refuse a
    /// capture.
    ///
    /// Besides the errors of [`HaloExchange::exchange`]: [`Error::StreamDevice`], [`Error::NotCapturable`], [`Error::OtherCapture`]
    /// and [`Error::NotDriven`] leave the object as it was; after [`Error::MemoryMoved`] it has failed, here and at its peers. None of
    /// them counts as an exchange.
    pub fn schedule_exchange(&self, streams: &[&Stream]) -> Result<Pending, Error> {
        self.begin().after(streams).schedule()
    }

    /// Makes later work of the stream wait for the latest exchange, if there is one: [`Pending::schedule_wait`]. If the stream is being
    /// captured, that is the latest one of the capture.
    pub fn schedule_wait(&self, stream: &Stream) -> Result<(), Error> {
        self.pending_on(stream)?.map_or(Ok(()), |pending| pending.schedule_wait(stream))
    }

    /// The latest exchange for a stream: if that is being captured, the one that was captured last, else as [`HaloExchange::pending`].
    #[doc(hidden)]
    pub fn pending_on(&self, stream: &Stream) -> Result<Option<Pending>, Error> {
        match &self.scheduled {
            Some(scheduled) if scheduled.capture_of(std::iter::once(stream))?.is_some() => {
                Ok(scheduled.last_captured().map(|number| self.pending_of(number)))
            }
            _ => Ok(self.pending()),
        }
    }

    pub(crate) fn pending_of(&self, epoch: u64) -> Pending {
        Pending { bound: Arc::clone(self.bound()), epoch, scheduled: self.scheduled.clone(), host: None }
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.bound().epoch()
    }

    /// A handle of one of the sets alone, counted from 0. Local. It shares links and epochs with this one: one
    /// exchange is in flight over both at a time. Either may be dropped. Fails with [`Error::NoSuchSet`] if there is no such set.
    pub fn alternative(&self, index: usize) -> Result<Self, Error> {
        Ok(self.with(vec![Arc::clone(self.set(index)?)]))
    }

    /// The same fields with the narrower halo `to`, as [`Pattern::narrowed`](crate::Pattern::narrowed) has it; for each set of this object.
    /// It shares links and epochs with this one: one exchange is in flight over both at a time, and all ranks begin those of
    /// both in the same order. Either may be dropped.
    ///
    /// Collective, on the communicator of the bind; all ranks have bound the same patterns. Blocks until all ranks
    /// have called it, but not for an exchange in flight. For device fields it makes copy tables, and CUDA may wait for earlier work
    /// of a device: there, all ranks narrow and begin exchanges in the same order.
    ///
    /// An object of device fields has space for 16 sets, and for more if more than 8 were bound: for twice as many at least. Each call
    /// adds as many sets as this handle has, until the object is dropped. Beyond the limit it fails with [`Error::TooManySets`].
    pub fn narrowed(&self, to: &Halo) -> Result<Self, Error> {
        self.narrowed_if(Ok(to))
    }

    /// As [`HaloExchange::narrowed`], where a rank may bring an error instead of a halo: all ranks return it.
    pub fn narrowed_if(&self, to: Result<&Halo, Error>) -> Result<Self, Error> {
        let to = agree(&self.bound().life.comm.within("narrowed"), to)?;
        let sets = bind::narrowed(self.bound(), self.scheduled.as_deref(), &self.sets, to)?;
        Ok(self.with(sets))
    }

    /// Number of sets that were bound together.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// The latest exchange that a call has begun, complete or not; `None` before the first.
    pub fn pending(&self) -> Option<Pending> {
        let epoch = self.epoch();
        (epoch > 0).then(|| self.pending_of(epoch))
    }

    /// The exchange of an epoch that [`Pending::epoch`] has returned, for callers that keep the number alone; `None` if no
    /// such exchange has begun.
    pub fn pending_at(&self, epoch: u64) -> Option<Pending> {
        self.has_begun(epoch).then(|| self.pending_of(epoch))
    }

    /// Whether the exchange of an epoch has begun.
    #[doc(hidden)]
    #[inline]
    pub fn has_begun(&self, epoch: u64) -> bool {
        (1..=self.epoch()).contains(&epoch)
            || is_captured(epoch)
                && self.scheduled.as_ref().is_some_and(|scheduled| Some(epoch) <= scheduled.last_captured())
    }

    /// Fails if this thread cannot wait for exchanges: MPI allows another one only, or the transport has failed.
    #[doc(hidden)]
    #[inline]
    pub fn check_thread(&self) -> Result<(), Error> {
        Ok(self.bound().life.comm.link().check()?)
    }

    /// As [`Pending::wait`] of the exchange of an epoch, which has begun, without a handle.
    #[doc(hidden)]
    #[inline]
    pub fn wait_epoch(&self, epoch: u64) -> Result<(), Error> {
        match &self.scheduled {
            None => self.bound.wait(epoch),
            Some(_) => self.pending_of(epoch).wait(),
        }
    }

    /// Waits for the latest exchange, if there is one, as [`Pending::wait`] does, with its errors. Blocks.
    pub fn wait(&self) -> Result<(), Error> {
        self.pending().map_or(Ok(()), |pending| pending.wait())
    }

    /// True once the latest exchange is complete or, after a failure, once no peer can access the fields any more. Their
    /// memory belongs to the user again. Makes no progress, never blocks.
    pub fn reclaim(&self) -> bool {
        let host = self.bound().reclaim();
        self.scheduled.as_ref().is_none_or(|scheduled| scheduled.reclaim()) && host
    }

    /// The links of this rank; between two ranks, host and device fields have links of their own.
    pub fn links(&self) -> impl Iterator<Item = LinkInfo> {
        let scheduled = self.scheduled.iter().flat_map(|scheduled| &scheduled.links);
        self.bound().links.iter().chain(scheduled).map(LinkInfo::of)
    }

    /// A table of this rank's links: peer, path, medium, bytes, regions, and the reason against a faster path.
    pub fn explain(&self) -> String {
        explain::explain(self.bound(), &self.sets, self.scheduled.as_deref())
    }
}

impl fmt::Debug for HaloExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HaloExchange(epoch {}, {:?})", self.epoch(), self.links().collect::<LinkCounts>())
    }
}

/// One exchange in flight. Tasks `.await` it; a clone is the same exchange. Dropping it leaves the exchange running and its
/// arrays in flight: [`HaloExchange::pending`] returns it again.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, HaloExchange, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([4]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &[6])?;
/// t.write()?.copy_from_slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 0.0]);
/// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
///
/// let pending = halo.exchange()?;
/// assert_eq!(pending.epoch(), 1);
/// // The program computes other things here, then waits for the halo.
/// pending.wait()?;
/// assert_eq!(t.read()?[..], [4.0, 1.0, 2.0, 3.0, 4.0, 1.0]);
/// # Ok::<(), halocline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "the halo is filled only after `wait`"]
pub struct Pending {
    pub(crate) bound: Arc<Bound>,
    pub(crate) epoch: u64,
    /// The device fields, if the object has any.
    pub(crate) scheduled: Option<Arc<Scheduled>>,
    /// The host fields of a call that had fields of a device, too, in the unbound form: an exchange of its own.
    pub(crate) host: Option<Box<Pending>>,
}

impl Pending {
    /// Blocks until the halo is filled and owned cells may be overwritten, or the exchange has failed. Once the exchange is over,
    /// another call returns the same outcome.
    ///
    /// Fails with [`Error::Failed`] if the object failed before the exchange was complete: a peer died or dropped its end, or the
    /// deadline passed ([`BindOptions::deadline`]), for instance. Without a deadline it waits until the peers arrive or are gone.
    /// [`Error::Captured`] refuses a captured exchange. After [`Error::Comm`] the exchange goes on: the wait was interrupted, or MPI
    /// allows no call from this thread.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(scheduled) = &self.scheduled else { return self.bound.wait(self.epoch) };
        self.check_begun()?;
        let _span = trace::wait(&self.bound.life.comm, &self.bound.life.name, self.epoch);
        self.bound.wait(self.epoch)?;
        self.wait_for_host()?;
        scheduled.wait(self.epoch)
    }

    fn wait_for_host(&self) -> Result<(), Error> {
        self.host.as_ref().map_or(Ok(()), |host| host.wait())
    }

    /// As [`Pending::wait`] for host fields, but returns `None` after so many polls of less than a microsecond each: for a caller
    /// whose wait has a cost of its own.
    #[doc(hidden)]
    pub fn wait_briefly(&self, looks: u32) -> Option<Result<(), Error>> {
        match &self.scheduled {
            None => self.bound.wait_briefly(self.epoch, looks),
            Some(_) => None,
        }
    }

    /// Makes all later work of the stream run after the halo is filled and the owned cells may be
    /// overwritten. Never waits for device fields; blocks for host fields. The stream is of a device that this rank
    /// has device fields on; it need not be one of the exchange's streams.
    ///
    /// Fails if the exchange has failed, and with [`Error::NotDriven`] if no thread but one in [`Pending::wait`] carries its messages on.
    /// After a later failure the stream continues with an undefined halo, and
    /// [`Pending::wait`] returns the error.
    pub fn schedule_wait(&self, stream: &Stream) -> Result<(), Error> {
        let Some(scheduled) = &self.scheduled else { return self.bound.wait(self.epoch) };
        let _span = trace::schedule_wait(&self.bound.life.comm, &self.bound.life.name, self.epoch);
        if !is_captured(self.epoch) {
            self.bound.wait(self.epoch)?;
        }
        self.wait_for_host()?;
        scheduled.schedule_wait(self.epoch, stream)
    }

    /// Whether [`Pending::wait`] would return at once. Makes progress, never blocks.
    pub fn is_ready(&self) -> Result<bool, Error> {
        self.check_begun()?;
        let host = self.bound.is_ready(self.epoch)?
            && self.host.as_ref().map_or(Ok(true), |host| host.is_ready())?;
        Ok(self.scheduled.as_ref().map_or(Ok(true), |scheduled| scheduled.is_ready(self.epoch))? && host)
    }

    /// The number of this exchange: it counts those of the object that calls have begun, from 1. Captured ones have numbers of their own,
    /// from 2^63 + 1 on.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether it was captured into a graph.
    pub fn is_captured(&self) -> bool {
        is_captured(self.epoch)
    }

    /// Fails if it was captured: the host does not know when a graph is launched.
    pub(crate) fn check_begun(&self) -> Result<(), Error> {
        if self.is_captured() { Err(Error::Captured) } else { Ok(()) }
    }

    /// Drops it. If it is the last handle of the object, the end of the object may wait: drop the returned value where that is fine.
    #[doc(hidden)]
    pub fn let_go(self) -> Option<impl Send> {
        let host = self.host.and_then(|host| Arc::into_inner(host.bound));
        let ends = (Arc::into_inner(self.bound), self.scheduled.and_then(Arc::into_inner), host);
        (ends.0.is_some() || ends.1.is_some() || ends.2.is_some()).then_some(ends)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending(epoch {})", self.epoch)
    }
}
