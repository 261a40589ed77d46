//! Calls of GT4Py's own program objects, once `install` has replaced their `__call__`: from a program to its variants.

use super::parameters::Call;
use super::{PyFieldProgram, metrics_level};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Mutex;

/// The most variants of a program that calls choose between; GT4Py finds the others.
const VARIANTS: usize = 16;

/// GT4Py's `Program.__call__` in its place: a descriptor that gives each program its [`Calls`].
#[pyclass(frozen, module = "halocline.program", name = "_ProgramCall")]
pub(crate) struct PyProgramCall {
    original: Py<PyAny>,
    make: Py<PyAny>,
}

#[pymethods]
impl PyProgramCall {
    #[new]
    fn new(original: Py<PyAny>, make: Py<PyAny>) -> Self {
        Self { original, make }
    }

    fn __get__<'py>(
        &self,
        py: Python<'py>,
        program: Option<Bound<'py, PyAny>>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(program) = program else { return Ok(self.original.bind(py).clone()) };
        let kept = program.getattr_opt(intern!(py, "_halocline_calls"))?;
        // The calls in a copy of a program are those of the program that was copied.
        let is_own = |calls: &Bound<'_, PyAny>| {
            calls.cast::<PyCalls>().is_ok_and(|calls| calls.get().program.is(&program))
        };
        match kept.filter(is_own) {
            Some(calls) => Ok(calls),
            None => self.make.bind(py).call1((program,)),
        }
    }
}

/// The calls of one program of GT4Py.
#[pyclass(frozen, module = "halocline.program", name = "_Calls")]
pub(crate) struct PyCalls {
    program: Py<PyAny>,
    variants: Mutex<Vec<Py<PyFieldProgram>>>,
    /// Makes a call as GT4Py does.
    slow: Py<PyAny>,
    /// The names of GT4Py's module `config`.
    config: Py<PyDict>,
    /// GT4Py's hooks.
    hooks: Box<[Py<PyAny>]>,
}

#[pymethods]
impl PyCalls {
    #[new]
    fn new(
        program: Py<PyAny>,
        slow: Py<PyAny>,
        config: &Bound<'_, PyModule>,
        hooks: &Bound<'_, PyTuple>,
    ) -> PyResult<Self> {
        Ok(Self {
            program,
            variants: Mutex::new(Vec::new()),
            slow,
            config: config.dict().unbind(),
            hooks: hooks.iter().map(Bound::unbind).collect(),
        })
    }

    #[pyo3(signature = (*args, out = None, offset_provider = None, enable_jit = None, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        out: Option<&Bound<'py, PyAny>>,
        offset_provider: Option<&Bound<'py, PyAny>>,
        enable_jit: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let py = args.py();
        if self.is_quiet(py)? {
            let call = Call { args, out, kwargs };
            if let Some(variant) = self.variant(&call, offset_provider)? {
                return variant.get().run(&call, None, None);
            }
        }
        let all = kwargs.map_or_else(|| Ok(PyDict::new(py)), |kwargs| kwargs.copy())?;
        let named = [("out", out), ("offset_provider", offset_provider), ("enable_jit", enable_jit)];
        for (name, value) in named {
            if let Some(value) = value {
                all.set_item(name, value)?;
            }
        }
        self.slow.bind(py).call1((args, all)).map(drop)
    }

    /// The calls and their program hold each other: the collector of cycles sees it here, and breaks the cycle in the program.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.program)?;
        visit.call(&self.slow)
    }

    /// Takes these programs as the variants.
    fn _adopt(&self, variants: Vec<Py<PyFieldProgram>>) {
        let mut variants = variants;
        let first = variants.len().saturating_sub(VARIANTS);
        variants.drain(..first);
        let old = match self.variants.try_lock() {
            Ok(mut held) => std::mem::replace(&mut *held, variants),
            Err(_) => variants,
        };
        // Without the lock: it drops objects of Python.
        drop(old);
    }
}

impl PyCalls {
    /// The variant for a call; `None` if GT4Py has to find or compile it, or if another thread is looking for one.
    #[inline]
    fn variant(
        &self,
        call: &Call<'_, '_>,
        offset_provider: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyFieldProgram>>> {
        let Ok(variants) = self.variants.try_lock() else { return Ok(None) };
        for variant in variants.iter() {
            if variant.get().is_for(call, offset_provider)? {
                return Ok(Some(variant.clone_ref(call.args.py())));
            }
        }
        Ok(None)
    }

    /// Whether nothing observes the call: no metrics, and no hook of a user.
    #[inline]
    fn is_quiet(&self, py: Python<'_>) -> PyResult<bool> {
        if metrics_level(self.config.bind(py))? > 0 {
            return Ok(false);
        }
        for hook in &self.hooks {
            let hook = hook.bind(py);
            let callbacks = hook.getattr(intern!(py, "callbacks"))?;
            // GT4Py's own is the first one, if it does anything.
            let is_quiet = match callbacks.len()? {
                0 => true,
                1 => callbacks.get_item(0)?.is(&hook.getattr(intern!(py, "definition"))?),
                _ => false,
            };
            if !is_quiet {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
