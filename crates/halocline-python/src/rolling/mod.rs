//! Rolling windows over tables that are sorted over ranks.

mod arrow;
mod spec;
mod statistic;
mod table_error;

pub(crate) use statistic::PyStatistic;

use crate::argument::{Argument, Get};
use crate::comm::{PyCommunicator, init};
use crate::grid::collective_on;
use arrow::{ArrowStream, table_of};
use halocline_table::{Context, Rolling, Table};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyCapsule, PyDict, PySlice};
use spec::{Names, Spec, WindowArguments};
use statistic::{Statistics, Wanted};
use std::time::Duration;
use table_error::of_table;

/// The module `halocline/_tables.py`, which knows the kinds of tables.
fn tables(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("halocline._tables").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// The aggregation of the windows.
enum Aggregate {
    /// The context itself.
    Context,
    /// A function of the program, called with the rows of the context.
    Function(Py<PyAny>),
    Statistics(Statistics),
}

/// The other arguments of `rolling`.
struct Arguments<'a, 'py> {
    windows: WindowArguments<'a, 'py>,
    aggregate: Option<&'a Bound<'py, PyAny>>,
    columns: Option<Argument<Names>>,
    min_samples: Option<Argument<usize>>,
    threads: Option<Argument<usize>>,
}

/// A call of `rolling` whose arguments are right.
struct Request {
    table: Table,
    rolling: Rolling,
    aggregate: Aggregate,
    of: Local,
}

/// The arguments of this rank besides the rows.
struct Local {
    /// The table of the program: an object of `_tables.py`.
    source: Py<PyAny>,
    /// The groups, then the key.
    keys: Vec<String>,
    threads: usize,
}

/// The processors of this process, divided among as many ranks.
fn default_threads(ranks: usize) -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() / ranks).max(1)
}

impl Arguments<'_, '_> {
    fn request(self, table: &Bound<'_, PyAny>, ranks: usize) -> PyResult<Request> {
        let py = table.py();
        let Spec { mut rolling, keys } = self.windows.spec()?;
        let columns = self.columns.get("columns")?.map(|Names(names)| names);
        let min_samples = self.min_samples.get("min_samples")?;
        let threads = self.threads.get("threads")?.unwrap_or_else(|| default_threads(ranks));
        if threads == 0 {
            return Err(of_table(halocline_table::TableError::NoThreads, "threads"));
        }
        let wanted = match self.aggregate {
            Some(object) if !object.is_callable() => Some(Wanted::new(object)?),
            _ => None,
        };
        let named = wanted.as_ref().and_then(Wanted::columns);
        let needed = match (named, &columns) {
            (Some(named), columns) => Some([named, columns.clone().unwrap_or_default()].concat()),
            (None, columns) => columns.clone(),
        };
        let source = tables(py)?.call_method1("source", (table, &keys, &needed))?;
        let table = table_of(&source.getattr("stream")?)
            .map_err(|error| crate::error::prefixed(py, error, "table"))?;
        if let Some(needed) = needed {
            rolling = rolling.columns(needed);
        }
        let aggregate = match (wanted, self.aggregate) {
            (Some(wanted), _) => {
                let all = table.schema().fields().iter().map(|field| field.name().as_str());
                let of =
                    all.filter(|name| columns.as_ref().is_none_or(|some| some.iter().any(|one| one == name)));
                Aggregate::Statistics(wanted.of(of, &keys, min_samples)?)
            }
            (None, Some(function)) => Aggregate::Function(function.clone().unbind()),
            (None, None) => Aggregate::Context,
        };
        Ok(Request { table, rolling, aggregate, of: Local { source: source.unbind(), keys, threads } })
    }
}

#[doc = doc!("rolling")]
#[pyfunction]
#[pyo3(
    signature = (
        table, by, window, *, closed = Argument::of("right"), center = Argument::of(false), offset = None, group = None,
        aggregate = None, columns = None, min_samples = None, threads = None, route = Argument::of("auto"), deadline = None,
        comm = None
    ),
    text_signature = "(table, by, window, *, closed='right', center=False, offset=None, group=None, aggregate=None, \
                      columns=None, min_samples=None, threads=None, route='auto', deadline=None, comm=None)"
)]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn rolling<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyAny>,
    by: &Bound<'py, PyAny>,
    window: &Bound<'py, PyAny>,
    closed: Argument<String>,
    center: Argument<bool>,
    offset: Option<&Bound<'py, PyAny>>,
    group: Option<Argument<Names>>,
    aggregate: Option<&Bound<'py, PyAny>>,
    columns: Option<Argument<Names>>,
    min_samples: Option<Argument<usize>>,
    threads: Option<Argument<usize>>,
    route: Argument<String>,
    deadline: Option<Argument<Duration>>,
    comm: Option<Argument<Py<PyCommunicator>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let comm = match comm.get("comm")? {
        Some(comm) => comm,
        None => init(py, Argument::of("auto"), None)?,
    };
    let comm = comm.get().get()?;
    let windows = WindowArguments { by, window, closed, center, offset, group, route };
    let arguments = Arguments { windows, aggregate, columns, min_samples, threads };
    let deadline = deadline.get("deadline");
    let within = match &deadline {
        Ok(Some(deadline)) => comm.with_deadline(Some(*deadline)),
        _ => (*comm).clone(),
    };
    let given = deadline.and_then(|_| arguments.request(table, comm.size()));
    let brought = collective_on(py, &within, "rolling", given, |comm, request| {
        let Request { table, rolling, aggregate, of } = request;
        Ok((halocline_table::rolling(&table, &rolling, comm), aggregate, of))
    });
    let (context, aggregate, of) = brought?;
    let context = PyRollingContext { context: context.map_err(|why| of_table(why, "window"))?, of };
    match aggregate {
        Aggregate::Context => Ok(Bound::new(py, context)?.into_any()),
        Aggregate::Function(function) => context.own(&function.bind(py).call1((context.table(py)?,))?),
        Aggregate::Statistics(of) => context.statistics(py, &of, context.of.threads),
    }
}

