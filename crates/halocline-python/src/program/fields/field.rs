//! Fields of GT4Py: their memory and their domains.

use super::failure;
use crate::program::numpy;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

/// The value of a call for one argument of the signature.
pub(super) struct Leaf {
    pub(super) name: Box<str>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// A field with these dimensions.
    Field {
        dimensions: Py<PyTuple>,
        names: Box<[Box<str>]>,
    },
    /// A field without dimensions, passed by value.
    Single,
    Scalar,
    /// A scalar that the program was compiled for.
    Static(Py<PyAny>),
}

impl Leaf {
    /// From Python: the name, and a tuple of dimensions, `True` for a scalar, or a list with a static value.
    pub(super) fn of(name: Box<str>, kind: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind = if let Ok(dimensions) = kind.cast::<PyTuple>() {
            let name = |dimension: Bound<'_, PyAny>| -> PyResult<Box<str>> {
                Ok(dimension.getattr("value")?.cast_into::<PyString>()?.to_cow()?.into())
            };
            match dimensions.is_empty() {
                true => Kind::Single,
                false => Kind::Field {
                    names: dimensions.iter().map(name).collect::<PyResult<_>>()?,
                    dimensions: dimensions.clone().unbind(),
                },
            }
        } else if kind.is_instance_of::<pyo3::types::PyList>() {
            Kind::Static(kind.get_item(0)?.unbind())
        } else {
            Kind::Scalar
        };
        Ok(Self { name, kind })
    }
}

/// The classes of GT4Py whose instances keep `_ndarray` and `_domain` for ever.
pub(super) struct Classes(Box<[Py<PyType>]>);

impl Classes {
    pub(super) fn of(classes: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let all = classes.iter().map(|class| Ok(class.cast_into::<PyType>()?.unbind()));
        Ok(Self(all.collect::<PyResult<_>>()?))
    }

    /// Whether an object is an instance of exactly one of them.
    #[inline]
    pub(super) fn has(&self, object: &Bound<'_, PyAny>) -> bool {
        self.0.iter().any(|class| class.as_ptr() == object.get_type_ptr().cast())
    }
}

/// The domain that a field of one argument had last, which is checked.
#[derive(Default)]
pub(super) struct Domain {
    object: Option<Py<PyAny>>,
    /// Its dimensions, which are equal to those of the argument: the next ones are likely the same objects.
    dimensions: Option<Py<PyTuple>>,
    starts: Vec<isize>,
    stops: Vec<isize>,
}

/// A field's memory.
pub(super) struct Field<'py> {
    pub(super) array: Bound<'py, PyAny>,
    domain: Bound<'py, PyAny>,
}

/// Where a field comes from, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) program: &'a str,
    pub(super) leaf: &'a Leaf,
}

impl<'py> Field<'py> {
    #[inline]
    pub(super) fn of(object: &Bound<'py, PyAny>, classes: &Classes, place: Place<'_>) -> PyResult<Self> {
        let py = object.py();
        if classes.has(object) {
            let array = object.getattr(intern!(py, "_ndarray"))?;
            return Ok(Self { array, domain: object.getattr(intern!(py, "_domain"))? });
        }
        let parts = (object.getattr_opt(intern!(py, "ndarray"))?, object.getattr_opt(intern!(py, "domain"))?);
        match parts {
            (Some(array), Some(domain)) => Ok(Self { array, domain }),
            _ => Err(failure::not_a_field(place.program, &place.leaf.name, object, &place.leaf.wanted())),
        }
    }

    /// The number of a field without dimensions: an array of the host, or a number.
    pub(super) fn single(self) -> PyResult<Bound<'py, PyAny>> {
        match numpy::is_array(&self.array) {
            true => Ok(self.array),
            // An array of a GPU waits for it here.
            false => self.array.call_method0(intern!(self.array.py(), "item")),
        }
    }

    /// Appends the first indices to `origin`. `known` is the domain of an earlier call, and becomes this one's.
    #[inline]
    pub(super) fn push_origin(
        &self,
        known: &mut Domain,
        origin: &mut Vec<isize>,
        place: Place<'_>,
    ) -> PyResult<()> {
        if !known.object.as_ref().is_some_and(|known| known.is(&self.domain)) {
            known.read(&self.domain, place)?;
        }
        if numpy::is_array(&self.array) {
            known.check_extents(numpy::parts(self.array.as_borrowed()).extents, place)?;
        } else {
            let extents: Vec<isize> = self.array.getattr(intern!(self.array.py(), "shape"))?.extract()?;
            known.check_extents(&extents, place)?;
        }
        origin.extend_from_slice(&known.starts);
        Ok(())
    }
}

