//! Programs of GT4Py: they take fields, and connectivities from an offset provider.

mod dispatch;
mod failure;
mod field;
mod gather;
mod known;
mod numbers;
mod parameters;
mod provider;

pub(crate) use dispatch::{PyCalls, PyProgramCall};
pub(super) use numbers::{Change, NumberChecks};

use crate::argument::Argument;
use crate::program::arguments::{Arguments, Memory, Name, Turn, number};
use crate::program::numpy;
use crate::program::on_stream::{CallStream, call_on};
use crate::program::prepared::{Prepare, PyPreparedCall, check_unchanged, prepare, watched};
use crate::program::program_error::of_program;
use crate::stream::Handle;
use field::{Classes, Domain, Field, Kind, Leaf, Place};
use gather::Gather;
use halocline_program::{Given, Program, Scalar, Signature};
use known::{KnownCalls, Match, Watched};
use parameters::{Call, Leaves, Parameters};
use provider::Provider;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[doc = doc!("FieldProgram")]
#[pyclass(frozen, weakref, module = "halocline.program", name = "FieldProgram")]
pub(crate) struct PyFieldProgram {
    program: Arc<Program>,
    parameters: Parameters,
    leaves: Box<[Leaf]>,
    provider: Provider,
    /// The connectivities that are arguments of the signature, after the leaves.
    connectivities: Box<[Connectivity]>,
    gathers: Box<[Gather]>,
    classes: Classes,
    metrics: Option<Metrics>,
    /// The last domain of each leaf.
    domains: Mutex<Box<[Domain]>>,
    memory: Memory,
    known: KnownCalls,
}

struct Connectivity {
    object: Py<PyAny>,
    leaf: Leaf,
}

/// GT4Py's metrics, the last arguments of the signature.
struct Metrics {
    /// The names of GT4Py's module `config`.
    config: Py<PyDict>,
    /// Memory for the time, which a program writes if the level asks for it.
    time: Py<PyAny>,
    has_time: bool,
    has_level: bool,
    /// Makes a call with metrics.
    measure: Py<PyAny>,
}

/// The arrays of a call in the order of the signature; the objects of scalars as they are.
struct Objects<'py> {
    arrays: Vec<Bound<'py, PyAny>>,
    origins: Vec<isize>,
    level: i64,
}

/// `description` has what `_gt4py.py` says of the program.
#[pyfunction]
#[pyo3(name = "_field_program")]
pub(crate) fn field_program(
    py: Python<'_>,
    library: PathBuf,
    manifest: &str,
    description: &Bound<'_, PyDict>,
) -> PyResult<PyFieldProgram> {
    PyFieldProgram::of(py, &library, manifest, description)
}

