//! Converts the arguments of a call from Python objects.

use super::numpy;
use crate::array::{Described, describe, library_of};
use crate::error;
use halocline_program::{ArrayView, Device, Given, RawArray, Scalar, ScalarType};
use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use std::fmt;
use std::sync::{Arc, Mutex};

/// An argument, for messages.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) program: &'a str,
    pub(super) argument: &'a str,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "argument {} of program {}", self.argument, self.program)
    }
}

/// An array that was described by its protocol.
pub(super) struct Seen {
    object: Py<PyAny>,
    /// Of its argument.
    pub(super) position: usize,
    /// For an array whose memory never moves, so that it is known again by its identity: its `shape`, which a program may change in
    /// place.
    steady: Option<Py<PyAny>>,
    address: usize,
    element: ScalarType,
    extents: Box<[isize]>,
    strides: Box<[isize]>,
    device: Device,
    is_writable: bool,
    /// Keeps the memory, besides the array.
    owner: Option<Py<PyAny>>,
}

/// The last steady arrays of each argument. A call of another thread that is using it describes its arrays anew.
pub(super) struct Memory(Mutex<Box<[Levels]>>);

/// Arrays of one argument, the newest first: those of programs that swap two or three time levels.
type Levels = [Option<Arc<Seen>>; 3];

impl Memory {
    pub(super) fn of(arguments: usize) -> Self {
        Self(Mutex::new((0..arguments).map(|_| Levels::default()).collect()))
    }

    /// The array, described now or in an earlier call.
    fn find(&self, object: &Bound<'_, PyAny>, position: usize, name: Name<'_>) -> PyResult<Arc<Seen>> {
        let known = |levels: &Levels| levels.iter().flatten().find(|seen| seen.object.is(object)).cloned();
        let seen = self.0.try_lock().ok().and_then(|memory| memory.get(position).and_then(known));
        if let Some(seen) = seen
            && seen.is_steady(object.py())?
        {
            return Ok(seen);
        }
        if numpy::is_array(object) && numpy::type_of(object).is_none() {
            let given = object.getattr(intern!(object.py(), "dtype"))?;
            return Err(error::type_error(format!(
                "{name} has elements of type {given}, which cannot be passed to a program; convert the array: array.astype(...)"
            )));
        }
        let prefixed = |error| error::prefixed(object.py(), error, &name.to_string());
        let seen = Arc::new(Seen::new(object, position).map_err(prefixed)?);
        if seen.steady.is_none() {
            return Ok(seen);
        }
        // The old one is dropped without the lock: it may run a destructor of Python.
        let old = self.0.try_lock().ok().and_then(|mut memory| {
            let levels = memory.get_mut(position)?;
            levels.rotate_right(1);
            levels[0].replace(seen.clone())
        });
        drop(old);
        Ok(seen)
    }
}

impl Seen {
    fn new(object: &Bound<'_, PyAny>, position: usize) -> PyResult<Self> {
        let described = describe(object)?;
        let element = element(&described)?;
        let extents: Box<[isize]> = described.extents.iter().map(|&extent| extent as isize).collect();
        let strides = match described.strides {
            Some(strides) => strides.into(),
            None => element.c_order(&extents),
        };
        let seen = Self {
            object: object.clone().unbind(),
            position,
            steady: steady_shape(object)?,
            address: described.base,
            element,
            extents,
            strides,
            device: described.device.map_or(Device::Host, Device::Gpu),
            is_writable: described.is_writable,
            owner: described.owner,
        };
        // The object itself said its shape.
        if !seen.raw().fits_memory() {
            let (extents, strides) = (&seen.extents, &seen.strides);
            return Err(error::value_error(format!(
                "an array of shape {extents:?} with strides of {strides:?} bytes is larger than any memory; give the shape and the strides of its memory"
            )));
        }
        Ok(seen)
    }

    fn raw(&self) -> RawArray<'_> {
        RawArray {
            address: std::ptr::with_exposed_provenance_mut(self.address),
            element: self.element,
            extents: &self.extents,
            strides: &self.strides,
            device: self.device,
            is_writable: self.is_writable,
        }
    }

    /// Whether the array is as it was, by its identity and its shape alone.
    fn is_steady(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.steady {
            Some(shape) => self.object.bind(py).getattr(intern!(py, "shape"))?.eq(shape.bind(py)),
            None => Ok(false),
        }
    }

    /// The GPU of its memory.
    pub(super) fn gpu(&self) -> Option<u32> {
        match self.device {
            Device::Gpu(ordinal) => Some(ordinal),
            Device::Host => None,
        }
    }

    /// The owner of its memory besides the array.
    pub(super) fn owner(&self) -> Option<&Py<PyAny>> {
        self.owner.as_ref()
    }

    /// Whether the array is as it was.
    pub(super) fn is_unchanged(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_steady(py)? {
            return Ok(true);
        }
        let now = Self::new(self.object.bind(py), self.position)?;
        let of = |seen: &Self| (seen.address, seen.element, seen.device, seen.is_writable);
        Ok(of(&now) == of(self) && now.extents == self.extents && now.strides == self.strides)
    }
}

/// The shape of an array whose memory stays where it is. Only CuPy's arrays are known to: tensors of PyTorch can be given other memory, and
/// other objects may be anything.
fn steady_shape(object: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    match library_of(object, &["cupy"])? {
        Some(_) => Ok(object.getattr_opt(intern!(object.py(), "shape"))?.map(Bound::unbind)),
        None => Ok(None),
    }
}

fn element(described: &Described) -> PyResult<ScalarType> {
    ScalarType::try_from(described.element).map_err(|other| {
        let name = described.name.clone().unwrap_or_else(|| other.to_string());
        error::type_error(format!("elements of type {name} cannot be passed to a program; convert the array"))
    })
}

