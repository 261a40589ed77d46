//! Communicators: found, of mpi4py, of threads.

use crate::alone::Alone;
use crate::array::is_instance;
use crate::command::listen;
use crate::error;
use crate::given::{Bytes, Get, Given, List, choose, named, told};
use crate::grid::collective;
use crate::host;
use crate::host::{FastClock, PythonHost};
use crate::owned::{Closable, Member, Owned};
use halocline::comm::Host;
use halocline::comm::mappings::Mappings;
use halocline::{Communicator, Reduce};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};
use std::num::NonZero;
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
    /// The same for all that come of one group.
    group: u64,
}

/// The ranks that this process is, for its end.
static ALL: Mutex<Vec<Weak<Member>>> = Mutex::new(Vec::new());

impl PyCommunicator {
    /// The first of a group.
    fn first(comm: Communicator, group: u64) -> Self {
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

    /// Another one of the same rank.
    fn beside(&self, comm: Communicator) -> Self {
        Self::of(comm, Arc::clone(&self.member), self.group)
    }

    /// The communicator itself, unless it was closed.
    pub(crate) fn get(&self) -> PyResult<Arc<Communicator>> {
        self.comm.get()
    }

    /// Whether the other ranks are threads of this process.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.transport == "thread"
    }

    /// What ends with it.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Calls something that may wait.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Communicator) -> Result<T, halocline::CommError> + Send,
    ) -> PyResult<T> {
        let comm = self.get()?;
        py.detach(|| call(&comm)).map_err(error::of)
    }
}

fn new_group() -> u64 {
    static GROUPS: AtomicU64 = AtomicU64::new(0);
    GROUPS.fetch_add(1, Ordering::Relaxed)
}

/// Whether the interpreter ends.
static ENDED: AtomicBool = AtomicBool::new(false);

fn close_all(py: Python<'_>) {
    ENDED.store(true, Ordering::Relaxed);
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    all.iter().filter_map(Weak::upgrade).for_each(|member| member.close(py));
}

/// What comes before the first communicator: a listener for warnings; and all groups are left when the interpreter ends,
/// for objects that it never drops would leave peers waiting.
fn prepare(py: Python<'_>) -> PyResult<()> {
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
        error::kind(format!("comm: {wanted} is wanted, not {}", told(comm)))
    };
    if comm.is_instance_of::<PyBool>() {
        return Err(wanted());
    }
    if let Ok(number) = comm.extract::<usize>() {
        return Ok(number);
    }
    // By its class alone: MPI may be over.
    if is_instance(comm, "mpi4py.MPI", "Intercomm")? {
        return Err(error::value(
            "comm: an intercommunicator joins two groups, which have no common ranks; give an intracommunicator, as \
             comm.Merge() makes it of this one",
        ));
    }
    // Types, operations and groups have handles, too, which MPI would take for a communicator's.
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
        node_aware: Option<Given<bool>>,
        deadline: Option<Given<Duration>>,
    ) -> PyResult<Self> {
        named!(node_aware, deadline);
        prepare(py)?;
        let handle = mpi_handle(comm)?;
        if !is_first_process() {
            return Err(error::forked());
        }
        let host = Arc::new(PythonHost);
        host::waits_for_nobody();
        // SAFETY: an object of mpi4py holds a communicator of the library that it has loaded; whoever gives a number
        // says so. MPI is finalised at the end of the interpreter, whose main thread is at this call, or by a thread
        // that breaks MPI's own rules.
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
    #[pyo3(signature = (color, key = Given::of(0isize)), text_signature = "($self, color, key=0)")]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<Given<usize>>,
        key: Given<isize>,
    ) -> PyResult<Option<Self>> {
        named!(color, key);
        let split = self.wait(py, |comm| comm.split(color, key as i64))?;
        Ok(split.map(|comm| Self::of(comm, Arc::clone(&self.member), new_group())))
    }

    #[doc = doc!("Communicator.with_deadline")]
    fn with_deadline(&self, seconds: Option<Given<Duration>>) -> PyResult<Self> {
        named!(seconds);
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
        root: Given<usize>,
        data: Given<Bytes>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        named!(root, data);
        let Bytes(data) = data;
        self.wait(py, |comm| comm.broadcast(root, data)).map(|data| PyBytes::new(py, &data))
    }

    #[doc = doc!("Communicator.all_gather")]
    fn all_gather<'py>(&self, py: Python<'py>, data: Given<Bytes>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let Bytes(data) = data.get("data")?;
        let all = self.wait(py, |comm| comm.all_gather(&data))?;
        Ok(all.iter().map(|data| PyBytes::new(py, data)).collect())
    }

    #[doc = doc!("Communicator.all_reduce")]
    #[pyo3(signature = (values, op = Given::of("sum")), text_signature = "($self, values, op='sum')")]
    fn all_reduce(&self, py: Python<'_>, values: Given<List<u64>>, op: Given<String>) -> PyResult<Vec<u128>> {
        named!(values, op);
        let List(values) = values;
        let op = choose("op", &op, &[("sum", Reduce::Sum), ("min", Reduce::Min), ("max", Reduce::Max)])?;
        // As 128 bits: no number of ranks makes their sums overflow.
        let values: Vec<u128> = values.into_iter().map(u128::from).collect();
        self.wait(py, |comm| comm.all_reduce(values, op))
    }

    #[doc = doc!("Communicator.agree")]
    #[pyo3(signature = (error = None))]
    fn agree(this: Py<Self>, py: Python<'_>, error: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let given = match error {
            None => Ok(()),
            Some(error) if error.is_instance_of::<PyBaseException>() => Err(PyErr::from_value(error.clone())),
            Some(other) => {
                Err(error::kind(format!("error: an exception or None is wanted, not {}", told(other))))
            }
        };
        collective(py, &this, "agree", given, |_, ()| Ok(()))
    }

    #[doc = doc!("Communicator.mappings")]
    fn mappings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let comm = self.get()?;
        let mappings = Mappings::of(&comm).map_err(|error| error::value(error.to_string()))?;
        let stats = mappings.stats();
        let counts = PyDict::new(py);
        for (name, count) in [
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
        ] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    #[doc = doc!("Communicator.close")]
    fn close(&self, py: Python<'_>) {
        self.member.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_of))]
    fn __exit__(&self, py: Python<'_>, _of: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("Communicator({}, rank {} of {})", self.transport, self.rank, self.size)
    }
}

