//! From one distribution of the cells to another.

use crate::array::{Watches, field_of};
use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::{PyHaloExchange, numbered};
use crate::given::{Given, List};
use crate::grid::{PyDecomposition, collective, halo_of};
use crate::options::{is_checked, options};
use crate::owned::bury;
use crate::unstructured::{PyUnstructuredDomain, domains};
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
    fn regular(
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        source: Given<End<'_>>,
        target: Given<End<'_>>,
    ) -> PyResult<Self> {
        let end = |end: Given<End<'_>>, name| {
            let (decomposition, halo) = end.get(py, name)?;
            Ok((decomposition.get().decomposition.clone(), halo_of(&halo, "all")?))
        };
        let prepared = end(source, "source").and_then(|source| Ok((source, end(target, "target")?)));
        let redistribute = collective(py, &comm, prepared, |comm, (source, target)| {
            Redistribute::regular(comm, (&source.0, &source.1), (&target.0, &target.1))
        })?;
        Ok(Self { redistribute, group: comm.get().group() })
    }

    #[staticmethod]
    fn unstructured(
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        source: Given<List<Py<PyUnstructuredDomain>>>,
        target: Given<List<Py<PyUnstructuredDomain>>>,
    ) -> PyResult<Self> {
        let prepared = || Ok((domains(source.get(py, "source")?.0), domains(target.get(py, "target")?.0)));
        let redistribute = collective(py, &comm, prepared(), |comm, (from, to)| {
            Redistribute::unstructured(comm, &from, &to)
        })?;
        Ok(Self { redistribute, group: comm.get().group() })
    }

    fn back(&self) -> Self {
        Self { redistribute: self.redistribute.back(), group: self.group }
    }

    #[pyo3(signature = (comm, source, target, *, link = Given::of("auto"), deadline = None, name = None, checked = None), text_signature = "($self, comm, source, target, *, link='auto', deadline=None, name=None, checked=None)")]
    #[expect(clippy::too_many_arguments, reason = "by keyword")]
    fn bind(
        &self,
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        source: Given<List<Bound<'_, PyAny>>>,
        target: Given<List<Bound<'_, PyAny>>>,
        link: Given<String>,
        deadline: Option<Given<f64>>,
        name: Option<Given<String>>,
        checked: Option<Given<bool>>,
    ) -> PyResult<PyHaloExchange> {
        let prepared = || {
            if self.group != comm.get().group() {
                return Err(error::value(
                    "the redistribution was made with another communicator; use that one",
                ));
            }
            let (List(source), List(target)) = (source.get(py, "source")?, target.get(py, "target")?);
            let fields: Vec<Field> = source
                .iter()
                .chain(&target)
                .enumerate()
                .map(|(at, array)| {
                    field_of(array).map(Cow::into_owned).map_err(|error| numbered(py, at, error))
                })
                .collect::<PyResult<_>>()?;
            let options = options(py, link, deadline, name, checked)?;
            let mut watches = Watches::new(is_checked(&options));
            watches.push(source.iter().chain(&target))?;
            Ok((fields, source.len(), options, watches))
        };
        let halo = collective(py, &comm, prepared(), |comm, (fields, sources, options, watches)| {
            let fields: Vec<&Field> = fields.iter().collect();
            let (from, to) = fields.split_at(sources);
            Ok((self.redistribute.bind_with(comm, from, to, &options)?, watches))
        });
        bury(py);
        let (halo, watches) = halo?;
        Ok(PyHaloExchange::of(halo, Default::default(), watches, comm.get().member()))
    }
}
