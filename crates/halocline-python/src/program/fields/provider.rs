//! The offset provider of a program: the connectivities and offsets that it was compiled with.

use super::failure;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// The offsets that a program uses of its offset provider. It holds the objects, so that no other object gets the identity of one of them.
pub(super) struct Provider(Box<[Offset]>);

struct Offset {
    tag: Py<PyString>,
    object: Py<PyAny>,
    /// A dimension, and no connectivity: another object may be equal to it.
    is_value: bool,
}

impl Provider {
    pub(super) fn of(connectivities: &Bound<'_, PyDict>, dimensions: &Bound<'_, PyDict>) -> PyResult<Self> {
        let all = [(connectivities, false), (dimensions, true)];
        let offsets = all.into_iter().flat_map(|(used, is_value)| {
            used.iter().map(move |(tag, object)| {
                let tag = tag.cast_into::<PyString>()?.unbind();
                Ok(Offset { tag, object: object.unbind(), is_value })
            })
        });
        Ok(Self(offsets.collect::<PyResult<_>>()?))
    }

    /// Checks that an offset provider gives the same objects; without one they are those of the compilation.
    #[inline]
    pub(super) fn check(&self, program: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(given) = given.filter(|_| !self.0.is_empty()) else { return Ok(()) };
        for Offset { tag, object, is_value } in &self.0 {
            let tag = tag.bind(given.py());
            let found = match given.cast::<PyDict>() {
                Ok(given) => given.get_item(tag)?,
                Err(_) => match given.contains(tag)? {
                    true => Some(given.get_item(tag)?),
                    false => None,
                },
            };
            let Some(found) = found else { return Err(failure::no_offset(program, tag)) };
            if !(found.is(object) || *is_value && found.eq(object)?) {
                return Err(failure::other_offset(program, tag));
            }
        }
        Ok(())
    }

    /// Whether an offset provider gives the same objects. Without one there are none.
    #[inline]
    pub(super) fn is_of(&self, given: Option<&Bound<'_, PyAny>>) -> bool {
        self.0.is_empty() || given.is_some() && self.check("", given).is_ok()
    }
}
