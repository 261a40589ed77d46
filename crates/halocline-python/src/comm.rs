//! Communicators: of this process's job, of mpi4py, of threads.

use crate::argument::{Argument, Bytes, Get, List, Numbers, accept, choose, shown_in_message};
use crate::array::is_instance;
use crate::call_lock::CallLock;
use crate::command::listen;
use crate::error;
use crate::grid::collective;
use crate::host;
use crate::host::PythonHost;
use crate::memory_resource::{Memory, refuse_in_allocator};
use crate::neighbors::{self, PyNeighborExchange};
use crate::process_local::{Closable, Member, ProcessLocal};
use crate::sparse;
use halocline::comm::mappings::Mappings;
use halocline::{Communicator, Reduce};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyBytes, PyDict, PyList};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

#[doc = doc!("Communicator")]
#[pyclass(frozen, module = "halocline", name = "Communicator", weakref)]
pub(crate) struct PyCommunicator {
    comm: Arc<Closable<Communicator>>,
    member: Arc<Member>,
    rank: usize,
    size: usize,
    transport: &'static str,
    /// Identifies the ranks: equal for a communicator and its duplicates.
    group: u64,
}

/// All ranks of this process, to close them at the end of the interpreter.
static ALL: Mutex<Vec<Weak<Member>>> = Mutex::new(Vec::new());

impl PyCommunicator {
    /// The first communicator of a group.
    pub(crate) fn first(comm: Communicator, group: u64) -> Self {
        let member = Arc::new(Member::default());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|member| member.strong_count() > 0);
        all.push(Arc::downgrade(&member));
        Self::of(comm, member, group)
    }

    fn of(comm: Communicator, member: Arc<Member>, group: u64) -> Self {
        let (rank, size, transport) = (comm.rank(), comm.size(), comm.transport());
        Self { comm: member.hold(comm), member, rank, size, transport, group }
    }

    /// Another communicator of the same rank.
    fn beside(&self, comm: Communicator) -> Self {
        Self::of(comm, Arc::clone(&self.member), self.group)
    }

    /// The communicator; an error if it was closed.
    pub(crate) fn get(&self) -> PyResult<Arc<Communicator>> {
        self.comm.get()
    }

    /// Whether the other ranks are threads of this process.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.transport == "thread"
    }

    /// Holds the values that are dropped when the rank leaves.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Makes a call that may wait, without the GIL.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Communicator) -> Result<T, halocline::CommError> + Send,
    ) -> PyResult<T> {
        refuse_in_allocator("make collective calls")?;
        let comm = self.get()?;
        py.detach(|| call(&comm)).map_err(error::of)
    }
}

pub(crate) fn new_group() -> u64 {
    static GROUPS: AtomicU64 = AtomicU64::new(0);
    GROUPS.fetch_add(1, Ordering::Relaxed)
}

/// Whether the interpreter is ending.
static ENDED: AtomicBool = AtomicBool::new(false);

fn close_all(py: Python<'_>) {
    ENDED.store(true, Ordering::Relaxed);
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    all.iter().filter_map(Weak::upgrade).for_each(|member| member.close(py));
}

/// Call it before the first communicator is made. Installs a listener for warnings, and leaves all groups at the end of the interpreter:
/// Python does not drop all objects there, and peers would wait for them.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    static ONCE: pyo3::sync::PyOnceLock<()> = pyo3::sync::PyOnceLock::new();
    ONCE.get_or_try_init(py, || {
        let at_exit = pyo3::types::PyCFunction::new_closure(py, None, None, |args, _| close_all(args.py()))?;
        listen()?;
        py.import("atexit")?.call_method1("register", (at_exit,))?;
        Ok(())
    })
    .copied()
}

/// The number of an `MPI_Comm`.
fn mpi_handle(comm: &Bound<'_, PyAny>) -> PyResult<usize> {
    let wanted = || {
        let wanted = "a communicator of mpi4py or the number of an MPI_Comm";
        error::type_error(format!("comm: {wanted} is wanted, not {}", shown_in_message(comm)))
    };
    if comm.is_instance_of::<PyBool>() {
        return Err(wanted());
    }
    if let Ok(number) = comm.extract::<usize>() {
        return Ok(number);
    }
    // Only the class is looked at: MPI may be finalised.
    if is_instance(comm, "mpi4py.MPI", "Intercomm")? {
        return Err(error::value_error(
            "comm: an intercommunicator joins two groups, which have no common ranks; give an intracommunicator, as \
             comm.Merge() makes it of this one",
        ));
    }
    // Datatypes, operations and groups also have handles, which MPI would misread as a communicator.
    if !is_instance(comm, "mpi4py.MPI", "Comm")? {
        return Err(wanted());
    }
    let handle = match comm.getattr_opt("handle")? {
        Some(handle) => handle,
        // mpi4py before 4.0.
        None => comm.py().import("mpi4py.MPI")?.getattr("_handleof")?.call1((comm,))?,
    };
    // MPICH's handles are C ints, which may be negative.
    handle.extract::<i128>().map(|number| number as usize)
}

