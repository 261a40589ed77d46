//! The builder that begins an exchange: which set, after which streams, and how.

use crate::error::Error;
use crate::exchange::{HaloExchange, Pending};
use crate::future::Exchanging;
use crate::link::LinkPath;
use crate::reduce::Reduction;
use crate::stream::Work;
use crate::trace;
use halocline_comm::Endpoint;
use halocline_device::Stream;
use halocline_plan::ReduceOp;
use std::fmt;

/// An exchange that is about to begin ([`HaloExchange::begin`]). Choose the set and the streams, then end with
/// [`Begin::start`], [`Begin::schedule`] or `.await`. It allocates nothing.
///
/// ```
/// use halocline::{Array, BindOptions, Communicator, Decomposed, HaloExchange, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// let levels = [Array::<f64>::zeros(&comm, &[10, 8])?, Array::zeros(&comm, &[10, 8])?];
/// let sets = levels.each_ref().map(|level| [(&pattern, level)]);
/// let halo = HaloExchange::bind_alternatives(&comm, &sets, &BindOptions::default())?;
/// for step in 0..4 {
///     halo.begin().set(step % 2).start()?.wait()?;
/// }
/// # Ok::<(), halocline::Error>(())
/// ```
#[must_use = "nothing begins before `start`, `schedule` or `.await`"]
#[derive(Clone, Copy)]
pub struct Begin<'a> {
    halo: &'a HaloExchange,
    set: usize,
    streams: Option<&'a [&'a Stream]>,
    reduce: Option<ReduceOp>,
    keeps_halo: bool,
}

impl HaloExchange {
    /// Begins an exchange with choices of its own: one of several sets, streams. [`HaloExchange::exchange`] and
    /// [`HaloExchange::schedule_exchange`] are the short forms.
    #[inline]
    pub fn begin(&self) -> Begin<'_> {
        Begin { halo: self, set: 0, streams: None, reduce: None, keeps_halo: false }
    }
}

impl<'a> Begin<'a> {
    /// Exchanges this set of those that were bound together ([`HaloExchange::bind_alternatives`]), counted from 0; set 0
    /// by default. All ranks choose the same. A number without a set is refused as [`Error::NoSuchSet`].
    #[inline]
    pub fn set(mut self, set: usize) -> Self {
        self.set = set;
        self
    }

    /// Reads and writes device fields only after all work that these streams were given before. They replace the producer streams of
    /// the bind ([`BindOptions::streams`](crate::BindOptions::streams)). Host fields are read and written from the begin on, whatever
    /// the streams.
    #[inline]
    pub fn after(mut self, streams: &'a [&'a Stream]) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Reduces instead: the reverse of an exchange. All ranks give the same operation. [`HaloExchange::reduce`] has the
    /// rules and the errors.
    #[inline]
    pub fn reduce(mut self, op: ReduceOp) -> Self {
        self.reduce = Some(op);
        self
    }

    /// Whether a reduce leaves the halo cells as they are; otherwise it clears them. Before or after [`Begin::reduce`]; an
    /// exchange ignores it.
    #[inline]
    pub fn keep_halo(mut self, keep: bool) -> Self {
        self.keeps_halo = keep;
        self
    }

    /// Starts the exchange and returns. [`HaloExchange::exchange`] says when cells are read and written, and lists the errors.
    #[inline]
    pub fn start(self) -> Result<Pending, Error> {
        let halo = self.halo;
        self.start_epoch().map(|epoch| halo.pending_of(epoch))
    }

    /// As [`Begin::start`], for a caller that keeps the epoch alone ([`HaloExchange::wait_epoch`]).
    #[doc(hidden)]
    #[inline]
    pub fn start_epoch(self) -> Result<u64, Error> {
        let Self { halo, set, streams, reduce, keeps_halo } = self;
        let set = halo.set(set)?;
        let reduction = reduce.map(|op| Reduction { op, keeps_halo });
        match &halo.scheduled {
            None => match reduction {
                None => halo.bound().begin(set, &[]),
                Some(reduction) => halo.bound().begin_reduce(set, reduction),
            },
            Some(scheduled) => {
                let life = &halo.bound().life;
                let _span = trace::exchange(&life.comm, &life.name, halo.epoch() + 1);
                if let Some(reduction) = reduction {
                    return scheduled.begin_reduce((set, reduction), halo.object(), streams);
                }
                match streams {
                    None => scheduled.begin_bound(set, halo.object()),
                    Some(streams) => {
                        scheduled.begin((Work::Set(set), halo.object()), streams.iter().copied())
                    }
                }
            }
        }
    }

    /// Starts the exchange in the order of the streams; the host does not wait for it. [`HaloExchange::schedule_exchange`]
    /// has the contract and the errors.
    pub fn schedule(self) -> Result<Pending, Error> {
        let is_driven = self.halo.bound().life.comm.link().is_driven();
        let is_checked = self.halo.scheduled.as_ref().is_some_and(|scheduled| scheduled.checks.is_some());
        // A manifest of checked mode is a message.
        if !is_driven && (is_checked || self.halo.links().any(|link| link.path == LinkPath::Message)) {
            return Err(Error::NotDriven);
        }
        self.start()
    }
}

/// The exchange begins when `.await` or `into_future` is reached, not at the first poll. A refusal is the
/// outcome of the future.
impl IntoFuture for Begin<'_> {
    type Output = Result<(), Error>;
    type IntoFuture = Exchanging;

    fn into_future(self) -> Exchanging {
        Exchanging::new(self.start())
    }
}

impl fmt::Debug for Begin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.streams.map(<[_]>::len);
        write!(f, "Begin({:?}, set {}, streams {streams:?})", self.halo, self.set)
    }
}
