//! The fast path of exchanges through GHEX's interface: host fields of one pattern. All other cases, and the documentation of these
//! classes, are in `halocline/compat/ghex/_exchange.py`.

use crate::array::PyField;
use crate::call_lock::CallLock;
use crate::error;
use crate::grid::PyPattern;
use crate::pending::PyPending;
use crate::stream;
use crate::unbound::PyPatternLinks;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString, PyTuple};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A field descriptor of GHEX: an array of a domain.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "FieldDescriptor")]
pub(crate) struct FieldDescriptor {
    #[pyo3(get, name = "_domain")]
    domain: u64,
    #[pyo3(get, name = "_field")]
    field: Py<PyField>,
    /// The kind of grid: one object for each kind.
    #[pyo3(get, name = "_grid")]
    grid: Py<PyString>,
    #[pyo3(get, name = "_origin")]
    origin: Option<Py<PyAny>>,
}

#[pymethods]
impl FieldDescriptor {
    #[new]
    #[pyo3(signature = (domain, field, grid, origin = None))]
    fn new(domain: u64, field: Py<PyField>, grid: Py<PyString>, origin: Option<Py<PyAny>>) -> Self {
        Self { domain, field, grid, origin }
    }
}

/// A field with the pattern of its exchange.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "BufferInfo")]
pub(crate) struct BufferInfo {
    #[pyo3(get, name = "_pattern")]
    pattern: Py<PatternBase>,
    fields: Fields,
    #[pyo3(get, name = "_on_device")]
    on_device: bool,
}

/// A domain of GHEX is one domain of the core, or several that share an array.
enum Fields {
    One(Py<PyField>),
    Several(Vec<Py<PyField>>),
}

impl Fields {
    fn iter(&self) -> std::slice::Iter<'_, Py<PyField>> {
        match self {
            Self::One(field) => std::slice::from_ref(field).iter(),
            Self::Several(fields) => fields.iter(),
        }
    }
}

#[pymethods]
impl BufferInfo {
    #[new]
    fn new(pattern: Py<PatternBase>, fields: Vec<Py<PyField>>, on_device: bool) -> Self {
        Self { pattern, fields: Fields::Several(fields), on_device }
    }

    /// Pairs (pattern, field) for an exchange.
    #[getter]
    fn _fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let core = &self.pattern.get().core;
        PyList::new(py, self.fields.iter().map(|field| (core.clone_ref(py), field.clone_ref(py))))
    }
}

/// The links of a pattern for one exchange in flight.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "LinkSlot")]
pub(crate) struct LinkSlot {
    links: Py<PyPatternLinks>,
    /// The number of its last exchange, among all of the process; 0: none.
    begun: AtomicU64,
}

#[pymethods]
impl LinkSlot {
    #[new]
    fn new(links: Py<PyPatternLinks>) -> Self {
        Self { links, begun: AtomicU64::new(0) }
    }

    #[getter]
    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    fn begin(&self, py: Python<'_>, fields: Vec<(Py<PyPattern>, Py<PyField>)>) -> PyResult<PyPending> {
        self.begin_fields(py, fields.iter().map(|(pattern, field)| (pattern.get(), field.get())))
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.links.get().wait(py)
    }

    /// Whether its last exchange is over. True for closed links and those of a parent process.
    fn is_over(&self, py: Python<'_>) -> bool {
        self.links.get().is_over(py).unwrap_or(true)
    }
}

impl LinkSlot {
    fn begin_fields<'a>(
        &self,
        py: Python<'_>,
        fields: impl Iterator<Item = (&'a PyPattern, &'a PyField)>,
    ) -> PyResult<PyPending> {
        /// Numbers all exchanges of the process in the order of their starts.
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let pending = self.links.get().begin_fields(py, fields)?;
        self.begun.store(COUNT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(pending)
    }
}

/// Starts the exchanges of a pattern, on its link slots in turn.
#[pyclass(frozen, subclass, module = "halocline.compat.ghex._exchange", name = "PatternBase")]
pub(crate) struct PatternBase {
    #[pyo3(get, name = "_core")]
    core: Py<PyPattern>,
    #[pyo3(get)]
    grid_type: Py<PyString>,
    /// The domains that are a domain of the core with the same number, ascending.
    plain: Vec<u64>,
    slots: Vec<Py<LinkSlot>>,
    /// Held while an exchange starts, which may wait for an earlier one.
    beginning: CallLock,
    /// The links of fields of GPUs, made at the first exchange of some.
    device_links: OnceLock<Py<PyPatternLinks>>,
    /// The next slot. A refused exchange does not advance it, since other ranks do not start that exchange either.
    turn: AtomicUsize,
}

