//! The unbound form: links of patterns, and fields given to each exchange.

mod on_device;

use crate::bind::{Local, unbound};
use crate::bound::Bound;
use crate::error::Error;
use crate::exchange::{Pending, Shared};
use crate::explain::{self, LinkCounts, LinkInfo};
use crate::field::{Field, Number};
use crate::lock::lock;
use crate::options::BindOptions;
use crate::pattern::Pattern;
use crate::set::Set;
use halocline_comm::Communicator;
use halocline_device::{Device, Stream};
use halocline_plan::Layout;
use on_device::OnDevice;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Links that belong to patterns, made once, for fields that are given to each exchange.
///
/// For programs that learn only at the call which fields they exchange. Prefer [`crate::HaloExchange`] for fields that are known
/// earlier: its bytes go directly from field to field, and the bind reports every error. Here bytes go through a buffer of
/// the receiver, or a message.
///
/// The object remembers the layouts of recent fields ([`PatternLinks::REMEMBERED`] combinations, without their memory). A new
/// layout costs local work only: no rank waits for another because of it.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, PatternLinks, RegularGrid};
///
/// let comm = Communicator::init()?;
/// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
/// let links = PatternLinks::new(&comm, &[&pattern])?;
/// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
/// links.exchange(&[(&pattern, &t)])?.wait()?;
/// # Ok::<(), halocline::Error>(())
/// ```
pub struct PatternLinks {
    shared: Arc<Shared>,
    on_device: Option<OnDevice>,
    /// The ids of the patterns.
    patterns: Vec<u64>,
    /// Recent fields, the latest last.
    known: Mutex<Vec<Known>>,
}

/// Fields of a recent exchange.
struct Known {
    /// The pattern and the number of each field in their latest exchange.
    last: Vec<(u64, Number)>,
    fields: Vec<Described>,
    set: Arc<Set>,
}

/// The properties of a field that decide what is copied.
struct Described {
    pattern: u64,
    domain: Option<u64>,
    layout: Layout,
    /// The first field in the same memory, and the distance of this field from it.
    memory: usize,
    offset: usize,
}

impl PatternLinks {
    /// Number of layout combinations that are remembered.
    pub const REMEMBERED: usize = 16;

    /// Makes the links. Collective: all ranks call it in the same order on one communicator, with the same
    /// patterns in any order. Blocks until all peers have called it.
    pub fn new(comm: &Communicator, patterns: &[&Pattern]) -> Result<Self, Error> {
        Self::new_with(comm, patterns, &BindOptions::default())
    }

    /// As [`PatternLinks::new`], with options. Links can be [`crate::LinkChoice::Auto`] (a mailbox where ranks
    /// share memory, else messages), `Mailbox` or `Message`.
    pub fn new_with(
        comm: &Communicator,
        patterns: &[&Pattern],
        options: &BindOptions,
    ) -> Result<Self, Error> {
        let bound = unbound::links(comm, patterns, options)?;
        let patterns = patterns.iter().map(|pattern| pattern.id()).collect();
        Ok(Self { shared: Arc::new(Shared(bound, None)), on_device: None, patterns, known: Mutex::default() })
    }

    /// As [`PatternLinks::new_with`], also for fields in memory of this device ([`PatternLinks::schedule_exchange`]). All ranks give a
    /// device each. Their bytes go through slots in memory of the receiver's device, which the sender's device reaches: within a process,
    /// or between processes of a node that can map it. Refused as [`crate::BindError::Path`] where it cannot be: bind there.
    pub fn on_device(
        comm: &Communicator,
        patterns: &[&Pattern],
        device: &Device,
        options: &BindOptions,
    ) -> Result<Self, Error> {
        let links = Self::new_with(comm, patterns, options)?;
        let on_device = Some(OnDevice::new(comm, patterns, device, options)?);
        Ok(Self { on_device, ..links })
    }

