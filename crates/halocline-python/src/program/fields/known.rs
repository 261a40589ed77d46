//! Calls that were made before with the same fields: they are known by the identity of their objects, and not checked again.

use crate::program::arguments::is_number;
use crate::program::numpy::Snapshot;
use halocline_program::{CheckedCall, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyWeakrefReference};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How many calls are known: those of programs that swap two or three time levels.
const CALLS: usize = 4;

/// The calls of one program that came twice. They hold fields weakly.
pub(super) struct KnownCalls {
    calls: Mutex<[Option<Arc<Known>>; CALLS]>,
    /// Hashes of the identities of the last calls that were not known.
    seen: [AtomicUsize; CALLS],
    next: AtomicUsize,
}

pub(super) struct Known {
    /// The addresses of the objects of a call, by their position in the signature; 0 for a scalar whose value may change in place.
    objects: Box<[*mut pyo3::ffi::PyObject]>,
    /// Positions of scalars that may be others.
    scalars: Box<[usize]>,
    arrays: Box<[Watched]>,
    call: CheckedCall,
    /// Whether all fields live.
    is_alive: Arc<AtomicBool>,
    /// Weak references to fields and arrays, and the scalars.
    _kept: Box<[Py<PyAny>]>,
}

// SAFETY: the addresses are compared, and those of arrays are read with the GIL held while the arrays live.
unsafe impl Send for Known {}
// SAFETY: nothing changes but `is_alive`.
unsafe impl Sync for Known {}

/// An array of NumPy that a known call reads or writes.
pub(super) struct Watched {
    array: *mut pyo3::ffi::PyObject,
    snapshot: Snapshot,
}

impl Watched {
    pub(super) fn of(array: &Bound<'_, PyAny>) -> Self {
        Self { array: array.as_ptr(), snapshot: Snapshot::of(array.as_borrowed()) }
    }
}

/// Called when a field of a known call is dropped.
#[pyclass(frozen, module = "halocline.program")]
struct Expire(Arc<AtomicBool>);

#[pymethods]
impl Expire {
    fn __call__(&self, _reference: &Bound<'_, PyAny>) {
        self.0.store(false, Ordering::Release);
    }
}

/// A call that is known, and its scalars that are others now.
pub(super) struct Match {
    pub(super) known: Arc<Known>,
    pub(super) changes: Vec<Change>,
}

pub(super) struct Change {
    pub(super) position: usize,
    pub(super) value: Scalar,
}

impl KnownCalls {
    pub(super) fn new() -> Self {
        Self {
            calls: Mutex::new([const { None }; CALLS]),
            seen: [const { AtomicUsize::new(0) }; CALLS],
            next: AtomicUsize::new(0),
        }
    }

