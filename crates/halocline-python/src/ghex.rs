//! What is called for every exchange through the interface of GHEX (`halocline/compat/ghex/_exchange.py`, which has the rest of it, and
//! what these classes promise): the way of fields of the host that are exchanged by one pattern. What is otherwise goes there.

use crate::alone::Alone;
use crate::array::PyField;
use crate::error;
use crate::exchange::PyPending;
use crate::grid::PyPattern;
use crate::unbound::PyPatternLinks;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// An array of a domain.
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

/// A field with the pattern that it is exchanged with.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "BufferInfo")]
pub(crate) struct BufferInfo {
    #[pyo3(get, name = "_pattern")]
    pattern: Py<Exchanged>,
    fields: Fields,
    #[pyo3(get, name = "_on_device")]
    on_device: bool,
}

/// A domain of GHEX is one of the core's, or several over the same array.
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
    fn new(pattern: Py<Exchanged>, fields: Vec<Py<PyField>>, on_device: bool) -> Self {
        Self { pattern, fields: Fields::Several(fields), on_device }
    }

    /// Pairs, as an exchange is given them.
    #[getter]
    fn _fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let core = &self.pattern.get().core;
        PyList::new(py, self.fields.iter().map(|field| (core.clone_ref(py), field.clone_ref(py))))
    }
}

/// Links of a pattern for one exchange in flight.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "Lane")]
pub(crate) struct Lane {
    links: Py<PyPatternLinks>,
    /// Which of all exchanges it has begun last; 0: none.
    begun: AtomicU64,
}

#[pymethods]
impl Lane {
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

    /// Whether its last exchange is over; so is what was closed, or belongs to a parent process.
    fn is_over(&self, py: Python<'_>) -> bool {
        self.links.get().reclaim(py).unwrap_or(true)
    }
}

impl Lane {
    fn begin_fields<'a>(
        &self,
        py: Python<'_>,
        fields: impl Iterator<Item = (&'a PyPattern, &'a PyField)>,
    ) -> PyResult<PyPending> {
        /// All that have begun, to know which was earlier.
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let pending = self.links.get().begin_fields(py, fields)?;
        self.begun.store(COUNT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(pending)
    }
}

/// What begins the exchanges of a pattern: its lanes in turn.
#[pyclass(frozen, subclass, module = "halocline.compat.ghex._exchange", name = "Exchanged")]
pub(crate) struct Exchanged {
    #[pyo3(get, name = "_core")]
    core: Py<PyPattern>,
    #[pyo3(get)]
    grid_type: Py<PyString>,
    /// Domains that are one of the core's, of the same number, ascending.
    plain: Vec<u64>,
    lanes: Vec<Py<Lane>>,
    /// Who begins an exchange. It may have to wait for an earlier one first.
    beginning: Alone,
    /// The lane that is next. Taken by what has begun only: what is refused here is not begun by the others.
    turn: AtomicUsize,
}

#[pymethods]
impl Exchanged {
    #[new]
    fn new(
        core: Py<PyPattern>,
        grid_type: Py<PyString>,
        mut plain: Vec<u64>,
        lanes: Vec<Py<Lane>>,
    ) -> PyResult<Self> {
        if lanes.is_empty() {
            return Err(error::value("a pattern has a lane at least"));
        }
        plain.sort_unstable();
        Ok(Self { core, grid_type, plain, lanes, beginning: Alone::new(), turn: AtomicUsize::new(0) })
    }

    #[getter]
    fn _lanes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.lanes)
    }

    /// The field, to be exchanged with this pattern.
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

    /// Begins an exchange of pairs, on the host.
    fn _begin(slf: &Bound<'_, Self>, fields: Vec<(Py<PyPattern>, Py<PyField>)>) -> PyResult<Py<PyAny>> {
        let fields = fields.iter().map(|(pattern, field)| (pattern.get(), field));
        begin(slf, fields)
    }
}

/// Begins an exchange on the lane whose turn it is.
fn begin<'a>(
    pattern: &Bound<'_, Exchanged>,
    fields: impl Iterator<Item = (&'a PyPattern, &'a Py<PyField>)> + Clone,
) -> PyResult<Py<PyAny>> {
    let (py, this) = (pattern.py(), pattern.get());
    // Not in a forked child, nor of what was closed.
    this.lanes[0].get().links.get().check()?;
    let _inside = this.beginning.enter(py, "an exchange of a pattern")?;
    let turn = this.turn.load(Ordering::Relaxed);
    let lane = &this.lanes[turn];
    let begun = match lane.get().begin_fields(py, fields.clone().map(|(core, field)| (core, field.get()))) {
        Ok(pending) => Bound::new(py, pending)?.into_any().unbind(),
        Err(error) if error::is(py, &error, "InFlightError") => {
            let fields: Vec<_> =
                fields.map(|(_, field)| (this.core.clone_ref(py), field.clone_ref(py))).collect();
            pattern.call_method1(intern!(py, "_begin_later"), (lane, fields))?.unbind()
        }
        Err(error) => return Err(error),
    };
    this.turn.store((turn + 1) % this.lanes.len(), Ordering::Relaxed);
    Ok(begun)
}

/// The function of `_exchange.py` for what does not go this way.
fn otherwise<'py>(
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

