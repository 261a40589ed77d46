//! Lifetimes beyond Python's objects: values that belong to one process, values that end when a rank leaves, and array objects that
//! threads without Python keep alive.

use crate::comm::JOINING;
use crate::error;
use crate::host::{self, DepartureRef};
use crate::memory_resource::is_allocating;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, Weak};

/// The number of forks between the process that imported the package and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Differs in a forked child.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value whose drop may block, so that it must not happen while the GIL is held.
pub(crate) trait DropMayBlock: Send + Sized + 'static {
    /// Drops everything but the parts whose drop may block, and returns these.
    fn let_go(self) -> Option<impl Send + 'static> {
        Some(self)
    }
}

impl DropMayBlock for halocline::Pending {
    fn let_go(self) -> Option<impl Send + 'static> {
        halocline::Pending::let_go(self)
    }
}

impl DropMayBlock for halocline::Field {}
impl DropMayBlock for halocline_trace::device::DeviceTrace {}
impl<T: Send + Sync + 'static> DropMayBlock for Arc<T> {}
impl<T: Send + 'static> DropMayBlock for Mutex<T> {}
impl<T: Send + Sync + 'static> DropMayBlock for RwLock<T> {}

/// A value of the process that made it. A forked child can neither use nor drop it: the child lacks the threads that serve the value, and
/// peers communicate with the parent.
pub(crate) struct ProcessLocal<T: DropMayBlock> {
    value: ManuallyDrop<T>,
    born: u32,
}

impl<T: DropMayBlock> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        watch_forks();
        Self { value: ManuallyDrop::new(value), born: GENERATION.load(Ordering::Relaxed) }
    }

    /// The value, unless this is a forked child.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        match self.born == GENERATION.load(Ordering::Relaxed) {
            true => Ok(&self.value),
            false => Err(error::forked()),
        }
    }
}

impl<T: DropMayBlock> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if self.born == GENERATION.load(Ordering::Relaxed) {
            // SAFETY: only this line takes `value`, and a drop happens once.
            let value = unsafe { ManuallyDrop::take(&mut self.value) };
            if let Some(end) = value.let_go() {
                if is_allocating() {
                    // A garbage collection within an allocator. The operation that asks for memory is locked by this very thread.
                    return postpone(Box::new(end), self.born);
                }
                Python::attach(|py| {
                    // Dropping a communicator joins its threads.
                    py.detach(|| drop(end));
                    drop_deferred(py);
                });
            }
        }
    }
}

thread_local! {
    /// Objects that this thread drops at the end of its call of the package, and their process.
    static POSTPONED: RefCell<Vec<(Box<dyn Any + Send>, u32)>> = const { RefCell::new(Vec::new()) };
}

fn postpone(value: Box<dyn Any + Send>, born: u32) {
    POSTPONED.with_borrow_mut(|postponed| postponed.push((value, born)));
}

/// Drops what was to be dropped while an allocator ran in this thread, which holds no lock of the library now.
#[inline]
pub(crate) fn drop_postponed(py: Python<'_>) {
    let postponed = POSTPONED.take();
    if postponed.is_empty() {
        return;
    }
    let (own, of_parent): (Vec<_>, Vec<_>) =
        postponed.into_iter().partition(|(_, born)| *born == generation());
    std::mem::forget(of_parent);
    py.detach(|| drop(own));
}

/// A value that is dropped when its rank leaves, although Python objects still refer to it.
pub(crate) struct Closable<T: Send + Sync + 'static> {
    value: ProcessLocal<RwLock<Option<Arc<T>>>>,
    left: DepartureRef,
}

impl<T: Send + Sync + 'static> Closable<T> {
    /// The value; an error if it was closed or this is a forked child. Later waits of this thread end when it is closed.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<Arc<T>> {
        host::set_awaited_rank(&self.left);
        let value = self.value.get()?.read().unwrap_or_else(PoisonError::into_inner);
        value.clone().ok_or_else(|| self.closed())
    }

    /// As [`Closable::get`], for a call that never waits: the value cannot be closed during the call.
    #[inline]
    pub(crate) fn with<R>(&self, call: impl FnOnce(&T) -> R) -> PyResult<R> {
        host::set_awaited_rank(&self.left);
        let value = self.value.get()?.read().unwrap_or_else(PoisonError::into_inner);
        value.as_deref().map(call).ok_or_else(|| self.closed())
    }

    fn closed(&self) -> PyErr {
        self.left.error().unwrap_or_else(|| error::closed(host::CLOSED))
    }

    /// The departure state of its rank.
    pub(crate) fn left(&self) -> DepartureRef {
        DepartureRef::clone(&self.left)
    }
}