/// Whether this process is the one that joined a job first: not a forked child of it, whose job is its parent's.
fn is_first_process() -> bool {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    FIRST
        .compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire)
        .map_or_else(|first| first == own, |_| true)
}

/// Who is in `init`.
pub(crate) static JOINING: Alone = Alone::new();

/// What `init` gives, and by which name it was asked for first.
type Found = Arc<Mutex<Option<(String, Py<PyCommunicator>)>>>;

/// That of this process, and whether the process is a forked child of a rank.
fn found() -> (Found, bool) {
    // Held for a moment by threads that are attached, so that no fork meets it locked.
    static FOUND: Mutex<Option<(Owned<Found>, bool)>> = Mutex::new(None);
    let mut known = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((found, is_child)) = &*known
        && let Ok(found) = found.get()
    {
        return (Arc::clone(found), *is_child);
    }
    let (found, is_child) = (Found::default(), known.is_some());
    *known = Some((Owned::new(Arc::clone(&found)), is_child));
    (found, is_child)
}

/// Joins the job that this process is a rank of.
fn join(py: Python<'_>, transport: &str, is_child: bool) -> PyResult<Py<PyCommunicator>> {
    prepare(py)?;
    let name = match (is_child, transport) {
        (false, name) => name,
        // The rank is its parent.
        (true, "auto" | "thread") => "thread",
        (true, _) => return Err(error::forked()),
    };
    let host = Arc::new(PythonHost);
    host::waits_for_nobody();
    let joined = py.detach(|| Communicator::init_on(name, host)).map_err(error::of)?;
    Py::new(py, PyCommunicator::first(joined, new_group()))
}

#[doc = doc!("init")]
#[pyfunction]
#[pyo3(signature = (transport = Given::of("auto"), *, deadline = None), text_signature = "(transport='auto', *, deadline=None)")]
pub(crate) fn init(
    py: Python<'_>,
    transport: Given<String>,
    deadline: Option<Given<Duration>>,
) -> PyResult<Py<PyCommunicator>> {
    named!(transport, deadline);
    if ENDED.load(Ordering::Relaxed) {
        return Err(error::closed("the interpreter has left all groups"));
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

/// What is found already, unless it was closed and can be made again; or else what is found now.
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
            return Err(error::value(format!(
                "transport: this process has the transport '{had}' already, '{transport}' is asked for"
            )));
        }
        match had.get() {
            Ok(_) => return Ok(comm.clone_ref(py)),
            // A rank alone is made anew.
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

/// Ranks of one group of threads, at most: far more than a process can have threads.
const MOST_THREADS: usize = 1 << 16;

/// Ranks that are threads.
#[pyclass(frozen, module = "halocline")]
pub(crate) struct ThreadGroup {
    members: Vec<Weak<Member>>,
    /// Until they are handed out.
    ranks: Mutex<Vec<Py<PyCommunicator>>>,
}

#[pymethods]
impl ThreadGroup {
    /// `clock_speed`: for tests, how much faster the clock of waits runs.
    #[new]
    #[pyo3(signature = (n, *, clock_speed = None))]
    fn new(py: Python<'_>, n: Given<usize>, clock_speed: Option<NonZero<u32>>) -> PyResult<Self> {
        let size = n.get("n")?;
        if size == 0 {
            return Err(error::value("n: 0 threads are no group; at least one is needed"));
        }
        if size > MOST_THREADS {
            return Err(error::value(format!("n: {size} threads are too many; {MOST_THREADS} can be ranks")));
        }
        prepare(py)?;
        let host: Arc<dyn Host> = match clock_speed {
            None => Arc::new(PythonHost),
            Some(speed) => Arc::new(FastClock { speed: speed.get() }),
        };
        let group = new_group();
        let ranks = Communicator::threads_on(size, host);
        let ranks: Vec<_> = ranks.into_iter().map(|comm| PyCommunicator::first(comm, group)).collect();
        let members = ranks.iter().map(|rank| Arc::downgrade(&rank.member)).collect();
        let ranks = ranks.into_iter().map(|rank| Py::new(py, rank)).collect::<PyResult<_>>()?;
        Ok(Self { members, ranks: Mutex::new(ranks) })
    }

    /// The ranks, once, and none after an interrupt: a rank that nobody has any more has left the group.
    #[getter]
    fn ranks(&self) -> Vec<Py<PyCommunicator>> {
        std::mem::take(&mut *self.ranks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes all ranks. Their calls raise `KeyboardInterrupt`, those that wait, too. Returns whether the ranks were handed out before.
    fn interrupt(&self, py: Python<'_>) -> bool {
        let kept = self.ranks();
        let members: Vec<_> = self.members.iter().filter_map(Weak::upgrade).collect();
        // All first: the end of one ends waits of others.
        members.iter().for_each(|member| member.interrupt());
        members.iter().for_each(|member| member.close(py));
        kept.is_empty()
    }
}