#[pymethods]
impl PatternBase {
    #[new]
    fn new(
        core: Py<PyPattern>,
        grid_type: Py<PyString>,
        mut plain: Vec<u64>,
        slots: Vec<Py<LinkSlot>>,
    ) -> PyResult<Self> {
        if slots.is_empty() {
            return Err(error::value_error("a pattern needs at least one link slot"));
        }
        plain.sort_unstable();
        let (beginning, device_links) = (CallLock::new(), OnceLock::new());
        Ok(Self { core, grid_type, plain, slots, beginning, device_links, turn: AtomicUsize::new(0) })
    }

    #[getter]
    fn _link_slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.slots)
    }

    /// Applies the pattern to a field.
    fn __call__<'py>(slf: &Bound<'py, Self>, field: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Ok(given) = field.cast_exact::<FieldDescriptor>() {
            let given = given.get();
            if given.grid.is(&this.grid_type) && this.plain.binary_search(&given.domain).is_ok() {
                let on_device = given.field.get().is_on_device();
                let fields = Fields::One(given.field.clone_ref(py));
                let info = BufferInfo { pattern: slf.clone().unbind(), fields, on_device };
                return Ok(Bound::new(py, info)?.into_any());
            }
        }
        slf.call_method1(intern!(py, "_apply"), (field,))
    }

    /// The links of fields of GPUs, once there are some.
    #[getter]
    fn _device_links(&self, py: Python<'_>) -> Option<Py<PyPatternLinks>> {
        self.device_links.get().map(|links| links.clone_ref(py))
    }

    /// Fields of GPUs use these links from now on.
    fn _use_on_devices(&self, links: Py<PyPatternLinks>) {
        self.device_links.get_or_init(|| links);
    }

    /// Starts an exchange of pairs with fields of GPUs, after all earlier work of the streams.
    #[pyo3(signature = (fields, streams))]
    fn _begin_on_device(
        slf: &Bound<'_, Self>,
        fields: Vec<(Py<PyPattern>, Py<PyField>)>,
        streams: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let handles = streams.iter().map(stream::handle).collect::<Result<Vec<_>, _>>();
        let handles = handles.map_err(|refusal| refusal.of("stream"))?;
        let streams = (!handles.is_empty()).then_some(&handles[..]);
        let fields = fields.iter().map(|(pattern, field)| (pattern.get(), field.get()));
        let begun = begin_on_device(slf, fields, streams)?;
        begun.ok_or_else(|| error::value_error("the pattern has no links for fields of GPUs yet"))
    }

    /// Starts an exchange of pairs of host fields.
    fn _begin(slf: &Bound<'_, Self>, fields: Vec<(Py<PyPattern>, Py<PyField>)>) -> PyResult<Py<PyAny>> {
        let fields = fields.iter().map(|(pattern, field)| (pattern.get(), field));
        begin(slf, fields)
    }
}

/// Starts an exchange on the next slot.
fn begin<'a>(
    pattern: &Bound<'_, PatternBase>,
    fields: impl Iterator<Item = (&'a PyPattern, &'a Py<PyField>)> + Clone,
) -> PyResult<Py<PyAny>> {
    let (py, this) = (pattern.py(), pattern.get());
    // Refuses forked children and closed links.
    this.slots[0].get().links.get().check()?;
    let _inside = this.beginning.enter(py, "an exchange of a pattern")?;
    let turn = this.turn.load(Ordering::Relaxed);
    let slot = &this.slots[turn];
    let begun = match slot.get().begin_fields(py, fields.clone().map(|(core, field)| (core, field.get()))) {
        Ok(pending) => Bound::new(py, pending)?.into_any().unbind(),
        Err(error) if error::is(py, &error, "InFlightError") => {
            let fields: Vec<_> =
                fields.map(|(_, field)| (this.core.clone_ref(py), field.clone_ref(py))).collect();
            pattern.call_method1(intern!(py, "_begin_later"), (slot, fields))?.unbind()
        }
        Err(error) => return Err(error),
    };
    this.turn.store((turn + 1) % this.slots.len(), Ordering::Relaxed);
    Ok(begun)
}

