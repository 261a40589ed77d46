//! Compiled programs: `halocline.program`.

mod arguments;
mod cache;
mod fields;
mod numpy;
mod on_stream;
mod prepared;
mod program_error;

pub(crate) use cache::{PyEntry, build_program};
pub(crate) use fields::{PyCalls, PyFieldProgram, PyProgramCall, field_program};
pub(crate) use prepared::PyPreparedCall;

use crate::argument::{Argument as PyArgument, FilePath, Get};
use crate::error;
use crate::stream::Handle;
use arguments::{Arguments, Memory, Name, Turn};
use halocline_program::{Program, Signature};
use on_stream::CallStream;
use prepared::{Prepare, prepare};
use program_error::of_program;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[doc = doc!("load")]
#[pyfunction]
#[pyo3(name = "load", signature = (library, manifest = None))]
pub(crate) fn load_program(
    py: Python<'_>,
    library: PyArgument<FilePath>,
    manifest: Option<PyArgument<String>>,
) -> PyResult<PyProgram> {
    let (FilePath(library), manifest) = (library.get("library")?, manifest.get("manifest")?);
    let load = || {
        let signature = match &manifest {
            Some(text) => {
                let given = format!("given for library {}", library.display());
                Signature::from_json(text.as_bytes(), Path::new(&given))?
            }
            None => Signature::beside(&library)?,
        };
        // SAFETY: the documentation of the package obliges the caller to load libraries that fit their manifests.
        unsafe { Program::with_signature(&library, signature) }
    };
    Ok(PyProgram::of(py, py.detach(load).map_err(of_program)?))
}

#[doc = doc!("Program")]
#[pyclass(frozen, module = "halocline.program", name = "Program")]
pub(crate) struct PyProgram {
    program: Arc<Program>,
    arguments: Box<[Argument]>,
    memory: Memory,
}

/// An argument of the signature.
struct Argument {
    name: Py<PyString>,
    text: Box<str>,
    is_array: bool,
}

/// An object that is converted after the numbers.
struct Later<'a, 'py> {
    turn: Turn,
    position: usize,
    object: Borrowed<'a, 'py, PyAny>,
}

/// An argument that is given by name.
struct Named<'py> {
    name: Bound<'py, PyAny>,
    object: Bound<'py, PyAny>,
}

fn named<'py>(kwargs: Option<&Bound<'py, PyDict>>) -> Vec<Named<'py>> {
    let all = kwargs.into_iter().flat_map(|kwargs| kwargs.iter());
    all.map(|(name, object)| Named { name, object }).collect()
}

impl PyProgram {
    fn of(py: Python<'_>, program: Program) -> Self {
        let argument = |(position, argument): (usize, &halocline_program::signature::Argument)| Argument {
            name: PyString::intern(py, argument.name()).unbind(),
            text: argument.name().into(),
            is_array: program.is_array(position),
        };
        let arguments: Box<[Argument]> =
            program.signature().arguments.iter().enumerate().map(argument).collect();
        Self { memory: Memory::of(arguments.len()), program: Arc::new(program), arguments }
    }