    /// Starts an exchange of fields and returns. All ranks give the same number of fields of the same patterns, element types and
    /// extra dimensions. Layouts and memories may differ between ranks and between exchanges. Fields match as in
    /// [`crate::HaloExchange::bind`]; the rules until the wait are those of [`crate::HaloExchange::exchange`].
    ///
    /// A field that does not fit its pattern is refused here, before anything is sent; peers that have begun the exchange
    /// wait for this rank. Fields that do not fit those of a peer make the object fail at both ranks with
    /// [`crate::Cause::Fields`].
    ///
    /// Fields of a device are exchanged after all earlier work of the producer streams ([`BindOptions::streams`]).
    ///
    /// [`FieldList::fields`](crate::FieldList::fields) turns any list that a bind accepts into one of plain fields. It allocates: make
    /// the list once for fields that are exchanged again.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, FieldList, PatternLinks, RegularGrid};
    ///
    /// let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new((8, 6)).pattern(&comm, 1)?;
    /// let links = PatternLinks::new(&comm, &[&pattern])?;
    /// let extents = pattern.domain()?.extents();
    /// let arrays = [Array::<f64>::zeros(&comm, &extents)?, Array::zeros(&comm, &extents)?];
    /// let list = arrays.each_ref().map(|array| (&pattern, array));
    /// let fields = list.fields();
    /// for _ in 0..4 {
    ///     links.exchange(&fields)?.wait()?;
    /// }
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn exchange(&self, fields: &[(&Pattern, &Field)]) -> Result<Pending, Error> {
        self.begin(fields, None)
    }

    /// As [`PatternLinks::exchange`], in the order of streams: fields of the device are read and written after all work that these
    /// streams were given before. The host waits for no peer and no device, except where fields of new layouts need larger slots than any
    /// before: then for the progress threads of the processes that have to map them. An exchange of host fields starts at once, also
    /// beside fields of the device; [`Pending::schedule_wait`] blocks until it is complete. Host fields and fields of the device are
    /// numbered separately, in matching and in errors.
    ///
    /// A field of the device needs the layout of its peers, up to
    /// distances: an exchange whose fields differ in number, element type, extra dimensions or order of dimensions fails at both ranks
    /// with [`crate::Cause::Fields`].
    ///
    /// Streams can be under capture: the graph then keeps the fields, and each launch of it exchanges them. With host fields among them the
    /// call fails with [`Error::NotCapturable`].
    pub fn schedule_exchange(
        &self,
        fields: &[(&Pattern, &Field)],
        streams: &[&Stream],
    ) -> Result<Pending, Error> {
        self.begin(fields, Some(streams))
    }

    fn begin(&self, fields: &[(&Pattern, &Field)], streams: Option<&[&Stream]>) -> Result<Pending, Error> {
        let is_on_device = |(_, field): &&(&Pattern, &Field)| field.memory.device.is_some();
        let count = fields.iter().filter(is_on_device).count();
        let Some(on_device) = self.on_device.as_ref().filter(|_| count > 0) else {
            return self.begin_set(&self.known_set(fields)?, fields);
        };
        if count == fields.len() {
            return on_device.begin(on_device.prepare(fields)?, streams);
        }
        let (device_fields, host_fields): (Vec<_>, Vec<_>) =
            fields.iter().copied().partition(|field| is_on_device(&field));
        on_device.refuse_capture(streams)?;
        // All fields are checked before anything is sent.
        let (work, set) = (on_device.prepare(&device_fields)?, self.known_set(&host_fields)?);
        let host = Some(Box::new(self.begin_set(&set, &host_fields)?));
        Ok(Pending { host, ..on_device.begin(work, streams)? })
    }

    /// The set of these fields: that of the last call, if they are the same.
    fn known_set(&self, fields: &[(&Pattern, &Field)]) -> Result<Arc<Set>, Error> {
        // Most programs exchange the same fields again.
        let set = lock(&self.known)
            .last()
            .filter(|known| known.is_last(fields))
            .map(|known| Arc::clone(&known.set));
        set.map_or_else(|| self.set_of(fields), Ok)
    }