#[doc = doc!("RollingContext")]
#[pyclass(frozen, generic, module = "halocline", name = "RollingContext")]
pub(crate) struct PyRollingContext {
    context: Context,
    of: Local,
}

impl PyRollingContext {
    fn stream(&self) -> ArrowStream {
        ArrowStream::new(self.context.schema().clone(), self.context.batches().to_vec())
    }

    /// Rows of this rank and of others.
    fn rows(&self) -> usize {
        self.context.batches().iter().map(|batch| batch.num_rows()).sum()
    }

    fn statistics<'py>(
        &self,
        py: Python<'py>,
        of: &Statistics,
        threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let computed = py.detach(|| self.context.aggregate(&of.aggregations, threads));
        let batch = computed.map_err(|why| of_table(why, "aggregate"))?;
        let stream = ArrowStream::new(batch.schema(), vec![batch]);
        self.of.source.bind(py).call_method1("result", (stream, &of.columns))
    }
}

#[pymethods]
impl PyRollingContext {
    #[doc = doc!("RollingContext.table")]
    #[getter]
    fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.of.source.bind(py).call_method1("table", (self.stream(),))
    }

    #[doc = doc!("RollingContext.own_rows")]
    #[getter]
    fn own_rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let own = self.context.own_rows();
        py.get_type::<PySlice>().call1((own.start, own.end))
    }

    #[doc = doc!("RollingContext.mask")]
    #[getter]
    fn mask<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mask = py.import("numpy")?.call_method1("zeros", (self.rows(), "bool"))?;
        mask.set_item(self.own_rows(py)?, true)?;
        Ok(mask)
    }

    #[doc = doc!("RollingContext.first_row")]
    #[getter]
    fn first_row(&self) -> u64 {
        self.context.first_row()
    }

    #[doc = doc!("RollingContext.total_rows")]
    #[getter]
    fn total_rows(&self) -> u64 {
        self.context.total_rows()
    }

    #[doc = doc!("RollingContext.windows")]
    fn windows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut bytes = Vec::with_capacity(self.context.own_rows().len() * 16);
        py.detach(|| {
            for window in self.context.windows() {
                bytes.extend_from_slice(&(window.start as i64).to_ne_bytes());
                bytes.extend_from_slice(&(window.end as i64).to_ne_bytes());
            }
        });
        // Memory of a bytearray can be written.
        let flat = py.import("numpy")?.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "int64"))?;
        flat.call_method1("reshape", (-1, 2))
    }

    #[doc = doc!("RollingContext.own")]
    fn own<'py>(&self, values: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = values.py();
        self.of.source.bind(py).call_method1("own", (values, self.rows(), self.own_rows(py)?))
    }

    #[doc = doc!("RollingContext.aggregate")]
    #[pyo3(signature = (aggregate, *, min_samples = None, threads = None))]
    fn aggregate<'py>(
        &self,
        aggregate: &Bound<'py, PyAny>,
        min_samples: Option<Argument<usize>>,
        threads: Option<Argument<usize>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (min_samples, threads) = (min_samples.get("min_samples")?, threads.get("threads")?);
        let columns = self.context.schema().fields().iter().map(|field| field.name().as_str());
        let of = Wanted::new(aggregate)?.of(columns, &self.of.keys, min_samples)?;
        self.statistics(aggregate.py(), &of, threads.unwrap_or(self.of.threads))
    }

    #[doc = doc!("RollingContext.traffic")]
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.context.traffic();
        let counts = PyDict::new(py);
        counts.set_item("route", if of.is_relayed { "relay" } else { "direct" })?;
        for (name, count) in [
            ("rows_received", of.rows_received),
            ("rows_sent", of.rows_sent),
            ("bytes_received", of.bytes_received),
            ("bytes_sent", of.bytes_sent),
            ("messages_sent", of.messages_sent),
        ] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    #[doc = doc!("RollingContext.__arrow_c_stream__")]
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        #[expect(unused_variables, reason = "a preference")] requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.stream().capsule(py)
    }

    fn __len__(&self) -> usize {
        self.rows()
    }

    fn __repr__(&self) -> String {
        let own = self.context.own_rows();
        format!("RollingContext({} rows, own rows {}:{})", self.rows(), own.start, own.end)
    }
}
