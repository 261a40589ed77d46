//! Bound exchanges.

use crate::argument::{Argument, Get, List, accept};
use crate::array::{Arrays, Described, bytes_anywhere, bytes_of};
use crate::bind::{Binding, BindingSet, bind};
use crate::comm::PyCommunicator;
use crate::error;
use crate::gather;
use crate::grid::{Widths, halo_of};
use crate::options::{Keywords, direction, links, shown};
use crate::pending::{PyPending, schedule_wait};
use crate::process_local::{Closable, Member, drop_deferred};
use crate::stream::{Handles, Streams};
use crate::tensor::{Write, written};
use halocline::device::Address;
use halocline::{Begin, Error, HaloExchange, Pending, ReduceOp, Stream};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

#[doc = doc!("HaloExchange")]
#[pyclass(frozen, module = "halocline", name = "HaloExchange", weakref)]
pub(crate) struct PyHaloExchange {
    halo: Arc<Closable<HaloExchange>>,
    streams: Arc<Streams>,
    arrays: Arrays,
    member: Arc<Member>,
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

    /// The object, for calls that Python does not make.
    pub(crate) fn handle(&self) -> Arc<Closable<HaloExchange>> {
        Arc::clone(&self.halo)
    }

    /// A handle of the same object with other sets.
    fn beside(&self, halo: HaloExchange, arrays: Arrays) -> Self {
        Self::of(halo, Arc::clone(&self.streams), arrays, &self.member)
    }

    /// The first of the streams on devices of the fields.
    pub(crate) fn stream(&self, stream: Option<Argument<Handles>>) -> PyResult<Arc<Stream>> {
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        streams
            .into_iter()
            .next()
            .ok_or_else(|| error::value_error("stream: the exchange has no field in GPU memory on this rank"))
    }

    /// The buffer of `pack` or `unpack` for device fields, and the stream that orders its use.
    fn message(
        &self,
        message: &Bound<'_, PyAny>,
        to_write: bool,
        stream: Option<Argument<Handles>>,
    ) -> PyResult<(Address, usize, Described, Arc<Stream>)> {
        let (base, bytes, held) = bytes_anywhere(message, to_write)?;
        Ok((base.addr().get() as Address, bytes, held, self.stream(stream)?))
    }

    fn pending(&self, pending: Pending, write: Option<Arc<Write>>) -> PyPending {
        PyPending::of_devices(pending, Arc::clone(&self.streams), self.halo.left(), write)
    }