#[pymethods]
impl PyCommunicator {
    #[new]
    #[pyo3(signature = (comm, *, node_aware = None, deadline = None))]
    fn from_mpi(
        py: Python<'_>,
        comm: &Bound<'_, PyAny>,
        node_aware: Option<Argument<bool>>,
        deadline: Option<Argument<Duration>>,
    ) -> PyResult<Self> {
        accept!(node_aware, deadline);
        prepare(py)?;
        let handle = mpi_handle(comm)?;
        if !is_first_process() {
            return Err(error::forked());
        }
        let host = Arc::new(PythonHost);
        host::clear_awaited_rank();
        // SAFETY: the handle is a live communicator of the MPI library that this process has loaded: mpi4py guarantees it for its
        // objects, and the caller for a number. MPI is not finalised during the call: mpi4py does that at the end of the
        // interpreter, and MPI forbids other threads to do it while one uses a communicator.
        let joined = py.detach(|| unsafe { Communicator::from_mpi_on(handle, node_aware, host) });
        Ok(Self::first(joined.map_err(error::of)?.with_deadline(deadline), new_group()))
    }

    #[doc = doc!("Communicator.rank")]
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    #[doc = doc!("Communicator.size")]
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    #[doc = doc!("Communicator.transport")]
    #[getter]
    fn transport(&self) -> &'static str {
        self.transport
    }

    #[doc = doc!("Communicator.duplicate")]
    fn duplicate(&self) -> PyResult<Self> {
        Ok(self.beside(self.get()?.duplicate().map_err(error::of)?))
    }

    #[doc = doc!("Communicator.split")]
    #[pyo3(signature = (color, key = Argument::of(0isize)), text_signature = "($self, color, key=0)")]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<Argument<usize>>,
        key: Argument<isize>,
    ) -> PyResult<Option<Self>> {
        accept!(color, key);
        let split = self.wait(py, |comm| comm.split(color, key as i64))?;
        Ok(split.map(|comm| Self::of(comm, Arc::clone(&self.member), new_group())))
    }

    #[doc = doc!("Communicator.with_deadline")]
    fn with_deadline(&self, seconds: Option<Argument<Duration>>) -> PyResult<Self> {
        accept!(seconds);
        Ok(self.beside(self.get()?.with_deadline(seconds)))
    }

    #[doc = doc!("Communicator.barrier")]
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, Communicator::barrier)
    }

    #[doc = doc!("Communicator.broadcast")]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        root: Argument<usize>,
        data: Argument<Bytes>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        accept!(root, data);
        let Bytes(data) = data;
        self.wait(py, |comm| comm.broadcast(root, data)).map(|data| PyBytes::new(py, &data))
    }

    #[doc = doc!("Communicator.all_gather")]
    fn all_gather<'py>(&self, py: Python<'py>, data: Argument<Bytes>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let Bytes(data) = data.get("data")?;
        let all = self.wait(py, |comm| comm.all_gather(&data))?;
        Ok(all.iter().map(|data| PyBytes::new(py, data)).collect())
    }

    #[doc = doc!("Communicator.all_reduce")]
    #[pyo3(signature = (values, op = Argument::of("sum")), text_signature = "($self, values, op='sum')")]
    fn all_reduce<'py>(
        &self,
        py: Python<'py>,
        values: Argument<Numbers>,
        op: Argument<String>,
    ) -> PyResult<Bound<'py, PyList>> {
        accept!(values, op);
        let op = choose("op", &op, &[("sum", Reduce::Sum), ("min", Reduce::Min), ("max", Reduce::Max)])?;
        match values {
            Numbers::Whole(values) => {
                // 128 bits, so that no number of ranks makes a sum overflow.
                let values: Vec<u128> = values.into_iter().map(u128::from).collect();
                PyList::new(py, self.wait(py, |comm| comm.all_reduce(values, op))?)
            }
            Numbers::Floats(values) => PyList::new(py, self.wait(py, |comm| comm.all_reduce(values, op))?),
        }
    }

    #[doc = doc!("Communicator.agree")]
    #[pyo3(signature = (error = None))]
    fn agree(this: Py<Self>, py: Python<'_>, error: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let given = match error {
            None => Ok(()),
            Some(error) if error.is_instance_of::<PyBaseException>() => Err(PyErr::from_value(error.clone())),
            Some(other) => Err(error::type_error(format!(
                "error: an exception or None is wanted, not {}",
                shown_in_message(other)
            ))),
        };
        collective(py, &this, "agree", given, |_, ()| Ok(()))
    }

    #[doc = doc!("Communicator.neighbor_exchange")]
    #[pyo3(signature = (periodic = Argument::of(false), *, memory = None, deadline = None), text_signature = "($self, periodic=False, *, memory=None, deadline=None)")]
    fn neighbor_exchange(
        &self,
        py: Python<'_>,
        periodic: Argument<bool>,
        memory: Option<Argument<Memory>>,
        deadline: Option<Argument<Duration>>,
    ) -> PyResult<PyNeighborExchange> {
        neighbors::begin(py, self, neighbors::Wanted { periodic, memory, deadline })
    }

    #[doc = doc!("Communicator.sparse_alltoall")]
    #[pyo3(signature = (sends, *, sources = None, memory = None))]
    fn sparse_alltoall<'py>(
        this: Py<Self>,
        py: Python<'py>,
        sends: &Bound<'py, PyAny>,
        sources: Option<Argument<List<usize>>>,
        memory: Option<Argument<Memory>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        sparse::alltoall(py, &this, sends, sources, memory)
    }

    #[doc = doc!("Communicator.mappings")]
    fn mappings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let comm = self.get()?;
        let stats = Mappings::of(&comm).stats();
        [
            ("hits", stats.hits),
            ("opens", stats.opens),
            ("evictions", stats.evictions),
            ("staged", stats.staged),
            ("entries", stats.entries as u64),
            ("pinned", stats.pinned as u64),
            ("bytes_held", stats.bytes_held),
            ("mapped", stats.mapped as u64),
            ("bytes_mapped", stats.bytes_mapped),
            ("malformed", stats.malformed),
        ]
        .into_py_dict(py)
    }

    #[doc = doc!("Communicator.close")]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        refuse_in_allocator("close a communicator")?;
        self.member.close(py);
        Ok(())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_of))]
    fn __exit__(&self, py: Python<'_>, _of: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("Communicator({}, rank {} of {})", self.transport, self.rank, self.size)
    }
}

