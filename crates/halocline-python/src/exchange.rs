//! Bound exchanges, and one exchange in flight.

use crate::array::{Arrays, Described, Watches, bytes_anywhere, bytes_of, field_of};
use crate::comm::PyCommunicator;
use crate::error;
use crate::ghex::Tie;
use crate::given::{Argument, Get, Given, List, Refusal, entries, entry, named};
use crate::grid::{PyPattern, Widths, collective, halo_of};
use crate::host::{self, Left};
use crate::options::{OfDevices, Words, counts, direction, options, paths, shown};
use crate::owned::{Closable, Member, Owned, drop_deferred};
use crate::stream::{Handles, Streams};
use crate::task::Waiting;
use crate::tensor::{Versions, Write, written};
use halocline::device::{Address, MemorySpace, cuda};
use halocline::{BindOptions, Device, Error, Field, Flags, HaloExchange, Pattern, Pending, Stream};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[doc = doc!("HaloExchange")]
#[pyclass(frozen, module = "halocline", name = "HaloExchange", weakref)]
pub(crate) struct PyHaloExchange {
    halo: Arc<Closable<HaloExchange>>,
    streams: Arc<Streams>,
    arrays: Arrays,
    member: Arc<Member>,
}

/// One (pattern, array) of a bind.
pub(crate) struct Binding<'py> {
    pattern: Py<PyPattern>,
    array: Bound<'py, PyAny>,
}

impl<'py> Argument<'py> for Binding<'py> {
    fn several() -> String {
        "pairs (pattern, array)".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let pair = entries::<2>(object, "a pair (pattern, array)")?;
        Ok(Self { pattern: entry(&pair, 0)?, array: entry(&pair, 1)? })
    }
}

/// What is made of one.
type Made<'a> = (&'a Pattern, Cow<'a, Field>);

/// The fields of a bind, with whatever is wrong with one of them said of it, and the tensors of PyTorch among them.
pub(crate) fn fields_of<'a>(
    comm: &PyCommunicator,
    bindings: &'a [Binding<'_>],
) -> PyResult<(Vec<Made<'a>>, Vec<Py<PyAny>>)> {
    let mut tensors = Vec::new();
    let field = |(at, Binding { pattern, array }): (usize, &'a Binding<'_>)| {
        let pattern = pattern.get();
        let made = pattern.check(comm).and_then(|()| field_of(array, &mut tensors));
        Ok((
            &pattern.pattern,
            made.map_err(|error| error::prefixed(array.py(), error, &format!("field {at}")))?,
        ))
    };
    let fields = bindings.iter().enumerate().map(field).collect::<PyResult<_>>()?;
    Ok((fields, tensors))
}

/// The devices of fields, each once, for their streams.
pub(crate) fn streams_of<'a>(
    py: Python<'_>,
    fields: impl Iterator<Item = &'a Field>,
) -> PyResult<Arc<Streams>> {
    let mut ordinals: Vec<u32> = Vec::new();
    for field in fields {
        if let MemorySpace::Device(ordinal) = field.space()
            && !ordinals.contains(&ordinal)
        {
            ordinals.push(ordinal);
        }
    }
    let opened = py.detach(|| ordinals.into_iter().map(cuda::device).collect::<Result<Vec<Device>, _>>());
    opened.map(|devices| Arc::new(Streams::of(devices))).map_err(|error| error::of(Error::from(error)))
}

type Sets = Vec<Vec<(Pattern, Field)>>;
type Prepared = (Sets, BindOptions, Arc<Streams>, Arrays);

