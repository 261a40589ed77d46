//! Exceptions for errors. Their classes are written in Python: `halocline/_errors.py`.

use crate::argument_name::argument_name;
use crate::host;
use halocline::comm::CommError;
use halocline::{ArrayError, BindError, Cause, Error, Failure};
use pyo3::exceptions::{
    PyAttributeError, PyBufferError, PyIndexError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The classes by name. Looked up at import: at the end of the interpreter modules are emptied and cannot be imported.
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

const MODULE: &str = "halocline._errors";

fn import(py: Python<'_>) -> PyResult<()> {
    let classes = || Ok::<_, PyErr>(py.import(MODULE)?.dict().copy()?.unbind());
    CLASSES.get_or_try_init(py, classes).map(drop)
}

/// Call it at the import of the package. If the package is imported again after its modules were removed from `sys.modules`, it gets the
/// exception classes of the first import, since those are raised.
pub(crate) fn begin(py: Python<'_>) -> PyResult<()> {
    static FIRST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let first = FIRST.get_or_try_init(py, || py.import(MODULE).map(Bound::unbind))?;
    py.import("sys")?.getattr("modules")?.set_item(MODULE, first)?;
    import(py)
}

/// An instance of an exception of ours.
fn instance<'py>(py: Python<'py>, class: &str, message: &str) -> PyResult<Bound<'py, PyAny>> {
    import(py)?;
    let classes = CLASSES.get(py).into_iter();
    let class = classes.filter_map(|classes| classes.bind(py).get_item(class).transpose()).next();
    class.unwrap_or_else(|| Err(PyRuntimeError::new_err(message.to_owned())))?.call1((message,))
}

fn of_class(class: &str, message: &str) -> PyErr {
    Python::attach(|py| instance(py, class, message).map_or_else(|error| error, PyErr::from_value))
}

pub(crate) fn value_error(message: impl AsRef<str>) -> PyErr {
    of_class("HaloValueError", message.as_ref())
}

pub(crate) fn type_error(message: impl AsRef<str>) -> PyErr {
    of_class("HaloTypeError", message.as_ref())
}

/// The exception for an error that an array's protocol raised to refuse; other exceptions are returned as they are.
pub(crate) fn refused(py: Python<'_>, error: PyErr, what: &str) -> PyErr {
    let text = format!("{what}: {}", error.value(py));
    let typed = match () {
        () if error.is_instance_of::<PyValueError>(py) => value_error(text),
        () if error.is_instance_of::<PyAttributeError>(py)
            || error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyIndexError>(py)
            || error.is_instance_of::<PyRuntimeError>(py)
            || error.is_instance_of::<PyTypeError>(py) =>
        {
            type_error(text)
        }
        () => return error,
    };
    typed.set_cause(py, Some(error));
    typed
}

/// Puts `about` before the text of an exception of this package.
pub(crate) fn prefixed(py: Python<'_>, error: PyErr, about: &str) -> PyErr {
    with_text(py, error, |text| format!("{about}: {text}"))
}

/// Appends to the text of an exception of this package.
pub(crate) fn suffixed(py: Python<'_>, error: PyErr, more: &str) -> PyErr {
    with_text(py, error, |text| format!("{text}{more}"))
}

fn with_text(py: Python<'_>, error: PyErr, change: impl FnOnce(String) -> String) -> PyErr {
    let is_ours = error.get_type(py).module().is_ok_and(|module| module.to_string().starts_with("halocline"));
    let value = error.value(py);
    match is_ours.then(|| value.setattr("args", (change(value.to_string()),))) {
        Some(Err(other)) => other,
        _ => error,
    }
}

/// Whether an exception is of this class of the package.
pub(crate) fn is(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    let class = CLASSES.get(py).and_then(|classes| classes.bind(py).get_item(class).ok().flatten());
    class.is_some_and(|class| error.is_instance(py, &class))
}

pub(crate) fn forked() -> PyErr {
    of_class(
        "ForkedError",
        "this object belongs to the parent process; a forked child makes its own communicator, or is started afresh \
         (multiprocessing's start method \"spawn\")",
    )
}

pub(crate) fn in_flight(message: impl AsRef<str>) -> PyErr {
    of_class("InFlightError", message.as_ref())
}

pub(crate) fn closed(why: &str) -> PyErr {
    of_class("ClosedError", why)
}

/// Names of Rust in the library's messages, and what Python's messages say instead.
const IN_PYTHON: [(&str, &str); 22] = [
    ("`Field::on_domain`", "Field(domain=...)"),
    ("`with_axes`", "Field(axes=...)"),
    ("`with_axes(&[", "`halocline.Field(array, axes=["),
    ("with it the origin (the index", "with it `origin=` (the index"),
    ("with them the origin (the index", "with them `origin=` (the index"),
    ("at the high sides, padding", "at the high sides, `padded=True`"),
    ("`padded()`", "`halocline.Field(array, padded=True)`"),
    ("`UnstructuredDomain::with_levels`", "UnstructuredDomain.with_levels"),
    ("`Halo::uniform(depth)`", "as narrowed(depth)"),
    ("`LinkChoice::Mailbox` or `Message`", "link='mailbox' or link='message'"),
    ("as an `Array`", "with halocline.zeros"),
    ("`Turn::Last`", "'last'"),
    ("`Pattern::component`", "Pattern.component"),
    ("`Mesh::halos`", "Mesh.halos"),
    ("(`Seam::fold`)", "('fold_cell' or 'fold_corner')"),
    ("(`Seam::pole`)", "('pole')"),
    ("(`Seam::join`)", "('join')"),
    ("leave corners open (`Corners::Open`)", "use the grid without corners_through"),
    ("`Quantity::vector`", "quantity='c_grid', for example"),
    ("`Along::Faces`", "'faces'"),
    ("`PatchGrid::decompose_into`", "PatchGrid.decompose_into"),
    ("or use a ring", "or make the exchange with periodic=True"),
];