    fn begin_set(&self, set: &Arc<Set>, fields: &[(&Pattern, &Field)]) -> Result<Pending, Error> {
        let epoch = self.bound().begin(set, fields)?;
        Ok(Pending { bound: Arc::clone(self.bound()), epoch, scheduled: None, host: None })
    }

    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.shared.0
    }

    /// The set of these fields: remembered, or made now.
    fn set_of(&self, fields: &[(&Pattern, &Field)]) -> Result<Arc<Set>, Error> {
        if let Some(at) = fields.iter().position(|(pattern, _)| !self.patterns.contains(&pattern.id())) {
            return Err(Error::NoSuchPattern { field: at, patterns: self.patterns.len() });
        }
        if let Some(field) = fields.iter().position(|(_, field)| field.memory.device.is_some()) {
            return Err(Error::NotOnHost {
                field,
                instead: "make the links with PatternLinks::on_device, or bind it",
            });
        }
        let describe =
            || unbound::set(&self.bound().links, Local::new(&self.bound().life.comm, fields)?).map(Arc::new);
        if overlap(fields) {
            // The shared bytes are not part of a remembered combination.
            return describe();
        }
        let mut known = lock(&self.known);
        if let Some(at) = known.iter().rposition(|known| known.is_of(fields)) {
            let last = known.len() - 1;
            known[at..].rotate_left(usize::from(at < last));
            known[last].last.clear();
            known[last].last.extend(numbers(fields));
            return Ok(Arc::clone(&known[last].set));
        }
        let set = describe()?;
        if known.len() == Self::REMEMBERED {
            known.remove(0);
        }
        let described = (0..fields.len()).map(|at| Described::new(fields, at)).collect();
        known.push(Known { last: numbers(fields).collect(), fields: described, set: Arc::clone(&set) });
        Ok(set)
    }

    /// As [`HaloExchange::pending_at`](crate::HaloExchange::pending_at).
    pub fn pending_at(&self, epoch: u64) -> Option<Pending> {
        let is_begun = (1..=self.bound().epoch()).contains(&epoch);
        is_begun.then(|| Pending { bound: Arc::clone(self.bound()), epoch, scheduled: None, host: None })
    }

    /// The exchange of fields of the device with the number that [`Pending::epoch`] has returned.
    #[doc(hidden)]
    pub fn pending_on_device(&self, epoch: u64) -> Option<Pending> {
        let halo = &self.on_device.as_ref()?.halo;
        halo.has_begun(epoch).then(|| halo.pending_of(epoch))
    }

    /// Waits for the latest exchanges of host fields and of fields of the device, if there are any. Blocks.
    pub fn wait(&self) -> Result<(), Error> {
        self.bound().wait(self.bound().epoch())?;
        self.on_device.as_ref().map_or(Ok(()), |on_device| on_device.halo.wait())
    }

    /// As [`crate::HaloExchange::reclaim`].
    pub fn reclaim(&self) -> bool {
        let host = self.bound().reclaim();
        self.on_device.as_ref().is_none_or(|on_device| on_device.halo.reclaim()) && host
    }

    /// The links of this rank; between two ranks, fields of devices have links of their own.
    pub fn links(&self) -> impl Iterator<Item = LinkInfo> {
        let on_device = self.on_device.iter().flat_map(|on_device| on_device.halo.links());
        self.bound().links.iter().map(LinkInfo::of).chain(on_device)
    }

    /// A table of this rank's links: peer, path, medium, and the bytes of a slot.
    pub fn explain(&self) -> String {
        let on_device = self.on_device.as_ref().map(|on_device| explain::unbound_on_device(&on_device.halo));
        [explain::unbound(self.bound())].into_iter().chain(on_device).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Debug for PatternLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PatternLinks(epoch {}, {:?})", self.bound().epoch(), self.links().collect::<LinkCounts>())
    }
}

/// Whether fields of different memories may have bytes in common.
fn overlap(fields: &[(&Pattern, &Field)]) -> bool {
    let overlapping = fields.iter().flat_map(|(_, field)| field.memory.overlapping());
    overlapping
        .into_iter()
        .any(|state| fields.iter().any(|(_, other)| Arc::ptr_eq(&other.memory.state, state)))
}

fn numbers(fields: &[(&Pattern, &Field)]) -> impl Iterator<Item = (u64, Number)> {
    fields.iter().map(|(pattern, field)| (pattern.id(), field.number))
}

impl Known {
    fn is_last(&self, fields: &[(&Pattern, &Field)]) -> bool {
        numbers(fields).eq(self.last.iter().copied())
    }

    fn is_of(&self, fields: &[(&Pattern, &Field)]) -> bool {
        self.fields.len() == fields.len() && (0..fields.len()).all(|at| self.fields[at].is(fields, at))
    }
}

impl Described {
    fn new(fields: &[(&Pattern, &Field)], at: usize) -> Self {
        let (pattern, field) = fields[at];
        let (memory, offset) = home(fields, at);
        Self { pattern: pattern.id(), domain: field.domain, layout: field.layout.clone(), memory, offset }
    }

    fn is(&self, fields: &[(&Pattern, &Field)], at: usize) -> bool {
        let (pattern, field) = fields[at];
        (self.pattern, self.domain) == (pattern.id(), field.domain)
            && (self.memory, self.offset) == home(fields, at)
            && self.layout == field.layout
    }
}

/// The first field in the memory of field `at`, and how far apart in it the two are.
fn home(fields: &[(&Pattern, &Field)], at: usize) -> (usize, usize) {
    let field = fields[at].1;
    let same = |(_, other): &(&Pattern, &Field)| Arc::ptr_eq(&other.memory, &field.memory);
    let first = fields[..at].iter().position(same).unwrap_or(at);
    (first, field.offset.wrapping_sub(fields[first].1.offset))
}