/// What a bind needs of this rank.
fn prepared(
    py: Python<'_>,
    comm: &PyCommunicator,
    sets: PyResult<Vec<List<Binding<'_>>>>,
    options: PyResult<BindOptions>,
    of_devices: OfDevices,
) -> PyResult<Prepared> {
    let sets: Vec<Vec<Binding<'_>>> = sets?.into_iter().map(|set| set.0).collect();
    let mut tensors = Vec::new();
    let held = |set: &Vec<Binding<'_>>| {
        let (fields, of_set) = fields_of(comm, set)?;
        tensors.push(of_set);
        Ok(fields.into_iter().map(|(pattern, field)| (pattern.clone(), field.into_owned())).collect())
    };
    let fields: Sets = sets.iter().map(held).collect::<PyResult<_>>()?;
    let known = streams_of(py, fields.iter().flatten().map(|(_, field)| field))?;
    let options = of_devices.beside(options?, &known)?;
    let mut watches = Watches::new(options.is_checked().map_err(error::of)?);
    sets.iter().try_for_each(|set| watches.push(set.iter().map(|binding| &binding.array)))?;
    Ok((fields, options, known, Arrays { watches, versions: Versions::new(tensors) }))
}

fn bound(
    py: Python<'_>,
    comm: &Py<PyCommunicator>,
    prepared: PyResult<Prepared>,
) -> PyResult<PyHaloExchange> {
    let bound = collective(py, comm, "bind", prepared, |comm, (sets, options, streams, arrays)| {
        let sets: Vec<Vec<(&Pattern, &Field)>> =
            sets.iter().map(|set| set.iter().map(|(pattern, field)| (pattern, field)).collect()).collect();
        let sets: Vec<&[(&Pattern, &Field)]> = sets.iter().map(Vec::as_slice).collect();
        Ok((HaloExchange::bind_alternatives(comm, &sets, &options)?, streams, arrays))
    });
    drop_deferred(py);
    let (halo, streams, arrays) = bound?;
    Ok(PyHaloExchange::of(halo, streams, arrays, comm.get().member()))
}

impl PyHaloExchange {
    pub(crate) fn of(
        halo: HaloExchange,
        streams: Arc<Streams>,
        arrays: Arrays,
        member: &Arc<Member>,
    ) -> Self {
        Self { halo: member.hold(halo), streams, arrays, member: Arc::clone(member) }
    }

    /// A handle of other sets of the same object.
    fn beside(&self, halo: HaloExchange, arrays: Arrays) -> Self {
        Self::of(halo, Arc::clone(&self.streams), arrays, &self.member)
    }

    /// One stream of the devices of its fields.
    pub(crate) fn stream(&self, stream: Option<Given<Handles>>) -> PyResult<Arc<Stream>> {
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        streams
            .into_iter()
            .next()
            .ok_or_else(|| error::value("the exchange has no field of a GPU on this rank"))
    }

    /// A message that a device reaches, and the stream in whose order it is used.
    fn message(
        &self,
        message: &Bound<'_, PyAny>,
        to_write: bool,
        stream: Option<Given<Handles>>,
    ) -> PyResult<(Address, usize, Described, Arc<Stream>)> {
        let (base, bytes, held) = bytes_anywhere(message, to_write)?;
        Ok((base.addr().get() as Address, bytes, held, self.stream(stream)?))
    }

    fn pending(&self, pending: Pending, write: Option<Arc<Write>>) -> PyPending {
        let (streams, left) = (Some(Arc::clone(&self.streams)), self.halo.left());
        PyPending {
            pending: Owned::new(pending),
            streams,
            left,
            is_brief: false,
            write,
            tie: OnceLock::new(),
        }
    }
}

#[pymethods]
impl PyHaloExchange {
    #[new]
    #[pyo3(signature = (comm, fields, *, link = Given::of("auto"), deadline = None, name = None, checked = None, streams = None, inline = Given::of(false), stream_waits = Given::of(false), flags = Given::of(Flags::Auto)), text_signature = "(comm, fields, *, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=False, flags='auto')")]
    #[expect(clippy::too_many_arguments, reason = "by keyword")]
    fn new(
        py: Python<'_>,
        comm: Given<Py<PyCommunicator>>,
        fields: Given<List<Binding<'_>>>,
        link: Given<String>,
        deadline: Option<Given<Duration>>,
        name: Option<Given<String>>,
        checked: Option<Given<bool>>,
        streams: Option<Given<Handles>>,
        inline: Given<bool>,
        stream_waits: Given<bool>,
        flags: Given<Words>,
    ) -> PyResult<Self> {
        named!(comm);
        let sets = fields.get("fields").map(|fields| vec![fields]);
        let options = options(link, deadline, name, checked);
        let of_devices = OfDevices { streams, inline, stream_waits, flags };
        bound(py, &comm, prepared(py, comm.get(), sets, options, of_devices))
    }