    /// The known call with these objects. A call that another thread is looking up is not found.
    #[inline]
    pub(super) fn find(
        &self,
        objects: &[Bound<'_, PyAny>],
        value: impl Fn(usize, &Bound<'_, PyAny>) -> PyResult<Scalar>,
    ) -> Option<PyResult<Match>> {
        let known = {
            let calls = self.calls.try_lock().ok()?;
            calls.iter().flatten().find(|known| known.is_of(objects))?.clone()
        };
        let mut changes = Vec::new();
        let mut has_run_code = false;
        for &position in &known.scalars {
            let object = &objects[position];
            if object.as_ptr() != known.objects[position] {
                has_run_code |= !is_number(object);
                match value(position, object) {
                    Ok(value) => changes.push(Change { position, value }),
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        // A conversion may have resized an array.
        (!has_run_code || known.is_of(objects)).then_some(Ok(Match { known, changes }))
    }

    /// Whether a call with these objects has come a short time ago, so that it is worth to be known.
    #[inline]
    pub(super) fn came_before(
        &self,
        objects: &[Bound<'_, PyAny>],
        is_scalar: impl Fn(usize) -> bool,
    ) -> bool {
        let fields = objects.iter().enumerate().filter(|(position, _)| !is_scalar(*position));
        let mix = |hash: usize, address: usize| {
            (hash ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize).rotate_left(23)
        };
        let hash = fields.fold(1, |hash, (_, object)| mix(hash, object.as_ptr().addr())) | 1;
        if self.seen.iter().any(|seen| seen.load(Ordering::Relaxed) == hash) {
            return true;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.seen[next % CALLS].store(hash, Ordering::Relaxed);
        false
    }

    /// Keeps a call that was checked. `objects` are by position in the signature, `arrays` the arrays of fields and connectivities, each as
    /// it was when the call was checked. Arrays may have changed since: then the call is not kept. `is_independent`: another scalar at this position changes no check.
    pub(super) fn add(
        &self,
        objects: &[Bound<'_, PyAny>],
        arrays: Vec<(Bound<'_, PyAny>, Watched)>,
        is_scalar: impl Fn(usize) -> bool,
        is_independent: impl Fn(usize) -> bool,
        call: CheckedCall,
    ) -> PyResult<()> {
        let Some(first) = objects.first() else { return Ok(()) };
        let is_free = |(position, object): (usize, &Bound<'_, PyAny>)| {
            !is_scalar(position) || is_constant(object) || is_independent(position)
        };
        if !objects.iter().enumerate().all(is_free) {
            return Ok(());
        }
        if !arrays.iter().all(|(array, watched)| watched.snapshot.is_of(array.as_borrowed())) {
            return Ok(());
        }
        let (arrays, watched): (Vec<_>, Vec<_>) = arrays.into_iter().unzip();
        let is_alive = Arc::new(AtomicBool::new(true));
        let expire = Bound::new(first.py(), Expire(is_alive.clone()))?;
        let mut kept = Vec::with_capacity(objects.len() + arrays.len());
        for (position, object) in objects.iter().enumerate() {
            match is_scalar(position) {
                true => kept.push(object.clone().unbind()),
                false => kept.push(PyWeakrefReference::new_with(object, &expire)?.into_any().unbind()),
            }
        }
        for array in &arrays {
            kept.push(PyWeakrefReference::new_with(array, &expire)?.into_any().unbind());
        }
        let independent = |position: &usize| is_scalar(*position) && is_independent(*position);
        let address = |(position, object): (usize, &Bound<'_, PyAny>)| match is_scalar(position) {
            true if !is_constant(object) => std::ptr::null_mut(),
            _ => object.as_ptr(),
        };
        let known = Known {
            objects: objects.iter().enumerate().map(address).collect(),
            scalars: (0..objects.len()).filter(independent).collect(),
            arrays: watched.into(),
            call,
            is_alive,
            _kept: kept.into(),
        };
        let old = match self.calls.try_lock() {
            Ok(mut calls) => {
                let dead = calls.iter().position(|known| known.as_ref().is_none_or(|known| !known.lives()));
                let at = dead.unwrap_or(self.next.fetch_add(1, Ordering::Relaxed) % CALLS);
                calls[at].replace(Arc::new(known))
            }
            Err(_) => None,
        };
        // Without the lock: it drops objects of Python.
        drop(old);
        Ok(())
    }
}

/// Whether an object is a number whose value never changes.
fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyInt>()
        || crate::array::is_instance(object, "numpy", "generic").unwrap_or(false)
}

impl Known {
    fn lives(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    pub(super) fn call(&self) -> &CheckedCall {
        &self.call
    }

    /// Whether these are the objects of this call, but for scalars that may change, and the arrays are as they were.
    #[inline]
    fn is_of(&self, objects: &[Bound<'_, PyAny>]) -> bool {
        let Some(first) = objects.first() else { return false };
        let mut differ =
            objects.iter().zip(&self.objects).enumerate().filter(|(_, (now, then))| now.as_ptr() != **then);
        if objects.len() != self.objects.len()
            || !differ.all(|(at, _)| self.scalars.contains(&at))
            || !self.lives()
        {
            return false;
        }
        self.arrays.iter().all(|watched| {
            // SAFETY: the array is an instance of `ndarray` that lives, since no weak reference of this call has expired, and the
            // GIL is held.
            let array = unsafe { Borrowed::from_ptr(first.py(), watched.array) };
            watched.snapshot.is_of(array)
        })
    }
}
