//! The reverse of an exchange: halo cells are combined with the owned cells that they copy.
//!
//! An owner waits until the halo cells of all its peers are complete, in their memory or packed in a message ([`crate::link`]).
//! Then one thread combines all contributions, those from this rank's own halo cells included, in the order of the contributing
//! domain's number. So the result depends neither on the order of arrival nor on the paths of the links.

use crate::bind::{self, Bindable, Local, Via};
use crate::error::{Error, ReduceError};
use crate::exchange::{HaloExchange, Pending};
use crate::field::Array;
use crate::link::Link;
use crate::set::Set;
use halocline_device::Stream;
use halocline_plan::copy::CopyOp;
use halocline_plan::{Cells, DomainShape, ElementType, ReduceOp, Transfer};

/// How a reduce combines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) op: ReduceOp,
    /// Halo cells stay as they are; otherwise they are cleared.
    pub(crate) keeps_halo: bool,
}

/// The copies of a set's reduces.
pub(crate) struct Reverse {
    /// For each link, the copies from halo cells to its message; none where it sends, or where halo cells are combined in place.
    packs: Vec<Vec<CopyOp>>,
    /// For each link, address of element (0, 0, …) of each field of the peer whose halo cells this side combines in place.
    peer_bases: Vec<Vec<*mut u8>>,
    /// In the order in which they are combined.
    pub(crate) contributions: Vec<Contribution>,
    /// Fields of this rank and the element types that they, or fields of peers, have.
    elements: Vec<(usize, ElementType)>,
}

/// Halo cells of one domain that are combined with owned cells of this rank.
pub(crate) struct Contribution {
    /// The link that brings them, by its index; `None` for halo cells of this rank.
    pub(crate) link: Option<usize>,
    /// To a field, from the link's message, or from a field of the peer or of this rank.
    pub(crate) op: CopyOp,
}

/// What contributions are sorted by, in the order of the members.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CombineOrder {
    field: usize,
    domain: u64,
    /// Tells transfers between the same two domains apart.
    low: Vec<i64>,
}

impl CombineOrder {
    pub(crate) fn new(field: usize, transfer: &Transfer) -> Self {
        let low = match &transfer.target {
            Cells::Box(cells) => cells.low.clone(),
            Cells::Runs(_) => Vec::new(),
        };
        Self { field, domain: transfer.to, low }
    }
}

impl Reverse {
    pub(crate) fn new(
        packs: Vec<Vec<CopyOp>>,
        peer_bases: Vec<Vec<*mut u8>>,
        mut contributions: Vec<(CombineOrder, Contribution)>,
        elements: Vec<(usize, ElementType)>,
    ) -> Self {
        contributions.sort_by(|(one, _), (other, _)| one.cmp(other));
        let contributions = contributions.into_iter().map(|(_, one)| one).collect();
        Self { packs, peer_bases, contributions, elements }
    }

    /// The copies from halo cells to the message of a link.
    pub(crate) fn packs(&self, link: usize) -> &[CopyOp] {
        &self.packs[link]
    }

    /// The peer's fields whose halo cells this side of a link combines in place.
    pub(crate) fn peer_bases(&self, link: usize) -> &[*mut u8] {
        &self.peer_bases[link]
    }

    /// Checks that all elements support an operation.
    pub(crate) fn check(&self, op: ReduceOp) -> Result<(), Error> {
        match self.elements.iter().find(|(_, element)| !op.supports(*element)) {
            Some(&(field, element)) => Err(ReduceError::Operation { field, element, op }.into()),
            None => Ok(()),
        }
    }
}

impl Set {
    /// The copies of reduces over these links. The first call makes them.
    pub(crate) fn reversed(&self, links: &[Link]) -> Result<&Reverse, Error> {
        if let Some(reverse) = self.reverse.get() {
            return Ok(reverse);
        }
        let reverse = bind::reverse(self, links, Via::Links)?;
        Ok(self.reverse.get_or_init(|| reverse))
    }
}