    #[doc = doc!("HaloExchange.alternatives")]
    #[staticmethod]
    #[pyo3(signature = (comm, sets, *, link = Given::of("auto"), deadline = None, name = None, checked = None, streams = None, inline = Given::of(false), stream_waits = Given::of(false), flags = Given::of(Flags::Auto)), text_signature = "(comm, sets, *, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=False, flags='auto')")]
    #[expect(clippy::too_many_arguments, reason = "by keyword")]
    fn alternatives(
        py: Python<'_>,
        comm: Given<Py<PyCommunicator>>,
        sets: Given<List<List<Binding<'_>>>>,
        link: Given<String>,
        deadline: Option<Given<Duration>>,
        name: Option<Given<String>>,
        checked: Option<Given<bool>>,
        streams: Option<Given<Handles>>,
        inline: Given<bool>,
        stream_waits: Given<bool>,
        flags: Given<Words>,
    ) -> PyResult<Self> {
        named!(comm);
        let sets = sets.get("sets").map(|sets| sets.0);
        let options = options(link, deadline, name, checked);
        let of_devices = OfDevices { streams, inline, stream_waits, flags };
        bound(py, &comm, prepared(py, comm.get(), sets, options, of_devices))
    }

    #[doc = doc!("HaloExchange.exchange")]
    #[pyo3(signature = (*, wait = Given::of(true), set = Given::of(0usize), streams = None), text_signature = "($self, *, wait=True, set=0, streams=None)")]
    fn exchange(
        &self,
        py: Python<'_>,
        wait: Given<bool>,
        set: Given<usize>,
        streams: Option<Given<Handles>>,
    ) -> PyResult<Option<PyPending>> {
        named!(wait, set, streams);
        let halo = self.halo.get()?;
        let streams = streams.map(|streams| self.streams.get(&streams.0)).transpose()?;
        self.arrays.watches.check(py, set)?;
        let write = self.arrays.versions.begin(py, set)?;
        let mut has_begun = false;
        let pending = py.detach(|| {
            let pending = match streams {
                None => halo.begin().set(set).start()?,
                Some(streams) => {
                    halo.begin().set(set).after(&streams.iter().map(|s| &**s).collect::<Vec<_>>()).start()?
                }
            };
            has_begun = true;
            match wait {
                true => pending.wait().map(|()| None),
                false => Ok(Some(pending)),
            }
        });
        drop_deferred(py);
        if has_begun {
            self.arrays.versions.begun(write.as_ref());
        }
        match pending.map_err(error::of) {
            Ok(Some(pending)) => Ok(Some(self.pending(pending, write))),
            waited => Write::end(write.as_ref(), py, waited.map(|_| None)),
        }
    }

    #[doc = doc!("HaloExchange.exchange_async")]
    #[pyo3(signature = (*, set = Given::of(0usize), streams = None), text_signature = "($self, *, set=0, streams=None)")]
    fn exchange_async(
        &self,
        py: Python<'_>,
        set: Given<usize>,
        streams: Option<Given<Handles>>,
    ) -> PyResult<Option<PyPending>> {
        self.exchange(py, Given::of(false), set, streams)
    }

    #[doc = doc!("HaloExchange.schedule_exchange")]
    #[pyo3(signature = (stream = None, *, set = Given::of(0usize)), text_signature = "($self, stream=None, *, set=0)")]
    fn schedule_exchange(
        &self,
        py: Python<'_>,
        stream: Option<Given<Handles>>,
        set: Given<usize>,
    ) -> PyResult<PyPending> {
        named!(set);
        let halo = self.halo.get()?;
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        self.arrays.watches.check(py, set)?;
        let write = self.arrays.versions.begin(py, set)?;
        let pending = py.detach(|| {
            halo.begin()
                .set(set)
                .after(&streams.iter().map(|stream| &**stream).collect::<Vec<_>>())
                .schedule()
        });
        drop_deferred(py);
        let pending = pending.map_err(error::of)?;
        self.arrays.versions.begun(write.as_ref());
        Ok(self.pending(pending, write))
    }