impl Leaf {
    /// A dimension of a field, for messages.
    pub(super) fn label(&self, dimension: usize) -> String {
        match &self.kind {
            Kind::Field { names, .. } => format!("{dimension} ({})", names[dimension]),
            _ => dimension.to_string(),
        }
    }

    /// The dimensions of a field, for messages.
    fn wanted(&self) -> String {
        match &self.kind {
            Kind::Field { names, .. } => names.join(", "),
            _ => "none".to_owned(),
        }
    }
}

impl Domain {
    /// The first index of a dimension and the one after the last.
    #[inline]
    pub(super) fn indices(&self, dimension: usize) -> Option<(i64, i64)> {
        Some((*self.starts.get(dimension)? as i64, *self.stops.get(dimension)? as i64))
    }

    /// Takes the indices of another domain.
    fn read(&mut self, domain: &Bound<'_, PyAny>, place: Place<'_>) -> PyResult<()> {
        let py = domain.py();
        let Kind::Field { dimensions, names } = &place.leaf.kind else { return Ok(()) };
        // It has no domain until all of this one is read.
        let old = self.object.take();
        let given = domain.getattr(intern!(py, "dims"))?.cast_into::<PyTuple>()?;
        let are_known = self.dimensions.as_ref().is_some_and(|known| {
            let known = known.bind_borrowed(py);
            known.len() == given.len()
                && known.iter_borrowed().zip(given.iter_borrowed()).all(|(a, b)| a.is(b))
        });
        if !are_known {
            check_dimensions(&given, dimensions.bind(py), place)?;
            self.dimensions = Some(given.unbind());
        }
        self.starts.clear();
        self.stops.clear();
        let ranges = domain.getattr(intern!(py, "ranges"))?.cast_into::<PyTuple>()?;
        for (range, name) in ranges.iter_borrowed().zip(names) {
            let (start, stop) = (range.getattr(intern!(py, "start"))?, range.getattr(intern!(py, "stop"))?);
            let (Ok(start), Ok(stop)) = (start.extract(), stop.extract()) else {
                return Err(failure::infinite(place.program, &place.leaf.name, name));
            };
            self.starts.push(start);
            self.stops.push(stop);
        }
        if self.starts.len() != names.len() {
            let given = format!("{} ranges", self.starts.len());
            return Err(failure::dimensions(place.program, &place.leaf.name, &given, &place.leaf.wanted()));
        }
        self.object = Some(domain.clone().unbind());
        drop(old);
        Ok(())
    }

    #[inline]
    fn check_extents(&self, extents: &[isize], place: Place<'_>) -> PyResult<()> {
        for (at, &extent) in extents.iter().enumerate() {
            let (Some(&start), Some(&stop)) = (self.starts.get(at), self.stops.get(at)) else { continue };
            if stop.wrapping_sub(start) != extent {
                let Kind::Field { names, .. } = &place.leaf.kind else { continue };
                let range = start as i64..stop as i64;
                return Err(failure::extent(place.program, &place.leaf.name, &names[at], range, extent));
            }
        }
        Ok(())
    }
}

/// Refuses dimensions that are not equal to those of an argument.
#[cold]
fn check_dimensions(
    given: &Bound<'_, PyTuple>,
    wanted: &Bound<'_, PyTuple>,
    place: Place<'_>,
) -> PyResult<()> {
    if given.eq(wanted)? {
        return Ok(());
    }
    let shown = |dimension: Bound<'_, PyAny>| dimension.getattr("value").map(|name| name.to_string());
    let shown: Vec<String> = given.iter().map(shown).collect::<PyResult<_>>()?;
    let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
    Err(failure::dimensions(place.program, &place.leaf.name, &shown, &place.leaf.wanted()))
}