impl HaloExchange {
    /// Begins the reverse of an exchange: each halo cell is combined with the owned cell that it copies, `owned = op(owned, halo)`,
    /// and is cleared. So finite-element assembly and particle deposition add contributions to cells of other ranks. With
    /// [`ReduceOp::Sum`] it is the transpose of [`HaloExchange::exchange`].
    ///
    /// The halo cells that copy one owned cell are combined with it in the order of their domains' numbers. The result is the
    /// same to the bit on any transport and with any distribution of the domains over ranks.
    ///
    /// A reduce is an exchange in all other respects: it has an epoch, runs between the begin and [`Pending::wait`], and all ranks
    /// begin exchanges and reduces of an object in one order. A rank that begins another operation than its peer fails the object
    /// on both. Until the wait no cell of the fields may be read or written, owned cells included.
    ///
    /// `halo.begin().reduce(op)` has more choices: a set, [`Begin::keep_halo`], [`Begin::schedule`], `.await`. For host fields, the
    /// scheduled form starts at once.
    ///
    /// Device fields are reduced on their devices, with the same bits. The first reduce of a set by an operation uploads its tables.
    ///
    /// Besides the errors of [`HaloExchange::exchange`]: [`Error::Reduce`] for an operation that elements do not have,
    /// for fields that share owned cells, and for device fields whose links are pulled or use NCCL, on this rank or on another. None of
    /// them counts as an exchange. Checked mode checks reduces of host fields.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, HaloExchange, ReduceOp, RegularGrid};
    ///
    /// let comm = Communicator::single();
    /// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
    /// let mass = Array::<f64>::zeros(&comm, &[5])?;
    /// mass.write()?.copy_from_slice(&[0.5, 1.0, 2.0, 3.0, 0.25]);
    /// let halo = HaloExchange::bind(&comm, [(&pattern, &mass)])?;
    /// halo.reduce(ReduceOp::Sum)?.wait()?;
    /// assert_eq!(mass.read()?[..], [0.0, 1.25, 2.0, 3.5, 0.0]);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    ///
    /// [`Begin::keep_halo`]: crate::Begin::keep_halo
    /// [`Begin::schedule`]: crate::Begin::schedule
    #[inline]
    pub fn reduce(&self, op: ReduceOp) -> Result<Pending, Error> {
        self.begin().reduce(op).start()
    }

    /// Begins a reduce that runs after all earlier work of the streams: `halo.begin().reduce(op).after(streams).schedule()`. As in
    /// [`HaloExchange::schedule_exchange`], whose contract and errors apply, the host waits for no device, and the streams may be captured
    /// into a graph.
    ///
    /// ```
    /// use halocline::device::{Priority, sim};
    /// use halocline::{Communicator, Decomposed, DeviceArray, HaloExchange, ReduceOp, RegularGrid};
    ///
    /// let comm = Communicator::single();
    /// // A simulated device; `halocline::device::cuda::device(0)?` opens a GPU.
    /// let world = sim::World::live(1, &sim::Options::default()).expect("a thread");
    /// let device = world.world().device(0)?;
    /// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
    /// let mass = DeviceArray::<f64>::zeros(&device, &[5])?;
    /// let stream = device.stream(Priority::Normal)?;
    /// mass.write(&stream, &[0.5, 1.0, 2.0, 3.0, 0.25])?;
    /// let halo = HaloExchange::bind(&comm, [(&pattern, &mass)])?;
    /// halo.schedule_reduce(ReduceOp::Sum, &[&stream])?.schedule_wait(&stream)?;
    /// assert_eq!(mass.read(&stream)?, [0.0, 1.25, 2.0, 3.5, 0.0]);
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn schedule_reduce(&self, op: ReduceOp, streams: &[&Stream]) -> Result<Pending, Error> {
        self.begin().reduce(op).after(streams).schedule()
    }

    /// How many halo cells copy each cell: an array in host memory for each field of the (first) set, of its domain's
    /// [`Domain::extents`](crate::Domain::extents), in C order. Host fields come first, then device fields, both in the order of the bind.
    /// Halo cells have 0. It follows from the pattern, without communication.
    ///
    /// A sum of ones in all halo cells gives the same. An average over all copies divides by it, plus one for the owned cell.
    pub fn degree(&self) -> Result<Vec<Array<u32>>, Error> {
        let (set, comm) = (self.set(0)?, &self.bound().life.comm);
        let on_devices = self.scheduled.as_ref().map(|scheduled| &scheduled.sets[set.number].local);
        let degree = |(local, field): (&Local, &Bindable)| {
            let plan = local.patterns[local.index_of(field.place.pattern)].plan();
            let extents = plan.domain(field.place.domain).map_or(Vec::new(), DomainShape::extents);
            let array = Array::zeros(comm, &extents)?;
            let degree = plan.degree(field.place.domain).unwrap_or_default();
            array.write()?.copy_from_slice(&degree);
            Ok(array)
        };
        let all = std::iter::once(&set.local).chain(on_devices);
        all.flat_map(|local| local.fields.iter().map(move |field| (local, field))).map(degree).collect()
    }
}
