//! Prepared calls.

use super::arguments::{Arguments, Name, Seen, number};
use super::fields::{Change, NumberChecks};
use super::numpy::{self, Snapshot};
use super::on_stream::CallStream;
use super::program_error::of_program;
use crate::error;
use crate::process_local::drop_deferred;
use halocline_program::{Given, Prepared, Program, ProgramError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Arc, Mutex};

#[doc = doc!("PreparedCall")]
#[pyclass(frozen, module = "halocline.program", name = "PreparedCall")]
pub(crate) struct PyPreparedCall {
    // Dropped before what it borrows.
    call: Mutex<Call>,
    program: Arc<Program>,
    arrays: Box<[Watched]>,
    /// Arrays of other libraries.
    others: Vec<Arc<Seen>>,
    on: Option<CallStream>,
}

/// A prepared call whose program and arrays are kept by the object that has it.
struct Call {
    prepared: Prepared<'static>,
    checks: Option<NumberChecks>,
}

// SAFETY: it consists of addresses, numbers and references to objects of Python, and the mutex lets one thread at a time use it.
unsafe impl Send for Call {}

impl Call {
    fn run(&mut self, on: Option<&CallStream>) -> Result<(), ProgramError> {
        match on {
            None => self.prepared.call(),
            // SAFETY: the call keeps the arrays; the documentation obliges the program to order other work on them by the stream.
            Some(on) => unsafe { self.prepared.call_on(on.on()) },
        }
    }
}

/// An array of NumPy, which a program can resize although it is referred to.
pub(super) struct Watched {
    array: Py<PyAny>,
    name: Box<str>,
    snapshot: Snapshot,
}

impl Watched {
    fn of(array: &Bound<'_, PyAny>, name: &str) -> Self {
        let snapshot = Snapshot::of(array.as_borrowed());
        Self { array: array.clone().unbind(), name: name.into(), snapshot }
    }

    #[inline]
    fn is_unchanged(&self, py: Python<'_>) -> bool {
        self.snapshot.is_of(self.array.bind_borrowed(py))
    }
}

/// The arrays of NumPy among the objects of a call, as they are now.
pub(super) fn watched(program: &Program, objects: &[Borrowed<'_, '_, PyAny>]) -> Box<[Watched]> {
    let names = program.signature().arguments.iter();
    let arrays = objects.iter().zip(names).filter(|(object, _)| numpy::is_array(object));
    arrays.map(|(array, argument)| Watched::of(array, argument.name())).collect()
}

/// Refuses arrays that were resized or reshaped since.
pub(super) fn check_unchanged(py: Python<'_>, program: &Program, arrays: &[Watched]) -> PyResult<()> {
    let Some(changed) = arrays.iter().find(|array| !array.is_unchanged(py)) else { return Ok(()) };
    let (name, program) = (&changed.name, program.name());
    Err(error::value_error(format!(
        "argument {name} of program {program} was resized, reshaped or made read-only after the call was prepared; prepare it again"
    )))
}

/// The parts of a prepared call.
pub(super) struct Prepare<'a> {
    /// The arrays of NumPy at the time of the conversion.
    pub(super) watched: Box<[Watched]>,
    pub(super) arguments: Arguments<'a>,
    pub(super) on: Option<CallStream>,
    pub(super) checks: Option<NumberChecks>,
}

/// Prepares a call.
pub(super) fn prepare(
    py: Python<'_>,
    program: &Arc<Program>,
    Prepare { watched: arrays, arguments, on, checks }: Prepare<'_>,
) -> PyResult<PyPreparedCall> {
    let Arguments { given, seen } = arguments;
    // SAFETY: the object that has the call keeps the program and all arrays longer than the call; extents and strides are copied by
    // `prepare`. So no reference is used after what it refers to.
    let given = unsafe { std::mem::transmute::<Vec<Given<'_>>, Vec<Given<'static>>>(given) };
    // SAFETY: the object that has the call also has an `Arc` of the program, and drops it after the call.
    let kept = unsafe { &*Arc::as_ptr(program) };
    let mut call = Call { prepared: kept.prepare(&given).map_err(of_program)?, checks };
    if let Some(on) = &on {
        let (call, stream) = (&mut call, on.stream());
        py.detach(move || call.prepared.make_state_on(stream)).map_err(of_program)?;
    }
    check_unchanged(py, program, &arrays)?;
    Ok(PyPreparedCall { call: Mutex::new(call), program: program.clone(), arrays, others: seen, on })
}

impl PyPreparedCall {
    /// Changes numbers. If one is refused, all stay as they were.
    fn set(&self, call: &mut Call, numbers: &Bound<'_, PyDict>) -> PyResult<()> {
        let program = &*self.program;
        let mut changes = Vec::with_capacity(numbers.len());
        for (name, object) in numbers {
            let name = name.cast_into::<PyString>()?;
            let name = name.to_cow()?;
            let position = program.position(&name).map_err(of_program)?;
            let value = number(&object, Name { program: program.name(), argument: &name })?;
            changes.push(Change { position, object, value });
        }
        let integers = call.checks.as_ref().map(|checks| checks.check(numbers.py(), &changes)).transpose()?;
        match &changes[..] {
            [change] => call.prepared.set(change.position, change.value).map_err(of_program)?,
            _ => {
                let mut changed = call.prepared.clone();
                for change in changes {
                    changed.set(change.position, change.value).map_err(of_program)?;
                }
                call.prepared = changed;
            }
        }
        if let (Some(checks), Some(integers)) = (&mut call.checks, integers) {
            checks.keep(integers);
        }
        Ok(())
    }
}

#[pymethods]
impl PyPreparedCall {
    #[doc = doc!("PreparedCall.__call__")]
    #[pyo3(signature = (**scalars))]
    fn __call__(&self, py: Python<'_>, scalars: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let Ok(mut call) = self.call.try_lock() else {
            let program = self.program.name();
            return Err(error::in_flight(format!(
                "this prepared call of program {program} is being made, by another thread or below this call; prepare a call for each of them"
            )));
        };
        if let Some(scalars) = scalars {
            self.set(&mut call, scalars)?;
        }
        // In the order of their conversion: looking at these may run code of the program, which may resize arrays of NumPy.
        for other in &self.others {
            let argument =
                self.program.signature().arguments.get(other.position).map_or("", |argument| argument.name());
            let name = Name { program: self.program.name(), argument };
            if !other.is_unchanged(py).map_err(|error| error::prefixed(py, error, &name.to_string()))? {
                return Err(error::value_error(format!(
                    "{name} was moved, resized, reshaped, retyped or made read-only after the call was prepared; prepare it again"
                )));
            }
        }
        check_unchanged(py, &self.program, &self.arrays)?;
        let call = &mut *call;
        let called = py.detach(|| call.run(self.on.as_ref()));
        drop_deferred(py);
        called.map_err(of_program)
    }

    fn __repr__(&self) -> String {
        format!("<halocline.program.PreparedCall of {}>", self.program.name())
    }
}
