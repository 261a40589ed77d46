//! Numbers of which calls check more than whether their types can hold them: those that a program was compiled for, and those that decide
//! which rows of a connectivity it uses.

use super::field::{Domain, Field, Kind, Leaf, Place};
use super::parameters::Leaves;
use super::{PyFieldProgram, failure};
use crate::program::arguments::{Name, is_number, number};
use crate::program::numpy;
use crate::program::program_error::of_program;
use halocline_program::Scalar;
use pyo3::prelude::*;

/// The integer that a call passes for a number; `None` for one that it refuses where an integer is wanted.
pub(super) fn integer(number: Scalar) -> Option<i64> {
    match number {
        Scalar::Bool(value) => Some(value.into()),
        Scalar::Int(value) => Some(value),
        Scalar::UInt(value) => value.try_into().ok(),
        Scalar::Float(value) => (value.fract() == 0.0).then_some(value as i64),
        Scalar::Half(_) => None,
    }
}

/// The number of an object as a number of Python, so that its own code runs once. An array of NumPy stays as it is: it has no such code.
#[inline]
pub(super) fn plain<'py>(object: &Bound<'py, PyAny>, name: Name<'_>) -> PyResult<Bound<'py, PyAny>> {
    if is_number(object) || numpy::is_array(object) {
        return Ok(object.clone());
    }
    let py = object.py();
    Ok(match number(object, name)? {
        Scalar::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(value) => value.into_pyobject(py)?.into_any(),
        Scalar::UInt(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Half(_) => object.clone(),
    })
}

impl PyFieldProgram {
    /// Whether calls check more of the number at a position than its type.
    pub(super) fn checks_value(&self, position: usize) -> bool {
        matches!(self.leaves[position].kind, Kind::Static(_))
            || self.gathers.iter().any(|gather| gather.depends_on(position))
    }

    /// Whether an object is the number that the program was compiled for.
    #[inline]
    pub(super) fn is_compiled_value(
        &self,
        position: usize,
        given: &Bound<'_, PyAny>,
        compiled: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if given.is(compiled) {
            return Ok(true);
        }
        let name = Name { program: self.program.name(), argument: &self.leaves[position].name };
        let encoded = |object| self.program.encoded(position, number(object, name)?).map_err(of_program);
        Ok(encoded(given)? == encoded(compiled)?)
    }

    /// Refuses another number than the program was compiled for.
    #[inline]
    pub(super) fn check_compiled_value(
        &self,
        position: usize,
        given: &Bound<'_, PyAny>,
        compiled: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.is_compiled_value(position, given, compiled)? {
            true => Ok(()),
            false => {
                let (program, argument) = (self.program.name(), &self.leaves[position].name);
                Err(failure::static_value(program, argument, given, compiled))
            }
        }
    }
}

/// A number that a prepared call changes.
pub(in crate::program) struct Change<'py> {
    pub(in crate::program) position: usize,
    pub(in crate::program) object: Bound<'py, PyAny>,
    pub(in crate::program) value: Scalar,
}

/// The checks of numbers that a prepared call changes.
pub(in crate::program) struct NumberChecks {
    program: Py<PyFieldProgram>,
    /// Of each leaf: the indices of a field, the value of an integer.
    domains: Box<[Domain]>,
    integers: Box<[Option<i64>]>,
}

impl NumberChecks {
    /// The checks of a call with these leaves; `objects` are their arrays and plain numbers. `None` without such numbers.
    pub(super) fn of<'py>(
        program: &Bound<'py, PyFieldProgram>,
        leaves: &Leaves<'py>,
        objects: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Self>> {
        let this = program.get();
        if !(0..this.leaves.len()).any(|position| this.checks_value(position)) {
            return Ok(None);
        }
        let domain = |(leaf, object): (&Leaf, &Bound<'py, PyAny>)| {
            let mut domain = Domain::default();
            if matches!(leaf.kind, Kind::Field { .. }) {
                let place = Place { program: this.program.name(), leaf };
                Field::of(object, &this.classes, place)?.push_origin(&mut domain, &mut Vec::new(), place)?;
            }
            Ok(domain)
        };
        let domains = this.leaves.iter().zip(&leaves.0).map(domain).collect::<PyResult<_>>()?;
        let integers = objects.iter().take(this.leaves.len()).map(integer_of).collect();
        Ok(Some(Self { program: program.clone().unbind(), domains, integers }))
    }

    /// Checks a call with these changes. Returns its integers, for [`Self::keep`].
    pub(in crate::program) fn check(
        &self,
        py: Python<'_>,
        changes: &[Change<'_>],
    ) -> PyResult<Box<[Option<i64>]>> {
        let program = self.program.get();
        let mut integers = self.integers.clone();
        for Change { position, object, value } in changes {
            if let Some(Leaf { kind: Kind::Static(compiled), .. }) = program.leaves.get(*position) {
                program.check_compiled_value(*position, object, compiled.bind(py))?;
            }
            if let Some(changed) = integers.get_mut(*position) {
                *changed = integer(*value);
            }
        }
        for gather in &program.gathers {
            gather.check(py, program, &self.domains, &|leaf| integers.get(leaf).copied().flatten())?;
        }
        Ok(integers)
    }

    /// Takes the integers of a call that was checked for those that follow.
    pub(in crate::program) fn keep(&mut self, integers: Box<[Option<i64>]>) {
        self.integers = integers;
    }
}

/// The integer that an object of [`plain`] gives a call.
pub(super) fn integer_of(object: &Bound<'_, PyAny>) -> Option<i64> {
    let unnamed = Name { program: "", argument: "" };
    number(object, unnamed).ok().and_then(integer)
}