#[pymethods]
impl PyFieldProgram {
    #[doc = doc!("FieldProgram.__call__")]
    #[pyo3(signature = (*args, out = None, offset_provider = None, stream = None, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        out: Option<&Bound<'_, PyAny>>,
        offset_provider: Option<&Bound<'_, PyAny>>,
        mut stream: Option<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let this = slf.get();
        let kwargs = this.with_stream_as_parameter(&mut stream, kwargs, args.py())?;
        let kwargs = kwargs.as_ref();
        let call = Call { args, out, kwargs };
        match this.metrics.as_ref().map(|metrics| metrics.level(args.py())).transpose()? {
            Some(level) if level > 0 && stream.is_none() => {
                let Some(metrics) = &this.metrics else { return Ok(()) };
                metrics.measure.bind(args.py()).call1((slf, args, out, offset_provider, kwargs, level))?;
                Ok(())
            }
            _ => this.run(&call, offset_provider, stream.as_ref().map(Argument::from)),
        }
    }

    #[doc = doc!("FieldProgram.prepare")]
    #[pyo3(signature = (*args, out = None, offset_provider = None, stream = None, **kwargs))]
    fn prepare<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        out: Option<&Bound<'_, PyAny>>,
        offset_provider: Option<&Bound<'_, PyAny>>,
        mut stream: Option<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyPreparedCall> {
        let this = slf.get();
        let kwargs = this.with_stream_as_parameter(&mut stream, kwargs, args.py())?;
        let (kwargs, stream) = (kwargs.as_ref(), stream.as_ref().map(Argument::from));
        this.provider.check(this.program.name(), offset_provider)?;
        let leaves = this.parameters.leaves(this.program.name(), &Call { args, out, kwargs })?;
        let objects = this.objects(args.py(), &leaves, 0, None)?;
        let checks = NumberChecks::of(slf, &leaves, &objects.arrays)?;
        let arguments = this.arguments(&objects)?;
        let borrowed: Vec<_> = objects.arrays.iter().map(Bound::as_borrowed).collect();
        // Streams of other libraries may run code of the program.
        let watched = watched(&this.program, &borrowed);
        let on = CallStream::of(args.py(), &this.program, stream, borrowed.iter().copied(), &arguments)?;
        prepare(args.py(), &this.program, Prepare { watched, arguments, on, checks })
    }

    /// A call with GT4Py's metrics: `time` is an array for one number, which the program writes if the level asks for it.
    fn _call_measured(
        &self,
        args: &Bound<'_, PyTuple>,
        out: Option<&Bound<'_, PyAny>>,
        offset_provider: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
        level: i64,
        time: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.provider.check(self.program.name(), offset_provider)?;
        let leaves = self.parameters.leaves(self.program.name(), &Call { args, out, kwargs })?;
        let objects = self.objects(args.py(), &leaves, level, Some(time))?;
        match self.program.streams() {
            Some(_) => self.call_on_stream(args.py(), &objects, None),
            None => self.call_fresh(args.py(), &self.arguments(&objects)?),
        }
    }

    #[doc = doc!("FieldProgram.name")]
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    #[doc = doc!("FieldProgram.library")]
    #[getter]
    fn library(&self) -> PathBuf {
        self.program.library().to_owned()
    }

    #[doc = doc!("FieldProgram.arguments")]
    #[getter(arguments)]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let names: Vec<_> =
            self.parameters.names().map(|parameter| parameter.name.bind(py).clone()).collect();
        PyTuple::new(py, names)
    }

    #[doc = doc!("FieldProgram.states")]
    #[getter]
    fn states(&self) -> usize {
        self.program.states()
    }

    fn __repr__(&self) -> String {
        format!("<halocline.program.FieldProgram {}({})>", self.program.name(), self.parameters.list())
    }
}

impl Metrics {
    fn of(metrics: &Bound<'_, PyDict>) -> PyResult<Option<Self>> {
        let item = |name: &str| metrics.as_any().get_item(name);
        let (has_time, has_level) = (item("has_time")?.extract()?, item("has_level")?.extract()?);
        Ok(Some(Self {
            config: item("config")?.cast_into::<PyModule>()?.dict().unbind(),
            time: item("time")?.unbind(),
            measure: item("measure")?.unbind(),
            has_time,
            has_level,
        })
        .filter(|metrics| metrics.has_time || metrics.has_level))
    }

    /// GT4Py's level of metrics now.
    #[inline]
    fn level(&self, py: Python<'_>) -> PyResult<i64> {
        metrics_level(self.config.bind(py))
    }
}

/// The level of metrics that GT4Py's module `config` has in its dictionary.
#[inline]
fn metrics_level(config: &Bound<'_, PyDict>) -> PyResult<i64> {
    config.get_item(intern!(config.py(), "COLLECT_METRICS_LEVEL"))?.map_or(Ok(0), |level| level.extract())
}

