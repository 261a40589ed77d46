//! An exchange of bound buffers, and its executions.

use super::abi::XlaFuture;
use super::frame::{Call, Future, Memory};
use crate::array::bytes_anywhere;
use crate::error;
use crate::exchange::PyHaloExchange;
use crate::host;
use crate::process_local::{Closable, KeepAlive};
use halocline::device::{Address, cuda};
use halocline::{CopiedExchange, HaloExchange, Pending, ReduceOp, Stream};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, Weak};

/// How often the handler looks for the end before it leaves the wait to another thread: about the time that this takes.
const LOOKS: u32 = 64;

/// Exchanges by their numbers. Compiled functions know the number alone.
static ALL: LazyLock<RwLock<HashMap<i64, Weak<XlaExchange>>>> = LazyLock::new(RwLock::default);

pub(super) struct XlaExchange {
    number: i64,
    halo: Arc<Closable<HaloExchange>>,
    /// What is bound, in the order of the arguments.
    buffers: Vec<Memory>,
    /// Of buffers in GPU memory: what copies there.
    on_gpu: Option<CopiedExchange>,
    /// The arrays of the buffers.
    _arrays: Vec<KeepAlive>,
    /// Compares the ranks' calls, in checked mode.
    compare: Option<Py<PyAny>>,
    is_busy: AtomicBool,
    /// An exchange whose wait was interrupted: peers may still read the buffers.
    unfinished: Mutex<Option<Pending>>,
    /// The exception of an execution: XLA reports its text alone.
    failure: Mutex<Option<PyErr>>,
    /// To the thread that waits. Made when first needed.
    waiter: Mutex<Option<Sender<Waiting>>>,
}

// SAFETY: `buffers` are addresses of memory that `_arrays` keep alive. Only the execution that has set `is_busy` accesses it.
unsafe impl Send for XlaExchange {}
// SAFETY: threads that share it take `is_busy` before they access the memory of `buffers`; all else is `Sync` by itself.
unsafe impl Sync for XlaExchange {}

/// An execution whose handler has returned.
struct Waiting {
    execution: Execution,
    /// None: it has not begun.
    pending: Option<Pending>,
    future: Future,
}

/// One exchange or reduce of a compiled function.
struct Execution {
    exchange: Arc<XlaExchange>,
    arguments: Vec<Memory>,
    results: Vec<Memory>,
    reduces: bool,
    /// The number of the call's label, in checked mode.
    label: Option<i32>,
}

// SAFETY: XLA keeps the memory of arguments and results valid, and unused by others, until the handler returns or the future is
// complete. The execution is dropped before that.
unsafe impl Send for Execution {}