/// Whether this process joined the job itself; false in a forked child of such a process.
fn is_first_process() -> bool {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    FIRST
        .compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire)
        .map_or_else(|first| first == own, |_| true)
}

/// Held during `init`.
pub(crate) static JOINING: CallLock = CallLock::new();

/// The communicator that `init` returns, and the transport's name of the first call.
type Found = Arc<Mutex<Option<(String, Py<PyCommunicator>)>>>;

/// The entry of this process, and whether the process is a forked child of a rank.
fn found() -> (Found, bool) {
    // Locked only briefly and by attached threads, so no fork happens while it is locked.
    static FOUND: Mutex<Option<(ProcessLocal<Found>, bool)>> = Mutex::new(None);
    let mut known = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((found, is_child)) = &*known
        && let Ok(found) = found.get()
    {
        return (Arc::clone(found), *is_child);
    }
    let (found, is_child) = (Found::default(), known.is_some());
    *known = Some((ProcessLocal::new(Arc::clone(&found)), is_child));
    (found, is_child)
}

/// Joins the job of this process.
fn join(py: Python<'_>, transport: &str, is_child: bool) -> PyResult<Py<PyCommunicator>> {
    prepare(py)?;
    let name = match (is_child, transport) {
        (false, name) => name,
        // The rank is its parent.
        (true, "auto" | "thread") => "thread",
        (true, _) => return Err(error::forked()),
    };
    let host = Arc::new(PythonHost);
    host::clear_awaited_rank();
    let joined = py.detach(|| Communicator::init_on(name, host)).map_err(error::of)?;
    Py::new(py, PyCommunicator::first(joined, new_group()))
}

#[doc = doc!("init")]
#[pyfunction]
#[pyo3(signature = (transport = Argument::of("auto"), *, deadline = None), text_signature = "(transport='auto', *, deadline=None)")]
pub(crate) fn init(
    py: Python<'_>,
    transport: Argument<String>,
    deadline: Option<Argument<Duration>>,
) -> PyResult<Py<PyCommunicator>> {
    accept!(transport, deadline);
    if ENDED.load(Ordering::Relaxed) {
        return Err(error::closed(
            "the interpreter is ending and has left all groups; make communicators before it ends",
        ));
    }
    let (found, is_child) = found();
    let is_child = is_child || !is_first_process();
    let inside = JOINING.enter(py, "init")?;
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    let comm = of_process(py, &mut found, &transport, is_child);
    drop(found);
    drop(inside);
    let comm = comm?;
    match deadline {
        None => Ok(comm),
        Some(_) => {
            let with_deadline = comm.get().get()?.with_deadline(deadline);
            Py::new(py, comm.get().beside(with_deadline))
        }
    }
}

/// The communicator of an earlier call, or a new one. A rank alone that was closed gets a new one.
fn of_process(
    py: Python<'_>,
    found: &mut Option<(String, Py<PyCommunicator>)>,
    transport: &str,
    is_child: bool,
) -> PyResult<Py<PyCommunicator>> {
    if let Some((name, comm)) = found {
        let had = comm.get();
        if name != transport && transport != had.transport && transport != "auto" {
            let had = had.transport;
            return Err(error::value_error(format!(
                "transport: this process uses '{had}' already and cannot use '{transport}'; ask for '{had}' or 'auto'"
            )));
        }
        match had.get() {
            Ok(_) => return Ok(comm.clone_ref(py)),
            // A rank alone gets a new communicator.
            Err(_) if had.transport == "thread" => {}
            Err(_) => {
                return Err(error::closed("the communicator was closed; a process joins its job only once"));
            }
        }
    }
    let comm = join(py, transport, is_child)?;
    *found = Some((transport.to_owned(), comm.clone_ref(py)));
    Ok(comm)
}
