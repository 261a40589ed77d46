//! What outlives, or must not outlive, the objects of Python: values that belong to one process, array objects kept alive by
//! threads without Python.

use crate::comm::JOINING;
use crate::error;
use crate::host::{self, Left};
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, Weak};

/// How many forks lie between this process and the one that imported the package.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A value whose end may wait, so that it must not come while the GIL is held.
pub(crate) trait Ends: Send + Sized {
    /// Drops it, but for what may wait.
    fn let_go(self) -> Option<impl Send> {
        Some(self)
    }
}

impl Ends for halocline::Pending {
    fn let_go(self) -> Option<impl Send> {
        halocline::Pending::let_go(self)
    }
}

impl Ends for halocline::Field {}
impl<T: Send + Sync> Ends for Arc<T> {}
impl<T: Send> Ends for Mutex<T> {}
impl<T: Send + Sync> Ends for RwLock<T> {}

/// A value of the process that made it. A forked child has none of the threads that work for it, and peers know the parent:
/// there it can be neither used nor dropped.
pub(crate) struct Owned<T: Ends> {
    value: ManuallyDrop<T>,
    born: u32,
}

impl<T: Ends> Owned<T> {
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

impl<T: Ends> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.born == GENERATION.load(Ordering::Relaxed) {
            // SAFETY: `value` is taken here alone, and this is the drop, which happens once.
            let value = unsafe { ManuallyDrop::take(&mut self.value) };
            if let Some(end) = value.let_go() {
                Python::attach(|py| {
                    // A communicator waits for its threads.
                    py.detach(|| drop(end));
                    drop_deferred(py);
                });
            }
        }
    }
}

/// What ends for good when its rank leaves, though objects of Python may still name it.
pub(crate) struct Closable<T: Send + Sync> {
    value: Owned<RwLock<Option<Arc<T>>>>,
    left: Left,
}

impl<T: Send + Sync> Closable<T> {
    /// The value, unless it was closed, or this is a forked child. What this thread waits for next ends when it is closed.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<Arc<T>> {
        host::waits_for(&self.left);
        let value = self.value.get()?.read().unwrap_or_else(PoisonError::into_inner);
        value.clone().ok_or_else(|| self.closed())
    }

    /// As [`Closable::get`], for a call that waits for nobody: it cannot be closed meanwhile.
    #[inline]
    pub(crate) fn with<R>(&self, call: impl FnOnce(&T) -> R) -> PyResult<R> {
        host::waits_for(&self.left);
        let value = self.value.get()?.read().unwrap_or_else(PoisonError::into_inner);
        value.as_deref().map(call).ok_or_else(|| self.closed())
    }

    fn closed(&self) -> PyErr {
        self.left.error().unwrap_or_else(|| error::closed(host::CLOSED))
    }

    /// What tells that it was closed.
    pub(crate) fn left(&self) -> Left {
        Left::clone(&self.left)
    }
}

/// A [`Closable`] of any kind.
trait Close: Send + Sync {
    fn close(&self);
}

impl<T: Send + Sync> Close for Closable<T> {
    fn close(&self) {
        // In a forked child there is nothing to close.
        if let Ok(value) = self.value.get() {
            let value = value.write().unwrap_or_else(PoisonError::into_inner).take();
            drop(value);
        }
    }
}

/// All that ends when a rank leaves.
#[derive(Default)]
pub(crate) struct Member {
    all: Mutex<Vec<Weak<dyn Close>>>,
    left: Left,
}

impl Member {
    pub(crate) fn hold<T: Send + Sync + 'static>(&self, value: T) -> Arc<Closable<T>> {
        let value = Owned::new(RwLock::new(Some(Arc::new(value))));
        let closable = Arc::new(Closable { value, left: Left::clone(&self.left) });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len().is_power_of_two() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(&closable) as Weak<dyn Close>);
        drop(all);
        if self.left.error().is_some() {
            // Another thread has closed the rank meanwhile, perhaps before this was among all.
            Python::attach(|py| py.detach(|| closable.close()));
        }
        closable
    }

    /// From now on calls of the rank raise `KeyboardInterrupt`.
    pub(crate) fn interrupt(&self) {
        self.left.interrupt();
    }

    /// Ends all, what came last first, and the waits of other threads for it.
    pub(crate) fn close(&self, py: Python<'_>) {
        self.left.close();
        host::waits_for_nobody();
        let all = std::mem::take(&mut *self.all.lock().unwrap_or_else(PoisonError::into_inner));
        py.detach(|| all.iter().rev().filter_map(Weak::upgrade).for_each(|one| one.close()));
        drop_deferred(py);
    }
}

/// Counts forks from now on.
fn watch_forks() {
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        JOINING.reset();
    }
    WATCH.call_once(|| {
        // SAFETY: the handler stays as long as the process (extension modules are not unloaded), and two atomic
        // operations. Out of memory it is not installed: then children go unnoticed, as without it.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// An object of Python that is kept alive for memory of it. Whoever drops it last may be a thread without Python, or hold
/// a lock: so it is only put aside, and let go of by the next call from Python.
///
/// It is also referred to weakly, where it lets itself be: NumPy does not resize an array, which frees its memory, while
/// anything does that, not even with `refcheck=False`.
pub(crate) struct KeepAlive([Option<Py<PyAny>>; 2]);

impl KeepAlive {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Self {
        let weak = PyWeakrefReference::new(object).ok().map(|weak| weak.into_any().unbind());
        Self([weak, Some(object.clone().unbind())])
    }
}

/// What was put aside, the last one first. No lock: a fork would find it locked by a thread that it does not take along.
static ASIDE: AtomicPtr<Aside> = AtomicPtr::new(std::ptr::null_mut());

struct Aside {
    object: Py<PyAny>,
    next: *mut Aside,
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        for object in self.0.iter_mut().filter_map(Option::take) {
            let last = Box::into_raw(Box::new(Aside { object, next: ASIDE.load(Ordering::Relaxed) }));
            // SAFETY: nobody else knows it before it is the last one; then whoever takes all of them owns it.
            let push = || unsafe {
                let exchanged =
                    ASIDE.compare_exchange((*last).next, last, Ordering::Release, Ordering::Relaxed);
                exchanged.map_err(|other| (*last).next = other)
            };
            while push().is_err() {}
        }
    }
}

/// Lets go of what was put aside.
#[inline]
pub(crate) fn drop_deferred(py: Python<'_>) {
    if ASIDE.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut last = ASIDE.swap(std::ptr::null_mut(), Ordering::Acquire);
    while !last.is_null() {
        // SAFETY: made by a box, and this call's since the swap.
        let Aside { object, next } = *unsafe { Box::from_raw(last) };
        // Its end may run any Python, this function, too.
        drop(object.into_bound(py));
        last = next;
    }
}