    #[doc = doc!("HaloExchange.schedule_wait")]
    #[pyo3(signature = (stream = None))]
    fn schedule_wait(&self, py: Python<'_>, stream: Option<Given<Handles>>) -> PyResult<()> {
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        let write = self.arrays.versions.last();
        self.halo
            .get()?
            .pending()
            .map_or(Ok(()), |pending| schedule_wait(py, &pending, &streams, write.as_ref()))
    }

    #[doc = doc!("HaloExchange.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let halo = self.halo.get()?;
        let write = self.arrays.versions.last();
        let waited = py.detach(|| halo.wait()).map_err(error::of);
        Write::end(write.as_ref(), py, waited)
    }

    #[doc = doc!("HaloExchange.pending")]
    #[getter(pending)]
    fn last(&self) -> PyResult<Option<PyPending>> {
        Ok(self.halo.get()?.pending().map(|pending| self.pending(pending, self.arrays.versions.last())))
    }

    #[doc = doc!("HaloExchange.sets")]
    #[getter]
    fn sets(&self) -> PyResult<usize> {
        Ok(self.halo.get()?.sets())
    }

    #[doc = doc!("HaloExchange.alternative")]
    fn alternative(&self, set: Given<usize>) -> PyResult<Self> {
        named!(set);
        let halo = self.halo.get()?.alternative(set).map_err(error::of)?;
        Ok(self.beside(halo, self.arrays.alternative(set)))
    }

    #[doc = doc!("HaloExchange.narrowed")]
    #[pyo3(signature = (halo, *, neighbours = Given::of("all")), text_signature = "($self, halo, *, neighbours='all')")]
    fn narrowed(&self, py: Python<'_>, halo: Given<Widths>, neighbours: Given<String>) -> PyResult<Self> {
        let to = halo_of(halo, neighbours);
        let halo = self.halo.get()?;
        let given = to.as_ref().map_err(|error| Error::Bind(error.value(py).to_string()));
        let narrowed = py.detach(|| halo.narrowed_if(given));
        to?;
        Ok(self.beside(narrowed.map_err(error::of)?, self.arrays.clone()))
    }

    #[doc = doc!("HaloExchange.reclaim")]
    fn reclaim(&self, py: Python<'_>) -> PyResult<bool> {
        let (halo, write) = (self.halo.get()?, self.arrays.versions.last());
        let is_over = py.detach(|| halo.reclaim());
        if is_over {
            Write::end(write.as_ref(), py, Ok(()))?;
        }
        Ok(is_over)
    }

    #[doc = doc!("HaloExchange.links")]
    #[getter]
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counts(py, self.halo.get()?.links())
    }

    #[doc = doc!("HaloExchange.paths")]
    #[getter]
    fn paths(&self) -> PyResult<Vec<(usize, &'static str, String)>> {
        Ok(paths(self.halo.get()?.paths()))
    }

    #[doc = doc!("HaloExchange.explain")]
    fn explain(&self) -> PyResult<String> {
        Ok(error::in_python(self.halo.get()?.explain()))
    }

    #[doc = doc!("HaloExchange.message_bytes")]
    fn message_bytes(&self, peer: Given<usize>, direction: Given<String>) -> PyResult<usize> {
        named!(peer, direction);
        self.halo.get()?.message_bytes(peer, self::direction(&direction)?).map_err(error::of)
    }

    #[doc = doc!("HaloExchange.pack")]
    #[pyo3(signature = (peer, message, stream = None))]
    fn pack(
        &self,
        py: Python<'_>,
        peer: Given<usize>,
        message: &Bound<'_, PyAny>,
        stream: Option<Given<Handles>>,
    ) -> PyResult<()> {
        named!(peer);
        let halo = self.halo.get()?;
        if halo.is_of_devices() {
            let (address, bytes, held, stream) = self.message(message, true, stream)?;
            // SAFETY: the owner of the memory says that so many bytes may be written. The program keeps them and leaves
            // them alone until the stream is through, as with a kernel of its own (the documentation says so).
            py.detach(|| unsafe { halo.pack_on(peer, address, bytes, &stream) }).map_err(error::of)?;
            return written(message, &held);
        }
        let (base, len, held) = bytes_of(message, true)?;
        // SAFETY: the owner of the buffer says that so many bytes may be written, and `held` keeps it. Other threads of
        // the program leave a buffer alone that is being filled, as with any call of Python (the documentation says
        // so).
        let bytes = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) };
        py.detach(|| halo.pack(peer, bytes)).map_err(error::of)?;
        written(message, &held)
    }

    #[doc = doc!("HaloExchange.unpack")]
    #[pyo3(signature = (peer, message, stream = None))]
    fn unpack(
        &self,
        py: Python<'_>,
        peer: Given<usize>,
        message: &Bound<'_, PyAny>,
        stream: Option<Given<Handles>>,
    ) -> PyResult<()> {
        named!(peer);
        let halo = self.halo.get()?;
        if halo.is_of_devices() {
            let (address, bytes, _held, stream) = self.message(message, false, stream)?;
            // SAFETY: the owner of the memory says that so many bytes may be read; they are elements, as the peer has
            // packed them. The program keeps them and leaves them alone until the stream is through, as with a kernel
            // of its own (the documentation says so).
            py.detach(|| unsafe { halo.unpack_on(peer, address, bytes, &stream) }).map_err(error::of)?;
            return self.arrays.versions.increment(py);
        }
        let (base, len, _held) = bytes_of(message, false)?;
        // SAFETY: the owner of the buffer says that so many bytes may be read, and `_held` keeps it. Other threads of
        // the program do not write a buffer that is being read, as with any call of Python (the documentation says so).
        let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), len) };
        py.detach(|| halo.unpack(peer, bytes)).map_err(error::of)?;
        self.arrays.versions.increment(py)
    }

    fn __repr__(&self) -> String {
        let halo = self.halo.get();
        let last = |halo: &HaloExchange| halo.pending().map_or(0, |pending| pending.epoch());
        let shown = halo.map(|halo| format!("exchange {}, links: {}", last(&halo), shown(halo.links())));
        format!("HaloExchange({})", shown.unwrap_or_else(|_| "closed".to_owned()))
    }
}

