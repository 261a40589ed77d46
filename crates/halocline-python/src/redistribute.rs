//! From one distribution of the cells to another.

use crate::array::field_of;
use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::{PyHaloExchange, numbered};
use crate::grid::{PyDecomposition, collective, halo_of};
use crate::options::options;
use crate::owned::bury;
use crate::unstructured::PyUnstructuredDomain;
use halocline::{Field, Redistribute};
use pyo3::prelude::*;
use std::borrow::Cow;

/// How cells get from the one to the other.
#[pyclass(frozen, module = "halocline", name = "Redistribute")]
pub(crate) struct PyRedistribute {
    redistribute: Redistribute,
    group: u64,
}

type End<'py> = (Py<PyDecomposition>, Bound<'py, PyAny>);

#[pymethods]
impl PyRedistribute {
    #[staticmethod]
    fn regular(py: Python<'_>, comm: Py<PyCommunicator>, source: End<'_>, target: End<'_>) -> PyResult<Self> {
        let halos = halo_of(&source.1, "all").and_then(|from| Ok((from, halo_of(&target.1, "all")?)));
        let (from, to) = (&source.0.get().decomposition, &target.0.get().decomposition);
        let redistribute = collective(py, &comm, halos, |comm, halos| {
            Redistribute::regular(comm, (from, &halos.0), (to, &halos.1))
        })?;
        Ok(Self { redistribute, group: comm.get().group() })
    }

    #[staticmethod]
    fn unstructured(
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        source: Vec<Py<PyUnstructuredDomain>>,
        target: Vec<Py<PyUnstructuredDomain>>,
    ) -> PyResult<Self> {
        let domains = |of: &[Py<PyUnstructuredDomain>]| {
            of.iter().map(|domain| domain.get().0.clone()).collect::<Vec<_>>()
        };
        let given = Ok((domains(&source), domains(&target)));
        let redistribute =
            collective(py, &comm, given, |comm, (from, to)| Redistribute::unstructured(comm, &from, &to))?;
        Ok(Self { redistribute, group: comm.get().group() })
    }

    fn back(&self) -> Self {
        Self { redistribute: self.redistribute.back(), group: self.group }
    }

    #[pyo3(signature = (comm, source, target, *, link = "auto", deadline = None, name = None, checked = None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword")]
    fn bind(
        &self,
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        source: Vec<Bound<'_, PyAny>>,
        target: Vec<Bound<'_, PyAny>>,
        link: &str,
        deadline: Option<f64>,
        name: Option<String>,
        checked: Option<bool>,
    ) -> PyResult<PyHaloExchange> {
        let prepared = || {
            if self.group != comm.get().group() {
                return Err(error::value(
                    "the redistribution was made with another communicator; use that one",
                ));
            }
            let fields: Vec<Field> = source
                .iter()
                .chain(&target)
                .enumerate()
                .map(|(at, array)| {
                    field_of(array).map(Cow::into_owned).map_err(|error| numbered(py, at, error))
                })
                .collect::<PyResult<_>>()?;
            Ok((fields, options(link, deadline, name, checked)?))
        };
        let sources = source.len();
        let halo = collective(py, &comm, prepared(), |comm, (fields, options)| {
            let fields: Vec<&Field> = fields.iter().collect();
            let (from, to) = fields.split_at(sources);
            self.redistribute.bind_with(comm, from, to, &options)
        });
        bury(py);
        Ok(PyHaloExchange::of(halo?, Default::default(), comm.get().member()))
    }
}