    /// Begins an exchange or a reduce of a set, and waits for it unless a handle is asked for.
    fn start(
        &self,
        (py, halo): (Python<'_>, &HaloExchange),
        set: usize,
        wait: bool,
        begin: impl Send + FnOnce(Begin<'_>) -> Result<Pending, Error>,
    ) -> PyResult<Option<PyPending>> {
        let (pending, write) = self.begin((py, halo), set, begin, |pending| match wait {
            true => pending.wait().map(|()| None),
            false => Ok(Some(pending)),
        })?;
        match pending {
            Some(pending) => Ok(Some(self.pending(pending, write))),
            None => Write::end(write.as_ref(), py, Ok(None)),
        }
    }

    /// Schedules an exchange or a reduce of a set after earlier work of streams.
    fn schedule(
        &self,
        (py, set): (Python<'_>, usize),
        stream: Option<Argument<Handles>>,
        choose: impl Send + FnOnce(Begin<'_>) -> Begin<'_>,
    ) -> PyResult<PyPending> {
        let halo = self.halo.get()?;
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        let begin = |begin: Begin<'_>| {
            let streams: Vec<_> = streams.iter().map(|stream| &**stream).collect();
            choose(begin).after(&streams).schedule()
        };
        let (pending, write) = self.begin((py, &halo), set, begin, Ok)?;
        Ok(self.pending(pending, write))
    }

    /// Begins an exchange or a reduce of a set, and calls `then` while the GIL is released. Also returns the tensors that it writes.
    fn begin<T: Send>(
        &self,
        (py, halo): (Python<'_>, &HaloExchange),
        set: usize,
        begin: impl Send + FnOnce(Begin<'_>) -> Result<Pending, Error>,
        then: impl Send + FnOnce(Pending) -> Result<T, Error>,
    ) -> PyResult<(T, Option<Arc<Write>>)> {
        self.arrays.watches.check(py, set)?;
        let write = self.arrays.versions.begin(py, set)?;
        let mut has_begun = false;
        let outcome = py.detach(|| {
            let pending = begin(halo.begin().set(set))?;
            has_begun = true;
            then(pending)
        });
        drop_deferred(py);
        if has_begun {
            self.arrays.versions.begun(write.as_ref());
        }
        match outcome.map_err(error::of) {
            Ok(outcome) => Ok((outcome, write)),
            Err(error) => Write::end(write.as_ref(), py, Err(error)),
        }
    }
}

/// How a reduce combines.
fn operation(op: Argument<String>) -> PyResult<ReduceOp> {
    accept!(op);
    ReduceOp::from_name(&op).ok_or_else(|| {
        let names = ReduceOp::ALL.map(ReduceOp::name).join(", ");
        error::value_error(format!("op: {op:?} is none of {names}"))
    })
}

#[pymethods]
impl PyHaloExchange {
    #[new]
    #[pyo3(signature = (comm, fields, **options), text_signature = "(comm, fields, *, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=None, ll=None)")]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        fields: Argument<List<Binding<'_>>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Keywords::all("HaloExchange", options)?;
        accept!(comm);
        let set = |fields: List<_>| vec![BindingSet { name: "fields".to_owned(), bindings: fields.0 }];
        let sets = fields.get("fields").map(set);
        bind(py, &comm, sets, &options)
    }

    #[doc = doc!("HaloExchange.alternatives")]
    #[staticmethod]
    #[pyo3(signature = (comm, sets, **options), text_signature = "(comm, sets, *, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=None, ll=None)")]
    fn alternatives(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        sets: Argument<List<List<Binding<'_>>>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Keywords::all("alternatives", options)?;
        accept!(comm);
        let set = |(at, set): (usize, List<_>)| BindingSet { name: format!("sets[{at}]"), bindings: set.0 };
        let sets = sets.get("sets").map(|sets| sets.0.into_iter().enumerate().map(set).collect());
        bind(py, &comm, sets, &options)
    }

    #[doc = doc!("HaloExchange.exchange")]
    #[pyo3(signature = (*, wait = Argument::of(true), set = Argument::of(0usize), streams = None), text_signature = "($self, *, wait=True, set=0, streams=None)")]
    fn exchange(
        &self,
        py: Python<'_>,
        wait: Argument<bool>,
        set: Argument<usize>,
        streams: Option<Argument<Handles>>,
    ) -> PyResult<Option<PyPending>> {
        accept!(wait, set, streams);
        let halo = self.halo.get()?;
        let streams = streams.map(|streams| self.streams.get(&streams.0)).transpose()?;
        self.start((py, &halo), set, wait, |begin| match streams {
            None => begin.start(),
            Some(streams) => begin.after(&streams.iter().map(|s| &**s).collect::<Vec<_>>()).start(),
        })
    }

    #[doc = doc!("HaloExchange.exchange_async")]
    #[pyo3(signature = (*, set = Argument::of(0usize), streams = None), text_signature = "($self, *, set=0, streams=None)")]
    fn exchange_async(
        &self,
        py: Python<'_>,
        set: Argument<usize>,
        streams: Option<Argument<Handles>>,
    ) -> PyResult<Option<PyPending>> {
        self.exchange(py, Argument::of(false), set, streams)
    }

    #[doc = doc!("HaloExchange.reduce")]
    #[pyo3(signature = (op = Argument::of("sum"), *, keep = Argument::of(false), wait = Argument::of(true), set = Argument::of(0usize)), text_signature = "($self, op='sum', *, keep=False, wait=True, set=0)")]
    fn reduce(
        &self,
        py: Python<'_>,
        op: Argument<String>,
        keep: Argument<bool>,
        wait: Argument<bool>,
        set: Argument<usize>,
    ) -> PyResult<Option<PyPending>> {
        accept!(keep, wait, set);
        let halo = self.halo.get()?;
        let op = operation(op)?;
        self.start((py, &halo), set, wait, |begin| begin.reduce(op).keep_halo(keep).start())
    }

    #[doc = doc!("HaloExchange.schedule_reduce")]
    #[pyo3(signature = (op = Argument::of("sum"), stream = None, *, keep = Argument::of(false), set = Argument::of(0usize)), text_signature = "($self, op='sum', stream=None, *, keep=False, set=0)")]
    fn schedule_reduce(
        &self,
        py: Python<'_>,
        op: Argument<String>,
        stream: Option<Argument<Handles>>,
        keep: Argument<bool>,
        set: Argument<usize>,
    ) -> PyResult<PyPending> {
        accept!(keep, set);
        let op = operation(op)?;
        self.schedule((py, set), stream, |begin| begin.reduce(op).keep_halo(keep))
    }

    #[doc = doc!("HaloExchange.fetch_and_op")]
    #[pyo3(signature = (op = Argument::of("sum")), text_signature = "($self, op='sum')")]
    fn fetch_and_op(&self, py: Python<'_>, op: Argument<String>) -> PyResult<()> {
        let halo = self.halo.get()?;
        let write = || {
            let op = operation(op)?;
            self.arrays.watches.check(py, 0)?;
            Ok((op, self.arrays.versions.begin(py, 0)?))
        };
        let write: PyResult<(ReduceOp, Option<Arc<Write>>)> = write();
        let op = write.as_ref().map(|(op, _)| *op);
        let op = op.map_err(|error| Error::RefusedArguments(error.value(py).to_string()));
        let fetched = py.detach(|| halo.fetch_and_op_if(op));
        drop_deferred(py);
        Write::end(write?.1.as_ref(), py, fetched.map_err(error::of))
    }

    #[doc = doc!("HaloExchange.degree")]
    fn degree<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let halo = self.halo.get()?;
        let degree = py.detach(|| halo.degree()).map_err(error::of)?;
        degree.into_iter().map(|array| gather::to_numpy(py, (*array).clone())).collect()
    }

    #[doc = doc!("HaloExchange.schedule_exchange")]
    #[pyo3(signature = (stream = None, *, set = Argument::of(0usize)), text_signature = "($self, stream=None, *, set=0)")]
    fn schedule_exchange(
        &self,
        py: Python<'_>,
        stream: Option<Argument<Handles>>,
        set: Argument<usize>,
    ) -> PyResult<PyPending> {
        accept!(set);
        self.schedule((py, set), stream, |begin| begin)
    }

    #[doc = doc!("HaloExchange.schedule_wait")]
    #[pyo3(signature = (stream = None))]
    fn schedule_wait(&self, py: Python<'_>, stream: Option<Argument<Handles>>) -> PyResult<()> {
        let streams = self.streams.get(&Handles::of_call(stream)?)?;
        let write = self.arrays.versions.last();
        let halo = self.halo.get()?;
        let pending = match streams.first() {
            Some(stream) => halo.pending_on(stream).map_err(error::of)?,
            None => halo.pending(),
        };
        pending.map_or(Ok(()), |pending| schedule_wait(py, &pending, &streams, write.as_ref()))
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
    fn alternative(&self, set: Argument<usize>) -> PyResult<Self> {
        accept!(set);
        let halo = self.halo.get()?.alternative(set).map_err(error::of)?;
        Ok(self.beside(halo, self.arrays.alternative(set)))
    }

    #[doc = doc!("HaloExchange.narrowed")]
    #[pyo3(signature = (halo, *, neighbours = Argument::of("all")), text_signature = "($self, halo, *, neighbours='all')")]
    fn narrowed(
        &self,
        py: Python<'_>,
        halo: Argument<Widths>,
        neighbours: Argument<String>,
    ) -> PyResult<Self> {
        let to = halo_of(halo, neighbours);
        let halo = self.halo.get()?;
        let given = to.as_ref().map_err(|error| Error::RefusedArguments(error.value(py).to_string()));
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
    fn links(&self) -> PyResult<Vec<(usize, &'static str, String)>> {
        Ok(links(self.halo.get()?.links()))
    }

    #[doc = doc!("HaloExchange.explain")]
    fn explain(&self) -> PyResult<String> {
        Ok(error::in_python(self.halo.get()?.explain()))
    }

    #[doc = doc!("HaloExchange.message_bytes")]
    fn message_bytes(&self, peer: Argument<usize>, direction: Argument<String>) -> PyResult<usize> {
        accept!(peer, direction);
        self.halo.get()?.message_bytes(peer, self::direction(&direction)?).map_err(error::of)
    }

    #[doc = doc!("HaloExchange.pack")]
    #[pyo3(signature = (peer, message, stream = None))]
    fn pack(
        &self,
        py: Python<'_>,
        peer: Argument<usize>,
        message: &Bound<'_, PyAny>,
        stream: Option<Argument<Handles>>,
    ) -> PyResult<()> {
        accept!(peer);
        let halo = self.halo.get()?;
        if halo.is_of_devices() {
            let (address, bytes, held, stream) = self.message(message, true, stream)?;
            // SAFETY: by the array protocols `bytes` bytes at `address` are writable. The documentation obliges the program to keep the
            // buffer, and not to access it, until the stream has done the work.
            py.detach(|| unsafe { halo.pack_on(peer, address, bytes, &stream) }).map_err(error::of)?;
            return written(message, &held);
        }
        let (base, len, held) = bytes_of(message, true)?;
        // SAFETY: by the array protocols `len` bytes at `base` are writable, and `held` keeps them. The documentation obliges other
        // threads of the program not to access the buffer during the call.
        let bytes = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) };
        py.detach(|| halo.pack(peer, bytes)).map_err(error::of)?;
        written(message, &held)
    }

    #[doc = doc!("HaloExchange.unpack")]
    #[pyo3(signature = (peer, message, stream = None))]
    fn unpack(
        &self,
        py: Python<'_>,
        peer: Argument<usize>,
        message: &Bound<'_, PyAny>,
        stream: Option<Argument<Handles>>,
    ) -> PyResult<()> {
        accept!(peer);
        let halo = self.halo.get()?;
        if halo.is_of_devices() {
            let (address, bytes, _held, stream) = self.message(message, false, stream)?;
            // SAFETY: by the array protocols `bytes` bytes at `address` are readable; a peer's `pack` made them valid elements. The
            // documentation obliges the program to keep the buffer, and not to write it, until the stream has done the work.
            py.detach(|| unsafe { halo.unpack_on(peer, address, bytes, &stream) }).map_err(error::of)?;
            return self.arrays.versions.increment(py);
        }
        let (base, len, _held) = bytes_of(message, false)?;
        // SAFETY: by the array protocols `len` bytes at `base` are readable, and `_held` keeps them. The documentation obliges other
        // threads of the program not to write the buffer during the call.
        let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), len) };
        py.detach(|| halo.unpack(peer, bytes)).map_err(error::of)?;
        self.arrays.versions.increment(py)
    }

    fn __repr__(&self) -> String {
        let halo = self.halo.get();
        let last = |halo: &HaloExchange| halo.pending().map_or(0, |pending| pending.epoch());
        let shown =
            halo.map(|halo| format!("exchange {}, links: {}", last(&halo), shown(halo.links().collect())));
        format!("HaloExchange({})", shown.unwrap_or_else(|_| "closed".to_owned()))
    }
}

/// Seconds of an exchange that Rust starts and waits for, or schedules on a stream: the reference of the benchmarks.
#[pyfunction(name = "_time_exchanges", signature = (halo, rounds, stream = None))]
pub(crate) fn time_exchanges(
    py: Python<'_>,
    halo: &PyHaloExchange,
    rounds: u32,
    stream: Option<Argument<Handles>>,
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
