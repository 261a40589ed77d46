//! Allocators of the program: memory resources of RMM, allocators of CuPy. They are code of Python, so only a thread that is in a call
//! of the package runs them. Any other thread, the progress thread above all, postpones the request until the next call.

use crate::argument::{Refusal, class_of, shown_in_message};
use crate::error;
use crate::packet::ready_after;
use crate::process_local::{KeepAlive, drop_deferred};
use halocline::device::{Address, MemorySpace, Place, cuda};
use halocline::{Buffer, Device, MemoryAccount, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
use pyo3::intern;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

thread_local! {
    /// Calls of the package that this thread is in.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread runs an allocator.
    static ALLOCATES: Cell<bool> = const { Cell::new(false) };
    /// The last exception of an allocator of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Marks a call of the package in which allocators of the program may run.
pub(crate) struct CallScope(());

impl CallScope {
    /// Enters a call. An error within an allocator.
    pub(crate) fn enter() -> PyResult<Self> {
        refuse_in_allocator("use neighbour exchanges or sparse all-to-alls")?;
        if CALLS.replace(CALLS.get() + 1) == 0 {
            RAISED.take();
        }
        Ok(Self(()))
    }
}

impl Drop for CallScope {
    fn drop(&mut self) {
        CALLS.set(CALLS.get() - 1);
    }
}

/// Whether this thread runs an allocator: the operation that asks for memory is locked.
pub(crate) fn is_allocating() -> bool {
    ALLOCATES.get()
}

/// An error within an allocator, which cannot do `what`.
pub(crate) fn refuse_in_allocator(what: &str) -> PyResult<()> {
    match is_allocating() {
        false => Ok(()),
        true => Err(error::value_error(format!(
            "an allocator that receives payloads cannot {what} itself; do that after `allocate` has returned"
        ))),
    }
}

/// Marks the run of an allocator.
struct Allocating(());

impl Allocating {
    fn begin() -> Self {
        ALLOCATES.set(true);
        Self(())
    }
}

impl Drop for Allocating {
    fn drop(&mut self) {
        ALLOCATES.set(false);
    }
}

/// The exception of an allocator in this call.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.take()
}

/// How an allocator is called.
#[derive(Clone, Copy)]
enum Interface {
    /// `allocate(bytes)` returns an address, `deallocate(address, bytes)` frees it (RMM).
    Resource,
    /// A call with the number of bytes returns an object that holds memory at `.ptr` (CuPy).
    Callable,
}

/// An allocator of the program.
pub(super) struct Allocator {
    object: KeepAlive,
    interface: Interface,
    /// Where its memory lies; none: on the host.
    of_gpu: Option<OfGpu>,
    account: Arc<MemoryAccount>,
}

/// The GPU whose memory an allocator gives, and the streams in whose order it does.
pub(super) struct OfGpu {
    pub(super) device: Device,
    pub(super) streams: Vec<usize>,
}

/// Why an allocator gave no memory.
enum Failure {
    /// It raised this.
    Raised(PyErr),
    /// It returned something else; the error says what.
    Faulty(PyErr),
}

impl Failure {
    /// The error of the request; the exception stays as its cause.
    fn of_request(self, py: Python<'_>, asked: usize) -> MemoryError {
        let (Self::Raised(error) | Self::Faulty(error)) = &self;
        let class = error.get_type(py).name().map_or_else(|_| "an error".into(), |name| name.to_string());
        let text = error.value(py).to_string();
        match self {
            Self::Raised(error) => {
                RAISED.set(Some(error));
                MemoryError::Foreign { asked, why: format!("{class}: {text}") }
            }
            Self::Faulty(error) => {
                RAISED.set(Some(error));
                MemoryError::Faulty { asked, why: text }
            }
        }
    }
}

/// A block of an RMM-like resource. Python drops it in a thread that may run Python code.
#[pyclass(frozen, module = "halocline")]
struct Block {
    resource: Py<PyAny>,
    address: usize,
    bytes: usize,
}

impl Drop for Block {
    fn drop(&mut self) {
        Python::attach(|py| {
            let freed = self.resource.bind(py).call_method1("deallocate", (self.address, self.bytes));
            if let Err(error) = freed {
                error.write_unraisable(py, Some(self.resource.bind(py)));
            }
        });
    }
}

impl Allocator {
    /// Refuses an object that is no allocator.
    pub(super) fn check(object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        Self::interface(object).map(drop)
    }

    fn interface(object: &Bound<'_, PyAny>) -> Result<Interface, Refusal> {
        let py = object.py();
        let has = |name| Ok::<_, PyErr>(object.getattr_opt(name)?.is_some_and(|method| method.is_callable()));
        let is_class = object.is_instance_of::<pyo3::types::PyType>();
        match (has(intern!(py, "allocate"))?, has(intern!(py, "deallocate"))?) {
            (true, true) if !is_class => Ok(Interface::Resource),
            (true, false) if !is_class => Err(Refusal::wrong_type(format!(
                "{} has `allocate`, but no `deallocate(address, bytes)`",
                class_of(object)
            ))),
            _ if object.is_callable() && !is_class => Ok(Interface::Callable),
            _ => Err(Refusal::wanted(
                "a halocline.HostMemory, DeviceMemory or ForeignMemory, an object with allocate(bytes) and deallocate(address, bytes) \
                 (RMM), or a callable that returns an object with .ptr (CuPy)",
                object,
            )),
        }
    }

    pub(super) fn new(object: &Bound<'_, PyAny>, of_gpu: Option<OfGpu>) -> Result<Self, Refusal> {
        let interface = Self::interface(object)?;
        let account = MemoryAccount::new(kind(of_gpu.as_ref()));
        Ok(Self { object: KeepAlive::plain(object), interface, of_gpu, account })
    }

    /// The address of new memory, and what holds it.
    fn call<'py>(&self, py: Python<'py>, bytes: usize) -> Result<(usize, Bound<'py, PyAny>), Failure> {
        let object = self.object.object(py);
        let number = |given: &Bound<'py, PyAny>, what: &str| match given.extract::<usize>() {
            Ok(0) => Err(Failure::Faulty(no_memory())),
            Ok(address) => Ok(address),
            Err(_) => Err(Failure::Faulty(error::type_error(format!(
                "{what} gave no address, but {}",
                shown_in_message(given)
            )))),
        };
        match self.interface {
            Interface::Resource => {
                let given =
                    object.call_method1(intern!(py, "allocate"), (bytes,)).map_err(Failure::Raised)?;
                let address = number(&given, "allocate")?;
                let block = Block { resource: object.unbind(), address, bytes };
                Ok((address, Bound::new(py, block).map_err(Failure::Raised)?.into_any()))
            }
            Interface::Callable => {
                let held = object.call1((bytes,)).map_err(Failure::Raised)?;
                let address = held.getattr(intern!(py, "ptr")).map_err(Failure::Faulty)?;
                Ok((number(&address, ".ptr")?, held))
            }
        }
    }

    /// Refuses memory that lies elsewhere than the resource says.
    fn check_place(&self, found: Option<u32>) -> PyResult<()> {
        let wanted = self.of_gpu.as_ref().map(|of_gpu| of_gpu.device.ordinal());
        match (found, wanted) {
            (found, wanted) if found == wanted => Ok(()),
            (Some(gpu), None) => Err(error::value_error(format!(
                "it returned memory of GPU {gpu}: say so, halocline.ForeignMemory(comm, allocator, device={gpu}), or give a resource of \
                 host memory"
            ))),
            (Some(gpu), Some(device)) => Err(error::value_error(format!(
                "it returned memory of GPU {gpu} instead of {device}: make {device} the current device, or give device={gpu}"
            ))),
            (None, wanted) => Err(error::value_error(format!(
                "it returned memory of the host instead of GPU {}: leave `device` out",
                wanted.unwrap_or_default()
            ))),
        }
    }

    fn allocate_in(&self, py: Python<'_>, bytes: usize) -> Result<Buffer, Failure> {
        // Returns memory that was freed since to the allocator.
        drop_deferred(py);
        let (address, memory) = self.call(py, bytes)?;
        let Some(first) = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address)) else {
            return Err(Failure::Faulty(no_memory()));
        };
        let place = gpu_of(py, address).map_err(Failure::Raised)?;
        self.check_place(place).map_err(Failure::Faulty)?;
        let held = KeepAlive::plain(&memory);
        if let Some(OfGpu { device, streams }) = &self.of_gpu {
            // SAFETY: the allocator has given these bytes of the device to this caller alone, until `held` is dropped; what the streams have
            // now may still use them, and comes first.
            let buffer = unsafe { Buffer::foreign_device(address as Address, bytes, device, held) };
            return ready_after(buffer, device, streams).map_err(|error| Failure::Raised(error::of(error)));
        }
        // SAFETY: the allocator has given these bytes to this caller alone, until `held` is dropped; the documentation of the
        // package says so. Memory from another language counts as initialised.
        Ok(unsafe { Buffer::foreign_mut(first, bytes, held) })
    }
}

