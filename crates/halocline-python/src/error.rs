//! Errors as Python's exceptions. The classes are Python's own, in `halocline/_errors.py`.

use crate::host;
use halocline::comm::CommError;
use halocline::{Cause, Error, Failure};
use pyo3::exceptions::{
    PyAttributeError, PyBufferError, PyIndexError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The classes, by name. Taken at the import: when the interpreter ends, modules are emptied and cannot be imported.
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

const MODULE: &str = "halocline._errors";

fn import(py: Python<'_>) -> PyResult<()> {
    let classes = || Ok::<_, PyErr>(py.import(MODULE)?.dict().copy()?.unbind());
    CLASSES.get_or_try_init(py, classes).map(drop)
}

/// At the import of the package. One that comes again, after its modules were taken away, gets the classes of the first, as it gets
/// all others: what is raised is of them.
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

pub(crate) fn value(message: impl AsRef<str>) -> PyErr {
    of_class("HaloValueError", message.as_ref())
}

pub(crate) fn kind(message: impl AsRef<str>) -> PyErr {
    of_class("HaloTypeError", message.as_ref())
}

/// The error of ours for what somebody's protocol raises, who refuses by it; what is no refusal, as itself.
pub(crate) fn refused(py: Python<'_>, error: PyErr, what: &str) -> PyErr {
    let told = format!("{what}: {}", error.value(py));
    let typed = match () {
        () if error.is_instance_of::<PyValueError>(py) => value(told),
        () if error.is_instance_of::<PyAttributeError>(py)
            || error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyIndexError>(py)
            || error.is_instance_of::<PyRuntimeError>(py)
            || error.is_instance_of::<PyTypeError>(py) =>
        {
            kind(told)
        }
        () => return error,
    };
    typed.set_cause(py, Some(error));
    typed
}

/// An error with what it is about before its text, if it is one of ours.
pub(crate) fn prefixed(py: Python<'_>, error: PyErr, about: &str) -> PyErr {
    told_anew(py, error, |text| format!("{about}: {text}"))
}

/// An error with more behind its text, if it is one of ours.
pub(crate) fn suffixed(py: Python<'_>, error: PyErr, more: &str) -> PyErr {
    told_anew(py, error, |text| format!("{text}{more}"))
}

fn told_anew(py: Python<'_>, error: PyErr, tell: impl FnOnce(String) -> String) -> PyErr {
    let is_ours = error.get_type(py).module().is_ok_and(|module| module.to_string().starts_with("halocline"));
    let value = error.value(py);
    match is_ours.then(|| value.setattr("args", (tell(value.to_string()),))) {
        Some(Err(other)) => other,
        _ => error,
    }
}

/// Whether an error is of a class of ours.
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

pub(crate) fn closed(why: &str) -> PyErr {
    of_class("ClosedError", why)
}

/// What the library's texts name, by its name in Rust and in Python.
const IN_PYTHON: [(&str, &str); 8] = [
    ("`Field::on_domain`", "Field(domain=...)"),
    ("`with_axes`", "Field(axes=...)"),
    ("`with_axes(&[", "`halocline.Field(array, axes=["),
    ("`padded()`", "`halocline.Field(array, padded=True)`"),
    ("`UnstructuredDomain::with_levels`", "UnstructuredDomain.with_levels"),
    ("`Halo::uniform(depth)`", "as narrowed(depth)"),
    ("`LinkChoice::Mailbox` or `Message`", "link='mailbox' or link='message'"),
    ("as an `Array`", "with halocline.zeros"),
];

/// A text of the library with Python's names.
pub(crate) fn in_python(text: String) -> String {
    IN_PYTHON.iter().fold(text, |text, (rust, python)| text.replace(rust, python))
}

/// The exception for an error of the library. What the handler of a signal raises comes first, and the interrupt of a group of threads: it ends
/// other ranks, too, and the error is then that of a rank that has left. Otherwise Python would raise it amid the user's handling of that error.
pub(crate) fn of(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    if matches!(error, Error::Comm(CommError::Interrupted { .. })) {
        return host::interruption();
    }
    if let Some(raised) = host::raised_first() {
        return raised;
    }
    if tells_of_departure(&error)
        && let Some(raised) = host::raised_soon()
    {
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
        Error::ArrayInFlight
        | Error::ArrayBorrowed
        | Error::InFlight { .. }
        | Error::Borrowed { .. }
        | Error::Shared { .. }
        | Error::TooManyInFlight { .. } => "InFlightError",
        Error::NotDriven => "MpiError",
        _ => "HaloValueError",
    };
    of_class(class, &in_python(error.to_string()))
}

/// Whether another rank has gone, perhaps by a signal that this one is about to receive, too.
fn tells_of_departure(error: &Error) -> bool {
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
            error.setattr("peer", failure.peer)?;
            error.setattr("culprit", failure.culprit)?;
            Ok(PyErr::from_value(error))
        };
        made().unwrap_or_else(|error| error)
    })
}