/// Starts an exchange of fields of GPUs; `None` before the first one.
fn begin_on_device<'a>(
    pattern: &Bound<'_, PatternBase>,
    fields: impl Iterator<Item = (&'a PyPattern, &'a PyField)> + Clone,
    streams: Option<&[usize]>,
) -> PyResult<Option<Py<PyAny>>> {
    let (py, this) = (pattern.py(), pattern.get());
    let Some(links) = this.device_links.get() else { return Ok(None) };
    let _inside = this.beginning.enter(py, "an exchange of a pattern")?;
    let links = links.get();
    let begun = match links.begin_on_device(py, fields.clone(), streams) {
        Err(error) if error::is(py, &error, "InFlightError") => {
            // Too many are in flight, or another exchange has failed that uses the memory.
            links.wait(py)?;
            links.begin_on_device(py, fields, streams)?
        }
        begun => begun?,
    };
    Ok(Some(Bound::new(py, begun)?.into_any().unbind()))
}

/// Starts an exchange of buffers of one pattern, if all are of GPUs and it has links for them.
fn begin_buffers_on_device(
    py: Python<'_>,
    infos: &[Bound<'_, BufferInfo>],
    streams: Option<&[usize]>,
) -> PyResult<Option<Py<PyAny>>> {
    if !is_one_pattern(infos) {
        return Ok(None);
    }
    let pattern = infos[0].get().pattern.bind(py);
    let core = pattern.get().core.get();
    let fields = infos.iter().flat_map(|info| info.get().fields.iter());
    begin_on_device(pattern, fields.map(|field| (core, field.get())), streams)
}

/// Starts an exchange by the function of `_exchange.py`, which handles all cases.
fn begin_in_python<'py>(
    py: Python<'py>,
    buffers: &Bound<'py, PyAny>,
    streams: &Bound<'py, PyTuple>,
) -> PyResult<Py<PyAny>> {
    static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let begin = BEGIN.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("halocline.compat.ghex._exchange")?.getattr("_begin")?.unbind())
    })?;
    Ok(begin.bind(py).call1((buffers, streams))?.unbind())
}

/// Tells the communication object that started an exchange of its progress, for `has_scheduled_exchange`.
pub(crate) struct ScheduledState {
    /// The number of the last exchange for which `schedule_wait` was called, until the program learns that it is over. 0: none.
    scheduled: Arc<AtomicU64>,
    number: u64,
    is_over: AtomicBool,
}

impl ScheduledState {
    /// Call it after `schedule_wait`.
    pub(crate) fn schedule(&self) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.scheduled.store(self.number, Ordering::Relaxed);
        }
    }

    /// Call it when a wait has returned or `is_ready` was true.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.scheduled.compare_exchange(self.number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The state of an exchange of several patterns, for Python.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "ScheduledState")]
pub(crate) struct PyScheduledState(ScheduledState);

#[pymethods]
impl PyScheduledState {
    fn schedule(&self) {
        self.0.schedule();
    }

    fn end(&self) {
        self.0.end();
    }
}

/// The base class of communication objects.
#[pyclass(frozen, subclass, module = "halocline.compat.ghex._exchange", name = "CommunicationBase")]
pub(crate) struct CommunicationBase {
    scheduled: Arc<AtomicU64>,
}

impl CommunicationBase {
    /// The state of an exchange that starts now.
    fn scheduled_state(&self) -> ScheduledState {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        self.scheduled.store(0, Ordering::Relaxed);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        ScheduledState { scheduled: Arc::clone(&self.scheduled), number, is_over: AtomicBool::new(false) }
    }

    /// Relates a handle to this object.
    fn with_scheduled_state(&self, py: Python<'_>, handle: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match handle.bind(py).cast::<PyPending>() {
            Ok(pending) => pending.get().scheduled_state(self.scheduled_state()),
            Err(_) => handle.bind(py).setattr(
                intern!(py, "_scheduled_state"),
                Bound::new(py, PyScheduledState(self.scheduled_state()))?,
            )?,
        }
        Ok(handle)
    }
}

#[pymethods]
impl CommunicationBase {
    #[new]
    #[pyo3(signature = (*_of))]
    fn new(_of: &Bound<'_, PyTuple>) -> Self {
        Self { scheduled: Arc::default() }
    }

