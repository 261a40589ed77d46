//! Arrays whose memory goes elsewhere while something is bound with them. NumPy's own are kept from it: see [`crate::owned::KeepAlive`].

use super::Described;
use crate::error;
use crate::given::{Argument, List};
use crate::tensor::Versions;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefReference};
use std::sync::Arc;

/// Where an array lies, and how many elements it has.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    address: usize,
    elements: usize,
}

impl Place {
    /// As an array was described, if that was by its `__array_interface__`.
    fn described(array: &Described) -> Option<Self> {
        let is_told = array.device.is_none() && array.owner.is_none();
        let elements = array.extents.iter().copied().fold(1, usize::saturating_mul);
        is_told.then_some(Self { address: array.base, elements })
    }

    /// As its `__array_interface__` says; none without one.
    fn told(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(interface) = array.getattr_opt(intern!(array.py(), "__array_interface__"))? else {
            return Ok(None);
        };
        // Of whatever elements: it may be the array of records that another one has a field of.
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

/// An array that is watched, without keeping it.
pub(crate) struct Watch {
    array: Py<PyWeakrefReference>,
    place: Place,
}

impl Watch {
    /// None if it cannot be known where the array lies, or it lets nobody refer to it weakly.
    pub(super) fn of(array: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Self>>> {
        Ok(Place::told(array)?.and_then(|place| Self::at(array, place)))
    }

    /// As [`Watch::of`], of an array that was just described.
    pub(super) fn described(array: &Bound<'_, PyAny>, described: &Described) -> Option<Arc<Self>> {
        Place::described(described).and_then(|place| Self::at(array, place))
    }

    fn at(array: &Bound<'_, PyAny>, place: Place) -> Option<Arc<Self>> {
        let weak = PyWeakrefReference::new(array).ok()?;
        Some(Arc::new(Self { array: weak.unbind(), place }))
    }

    /// What has changed.
    pub(super) fn change(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let array = self.array.bind(py).upgrade();
        let now = array.map_or(Ok(None), |array| Place::told(&array))?;
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

/// The arrays of the fields of each set of an object in checked mode; nothing without that.
#[derive(Clone, Default)]
pub(crate) struct Watches(Option<Vec<Set>>);

/// With the number of the field.
type Set = Vec<(usize, Arc<Watch>)>;

impl Watches {
    pub(crate) fn new(is_checked: bool) -> Self {
        Self(is_checked.then(Vec::new))
    }

    /// One more set, of these arrays.
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

    /// Those of one set alone.
    pub(crate) fn alternative(&self, set: usize) -> Self {
        Self(self.0.as_ref().map(|sets| sets.get(set).cloned().into_iter().collect()))
    }

    /// Refuses arrays that are no longer where they were bound.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>, set: usize) -> PyResult<()> {
        let set = self.0.as_ref().and_then(|sets| sets.get(set));
        for (at, watch) in set.into_iter().flatten() {
            if let Some(change) = watch.change(py)? {
                return Err(error::value(format!("field {at}: {change}")));
            }
        }
        Ok(())
    }
}

/// What is known of the array objects of a bound exchange.
#[derive(Clone)]
pub(crate) struct Arrays {
    pub(crate) watches: Watches,
    pub(crate) versions: Versions,
}

impl Arrays {
    /// Those of one set alone.
    pub(crate) fn alternative(&self, set: usize) -> Self {
        Self { watches: self.watches.alternative(set), versions: self.versions.alternative(set) }
    }
}