/// Relates one exchange to the communication object that began it, for `has_scheduled_exchange`.
pub(crate) struct Tie {
    /// The number of the exchange that `schedule_wait` was called for last, until the program has found it to be over. 0: none.
    scheduled: Arc<AtomicU64>,
    number: u64,
    is_over: AtomicBool,
}

impl Tie {
    /// `schedule_wait` was called.
    pub(crate) fn schedule(&self) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.scheduled.store(self.number, Ordering::Relaxed);
        }
    }

    /// A wait has returned, or `is_ready` said so.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.scheduled.compare_exchange(self.number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The same for Python: of an exchange of several patterns.
#[pyclass(frozen, module = "halocline.compat.ghex._exchange", name = "Tie")]
pub(crate) struct PyTie(Tie);

#[pymethods]
impl PyTie {
    fn schedule(&self) {
        self.0.schedule();
    }

    fn end(&self) {
        self.0.end();
    }
}

/// What begins exchanges.
#[pyclass(frozen, subclass, module = "halocline.compat.ghex._exchange", name = "Exchanges")]
pub(crate) struct Exchanges {
    scheduled: Arc<AtomicU64>,
}

impl Exchanges {
    /// Of an exchange that begins.
    fn tie(&self) -> Tie {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        self.scheduled.store(0, Ordering::Relaxed);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Tie { scheduled: Arc::clone(&self.scheduled), number, is_over: AtomicBool::new(false) }
    }

    /// The same handle, related to this object.
    fn tied(&self, py: Python<'_>, handle: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match handle.bind(py).cast::<PyPending>() {
            Ok(pending) => pending.get().tie(self.tie()),
            Err(_) => handle.bind(py).setattr(intern!(py, "_tie"), Bound::new(py, PyTie(self.tie()))?)?,
        }
        Ok(handle)
    }
}

#[pymethods]
impl Exchanges {
    #[new]
    #[pyo3(signature = (*_of))]
    fn new(_of: &Bound<'_, PyTuple>) -> Self {
        Self { scheduled: Arc::default() }
    }

    /// Begins an exchange by the function of `_exchange.py`.
    fn _begin<'py>(&self, buffers: &Bound<'py, PyAny>, streams: &Bound<'py, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = buffers.py();
        self.tied(py, otherwise(py, buffers, streams)?)
    }

    /// Whether `schedule_wait` was called for the last exchange, and nothing has told since that it is over.
    fn has_scheduled_exchange(&self) -> bool {
        self.scheduled.load(Ordering::Relaxed) != 0
    }

    /// Begins an exchange of fields that patterns were applied to: a list of them, or each as an argument. (A tuple of one argument would
    /// cost as much as all else here.)
    #[pyo3(signature = (first = First(None), /, *others), text_signature = "($self, /, *buffers)")]
    fn exchange<'py>(&self, first: First<'py>, others: &Bound<'py, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = others.py();
        let only = first.0.as_ref().filter(|_| others.is_empty());
        if let Some(info) = only.and_then(|only| of_host(only.clone())) {
            return self.tied(py, begin_all(py, &[info])?);
        }
        let infos = match only.map(|only| only.cast_exact::<PyList>()) {
            Some(Ok(list)) if list.len() == 1 => match of_host(list.get_item(0)?) {
                Some(info) => return self.tied(py, begin_all(py, &[info])?),
                None => None,
            },
            Some(Ok(list)) => all_of_host(list.len(), list.iter()),
            Some(Err(_)) => None,
            None => all_of_host(others.len() + 1, first.0.iter().cloned().chain(others)),
        };
        match infos {
            Some(infos) if is_one_pattern(&infos) => self.tied(py, begin_all(py, &infos)?),
            _ => {
                let all: Vec<_> = first.0.into_iter().chain(others).collect();
                self._begin(&PyTuple::new(py, all)?.into_any(), &PyTuple::empty(py))
            }
        }
    }
}

/// The first argument, if there is one.
struct First<'py>(Option<Bound<'py, PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for First<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(given.to_owned())))
    }
}

fn of_host(given: Bound<'_, PyAny>) -> Option<Bound<'_, BufferInfo>> {
    given.cast_into_exact::<BufferInfo>().ok().filter(|info| !info.get().on_device)
}

/// All of these, if they are such.
fn all_of_host<'py>(
    count: usize,
    given: impl Iterator<Item = Bound<'py, PyAny>>,
) -> Option<Vec<Bound<'py, BufferInfo>>> {
    let mut infos = Vec::with_capacity(count);
    for given in given {
        infos.push(of_host(given)?);
    }
    Some(infos)
}

/// Whether these are of one pattern, and there are any.
fn is_one_pattern(infos: &[Bound<'_, BufferInfo>]) -> bool {
    let mut patterns = infos.iter().map(|info| &info.get().pattern);
    patterns.next().is_some_and(|first| patterns.all(|pattern| pattern.is(first)))
}

/// Begins an exchange of fields of one pattern.
fn begin_all(py: Python<'_>, infos: &[Bound<'_, BufferInfo>]) -> PyResult<Py<PyAny>> {
    let pattern = infos[0].get().pattern.bind(py);
    let core = pattern.get().core.get();
    begin(pattern, infos.iter().flat_map(|info| info.get().fields.iter()).map(|field| (core, field)))
}
