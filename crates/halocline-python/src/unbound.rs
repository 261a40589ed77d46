//! The unbound form: each exchange gets its fields.

use crate::argument::{Argument, Get, List, accept};
use crate::array::PyField;
use crate::bind::{Binding, BoundFields, fields_of};
use crate::comm::PyCommunicator;
use crate::error;
use crate::grid::{PyPattern, collective};
use crate::options::{Keywords, links, shown};
use crate::pending::PyPending;
use crate::process_local::{Closable, drop_deferred};
use crate::stream::{Handles, Streams};
use crate::tensor::{Last, Write};
use halocline::device::cuda;
use halocline::{Error, Field, Pattern, PatternLinks, Pending, Stream};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

#[doc = doc!("PatternLinks")]
#[pyclass(frozen, module = "halocline", name = "PatternLinks", weakref)]
pub(crate) struct PyPatternLinks {
    links: Arc<Closable<PatternLinks>>,
    comm: Py<PyCommunicator>,
    /// Whether starting an exchange only copies memory: no link uses messages, and no checksums are computed. Messages may wait for a thread
    /// inside the transport, so the GIL is released for them.
    only_copies: bool,
    /// Whether peers are threads of this process, which need the GIL to arrive.
    shares_gil: bool,
    /// The streams of the GPU whose fields can be given.
    streams: Option<Arc<Streams>>,
    last: Last,
}

fn begin(
    links: &PatternLinks,
    fields: &[(&Pattern, &Field)],
    streams: Option<&[Arc<Stream>]>,
) -> Result<Pending, Error> {
    match streams {
        None => links.exchange(fields),
        Some(streams) => {
            links.schedule_exchange(fields, &streams.iter().map(|stream| &**stream).collect::<Vec<_>>())
        }
    }
}

/// Initial capacity of the list of fields.
const USUAL: usize = 8;

/// Fields of at most so many bytes are copied faster than the GIL is released.
const LITTLE: usize = 1 << 14;

impl PyPatternLinks {
    /// Refuses closed links, and those of a parent process.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.links.with(|_| ())
    }

    /// `reclaim`, when the program does not learn the answer: its own wait still increments the counters of tensors.
    pub(crate) fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        let links = self.links.get()?;
        let is_over = py.detach(|| links.reclaim());
        drop_deferred(py);
        Ok(is_over)
    }

    /// Starts an exchange of fields whose patterns have the ranks of the links.
    pub(crate) fn begin_fields<'a>(
        &self,
        py: Python<'_>,
        fields: impl Iterator<Item = (&'a PyPattern, &'a PyField)>,
    ) -> PyResult<PyPending> {
        let mut given: Vec<(&Pattern, &Field)> = Vec::with_capacity(USUAL);
        let (mut bytes, mut tensors) = (0, Vec::new());
        for (pattern, array) in fields {
            let field = array.field()?;
            bytes += field.memory().len();
            given.push((&pattern.pattern, field));
            tensors.extend(array.tensor(py));
        }
        let write = Write::begin(py, tensors)?;
        let is_little = self.only_copies && bytes <= LITTLE;
        let pending = match is_little {
            true => self.links.with(|links| links.exchange(&given))?,
            false => {
                let links = self.links.get()?;
                py.detach(|| links.exchange(&given))
            }
        };
        drop_deferred(py);
        let pending = pending.map_err(error::of)?;
        self.last.set(write.as_ref());
        Ok(PyPending::of_host(pending, self.links.left(), is_little && !self.shares_gil, write))
    }

    /// The same for fields of the GPU, after all earlier work of streams, or of those of the links.
    pub(crate) fn begin_on_device<'a>(
        &self,
        py: Python<'_>,
        fields: impl Iterator<Item = (&'a PyPattern, &'a PyField)>,
        streams: Option<&[usize]>,
    ) -> PyResult<PyPending> {
        let mut given: Vec<(&Pattern, &Field)> = Vec::with_capacity(USUAL);
        let mut tensors = Vec::new();
        for (pattern, array) in fields {
            given.push((&pattern.pattern, array.field()?));
            tensors.extend(array.tensor(py));
        }
        let write = Write::begin(py, tensors)?;
        let links = self.links.get()?;
        let streams = streams.map(|handles| self.streams_of(handles)).transpose()?;
        let pending = py.detach(|| begin(&links, &given, streams.as_deref()));
        drop_deferred(py);
        let pending = pending.map_err(error::of)?;
        self.last.set(write.as_ref());
        Ok(self.pending(pending, write))
    }

    fn streams_of(&self, handles: &[usize]) -> PyResult<Vec<Arc<Stream>>> {
        self.streams.as_ref().map_or(Ok(Vec::new()), |streams| streams.get(handles))
    }

    fn pending(&self, pending: Pending, write: Option<Arc<Write>>) -> PyPending {
        match &self.streams {
            Some(streams) => PyPending::of_devices(pending, Arc::clone(streams), self.links.left(), write),
            None => PyPending::of_host(pending, self.links.left(), false, write),
        }
    }

    fn begin(
        &self,
        py: Python<'_>,
        fields: Vec<Binding<'_>>,
        wait: bool,
        streams: Option<Vec<usize>>,
    ) -> PyResult<Option<PyPending>> {
        let streams = streams.map(|handles| self.streams_of(&handles)).transpose()?;
        let links = self.links.get()?;
        let BoundFields { fields: made, tensors } = fields_of(self.comm.get(), "fields", &fields)?;
        let given: Vec<(&Pattern, &Field)> =
            made.iter().map(|(pattern, field)| (*pattern, field.as_ref())).collect();
        let write = Write::begin(py, tensors)?;
        let mut has_begun = false;
        let pending = py.detach(|| {
            let pending = begin(&links, &given, streams.as_deref())?;
            has_begun = true;
            match wait {
                true => pending.wait().map(|()| None),
                false => Ok(Some(pending)),
            }
        });
        drop(made);
        drop_deferred(py);
        if has_begun {
            self.last.set(write.as_ref());
        }
        match pending.map_err(error::of) {
            Ok(Some(pending)) => Ok(Some(self.pending(pending, write))),
            waited => Write::end(write.as_ref(), py, waited.map(|_| None)),
        }
    }
}

