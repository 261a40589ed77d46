//! Which memory an array lies in. Arrays that are views of one memory are known to be so, so that what they share is exchanged
//! by one exchange at a time, and seen where it would be written twice.

use super::watch::Watch;
use crate::comm::PyCommunicator;
use crate::error;
use crate::given::{Get, Given, named};
use crate::owned::Owned;
use halocline::device::cuda;
use halocline::{DeviceArray, ElementType, Field, Layout, WeakField};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of the library's own, zeroed, as bytes: the base of NumPy and CuPy arrays.
#[pyclass(frozen, module = "halocline", name = "Memory")]
pub(crate) struct PyMemory {
    field: Owned<Field>,
    bytes: usize,
    device: Option<u32>,
}

#[pymethods]
impl PyMemory {
    #[new]
    fn new(
        py: Python<'_>,
        comm: Given<Py<PyCommunicator>>,
        bytes: Given<usize>,
        device: Option<Given<u32>>,
    ) -> PyResult<Self> {
        named!(comm, bytes, device);
        let comm = comm.get().get()?;
        let layout = Layout::c_order(ElementType::U8, &[bytes.max(1)]).map_err(error::of)?;
        let field = py.detach(|| match device {
            None => Field::allocate(&comm, layout),
            Some(ordinal) => {
                DeviceArray::<u8>::with_layout(&cuda::device(ordinal)?, layout).map(|array| (*array).clone())
            }
        });
        let field = field.map_err(error::of)?;
        note(device, &field, None);
        Ok(Self { field: Owned::new(field), bytes, device })
    }

    /// What makes `numpy.asarray` a view of it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.device {
            None => self.interface(py),
            Some(_) => {
                Err(pyo3::exceptions::PyAttributeError::new_err("memory of a GPU is no memory of the host"))
            }
        }
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.device {
            Some(_) => self.interface(py),
            None => {
                Err(pyo3::exceptions::PyAttributeError::new_err("memory of the host is no memory of a GPU"))
            }
        }
    }
}

impl PyMemory {
    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.field.get()?.base().addr().get(), false))?;
        Ok(interface)
    }
}

/// The addresses of an array, if it has such.
pub(super) fn span(base: NonNull<u8>, layout: &Layout) -> PyResult<Range<usize>> {
    let (span, base) = (layout.span(), base.addr().get());
    match (base.checked_add_signed(span.start), base.checked_add_signed(span.end)) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(error::value(format!(
            "an array at {base:#x} from byte {} to byte {} is beyond all memory",
            span.start, span.end
        ))),
    }
}

/// The array that a NumPy array is a view of, itself if none.
pub(super) fn root<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    /// How deep views of views are looked into.
    const DEEPEST: usize = 64;
    let mut owner = array.clone();
    for _ in 0..DEEPEST {
        match owner.getattr_opt("base")? {
            Some(next) if next.getattr_opt("__array_interface__")?.is_some() => owner = next,
            _ => break,
        }
    }
    Ok(owner)
}

/// The array whose memory a NumPy array has a part of, and all addresses of that.
pub(super) fn whole(
    array: &Bound<'_, PyAny>,
    base: NonNull<u8>,
    layout: &Layout,
) -> PyResult<(Py<PyAny>, Range<usize>)> {
    let own = span(base, layout)?;
    let owner = root(array)?;
    if owner.is(array) {
        return Ok((owner.unbind(), own));
    }
    let described = super::describe(&owner);
    let all = described.and_then(|described| Ok((described.base, described.layout()?)));
    if let Ok((base, layout)) = all
        && let Some(base) = NonNull::new(std::ptr::without_provenance_mut(base))
    {
        let all = span(base, &layout)?;
        if all.start <= own.start && own.end <= all.end {
            return Ok((owner.unbind(), all));
        }
    }
    // It lies elsewhere than its base, or the base is no array of plain elements.
    Ok((array.clone().unbind(), own))
}

/// A field of all of some memory, and the array that has it.
type Known = (WeakField, Option<Arc<Watch>>);

/// Memory that fields are in: of each device clusters of addresses that meet, by the first address, which do not meet each other.
struct Memories {
    clusters: BTreeMap<(Option<u32>, usize), Cluster>,
    count: usize,
    /// How many there may be before those that are gone are forgotten.
    most: usize,
    /// A forked child knows nothing of its parent's.
    process: u32,
}

/// Memory whose addresses meet, and the end of all.
struct Cluster {
    end: usize,
    known: Vec<(Range<usize>, Known)>,
}

