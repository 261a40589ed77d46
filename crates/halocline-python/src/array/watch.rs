//! Detects arrays that move to other memory while they are bound. NumPy's arrays cannot move: see [`crate::process_local::KeepAlive`].

use super::Described;
use crate::argument::{ArgumentType, List};
use crate::error;
use crate::tensor::Versions;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefReference};
use std::sync::Arc;

/// The address of an array and its number of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    address: usize,
    elements: usize,
}

impl Place {
    /// From a description that was made from `__array_interface__`.
    fn by_description(array: &Described) -> Option<Self> {
        let is_told = array.device.is_none() && array.owner.is_none();
        let elements = array.extents.iter().copied().fold(1, usize::saturating_mul);
        is_told.then_some(Self { address: array.base, elements })
    }

    /// From `__array_interface__`; none without one.
    fn by_interface(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(interface) = array.getattr_opt(intern!(array.py(), "__array_interface__"))? else {
            return Ok(None);
        };
        // Any element type: the array may be an array of records.
        let Ok(interface) = interface.cast::<PyDict>() else { return Ok(None) };
        let data = interface.get_item("data")?.map(|data| data.extract::<(usize, bool)>());
        let shape = interface.get_item("shape")?.map(|shape| List::<usize>::of(&shape));
        match (data, shape) {
            (Some(Ok((address, _))), Some(Ok(List(shape)))) => {
                Ok(Some(Self { address, elements: shape.into_iter().fold(1, usize::saturating_mul) }))
            }
            _ => Ok(None),
        }
    }
}

/// A weak reference to an array, and where the array was.
pub(crate) struct Watch {
    array: Py<PyWeakrefReference>,
    place: Place,
}

impl Watch {
    /// None if the array has no `__array_interface__` or allows no weak references.
    pub(super) fn of(array: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Self>>> {
        Ok(Place::by_interface(array)?.and_then(|place| Self::at(array, place)))
    }

    /// As [`Watch::of`], of an array that was just described.
    pub(super) fn described(array: &Bound<'_, PyAny>, described: &Described) -> Option<Arc<Self>> {
        Place::by_description(described).and_then(|place| Self::at(array, place))
    }

    fn at(array: &Bound<'_, PyAny>, place: Place) -> Option<Arc<Self>> {
        let weak = PyWeakrefReference::new(array).ok()?;
        Some(Arc::new(Self { array: weak.unbind(), place }))
    }

    /// A description of the change, if the array has moved.
    pub(super) fn change(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let array = self.array.bind(py).upgrade();
        let now = array.map_or(Ok(None), |array| Place::by_interface(&array))?;
        Ok(now.filter(|now| *now != self.place).map(|now| {
            let Place { address, elements } = self.place;
            format!(
                "the array has {} elements at {:#x} now, and had {elements} at {address:#x} when it was bound; bind it \
                 anew after a resize",
                now.elements, now.address
            )
        }))
    }
}

/// In checked mode the arrays of each set of fields; otherwise nothing.
#[derive(Clone, Default)]
pub(crate) struct Watches(Option<Vec<Set>>);

/// Watches with the index of their field.
type Set = Vec<(usize, Arc<Watch>)>;

impl Watches {
    pub(crate) fn new(is_checked: bool) -> Self {
        Self(is_checked.then(Vec::new))
    }

    /// Adds a set.
    pub(crate) fn push<'a, 'py: 'a>(
        &mut self,
        fields: impl Iterator<Item = &'a Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let Some(sets) = &mut self.0 else { return Ok(()) };
        let mut set = Set::new();
        for (at, field) in fields.enumerate() {
            set.extend(super::watched(field, None)?.into_iter().map(|watch| (at, watch)));
        }
        sets.push(set);
        Ok(())
    }

    /// Only those of one set.
    pub(crate) fn alternative(&self, set: usize) -> Self {
        Self(self.0.as_ref().map(|sets| sets.get(set).cloned().into_iter().collect()))
    }

    /// Refuses arrays that are no longer where they were bound.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>, set: usize) -> PyResult<()> {
        let set = self.0.as_ref().and_then(|sets| sets.get(set));
        for (at, watch) in set.into_iter().flatten() {
            if let Some(change) = watch.change(py)? {
                return Err(error::value_error(format!("field {at}: {change}")));
            }
        }
        Ok(())
    }
}

/// The array objects of a bound exchange.
#[derive(Clone)]
pub(crate) struct Arrays {
    pub(crate) watches: Watches,
    pub(crate) versions: Versions,
}

impl Arrays {
    /// Only those of one set.
    pub(crate) fn alternative(&self, set: usize) -> Self {
        Self { watches: self.watches.alternative(set), versions: self.versions.alternative(set) }
    }
}