#[doc = doc!("Pending")]
#[pyclass(frozen, module = "halocline", name = "Pending", weakref)]
pub(crate) struct PyPending {
    pending: Owned<Pending>,
    /// None: of host fields.
    streams: Option<Arc<Streams>>,
    left: Left,
    /// What is left of it takes less time than to let go of the GIL, once the peers have come, who do not need this one.
    is_brief: bool,
    /// None: no tensors of PyTorch.
    write: Option<Arc<Write>>,
    /// Of exchanges through GHEX's interface.
    tie: OnceLock<Tie>,
}

/// Looks of a wait before it lets go of the GIL: about as long as that takes.
const LOOKS: u32 = 16;

impl PyPending {
    /// One of host fields.
    pub(crate) fn of_host(pending: Pending, left: Left, is_brief: bool, write: Option<Arc<Write>>) -> Self {
        let (streams, tie) = (None, OnceLock::new());
        Self { pending: Owned::new(pending), streams, left, is_brief, write, tie }
    }

    /// From now on tells whether it is a scheduled exchange of a communication object.
    pub(crate) fn tie(&self, tie: Tie) {
        // It has one of its own only if it is tied twice.
        self.tie.get_or_init(|| tie);
    }

    fn end<T>(&self, py: Python<'_>, waited: PyResult<T>) -> PyResult<T> {
        if waited.is_ok()
            && let Some(tie) = self.tie.get()
        {
            tie.end();
        }
        Write::end(self.write.as_ref(), py, waited)
    }