    /// Converts objects in the order of the signature.
    #[inline]
    fn convert<'a, 'py>(
        &self,
        objects: impl ExactSizeIterator<Item = Borrowed<'a, 'py, PyAny>>,
    ) -> PyResult<Arguments<'a>> {
        let count = objects.len();
        let mut arguments = Arguments::absent(count);
        let mut later: Vec<Later<'a, 'py>> = Vec::with_capacity(count);
        let mut is_in_order = true;
        for (position, object) in objects.enumerate() {
            let Some(Argument { text, is_array, .. }) = self.arguments.get(position) else {
                // The call counts them.
                continue;
            };
            if object.is_none() {
                continue;
            }
            let turn = Turn::of(&object, *is_array);
            if turn != Turn::Number {
                is_in_order &= turn == Turn::Numpy;
                later.push(Later { turn, position, object });
                continue;
            }
            arguments.push_scalar(
                object,
                &self.memory,
                position,
                Name { program: self.program.name(), argument: text },
            )?;
            arguments.move_last_to(position, count);
        }
        if !is_in_order {
            later.sort_by_key(|later| later.turn);
        }
        for Later { position, object, .. } in later {
            let name = Name { program: self.program.name(), argument: &self.arguments[position].text };
            arguments.push_array(object, &self.memory, position, name)?;
            arguments.move_last_to(position, count);
        }
        Ok(arguments)
    }

    /// The objects in the order of the signature; `None` stands for one that is missing before others. `keep` holds those that are
    /// given by name.
    fn in_order<'a, 'py>(
        &self,
        args: &'a Bound<'py, PyTuple>,
        keep: &'a [Named<'py>],
    ) -> PyResult<Vec<Borrowed<'a, 'py, PyAny>>> {
        let mut objects: Vec<Borrowed<'a, 'py, PyAny>> = args.iter_borrowed().collect();
        let none = args.py().None().into_bound(args.py());
        let mut is_given = vec![true; objects.len()];
        for Named { name, object } in keep {
            // Names are usually given in the order of the signature.
            let position = match self.arguments.get(objects.len()) {
                Some(argument) if argument.name.is(name) => objects.len(),
                _ => self.position(name)?,
            };
            if objects.len() <= position {
                // SAFETY: `None` lives as long as the interpreter.
                let none = unsafe { Borrowed::from_ptr(args.py(), none.as_ptr()) };
                objects.resize(position + 1, none);
                is_given.resize(position + 1, false);
            }
            if std::mem::replace(&mut is_given[position], true) {
                let program = self.program.name();
                return Err(error::type_error(format!(
                    "argument {name} of program {program} is given twice"
                )));
            }
            objects[position] = object.as_borrowed();
        }
        Ok(objects)
    }

    /// The stream of a call. It is an argument if the program has one of that name.
    fn stream_of<'py>(
        &self,
        given: Option<Bound<'py, PyAny>>,
        named: &mut Vec<Named<'py>>,
    ) -> Option<PyArgument<Handle>> {
        let given = given?;
        match self.arguments.iter().find(|argument| &*argument.text == "stream") {
            Some(argument) => {
                let name = argument.name.bind(given.py()).clone().into_any();
                named.push(Named { name, object: given });
                None
            }
            None => Some(PyArgument::from(&given)),
        }
    }

    /// Calls the program in the order of a stream.
    fn call_on(
        &self,
        args: &Bound<'_, PyTuple>,
        named: &[Named<'_>],
        stream: Option<PyArgument<Handle>>,
    ) -> PyResult<()> {
        let py = args.py();
        let objects = self.in_order(args, named)?;
        let arguments = self.convert(objects.iter().copied())?;
        // Streams of other libraries may run code of the program.
        let watched = prepared::watched(&self.program, &objects);
        let on = CallStream::of(py, &self.program, stream, objects.into_iter(), &arguments)?;
        prepared::check_unchanged(py, &self.program, &watched)?;
        on_stream::call_on(py, &self.program, on.as_ref(), &arguments)
    }

    fn position(&self, name: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.program.position(&name.cast::<PyString>()?.to_cow()?).map_err(of_program)
    }
}

#[pymethods]
impl PyProgram {
    #[doc = doc!("Program.__call__")]
    #[pyo3(signature = (*args, stream = None, **kwargs))]
    fn __call__(
        &self,
        args: &Bound<'_, PyTuple>,
        stream: Option<Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let py = args.py();
        let mut named = named(kwargs);
        let stream = self.stream_of(stream, &mut named);
        if self.program.streams().is_some() || stream.is_some() {
            return self.call_on(args, &named, stream);
        }
        let arguments = match named.is_empty() {
            true => self.convert(args.iter_borrowed())?,
            false => self.convert(self.in_order(args, &named)?.into_iter())?,
        };
        let called = self.program.call_within(&arguments.given, |call| py.detach(call));
        called.and_then(|called| called).map_err(of_program)
    }

    #[doc = doc!("Program.prepare")]
    #[pyo3(signature = (*args, stream = None, **kwargs))]
    fn prepare(
        &self,
        args: &Bound<'_, PyTuple>,
        stream: Option<Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyPreparedCall> {
        let py = args.py();
        let mut named = named(kwargs);
        let stream = self.stream_of(stream, &mut named);
        let objects = self.in_order(args, &named)?;
        let arguments = self.convert(objects.iter().copied())?;
        // Streams of other libraries may run code of the program.
        let watched = prepared::watched(&self.program, &objects);
        let on = CallStream::of(py, &self.program, stream, objects.iter().copied(), &arguments)?;
        prepare(py, &self.program, Prepare { watched, arguments, on, checks: None })
    }

    #[doc = doc!("Program.name")]
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    #[doc = doc!("Program.library")]
    #[getter]
    fn library(&self) -> PathBuf {
        self.program.library().to_owned()
    }

    #[doc = doc!("Program.arguments")]
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.arguments.iter().map(|argument| argument.name.bind(py)))
    }

    #[doc = doc!("Program.synchronises")]
    #[getter]
    fn synchronises(&self) -> bool {
        self.program.synchronises()
    }

    #[doc = doc!("Program.states")]
    #[getter]
    fn states(&self) -> usize {
        self.program.states()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.arguments.iter().map(|argument| &*argument.text).collect();
        format!("<halocline.program.Program {}({})>", self.program.name(), names.join(", "))
    }
}