/// Replaces names of Rust in a message by those of Python.
pub(crate) fn in_python(text: String) -> String {
    IN_PYTHON.iter().fold(text, |text, (rust, python)| text.replace(rust, python))
}

/// The exception for an error of the library, unless a signal is pending: then what its handler raises. A signal for the whole job makes other
/// ranks leave, which this rank sees as an error. Python would otherwise raise `KeyboardInterrupt` in the middle of the handling of that
/// error. The interrupt of a thread group counts as a signal.
pub(crate) fn of(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    if matches!(error, Error::Comm(CommError::Interrupted { .. })) {
        return host::interruption();
    }
    if let Some(raised) = raised_instead(is_departure(&error)) {
        return raised;
    }
    let class = match &error {
        Error::Failed(failure) => return failed(failure),
        Error::Comm(error) => of_comm(error),
        Error::Device(_)
        | Error::MemoryMoved { .. }
        | Error::NotPeers { .. }
        | Error::TooFewQueues { .. } => "DeviceError",
        Error::Elsewhere { .. } => "RefusedElsewhereError",
        Error::Array(ArrayError::InFlight)
        | Error::Array(ArrayError::Borrowed)
        | Error::InFlight { .. }
        | Error::Borrowed { .. }
        | Error::Shared { .. }
        | Error::TooManyInFlight { .. } => "InFlightError",
        Error::NotDriven => "MpiError",
        Error::Bind(BindError::Path { .. }) => "UnreachableError",
        _ => "HaloValueError",
    };
    let text = in_python(match &error {
        // The argument's name has the number of the field.
        Error::GatheredField { error, .. } => error.to_string(),
        error => error.to_string(),
    });
    match argument_name(&error) {
        Some(name) => of_class(class, &format!("{name}: {text}")),
        None => of_class(class, &text),
    }
}

/// The exception of a signal handler or an interrupt, which replaces an error. `is_departure`: the error may come of a signal for the whole job.
fn raised_instead(is_departure: bool) -> Option<PyErr> {
    host::raised_first().or_else(|| if is_departure { host::raised_within_grace() } else { None })
}

/// The exception of a class of the package, unless a signal is pending, as [`of`], or the rank has left.
pub(crate) fn of_text(class: &str, name: Option<&str>, text: String, is_departure: bool) -> PyErr {
    let text = in_python(text);
    raised_instead(is_departure).or_else(host::departure).unwrap_or_else(|| match name {
        Some(name) => of_class(class, &format!("{name}: {text}")),
        None => of_class(class, &text),
    })
}

/// A `RowError`, unless a signal is pending.
pub(crate) fn of_row(text: &str, rank: usize, row: u64, column: &str) -> PyErr {
    let made = |py: Python<'_>| {
        let error = instance(py, "RowError", text)?;
        error.setattr("rank", rank)?;
        error.setattr("row", row)?;
        error.setattr("column", column)?;
        Ok(PyErr::from_value(error))
    };
    raised_instead(false).unwrap_or_else(|| Python::attach(|py| made(py).unwrap_or_else(|error| error)))
}

/// Whether the error is that another rank has left or died, perhaps by a signal that this rank is about to receive.
fn is_departure(error: &Error) -> bool {
    match error {
        Error::Failed(failure) => matches!(failure.cause, Cause::Died | Cause::Dropped),
        Error::Comm(error) => matches!(error, CommError::Died { .. } | CommError::Left { .. }),
        _ => false,
    }
}

fn of_comm(error: &CommError) -> &'static str {
    match error {
        CommError::Deadline { .. } => "CommunicatorTimeoutError",
        CommError::Mpi(_) => "MpiError",
        CommError::NoSuchRank { .. } | CommError::NoSuchTransport(_) => "HaloValueError",
        _ => "CommunicatorError",
    }
}

fn failed(failure: &Failure) -> PyErr {
    Python::attach(|py| {
        let class = match failure.cause {
            Cause::Deadline(_) => "ExchangeTimeoutError",
            Cause::Transport if failure.culprit == failure.rank => "MpiError",
            _ => "ExchangeFailedError",
        };
        let made = || {
            let error = instance(py, class, &in_python(failure.to_string()))?;
            error.setattr("rank", failure.rank)?;
            error.setattr("epoch", failure.epoch)?;
            error.setattr("peer", failure.link.map(|link| link.peer))?;
            error.setattr("culprit", failure.culprit)?;
            Ok(PyErr::from_value(error))
        };
        made().unwrap_or_else(|error| error)
    })
}