/// When an object is converted. A conversion may run code of the program, which may resize arrays of NumPy: these come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Number,
    Other,
    SubclassOfNumpy,
    Numpy,
}

impl Turn {
    /// `is_array`: an array is wanted.
    #[inline]
    pub(super) fn of(object: &Bound<'_, PyAny>, is_array: bool) -> Self {
        match is_array {
            _ if numpy::is_array(object) => Self::Numpy,
            false => Self::Number,
            true if numpy::is_of_subclass(object) => Self::SubclassOfNumpy,
            true => Self::Other,
        }
    }
}

/// The arguments of one call. It borrows them from Python objects that the call holds.
pub(super) struct Arguments<'a> {
    pub(super) given: Vec<Given<'a>>,
    /// Keeps what `given` refers to.
    pub(super) seen: Vec<Arc<Seen>>,
}

impl<'a> Arguments<'a> {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { given: Vec::with_capacity(count), seen: Vec::new() }
    }

    /// Of a call whose arguments are not known yet.
    pub(super) fn absent(count: usize) -> Self {
        let mut arguments = Self::with_capacity(count + 1);
        arguments.given.resize(count, Given::Absent);
        arguments
    }

    /// Moves what was appended last, if anything was, to a position of so many.
    #[inline]
    pub(super) fn move_last_to(&mut self, position: usize, count: usize) {
        if self.given.len() > count
            && let Some(last) = self.given.pop()
        {
            self.given[position] = last;
        }
    }

    /// Appends an object for an array.
    #[inline]
    pub(super) fn push_array(
        &mut self,
        object: Borrowed<'a, '_, PyAny>,
        memory: &Memory,
        position: usize,
        name: Name<'_>,
    ) -> PyResult<()> {
        if numpy::is_array(&object)
            && let Some(element) = numpy::type_of(&object)
        {
            // SAFETY: NumPy says that the memory has these elements, and the call holds the array. The documentation obliges
            // the program not to access it from other threads meanwhile.
            let view = unsafe { ArrayView::from_raw(RawArray { element, ..numpy::parts(object) }) };
            self.given.push(view.into());
            return Ok(());
        }
        if is_number(&object) {
            self.given.push(Given::Scalar(number(&object, name)?));
            return Ok(());
        }
        self.push_seen(memory.find(&object, position, name)?);
        Ok(())
    }

    #[cold]
    fn push_seen(&mut self, seen: Arc<Seen>) {
        // SAFETY: the lists are on the heap, never change, and live as long as `self.seen`, which lives as long as `self.given`.
        let raw = unsafe { &*Arc::as_ptr(&seen) }.raw();
        // SAFETY: by the array's protocol the memory has these elements as long as the owner lives, which `seen` holds.
        self.given.push(unsafe { ArrayView::from_raw(raw) }.into());
        self.seen.push(seen);
    }

    /// Appends an object for a scalar: a number, or an array without dimensions.
    #[inline]
    pub(super) fn push_scalar(
        &mut self,
        object: Borrowed<'a, '_, PyAny>,
        memory: &Memory,
        position: usize,
        name: Name<'_>,
    ) -> PyResult<()> {
        if numpy::is_array(&object) {
            return self.push_array(object, memory, position, name);
        }
        self.given.push(Given::Scalar(number(&object, name)?));
        Ok(())
    }
}

/// Whether an object is a number of Python, whose conversion runs no code.
pub(super) fn is_number(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>()
}

/// A number of Python or NumPy.
#[inline]
pub(super) fn number(object: &Bound<'_, PyAny>, name: Name<'_>) -> PyResult<Scalar> {
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Scalar::Float(value.value()));
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Scalar::Bool(value.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        return integer(object, name);
    }
    number_of_library(object, name)
}

fn integer(object: &Bound<'_, PyAny>, name: Name<'_>) -> PyResult<Scalar> {
    let is_too_long = |error: &PyErr| error.is_instance_of::<PyOverflowError>(object.py());
    match object.extract::<i64>() {
        Ok(value) => Ok(Scalar::Int(value)),
        Err(error) if is_too_long(&error) => {
            object.extract::<u64>().map(Scalar::UInt).map_err(|error| match is_too_long(&error) {
                true => {
                    error::value_error(format!("{name}: {object} is out of the range of 64-bit integers"))
                }
                false => error,
            })
        }
        Err(error) => Err(error),
    }
}

/// A number of another library: a scalar or an array without dimensions of NumPy, or what converts itself to an integer or a float.
#[cold]
fn number_of_library(object: &Bound<'_, PyAny>, name: Name<'_>) -> PyResult<Scalar> {
    let py = object.py();
    let not_a_number = || {
        error::type_error(format!(
            "{name}: a number is wanted, not {}",
            crate::argument::shown_in_message(object)
        ))
    };
    let is_single = numpy::is_array(object) && numpy::parts(object.as_borrowed()).extents.is_empty();
    if is_single || crate::array::is_instance(object, "numpy", "generic")? {
        let item = object.call_method0(intern!(py, "item"))?;
        return match is_number(&item) {
            true => number(&item, name),
            false => Err(not_a_number()),
        };
    }
    for method in [intern!(py, "__index__"), intern!(py, "__float__")] {
        match object.call_method0(method) {
            Ok(value) if value.is_instance_of::<PyInt>() => return integer(&value, name),
            Ok(value) if value.is_instance_of::<PyFloat>() => return number(&value, name),
            Ok(_) => return Err(not_a_number()),
            Err(error) if is_no_conversion(py, &error) => {}
            // An exception of the object's own code.
            Err(error) => return Err(error),
        }
    }
    Err(not_a_number())
}

/// Whether an object has no such method, or is not of this kind of number.
fn is_no_conversion(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py)
}