impl PyFieldProgram {
    fn of(py: Python<'_>, library: &Path, manifest: &str, description: &Bound<'_, PyDict>) -> PyResult<Self> {
        let load = || {
            let signature = Signature::from_json(manifest.as_bytes(), Path::new("GT4Py's argument list"))?;
            // SAFETY: GT4Py compiled the library, and the signature is made from its argument list.
            unsafe { Program::with_signature(library, signature) }
        };
        let program = Arc::new(py.detach(load).map_err(of_program)?);
        let item = |name: &str| description.as_any().get_item(name);
        let leaves = item("leaves")?.cast_into::<PyDict>()?.iter();
        let leaves: Box<[Leaf]> = leaves
            .map(|(name, kind)| Leaf::of(name.extract::<String>()?.into(), &kind))
            .collect::<PyResult<_>>()?;
        let connectivity = |(name, object): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let dimensions = object.getattr(intern!(py, "domain"))?.getattr(intern!(py, "dims"))?;
            let leaf = Leaf::of(name.extract::<String>()?.into(), &dimensions)?;
            Ok(Connectivity { object: object.unbind(), leaf })
        };
        let connectivities = item("connectivities")?.cast_into::<PyDict>()?.iter();
        let offsets = item("offsets")?;
        Ok(Self {
            parameters: Parameters::of(item("parameters")?.cast::<PyDict>()?)?,
            provider: Provider::of(offsets.cast::<PyDict>()?, item("dimensions")?.cast::<PyDict>()?)?,
            connectivities: connectivities.map(connectivity).collect::<PyResult<_>>()?,
            gathers: item("gathers")?
                .try_iter()?
                .map(|gather| Gather::of(&gather?))
                .collect::<PyResult<_>>()?,
            classes: Classes::of(item("classes")?.cast::<PyTuple>()?)?,
            metrics: Metrics::of(item("metrics")?.cast::<PyDict>()?)?,
            domains: Mutex::new(leaves.iter().map(|_| Domain::default()).collect()),
            memory: Memory::of(program.signature().arguments.len()),
            known: KnownCalls::new(),
            leaves,
            program,
        })
    }

    /// Whether this variant of a program is the one for a call of GT4Py: by its offsets and its static arguments.
    #[inline]
    fn is_for(&self, call: &Call<'_, '_>, offset_provider: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let py = call.args.py();
        if !self.provider.is_of(offset_provider) {
            return Ok(false);
        }
        if !self.leaves.iter().any(|leaf| matches!(leaf.kind, Kind::Static(_))) {
            return Ok(true);
        }
        let leaves = self.parameters.leaves(self.program.name(), call)?;
        // GT4Py refuses anything but such a number.
        let is_right = |(position, (leaf, object)): (usize, (&Leaf, &Bound<'_, PyAny>))| match &leaf.kind {
            Kind::Static(value) => self.is_compiled_value(position, object, value.bind(py)).unwrap_or(false),
            _ => true,
        };
        Ok(self.leaves.iter().zip(&leaves.0).enumerate().all(is_right))
    }

    /// A call without metrics.
    #[inline]
    fn run(
        &self,
        call: &Call<'_, '_>,
        offset_provider: Option<&Bound<'_, PyAny>>,
        stream: Option<Argument<Handle>>,
    ) -> PyResult<()> {
        let (py, program) = (call.args.py(), self.program.name());
        self.provider.check(program, offset_provider)?;
        let leaves = self.parameters.leaves(program, call)?;
        if stream.is_some() || self.program.streams().is_some() {
            return self.call_on_stream(py, &self.objects(py, &leaves, 0, None)?, stream);
        }
        if let Some(found) = self.known.find(&leaves.0, |position, object| self.value(position, object)) {
            return self.call_known(py, &found?);
        }
        let objects = self.objects(py, &leaves, 0, None)?;
        let arguments = self.arguments(&objects)?;
        let is_scalar = |position: usize| !matches!(self.leaves[position].kind, Kind::Field { .. });
        let keeps_its_array = |(leaf, object): (&Leaf, &Bound<'_, PyAny>)| {
            !matches!(leaf.kind, Kind::Field { .. } | Kind::Single) || self.classes.has(object)
        };
        let comes_again = arguments.seen.is_empty()
            && self.leaves.iter().zip(&leaves.0).all(keeps_its_array)
            && self.known.came_before(&leaves.0, is_scalar);
        if !comes_again {
            return self.call_fresh(py, &arguments);
        }
        // Before the call: during it another thread may change arrays.
        let checked = self.program.check(&arguments.given).map_err(of_program)?;
        let arrays = objects.arrays.iter().take(self.leaves.len() + self.connectivities.len());
        let arrays = arrays.filter(|object| numpy::is_array(object));
        let arrays = arrays.map(|array| (array.clone(), Watched::of(array))).collect();
        self.call_fresh(py, &arguments)?;
        let is_independent = |position| self.program.is_independent(position) && !self.checks_value(position);
        self.known.add(&leaves.0, arrays, is_scalar, is_independent, checked)
    }

    fn call_on_stream(
        &self,
        py: Python<'_>,
        objects: &Objects<'_>,
        stream: Option<Argument<Handle>>,
    ) -> PyResult<()> {
        let arguments = self.arguments(objects)?;
        let borrowed: Vec<_> = objects.arrays.iter().map(Bound::as_borrowed).collect();
        // Streams of other libraries may run code of the program.
        let watched = watched(&self.program, &borrowed);
        let on = CallStream::of(py, &self.program, stream, borrowed.into_iter(), &arguments)?;
        check_unchanged(py, &self.program, &watched)?;
        call_on(py, &self.program, on.as_ref(), &arguments)
    }

    #[inline]
    fn call_known(&self, py: Python<'_>, found: &Match) -> PyResult<()> {
        // SAFETY: this program checked the call, and its arrays were compared with the GIL held. The caller holds their fields.
        let called = unsafe {
            self.program.call_checked(
                found.known.call(),
                |words| found.changes.iter().try_for_each(|change| words.set(change.position, change.value)),
                |call| py.detach(call),
            )
        };
        called.and_then(|called| called).map_err(of_program)
    }

    fn call_fresh(&self, py: Python<'_>, arguments: &Arguments<'_>) -> PyResult<()> {
        let called = self.program.call_within(&arguments.given, |call| py.detach(call));
        called.and_then(|called| called).map_err(of_program)
    }

    /// The value of a scalar, or of a field without dimensions.
    fn value(&self, position: usize, object: &Bound<'_, PyAny>) -> PyResult<Scalar> {
        let leaf = &self.leaves[position];
        let name = Name { program: self.program.name(), argument: &leaf.name };
        match leaf.kind {
            Kind::Single => {
                let place = Place { program: self.program.name(), leaf };
                number(&Field::of(object, &self.classes, place)?.single()?, name)
            }
            _ => number(object, name),
        }
    }

    /// The arrays and scalars of a call, and the first indices of the fields.
    #[inline]
    fn objects<'py>(
        &self,
        py: Python<'py>,
        leaves: &Leaves<'py>,
        level: i64,
        time: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Objects<'py>> {
        let count = self.leaves.len() + self.connectivities.len();
        let mut arrays = Vec::with_capacity(count + 1);
        let mut origins = Vec::with_capacity(3 * count);
        let mut own;
        let mut guard = self.domains.try_lock().ok();
        let domains: &mut [Domain] = match &mut guard {
            Some(domains) => domains,
            None => {
                own = self.leaves.iter().map(|_| Domain::default()).collect::<Vec<_>>();
                &mut own
            }
        };
        let program = self.program.name();
        for (position, ((leaf, object), domain)) in
            self.leaves.iter().zip(&leaves.0).zip(domains.iter_mut()).enumerate()
        {
            let place = Place { program, leaf };
            match &leaf.kind {
                Kind::Field { .. } => {
                    let field = Field::of(object, &self.classes, place)?;
                    field.push_origin(domain, &mut origins, place)?;
                    arrays.push(field.array);
                }
                Kind::Single => arrays.push(Field::of(object, &self.classes, place)?.single()?),
                Kind::Scalar => arrays.push(numbers::plain(object, Name { program, argument: &leaf.name })?),
                Kind::Static(value) => {
                    let value = value.bind(py);
                    self.check_compiled_value(position, object, value)?;
                    arrays.push(value.clone());
                }
            }
        }
        for gather in &self.gathers {
            gather.check(py, self, domains, &|leaf| numbers::integer_of(arrays.get(leaf)?))?;
        }
        for Connectivity { object, leaf } in &self.connectivities {
            arrays.push(Field::of(object.bind(py), &self.classes, Place { program, leaf })?.array);
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|metrics| metrics.has_time) {
            arrays.push(time.unwrap_or(metrics.time.bind(py)).clone());
        }
        Ok(Objects { arrays, origins, level })
    }

    /// The arguments of the signature.
    #[inline]
    fn arguments<'a>(&self, objects: &'a Objects<'_>) -> PyResult<Arguments<'a>> {
        let has_level = self.metrics.as_ref().is_some_and(|metrics| metrics.has_level);
        let count = objects.arrays.len() + usize::from(has_level);
        let mut arguments = Arguments::absent(count);
        let mut has_others = false;
        for turn in [Turn::Number, Turn::Other, Turn::SubclassOfNumpy, Turn::Numpy] {
            if !has_others && matches!(turn, Turn::Other | Turn::SubclassOfNumpy) {
                continue;
            }
            let mut origin = 0;
            let others = self.connectivities.iter().map(|connectivity| &connectivity.leaf);
            let mut leaves = self.leaves.iter().chain(others);
            for (position, object) in objects.arrays.iter().enumerate() {
                let leaf = leaves.next();
                let here = origin;
                // Connectivities begin at index 0.
                if let Some(Leaf { kind: Kind::Field { names, .. }, .. }) = leaf
                    && position < self.leaves.len()
                {
                    origin += names.len();
                }
                let is_array = leaf.is_none_or(|leaf| matches!(leaf.kind, Kind::Field { .. }));
                let own = Turn::of(object, is_array);
                has_others |= matches!(own, Turn::Other | Turn::SubclassOfNumpy);
                if own != turn {
                    continue;
                }
                self.push(&mut arguments, object.as_borrowed(), position, leaf)?;
                if origin > here
                    && let Some(Given::Array(view)) = arguments.given.last_mut()
                {
                    *view = view.with_origin(&objects.origins[here..origin]);
                }
                arguments.move_last_to(position, count);
            }
        }
        if has_level {
            arguments.given[count - 1] = Given::Scalar(Scalar::Int(objects.level));
        }
        Ok(arguments)
    }

    /// Appends one argument of the signature; without a leaf it is the array for the time.
    #[inline]
    fn push<'a>(
        &self,
        arguments: &mut Arguments<'a>,
        object: Borrowed<'a, '_, PyAny>,
        position: usize,
        leaf: Option<&Leaf>,
    ) -> PyResult<()> {
        let argument = leaf.map_or("gt_compute_time", |leaf| &leaf.name);
        let name = Name { program: self.program.name(), argument };
        match leaf {
            Some(Leaf { kind: Kind::Single | Kind::Scalar | Kind::Static(_), .. }) => {
                arguments.push_scalar(object, &self.memory, position, name)
            }
            _ => arguments.push_array(object, &self.memory, position, name),
        }
    }

    /// Makes `stream` an argument if the program has a parameter of that name.
    fn with_stream_as_parameter<'py>(
        &self,
        stream: &mut Option<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        if stream.is_none() || !self.parameters.names().any(|parameter| &*parameter.text == "stream") {
            return Ok(kwargs.cloned());
        }
        let all = kwargs.map_or_else(|| Ok(PyDict::new(py)), |kwargs| kwargs.copy())?;
        all.set_item(intern!(py, "stream"), stream.take())?;
        Ok(Some(all))
    }
}