    /// Starts an exchange by the function of `_exchange.py`.
    fn _begin<'py>(&self, buffers: &Bound<'py, PyAny>, streams: &Bound<'py, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = buffers.py();
        self.with_scheduled_state(py, begin_in_python(py, buffers, streams)?)
    }

    /// Starts an exchange of buffers of GPUs after all earlier work of the stream, if nothing else has to be done for that.
    fn _schedule(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        buffers: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let given = match buffers.len() {
            1 => buffers.get_item(0)?.cast_into_exact::<PyList>().map(|list| list.to_tuple()).ok(),
            _ => None,
        };
        let given = given.as_ref().unwrap_or(buffers);
        let mut infos = Vec::with_capacity(given.len());
        for buffer in given.iter() {
            match buffer.cast_into_exact::<BufferInfo>() {
                Ok(info) if info.get().on_device => infos.push(info),
                _ => return Ok(None),
            }
        }
        let handle = stream::handle(stream).map_err(|refusal| refusal.of("stream"))?;
        let begun = begin_buffers_on_device(py, &infos, Some(&[handle]))?;
        begun.map(|handle| self.with_scheduled_state(py, handle)).transpose()
    }

    /// Whether `schedule_wait` was called for the last exchange and the program does not know yet that it is over.
    fn has_scheduled_exchange(&self) -> bool {
        self.scheduled.load(Ordering::Relaxed) != 0
    }

    /// Starts an exchange of buffers: a list, or each as an argument. `first` is separate because a tuple of one argument would double the
    /// cost of the call.
    #[pyo3(signature = (first = First(None), /, *others), text_signature = "($self, /, *buffers)")]
    fn exchange<'py>(&self, first: First<'py>, others: &Bound<'py, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = others.py();
        let only = first.0.as_ref().filter(|_| others.is_empty());
        if let Some(info) = only.and_then(|only| as_host_buffer(only.clone())) {
            return self.with_scheduled_state(py, begin_all(py, &[info])?);
        }
        let infos = match only.map(|only| only.cast_exact::<PyList>()) {
            Some(Ok(list)) if list.len() == 1 => match as_host_buffer(list.get_item(0)?) {
                Some(info) => return self.with_scheduled_state(py, begin_all(py, &[info])?),
                None => None,
            },
            Some(Ok(list)) => as_host_buffers(list.len(), list.iter()),
            Some(Err(_)) => None,
            None => as_host_buffers(others.len() + 1, first.0.iter().cloned().chain(others)),
        };
        match infos {
            Some(infos) if is_one_pattern(&infos) => self.with_scheduled_state(py, begin_all(py, &infos)?),
            _ => {
                let all: Vec<_> = first.0.into_iter().chain(others).collect();
                self._begin(&PyTuple::new(py, all)?.into_any(), &PyTuple::empty(py))
            }
        }
    }
}

/// The first argument, if given.
struct First<'py>(Option<Bound<'py, PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for First<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(given.to_owned())))
    }
}

fn as_host_buffer(given: Bound<'_, PyAny>) -> Option<Bound<'_, BufferInfo>> {
    given.cast_into_exact::<BufferInfo>().ok().filter(|info| !info.get().on_device)
}

/// The buffers, if all are host buffers of this class.
fn as_host_buffers<'py>(
    count: usize,
    given: impl Iterator<Item = Bound<'py, PyAny>>,
) -> Option<Vec<Bound<'py, BufferInfo>>> {
    let mut infos = Vec::with_capacity(count);
    for given in given {
        infos.push(as_host_buffer(given)?);
    }
    Some(infos)
}

/// Whether there are buffers and all have the same pattern.
fn is_one_pattern(infos: &[Bound<'_, BufferInfo>]) -> bool {
    let mut patterns = infos.iter().map(|info| &info.get().pattern);
    patterns.next().is_some_and(|first| patterns.all(|pattern| pattern.is(first)))
}

/// Starts an exchange of buffers of one pattern.
fn begin_all(py: Python<'_>, infos: &[Bound<'_, BufferInfo>]) -> PyResult<Py<PyAny>> {
    let pattern = infos[0].get().pattern.bind(py);
    let core = pattern.get().core.get();
    begin(pattern, infos.iter().flat_map(|info| info.get().fields.iter()).map(|field| (core, field)))
}