fn kind(of_gpu: Option<&OfGpu>) -> MemoryKind {
    if of_gpu.is_some() { MemoryKind::Device } else { MemoryKind::Host }
}

fn no_memory() -> PyErr {
    error::value_error("it returned address 0; raise MemoryError where there is no memory")
}

/// The GPU whose memory an address is; none on a machine without one.
fn gpu_of(py: Python<'_>, address: usize) -> PyResult<Option<u32>> {
    let of = |error: halocline::DeviceError| error::of(halocline::Error::from(error));
    let find = || {
        if cuda::inventory().map_or(0, |inventory| inventory.gpus.len()) == 0 {
            return Ok(None);
        }
        let place = cuda::device(0)?.place_of(address as Address);
        Ok(match place {
            Ok(Place { space: MemorySpace::Device(ordinal), .. }) => Some(ordinal),
            // The driver does not know memory that it has not allocated.
            _ => None,
        })
    };
    py.detach(find).map_err(of)
}

impl MemoryResource for Allocator {
    fn kind(&self) -> MemoryKind {
        kind(self.of_gpu.as_ref())
    }

    fn device(&self) -> Option<&Device> {
        self.of_gpu.as_ref().map(|of_gpu| &of_gpu.device)
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        if bytes == 0 {
            return Ok(Buffer::empty_of(self));
        }
        self.account.count(bytes, || {
            Python::attach(|py| {
                // Until the text of an exception is made, too: it is code of the program.
                let _allocating = Allocating::begin();
                self.allocate_in(py, bytes).map_err(|failure| failure.of_request(py, bytes))
            })
        })
    }