impl XlaExchange {
    pub(super) fn find(number: i64) -> Result<Arc<Self>, String> {
        let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&number).and_then(Weak::upgrade).ok_or_else(|| {
            "ClosedError: the halocline.jax.HaloExchange of this compiled function was dropped; keep a reference to it".to_owned()
        })
    }

    /// Executes a call. Returns the future of its end, unless it is over.
    pub(super) fn execute(self: Arc<Self>, call: &Call<'_>) -> Result<Option<*mut XlaFuture>, String> {
        let (mut arguments, results) = (call.arguments()?, call.results()?);
        let is_checked = self.compare.is_some() && !arguments.is_empty();
        let label = is_checked.then(|| arguments.remove(0));
        let bytes = |list: &[Memory]| list.iter().map(|memory| memory.bytes).collect::<Vec<_>>();
        if bytes(&arguments) != bytes(&self.buffers) || bytes(&results) != bytes(&self.buffers) {
            return Err(
                "HaloValueError: the arrays of a compiled function are not those that were bound".to_owned()
            );
        }
        let reduces = call.number("reduces")? != 0;
        if let Some(copied) = &self.on_gpu {
            let ran = self.run_on_gpu(copied, call, label, (&arguments, &results, reduces));
            return ran.map(|()| None).map_err(|error| self.failed(error));
        }
        let label = label.map(number_at).transpose()?;
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(self.failed(error::in_flight(
                "another thread exchanges such arrays with this object; wait for it, or give each thread an object",
            )));
        }
        let execution = Execution { exchange: self, arguments, results, reduces, label };
        if label.is_some() {
            return execution.hand_over(None, call);
        }
        let begun = execution.begin();
        let pending = match begun {
            Ok(pending) => pending,
            Err(error) => return execution.end(Err(error)).map(|()| None),
        };
        match pending.wait_briefly(LOOKS) {
            Some(outcome) => execution.end(outcome.map_err(error::of)).map(|()| None),
            None => execution.hand_over(Some(pending), call),
        }
    }

    /// Gives a call to the stream that XLA computes on. The host waits for other ranks in checked mode alone.
    fn run_on_gpu(
        &self,
        copied: &CopiedExchange,
        call: &Call<'_>,
        label: Option<Memory>,
        (arguments, results, reduces): (&[Memory], &[Memory], bool),
    ) -> PyResult<()> {
        let raw = call.stream().map_err(error::value_error)?;
        // SAFETY: XLA keeps its streams as long as its client, which outlives this call.
        let stream = unsafe { copied.device().borrow_stream(raw) }.map_err(error::of)?;
        if let (Some(compare), Some(label)) = (&self.compare, label) {
            let label = number_on_gpu(label, &stream).map_err(error::of)?;
            Python::attach(|py| compare.call1(py, (label,)).map(drop))?;
        }
        let address = |memory: &Memory| memory.start.addr() as Address;
        let arrays: Vec<_> = arguments.iter().map(address).zip(results.iter().map(address)).collect();
        let halo = self.halo.get()?;
        // SAFETY: `execute` has compared the sizes. XLA orders what else uses the memory of arguments and results by this stream.
        unsafe { copied.call(&halo, reduces.then_some(ReduceOp::Sum), &arrays, &stream) }.map_err(error::of)
    }

    /// Keeps an exception for Python, and returns its text for XLA.
    fn failed(&self, error: PyErr) -> String {
        let text = Python::try_attach(|py| {
            let class = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
            format!("{class}: {}", error.value(py))
        });
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        text.unwrap_or_else(|| "an exchange failed while Python ended".to_owned())
    }

    /// The channel to the thread that waits.
    fn waiter(&self) -> Sender<Waiting> {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        waiter.get_or_insert_with(start_waiter).clone()
    }
}

/// A thread that completes executions, until the exchange is dropped.
fn start_waiter() -> Sender<Waiting> {
    let (sender, receiver) = mpsc::channel::<Waiting>();
    std::thread::spawn(move || {
        for Waiting { execution, pending, future } in receiver {
            let finish = AssertUnwindSafe(|| execution.finish(pending));
            let panicked = |_| Err("halocline panicked; its message is on the standard error".to_owned());
            future.complete(catch_unwind(finish).unwrap_or_else(panicked));
        }
    });
    sender
}

impl Execution {
    /// Copies the arguments into the buffers, and begins.
    fn begin(&self) -> PyResult<Pending> {
        let halo = self.exchange.halo.get()?;
        let mut unfinished = self.exchange.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pending) = &*unfinished {
            pending.wait().map_err(error::of)?;
        }
        *unfinished = None;
        drop(unfinished);
        self.arguments.iter().zip(&self.exchange.buffers).for_each(|(from, to)| copy(from, to));
        let pending = match self.reduces {
            true => halo.reduce(ReduceOp::Sum),
            false => halo.exchange(),
        };
        pending.map_err(error::of)
    }

    /// Leaves the rest to the thread that waits.
    fn hand_over(self, pending: Option<Pending>, call: &Call<'_>) -> Result<Option<*mut XlaFuture>, String> {
        let future = match call.api.future() {
            Ok(future) => future,
            Err(_) => return self.finish(pending).map(|()| None),
        };
        let (waiter, raw) = (self.exchange.waiter(), future.future);
        match waiter.send(Waiting { execution: self, pending, future }) {
            Ok(()) => Ok(Some(raw)),
            Err(mpsc::SendError(Waiting { execution, pending, future })) => {
                future.complete(execution.finish(pending));
                Ok(Some(raw))
            }
        }
    }

    /// Runs it to its end.
    fn finish(self, pending: Option<Pending>) -> Result<(), String> {
        let outcome = match pending {
            Some(pending) => self.wait(pending),
            None => self.compare().and_then(|()| self.begin()).and_then(|pending| self.wait(pending)),
        };
        self.end(outcome)
    }

    /// Checked mode: raises an error if the ranks are in different operations.
    fn compare(&self) -> PyResult<()> {
        let (Some(compare), Some(label)) = (&self.exchange.compare, self.label) else { return Ok(()) };
        Python::attach(|py| compare.call1(py, (label,)).map(drop))
    }

    fn wait(&self, pending: Pending) -> PyResult<()> {
        // So that an end of the rank ends the wait.
        host::set_awaited_rank(&self.exchange.halo.left());
        let outcome = pending.wait();
        if outcome.is_err() {
            *self.exchange.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
        }
        outcome.map_err(error::of)
    }

    /// Copies the results, if there are any. Others may use the exchange from now on.
    fn end(self, outcome: PyResult<()>) -> Result<(), String> {
        match outcome {
            Ok(()) => {
                self.exchange.buffers.iter().zip(&self.results).for_each(|(from, to)| copy(from, to));
                Ok(())
            }
            Err(error) => Err(self.exchange.failed(error)),
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.exchange.is_busy.store(false, Ordering::Release);
    }
}

