//! Arguments. One of a collective call that cannot be taken is noticed only once the call has begun: so it is an error on all ranks.

use crate::error;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMapping, PySequence, PyString, PyTuple};
use std::convert::Infallible;
use std::path::PathBuf;

/// An argument, or why it is none.
pub(crate) struct Given<T>(PyResult<T>);

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Given<T> {
    type Error = Infallible;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(object.extract().map_err(Into::into)))
    }
}

impl<T> Given<T> {
    /// A default.
    pub(crate) fn of(value: impl Into<T>) -> Self {
        Self(Ok(value.into()))
    }

    /// The argument of that name.
    pub(crate) fn get(self, py: Python<'_>, name: &str) -> PyResult<T> {
        self.0.map_err(|error| typed(py, error, &format!("{name}: ")))
    }
}

/// The error of ours that stands for one of Python, with a name before its text.
fn typed(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let told = format!("{name}{}", error.value(py));
    match () {
        () if error.is_instance_of::<PyTypeError>(py) => error::kind(told),
        () if error.is_instance_of::<PyOverflowError>(py) || error.is_instance_of::<PyValueError>(py) => {
            error::value(told)
        }
        () => error,
    }
}

/// An argument that is refused at once, by an error of ours.
pub(crate) struct Typed<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Typed<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error| typed(object.py(), error.into(), ""))
    }
}

/// A sequence, whatever length it says it has: there may be no memory for so much. Refused by errors of ours.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'a, 'py, T: for<'b> FromPyObject<'b, 'py>> FromPyObject<'a, 'py> for List<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match is_sequence(&object) {
            true => entries(&object).map(Self),
            false => Err(no_sequence(&object)?),
        }
    }
}

/// A sequence of numbers, which an array is, too, though Python does not say so of those of NumPy. Refused by errors of ours.
pub(crate) struct Numbers<T>(pub(crate) Vec<T>);

impl<'a, 'py, T: for<'b> FromPyObject<'b, 'py>> FromPyObject<'a, 'py> for Numbers<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let is_array = || -> PyResult<bool> {
            let has_entries = object.hasattr("__getitem__")? && object.hasattr("__len__")?;
            Ok(has_entries && !object.is_instance_of::<PyString>() && !object.is_instance_of::<PyMapping>())
        };
        match is_sequence(&object) || is_array()? {
            true => entries(&object).map(Self),
            false => Err(no_sequence(&object)?),
        }
    }
}

/// Two numbers: of a tuple, or of any sequence of numbers.
pub(crate) struct Pair(pub(crate) usize, pub(crate) usize);

impl<'a, 'py> FromPyObject<'a, 'py> for Pair {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<Numbers<usize>>()?.0[..] {
            [one, other] => Ok(Self(one, other)),
            ref numbers => Err(error::value(format!("a pair of numbers is wanted, not {}", numbers.len()))),
        }
    }
}

fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyTuple>()
        || object.is_exact_instance_of::<PyList>()
        || object.is_instance_of::<PySequence>() && !object.is_instance_of::<PyString>()
}

fn no_sequence(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let class = object.get_type().fully_qualified_name()?;
    Ok(error::kind(format!("a sequence is wanted, not {class}")))
}

fn entries<'py, T: for<'b> FromPyObject<'b, 'py>>(object: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    let py = object.py();
    let mut list = room(object.len().map_err(|error| typed(py, error, ""))?)?;
    for item in object.try_iter()? {
        list.push(item?.extract().map_err(|error: T::Error| typed(py, error.into(), ""))?);
    }
    Ok(list)
}

/// Room for so many entries.
pub(crate) fn room<T>(count: usize) -> PyResult<Vec<T>> {
    /// More than any list has: some systems promise any memory.
    const MOST: usize = 1 << 34;
    let mut list = Vec::new();
    match count <= MOST && list.try_reserve_exact(count).is_ok() {
        true => Ok(list),
        false => Err(error::value(format!("{count} entries are more than there is memory for"))),
    }
}

/// The path of a file. Refused by errors of ours.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for FilePath {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error| match error.is_instance_of::<PyTypeError>(object.py()) {
            true => match object.get_type().fully_qualified_name() {
                Ok(class) => error::kind(format!("a str or an os.PathLike of a str is wanted, not {class}")),
                Err(error) => error,
            },
            false => error,
        })
    }
}

/// The bytes of an object.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self(bytes.to_vec()));
        }
        object.extract::<List<u8>>().map(|list| Self(list.0))
    }
}