    fn watch(&self, waker: &Waker) {
        self.account.watch(waker);
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}

/// A resource that allocates in calls of the package alone.
pub(crate) struct OnCalls {
    inner: Arc<dyn MemoryResource>,
    /// Tasks and waits that allocate when they are woken.
    waiting: Mutex<Vec<Waker>>,
    /// They know of a postponed request. Without it the progress thread and a waiting one would wake each other for ever.
    is_told: AtomicBool,
}

impl OnCalls {
    pub(super) fn new(inner: Arc<dyn MemoryResource>) -> Self {
        Self { inner, waiting: Mutex::default(), is_told: AtomicBool::new(false) }
    }

    /// Wakes a task at the next request that is postponed.
    pub(crate) fn notify(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// A call begins: the next postponed request is news.
    pub(crate) fn begin_call(&self) {
        self.is_told.store(false, Ordering::Relaxed);
    }
}

impl MemoryResource for OnCalls {
    fn kind(&self) -> MemoryKind {
        self.inner.kind()
    }

    fn device(&self) -> Option<&Device> {
        self.inner.device()
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        if CALLS.get() == 0 {
            return Err(MemoryError::Postponed { asked: bytes });
        }
        self.is_told.store(false, Ordering::Relaxed);
        self.inner.allocate(bytes)
    }

    fn spill(&self, bytes: usize) -> Option<Result<Buffer, MemoryError>> {
        self.inner.spill(bytes)
    }

    fn patience(&self, bytes: usize) -> Duration {
        self.inner.patience(bytes)
    }

    fn watch(&self, waker: &Waker) {
        if CALLS.get() > 0 {
            return self.inner.watch(waker);
        }
        // Wakes the waits of this rank, and its tasks.
        if !self.is_told.swap(true, Ordering::Relaxed) {
            waker.wake_by_ref();
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    fn statistics(&self) -> MemoryStatistics {
        self.inner.statistics()
    }
}