/// A [`Closable`] of any kind.
trait Close: Send + Sync {
    fn close(&self);
}

impl<T: Send + Sync + 'static> Close for Closable<T> {
    fn close(&self) {
        // A forked child has nothing to close.
        if let Ok(value) = self.value.get() {
            let value = value.write().unwrap_or_else(PoisonError::into_inner).take();
            drop(value);
        }
    }
}

/// All values that are dropped when a rank leaves.
#[derive(Default)]
pub(crate) struct Member {
    all: Mutex<Vec<Weak<dyn Close>>>,
    left: DepartureRef,
}

impl Member {
    pub(crate) fn hold<T: Send + Sync + 'static>(&self, value: T) -> Arc<Closable<T>> {
        let value = ProcessLocal::new(RwLock::new(Some(Arc::new(value))));
        let closable = Arc::new(Closable { value, left: DepartureRef::clone(&self.left) });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len().is_power_of_two() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(&closable) as Weak<dyn Close>);
        drop(all);
        if self.left.error().is_some() {
            // Another thread may have closed the rank before this value was registered.
            Python::attach(|py| py.detach(|| closable.close()));
        }
        closable
    }

    /// Makes later calls of the rank raise `KeyboardInterrupt`.
    pub(crate) fn interrupt(&self) {
        self.left.interrupt();
    }

    /// Drops all values, the newest first, and ends waits of other threads.
    pub(crate) fn close(&self, py: Python<'_>) {
        self.left.close();
        host::clear_awaited_rank();
        let all = std::mem::take(&mut *self.all.lock().unwrap_or_else(PoisonError::into_inner));
        py.detach(|| all.iter().rev().filter_map(Weak::upgrade).for_each(|one| one.close()));
        drop_deferred(py);
    }
}

/// Counts forks from the first call on.
fn watch_forks() {
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        JOINING.reset();
    }
    WATCH.call_once(|| {
        // SAFETY: the handler is valid as long as the process, since extension modules are not unloaded, and does two atomic operations,
        // which are allowed after a fork. If memory for the registration is missing, forks stay unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Keeps a Python object alive because its memory is in use. The thread that drops it may not be attached to Python, or may hold a lock,
/// so the drop is deferred to the next call from Python.
///
/// Also holds a weak reference where the object allows one: NumPy does not resize an array, which would free its memory, while weak
/// references to it exist, not even with `refcheck=False`.
pub(crate) struct KeepAlive([Option<Py<PyAny>>; 2]);

impl KeepAlive {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Self {
        let weak = PyWeakrefReference::new(object).ok().map(|weak| weak.into_any().unbind());
        Self([weak, Some(object.clone().unbind())])
    }

    /// The object; `None` of Python only during the drop, which calls nothing.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.0[1].as_ref().map_or_else(|| py.None().into_bound(py), |object| object.bind(py).clone())
    }

    /// The same without a weak reference.
    pub(crate) fn plain(object: &Bound<'_, PyAny>) -> Self {
        Self([None, Some(object.clone().unbind())])
    }
}

/// A stack of deferred drops. Lock-free: a forked child could find a lock held by a thread that it does not have.
static DEFERRED: AtomicPtr<Deferred> = AtomicPtr::new(std::ptr::null_mut());

struct Deferred {
    object: Py<PyAny>,
    next: *mut Deferred,
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        for object in self.0.iter_mut().filter_map(Option::take) {
            let last = Box::into_raw(Box::new(Deferred { object, next: DEFERRED.load(Ordering::Relaxed) }));
            // SAFETY: `last` is a unique box until the exchange publishes it; afterwards the thread that swaps the stack out owns it.
            let push = || unsafe {
                let exchanged =
                    DEFERRED.compare_exchange((*last).next, last, Ordering::Release, Ordering::Relaxed);
                exchanged.map_err(|other| (*last).next = other)
            };
            while push().is_err() {}
        }
    }
}

/// Performs the deferred drops.
#[inline]
pub(crate) fn drop_deferred(py: Python<'_>) {
    if DEFERRED.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut last = DEFERRED.swap(std::ptr::null_mut(), Ordering::Acquire);
    while !last.is_null() {
        // SAFETY: each entry was made by `Box::into_raw`, and the swap gave this call sole ownership of the list.
        let Deferred { object, next } = *unsafe { Box::from_raw(last) };
        // Dropping it may run any Python code, also this function.
        drop(object.into_bound(py));
        last = next;
    }
}
