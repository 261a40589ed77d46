//! The cache of compiled programs: `halocline.program.build`.

use crate::argument::{Argument, FilePath, Get, shown_in_message};
use crate::comm::PyCommunicator;
use crate::error;
use crate::grid::collective;
use crate::host::{self, PythonHost};
use halocline::comm::Host;
use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, CacheError, Entry, Key};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[doc = doc!("Entry")]
#[pyclass(frozen, module = "halocline.program", name = "Entry")]
pub(crate) struct PyEntry(Entry);

#[pymethods]
impl PyEntry {
    #[doc = doc!("Entry.program")]
    #[getter]
    fn program(&self) -> &str {
        &self.0.record().program
    }

    #[doc = doc!("Entry.folder")]
    #[getter]
    fn folder(&self) -> PathBuf {
        self.0.folder().to_owned()
    }

    #[doc = doc!("Entry.library")]
    #[getter]
    fn library(&self) -> PathBuf {
        self.0.library()
    }

    #[doc = doc!("Entry.files")]
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.files().collect::<Vec<_>>())
    }

    #[doc = doc!("Entry.key")]
    #[getter]
    fn key(&self) -> String {
        self.0.record().key.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<halocline.program.Entry {} in {}>", self.program(), self.0.folder().display())
    }
}

/// Arguments of a build, converted.
struct Given {
    key: Key,
    builder: Py<PyAny>,
    cache: Cache,
    timeout: Duration,
}

/// `halocline.program.build` without the Python class of the build folder. `describe` returns the name, the parts and a builder, which
/// takes the path of the folder and the variables of its commands, and returns the library, or a tuple of files that begins with it.
#[pyfunction]
#[pyo3(signature = (describe, comm, cache, timeout))]
pub(crate) fn build_program(
    py: Python<'_>,
    describe: &Bound<'_, PyAny>,
    comm: Option<Argument<Py<PyCommunicator>>>,
    cache: Option<Argument<FilePath>>,
    timeout: Option<Argument<Duration>>,
) -> PyResult<PyEntry> {
    let given = given(describe, cache, timeout);
    let build =
        |builder: Py<PyAny>| move |folder: &BuildFolder| Python::attach(|py| run(py, &builder, folder));
    let got = match comm.get("comm")? {
        Some(comm) => {
            collective(py, &comm, "build", given, |comm, Given { key, builder, cache, timeout }| {
                let options = BuildOptions::default().timeout(timeout);
                Ok(cache.get_or_build_on(comm, &key, &options, build(builder)))
            })?
        }
        None => {
            let Given { key, builder, cache, timeout } = given?;
            host::clear_awaited_rank();
            let interrupted = || PythonHost.is_interrupted();
            let options = BuildOptions::default().timeout(timeout).interrupted(&interrupted);
            py.detach(|| cache.get_or_build(&key, &options, build(builder)))
        }
    };
    got.map(PyEntry).map_err(of_cache)
}

fn given(
    describe: &Bound<'_, PyAny>,
    cache: Option<Argument<FilePath>>,
    timeout: Option<Argument<Duration>>,
) -> PyResult<Given> {
    let described = describe.call0()?;
    let (name, parts, builder): (Argument<String>, Bound<'_, PyAny>, Py<PyAny>) = described.extract()?;
    let parts = &parts;
    let mut key = Key::of(&name.get("name")?);
    let wanted = |what: &Bound<'_, PyAny>| {
        error::type_error(format!(
            "parts: a mapping of names to str or bytes is wanted, not {}",
            shown_in_message(what)
        ))
    };
    let items = parts.getattr_opt("items")?.ok_or_else(|| wanted(parts))?.call0()?;
    for item in items.try_iter()? {
        let item = item?;
        let (part, value): (String, Bound<'_, PyAny>) = item.extract().map_err(|_| wanted(&item))?;
        key = match (value.cast::<PyString>(), value.cast::<PyBytes>()) {
            (Ok(text), _) => key.part(&part, text.to_str()?),
            (_, Ok(bytes)) => key.part(&part, bytes.as_bytes()),
            _ => return Err(wanted(&value)),
        };
    }
    let cache = match cache.get("cache")? {
        Some(FilePath(folder)) => Cache::at(folder),
        None => Cache::of_user().map_err(of_cache)?,
    };
    Ok(Given {
        key: key.finish(),
        builder,
        cache,
        timeout: timeout.get("timeout")?.unwrap_or(BuildOptions::TIMEOUT),
    })
}

/// Calls the builder of the program.
fn run(py: Python<'_>, builder: &Py<PyAny>, folder: &BuildFolder) -> PyResult<Built> {
    let variables = PyDict::new(py);
    for (name, value) in folder.variables() {
        variables.set_item(name, value.into_os_string())?;
    }
    let built = builder.bind(py).call1((folder.path().as_os_str(), variables))?;
    let path = |object: &Bound<'_, PyAny>| -> PyResult<PathBuf> {
        let path: PathBuf = object.extract().map_err(|_| {
            error::type_error(format!(
                "builder: it returned {}; return the path of the library, or a tuple of paths that begins with it",
                shown_in_message(object)
            ))
        })?;
        // Files in the folder may have absolute paths.
        Ok(path.strip_prefix(folder.path()).map(Path::to_owned).unwrap_or(path))
    };
    let Ok(files) = built.cast::<PyTuple>() else { return Ok(Built::new(path(&built)?)) };
    let mut files = files.iter();
    let library = files.next().ok_or_else(|| {
        error::value_error("builder: it returned an empty tuple; return the library, or a tuple of files that begins with it")
    })?;
    files.try_fold(Built::new(path(&library)?), |built, file| Ok(built.with(path(&file)?)))
}

/// The exception for an error of the cache; of a build that failed, the exception of the builder.
fn of_cache(error: CacheError) -> PyErr {
    let error = match error {
        CacheError::Build { program, source } => match source.downcast::<PyErr>() {
            Ok(raised) => return *raised,
            Err(source) => CacheError::Build { program, source },
        },
        CacheError::Interrupted { .. } => return host::interruption(),
        CacheError::Comm(error) => return error::of(error),
        other => other,
    };
    let class = match &error {
        CacheError::Variable(_) => "HaloValueError",
        CacheError::Waiting { .. } | CacheError::Slots { .. } | CacheError::Token { .. } => {
            "BuildTimeoutError"
        }
        _ => "ProgramError",
    };
    error::of_text(class, None, error.to_string(), false)
}