/// The number in an argument.
fn number_at(memory: Memory) -> Result<i32, String> {
    match memory.bytes {
        // SAFETY: the memory is valid until the handler returns.
        4 => Ok(unsafe { memory.start.cast::<i32>().read_unaligned() }),
        bytes => Err(format!("the number of a label has {bytes} bytes, not 4")),
    }
}

/// The same of an argument in GPU memory. Waits for the stream.
fn number_on_gpu(memory: Memory, stream: &Stream) -> Result<i32, halocline::Error> {
    let pinned = stream.device().allocate_pinned(size_of::<i32>())?;
    // SAFETY: XLA passes the number that `halocline/jax.py` gives it, of 4 bytes. Both stay valid until the stream has copied them: this
    // function waits for that.
    unsafe { stream.copy(pinned.at(0), memory.start.addr() as Address, size_of::<i32>()) }?;
    stream.synchronise()?;
    // SAFETY: the stream alone has written it, and is through.
    let bytes = unsafe { pinned.bytes(0..size_of::<i32>()) };
    Ok(bytes.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes)))
}

/// Copies between a buffer and memory of XLA, of one size.
fn copy(from: &Memory, to: &Memory) {
    if from.bytes > 0 {
        // SAFETY: `XlaExchange::execute` has compared the sizes. Buffers are memory of their own, which no exchange in flight accesses:
        // an execution copies before it begins, and after its wait.
        unsafe { std::ptr::copy_nonoverlapping(from.start, to.start, from.bytes) };
    }
}

/// An exchange, for `halocline/_jax_fields.py`.
#[pyclass(frozen, module = "halocline", name = "_XlaExchange", weakref)]
pub(crate) struct PyXlaExchange {
    exchange: Arc<XlaExchange>,
}

#[pymethods]
impl PyXlaExchange {
    /// `arrays`: what `halo` binds, in its order. `compare`: called with the number of each call's label, in checked mode.
    #[new]
    #[pyo3(signature = (halo, arrays, compare))]
    fn new(
        halo: &PyHaloExchange,
        arrays: Vec<Bound<'_, PyAny>>,
        compare: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        static NEXT: AtomicI64 = AtomicI64::new(0);
        let mut gpu = None;
        let buffer = |array: &Bound<'_, PyAny>| {
            let (start, bytes, described) = bytes_anywhere(array, true)?;
            gpu = described.device;
            Ok(Memory { start: start.as_ptr(), bytes })
        };
        let buffers: Vec<Memory> = arrays.iter().map(buffer).collect::<PyResult<_>>()?;
        let copied = |gpu| {
            let places = buffers.iter().map(|buffer| (buffer.start.addr() as Address, buffer.bytes));
            Ok::<_, PyErr>(CopiedExchange::new(&cuda::device(gpu).map_err(error::of)?, places.collect()))
        };
        let on_gpu = gpu.map(copied).transpose()?;
        let exchange = Arc::new(XlaExchange {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            halo: halo.handle(),
            buffers,
            on_gpu,
            _arrays: arrays.iter().map(KeepAlive::plain).collect(),
            compare,
            is_busy: AtomicBool::new(false),
            unfinished: Mutex::new(None),
            failure: Mutex::new(None),
            waiter: Mutex::new(None),
        });
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(exchange.number, Arc::downgrade(&exchange));
        drop(all);
        Ok(Self { exchange })
    }

    /// What compiled functions call it.
    #[getter]
    fn number(&self) -> i64 {
        self.exchange.number
    }

    /// The exception of an execution that failed, once.
    fn take_failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.exchange.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map(|error| error.into_value(py).into_any())
    }
}

impl Drop for PyXlaExchange {
    fn drop(&mut self) {
        ALL.write().unwrap_or_else(PoisonError::into_inner).remove(&self.exchange.number);
    }
}
