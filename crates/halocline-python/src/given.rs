//! Arguments of collective calls. One that cannot be taken is noticed only once the call has begun: so it is an error on all ranks.

use crate::error;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::convert::Infallible;

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
        self.0.map_err(|error| {
            let told = format!("{name}: {}", error.value(py));
            match () {
                () if error.is_instance_of::<PyTypeError>(py) => error::kind(told),
                () if error.is_instance_of::<PyOverflowError>(py)
                    || error.is_instance_of::<PyValueError>(py) =>
                {
                    error::value(told)
                }
                () => error,
            }
        })
    }
}