    /// The exchange, to be waited for by this thread.
    pub(crate) fn get(&self) -> PyResult<&Pending> {
        host::waits_for(&self.left);
        self.pending.get()
    }
}

fn schedule_wait(
    py: Python<'_>,
    pending: &Pending,
    streams: &[Arc<Stream>],
    write: Option<&Arc<Write>>,
) -> PyResult<()> {
    let waited = py.detach(|| match streams.is_empty() {
        true => pending.wait(),
        false => streams.iter().try_for_each(|stream| pending.schedule_wait(stream)),
    });
    drop_deferred(py);
    Write::end(write, py, waited.map_err(error::of))
}

#[pymethods]
impl PyPending {
    #[doc = doc!("Pending.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let pending = self.get()?;
        let waited = if self.is_brief { pending.wait_briefly(LOOKS) } else { None };
        let waited = waited.unwrap_or_else(|| py.detach(|| pending.wait()));
        drop_deferred(py);
        self.end(py, waited.map_err(error::of))
    }

    #[doc = doc!("Pending.schedule_wait")]
    #[pyo3(signature = (stream = None))]
    fn schedule_wait(&self, py: Python<'_>, stream: Option<Given<Handles>>) -> PyResult<()> {
        let pending = self.get()?;
        let handles = Handles::of_call(stream)?;
        let streams = self.streams.as_ref().map_or(Ok(Vec::new()), |streams| streams.get(&handles))?;
        schedule_wait(py, pending, &streams, self.write.as_ref())?;
        if let Some(tie) = self.tie.get() {
            tie.schedule();
        }
        Ok(())
    }

    #[doc = doc!("Pending.is_ready")]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        match self._is_over(py) {
            Ok(false) => Ok(false),
            over => self.end(py, over),
        }
    }

    /// The same where the program is not told: for `halocline/compat/ghex/_bound.py`.
    fn _is_over(&self, py: Python<'_>) -> PyResult<bool> {
        let pending = self.pending.get()?;
        let ready = py.detach(|| pending.is_ready());
        drop_deferred(py);
        ready.map_err(error::of)
    }

    #[doc = doc!("Pending.progress")]
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        self._is_over(py).map(drop)
    }

    #[doc = doc!("Pending.epoch")]
    #[getter]
    fn epoch(&self) -> PyResult<u64> {
        Ok(self.pending.get()?.epoch())
    }

    /// For `await`: see `halocline/_async.py`.
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let waiting = Waiting::new(self.pending.get()?.clone(), self.write.clone());
        static FINISHED: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
        let finished = FINISHED.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import("halocline._async")?.getattr("finished")?.unbind())
        })?;
        finished.bind(py).call1((Py::new(py, waiting)?,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let shown = self.pending.get().map(|pending| format!("exchange {}", pending.epoch()));
        format!("Pending({})", shown.unwrap_or_else(|_| "of the parent process".to_owned()))
    }
}

/// Seconds that an exchange takes, begun and waited for by Rust, or scheduled and waited for on a stream: what the benchmarks compare
/// with.
#[pyfunction(name = "_time_exchanges", signature = (halo, rounds, stream = None))]
pub(crate) fn time_exchanges(
    py: Python<'_>,
    halo: &PyHaloExchange,
    rounds: u32,
    stream: Option<Given<Handles>>,
) -> PyResult<f64> {
    let streams = stream.get("stream")?.map_or(Ok(Vec::new()), |stream| halo.streams.get(&stream.0))?;
    let halo = halo.halo.get()?;
    let outcome = py.detach(|| {
        let start = std::time::Instant::now();
        (0..rounds).try_for_each(|_| match streams.first() {
            None => halo.exchange()?.wait(),
            Some(stream) => halo.schedule_exchange(&[stream])?.schedule_wait(stream),
        })?;
        Ok::<_, halocline::Error>(start.elapsed().as_secs_f64() / f64::from(rounds.max(1)))
    });
    outcome.map_err(error::of)
}
