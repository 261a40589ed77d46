//! Redistribution of cells from one decomposition or partition to another.

use crate::argument::{Argument, ArgumentType, Get, List, Refusal, accept, entries, entry};
use crate::array::{Arrays, Watches, field_of};
use crate::bind::streams_of;
use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::PyHaloExchange;
use crate::grid::{PyDecomposition, PyPattern, Widths, collective};
use crate::options::Keywords;
use crate::process_local::drop_deferred;
use crate::tensor::Versions;
use crate::unstructured::{PyUnstructuredDomain, domains};
use halocline::{Field, Redistribute};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::borrow::Cow;

#[doc = doc!("Redistribute")]
#[pyclass(frozen, module = "halocline", name = "Redistribute")]
pub(crate) struct PyRedistribute {
    redistribute: Redistribute,
    comm: Py<PyCommunicator>,
}

/// A decomposition with the halo of its arrays.
struct RegularSide(Py<PyDecomposition>, Widths);

impl<'py> ArgumentType<'py> for RegularSide {
    const PLURAL: &'static str = "pairs (decomposition, halo)";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let pair = entries::<2>(object, "a pair (decomposition, halo of its arrays)")?;
        Ok(Self(entry(&pair, 0)?, entry(&pair, 1)?))
    }
}

#[pymethods]
impl PyRedistribute {
    #[doc = doc!("Redistribute.regular")]
    #[staticmethod]
    fn regular(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        source: Argument<RegularSide>,
        target: Argument<RegularSide>,
    ) -> PyResult<Self> {
        accept!(comm);
        let side = |side: Argument<RegularSide>, name| {
            let RegularSide(decomposition, Widths(halo)) = side.get(name)?;
            Ok((decomposition.get().decomposition.clone(), halo))
        };
        let prepared = side(source, "source").and_then(|source| Ok((source, side(target, "target")?)));
        let redistribute = collective(py, &comm, "redistribution", prepared, |comm, (source, target)| {
            Redistribute::regular(comm, (&source.0, &source.1), (&target.0, &target.1))
        })?;
        Ok(Self { redistribute, comm })
    }

    #[doc = doc!("Redistribute.unstructured")]
    #[staticmethod]
    fn unstructured(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        source: Argument<List<Py<PyUnstructuredDomain>>>,
        target: Argument<List<Py<PyUnstructuredDomain>>>,
    ) -> PyResult<Self> {
        accept!(comm);
        let prepared = || Ok((domains(source.get("source")?.0), domains(target.get("target")?.0)));
        let redistribute = collective(py, &comm, "redistribution", prepared(), |comm, (from, to)| {
            Redistribute::unstructured(comm, &from, &to)
        })?;
        Ok(Self { redistribute, comm })
    }

    #[doc = doc!("Redistribute.back")]
    fn back(&self, py: Python<'_>) -> Self {
        Self { redistribute: self.redistribute.back(), comm: self.comm.clone_ref(py) }
    }

    #[doc = doc!("Redistribute.pattern")]
    #[getter]
    fn pattern(&self, py: Python<'_>) -> PyPattern {
        PyPattern { pattern: self.redistribute.pattern().clone(), comm: self.comm.clone_ref(py) }
    }

    #[doc = doc!("Redistribute.bind")]
    #[pyo3(signature = (comm, source, target, **options), text_signature = "($self, comm, source, target, *, link='auto', deadline=None, name=None, checked=None, streams=None, inline=False, stream_waits=None, ll=None)")]
    fn bind(
        &self,
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        source: Argument<List<Bound<'_, PyAny>>>,
        target: Argument<List<Bound<'_, PyAny>>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyHaloExchange> {
        let options = Keywords::all("bind", options)?;
        accept!(comm);
        let prepared = || {
            if self.comm.get().group() != comm.get().group() {
                return Err(error::value_error(
                    "comm: the redistribution was made with another communicator; use that one",
                ));
            }
            let (List(source), List(target)) = (source.get("source")?, target.get("target")?);
            // The sources are only read: their tensors keep their versions.
            let (mut read, mut tensors) = (Vec::new(), Vec::new());
            let mut fields = Vec::with_capacity(source.len() + target.len());
            for (arrays, name, tensors) in [(&source, "source", &mut read), (&target, "target", &mut tensors)]
            {
                for (at, array) in arrays.iter().enumerate() {
                    let made = field_of(array, tensors).map(Cow::into_owned);
                    let about = |error| error::prefixed(py, error, &format!("{name}[{at}]"));
                    fields.push(made.map_err(about)?);
                }
            }
            let known = streams_of(py, fields.iter())?;
            let options = options.options_with(&known)?;
            let mut watches = Watches::new(options.is_checked().map_err(error::of)?);
            watches.push(source.iter().chain(&target))?;
            let arrays = Arrays { watches, versions: Versions::new(vec![tensors]) };
            Ok((fields, source.len(), options, (known, arrays)))
        };
        let halo = collective(py, &comm, "bind", prepared(), |comm, (fields, sources, options, kept)| {
            let fields: Vec<&Field> = fields.iter().collect();
            let (from, to) = fields.split_at(sources);
            Ok((self.redistribute.bind_with(comm, from, to, &options)?, kept))
        });
        drop_deferred(py);
        let (halo, (streams, arrays)) = halo?;
        Ok(PyHaloExchange::of(halo, streams, arrays, comm.get().member()))
    }
}