#[pymethods]
impl PyPatternLinks {
    #[new]
    #[pyo3(signature = (comm, patterns, **options), text_signature = "(comm, patterns, *, device=None, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=None)")]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        patterns: Argument<List<Py<PyPattern>>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Keywords::unbound("PatternLinks", options)?;
        accept!(comm);
        let prepared = || {
            let List(patterns) = patterns.get("patterns")?;
            for (at, pattern) in patterns.iter().enumerate() {
                let of_entry = |error| error::prefixed(py, error, &format!("patterns[{at}]"));
                pattern.get().check(comm.get()).map_err(of_entry)?;
            }
            let patterns: Vec<Pattern> =
                patterns.iter().map(|pattern| pattern.get().pattern.clone()).collect();
            let device = options
                .device()?
                .map(|gpu| py.detach(|| cuda::device(gpu)).map_err(error::of))
                .transpose()?;
            let streams = Streams::of(device.iter().cloned().collect());
            let options = options.options_with(&streams)?;
            let is_checked = options.is_checked().map_err(error::of)?;
            Ok((patterns, options, is_checked, device.map(|device| (device, Arc::new(streams)))))
        };
        let (links, is_checked, streams) = collective(
            py,
            &comm,
            "PatternLinks",
            prepared(),
            |comm, (patterns, options, is_checked, device)| {
                let patterns: Vec<&Pattern> = patterns.iter().collect();
                let (links, streams) = match device {
                    None => (PatternLinks::new_with(comm, &patterns, &options)?, None),
                    Some((device, streams)) => {
                        (PatternLinks::on_device(comm, &patterns, &device, &options)?, Some(streams))
                    }
                };
                Ok((links, is_checked, streams))
            },
        )?;
        // In checked mode checksums travel as messages.
        let only_copies = !is_checked && links.links().all(|link| link.path != halocline::LinkPath::Message);
        let shares_gil = comm.get().is_of_threads();
        let links = comm.get().member().hold(links);
        Ok(Self { links, comm, only_copies, shares_gil, streams, last: Last::default() })
    }

    #[doc = doc!("PatternLinks.exchange")]
    #[pyo3(signature = (fields, *, wait = Argument::of(true)), text_signature = "($self, fields, *, wait=True)")]
    fn exchange(
        &self,
        py: Python<'_>,
        fields: Argument<List<Binding<'_>>>,
        wait: Argument<bool>,
    ) -> PyResult<Option<PyPending>> {
        accept!(fields, wait);
        self.begin(py, fields.0, wait, None)
    }

    #[doc = doc!("PatternLinks.exchange_async")]
    fn exchange_async(
        &self,
        py: Python<'_>,
        fields: Argument<List<Binding<'_>>>,
    ) -> PyResult<Option<PyPending>> {
        accept!(fields);
        self.begin(py, fields.0, false, None)
    }

    #[doc = doc!("PatternLinks.schedule_exchange")]
    #[pyo3(signature = (fields, stream = None))]
    fn schedule_exchange(
        &self,
        py: Python<'_>,
        fields: Argument<List<Binding<'_>>>,
        stream: Option<Argument<Handles>>,
    ) -> PyResult<Option<PyPending>> {
        accept!(fields);
        let streams = Handles::of_call(stream)?;
        self.begin(py, fields.0, false, Some(streams))
    }

    #[doc = doc!("PatternLinks.wait")]
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let links = self.links.get()?;
        let write = self.last.get();
        let waited = py.detach(|| links.wait());
        drop_deferred(py);
        Write::end(write.as_ref(), py, waited.map_err(error::of))
    }

    #[doc = doc!("PatternLinks.reclaim")]
    fn reclaim(&self, py: Python<'_>) -> PyResult<bool> {
        let write = self.last.get();
        let is_over = self.is_over(py)?;
        if is_over {
            Write::end(write.as_ref(), py, Ok(()))?;
        }
        Ok(is_over)
    }

    #[doc = doc!("PatternLinks.links")]
    #[getter]
    fn links(&self) -> PyResult<Vec<(usize, &'static str, String)>> {
        Ok(links(self.links.get()?.links()))
    }

    #[doc = doc!("PatternLinks.explain")]
    fn explain(&self) -> PyResult<String> {
        Ok(error::in_python(self.links.get()?.explain()))
    }

    fn __repr__(&self) -> String {
        let shown = self.links.get().map(|links| format!("links: {}", shown(links.links().collect())));
        format!("PatternLinks({})", shown.unwrap_or_else(|_| "closed".to_owned()))
    }
}