const FEW: usize = 64;

static KNOWN: Mutex<Memories> =
    Mutex::new(Memories { clusters: BTreeMap::new(), count: 0, most: FEW, process: 0 });

fn memories() -> MutexGuard<'static, Memories> {
    let mut memories = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if memories.process != std::process::id() {
        let known = Memories { clusters: BTreeMap::new(), count: 0, most: FEW, process: std::process::id() };
        // What the parent had is not dropped: others hold it, too.
        std::mem::forget(std::mem::replace(&mut *memories, known));
    }
    memories
}

impl Memories {
    /// The first addresses of clusters that a range meets, from the last one on.
    fn met<'a>(&'a self, device: Option<u32>, range: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
        let begun = self.clusters.range((device, 0)..(device, range.end)).rev();
        begun.take_while(|(_, cluster)| cluster.end > range.start).map(|((_, start), _)| *start)
    }

    fn add(&mut self, device: Option<u32>, range: Range<usize>, known: Known) {
        let (mut start, mut cluster) = (range.start, Cluster { end: range.end, known: Vec::new() });
        for met in self.met(device, &range).collect::<Vec<_>>() {
            let Some(other) = self.clusters.remove(&(device, met)) else { continue };
            (start, cluster.end) = (start.min(met), cluster.end.max(other.end));
            cluster.known.extend(other.known);
        }
        let before = cluster.known.len();
        cluster.known.retain(|(other, _)| *other != range);
        self.count = self.count + 1 + cluster.known.len() - before;
        cluster.known.push((range, known));
        self.clusters.insert((device, start), cluster);
    }

    fn forget_what_is_gone(&mut self) {
        let all = std::mem::take(&mut self.clusters);
        self.count = 0;
        for ((device, _), cluster) in all {
            for (range, known) in cluster.known.into_iter().filter(|(_, known)| known.0.upgrade().is_some()) {
                self.add(device, range, known);
            }
        }
        self.most = FEW.max(2 * self.count);
    }
}

/// From now on the memory of this field is known.
fn note(device: Option<u32>, whole: &Field, watch: Option<Arc<Watch>>) {
    let mut memories = memories();
    if memories.count >= memories.most {
        memories.forget_what_is_gone();
    }
    memories.add(device, whole.memory(), (whole.downgrade(), watch));
}

/// What is known of memory with some of these addresses, the nearest below the last one first.
fn meeting(device: Option<u32>, span: &Range<usize>) -> Vec<Known> {
    let memories = memories();
    let clusters = memories.met(device, span).filter_map(|start| memories.clusters.get(&(device, start)));
    let known = clusters.flat_map(|cluster| &cluster.known);
    let mut met: Vec<_> =
        known.filter(|(range, _)| range.start < span.end && range.end > span.start).collect();
    met.sort_by_key(|(range, _)| std::cmp::Reverse((range.start, range.end)));
    met.into_iter().map(|(_, known)| known.clone()).collect()
}

/// The field in memory that is known, or else in memory that `make` makes known: a field of all addresses of the span, whose
/// array is watched. Known memory that has some of the addresses is met by it.
pub(super) fn known_or(
    py: Python<'_>,
    (device, span, watch): (Option<u32>, Range<usize>, Option<Arc<Watch>>),
    base: NonNull<u8>,
    layout: Layout,
    make: impl FnOnce(NonNull<u8>, Layout) -> PyResult<Field>,
) -> PyResult<Field> {
    if span.is_empty() {
        return make(base, layout);
    }
    // An array that has given its memory back since may be met again at the addresses of another.
    let is_there = |watch: &Option<Arc<Watch>>| match watch {
        Some(watch) => Ok::<_, PyErr>(watch.change(py)?.is_none()),
        None => Ok(true),
    };
    let mut met = Vec::new();
    for (known, watch) in meeting(device, &span) {
        if !is_there(&watch)? {
            continue;
        }
        let Some(field) = known.upgrade() else { continue };
        let whole = field.memory();
        if whole.start <= span.start
            && span.end <= whole.end
            && let Ok(view) = field.view(base, layout.clone())
        {
            return Ok(view);
        }
        met.push(field);
    }
    let bytes = Layout::c_order(ElementType::U8, &[span.len()]).map_err(error::of)?;
    let whole = make(base.map_addr(|_| std::num::NonZero::new(span.start).unwrap_or(base.addr())), bytes)?;
    let whole = whole.meeting(&met);
    note(device, &whole, watch);
    whole.view(base, layout).map_err(error::of)
}
